"""run_pretraining: from text to a pre-trained encoder, and the files it promises."""

import json
import math
from pathlib import Path

import pytest
from helpers import cause_of, checkpoint_arrays, read_json_lines, read_results
from models import DATA, golden, options, train

from bert_tf.data.records import count_records
from bert_tf.pretraining.run_pretraining import run_pretraining


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder of 150 steps with three evaluations, and the default of the warm-up."""
    folder = tmp_path_factory.mktemp("trained")
    steps = {"save_checkpoints_steps": 60, "evaluate_steps": 70}
    train("pretrained", folder, **steps, num_warmup_steps=None, keep_checkpoint_max=5)
    return folder


def metrics(folder):
    return read_json_lines(Path(folder) / "metrics.jsonl")


def evaluation(folder, **changes):
    return options("pretrained", folder, do_train=False, **{"bert_config_file": None, **changes})


def test_a_training_leaves_all_that_the_model_needs(trained):
    checkpoints = [f"model.ckpt-{step}" for step in (60, 120, 150)]
    parts = [f"{name}.{part}" for name in checkpoints for part in ("data-00000-of-00001", "index")]
    beside = ["bert_config.json", "task.json", "tokenizer_config.json", "vocab.txt"]
    files = ["best", "checkpoint", "eval_results.txt", "metrics.jsonl", "training.json"]
    files += ["README.md", "model_card_facts.json", "report.html"]
    assert sorted(path.name for path in trained.iterdir()) == sorted([*parts, *beside, *files])
    best = sorted(path.name for path in (trained / "best").iterdir())
    parts = [f"model.ckpt-150.{part}" for part in ("data-00000-of-00001", "index")]
    assert best == sorted([*parts, *beside, "best.json", "checkpoint"])
    assert (trained / "vocab.txt").read_bytes() == (DATA / "text/vocab.txt").read_bytes()
    config = json.loads((trained / "bert_config.json").read_text())
    assert config.items() >= json.loads((DATA / "text/bert_config.json").read_text()).items()
    assert json.loads((trained / "task.json").read_text()) == {
        "task": "pretraining",
        "max_seq_length": 23,
        "max_predictions_per_seq": 4,
        "objective": "mlm_nsp",
    }
    arrays = checkpoint_arrays(trained / "model.ckpt-120")
    assert arrays.pop("global_step") == 120
    variables = {name for name in arrays if not name.endswith(("/adam_m", "/adam_v"))}
    assert {"bert/embeddings/word_embeddings", "cls/predictions/output_bias"} < variables
    assert set(arrays) == variables | {f"{n}/{s}" for n in variables for s in ("adam_m", "adam_v")}


def test_a_training_learns_masked_words_of_held_out_text(trained):
    results = read_results(trained)
    words = ["masked_lm_accuracy", "masked_lm_loss", "masked_lm_perplexity"]
    pairs = ["next_sentence_accuracy", "next_sentence_loss"]
    assert list(results) == ["global_step", "loss", *words, *pairs]
    assert results["masked_lm_perplexity"] == pytest.approx(math.exp(results["masked_lm_loss"]))
    assert results["global_step"] == 150
    total = results["masked_lm_loss"] + results["next_sentence_loss"]
    assert results["loss"] == pytest.approx(total)
    lines = [line for line in metrics(trained) if line["kind"] == "train"]
    assert lines[-1]["masked_lm_loss"] < 0.5 * lines[0]["masked_lm_loss"]
    assert results["masked_lm_loss"] < 0.5 * math.log(190)
    assert results["masked_lm_accuracy"] > 0.3
    first = lines[1]  # a tenth of the steps warm up
    assert first["learning_rate"] == pytest.approx(5e-3 * (first["step"] - 1) / 15)


@pytest.mark.night
def test_evaluation_needs_no_training_and_no_eval_file(tmp_path, caplog):
    checkpoint = str(golden("pretrained"))
    results = run_pretraining(evaluation(tmp_path / "1", init_checkpoint=checkpoint))
    expected = read_results(golden("pretrained")) | {"global_step": 0}
    assert results == pytest.approx(expected, rel=1e-5)
    changes = {"init_checkpoint": checkpoint, "eval_batch_size": 7, "max_eval_steps": 2}
    assert count_records([f"{DATA}/text/train.tf_record"]) > 2 * 7
    caplog.set_level("INFO")
    by_default = run_pretraining(evaluation(tmp_path / "2", **changes, eval_file=None))
    assert "of the training records" in caplog.text
    changes["eval_file"] = f"{DATA}/text/train.tf_record"
    assert run_pretraining(evaluation(tmp_path / "3", **changes)) == by_default


def test_training_starts_from_encoder_and_heads_of_init_checkpoint(tmp_path, eagerly):
    changes = {"init_checkpoint": str(golden("pretrained")), "bert_config_file": None}
    steps = {"do_eval": False, "num_train_steps": 2, "num_warmup_steps": 0}
    train("pretrained", tmp_path / "output", **changes, **steps)
    first = metrics(tmp_path / "output")[0]
    assert first["masked_lm_loss"] < 3.0  # from random weights it is above 5
    written = (tmp_path / "output/vocab.txt").read_bytes()
    assert written == (golden("pretrained") / "vocab.txt").read_bytes()


# ---- What is refused -----------------------------------------------------------------------------


def test_records_and_weights_that_do_not_fit_are_refused_and_nothing_written(tmp_path):
    tokens = (DATA / "text/vocab.txt").read_text().splitlines()
    (tmp_path / "vocab.txt").write_text("\n".join([*tokens[:5], "new", *tokens[5:-1]]) + "\n")
    config_file = tmp_path / "bert_config.json"
    config_file.write_text((DATA / "text/bert_config.json").read_text())
    other = {"init_checkpoint": str(golden("pretrained")), "bert_config_file": str(config_file)}
    for changes, named in (
        ({"max_seq_length": 25}, "max_seq_length"),
        ({"max_predictions_per_seq": 3}, "max_predictions_per_seq"),
        ({"max_seq_length": 32}, "max_seq_length"),
        ({"input_file": "/nowhere/*.tf_record"}, r"/nowhere/\*.tf_record"),
        ({"train_batch_size": 5000}, "train_batch_size"),
        ({"bert_config_file": None}, "bert_config_file"),
        ({"do_train": False, "bert_config_file": None}, "init_checkpoint"),  # no weights
        (other, f"{tmp_path}/vocab.txt"),
    ):
        with pytest.raises(ValueError, match=named):
            run_pretraining(options("pretrained", tmp_path / "output", **changes))
        assert not (tmp_path / "output").exists(), named


def test_options_that_contradict_each_other_are_refused():
    for changes in (
        {"num_warmup_steps": -1},
        {"init_optimizer": True},
        {"init_optimizer": True, "init_checkpoint": "output", "init_layers": "-1"},
        {"random_token_prob": 0.3},
    ):
        assert cause_of(options, "pretrained", "x", **changes) == next(iter(changes)), changes
