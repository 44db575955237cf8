"""run_pretraining: from text to a pre-trained encoder, and the files it promises."""

import dataclasses
import json
import math
import shutil
from pathlib import Path

import pytest
from pages import data_of
from tiny_runs import (
    CONFIG,
    MAX_PREDICTIONS,
    MAX_SEQ_LENGTH,
    Interruption,
    checkpoint_arrays,
    pretraining_options,
    read_results,
)

from bert_tf.config import BertConfig
from bert_tf.data.records import count_records
from bert_tf.programs.run_pretraining import run_pretraining

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


def test_the_report_has_the_curves_up_to_the_last_step_and_the_command(pretrained):
    page = data_of((pretrained / "report.html").read_text())
    charts = {section["title"]: section["parts"][0].get("series") for section in page["sections"]}
    titles = ["Learning curve", "Masked words and next sentences", "Learning rate"]
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


def test_a_checkpoint_holds_every_variable_both_moments_and_the_step(pretrained):
    arrays = checkpoint_arrays(pretrained / "model.ckpt-120")
    assert arrays.pop("global_step") == 120
    variables = {name for name in arrays if not name.endswith(("/adam_m", "/adam_v"))}
    assert {"bert/embeddings/word_embeddings", "cls/predictions/output_bias"} < variables
    assert set(arrays) == variables | {f"{n}/{s}" for n in variables for s in ("adam_m", "adam_v")}


# -------------------------------------------------------------------------------------- interruption


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


def test_evaluation_alone_takes_the_weights_of_init_checkpoint(options, pretrained):
    checkpoint = str(pretrained / "model.ckpt-150")
    results = run_pretraining(evaluation(options, init_checkpoint=checkpoint))
    expected = read_results(pretrained) | {"global_step": 0}
    assert results == pytest.approx(expected, rel=1e-6)


def test_without_eval_file_the_training_records_are_evaluated_and_the_log_says_so(
    options, pretrained, records, caplog
):
    changes = {"init_checkpoint": str(pretrained), "eval_batch_size": 7, "max_eval_steps": 2}
    caplog.set_level("INFO")
    by_default = run_pretraining(evaluation(options, **changes, eval_file=None))
    assert "of the training records" in caplog.text
    caplog.clear()
    assert count_records([records.train]) > 2 * 7
    named = evaluation(options, **changes, eval_file=records.train)
    assert run_pretraining(named) == by_default
    assert "of the training records" not in caplog.text


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


# ------------------------------------------------------------------------------------------- errors


def test_evaluation_without_any_weights_is_refused(options):
    with pytest.raises(ValueError, match=r"no checkpoint in .*output_dir=.*do_train"):
        run_pretraining(evaluation(options))


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"max_seq_length": 25}, "max_seq_length"),
        ({"max_predictions_per_seq": 3}, "max_predictions_per_seq"),
        ({"max_seq_length": 32}, "max_seq_length"),
        ({"input_file": "/nowhere/*.tf_record"}, r"/nowhere/\*.tf_record"),
        ({"train_batch_size": 5000}, "train_batch_size"),
        ({"bert_config_file": None}, "bert_config_file"),
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
    with pytest.raises(ValueError, match=f"in {tmp_path}/vocab.txt"):
        run_pretraining(dataclasses.replace(options, **changes))
    assert not Path(options.output_dir).exists()


def test_a_damaged_record_in_the_middle_is_named(options, toy_text, tmp_path):
    data = bytearray(Path(options.input_file).read_bytes())
    data[len(data) // 2] ^= 0xFF
    damaged = tmp_path / "damaged.tf_record"
    damaged.write_bytes(data)
    with pytest.raises(ValueError, match=r"damaged.tf_record .*record \d+"):
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
    with pytest.raises(ValueError, match="hidden_size: 16 there, 12 now"):
        run_pretraining(
            dataclasses.replace(options, output_dir=str(pretrained), bert_config_file=other)
        )
    assert config_file.read_text() == before


@pytest.mark.parametrize(
    "changes, name",
    [
        ({"num_train_steps": 0}, "num_train_steps"),
        ({"num_warmup_steps": 151}, "num_warmup_steps"),
        ({"num_warmup_steps": 9_999}, "num_warmup_steps"),
        ({"num_warmup_steps": -1}, "num_warmup_steps"),
        ({"stop_step": 151}, "stop_step"),
        ({"init_optimizer": True}, "init_optimizer"),
        ({"do_train": False, "do_eval": False}, "do_train"),
        ({"random_token_prob": 0.3}, "random_token_prob"),
    ],
)
def test_options_are_checked_when_made(options, changes, name):
    with pytest.raises(ValueError, match=name):
        dataclasses.replace(options, **changes)


def test_missing_tensorboard_is_an_error_before_anything_else(options, monkeypatch):
    monkeypatch.setattr("bert_tf.options.find_spec", lambda name: None)
    with pytest.raises(ValueError, match="tensorboard"):
        dataclasses.replace(options, tensorboard=True)


@pytest.mark.parametrize("num_train_steps, expected", [(30, 3), (9_999, 999), (10_000, 10_000)])
def test_a_training_shorter_than_the_default_of_the_warmup_warms_up_for_a_tenth(
    options, monkeypatch, num_train_steps, expected
):
    def stop(setup, task, num_train_steps, num_warmup_steps, init_optimizer):
        raise Interruption(f"warm-up {num_warmup_steps} of {num_train_steps}")

    monkeypatch.setattr("bert_tf.programs.run_pretraining.make_trainer", stop)
    default = {"num_warmup_steps": 10_000, "num_train_steps": num_train_steps}
    with pytest.raises(Interruption, match=f"warm-up {expected} of {num_train_steps}"):
        run_pretraining(dataclasses.replace(options, **default))
