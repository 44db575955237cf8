"""TFRecord files in disorder: read, or refused with a message that names the file."""

import numpy as np
import pytest
import tensorflow as tf
from fuzz_cases import cases, read_or_refuse, spoilt
from hypothesis import given
from hypothesis import strategies as st

from bert_tf.data.features import FeatureSpec
from bert_tf.data.records import (
    RecordWriter,
    check_records,
    count_records,
    feature_names,
    naming_damaged_file,
    read_records,
)

SPECS = (FeatureSpec("input_ids", (4,), "int32"), FeatureSpec("weight", (), "float32"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("records")


@pytest.fixture(scope="module")
def content(folder):
    with RecordWriter(folder / "good.tf_record", SPECS) as writer:
        for number in range(3):
            writer.write({"input_ids": np.arange(4) + number, "weight": number / 2})
    return (folder / "good.tf_record").read_bytes()


def read_all(path):
    files = [str(path)]
    count_records(files)
    feature_names(files[0])
    check_records(files, SPECS, {"input_ids": 7})
    with naming_damaged_file(files):
        for batch in read_records(
            files, SPECS, batch_size=2, shuffle=False, repeat=False, drop_remainder=False
        ):
            assert batch["input_ids"].shape[1:] == (4,)


def test_what_is_not_spoilt_is_read(folder, content):
    path = folder / "as_it_was.tf_record"
    path.write_bytes(content)
    assert read_or_refuse("records: as they were", lambda: read_all(path), path)


@given(data=st.data())
@cases(60)
def test_files_in_disorder(folder, content, data):
    path = folder / "spoilt.tf_record"
    path.write_bytes(data.draw(spoilt(content)))
    read_or_refuse("records: bytes", lambda: read_all(path), path)


@given(record=st.one_of(st.binary(max_size=60), st.data()))
@cases(60)
def test_records_that_are_no_examples(folder, content, record):
    """The checksums fit, what they protect does not."""
    path = folder / "no_example.tf_record"
    good = next(iter(tf.data.TFRecordDataset(str(folder / "good.tf_record")))).numpy()
    data = record if isinstance(record, bytes) else record.draw(spoilt(good))
    with tf.io.TFRecordWriter(str(path)) as writer:
        writer.write(good)
        writer.write(data)
    read_or_refuse("records: contents", lambda: read_all(path), path)
