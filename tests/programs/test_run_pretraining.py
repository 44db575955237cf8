"""run_pretraining: from text to a pre-trained encoder, and the files it promises."""

import dataclasses
import json
import math
import shutil
import signal
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from pages import data_of
from tiny_runs import (
    CONFIG,
    MAX_PREDICTIONS,
    MAX_SEQ_LENGTH,
    Interruption,
    checkpoint_arrays,
    interrupt_at,
    pretraining_options,
    read_results,
    script_command,
    write_records,
)

from bert_tf.config import BertConfig
from bert_tf.data.record_checks import count_records
from bert_tf.programs.pretraining_record_sets import read_record_set
from bert_tf.programs.run_pretraining import make_tasks, run_pretraining
from bert_tf.training.checkpoints import latest_checkpoint

RESULTS = [
    "global_step",
    "loss",
    "masked_lm_accuracy",
    "masked_lm_loss",
    "masked_lm_perplexity",
    "next_sentence_accuracy",
    "next_sentence_loss",
]


@pytest.fixture
def options(records, toy_text, tmp_path):
    """Of the run that made `pretrained`, into another folder."""
    return pretraining_options(records, toy_text, tmp_path / "output")


@pytest.fixture
def copied(pretrained, tmp_path):
    """A copy of `pretrained` without its results, which a test may change."""
    ignored = shutil.ignore_patterns("eval_results.txt")
    return Path(shutil.copytree(pretrained, tmp_path / "copy", ignore=ignored))


