"""Losses over the whole batch: the same gradient however the batch is split."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from helpers import read_json_lines
from tiny_training import ONE, TWO, S, V, bert_config, endless, strategy_on, train

from bert_tf.embeddings.task import EmbeddingTask
from bert_tf.modeling.dropout import dropout_seed, fold_in
from bert_tf.tasks.distillation import distillation_losses
from bert_tf.training.loop import TrainLoop
from bert_tf.training.optimizers import AdamWeightDecay

N = 11  # examples: 6 and 5 of two devices
TEACHER_WIDTH = 7


def batches(size=N):
    """Three batches of an anchor and two texts an example."""
    rng = np.random.default_rng(7)
    shape = (3, size, 3, S)
    mask = np.arange(S) < rng.integers(3, S + 1, size=(*shape[:-1], 1))
    ids = rng.integers(1, V, size=shape) * mask
    found = {
        "anchor_ids": ids[:, :, 0, :5],
        "anchor_mask": mask[:, :, 0, :5],
        "input_ids": ids[:, :, 1:],
        "input_mask": mask[:, :, 1:],
        "text_numbers": rng.integers(1, 20, size=shape[:-1]),
    }
    found = {name: value.astype("int32") for name, value in found.items()}
    found["teacher_embedding"] = rng.normal(size=(*shape[:-1], TEACHER_WIDTH)).astype("float32")
    return {**found, "label_ids": rng.integers(0, 3, size=(3, size)).astype("float32")}


def trainer_of(devices, parts, taught=False, dropout=0.0):
    task = EmbeddingTask(S, 3, projection_size=6, loss="multiple_negatives_ranking")
    keras.utils.set_random_seed(1)
    strategy = strategy_on(devices)
    with strategy.scope():
        model = task.build_model(bert_config(dropout))
        optimizer = AdamWeightDecay(1e-3)
    trainer = TrainLoop(
        model,
        distillation_losses(task, 2.0) if taught else task.losses,
        strategy=strategy,
        input_names=task.input_names,
        optimizer=optimizer,
        gradient_accumulation_steps=parts,
        jit_compile="false",
    )
    return task, trainer


def losses_and_norms(folder):
    lines = read_json_lines(folder / "metrics.jsonl")
    return [(line["loss"], line["gradient_norm"]) for line in lines]


def trained(folder, devices=ONE, parts=1, **settings):
    _, trainer = trainer_of(devices, parts, **settings)
    train(trainer, endless(batches()), 2, folder, steps_per_call=1)
    values = {variable.path: variable.numpy() for variable in trainer.model.weights}
    return losses_and_norms(folder), values


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    tf.config.run_functions_eagerly(True)
    found = trained(tmp_path_factory.mktemp("whole"))
    tf.config.run_functions_eagerly(False)
    return found


@pytest.mark.night
def test_parts_do_not_change_the_gradient(tmp_path, whole):
    expected, expected_values = whole
    found, values = trained(tmp_path, parts=3)  # of 3, 4 and 4 examples
    np.testing.assert_allclose(found, expected, rtol=2e-6)
    for name, value in expected_values.items():
        np.testing.assert_allclose(values[name], value, atol=2e-5, err_msg=name)


@pytest.mark.night
def test_parts_and_devices_do_not_change_the_gradient_of_a_student(tmp_path, whole):
    expected, expected_values = trained(tmp_path / "a", taught=True)
    assert expected[0] != whole[0][0]
    found, values = trained(tmp_path / "b", TWO, parts=2, taught=True)
    np.testing.assert_allclose(found, expected, rtol=2e-6)
    for name, value in expected_values.items():
        np.testing.assert_allclose(values[name], value, atol=2e-5, err_msg=name)


@pytest.mark.usefixtures("eagerly")
def test_the_gradient_is_that_of_the_loss_of_all_examples(tmp_path):
    """Against one tape over everything; both passes of a part draw the same masks of dropout."""
    size, parts = 12, 4
    task, trainer = trainer_of(ONE, parts, dropout=0.3)
    (loss,), variables = task.losses, trainer.model.trainable_variables
    features = {name: tf.constant(value[0]) for name, value in batches(size).items()}
    found_of_parts = []
    with tf.GradientTape() as tape:
        for part in range(parts):
            rows = slice(part * size // parts, (part + 1) * size // parts)
            examples = {name: features[name][rows] for name in task.input_names}
            seed = fold_in(fold_in(fold_in(0, 0), 0), part)  # of the run, step, device and part
            with dropout_seed(seed, compiled=False):
                found_of_parts.append(trainer.model(examples, training=True))
        outputs = {
            name: tf.concat([each[name] for each in found_of_parts], axis=0)
            for name in loss.whole_batch
        }
        total = loss.total(outputs, features) / loss.weight(features)
    gradients = [
        None if gradient is None else tf.convert_to_tensor(gradient)
        for gradient in tape.gradient(total, [v.value for v in variables])
    ]
    norm = float(tf.linalg.global_norm(gradients))

    train(trainer, endless(batches(size)), 1, tmp_path)
    (found,) = losses_and_norms(tmp_path)
    assert found == pytest.approx((float(total), norm), rel=1e-5)
    for variable, gradient in zip(variables, gradients, strict=True):
        moment = trainer.optimizer.slots(variable)["adam_m"]  # 0.1 times the clipped gradient
        expected = 0.0 if gradient is None else 0.1 * gradient / max(norm, 1)
        np.testing.assert_allclose(moment, expected, rtol=0, atol=1e-7, err_msg=variable.path)
