"""run_pretraining in two phases, with averages, packed rows, loss scaling, and what it refuses."""

import dataclasses
import json
import os
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
from absl import flags
from pages import data_of
from tiny_checkpoints import write_tf1
from tiny_runs import (
    Interruption,
    assert_bit_equal,
    checkpoint_arrays,
    interrupt_at,
    pretraining_options,
    write_records,
)

from bert_tf.cli import define_flags, options_from_flags
from bert_tf.config import BertConfig
from bert_tf.data.record_checks import count_records
from bert_tf.pretraining.recipes import RECIPES
from bert_tf.programs.run_pretraining import PretrainingOptions, run_pretraining
from bert_tf.report.command_line import changed_flags
from bert_tf.training.checkpoints import LOCK_FILE, folder_lock, latest_checkpoint
from reference import numpy_bert

STEPS = 8


@pytest.fixture
def options(records, toy_text, tmp_path):
    made = pretraining_options(records, toy_text, tmp_path / "output")
    return dataclasses.replace(
        made,
        bert_config_file=str(toy_text / "one_layer.json"),
        do_eval=False,
        eval_file=None,
        num_train_steps=STEPS,
        num_warmup_steps=2,
        evaluate_steps=0,
    )


def lines(folder, kind="train"):
    found = map(json.loads, (Path(folder) / "metrics.jsonl").read_text().splitlines())
    return [line for line in found if line["kind"] == kind]


# ---- Phases -------------------------------------------------------------------------------------


def test_a_second_phase_goes_on_with_weights_moments_and_step_of_the_first(options, tmp_path):
    run_pretraining(options)
    first = dataclasses.replace(options, output_dir=str(tmp_path / "first"), stop_step=5)
    run_pretraining(first)
    assert latest_checkpoint(first.output_dir).endswith("model.ckpt-5")
    second = dataclasses.replace(
        options,
        output_dir=str(tmp_path / "second"),
        init_checkpoint=first.output_dir,
        init_optimizer=True,
    )
    run_pretraining(second)
    # With the same records the two phases are the whole run, cut in two.
    whole, phases = (
        checkpoint_arrays(f"{folder}/model.ckpt-{STEPS}")
        for folder in (options.output_dir, second.output_dir)
    )
    assert_bit_equal(phases, whole)


def test_auto_batch_takes_the_steps_of_its_accumulation(options, tmp_path, monkeypatch, caplog):
    caplog.set_level("INFO")
    monkeypatch.setattr("bert_tf.training.memory.host_bytes", lambda: 1 << 10)
    with pytest.raises(ValueError, match=r"A step with one example of .* tokens needs about"):
        run_pretraining(dataclasses.replace(options, auto_batch=True))
    monkeypatch.setattr("bert_tf.programs.run_pretraining.parts_that_fit", lambda *sizes: 2)
    run_pretraining(dataclasses.replace(options, auto_batch=True))
    assert "--auto_batch: --gradient_accumulation_steps=2; a device computes" in caplog.text
    assert "on CPU:0; batch 16 = 1 x 16 in 2 parts; float32" in caplog.text
    given = {"output_dir": str(tmp_path / "given"), "gradient_accumulation_steps": 2}
    given = dataclasses.replace(options, **given)
    run_pretraining(given)
    found, wanted = (
        checkpoint_arrays(f"{folder}/model.ckpt-{STEPS}")
        for folder in (options.output_dir, given.output_dir)
    )
    assert_bit_equal(found, wanted)
    with pytest.raises(ValueError, match="auto_batch cannot be combined with gradient_acc"):
        dataclasses.replace(given, auto_batch=True)


