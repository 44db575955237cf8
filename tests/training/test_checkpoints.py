"""Checkpoints: the reference's names, whole or not at all, and found again wherever they lie."""

import resource

import keras
import numpy as np
import pytest
import tensorflow as tf
from helpers import refused
from tiny_training import bert_config

from bert_tf.checkpoints.tf1 import latest_checkpoint
from bert_tf.modeling.models import BertForPreTraining
from bert_tf.tasks.run_folder import check_output_folder
from bert_tf.training.checkpoints import (
    BackgroundSaver,
    list_checkpoints,
    restore_checkpoint,
    save_checkpoint,
    training_variables,
)
from bert_tf.training.optimizers import AdamWeightDecay
from reference import numpy_bert

CONFIG = bert_config()


def small(value=0.0, shape=(2, 3)):
    """Two variables that stand for a model's."""
    return {
        "bert/kernel": keras.Variable(np.full(shape, value, np.float32)),
        "global_step": keras.Variable(0, dtype="int64"),
    }


def save_steps(folder, *steps, **kwargs):
    for step in steps:
        prefix = save_checkpoint(str(folder), small(value=step), step, **kwargs)
    return prefix


def value_at(prefix):
    """What `restore_checkpoint` gives the kernel."""
    variables = small(value=-1)
    restore_checkpoint(prefix, variables)
    return float(variables["bert/kernel"][1, 2])


def names_of(paths):
    return [path.rsplit("/", 1)[1] for path in paths]


@pytest.fixture(scope="module")
def trained():
    """A model and its optimizer after one step: slots are not zero."""
    model = BertForPreTraining(CONFIG)
    optimizer = AdamWeightDecay(0.1)
    optimizer.build(model.trainable_variables)
    gradients = [tf.random.stateless_normal(v.shape, (1, 2)) for v in model.trainable_variables]
    optimizer.apply(gradients, model.trainable_variables)
    return training_variables(model, optimizer)


@pytest.mark.parametrize("room", [0, 64])  # for the data alone
def test_a_checkpoint_that_cannot_be_written_leaves_the_one_before(tmp_path, room):
    """The limit is that of the size of a file; TensorFlow's error is the one of a full disk."""
    save_steps(tmp_path, 1)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    for step in (1, 2):
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, limits[1]))
        try:
            with pytest.raises(tf.errors.OpError):
                save_steps(tmp_path, step)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        assert value_at(latest_checkpoint(str(tmp_path))) == 1
    save_steps(tmp_path, 3, keep_max=1)  # clears the remains away
    assert {path.name.split(".")[1] for path in tmp_path.glob("model*")} == {"ckpt-3"}


def test_a_checkpoint_lists_exactly_the_references_names_and_reads_what_was_written(
    trained, tmp_path
):
    values = {name: variable.numpy().copy() for name, variable in trained.items()}
    prefix = save_checkpoint(str(tmp_path), trained, step=1)
    expected = set(numpy_bert.variable_shapes(CONFIG, ("masked_lm", "next_sentence"), num_labels=2))
    expected |= {f"{name}/{slot}" for name in expected for slot in ("adam_m", "adam_v")}
    found = tf.train.load_checkpoint(prefix).get_variable_to_shape_map()
    assert set(found) == expected | {"global_step"}
    assert found["bert/encoder/layer_0/attention/self/query/kernel/adam_v"] == [8, 8]
    step = tf.train.load_variable(prefix, "global_step")
    assert (step, step.dtype, step.shape) == (1, np.int64, ())
    for variable in trained.values():
        variable.assign(variable + 1)
    restore_checkpoint(prefix, trained)
    for name, variable in trained.items():
        np.testing.assert_array_equal(variable, values[name], err_msg=name)
    assert np.abs(values["bert/pooler/dense/kernel/adam_m"]).min() > 0


def test_the_newest_checkpoint_is_the_latest(tmp_path):
    assert latest_checkpoint(str(tmp_path)) is None
    assert latest_checkpoint(str(tmp_path / "no_such_folder")) is None
    save_steps(tmp_path, 9, 10)
    assert latest_checkpoint(str(tmp_path)) == str(tmp_path / "model.ckpt-10")
    assert tf.train.latest_checkpoint(str(tmp_path)) == str(tmp_path / "model.ckpt-10")
    assert names_of(list_checkpoints(str(tmp_path))) == ["model.ckpt-9", "model.ckpt-10"]


def test_keep_max_checkpoints_stay_and_nothing_of_the_others(tmp_path):
    save_steps(tmp_path, 8, 9, 10, 11, keep_max=2)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "checkpoint",
        "model.ckpt-10.data-00000-of-00001",
        "model.ckpt-10.index",
        "model.ckpt-11.data-00000-of-00001",
        "model.ckpt-11.index",
    ]
    state = tf.train.get_checkpoint_state(str(tmp_path))
    assert names_of(state.all_model_checkpoint_paths) == ["model.ckpt-10", "model.ckpt-11"]


def test_saving_the_same_step_again_replaces_it(tmp_path):
    save_steps(tmp_path, 3, 5)
    save_checkpoint(str(tmp_path), small(value=77), 5, keep_max=1)
    assert value_at(latest_checkpoint(str(tmp_path))) == 77
    assert names_of(list_checkpoints(str(tmp_path))) == ["model.ckpt-5"]