def metrics(folder):
    lines = (Path(folder) / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def changed_config(toy_text, path, **changes):
    path.write_text(json.dumps(json.loads((toy_text / "bert_config.json").read_text()) | changes))
    return str(path)


# ------------------------------------------------------------------------------------ what it leaves


def test_it_leaves_checkpoints_results_metrics_and_all_that_the_model_needs(pretrained):
    checkpoints = [f"model.ckpt-{step}" for step in (60, 120, 150)]
    parts = [f"{name}.{part}" for name in checkpoints for part in ("data-00000-of-00001", "index")]
    beside = ["bert_config.json", "task.json", "tokenizer_config.json", "vocab.txt"]
    files = ["best", "checkpoint", "eval_results.txt", "metrics.jsonl", "training.json"]
    files += ["README.md", "model_card_facts.json", "report.html"]
    names = sorted(path.name for path in pretrained.iterdir())
    assert names == sorted([*parts, *beside, *files])
    best = sorted(path.name for path in (pretrained / "best").iterdir())
    parts = [f"model.ckpt-150.{part}" for part in ("data-00000-of-00001", "index")]
    assert best == sorted([*parts, *beside, "best.json", "checkpoint"])


def test_the_newest_checkpoint_is_named_without_its_folder_so_that_it_can_be_moved(pretrained):
    lines = (pretrained / "checkpoint").read_text().splitlines()
    assert lines[0] == 'model_checkpoint_path: "model.ckpt-150"'
    assert latest_checkpoint(str(pretrained)) == str(pretrained / "model.ckpt-150")


def test_configuration_vocabulary_and_task_are_those_of_the_run(pretrained, toy_text):
    assert (pretrained / "vocab.txt").read_bytes() == (toy_text / "vocab.txt").read_bytes()
    config = BertConfig.from_json_file(pretrained / "bert_config.json")
    assert config == BertConfig.from_json_file(toy_text / "bert_config.json")
    assert json.loads((pretrained / "task.json").read_text()) == {
        "task": "pretraining",
        "max_seq_length": MAX_SEQ_LENGTH,
        "max_predictions_per_seq": MAX_PREDICTIONS,
        "objective": "mlm_nsp",
    }


def test_the_results_have_the_keys_of_the_reference_and_the_perplexity_in_order(pretrained):
    results = read_results(pretrained)
    assert list(results) == RESULTS
    assert results["masked_lm_perplexity"] == pytest.approx(math.exp(results["masked_lm_loss"]))
    assert results["global_step"] == 150
    total = results["masked_lm_loss"] + results["next_sentence_loss"]
    assert results["loss"] == pytest.approx(total)


def test_the_loss_falls_and_masked_words_are_guessed_on_held_out_text(pretrained):
    train = [line for line in metrics(pretrained) if line["kind"] == "train"]
    assert train[-1]["masked_lm_loss"] < 0.5 * train[0]["masked_lm_loss"]
    results = read_results(pretrained)
    assert results["masked_lm_loss"] < 0.5 * math.log(
        BertConfig(**CONFIG, vocab_size=190).vocab_size
    )
    assert results["masked_lm_accuracy"] > 0.3


def test_each_line_of_metrics_has_step_losses_gradient_norm_and_learning_rate(pretrained):
    train = [line for line in metrics(pretrained) if line["kind"] == "train"]
    keys = {"kind", "step", "loss", "masked_lm_loss", "next_sentence_loss"}
    keys |= {"masked_lm_accuracy", "next_sentence_accuracy", "gradient_norm", "learning_rate"}
    keys |= {
        "masked_lm_prob",
        "tokens",
        "sequences_per_second",
        "tokens_per_second",
        "gflops_per_second",
    }
    assert all(set(line) - {"learning_rates"} == keys for line in train)
    steps = [line["step"] for line in train]
    assert steps == sorted(set(steps))
    assert steps[-1] == 150
    assert train[0]["learning_rate"] == 0.0  # of the first step of warm-up


def test_the_report_has_the_curves_up_to_the_last_step_and_the_command(pretrained):
    page = data_of((pretrained / "report.html").read_text())
    charts = {section["title"]: section["parts"][0].get("series") for section in page["sections"]}
    titles = ["Learning curve", "Masked words and next sentences", "Learning rate", "Mask rate"]
    assert list(charts) == [*titles, "Speed", "Checkpoint and command"]
    losses = dict(charts["Learning curve"])
    results = read_results(pretrained)
    assert losses["dev loss"][-1] == [150, results["loss"]]
    assert [step for step, _ in losses["dev loss"]] == [70, 140, 150]
    assert losses["train loss"][-1][0] > 100
    assert [name for name, _ in charts["Masked words and next sentences"]] == [
        *("train masked words", "dev masked words", "train next sentence", "dev next sentence")
    ]
    assert dict(page["figures"]) == pytest.approx(results)
    *_, command = page["sections"][-1]["parts"]
    assert "--num_train_steps=150" in command["text"]


@pytest.mark.usefixtures("steps_without_training")
def test_the_report_is_written_while_training(options, monkeypatch):
    options = dataclasses.replace(options, num_train_steps=4, num_warmup_steps=0, evaluate_steps=2)
    interrupt_at(monkeypatch, 3)
    with pytest.raises(Interruption):
        run_pretraining(options)
    page = data_of((Path(options.output_dir) / "report.html").read_text())
    assert dict(page["figures"])["global_step"] == 2
    ((_, losses),) = (each for each in page["sections"][0]["parts"][0]["series"][1:])
    assert [step for step, _ in losses] == [2]


def test_a_checkpoint_holds_every_variable_both_moments_and_the_step(pretrained):
    arrays = checkpoint_arrays(pretrained / "model.ckpt-120")
    assert arrays.pop("global_step") == 120
    variables = {name for name in arrays if not name.endswith(("/adam_m", "/adam_v"))}
    assert {"bert/embeddings/word_embeddings", "cls/predictions/output_bias"} < variables
    assert set(arrays) == variables | {f"{n}/{s}" for n in variables for s in ("adam_m", "adam_v")}


# -------------------------------------------------------------------------------------- interruption


def test_a_killed_process_leaves_a_whole_checkpoint(options):
    output_dir = Path(options.output_dir)
    command = script_command(
        "run_pretraining",
        do_train=True,
        input_file=options.input_file,
        bert_config_file=options.bert_config_file,
        output_dir=output_dir,
        max_seq_length=options.max_seq_length,
        max_predictions_per_seq=options.max_predictions_per_seq,
        num_train_steps=100_000,
        save_checkpoints_steps=3,
    )
    process = subprocess.Popen(**command, stderr=subprocess.PIPE)
    deadline = time.monotonic() + 120
    while not (output_dir / "model.ckpt-9.index").exists():
        assert process.poll() is None, process.stderr.read().decode()
        assert time.monotonic() < deadline, "no checkpoint after two minutes"
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.communicate()

    step = int(latest_checkpoint(str(output_dir)).rsplit("-", 1)[1])
    assert step >= 6
    assert checkpoint_arrays(output_dir / f"model.ckpt-{step}")["global_step"] == step


def test_a_finished_run_does_nothing_but_evaluate_when_started_again(
    options, copied, pretrained, caplog
):
    with caplog.at_level("INFO"):
        run_pretraining(dataclasses.replace(options, output_dir=str(copied)))
    assert (
        "Nothing to train: the checkpoint has step 150, and the training ends at 150" in caplog.text
    )
    assert read_results(copied) == pytest.approx(read_results(pretrained), rel=1e-6)
    for path in pretrained.iterdir():
        if path.is_file() and path.name not in ("eval_results.txt", "README.md", "report.html"):
            assert (copied / path.name).read_bytes() == path.read_bytes(), path.name


# ---------------------------------------------------------------------------------------- evaluation


def evaluation(options, **changes):
    return dataclasses.replace(options, do_train=False, bert_config_file=None, **changes)


def test_evaluation_alone_takes_model_and_configuration_from_the_output_folder(
    options, copied, pretrained
):
    results = run_pretraining(evaluation(options, output_dir=str(copied)))
    assert results == pytest.approx(read_results(pretrained), rel=1e-6)
    assert list(read_results(copied)) == RESULTS


def test_evaluation_alone_takes_the_weights_of_init_checkpoint(options, pretrained):
    checkpoint = str(pretrained / "model.ckpt-150")
    results = run_pretraining(evaluation(options, init_checkpoint=checkpoint))
    expected = read_results(pretrained) | {"global_step": 0}
    assert results == pytest.approx(expected, rel=1e-6)


def test_without_eval_file_the_training_records_are_evaluated_up_to_max_eval_steps(
    options, pretrained, records
):
    changes = {"init_checkpoint": str(pretrained), "eval_batch_size": 7, "max_eval_steps": 2}
    by_default = run_pretraining(evaluation(options, **changes, eval_file=None))
    assert count_records([records.train]) > 2 * 7
    named = evaluation(options, **changes, eval_file=records.train)
    assert run_pretraining(named) == by_default


def test_evaluation_during_training_goes_to_metrics_with_its_step(pretrained):
    evaluated = [line for line in metrics(pretrained) if line["kind"] == "eval"]
    assert [line["step"] for line in evaluated] == [70, 140, 150]
    assert {"masked_lm_loss", "next_sentence_accuracy"} < set(evaluated[0])


# -------------------------------------------------------------------------------------------- start


def test_training_starts_from_the_encoder_and_heads_of_init_checkpoint(options, pretrained, caplog):
    options = dataclasses.replace(
        options,
        init_checkpoint=str(pretrained),
        bert_config_file=None,
        do_eval=False,
        eval_file=None,
        evaluate_steps=0,
        num_train_steps=2,
        num_warmup_steps=0,
    )
    with caplog.at_level("INFO"):
        run_pretraining(options)
    assert "46 of 46 variables initialized" in caplog.text
    first = metrics(options.output_dir)[0]
    assert first["masked_lm_loss"] < 3.0  # from random weights it is above 5
    written = (Path(options.output_dir) / "vocab.txt").read_bytes()
    assert written == (pretrained / "vocab.txt").read_bytes()


def test_the_z_loss_is_part_of_the_training_and_not_of_evaluations(options, records):
    sets = {
        name: read_record_set([file], options.max_seq_length)
        for name, file in (("train", records.train), ("eval", records.held_out))
    }
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(3, 2, 11)).astype("float32")
    weights = np.array([[1, 1], [1, 0], [0, 0]], "float32")
    features = {
        "masked_lm_ids": tf.constant(rng.integers(11, size=(3, 2)), tf.int32),
        "masked_lm_weights": tf.constant(weights),
    }
    totals, evaluated = [], []
    for z_loss in (0.0, 0.25):
        tasks = make_tasks(dataclasses.replace(options, z_loss=z_loss, objective="mlm"), sets, None)
        loss, *_ = tasks["train"].losses
        totals.append(loss.total({"masked_lm_logits": logits}, features)[0])
        kept = tasks["eval"].eval_outputs({"masked_lm_logits": logits}, features)
        evaluated.append(tasks["eval"].metrics({n: value.numpy() for n, value in kept.items()}))
    log_sums = np.log(np.exp(logits).sum(-1))
    z_loss = 0.25 * (weights * log_sums**2).sum()
    assert float(totals[1] - totals[0]) == pytest.approx(z_loss, rel=1e-5)
    assert evaluated[1] == evaluated[0]
    assert evaluated[0]["masked_lm_loss"] == pytest.approx(float(totals[0]) / 3, rel=1e-5)


