"""run_pretraining on every kind of records: without masks, single sequences, order of sentences."""

import json
import math
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
from helpers import (
    assert_bit_equal,
    cause_of,
    checkpoint_arrays,
    read_json_lines,
    read_results,
    read_task,
    remove_last_checkpoint,
    write_records,
)
from models import DATA, golden, options, with_values

from bert_tf.config import BertConfig
from bert_tf.data.records import count_records, read_records
from bert_tf.prediction.loading import load_model
from bert_tf.pretraining.run_pretraining import run_pretraining

pytestmark = pytest.mark.night

TEXT = DATA / "text"
UNMASKED = {"masking": "none", "max_predictions_per_seq": None}
KINDS = {
    "masked_nsp": {},
    "masked_mlm": {"objective": "mlm"},
    "masked_sop": {"objective": "mlm_sop"},
    "unmasked_nsp": UNMASKED,
    "unmasked_mlm": UNMASKED | {"objective": "mlm"},
    "unmasked_sop": UNMASKED | {"objective": "mlm_sop"},
}
ONE_STEP = {"num_train_steps": 1, "num_warmup_steps": 0, "do_eval": False}


@pytest.fixture(scope="module")
def kinds(tmp_path_factory):
    """kind -> `train` and `held_out` records of the kind, each with a manifest."""
    folder = tmp_path_factory.mktemp("kinds")
    (folder / "vocab.txt").write_bytes((TEXT / "vocab.txt").read_bytes())
    for name in ("train", "held_out"):
        (folder / f"{name}.txt").write_bytes((TEXT / f"{name}.txt").read_bytes())
    return {
        kind: SimpleNamespace(
            **{
                name: write_records(
                    folder / f"{name}.txt", folder / f"{kind}.{name}.tf_record", **changes
                )
                for name in ("train", "held_out")
            }
        )
        for kind, changes in KINDS.items()
    }


@pytest.fixture
def make_options(kinds, tmp_path):
    """A function of a kind and changes of `PretrainingOptions`: 12 steps into a new folder."""

    def make(kind, **changes):
        files = {"input_file": kinds[kind].train, "eval_file": kinds[kind].held_out}
        values = {"output_dir": str(tmp_path / "output"), "num_train_steps": 12}
        values |= {"num_warmup_steps": 2, "save_checkpoints_steps": 5, "keep_checkpoint_max": 5}
        values |= {"bert_config_file": f"{TEXT}/one_layer.json"}
        if changes.get("do_eval") is False:
            del files["eval_file"]
        return options("pretrained", **{**files, **values, **changes})

    return make


def without_manifest(file, folder):
    """A copy of records whose origin nobody knows."""
    copy = folder / Path(file).name
    copy.write_bytes(Path(file).read_bytes())
    return str(copy)


@pytest.mark.parametrize(
    "kind, flag", [("masked_nsp", "eval_file"), ("unmasked_nsp", "input_file")]
)
def test_an_invalid_id_after_the_first_records_is_named(
    make_options, tmp_path, eagerly, kind, flag
):
    made = make_options(kind, num_train_steps=10)
    vocab_size = BertConfig.from_json_file(made.model.bert_config_file).vocab_size
    path = str(tmp_path / "bad.tf_record")
    with tf.io.TFRecordWriter(path) as writer:
        records = tf.data.TFRecordDataset(getattr(made, flag)).repeat().take(150)
        for number, record in enumerate(records.as_numpy_iterator(), 1):
            example = tf.train.Example.FromString(record)
            if number == 150:
                example.features.feature["input_ids"].int64_list.value[1] = vocab_size
            writer.write(example.SerializeToString())
    found = cause_of(run_pretraining, with_values(made, **{flag: path}))
    assert found == path


# ---- Without masks -------------------------------------------------------------------------------