def test_going_on_from_an_older_checkpoint_makes_it_the_latest(tmp_path):
    save_steps(tmp_path, 20)  # of a run that was given up
    save_steps(tmp_path, 10)
    assert latest_checkpoint(str(tmp_path)).endswith("model.ckpt-10")


def test_a_folder_whose_checkpoints_could_not_be_read_again_is_refused_at_once(tmp_path):
    for folder in ("a[1]", "what?", "*"):
        with refused("output_dir"):
            check_output_folder(f"{tmp_path}/{folder}")


def test_a_folder_whose_checkpoint_file_has_the_paths_of_another_place_can_be_moved(tmp_path):
    save_steps(tmp_path, 4, 5)
    state = (tmp_path / "checkpoint").read_text().replace('"model', '"/elsewhere/model')
    (tmp_path / "checkpoint").write_text(state)
    assert latest_checkpoint(str(tmp_path)) == str(tmp_path / "model.ckpt-5")


def test_a_checkpoint_file_of_any_other_content_is_refused(tmp_path):
    save_steps(tmp_path, 4)
    (tmp_path / "checkpoint").write_text("\n")
    with pytest.raises(ValueError, match=str(tmp_path)):
        latest_checkpoint(str(tmp_path))
    (tmp_path / "checkpoint").unlink()
    (tmp_path / "checkpoint").mkdir()
    assert latest_checkpoint(str(tmp_path)) is None


def test_a_kill_between_two_files_leaves_the_previous_checkpoint_valid(tmp_path):
    save_steps(tmp_path, 4, 5)
    unfinished = "model.ckpt-6.data-00000-of-00001"  # the index is the last
    (tmp_path / unfinished).write_bytes(b"half")
    (tmp_path / f"{unfinished}.tempstate123").write_bytes(b"half")
    (tmp_path / "checkpoint.tmp").write_text("model_checkpoint_pa")
    assert value_at(latest_checkpoint(str(tmp_path))) == 5
    assert names_of(list_checkpoints(str(tmp_path))) == ["model.ckpt-4", "model.ckpt-5"]
    save_steps(tmp_path, 7)  # clears the remains away
    assert not list(tmp_path.glob("model.ckpt-6.*"))
    assert value_at(latest_checkpoint(str(tmp_path))) == 7


def test_a_kill_before_the_checkpoint_file_is_written_leaves_the_previous_one_latest(tmp_path):
    save_steps(tmp_path, 4)
    before = (tmp_path / "checkpoint").read_text()
    save_steps(tmp_path, 5)
    (tmp_path / "checkpoint").write_text(before)
    assert value_at(latest_checkpoint(str(tmp_path))) == 4


def test_where_the_latest_is_gone_the_one_before_is_used_and_not_nothing(tmp_path):
    save_steps(tmp_path, 4, 5, 6)
    (tmp_path / "model.ckpt-6.index").unlink()
    assert value_at(latest_checkpoint(str(tmp_path))) == 5


def test_other_files_of_a_similar_name_are_left_alone(tmp_path):
    names = ["model.ckpt-best.index", "bert_model.ckpt.index", "model.ckpt-1x.data-0"]
    for name in names:
        (tmp_path / name).write_text("mine")
    save_steps(tmp_path, 1, 2, keep_max=1)
    assert all((tmp_path / name).exists() for name in names)
    assert names_of(list_checkpoints(str(tmp_path))) == ["model.ckpt-2"]


def test_a_checkpoint_of_another_model_or_a_damaged_one_is_refused_and_nothing_changed(tmp_path):
    zeros = keras.Variable(np.zeros((2, 3), np.float32))
    prefix = save_steps(tmp_path, 4)
    for source, variables, name in (
        (prefix, small(-1, shape=(2, 5)), "bert/kernel"),
        (prefix, {**small(-1), "bert/kernel/adam_m": zeros}, "bert/kernel/adam_m"),
    ):
        with pytest.raises(ValueError, match=name):
            restore_checkpoint(source, variables)
        assert np.unique(variables["bert/kernel"]) == -1
        assert int(variables["global_step"]) == 0
    for part in ("index", "data-00000-of-00001"):
        prefix, variables = save_steps(tmp_path, 6), small(-1)
        file = tmp_path / f"model.ckpt-6.{part}"
        file.write_bytes(file.read_bytes()[:-20])
        with pytest.raises(ValueError, match=r"model\.ckpt-6"):
            restore_checkpoint(prefix, variables)
        assert np.unique(variables["bert/kernel"]) == -1


def test_a_saver_in_the_background_writes_the_values_of_the_moment_it_was_called(tmp_path):
    variable = keras.Variable(np.arange(5, dtype="float32"), name="values")
    saver = BackgroundSaver(str(tmp_path), keep_max=2)
    for step in (1, 2, 3):
        saver.save({"values": variable}, step)
        variable.assign(variable.value + 10)  # while it is being written
    saver.wait()
    found = [tf.train.load_variable(path, "values")[0] for path in list_checkpoints(str(tmp_path))]
    assert found == [10, 20]


def test_what_keeps_a_saver_in_the_background_from_writing_is_raised_at_the_next_call(tmp_path):
    folder = tmp_path / "folder"
    folder.write_text("a file where the folder should be")
    saver = BackgroundSaver(str(folder))
    saver.save({"values": keras.Variable([1.0])}, 1)
    with pytest.raises(tf.errors.OpError):
        saver.wait()
    saver.wait()  # said once
