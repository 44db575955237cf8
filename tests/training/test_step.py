"""What a step computes when it is compiled, and in float16."""

import numpy as np
import pytest
import tensorflow as tf
from helpers import read_json_lines
from tiny_training import (
    endless,
    float16_pretrainer,
    linear_batches,
    linear_trainer,
    pretrainer,
    pretraining_batches,
)

from bert_tf.training.losses import Loss
from bert_tf.training.step import LossScale, TrainStep, global_norm, number_of_tokens


def values_of(trainer):
    return {variable.path: variable.numpy().copy() for variable in trainer.model.weights}


def last_line(folder):
    return read_json_lines(folder / "metrics.jsonl")[-1]


@pytest.mark.night
@pytest.mark.parametrize("jit_compile", ["auto", pytest.param("true", marks=pytest.mark.weekly)])
def test_a_compiled_step_is_that_of_single_operations_dropout_included(tmp_path, jit_compile):
    results = []
    for kind in ("false", jit_compile):
        trainer = pretrainer(dropout=0.2, jit_compile=kind)
        folder = tmp_path / kind
        data = endless(pretraining_batches())
        trainer.train(data, 2, output_dir=str(folder), max_steps_per_loop=1)
        results.append((values_of(trainer), last_line(folder)))
    (expected, expected_line), (found, found_line) = results
    assert found_line["loss"] == pytest.approx(expected_line["loss"], rel=1e-4)
    assert found_line["masked_lm_accuracy"] == expected_line["masked_lm_accuracy"]
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-3, atol=5e-5, err_msg=name)


def test_a_loss_of_the_whole_batch_must_be_the_only_one():
    losses = [Loss(name, None, None, whole_batch=("embedding",)) for name in ("one", "two")]
    settings = {"input_names": (), "gradient_accumulation_steps": 1}
    with pytest.raises(ValueError, match="whole_batch"):
        TrainStep(None, losses, None, None, **settings, seed=1)


def test_the_global_norm_is_that_of_all_values():
    parts = [tf.constant([3.0, 0.0]), tf.constant([[4.0], [12.0]])]
    assert float(global_norm(parts)) == pytest.approx(13.0)


# ---- float16 ------------------------------------------------------------------------------------


def test_the_loss_scale_is_halved_by_an_overflow_and_doubled_after_two_thousand_steps_without():
    scale = LossScale()
    first = float(scale.value)
    scale.update(tf.constant(False))
    assert float(scale.value) == first / 2
    scale.variables["loss_scale/good_steps"].assign(1998)
    scale.update(tf.constant(True))
    assert float(scale.value) == first / 2
    scale.update(tf.constant(True))
    assert float(scale.value) == first


@pytest.mark.usefixtures("eagerly")
def test_a_step_whose_gradients_overflow_changes_no_weight_but_counts(tmp_path):
    trainer = float16_pretrainer()
    scale = trainer._step.loss_scale
    scale.variables["loss_scale/value"].assign(2.0**40)  # no float16 gradient survives this
    before = values_of(trainer)
    trainer.train(endless(pretraining_batches()), 1, output_dir=str(tmp_path))
    for name, value in values_of(trainer).items():
        np.testing.assert_array_equal(value, before[name], err_msg=name)
    for variable in trainer.model.trainable_variables:
        assert not np.any(trainer.optimizer.slots(variable)["adam_v"].numpy())
    assert trainer.step == 1
    assert float(scale.value) == 2.0**39


def test_gradients_that_overflow_at_the_lowest_loss_scale_end_the_training(tmp_path):
    trainer = linear_trainer(skip_nonfinite=True)
    trainer._step.loss_scale = LossScale()
    scale = trainer._step.loss_scale.variables["loss_scale/value"]
    scale.assign(2.0)
    backward = trainer._step._backward

    def without_end(*args):
        gradients, used = backward(*args)
        return [gradient + np.inf for gradient in gradients], used

    trainer._step._backward = without_end
    with pytest.raises(FloatingPointError, match="step 2"):
        trainer.train(endless(linear_batches(2)), 9, output_dir=str(tmp_path))
    assert float(scale.numpy()) == 1.0


def test_the_loss_scale_is_resumed(tmp_path):
    trainer = float16_pretrainer()
    trainer._step.loss_scale.variables["loss_scale/value"].assign(512.0)
    trainer._step.loss_scale.variables["loss_scale/good_steps"].assign(2)
    trainer.save(str(tmp_path))
    again = float16_pretrainer()
    assert again.resume(str(tmp_path)) == 0
    assert float(again._step.loss_scale.value) == 512.0
    assert int(again._step.loss_scale.variables["loss_scale/good_steps"].numpy()) == 2


def test_without_a_mask_all_tokens_are_counted():
    ids, mask = tf.constant([[7, 8, 0], [9, 0, 0]]), tf.constant([[1, 1, 0], [1, 0, 0]])
    assert number_of_tokens({"input_ids": ids, "input_mask": mask}) == 3
    assert number_of_tokens({"input_ids": ids}) == 6
    assert number_of_tokens({"input_ids": ids, "anchor_ids": ids, "anchor_mask": mask}) == 9
    assert number_of_tokens({"x": tf.zeros((2, 2))}) == 0
