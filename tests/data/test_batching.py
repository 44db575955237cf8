"""Batches by length, which depend only on seed and number, and packed batches, which a model cannot tell
from padded ones."""

import itertools
import random

import keras
import numpy as np
import pytest
import tensorflow as tf
from tiny_config import tiny_config

from bert_tf.data import batching
from bert_tf.data.features import FeatureSpec
from bert_tf.data.records import RecordWriter, read_records
from bert_tf.modeling.models import BertForPreTraining

S = 24
SPECS = (FeatureSpec("input_mask", (S,)), FeatureSpec("unique_ids", role="id"))


def write(path, lengths, first=0):
    with RecordWriter(path, SPECS) as writer:
        for number, length in enumerate(lengths, first):
            mask = (np.arange(S) < length).astype(np.int32)
            writer.write({"input_mask": mask, "unique_ids": number})
    return str(path)


@pytest.fixture
def files(tmp_path):
    """47 records in three files."""
    rng = random.Random(3)
    lengths = [rng.randint(1, S) for _ in range(47)]
    bounds = [(0, 20), (20, 21), (21, 47)]
    return [write(tmp_path / f"{a}.tf_record", lengths[a:b], a) for a, b in bounds]


def dataset(files, **changes):
    return read_records(files, SPECS, 4, **{"seed": 0, "by_length": True} | changes)


def stream(files, num_batches=-1, **changes):
    """The `unique_ids` of the first batches."""
    batches = dataset(files, **changes).take(num_batches)
    return [batch["unique_ids"].numpy().tolist() for batch in batches]


def test_sort_pool_sorts_by_length_in_steps():
    lengths = tf.constant([17, 3, 9, 1, 8, 16])
    order = batching.sort_pool(lengths, batch_size=2, step=8, seed=None)
    assert order.numpy().tolist() == [1, 3, 4, 2, 5, 0]  # 3 1 8 | 9 16 | 17


def test_sort_pool_shuffles_whole_batches():
    lengths = tf.range(8, 8 * 24, 8)  # 23 lengths, each a step of its own
    seen = set()
    for seed in range(20):
        order = batching.sort_pool(lengths, 5, 8, tf.constant([seed, 0])).numpy().tolist()
        assert sorted(order) == list(range(23))
        whole = [tuple(order[i : i + 5]) for i in range(0, 20, 5)]
        assert sorted(whole) == [tuple(range(i, i + 5)) for i in range(0, 20, 5)]
        assert order[20:] == [20, 21, 22]
        seen.add(tuple(whole))
    assert len(seen) > 5


def test_measure_lengths_count_to_the_last_token_of_any_choice():
    masks = tf.constant([[[1, 1, 0, 0], [1, 0, 1, 0]], [[1, 0, 0, 0], [0, 0, 0, 0]]])
    assert batching.measure_lengths(masks).numpy().tolist() == [3, 1]
    assert batching.measure_lengths(tf.zeros([2, 4], tf.int32)).numpy().tolist() == [0, 0]


def test_bucket_by_length_keeps_the_records_of_each_pool(files):
    plain, by_length = stream(files, 33, by_length=False), stream(files, 33)
    assert plain != by_length
    pool = batching.choose_pool_size(4, 47)  # 11
    for first in range(0, 33, pool):
        found, expected = (
            sorted(itertools.chain.from_iterable(each[first : first + pool]))
            for each in (by_length, plain)
        )
        assert found == expected


@pytest.mark.parametrize("skip_batches", [1, 11, 23])
def test_bucket_by_length_resumes_within_and_between_pools(files, skip_batches):
    whole = stream(files, 40, seed=3)
    assert (
        stream(files, 40 - skip_batches, seed=3, skip_batches=skip_batches)
        == (whole[skip_batches:])
    )


def test_bucket_by_length_numbers_each_record_of_an_evaluation_once(files):
    batches = dataset(files, seed=None)
    assert int(batches.cardinality()) == 12
    numbers = [batch["unique_ids"].numpy().tolist() for batch in batches]
    assert sorted(itertools.chain.from_iterable(numbers)) == list(range(47))
    for batch in batches:
        np.testing.assert_array_equal(batch[batching.RECORD_NUMBER], batch["unique_ids"])