# ------------------------------------------------------------------------------------------- errors


def test_evaluation_without_any_weights_is_refused(options):
    with pytest.raises(ValueError, match=r"no checkpoint in .*output_dir=.*do_train"):
        run_pretraining(evaluation(options))


def test_a_run_that_is_not_told_its_architecture_is_refused(options):
    with pytest.raises(ValueError, match=r"Give .*init_checkpoint .* or .*bert_config_file"):
        run_pretraining(dataclasses.replace(options, bert_config_file=None))


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"max_seq_length": 25}, r"has 23 values .* Use .*max_seq_length=23"),
        ({"max_predictions_per_seq": 3}, r"has 4 values .* Use .*max_predictions_per_seq=4"),
        (
            {"max_seq_length": 32},
            r"max_seq_length is 32, but must be .* 31, .*max_position_embeddings",
        ),
        ({"input_file": "/nowhere/*.tf_record"}, r"No file matches '/nowhere/\*.tf_record'"),
    ],
)
def test_records_that_do_not_fit_are_refused_before_anything_is_written(options, changes, message):
    with pytest.raises(ValueError, match=message):
        run_pretraining(dataclasses.replace(options, **changes))
    assert not Path(options.output_dir).exists()


def test_a_vocabulary_that_is_not_that_of_the_initial_checkpoint_is_refused(
    options, pretrained, toy_text, tmp_path
):
    tokens = (toy_text / "vocab.txt").read_text().splitlines()
    (tmp_path / "vocab.txt").write_text("\n".join([*tokens[:5], "new", *tokens[5:-1]]) + "\n")
    config_file = changed_config(toy_text, tmp_path / "bert_config.json")
    changes = {"init_checkpoint": str(pretrained), "bert_config_file": config_file}
    with pytest.raises(ValueError, match=rf"in {tmp_path}/vocab.txt, .*Omit vocab_file"):
        run_pretraining(dataclasses.replace(options, **changes))
    assert not Path(options.output_dir).exists()


