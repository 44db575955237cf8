"""Batches by length: every record once, a pure function of seed and number, resumed by arithmetic."""

import itertools
import random

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.data import batching
from bert_tf.data.features import FeatureSpec
from bert_tf.data.records import RecordWriter, read_records

S = 24
SPECS = (FeatureSpec("input_mask", (S,)), FeatureSpec("unique_ids", role="id"))


def write(path, lengths, first=0):
    with RecordWriter(path, SPECS) as writer:
        for number, length in enumerate(lengths, first):
            mask = (np.arange(S) < length).astype(np.int32)
            writer.write({"input_mask": mask, "unique_ids": number})
    return str(path)


@pytest.fixture
def lengths():
    rng = random.Random(3)
    return [rng.randint(1, S) for _ in range(47)]


@pytest.fixture
def files(tmp_path, lengths):
    """47 records in three files."""
    bounds = [(0, 20), (20, 21), (21, 47)]
    return [write(tmp_path / f"{a}.tf_record", lengths[a:b], a) for a, b in bounds]


def stream(files, num_batches=None, **arguments):
    """(`unique_ids`, lengths) of the first batches."""
    arguments = {
        "batch_size": 4,
        "shuffle": True,
        "repeat": True,
        "drop_remainder": True,
        "by_length": True,
    } | arguments
    dataset = read_records(files, SPECS, **arguments)
    dataset = dataset if num_batches is None else dataset.take(num_batches)
    return [
        (batch["unique_ids"].numpy().tolist(), batch["input_mask"].numpy().sum(axis=1).tolist())
        for batch in dataset
    ]


def test_a_pool_is_sorted_by_length_in_steps_and_keeps_the_order_within_a_step():
    lengths = tf.constant([17, 3, 9, 1, 8, 16])
    order = batching.order_of_pool(lengths, batch_size=2, step=8, seed=None)
    assert order.numpy().tolist() == [1, 3, 4, 2, 5, 0]  # 3 1 8 | 9 16 | 17


def test_whole_batches_are_shuffled_and_the_rest_stays_last():
    lengths = tf.range(8, 8 * 24, 8)  # 23 lengths, each a step of its own
    seen = set()
    for seed in range(20):
        order = batching.order_of_pool(lengths, 5, 8, tf.constant([seed, 0])).numpy().tolist()
        assert sorted(order) == list(range(23))
        whole = [tuple(order[i : i + 5]) for i in range(0, 20, 5)]
        assert sorted(whole) == [tuple(range(i, i + 5)) for i in range(0, 20, 5)]
        assert order[20:] == [20, 21, 22]
        seen.add(tuple(whole))
    assert len(seen) > 5


def test_the_length_is_that_of_the_longest_choice_and_counts_to_the_last_real_token():
    masks = tf.constant([[[1, 1, 0, 0], [1, 0, 1, 0]], [[1, 0, 0, 0], [0, 0, 0, 0]]])
    assert batching.used_lengths(masks).numpy().tolist() == [3, 1]
    assert batching.used_lengths(tf.zeros([2, 4], tf.int32)).numpy().tolist() == [0, 0]


def test_a_pool_is_an_epoch_at_most_and_always_a_batch():
    assert batching.pool_batches(32, num_records=10**6) == 50
    assert batching.pool_batches(32, num_records=100) == 3
    assert batching.pool_batches(32, num_records=7) == 1
    assert batching.pool_batches(4096, num_records=10**6) == 4
    assert batching.pool_batches(10**6, num_records=10**7) == 1
    for size in (1, 32, 4096, 10**6):
        most = batching.most_pool_records(size)
        assert batching.pool_batches(size, most) == batching.pool_batches(size, most * 100)


def test_every_pool_holds_its_part_of_the_stream(files):
    plain = stream(files, 33, by_length=False)
    sorted_ = stream(files, 33)
    pool = batching.pool_batches(4, 47)  # 11
    for first in range(0, 33, pool):
        in_pool = [
            sorted(itertools.chain.from_iterable(ids for ids, _ in s[first : first + pool]))
            for s in (plain, sorted_)
        ]
        assert in_pool[0] == in_pool[1]
    assert plain != sorted_


@pytest.mark.parametrize("skip_batches", [1, 10, 11, 12, 23, 40])
def test_a_resumed_stream_is_the_tail_of_the_uninterrupted_one(files, skip_batches):
    whole = stream(files, 50, seed=3)
    assert (
        stream(files, 50 - skip_batches, seed=3, skip_batches=skip_batches)
        == (whole[skip_batches:])
    )


@pytest.mark.parametrize("skip_batches", [0, 2, 11, 12, 13])
@pytest.mark.parametrize("drop_remainder", [False, True])
def test_one_pass_has_every_record_once_and_can_be_joined_late(files, skip_batches, drop_remainder):
    arguments = {"shuffle": False, "repeat": False, "drop_remainder": drop_remainder}
    whole = stream(files, **arguments)
    assert [len(ids) for ids, _ in whole] == [4] * 11 + ([] if drop_remainder else [3])
    if not drop_remainder:
        assert sorted(i for ids, _ in whole for i in ids) == list(range(47))
    assert stream(files, skip_batches=skip_batches, **arguments) == whole[skip_batches:]


def test_without_shuffling_each_example_says_where_it_stands(files):
    dataset = read_records(
        files,
        SPECS,
        batch_size=4,
        shuffle=False,
        repeat=False,
        drop_remainder=False,
        by_length=True,
    )
    assert int(dataset.cardinality()) == 12
    for batch in dataset:
        np.testing.assert_array_equal(batch[batching.RECORD_NUMBER], batch["unique_ids"])


def test_fewer_records_than_a_batch_are_repeated(tmp_path):
    file = write(tmp_path / "few", [5, 9, 2])
    batches = stream([file], 6)
    assert all(len(ids) == 4 for ids, _ in batches)
    assert sorted(i for ids, _ in batches for i in ids) == sorted([0, 1, 2] * 8)
