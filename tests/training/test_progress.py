"""What a person sees of a run, with a clock that the test moves."""

import io

import pytest
import tensorflow as tf
from helpers import read_json_lines

from bert_tf.training.progress import MetricsLog, Progress


class Clock:
    """Seconds that pass only when told."""

    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now

    def pass_by(self, seconds):
        self.now += seconds


class Terminal(io.StringIO):
    def isatty(self):
        return True


def shown(stream, updates, total=10, **arguments):
    """What is written for updates (seconds since the one before, units done, values)."""
    clock = Clock()
    progress = Progress("train", total, stream=stream, clock=clock, **arguments)
    for seconds, done, *values in updates:
        clock.pass_by(seconds)
        progress.update(done, *values)
    return stream.getvalue()


def test_the_rate_leaves_out_the_first_update_which_holds_the_compilation():
    text = shown(Terminal(), [(50, 1), (2, 5)])
    assert text.endswith("train 5/10  50%  2.00 steps/s  ETA 2s")


def test_a_terminal_shows_every_update_on_one_line_and_a_line_end_at_the_end():
    text = shown(Terminal(), [(1, 1), (1, 2), (1, 10)])
    assert text.count("\r\x1b[K") == 3
    assert text.count("\n") == 1
    assert text.endswith("train 10/10 100%  4.50 steps/s  took 3s\n")


def test_a_file_gets_a_line_every_20_seconds_and_one_at_the_end():
    updates = [(1, 1), (18, 2), (1, 3), (19, 4), (1, 5), (1, 10)]
    lines = shown(io.StringIO(), updates).splitlines()
    assert [line.split()[1] for line in lines] == ["3/10", "5/10", "10/10"]
    assert "\r" not in "".join(lines)


def test_the_metrics_log_is_appended_to(tmp_path):
    MetricsLog(str(tmp_path)).write("train", 10, {"learning_rate": 0.25})
    MetricsLog(str(tmp_path)).write("eval", 20, {"masked_lm_loss": 1})
    assert read_json_lines(tmp_path / "metrics.jsonl") == [
        {"kind": "train", "step": 10, "learning_rate": 0.25},
        {"kind": "eval", "step": 20, "masked_lm_loss": 1.0},
    ]


def test_events_hold_the_figures_of_the_log(tmp_path):
    pytest.importorskip("tensorboard", reason="pip install -e .[tensorboard]")
    log = MetricsLog(str(tmp_path), tensorboard=True)
    log.write("train", 10, {"loss": 2.5})
    log.write("eval", 20, {"accuracy": 0.75})
    (file,) = tmp_path.glob("events.out.tfevents.*")
    found = {}
    for record in tf.compat.v1.io.tf_record_iterator(str(file)):
        event = tf.compat.v1.Event.FromString(record)
        for value in event.summary.value:
            found[value.tag, event.step] = float(tf.make_ndarray(value.tensor))
    assert found == {("train/loss", 10): 2.5, ("eval/accuracy", 20): 0.75}