def test_a_decay_branches_off_any_checkpoint_of_a_stable_rate(options, tmp_path):
    stable = {"lr_schedule": "warmup_stable_decay", "num_decay_steps": 2, "iterations_per_loop": 1}
    options = dataclasses.replace(options, **stable)
    run_pretraining(options)
    longer = dataclasses.replace(
        options, output_dir=str(tmp_path / "longer"), num_train_steps=50, stop_step=7
    )
    run_pretraining(dataclasses.replace(longer, save_checkpoints_steps=3))
    branch = dataclasses.replace(
        options,
        output_dir=str(tmp_path / "branch"),
        init_checkpoint=f"{longer.output_dir}/model.ckpt-6",
        init_optimizer=True,
    )
    run_pretraining(branch)
    found, expected = (
        checkpoint_arrays(f"{folder}/model.ckpt-{STEPS}")
        for folder in (branch.output_dir, options.output_dir)
    )
    assert_bit_equal(found, expected)
    rates = [line["learning_rate"] for line in lines(options.output_dir)]
    assert rates[2:7] == [rates[2]] * 5 and rates[7] < 0.3 * rates[6]


@pytest.fixture(scope="module")
def two_lengths(toy_text, tmp_path_factory):
    """Records of 16 and 24 tokens, as `train` and `held_out` with {length}."""
    folder = tmp_path_factory.mktemp("two_lengths")
    for length in (16, 24):
        for name in ("train", "held_out"):
            path = folder / f"{name}-{length}.tf_record"
            sizes = {"max_seq_length": length, "max_predictions_per_seq": length // 8}
            write_records(toy_text / f"{name}.txt", path, **sizes)
    return SimpleNamespace(
        train=str(folder / "train-{length}.tf_record"),
        held_out=str(folder / "held_out-{length}.tf_record"),
    )


@pytest.fixture(scope="module")
def phased(two_lengths, toy_text, tmp_path_factory):
    """Options of a run in two phases that has ended."""
    folder = tmp_path_factory.mktemp("phased")
    options = dataclasses.replace(
        pretraining_options(two_lengths, toy_text, folder / "output"),
        bert_config_file=str(toy_text / "one_layer.json"),
        phases="16:0.5,24:0.5",
        max_predictions_per_seq=None,
        scale_phase_batches=True,
        num_train_steps=STEPS,
        num_warmup_steps=2,
        evaluate_steps=3,
        iterations_per_loop=1,
        save_checkpoints_steps=3,
    )
    results = run_pretraining(options)
    assert results["global_step"] == STEPS
    return options


def test_phases_have_their_lengths(phased, two_lengths):
    card = Path(phased.output_dir, "README.md").read_text()
    count = count_records([two_lengths.train.format(length=length) for length in (16, 24)])
    assert f"| records to train on | {count:,} |" in card
    assert "--phases=16:0.5,24:0.5" in card and "--stop_step" not in card
    tokens = [line["tokens"] for line in lines(phased.output_dir)]
    assert len(tokens) == STEPS
    assert np.mean(tokens[:4]) == pytest.approx(np.mean(tokens[4:]), rel=0.15)  # less the padding
    assert [phase.train_batch_size for phase in phased.phase_options()] == [24, 16]
    *_, command = data_of(Path(phased.output_dir, "report.html").read_text())["sections"]
    flags = command["parts"][-1]["text"]
    assert "--phases=16:0.5,24:0.5" in flags and "train-{length}.tf_record" in flags
    assert "--stop_step" not in flags
    assert [line["step"] for line in lines(phased.output_dir, "eval")] == [3, 4, 6, STEPS]
    task = json.loads(Path(phased.output_dir, "task.json").read_text())
    assert (task["max_seq_length"], task["max_predictions_per_seq"]) == (24, 3)


@pytest.mark.long  # the optimizer: test_a_decay_branches_off_any_checkpoint_of_a_stable_rate
def test_a_run_starts_from_within_the_second_phase_of_another(phased, tmp_path):
    inside = dataclasses.replace(
        phased,
        output_dir=str(tmp_path / "inside"),
        init_checkpoint=f"{phased.output_dir}/model.ckpt-6",
        init_optimizer=True,
    )
    run_pretraining(inside)
    assert [line["step"] for line in lines(inside.output_dir)] == [7, STEPS]
    assert [line["step"] for line in lines(inside.output_dir, "eval")] == [STEPS]


@pytest.mark.parametrize(
    "interruption",
    [4, pytest.param(6, marks=pytest.mark.long)],  # between the phases, and in the second
)
def test_phases_resume_exactly_across_a_boundary(
    phased, tmp_path, monkeypatch, caplog, interruption
):
    without = {"do_eval": False, "eval_file": None, "evaluate_steps": 0}
    parts = dataclasses.replace(phased, output_dir=str(tmp_path / "parts"), **without)
    with monkeypatch.context() as patch, pytest.raises(Interruption):
        interrupt_at(patch, step=interruption)
        run_pretraining(parts)
    with caplog.at_level("INFO"):
        run_pretraining(parts)
    for line in ("The objective is mlm_nsp", "The train records have masks"):
        assert caplog.messages.count(line) == 1
    found, expected = (
        checkpoint_arrays(f"{folder}/model.ckpt-{STEPS}")
        for folder in (parts.output_dir, phased.output_dir)
    )
    assert_bit_equal(found, expected)


@pytest.mark.parametrize(
    "phases, message",
    [
        ("64", "phases=64: '64' is not LENGTH:FRACTION, such as 128:0.9"),
        ("64:0.5,128:0.6", "the fractions sum to 1.1, but must sum to 1"),
        ("64:0,128:1", "'64:0' is not LENGTH:FRACTION"),
        ("64:0.001,128:0.999", "the phase of 64 tokens has no step of num_train_steps=8"),
    ],
)
def test_phases_that_make_no_training_are_refused(options, phases, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(options, phases=phases)


def test_records_with_different_numbers_of_predictions_are_refused(toy_text, tmp_path, options):
    for number in (3, 4):
        path = tmp_path / f"of-{number}.tf_record"
        write_records(toy_text / "train.txt", path, max_predictions_per_seq=number)
    changes = {"input_file": str(tmp_path / "of-*.tf_record"), "max_predictions_per_seq": None}
    message = r"of-3.tf_record have 3 predictions .*of-4.tf_record have 4"
    with pytest.raises(ValueError, match=message):
        run_pretraining(dataclasses.replace(options, **changes))


@pytest.mark.parametrize(
    "phases, changes, message",
    [
        (
            "16:0.5,24:0.5",
            {"max_predictions_per_seq": 2},
            r"has 3 values .* Use .*max_predictions_per_seq=3",
        ),
        ("24:0.4,40:0.3,16:0.3", {}, r"max_seq_length is 40, but must be from \d to 31, the model"),
        (
            "16:0.5,24:0.5",
            {"train_batch_size": 40, "scale_phase_batches": True, "max_predictions_per_seq": None},
            r"train_batch_size is 40, but .*24.tf_record has only 32 examples",
        ),
    ],
    ids=["predictions", "positions", "examples"],
)
def test_a_later_phase_is_checked_before_the_first_one_trains(
    toy_text, tmp_path, options, phases, changes, message
):
    for length in (16, 24):
        path = tmp_path / f"{length}.tf_record"
        sizes = {"max_seq_length": length, "max_predictions_per_seq": length // 8}
        write_records(toy_text / "train.txt", path, **sizes)
    if "train_batch_size" in changes:
        records = [record.numpy() for record in tf.data.TFRecordDataset(str(path)).take(32)]
        path.with_name("24.tf_record.manifest.json").unlink(missing_ok=True)
        with tf.io.TFRecordWriter(str(path)) as writer:
            for record in records:
                writer.write(record)
    changes = {"max_predictions_per_seq": None, **changes, "phases": phases}
    changes["input_file"] = str(tmp_path / "{length}.tf_record")
    with pytest.raises(ValueError, match=message):
        run_pretraining(dataclasses.replace(options, **changes))
    assert latest_checkpoint(options.output_dir) is None


@pytest.mark.usefixtures("steps_without_training")
def test_records_are_counted_once_for_all_phases_and_not_after_the_training(
    toy_text, tmp_path, options, monkeypatch
):
    for length in (16, 24):
        path = tmp_path / f"{length}.tf_record"
        sizes = {"max_seq_length": length, "max_predictions_per_seq": 2}
        write_records(toy_text / "train.txt", path, **sizes)
        path.with_name(f"{length}.tf_record.manifest.json").unlink()
    counted = []
    monkeypatch.setattr(
        "bert_tf.report.training_rows.count_records", lambda files: counted.append(files) or 7
    )
    given = {"phases": "16:0.5,24:0.5", "input_file": str(tmp_path / "{length}.tf_record")}
    given |= {"max_predictions_per_seq": None, "num_train_steps": 2, "num_warmup_steps": 1}
    given = dataclasses.replace(options, **given)
    run_pretraining(given)
    run_pretraining(given)
    assert counted == [[str(tmp_path / "16.tf_record"), str(tmp_path / "24.tf_record")]]
    assert "| records to train on | 7 |" in (Path(options.output_dir) / "README.md").read_text()


def test_phases_need_records_of_each_length(options):
    with pytest.raises(ValueError, match=r"has no \{length\}, which becomes the length"):
        run_pretraining(dataclasses.replace(options, phases="64:0.5,128:0.5"))
    held_out = {"input_file": "{length}", "eval_file": "dev", "do_eval": True}
    with pytest.raises(ValueError, match=r"eval_file=dev has no \{length\}, which becomes"):
        run_pretraining(dataclasses.replace(options, phases="64:0.5,128:0.5", **held_out))
    with pytest.raises(ValueError, match=r"input_file=\{length\} has \{length\}, .* no phases"):
        run_pretraining(dataclasses.replace(options, input_file="{length}"))


def test_a_recipe_stands_for_flags_and_given_ones_have_precedence(options, caplog):
    caplog.set_level("INFO")
    given = {"input_file": "x", "output_dir": "y", "do_train": True, "recipe": "2026"}
    made = PretrainingOptions.with_given(**given, adam_beta2=0.9)
    assert (made.optimizer, made.adam_beta2, made.hidden_dropout) == ("muon", 0.9, 0.0)
    assert "--recipe=2026 adds --optimizer=muon " in caplog.text
    assert set(changed_flags(made)) >= {"--recipe=2026", "--optimizer=muon", "--adam_beta2=0.9"}
    for changes in ({}, {"optimizer": "adam_weight_decay"}, {"adam_beta2": 0.999, "seed": 3}):
        whole = PretrainingOptions.with_given(**given, **changes)
        values = flags.FlagValues()
        define_flags(PretrainingOptions, values)
        values(["run_pretraining", *changed_flags(whole)])
        assert options_from_flags(PretrainingOptions, values) == whole
    assert PretrainingOptions.with_given(**{**given, "recipe": "paper"}) == PretrainingOptions(
        **{**given, "recipe": "paper"}
    )
    with pytest.raises(ValueError, match="recipe=2026 sets other options, but none"):
        PretrainingOptions(**given)


def test_the_model_card_lists_the_flags_of_a_recipe(options):
    values = {**vars(options), "recipe": "2026", "num_train_steps": 2, "do_eval": False}
    for name in RECIPES["2026"]:
        del values[name]
    run_pretraining(PretrainingOptions.with_given(**values))
    card = Path(options.output_dir, "README.md").read_text()
    assert "--recipe=2026" in card and "--optimizer=muon" in card and "--adam_beta2=0.98" in card


def test_dropout_is_that_of_the_flags_and_the_configuration_stays(options, tmp_path):
    plain = dataclasses.replace(options, hidden_dropout=0.0, attention_dropout=0.0)
    run_pretraining(plain)
    config = json.loads(Path(options.bert_config_file).read_text())
    none = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    (tmp_path / "config.json").write_text(json.dumps(config | none))
    without = dataclasses.replace(
        options,
        bert_config_file=str(tmp_path / "config.json"),
        output_dir=str(tmp_path / "without"),
    )
    run_pretraining(without)
    found, expected = (
        checkpoint_arrays(f"{folder}/model.ckpt-{STEPS}")
        for folder in (plain.output_dir, without.output_dir)
    )
    assert_bit_equal(found, expected)
    kept = json.loads(Path(plain.output_dir, "bert_config.json").read_text())
    assert kept["hidden_dropout_prob"] == config["hidden_dropout_prob"] > 0


def test_carrying_over_the_optimizer_needs_a_run_of_ours(options, tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(ValueError, match=r"init_optimizer needs .*init_checkpoint"):
        dataclasses.replace(options, init_optimizer=True)
    with pytest.raises((ValueError, FileNotFoundError), match=str(empty)):
        run_pretraining(
            dataclasses.replace(options, init_optimizer=True, init_checkpoint=str(empty))
        )
    config = BertConfig.from_json_file(options.bert_config_file)
    arrays = numpy_bert.random_variables(config, seed=1, heads=("masked_lm", "next_sentence"))
    published = write_tf1(tmp_path / "published", arrays, config=config)
    message = f"init_checkpoint={published} contains no .* Give the .*output_dir of the"
    with pytest.raises(ValueError, match=message):
        run_pretraining(
            dataclasses.replace(options, init_optimizer=True, init_checkpoint=published)
        )


@pytest.mark.parametrize("changes", [{"optimizer": "lamb"}, {"ema_decay": 0.9}])
def test_a_run_goes_on_only_with_the_optimizer_that_began_it(options, changes):
    run_pretraining(dataclasses.replace(options, stop_step=2))
    (name, value), *_ = changes.items()
    before = (Path(options.output_dir) / "training.json").read_text()
    with pytest.raises(
        ValueError, match=rf"another optimizer:\n  .*{name}.*: .* there, {value} now"
    ):
        run_pretraining(dataclasses.replace(options, **changes))
    assert (Path(options.output_dir) / "training.json").read_text() == before


def test_a_change_of_what_may_change_is_warned_of(options, caplog):
    run_pretraining(dataclasses.replace(options, stop_step=2))
    changes = {"learning_rate": 0.5, "objective": "mlm", "max_predictions_per_seq": None}
    run_pretraining(dataclasses.replace(options, stop_step=3, **changes))
    assert "change: learning_rate: 0.005 there, 0.5 now" in caplog.text
    assert "change: objective: mlm_nsp there, mlm now" in caplog.text
    assert "max_predictions_per_seq" not in caplog.text  # the default is that of the records


def test_the_second_phase_keeps_to_the_optimizer_of_the_first(options, tmp_path):
    run_pretraining(dataclasses.replace(options, stop_step=2))
    second = dataclasses.replace(
        options,
        output_dir=str(tmp_path / "second"),
        init_checkpoint=options.output_dir,
        init_optimizer=True,
        optimizer="lamb",
    )
    message = rf"{options.output_dir} contains checkpoints of a run with another optimizer"
    with pytest.raises(ValueError, match=message):
        run_pretraining(second)


# ---- Kinds of steps -----------------------------------------------------------------------------


def test_packed_rows_give_the_losses_of_padded_ones(options, toy_text, tmp_path):
    config = json.loads((toy_text / "bert_config.json").read_text())
    config |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    (tmp_path / "config.json").write_text(json.dumps(config))
    options = dataclasses.replace(
        options, bert_config_file=str(tmp_path / "config.json"), iterations_per_loop=1
    )
    run_pretraining(options)
    packed = dataclasses.replace(options, output_dir=str(tmp_path / "rows"), pack_sequences=True)
    run_pretraining(packed)
    padded_lines, packed_lines = lines(options.output_dir), lines(packed.output_dir)
    assert len(packed_lines) == STEPS
    for found, expected in zip(packed_lines, padded_lines, strict=True):
        assert found["loss"] == pytest.approx(expected["loss"], rel=1e-4)
        assert found["tokens"] == expected["tokens"]


def test_evaluation_and_the_model_alone_have_the_averages(options):
    options = dataclasses.replace(options, ema_decay=0.5, do_eval=True)
    results = run_pretraining(options)
    arrays = checkpoint_arrays(f"{options.output_dir}/model.ckpt-{STEPS}")
    name = "bert/pooler/dense/kernel"
    assert np.abs(arrays[name] - arrays[f"{name}/ExponentialMovingAverage"]).max() > 1e-6
    again = run_pretraining(dataclasses.replace(options, do_train=False))
    from_outside = dataclasses.replace(
        options,
        do_train=False,
        init_checkpoint=options.output_dir,
        output_dir=f"{options.output_dir}-evaluated",
    )
    for found in (again, run_pretraining(from_outside)):
        assert found["masked_lm_loss"] == pytest.approx(results["masked_lm_loss"], rel=1e-6)


def test_float16_trains_with_a_scaled_loss(options):
    run_pretraining(dataclasses.replace(options, precision="mixed_float16"))
    assert {line["loss_scale"] for line in lines(options.output_dir)} == {2.0**15}


def test_training_ends_where_evaluations_get_no_better_and_the_best_is_kept(options):
    options = dataclasses.replace(
        options,
        do_eval=True,
        evaluate_steps=1,
        early_stopping=2,
        best_metric="global_step_that_is_not_there",
    )
    with pytest.raises(ValueError, match=r"best_metric is .*, but must be one of loss, masked_lm"):
        run_pretraining(options)
    assert not os.path.exists(f"{options.output_dir}/metrics.jsonl")  # before the first step
    options = dataclasses.replace(
        options, best_metric=None, output_dir=f"{options.output_dir}-2", learning_rate=1e-30
    )
    run_pretraining(options)  # hardly anything changes, so nothing gets better
    assert latest_checkpoint(options.output_dir).endswith("model.ckpt-3")
    assert [line["step"] for line in lines(options.output_dir, "eval")] == [1, 2, 3]
    assert latest_checkpoint(f"{options.output_dir}/best").endswith("model.ckpt-1")

    before = len(lines(options.output_dir))
    run_pretraining(options)  # the same command again
    assert latest_checkpoint(options.output_dir).endswith("model.ckpt-3")
    assert len(lines(options.output_dir)) == before


# ---- What is refused ----------------------------------------------------------------------------


def test_a_batch_that_is_larger_than_the_data_set_is_refused(options):
    message = r"train_batch_size is 5000, but .*train.tf_record has only \d+ examples"
    with pytest.raises(ValueError, match=message):
        run_pretraining(dataclasses.replace(options, train_batch_size=5000))


def test_an_output_folder_that_cannot_be_written_is_refused_before_training(options, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    inside = str(tmp_path / "file" / "output")
    with pytest.raises(ValueError, match=f"output_dir={inside} "):
        run_pretraining(dataclasses.replace(options, output_dir=inside))


def test_a_second_run_in_a_folder_where_one_trains_is_refused(options):
    Path(options.output_dir).mkdir()
    # The lock belongs to an open file, so this process stands for another one.
    held = folder_lock(options.output_dir)
    refused = pytest.raises(ValueError, match=f"{options.output_dir} is in use: process")
    with held:
        with refused:
            run_pretraining(options)
        assert os.listdir(options.output_dir) == [LOCK_FILE]


def test_a_loss_that_is_lost_names_the_files_of_its_batch(options):
    message = r"The loss is .* at step \d+. Its batch came from .*train.tf_record. Lower .*learn"
    with pytest.raises(FloatingPointError, match=message):
        run_pretraining(dataclasses.replace(options, learning_rate=1e30, num_warmup_steps=0))