def test_bucket_by_length_repeats_fewer_records_than_a_batch(tmp_path):
    batches = stream([write(tmp_path / "few", [5, 9, 2])], 6)
    assert all(len(ids) == 4 for ids in batches)
    assert sorted(itertools.chain.from_iterable(batches)) == sorted([0, 1, 2] * 8)


# --------------------------------------------------------------------------------- packed batches

LENGTHS = [3, 12, 7, 1, 5, 9, 2, 11]


def examples(lengths):
    rng = np.random.default_rng(0)
    mask = (np.arange(12) < np.array(lengths)[:, None]).astype("int32")
    return {
        "input_ids": rng.integers(1, 40, size=mask.shape).astype("int32") * mask,
        "input_mask": mask,
        "segment_ids": rng.integers(2, size=mask.shape).astype("int32") * mask,
    }


def packed(features, parts=1):
    tensors = {name: tf.constant(value) for name, value in features.items()}
    return {n: v.numpy() for n, v in batching.pack_batch(tensors, 16, parts).items()}


def test_pack_batch_puts_each_token_at_its_packed_position():
    features = examples(LENGTHS)
    for parts in (1, 2, 4):
        rows = packed(features, parts)
        num_rows, size = len(rows["input_ids"]) // parts, len(LENGTHS) // parts
        for example, length in enumerate(LENGTHS):
            part = slice(example // size * num_rows, (example // size + 1) * num_rows)
            places = rows["packed_positions"][example]
            assert (places[length:] == places[0]).all()
            names = ("input_ids", "segment_ids", "position_ids", "sequence_ids")
            found = {name: rows[name][part].ravel()[places[:length]] for name in names}
            for name in names[:2]:
                np.testing.assert_array_equal(found[name], features[name][example, :length])
            np.testing.assert_array_equal(found["position_ids"], np.arange(length))
            assert len(set(found["sequence_ids"])) == 1


def test_first_fit_leaves_out_nothing_and_fills_rows():
    rng = np.random.default_rng(0)
    for _ in range(50):
        lengths = rng.integers(1, 33, size=rng.integers(1, 40)).tolist()
        rows = batching.first_fit(lengths, 32)
        assert sorted(example for row in rows for example in row) == list(range(len(lengths)))
        assert all(sum(lengths[example] for example in row) <= 32 for row in rows)
        # First fit leaves no two rows that are half empty.
        assert sum(sum(lengths[example] for example in row) <= 16 for row in rows) <= 1


@pytest.mark.parametrize("direction", ["bidirectional", "left_to_right"])
def test_packed_batch_has_the_gradients_of_a_padded_one(direction):
    keras.utils.set_random_seed(0)
    sizes = {"vocab_size": 40, "hidden_size": 16, "intermediate_size": 24, "type_vocab_size": 16}
    sizes |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    sizes |= {"max_position_embeddings": 16, "initializer_range": 0.2}
    config = tiny_config(**sizes, attention_direction=direction)
    model = BertForPreTraining(config)
    features = examples([n for n in LENGTHS if n > 2])
    features["masked_lm_positions"] = np.tile(np.array([[0, 2]], "int32"), (6, 1))
    names = (*features, *batching.PACKED_FEATURES)

    def run(inputs):
        with tf.GradientTape() as tape:
            outputs = model({name: inputs[name] for name in names if name in inputs})
            loss = sum(tf.reduce_mean(tf.square(value)) for value in outputs.values())
        gradients = tape.gradient(loss, [v.value for v in model.trainable_variables])
        return outputs, [tf.convert_to_tensor(gradient) for gradient in gradients]

    expected, expected_gradients = run(features)
    found, gradients = run(packed(features))
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-5, err_msg=name)
    for variable, gradient, wanted in zip(
        model.trainable_variables, gradients, expected_gradients, strict=True
    ):
        np.testing.assert_allclose(gradient, wanted, rtol=1e-3, atol=1e-5, err_msg=variable.path)