def test_new_masks_have_the_same_bits_in_a_resumed_run(make_options, tmp_path):
    masks = {"do_whole_word_mask": True, "masked_lm_prob": 0.4, "max_predictions_per_seq": None}
    made = make_options("unmasked_nsp", do_eval=False, train_batch_size=40, **masks)
    assert 5 * 40 < count_records([made.input_file]) < 12 * 40  # the second epoch is begun
    whole = str(tmp_path / "whole")
    run_pretraining(with_values(made, output_dir=whole))
    run_pretraining(with_values(made, stop_step=8))
    run_pretraining(made)
    found, expected = (
        checkpoint_arrays(f"{folder}/model.ckpt-12") for folder in (made.training.output_dir, whole)
    )
    assert_bit_equal(found, expected)
    most = math.ceil(0.4 * made.model.max_seq_length)
    assert read_task(made.training.output_dir).max_predictions_per_seq == most


def test_masked_words_are_learned_from_records_without_masks(make_options):
    made = make_options("unmasked_nsp", num_train_steps=150, save_checkpoints_steps=1000)
    results = run_pretraining(made)
    assert results["masked_lm_accuracy"] > 0.3
    assert read_task(made.training.output_dir).objective == "mlm_nsp"
    # The masks of an evaluation are the same whatever the seed, and others with other settings.
    again = with_values(made, do_train=False, seed=99)
    assert run_pretraining(again) == results
    assert run_pretraining(with_values(again, masked_lm_prob=0.05)) != results


# ---- What does not fit ---------------------------------------------------------------------------


def test_records_that_do_not_fit_are_refused_and_nothing_written(make_options, kinds, tmp_path):
    (tmp_path / "alone").write_text((TEXT / "bert_config.json").read_text())
    *tokens, last, end = (TEXT / "vocab.txt").read_text().splitlines()
    (tmp_path / "other").write_text("\n".join([*tokens, end, last]) + "\n")
    extra = [f"extra{number}" for number in range(200)]
    (tmp_path / "larger").write_text("\n".join([*tokens, last, end, *extra]) + "\n")
    (tmp_path / "copy").mkdir()
    unknown = without_manifest(kinds["masked_nsp"].train, tmp_path / "copy")
    train = {kind: files.train for kind, files in kinds.items()}
    for kind, changes, named in (
        ("unmasked_nsp", {"bert_config_file": f"{tmp_path}/alone"}, "vocab_file"),
        ("masked_nsp", {"vocab_file": f"{tmp_path}/other"}, f"{tmp_path}/other"),
        ("masked_nsp", {"vocab_file": f"{tmp_path}/larger", "input_file": unknown}, "vocab_size"),
        ("masked_nsp", {"objective": "mlm_sop"}, "objective"),
        ("masked_mlm", {"objective": "mlm_nsp"}, "objective"),
        ("masked_nsp", {"do_eval": True, "eval_file": kinds["masked_sop"].held_out}, "objective"),
        (
            "masked_nsp",
            {"input_file": f"{train['masked_nsp']},{train['unmasked_nsp']}"},
            "features",
        ),
        ("masked_nsp", {"input_file": f"{train['masked_nsp']},{train['masked_sop']}"}, "objective"),
    ):
        made = make_options(kind, **{"do_eval": False, **changes})
        with pytest.raises(ValueError, match=named):
            run_pretraining(made)
        assert not Path(made.training.output_dir).exists(), changes


def test_the_case_is_that_of_the_records(make_options, tmp_path, eagerly):
    """Of a vocabulary without a file that states its case."""
    folder = tmp_path / "cased"
    folder.mkdir()
    for name in ("vocab.txt", "held_out.txt", "one_layer.json"):
        (folder / name).write_bytes((TEXT / name).read_bytes())
    file = write_records(folder / "held_out.txt", folder / "train.tf_record", do_lower_case=False)
    given = {"input_file": file, "bert_config_file": f"{folder}/one_layer.json"} | ONE_STEP
    start = {"init_checkpoint": str(golden("pretrained")), "bert_config_file": None}
    cased = start | {"do_lower_case": False}  # the file next to the checkpoint sets True
    for changes in ({"do_lower_case": True}, start, cased, {"do_eval": True}):
        made = make_options("masked_nsp", **{**given, **changes})
        with pytest.raises(ValueError, match="do_lower_case"):
            run_pretraining(made)
        assert not Path(made.training.output_dir).exists()
    run_pretraining(make_options("masked_nsp", **given, output_dir=f"{tmp_path}/records"))
    values = json.loads((tmp_path / "records/tokenizer_config.json").read_text())
    assert values["do_lower_case"] is False


