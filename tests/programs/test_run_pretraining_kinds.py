"""run_pretraining on every kind of records: without masks, single sequences, order of sentences."""

import dataclasses
import json
import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
from tiny_runs import (
    Interruption,
    assert_bit_equal,
    checkpoint_arrays,
    interrupt_at,
    pretraining_options,
    read_results,
    write_records,
)

from bert_tf.config import BertConfig
from bert_tf.data.records import count_records
from bert_tf.limits import DataError
from bert_tf.model_files import read_task
from bert_tf.programs.run_pretraining import run_pretraining
from bert_tf.training.checkpoints import latest_checkpoint

pytestmark = pytest.mark.night

UNMASKED = {"masking": "none", "max_predictions_per_seq": None}
KINDS = {
    "masked_nsp": {},
    "masked_mlm": {"objective": "mlm"},
    "masked_sop": {"objective": "mlm_sop"},
    "unmasked_nsp": UNMASKED,
    "unmasked_mlm": UNMASKED | {"objective": "mlm"},
    "unmasked_sop": UNMASKED | {"objective": "mlm_sop"},
}


@pytest.fixture(scope="module")
def kinds(toy_text, tmp_path_factory):
    """kind -> `train` and `held_out` records of the kind, each with a manifest."""
    folder = tmp_path_factory.mktemp("kinds")
    return {
        kind: SimpleNamespace(
            **{
                name: write_records(
                    toy_text / f"{name}.txt", folder / f"{kind}.{name}.tf_record", **changes
                )
                for name in ("train", "held_out")
            }
        )
        for kind, changes in KINDS.items()
    }


@pytest.fixture
def make_options(kinds, toy_text, tmp_path):
    """A function of a kind and changes of `PretrainingOptions`: 12 steps into a new folder."""

    def make(kind, **changes):
        values = {
            "bert_config_file": str(toy_text / "one_layer.json"),
            "output_dir": tmp_path / "output",
            "num_train_steps": 12,
            "num_warmup_steps": 2,
            "save_checkpoints_steps": 5,
            "evaluate_steps": 0,
        }
        return pretraining_options(kinds[kind], toy_text, **{**values, **changes})

    return make


@pytest.fixture
def found_before_training(monkeypatch):
    """A function of options: what a run knows when its checks are over, which ends it."""

    def stop(config, task, vocab, do_lower_case):
        raise Interruption(task.arguments()["objective"], do_lower_case)

    def found(options):
        with pytest.raises(Interruption) as stopped:
            run_pretraining(options)
        objective, do_lower_case = stopped.value.args
        return SimpleNamespace(objective=objective, do_lower_case=do_lower_case)

    monkeypatch.setattr("bert_tf.programs.run_pretraining.model_files", stop)
    return found


def without_manifest(file, folder):
    """A copy of records whose origin nobody knows."""
    copy = folder / Path(file).name
    copy.write_bytes(Path(file).read_bytes())
    return str(copy)


# ------------------------------------------------------------------------------------ invalid ids


@pytest.mark.weekly_cases("masked_nsp-eval", "unmasked")
@pytest.mark.parametrize(
    "kind, flag, changes",
    [
        ("masked_nsp", "input_file", {}),
        ("masked_nsp", "eval_file", {}),
        pytest.param(
            "masked_nsp", "input_file", {"pack_sequences": True}, marks=pytest.mark.weekly
        ),
        ("unmasked_nsp", "input_file", {}),
    ],
)
def test_an_invalid_id_after_the_first_records_is_named(
    make_options, tmp_path, kind, flag, changes
):
    options = make_options(kind, **changes)
    vocab_size = BertConfig.from_json_file(options.bert_config_file).vocab_size
    path = str(tmp_path / "bad.tf_record")
    with tf.io.TFRecordWriter(path) as writer:
        records = tf.data.TFRecordDataset(getattr(options, flag)).repeat().take(150)
        for number, record in enumerate(records.as_numpy_iterator(), 1):
            example = tf.train.Example.FromString(record)
            if number == 150:
                example.features.feature["input_ids"].int64_list.value[1] = vocab_size
            writer.write(example.SerializeToString())
    with pytest.raises(DataError) as error:
        run_pretraining(dataclasses.replace(options, **{flag: path}))
    assert error.value.location == f"{path}: record 150"


# ------------------------------------------------------------------------------------ without masks


