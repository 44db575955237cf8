"""The best weights of a run are kept, and a run that no longer gets better may end."""

import json
import math
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf
from helpers import read_task, refused
from models import golden, train

from bert_tf.checkpoints.tf1 import latest_checkpoint
from bert_tf.training.best_checkpoint import BestCheckpoint


class Run:
    """Stands for a trainer with one weight, which is its step."""

    is_chief = True

    def __init__(self):
        self.step = 0
        self.model = SimpleNamespace(weights=[keras.Variable([0.0], name="weight")])

    def offer(self, best, step, **results):
        self.step = step
        self.model.weights[0].assign([float(step)])
        best.offer(results, self)


def kept_weight(folder):
    prefix = latest_checkpoint(str(folder / "best"))
    assert tf.train.load_variable(prefix, "global_step") == float(
        tf.train.load_variable(prefix, "weight")[0]
    )
    return float(tf.train.load_variable(prefix, "weight")[0])


@pytest.mark.parametrize(
    ("lower_is_better", "values"),
    [(False, (0.5, 0.7, 0.6, math.nan)), (True, (math.nan, 2.0, 2.5, 2.0))],
)
def test_the_weights_of_the_best_value_are_kept(tmp_path, lower_is_better, values):
    best, run = BestCheckpoint(str(tmp_path), "value", lower_is_better), Run()
    for step, value in enumerate(values, 1):
        run.offer(best, step, value=value)
    assert kept_weight(tmp_path) == 2.0
    assert best.evaluations_since == 2


@pytest.mark.parametrize("kind", ["regression", "pretrained"])
def test_lower_losses_errors_and_perplexities_are_better(kind):
    task = read_task(str(golden(kind)))
    lower = {n for n in task.metric_keys if n.endswith(("loss", "error", "perplexity"))}
    assert lower == {*task.lower_is_better}


def test_an_interrupted_run_goes_on_with_the_record_it_had(tmp_path):
    run = Run()
    first = BestCheckpoint(str(tmp_path), "eval_accuracy")
    run.offer(first, 1, eval_accuracy=0.8)
    run.offer(first, 2, eval_accuracy=0.7)
    second = BestCheckpoint(str(tmp_path), "eval_accuracy")
    run.offer(second, 2, eval_accuracy=0.7)  # evaluated again after the interruption
    assert second.evaluations_since == 1
    run.offer(second, 3, eval_accuracy=0.75)
    assert second.evaluations_since == 2
    assert kept_weight(tmp_path) == 1.0
    assert json.loads((tmp_path / "best" / "best.json").read_text())["step"] == 1


def test_a_record_of_a_run_that_left_no_checkpoint_does_not_count(tmp_path):
    """Not for the best value, the number of evaluations without a better one, or the metric."""
    run, first = Run(), BestCheckpoint(str(tmp_path), "eval_f1")
    for step, value in ((10, 0.9), (20, 0.8)):
        run.offer(first, step, eval_f1=value)
    best = BestCheckpoint(str(tmp_path), "eval_f1", is_new_run=True, patience=1)
    run.offer(best, 1, eval_f1=0.5)
    assert (best.evaluations_since, best.is_over, kept_weight(tmp_path)) == (0, False, 1.0)
    again = BestCheckpoint(str(tmp_path), "eval_f1", patience=1)
    run.offer(again, 2, eval_f1=0.4)
    assert (again.evaluations_since, again.is_over, kept_weight(tmp_path)) == (1, True, 1.0)


@pytest.mark.night
def test_early_stopping_ends_a_run_that_gets_no_better(tmp_path, eagerly):
    given = {"evaluate_steps": 4, "early_stopping": 1, "learning_rate": 1e-30}
    given |= {"num_train_epochs": 3.0, "do_predict": False}  # 22 steps
    results = train("regression", tmp_path, **given)
    assert results["global_step"] == 8
    assert latest_checkpoint(str(tmp_path)).endswith("model.ckpt-8")
    assert json.loads((tmp_path / "best" / "best.json").read_text())["step"] == 4
    assert train("regression", tmp_path, **given) == results  # the run is over


def test_a_worker_goes_on_with_the_record_of_all(tmp_path):
    """Else it would count its evaluations anew, and train on where the chief has ended."""
    first, chief, worker = BestCheckpoint(str(tmp_path), "eval_accuracy"), Run(), Run()
    for step, accuracy in ((1, 0.8), (2, 0.7)):
        chief.offer(first, step, eval_accuracy=accuracy)
    worker.is_chief = False
    found = [BestCheckpoint(str(tmp_path), "eval_accuracy") for _ in range(2)]
    for best, run in zip(found, (worker, chief), strict=True):
        run.offer(best, 3, eval_accuracy=0.75)
    assert [best.evaluations_since for best in found] == [2, 2]


def test_a_metric_that_is_missing_or_another_than_before_is_refused(tmp_path):
    best = BestCheckpoint(str(tmp_path), "eval_f1")
    with refused("best_metric"):
        Run().offer(best, 1, global_step=1, eval_accuracy=np.float32(0.5))
    Run().offer(BestCheckpoint(str(tmp_path), "eval_accuracy"), 1, eval_accuracy=0.5)
    with refused("best_metric"):
        BestCheckpoint(str(tmp_path), "eval_f1")