# ---- Objectives ----------------------------------------------------------------------------------

WORDS = ["global_step", "loss", "masked_lm_accuracy", "masked_lm_loss", "masked_lm_perplexity"]
PAIRS = ["next_sentence_accuracy", "next_sentence_loss"]


def test_single_sequences_have_masked_words_only(make_options, tmp_path):
    made = make_options("masked_mlm")
    run_pretraining(made)
    folder = Path(made.training.output_dir)
    assert list(read_results(folder)) == WORDS
    lines = read_json_lines(folder / "metrics.jsonl")
    assert all("masked_lm_loss" in line for line in lines)
    assert not any("next_sentence_loss" in line for line in lines)
    assert read_task(made.training.output_dir).objective == "mlm"
    # The head of pairs stays as it was.
    early, late = (checkpoint_arrays(folder / f"model.ckpt-{step}") for step in (5, 12))
    for name in ("cls/seq_relationship/output_weights", "bert/pooler/dense/kernel"):
        np.testing.assert_array_equal(late[name], early[name])
        assert not late[f"{name}/adam_m"].any()
    assert (late["cls/predictions/output_bias"] != early["cls/predictions/output_bias"]).any()
    # Nor does it disturb a run that goes on.
    parts = shutil.copytree(folder, tmp_path / "parts")
    remove_last_checkpoint(parts)
    run_pretraining(with_values(made, output_dir=str(parts)))
    assert_bit_equal(checkpoint_arrays(parts / "model.ckpt-12"), late)


def test_records_of_ordered_pairs_have_the_keys_of_next_sentences(make_options, kinds):
    made = make_options("unmasked_sop")
    run_pretraining(made)
    assert list(read_results(Path(made.training.output_dir))) == [*WORDS, *PAIRS]
    task, file = read_task(made.training.output_dir), kinds["masked_sop"].held_out
    assert task.objective == "mlm_sop"
    found = run_pretraining(with_values(made, do_train=False, eval_file=file))
    (rows,) = read_records([file], task.features, 9999)
    inputs = {name: rows[name] for name in task.input_names}
    outputs = load_model(made.training.output_dir).model(inputs, training=False)
    hits = (
        np.argmax(outputs["next_sentence_logits"], -1)
        == rows["next_sentence_labels"].numpy().ravel()
    )
    assert found["next_sentence_accuracy"] == pytest.approx(hits.mean())


def test_the_labels_of_pairs_can_be_left_alone(make_options, eagerly):
    steps = {"num_train_steps": 1, "num_warmup_steps": 0, "max_eval_steps": 1}
    made = make_options("masked_nsp", objective="mlm", **steps)
    assert "next_sentence_loss" not in run_pretraining(made)
    # Nor are they looked at when that model is evaluated, since its head is not trained.
    alone = with_values(made, objective=None, do_train=False)
    assert "next_sentence_loss" not in run_pretraining(alone)
    told = with_values(alone, objective="mlm_nsp")
    assert "next_sentence_loss" in run_pretraining(told)


def test_without_a_manifest_labels_are_of_next_sentences(make_options, kinds, tmp_path, eagerly):
    unknown = without_manifest(kinds["masked_sop"].train, tmp_path)
    for objective, expected in ((None, "mlm_nsp"), ("mlm_sop", "mlm_sop")):
        changes = {"objective": objective, "output_dir": f"{tmp_path}/{expected}"}
        run_pretraining(make_options("masked_sop", input_file=unknown, **ONE_STEP, **changes))
        assert read_task(f"{tmp_path}/{expected}").objective == expected


def test_a_left_to_right_model_stays_one(make_options, eagerly):
    changes = {"num_train_steps": 2, "max_eval_steps": 2, "attention": "left_to_right"}
    made = make_options("masked_mlm", **changes)
    results = run_pretraining(made)
    config = BertConfig.from_json_file(f"{made.training.output_dir}/bert_config.json")
    assert config.attention_direction == "left_to_right"
    again = with_values(made, do_train=False, attention=None, bert_config_file=None)
    assert run_pretraining(again) == pytest.approx(results, rel=1e-6)
    with pytest.raises(ValueError, match="attention_direction"):
        run_pretraining(with_values(made, attention=None))
