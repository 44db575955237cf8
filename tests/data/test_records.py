"""TFRecord files: written whole or not at all, read as a resumable stream, made once."""

import gzip
import itertools

import numpy as np
import pytest
import tensorflow as tf
from helpers import cause_of, refused

from bert_tf.data.features import FeatureSpec
from bert_tf.data.records import (
    RecordWriter,
    check_records,
    count_records,
    explain_read_errors,
    make_once,
    read_records,
)
from bert_tf.limits import DataError

SPECS = (FeatureSpec("input_ids", (3,)), FeatureSpec("unique_ids", role="id"))


def write(path, numbers, specs=SPECS, compressed=False):
    with RecordWriter(path, specs) as writer:
        for number in numbers:
            values = {s.name: np.full(s.shape, number, s.dtype) for s in specs}
            writer.write(values)
    if compressed:
        path.write_bytes(gzip.compress(path.read_bytes()))
    return str(path)


@pytest.fixture
def files(tmp_path):
    """31 records in five files of different lengths, one of them GZIP, one empty."""
    bounds = [0, 5, 14, 14, 20, 31]
    return [
        write(tmp_path / f"{i}.tf_record", range(a, b), compressed=i == 1)
        for i, (a, b) in enumerate(itertools.pairwise(bounds))
    ]


def stream(files, num_batches=-1, **changes):
    """The `unique_ids` of the first batches."""
    batches = read_records(files, SPECS, 4, **changes).take(num_batches)
    return [batch["unique_ids"].numpy().tolist() for batch in batches]


def test_read_records_in_order_gives_what_was_written(files):
    assert stream(files) == [list(range(i, min(i + 4, 31))) for i in range(0, 31, 4)]


def test_read_records_gives_each_record_once_an_epoch(files):
    flat = np.ravel(stream(files, 31, seed=1)).reshape(4, 31)
    assert [sorted(epoch) for epoch in flat.tolist()] == [list(range(31))] * 4
    assert len({tuple(epoch) for epoch in flat.tolist()}) == 4


def test_read_records_depends_on_its_seed_alone(files):
    tf.random.set_seed(1)
    first = stream(files, 20, seed=5)
    tf.random.set_seed(2)
    assert stream(files, 20, seed=5) == first
    after = tf.random.uniform([])
    tf.random.set_seed(2)
    assert after == tf.random.uniform([])  # the global seed stays alone
    assert stream(files, 20, seed=6) != first


def test_read_records_resumed_is_the_tail_of_the_stream(files):
    whole = stream(files, 24, seed=3)
    for skip in (1, 7, 17):  # 7: the batch in which the first epoch ends
        assert stream(files, 24 - skip, skip_batches=skip, seed=3) == whole[skip:]


def test_count_records_reads_gzip(files):
    assert [count_records([file]) for file in files] == [5, 9, 0, 6, 11]
    assert count_records(files) == 31


# --------------------------------------------------------------------------- records that do not fit


def test_check_records_refuses_other_features(tmp_path):
    bad = write(tmp_path / "bad", [1])
    for spec in (
        FeatureSpec("input_ids", (8,)),
        FeatureSpec("input_ids", (2, 4)),
        FeatureSpec("input_ids", (3,), "float32"),
        FeatureSpec("segment_ids", (3,)),
    ):
        good = write(tmp_path / "good", [1], (spec,))
        with pytest.raises(DataError, match=f"`{spec.name}`") as error:
            check_records([good, bad], (spec,))
        assert error.value.location == bad


@pytest.mark.parametrize(
    "number, value, seed, by_length",
    [(101, 7, None, True), (150, -1, 1, False), (150, 1 << 30, 1, True)],
)
def test_read_records_finds_an_id_beyond_the_model(tmp_path, number, value, seed, by_length):
    specs = (*SPECS, FeatureSpec("input_mask", (3,)))
    numbers = [6] * 200
    numbers[number - 1] = value
    files = [write(tmp_path / "good", [1] * 40, specs), write(tmp_path / "bad", numbers, specs)]
    limits = {"input_ids": 7, "not_in_the_records": 3}
    with pytest.raises(DataError, match="`input_ids`"), explain_read_errors(files):
        list(read_records(files, specs, 8, seed=seed, by_length=by_length, id_limits=limits))


def test_read_records_refuses_files_of_another_kind(tmp_path):
    with pytest.raises(ValueError, match=str(tmp_path)):
        stream([write(tmp_path / str(i), []) for i in range(2)])
    text, other = str(tmp_path / "corpus.txt"), str(tmp_path / "other")
    with open(text, "w") as file:
        file.write("Once upon a time there was a corpus.\n" * 3)
    with tf.io.TFRecordWriter(other) as writer:
        writer.write(b"\xff\xff")
    for path in (text, other):
        assert cause_of(stream, [path]) == path


def test_explain_read_errors_names_the_damaged_file(files):
    with open(files[3], "r+b") as file:
        content = bytearray(file.read())
        content[len(content) // 2] ^= 1
        file.seek(0)
        file.write(content)
    with refused(files[3]), explain_read_errors(files):
        stream(files, 20)


# ------------------------------------------------------------------------------------------ make_once


def test_make_once_writes_for_another_key_or_size(tmp_path):
    path, calls = str(tmp_path / "train.tf_record"), []

    def write_7(path):
        calls.append(path)
        with open(path, "wb") as file:
            file.write(b"records")
        return 7

    assert [make_once(path, "a", write_7) for _ in range(3)] == [7, 7, 7]
    assert len(calls) == 1
    for key in ("b", "a"):
        make_once(path, key, write_7)
    assert len(calls) == 3
    with open(path, "ab") as file:
        file.write(b"x")
    make_once(path, "a", write_7)
    assert len(calls) == 4

    def fail(path):
        raise DataError("t.tsv:3", "bad row")

    assert cause_of(make_once, path, "b", fail) == "t.tsv:3"
    assert not (tmp_path / "train.tf_record.json").exists()