@pytest.mark.parametrize("whole_words", [True, pytest.param(False, marks=pytest.mark.weekly)])
def test_new_masks_have_the_same_bits_in_an_interrupted_run(
    make_options, whole_words, tmp_path, monkeypatch
):
    options = make_options(
        "unmasked_nsp",
        do_eval=False,
        do_whole_word_mask=whole_words,
        train_batch_size=40,
        masked_lm_prob=0.4,
        max_predictions_per_seq=None,
    )
    assert 5 * 40 < count_records([options.input_file]) < 12 * 40  # the second epoch is begun
    whole = dataclasses.replace(options, output_dir=str(tmp_path / "whole"))
    run_pretraining(whole)
    with monkeypatch.context() as patch, pytest.raises(Interruption):
        interrupt_at(patch, step=8)
        run_pretraining(options)
    assert latest_checkpoint(options.output_dir).endswith("model.ckpt-5")
    run_pretraining(options)
    found, expected = (
        checkpoint_arrays(f"{folder}/model.ckpt-12")
        for folder in (options.output_dir, whole.output_dir)
    )
    assert_bit_equal(found, expected)
    length = options.max_seq_length
    assert read_task(options.output_dir).max_predictions_per_seq == math.ceil(0.4 * length)


def test_masked_words_are_learned_from_records_without_masks(make_options):
    options = make_options("unmasked_nsp", num_train_steps=150, save_checkpoints_steps=1000)
    results = run_pretraining(options)
    assert results["masked_lm_accuracy"] > 0.3
    assert read_task(options.output_dir).arguments()["objective"] == "mlm_nsp"


@pytest.mark.weekly
def test_every_evaluation_has_the_same_masks_whatever_the_seed(make_options):
    options = make_options("unmasked_nsp")
    results = run_pretraining(options)
    again = dataclasses.replace(options, do_train=False, seed=99)
    assert run_pretraining(again) == results
    # Fewer predictions are other masks: the figures above are not equal by accident.
    assert run_pretraining(dataclasses.replace(again, masked_lm_prob=0.05)) != results


# ------------------------------------------------------------------------------------ what does not fit


@pytest.mark.parametrize(
    "kind, changes, named",
    [
        ("unmasked_nsp", {"bert_config_file": "alone"}, "vocab_file"),
        ("masked_nsp", {"vocab_file": "other"}, "vocab"),
        ("unmasked_nsp", {"vocab_file": "other"}, "vocab"),
        ("masked_nsp", {"vocab_file": "larger"}, "vocab_size"),
        ("masked_nsp", {"objective": "mlm_sop"}, "objective"),
        ("masked_mlm", {"objective": "mlm_nsp"}, "objective"),
        ("masked_nsp", {"do_eval": True, "eval_file": "masked_sop"}, "objective"),
        ("masked_nsp", {"input_file": ("masked_nsp", "unmasked_nsp")}, "features"),
        ("unmasked_mlm", {"input_file": ("unmasked_mlm", "unmasked_nsp")}, "features"),
        ("masked_nsp", {"input_file": ("masked_nsp", "masked_sop")}, "objective"),
    ],
)
def test_records_that_do_not_fit_are_an_error_before_anything_is_written(
    make_options, toy_text, kinds, tmp_path, kind, changes, named
):
    (tmp_path / "alone").write_text((toy_text / "bert_config.json").read_text())
    *tokens, last, end = (toy_text / "vocab.txt").read_text().splitlines()
    (tmp_path / "other").write_text("\n".join([*tokens, end, last]) + "\n")
    extra = [f"extra{number}" for number in range(200)]
    (tmp_path / "larger").write_text("\n".join([*tokens, last, end, *extra]) + "\n")
    given = {"do_eval": False, **changes}
    for name in ("bert_config_file", "vocab_file"):
        if name in given:
            given[name] = str(tmp_path / given[name])
    if given.get("vocab_file", "").endswith("larger"):
        given["input_file"] = without_manifest(kinds[kind].train, tmp_path)
    elif "input_file" in given:
        given["input_file"] = ",".join(kinds[name].train for name in given["input_file"])
    if "eval_file" in given:
        given["eval_file"] = kinds[given["eval_file"]].held_out
    options = make_options(kind, **given)
    with pytest.raises(ValueError, match=named):
        run_pretraining(options)
    assert not Path(options.output_dir).exists()


# -------------------------------------------------------------------------------------- upper case


@pytest.fixture(scope="module")
def cased(toy_text, tmp_path_factory):
    """Records that are not lower-cased, of a vocabulary without a file that states its case."""
    folder = tmp_path_factory.mktemp("cased")
    for name in ("vocab.txt", "held_out.txt", "one_layer.json"):
        (folder / name).write_text((toy_text / name).read_text())
    file = write_records(folder / "held_out.txt", folder / "train.tf_record", do_lower_case=False)
    return SimpleNamespace(train=file, folder=folder)


@pytest.mark.parametrize("by_the_flag", [False, True])
def test_the_case_is_that_of_the_records(
    make_options, cased, pretrained, found_before_training, by_the_flag
):
    changes = {"bert_config_file": str(cased.folder / "one_layer.json")}
    if by_the_flag:  # the file next to the checkpoint sets True
        changes = {"init_checkpoint": str(pretrained), "bert_config_file": None}
        changes["do_lower_case"] = False
    options = make_options("masked_nsp", input_file=cased.train, do_eval=False, **changes)
    assert found_before_training(options).do_lower_case is False


