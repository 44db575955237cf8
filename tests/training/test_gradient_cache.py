"""Losses over the whole batch: the same gradient however the batch is split."""

import dataclasses
import json

import keras
import numpy as np
import pytest
import tensorflow as tf
from tiny_runs import assert_bit_equal, checkpoint_arrays
from tiny_training import ONE, TWO, B, S, V, bert_config, endless, strategy_on

from bert_tf.modeling.dropout import dropout_seed, fold_in
from bert_tf.tasks.distillation import distillation_losses
from bert_tf.tasks.embeddings import EmbeddingTask
from bert_tf.training.batch_trainer import BatchTrainer
from bert_tf.training.optimization import AdamWeightDecay

N = 2 * B  # examples
TEACHER_WIDTH = 7


def batches(num_texts, size=N):
    rng = np.random.default_rng(7)
    shape = (3, size, num_texts, S)
    mask = np.arange(S) < rng.integers(3, S + 1, size=(*shape[:-1], 1))
    ids = rng.integers(1, V, size=shape) * mask
    found = {"input_ids": ids, "input_mask": mask}
    if num_texts == 1:
        found = {name: value[:, :, 0] for name, value in found.items()}
        found["segment_ids"] = np.zeros_like(found["input_ids"])
    else:
        found = {
            "anchor_ids": ids[:, :, 0, :5],
            "anchor_mask": mask[:, :, 0, :5],
            "input_ids": ids[:, :, 1:],
            "input_mask": mask[:, :, 1:],
            "text_numbers": rng.integers(1, 20, size=shape[:-1]),
        }
    found = {name: value.astype("int32") for name, value in found.items()}
    vectors = rng.normal(size=(*shape[:-1], TEACHER_WIDTH)).astype("float32")
    found["teacher_embedding"] = vectors[:, :, 0] if num_texts == 1 else vectors
    return {**found, "label_ids": rng.integers(0, 3, size=(3, size)).astype("float32")}


def trainer_of(
    devices=ONE,
    parts=1,
    num_texts=3,
    jit_compile="false",
    taught=False,
    sizes=None,
    init_seed=1,
    **settings,
):
    """`sizes` replaces fields of the configuration."""
    task = EmbeddingTask(S, num_texts, projection_size=6, **settings)
    keras.utils.set_random_seed(init_seed)
    losses = task.losses
    if taught:
        losses = distillation_losses(task, 2.0)
    strategy = strategy_on(devices)
    with strategy.scope():
        model = task.build_model(dataclasses.replace(bert_config(), **(sizes or {})))
        optimizer = AdamWeightDecay(1e-3)
    return BatchTrainer(
        model,
        losses,
        strategy=strategy,
        input_names=task.input_names,
        optimizer=optimizer,
        gradient_accumulation_steps=parts,
        jit_compile=jit_compile,
    )


def trained(folder, devices=ONE, parts=1, num_texts=3, size=N, **settings):
    trainer = trainer_of(devices, parts, num_texts, **settings)
    trainer.train(
        endless(batches(num_texts, size)), 3, output_dir=str(folder), max_steps_per_loop=1
    )
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    values = {variable.path: variable.numpy() for variable in trainer.model.weights}
    return [(line["loss"], line["gradient_norm"]) for line in lines], values


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    return trained(tmp_path_factory.mktemp("whole"))


@pytest.mark.weekly_cases("1-3-false", "1-1-auto", "1-5-auto", "1-2-true")
@pytest.mark.parametrize(
    ("devices", "parts", "jit_compile"),
    [
        (ONE, 3, "false"),  # of 4, 3 and 3 examples
        (TWO, 1, "false"),
        pytest.param(TWO, 2, "false", marks=(pytest.mark.night, pytest.mark.weekly)),
        pytest.param(ONE, 1, "auto", marks=pytest.mark.night),
        pytest.param(ONE, 5, "auto", marks=pytest.mark.night),
        pytest.param(ONE, 2, "true", marks=pytest.mark.night),
    ],
)
def test_parts_and_devices_do_not_change_the_gradient(tmp_path, whole, devices, parts, jit_compile):
    expected, expected_values = whole
    found, values = trained(tmp_path, devices, parts, jit_compile=jit_compile)
    np.testing.assert_allclose(found, expected, rtol=2e-6)
    for name, value in expected_values.items():
        np.testing.assert_allclose(values[name], value, atol=2e-5, err_msg=name)


