"""From options to a training loop, and from record files to results."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from helpers import read_json_lines, refused
from tiny_config import tiny_config

from bert_tf.data.records import RecordWriter
from bert_tf.options import make_options
from bert_tf.tasks.batches import (
    RecordFiles,
    collect,
    run_model,
    without_needless_padding,
)
from bert_tf.tasks.classification import ClassificationTask
from bert_tf.tasks.run import Plan, start
from bert_tf.tasks.run_classifier import ClassifierOptions
from bert_tf.tasks.setup import resolve
from bert_tf.training.optimizers import AdamW, AdamWeightDecay, Lamb
from bert_tf.training.schedules import WarmupDecay

CONFIG = tiny_config(vocab_size=9, intermediate_size=12, max_position_embeddings=48)


def classifier_options(folder, **changes):
    given = {"train_file": "unused.tsv", "do_train": True, "learning_rate": 5e-3}
    given |= {"jit_compile": "false", "train_batch_size": 16}
    return make_options(ClassifierOptions, output_dir=str(folder), **given | changes)


def run_of(options, *steps, config=CONFIG):
    task = ClassificationTask(("no", "yes"), max_seq_length=48)
    return start(resolve(options, config=config), task, Plan(*steps or (3,)))


@pytest.fixture
def task_and_loop(tmp_path):
    run = run_of(classifier_options(tmp_path))
    return run.task, run.loop


def write_lengths(path, lengths):
    """One example of each length."""
    specs = ClassificationTask(("no", "yes"), max_seq_length=48).features
    with RecordWriter(path, specs) as writer:
        for length in lengths:
            mask = (np.arange(48) < length).astype("int32")
            ids = {"input_ids": 7 * mask, "input_mask": mask, "segment_ids": 0 * mask}
            writer.write({**ids, "label_ids": 1, "is_real_example": 1})
    return str(path)


def test_batches_of_many_lengths_are_not_compiled_one_by_one(task_and_loop, tmp_path):
    task, loop = task_and_loop
    file, traced = write_lengths(tmp_path / "eval", range(2, 48, 3)), []

    def outputs_of(*args):
        traced.append(args)
        return task.eval_outputs(*args)

    kept = collect(loop, task, RecordFiles([file]), outputs_of, batch_size=1)
    assert kept["logits"].shape == (16, 2)
    assert len(traced) == 1


def test_ids_and_labels_that_the_model_does_not_have_are_named(task_and_loop, tmp_path):
    task, loop = task_and_loop
    values = {spec.name: np.zeros(spec.shape, np.int32) for spec in task.features}
    for name, size in (("input_ids", 9), ("segment_ids", 2), ("label_ids", 2)):
        with RecordWriter(tmp_path / "eval", task.features) as writer:
            for number in range(1, 121):
                bad = {name: values[name] + size} if number == 101 else {}
                writer.write({**values, "input_mask": np.ones(48, np.int32), **bad})
        with refused("eval") as error:
            run_model(loop, task, RecordFiles([str(tmp_path / "eval")]), batch_size=40)
        assert f"`{name}`" in str(error.value)


def run_with(folder, *steps, **flags):
    options = classifier_options(folder, **{"train_batch_size": 2, **flags})
    return run_of(options, *(steps or (3, 1)))


def test_flags_choose_the_optimizer_and_its_settings(tmp_path):
    schedule = WarmupDecay(5e-3, 3, 1)
    lamb = {"optimizer": "lamb", "weight_decay_rate": 0.2, "layer_lr_decay": 0.5}
    factors = {"/embeddings/": 0.25, "/layer_0/": 0.5}
    cosine = WarmupDecay(5e-3, 3, 1, "cosine")
    for flags, expected in (
        ({}, AdamWeightDecay(schedule)),
        ({"optimizer": "adamw"}, AdamW(schedule)),
        (lamb | {"lr_schedule": "cosine"}, Lamb(cosine, 0.2, learning_rate_factors=factors)),
    ):
        loop = run_with(tmp_path, **flags).loop
        assert type(loop.optimizer) is type(expected)
        assert loop.optimizer.get_config() == expected.get_config()
    assert len(loop.model.trainable_variables) == len(loop.model.weights)


def test_what_is_frozen_stays_and_the_rest_learns_and_goes_on_after_a_resume(tmp_path, eagerly):
    file = write_lengths(tmp_path / "train", [3, 17, 41, 9])
    flags = dict(freeze="embeddings,0", layer_lr_decay=0.8)
    values = []
    for name, stops in (("straight", (5,)), ("resumed", (2, 5))):
        for stop in stops:
            run = run_with(tmp_path / name, 5, 1, stop, **flags)
            if stop == stops[0]:
                initial = {v.path: v.numpy() for v in run.loop.model.weights}
            run.train_on(RecordFiles([file]))
        assert run.loop.step == 5
        values.append({v.path: v.numpy() for v in run.loop.model.weights})
    straight, resumed = values
    for path, value in straight.items():
        np.testing.assert_array_equal(value, resumed[path], err_msg=path)
        frozen = path.startswith(("bert/embeddings/", "bert/encoder/layer_0/"))
        assert np.array_equal(value, initial[path]) == frozen, path


def test_batches_by_length_give_what_the_full_length_gives_in_the_order_of_the_file(
    task_and_loop, tmp_path
):
    task, loop = task_and_loop
    lengths = [3, 41, 17, 48, 9, 2, 33, 25, 40, 5, 11]
    file = write_lengths(tmp_path / "eval", lengths)
    found = {
        name: run_model(loop, task, RecordFiles([file], name), batch_size=2)
        for name in ("full", "trimmed", "bucketed")
    }
    for name in ("trimmed", "bucketed"):
        assert sorted(found[name]) == ["label_ids", "logits"]
        np.testing.assert_allclose(
            found[name]["logits"], found["full"]["logits"], rtol=0, atol=1e-6, err_msg=name
        )
    assert len({tuple(row) for row in found["full"]["logits"].tolist()}) == len(lengths)


@pytest.mark.night
def test_a_step_by_length_is_the_step_of_the_full_length(tmp_path, eagerly):
    """One batch that is the whole set: the same examples whatever the order."""
    losses = []
    config_without_dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    config = dataclasses.replace(CONFIG, **config_without_dropout)
    file = write_lengths(tmp_path / "train", [3, 41, 17, 9])
    for lengths in ("full", "trimmed", "bucketed", "packed"):
        folder = tmp_path / lengths
        options = classifier_options(
            folder,
            train_batch_size=4,
            iterations_per_loop=1,  # a line for each step
        )
        run = run_of(options, config=config)
        run.loop.model.classifier.dropout.rate = 0.0
        run.train_on(RecordFiles([file], lengths))
        losses.append([line["loss"] for line in read_json_lines(folder / "metrics.jsonl")])
    np.testing.assert_allclose(losses[1:], [losses[0]] * 3, rtol=1e-5)


def test_packed_rows_in_parts_make_the_step_of_the_whole_batch(tmp_path, eagerly):
    file = write_lengths(tmp_path / "train", [3, 17, 30, 9, 21, 5, 12, 8])
    config = dataclasses.replace(
        CONFIG, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, initializer_range=0.5
    )
    found = []
    for parts in (1, 4):
        flags = {"pack_sequences": True, "gradient_accumulation_steps": parts, "seed": 1}
        options = classifier_options(
            tmp_path / f"{parts}",
            **{"train_batch_size": 8, **flags},
        )
        run = run_of(options, 1, config=config)
        loop = run.loop
        loop.model.classifier.dropout.rate = 0.0
        run.train_on(RecordFiles([file]))
        moments = [loop.optimizer.slots(v)["adam_m"] for v in loop.model.trainable_variables]
        found.append(np.concatenate([np.asarray(moment).ravel() for moment in moments]))
    for moments in found[1:]:
        np.testing.assert_allclose(moments, found[0], rtol=0, atol=1e-6 * np.abs(found[0]).max())


class Tpu(tf.distribute.TPUStrategy):
    """There is no TPU here."""

    num_replicas_in_sync = 2

    def __init__(self):
        pass


def test_batches_for_a_tpu_have_one_shape(tmp_path):
    data, task = tf.data.Dataset.range(3), ClassificationTask(("no", "yes"), max_seq_length=48)
    assert without_needless_padding(data, task, "full") is data
    file = write_lengths(tmp_path / "train", [3, 41])
    plain = classifier_options(tmp_path, train_batch_size=2)
    assert RecordFiles([file], "bucketed").check(plain.training, Tpu()) == "full"
    packed = classifier_options(tmp_path, train_batch_size=2, pack_sequences=True)
    assert RecordFiles([file], "bucketed").check(packed.training, Tpu()) == "full"
    odd = classifier_options(tmp_path, train_batch_size=6, gradient_accumulation_steps=2)
    with refused("train_batch_size"):
        RecordFiles([]).check(odd.training, Tpu())