@pytest.mark.parametrize(
    "changes", [{"do_lower_case": True}, {"bert_config_file": None}, {"do_eval": True}]
)
def test_another_case_than_that_of_the_records_is_refused(make_options, cased, pretrained, changes):
    config = str(cased.folder / "one_layer.json")
    changes = {"input_file": cased.train, "bert_config_file": config, "do_eval": False} | changes
    if not changes["bert_config_file"]:
        changes["init_checkpoint"] = str(pretrained)
    options = make_options("masked_nsp", **changes)
    with pytest.raises(ValueError, match="do_lower_case"):
        run_pretraining(options)
    assert not Path(options.output_dir).exists()


# ---------------------------------------------------------------------------------------- objectives


@pytest.mark.weekly_cases("unmasked")
@pytest.mark.parametrize("kind", ["masked_mlm", "unmasked_mlm"])
def test_single_sequences_have_masked_words_only(make_options, kind):
    options = make_options(kind)
    run_pretraining(options)
    folder = Path(options.output_dir)
    assert list(read_results(folder)) == [
        "global_step",
        "loss",
        "masked_lm_accuracy",
        "masked_lm_loss",
        "masked_lm_perplexity",
    ]
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert all("masked_lm_loss" in line for line in lines)
    assert not any("next_sentence_loss" in line for line in lines)
    assert read_task(options.output_dir).objective == "mlm"


@pytest.mark.weekly_cases("masked")
@pytest.mark.parametrize("kind", ["masked_sop", "unmasked_sop"])
def test_records_of_ordered_pairs_have_the_keys_of_next_sentences(make_options, kind, pretrained):
    options = make_options(kind)
    run_pretraining(options)
    assert list(read_results(Path(options.output_dir))) == list(read_results(pretrained))
    assert read_task(options.output_dir).objective == "mlm_sop"


@pytest.mark.weekly
def test_without_pairs_the_head_stays_as_it_was_and_a_run_can_go_on(
    make_options, tmp_path, monkeypatch
):
    options = make_options("masked_mlm", do_eval=False)
    whole = dataclasses.replace(options, output_dir=str(tmp_path / "whole"))
    run_pretraining(whole)
    with monkeypatch.context() as patch, pytest.raises(Interruption):
        interrupt_at(patch, step=8)
        run_pretraining(options)
    run_pretraining(options)
    found, expected = (
        checkpoint_arrays(f"{folder}/model.ckpt-12")
        for folder in (options.output_dir, whole.output_dir)
    )
    assert_bit_equal(found, expected)
    early = checkpoint_arrays(f"{whole.output_dir}/model.ckpt-5")
    for name in ("cls/seq_relationship/output_weights", "bert/pooler/dense/kernel"):
        np.testing.assert_array_equal(expected[name], early[name])
        assert not expected[f"{name}/adam_m"].any()
    assert (expected["cls/predictions/output_bias"] != early["cls/predictions/output_bias"]).any()


@pytest.mark.weekly
def test_the_labels_of_pairs_can_be_left_alone(make_options):
    options = make_options("masked_nsp", objective="mlm")
    assert "next_sentence_loss" not in run_pretraining(options)
    # Nor are they looked at when that model is evaluated, since its head is not trained.
    alone = dataclasses.replace(options, objective=None, do_train=False)
    assert "next_sentence_loss" not in run_pretraining(alone)
    told = dataclasses.replace(alone, objective="mlm_nsp")
    assert "next_sentence_loss" in run_pretraining(told)


def test_without_a_manifest_labels_are_of_next_sentences_unless_the_flag_says_otherwise(
    make_options, kinds, found_before_training, tmp_path
):
    unknown = without_manifest(kinds["masked_sop"].train, tmp_path)
    for objective, expected in ((None, "mlm_nsp"), ("mlm_sop", "mlm_sop")):
        options = make_options(
            "masked_sop",
            input_file=unknown,
            do_eval=False,
            objective=objective,
            output_dir=tmp_path / expected,
        )
        assert found_before_training(options).objective == expected


# ----------------------------------------------------------------------------------------- attention


def test_a_left_to_right_model_stays_one_and_does_not_go_on_in_the_other_direction(make_options):
    options = make_options("masked_mlm", attention="left_to_right")
    results = run_pretraining(options)
    folder = Path(options.output_dir)
    config = BertConfig.from_json_file(folder / "bert_config.json")
    assert config.attention_direction == "left_to_right"
    again = dataclasses.replace(options, do_train=False, attention=None, bert_config_file=None)
    assert run_pretraining(again) == pytest.approx(results, rel=1e-6)
    message = r"attention_direction: left_to_right there, bidirectional now"
    with pytest.raises(ValueError, match=message):
        run_pretraining(dataclasses.replace(options, attention=None))