@pytest.mark.weekly
@pytest.mark.night
def test_devices_with_different_numbers_of_examples_do_not_change_it_either(tmp_path):
    expected, _ = trained(tmp_path / "a", size=N - 1)
    found, _ = trained(tmp_path / "b", TWO, size=N - 1)
    np.testing.assert_allclose(found, expected, rtol=2e-6)


@pytest.mark.parametrize(
    ("dropout", "whole_parts"),
    [
        (0.0, 1),
        pytest.param(0.3, 4, marks=pytest.mark.night),  # both passes of a part draw the same masks
    ],
)
def test_the_gradient_is_that_of_the_loss_of_all_examples(dropout, whole_parts):
    """Against one tape over everything, without the trainer."""
    task = EmbeddingTask(S, 3, loss="multiple_negatives_ranking")
    keras.utils.set_random_seed(1)
    model = task.build_model(bert_config(dropout))
    features = {name: tf.constant(value[0]) for name, value in batches(3).items()}
    (loss,) = task.losses
    inputs = {name: features[name] for name in task.input_names}
    seed, found_of_parts = tf.constant(7, tf.uint32), []
    with tf.GradientTape() as tape:
        for part in range(whole_parts):
            rows = slice(part * N // whole_parts, (part + 1) * N // whole_parts)
            with dropout_seed(fold_in(seed, part), compiled=False):
                examples = {name: value[rows] for name, value in inputs.items()}
                found_of_parts.append(model(examples, training=True))
        outputs = {
            name: tf.concat([each[name] for each in found_of_parts], axis=0)
            for name in loss.whole_batch
        }
        total = loss.total(outputs, features) / loss.weight(features)
    values = [v.value for v in model.trainable_variables]
    expected = [g for g in tape.gradient(total, values) if g is not None]
    keras.utils.set_random_seed(1)
    strategy = strategy_on(ONE)
    with strategy.scope():
        other = task.build_model(bert_config(dropout))
        trainer = BatchTrainer(
            other,
            task.losses,
            strategy=strategy,
            input_names=task.input_names,
            optimizer=AdamWeightDecay(1e-3),
            gradient_accumulation_steps=4,
            jit_compile="false",
        )
    step = trainer._step
    gradients, terms, _ = tf.function(
        lambda: step._accumulate(features, {"loss": loss.weight(features)}, seed), autograph=False
    )()
    assert float(terms["loss"]) == pytest.approx(float(total), rel=1e-6)
    found, wanted = (
        np.concatenate([np.ravel(tf.convert_to_tensor(each)) for each in of_variables])
        for of_variables in (gradients, expected)
    )
    assert np.linalg.norm(found - wanted) < 1e-6 * np.linalg.norm(wanted)


@pytest.mark.night
def test_a_resumed_run_in_parts_ends_with_the_bits_of_an_uninterrupted_one(tmp_path):
    dropout = dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), 0.3)
    settings = {"parts": 4, "num_texts": 1, "loss": "batch_all_triplet", "sizes": dropout}
    data = endless(batches(num_texts=1))
    whole = trainer_of(**settings)
    whole.train(data, 5, output_dir=str(tmp_path), save_checkpoints_steps=3)
    expected = checkpoint_arrays(tmp_path / "model.ckpt-5")

    for file in tmp_path.glob("model.ckpt-5.*"):  # as if killed after step 3
        file.unlink()
    goes_on = trainer_of(**settings, init_seed=99)
    assert goes_on.resume(str(tmp_path)) == 3
    goes_on.train(data, 5, output_dir=str(tmp_path), max_steps_per_loop=1)
    assert_bit_equal(checkpoint_arrays(tmp_path / "model.ckpt-5"), expected)


@pytest.mark.night
def test_a_teacher_is_compared_over_the_whole_batch_too(tmp_path, whole):
    expected, _ = trained(tmp_path / "a", taught=True)
    assert expected[0] != whole[0][0]
    found, _ = trained(tmp_path / "b", TWO, parts=2, taught=True)
    np.testing.assert_allclose(found, expected, rtol=2e-6)
