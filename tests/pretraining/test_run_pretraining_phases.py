"""run_pretraining in two phases, and when it resumes."""

import json
from pathlib import Path

import pytest
from helpers import assert_bit_equal, checkpoint_arrays
from models import DATA, options, train
from tiny_checkpoints import write_tf1

from bert_tf.config import BertConfig
from bert_tf.pretraining.run_pretraining import run_pretraining
from bert_tf.training.checkpoints import LOCK_FILE, folder_lock
from reference import numpy_bert

pytestmark = pytest.mark.night

CONFIG_FILE = f"{DATA}/text/one_layer.json"
STEPS = {"do_eval": False, "num_train_steps": 8, "num_warmup_steps": 2, "keep_checkpoint_max": 5}


def run(folder, **changes):
    train("pretrained", folder, **{"bert_config_file": CONFIG_FILE, **STEPS, **changes})
    return Path(folder)


def same_weights(first, second, step):
    found, expected = (checkpoint_arrays(f"{f}/model.ckpt-{step}") for f in (first, second))
    assert_bit_equal(found, expected)


def test_a_decay_branches_off_any_checkpoint_of_a_stable_rate(tmp_path):
    stable = {"lr_schedule": "warmup_stable_decay", "iterations_per_loop": 1}
    whole = run(tmp_path / "whole", **stable, num_train_steps=10)  # the last two decay
    stopped = {"num_train_steps": 50, "stop_step": 8, "save_checkpoints_steps": 3}
    longer = run(tmp_path / "longer", **stable, **stopped)
    start = {"init_checkpoint": f"{longer}/model.ckpt-6", "init_optimizer": True}
    branch = run(tmp_path / "branch", **stable, **start, num_train_steps=10)
    same_weights(branch, whole, 10)
    found = map(json.loads, (whole / "metrics.jsonl").read_text().splitlines())
    rates = [line["learning_rate"] for line in found if line["kind"] == "train"]
    assert rates[2:9] == [rates[2]] * 7 and rates[9] < 0.3 * rates[8]


def test_dropout_is_that_of_the_flags_and_the_configuration_stays(tmp_path, eagerly):
    plain = run(tmp_path / "plain", hidden_dropout=0.0, attention_dropout=0.0)
    config = json.loads(Path(CONFIG_FILE).read_text())
    none = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    (tmp_path / "config.json").write_text(json.dumps(config | none))
    without = run(tmp_path / "without", bert_config_file=f"{tmp_path}/config.json")
    same_weights(plain, without, 8)
    kept = json.loads((plain / "bert_config.json").read_text())
    assert kept["hidden_dropout_prob"] == config["hidden_dropout_prob"] > 0


def test_a_run_that_trains_keeps_others_out_of_its_folder(tmp_path):
    folder = tmp_path / "output"
    folder.mkdir()
    # The lock belongs to an open file, so this process stands for another one.
    with folder_lock(str(folder)):
        with pytest.raises(ValueError, match=str(folder)):
            run(folder)
        assert [path.name for path in folder.iterdir()] == [LOCK_FILE]


def test_only_the_optimizer_that_began_a_run_goes_on(tmp_path, eagerly):
    folder = run(tmp_path / "output", stop_step=2)
    before = (folder / "training.json").read_text()
    second = {"init_checkpoint": str(folder), "init_optimizer": True}
    for target, changes in ((folder, {}), (tmp_path / "second", second)):
        with pytest.raises(ValueError, match="optimizer"):
            run(target, optimizer="lamb", **changes)
    values = json.loads((folder / "bert_config.json").read_text()) | {"hidden_act": "relu"}
    (tmp_path / "relu.json").write_text(json.dumps(values))
    with pytest.raises(ValueError, match="hidden_act"):
        run(tmp_path / "third", bert_config_file=str(tmp_path / "relu.json"), **second)
    assert (folder / "training.json").read_text() == before
    config = BertConfig.from_json_file(CONFIG_FILE)
    arrays = numpy_bert.random_variables(config, seed=1, heads=("masked_lm", "next_sentence"))
    published = write_tf1(tmp_path / "published", arrays, config=config)
    start = options("pretrained", "x", init_optimizer=True, init_checkpoint=published)
    with pytest.raises(ValueError, match="cannot be resumed"):
        run_pretraining(start)
