"""run_pretraining in two phases, with packed rows, early ends, and what it refuses."""

import dataclasses
import json
import os
from pathlib import Path

import pytest
from tiny_checkpoints import write_tf1
from tiny_runs import (
    assert_bit_equal,
    checkpoint_arrays,
    pretraining_options,
)

from bert_tf.config import BertConfig
from bert_tf.programs.run_pretraining import run_pretraining
from bert_tf.training.checkpoints import LOCK_FILE, folder_lock
from reference import numpy_bert

pytestmark = pytest.mark.night

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


def test_a_decay_branches_off_any_checkpoint_of_a_stable_rate(options, tmp_path):
    stable = {"lr_schedule": "warmup_stable_decay", "iterations_per_loop": 1}
    options = dataclasses.replace(options, **stable, num_train_steps=10)  # the last two decay
    run_pretraining(options)
    longer = dataclasses.replace(
        options, output_dir=str(tmp_path / "longer"), num_train_steps=50, stop_step=8
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
        checkpoint_arrays(f"{folder}/model.ckpt-10")
        for folder in (branch.output_dir, options.output_dir)
    )
    assert_bit_equal(found, expected)
    rates = [line["learning_rate"] for line in lines(options.output_dir)]
    assert rates[2:9] == [rates[2]] * 7 and rates[9] < 0.3 * rates[8]


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
    with pytest.raises((ValueError, FileNotFoundError), match=str(empty)):
        run_pretraining(
            dataclasses.replace(options, init_optimizer=True, init_checkpoint=str(empty))
        )
    config = BertConfig.from_json_file(options.bert_config_file)
    arrays = numpy_bert.random_variables(config, seed=1, heads=("masked_lm", "next_sentence"))
    published = write_tf1(tmp_path / "published", arrays, config=config)
    with pytest.raises(ValueError, match="init_optimizer"):
        run_pretraining(
            dataclasses.replace(options, init_optimizer=True, init_checkpoint=published)
        )


@pytest.mark.weekly_cases("changes1")
def test_a_run_goes_on_only_with_the_optimizer_that_began_it(options):
    changes = {"optimizer": "lamb"}
    run_pretraining(dataclasses.replace(options, stop_step=2))
    before = (Path(options.output_dir) / "training.json").read_text()
    second = {**changes, "init_checkpoint": options.output_dir, "init_optimizer": True}
    second["output_dir"] = f"{options.output_dir}-2"
    for resumed in (changes, second):
        with pytest.raises(ValueError, match="optimizer"):
            run_pretraining(dataclasses.replace(options, **resumed))
    assert (Path(options.output_dir) / "training.json").read_text() == before


# ---- Kinds of steps -----------------------------------------------------------------------------


# ---- What is refused ----------------------------------------------------------------------------


def test_a_second_run_in_a_folder_where_one_trains_is_refused(options):
    Path(options.output_dir).mkdir()
    # The lock belongs to an open file, so this process stands for another one.
    held = folder_lock(options.output_dir)
    refused = pytest.raises(ValueError, match=f"{options.output_dir} is in use: process")
    with held:
        with refused:
            run_pretraining(options)
        assert os.listdir(options.output_dir) == [LOCK_FILE]