def test_ids_that_the_model_does_not_have_are_refused_before_anything_is_written(
    options, toy_text, tmp_path
):
    small = changed_config(toy_text, tmp_path / "small.json", vocab_size=102)
    message = r"`input_ids` is \d+ in record 1 of .*train.tf_record, .* ids are 0 to 101"
    with pytest.raises(ValueError, match=message):
        run_pretraining(dataclasses.replace(options, bert_config_file=small))
    assert not Path(options.output_dir).exists()


def test_ids_of_the_evaluation_records_are_looked_at_as_well(options, toy_text, tmp_path):
    vocab = (toy_text / "vocab.txt").read_text().replace("the\n", "").replace("[CLS]", "the")
    (tmp_path / "vocab.txt").write_text(vocab + "[extra]\n[CLS]\n")
    (tmp_path / "text.txt").write_text((toy_text / "held_out.txt").read_text())
    other = write_records(tmp_path / "text.txt", tmp_path / "other.tf_record")
    (tmp_path / "other.tf_record.manifest.json").unlink()  # which states another vocabulary
    with pytest.raises(ValueError, match=r"in record 1 of .*other.tf_record"):
        run_pretraining(dataclasses.replace(options, eval_file=other))


def test_a_damaged_record_in_the_middle_is_named(options, toy_text, tmp_path):
    data = bytearray(Path(options.input_file).read_bytes())
    data[len(data) // 2] ^= 0xFF
    damaged = tmp_path / "damaged.tf_record"
    damaged.write_bytes(data)
    with pytest.raises(
        ValueError, match=r"damaged.tf_record is damaged: record \d+ cannot be read"
    ):
        run_pretraining(
            dataclasses.replace(
                options, input_file=str(damaged), bert_config_file=f"{toy_text}/one_layer.json"
            )
        )


def test_a_run_goes_on_only_with_the_model_that_wrote_its_folder(
    options, pretrained, toy_text, tmp_path
):
    config_file = pretrained / "bert_config.json"
    before = config_file.read_text()
    other = changed_config(toy_text, tmp_path / "other.json", hidden_size=12)
    with pytest.raises(
        ValueError, match=r"contains checkpoints of another model:\n  hidden_size: 16 there, 12 now"
    ):
        run_pretraining(
            dataclasses.replace(options, output_dir=str(pretrained), bert_config_file=other)
        )
    assert config_file.read_text() == before


def test_a_checkpoint_without_trained_heads_is_not_evaluated(options, sentence_model):
    message = "has no cls/predictions/output_bias.* would answer at random"
    with pytest.raises(ValueError, match=message):
        run_pretraining(evaluation(options, init_checkpoint=str(sentence_model)))


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"num_train_steps": 0}, "num_train_steps: "),
        ({"num_warmup_steps": 151}, r"num_warmup_steps is 151, .*num_train_steps=150.*=15[.]"),
        ({"num_warmup_steps": 9_999}, "num_warmup_steps is 9999"),
        ({"num_warmup_steps": -1}, "num_warmup_steps is -1"),
        ({"stop_step": 151}, "stop_step is 151, but must be at most num_train_steps=150"),
        ({"do_train": False, "stop_step": 5}, "stop_step=5 has no effect without do_train. Omit"),
        ({"do_train": False, "teacher": "big"}, "teacher=big has no effect without do_train. Omit"),
        (
            {"do_eval": False, "evaluate_steps": 0},
            r"eval_file=.*held_out.tf_record has no effect without `do_eval`. Give `do_eval`",
        ),
        (
            {"do_train": False, "do_eval": False},
            "Nothing to do: give at least one of .*do_train.*do_eval",
        ),
    ],
)
def test_options_are_checked_when_made(options, changes, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(options, **changes)


def test_a_training_may_stop_at_its_last_step(options):
    assert dataclasses.replace(options, stop_step=150).num_train_steps == 150


@pytest.mark.parametrize("num_train_steps, expected", [(30, 3), (9_999, 999), (10_000, 10_000)])
def test_a_training_shorter_than_the_default_of_the_warmup_warms_up_for_a_tenth(
    options, caplog, monkeypatch, num_train_steps, expected
):
    def stop(setup, task, num_train_steps, num_warmup_steps):
        raise Interruption(f"warm-up {num_warmup_steps} of {num_train_steps}")

    monkeypatch.setattr("bert_tf.programs.run_pretraining.make_trainer", stop)
    default = {"num_warmup_steps": 10_000, "num_train_steps": num_train_steps}
    with (
        caplog.at_level("INFO"),
        pytest.raises(Interruption, match=f"warm-up {expected} of {num_train_steps}"),
    ):
        run_pretraining(dataclasses.replace(options, **default))
    message = f"--num_warmup_steps is {expected}, a tenth of --num_train_steps={num_train_steps}"
    assert (message in caplog.text) is (num_train_steps < 10_000)
