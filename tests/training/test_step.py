"""What a step computes when it is compiled, and in float16; and if it cannot be taken."""

import keras
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
    train,
)

from bert_tf.training.checkpoints import save_checkpoint
from bert_tf.training.step import (
    Compilation,
    LossScale,
    number_of_tokens,
)


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
        train(trainer, data, 2, folder, steps_per_call=1)
        results.append((values_of(trainer), last_line(folder)))
    (expected, expected_line), (found, found_line) = results
    assert found_line["loss"] == pytest.approx(expected_line["loss"], rel=1e-4)
    assert found_line["masked_lm_accuracy"] == expected_line["masked_lm_accuracy"]
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-3, atol=5e-5, err_msg=name)


@pytest.mark.night
@pytest.mark.parametrize("jit_compile", ["false", "auto"])
@pytest.mark.parametrize("num_parts", [1, 2])
def test_recomputed_layers_take_the_same_steps_dropout_included(jit_compile, num_parts):
    results = []
    for recompute_grads in (False, True):
        trainer = pretrainer(
            dropout=0.2,
            sizes={"num_hidden_layers": 2},
            jit_compile=jit_compile,
            gradient_accumulation_steps=num_parts,
            recompute_grads=recompute_grads,
        )
        values = trainer.take_steps(iter(endless(pretraining_batches())(0)), 3).values
        results.append(values)
    assert results[1] == pytest.approx(results[0], rel=1e-6)


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
    scale = trainer.train_step.loss_scale
    scale.variables["loss_scale/value"].assign(2.0**40)  # no float16 gradient survives this
    before = values_of(trainer)
    train(trainer, endless(pretraining_batches()), 1, tmp_path)
    for name, value in values_of(trainer).items():
        np.testing.assert_array_equal(value, before[name], err_msg=name)
    for variable in trainer.model.trainable_variables:
        assert not np.any(trainer.optimizer.slots(variable)["adam_v"].numpy())
    assert trainer.step == 1
    assert float(scale.value) == 2.0**39


def test_gradients_that_overflow_at_the_lowest_loss_scale_end_the_training(tmp_path):
    keras.config.set_dtype_policy("mixed_float16")
    trainer = linear_trainer(skip_nonfinite=True, error=lambda y, _: tf.sqrt(0.0 * y))
    keras.config.set_dtype_policy("float32")
    scale = trainer.train_step.loss_scale.variables["loss_scale/value"]
    scale.assign(2.0)
    with pytest.raises(FloatingPointError, match="step 2"):
        train(trainer, endless(linear_batches(2)), 9, tmp_path)
    assert float(scale.numpy()) == 1.0


def test_the_loss_scale_is_resumed(tmp_path):
    trainer, again = float16_pretrainer(), float16_pretrainer()
    for name, value in zip(LossScale.NAMES, (512.0, 2), strict=True):
        trainer.variables[name].assign(value)
    save_checkpoint(str(tmp_path), trainer.variables, trainer.step)
    assert again.resume(str(tmp_path)) == 0
    assert [float(again.variables[name]) for name in LossScale.NAMES] == [512.0, 2.0]


def test_without_a_mask_all_tokens_are_counted():
    ids, mask = tf.constant([[7, 8, 0], [9, 0, 0]]), tf.constant([[1, 1, 0], [1, 0, 0]])
    assert number_of_tokens({"input_ids": ids, "input_mask": mask}) == 3
    assert number_of_tokens({"input_ids": ids}) == 6
    assert number_of_tokens({"input_ids": ids, "anchor_ids": ids, "anchor_mask": mask}) == 9
    assert number_of_tokens({"x": tf.zeros((2, 2))}) == 0


def test_a_gpu_that_is_newer_than_xla_trains_without_it_unless_that_is_asked_for(pretend):
    pretend([(12, 0)], cuda="12.5.1")
    gpu = tf.distribute.OneDeviceStrategy("GPU:0")  # nothing is computed on it
    assert Compilation.choose("auto", gpu) == Compilation()
    assert Compilation.choose("true", gpu).whole


@pytest.mark.parametrize("kind", ["false", pytest.param("auto", marks=pytest.mark.night)])
def test_without_compilation_not_even_dropout_is_compiled(kind):
    trainer = pretrainer(dropout=0.2, jit_compile=kind)
    features = next(iter(endless(pretraining_batches())(0)))
    take = tf.autograph.experimental.do_not_convert(trainer.train_step.take)
    step = tf.function(lambda: trainer.strategy.run(take, args=(features,)), autograph=False)
    functions = step.get_concrete_function().graph.as_graph_def().library.function
    compiled = [f.signature.name for f in functions if f.attr["_XlaMustCompile"].b]
    assert bool(compiled) is (kind == "auto")
