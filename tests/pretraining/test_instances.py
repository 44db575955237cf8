"""Instances as rows, in memory or in a file, and as records."""

from array import array

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.data.parallel import encode_columns
from bert_tf.pretraining.instances import CONTINUES, InstanceRows, pretraining_features
from bert_tf.pretraining.python_random import RandomWords


def features_of(record):
    features = tf.train.Example.FromString(record).features.feature
    return {name: list(getattr(f, f.WhichOneof("kind")).value) for name, f in features.items()}


def test_an_instance_is_padded_to_its_declared_features():
    specs = pretraining_features(max_seq_length=7, max_predictions_per_seq=2)
    rows = InstanceRows(specs)
    rows.append(array("i", [1, 8, 2, 4, 2]), 2, 1, [3], [9])
    (batch,) = rows.shuffled(RandomWords(0))
    (record,) = encode_columns(rows.columns(batch))
    found = features_of(record)
    assert found == {
        "input_ids": [1, 8, 2, 4, 2, 0, 0],
        "input_mask": [1, 1, 1, 1, 1, 0, 0],
        "segment_ids": [0, 0, 0, 1, 1, 0, 0],
        "masked_lm_positions": [3, 0],
        "masked_lm_ids": [9, 0],
        "masked_lm_weights": [1.0, 0.0],
        "next_sentence_labels": [1],
    }
    assert {spec.name: len(found[spec.name]) for spec in specs} == {
        spec.name: int(np.prod(spec.shape)) for spec in specs
    }


def test_records_have_what_their_objective_needs():
    always = {"input_ids", "input_mask", "segment_ids"}
    masks = {"masked_lm_positions", "masked_lm_ids", "masked_lm_weights"}
    for predictions, objective, names in (
        (0, "mlm_nsp", always | {"next_sentence_labels"}),
        (0, "mlm", always),
        (3, "mlm", always | masks),
    ):
        specs = pretraining_features(6, predictions, objective)
        assert {spec.name for spec in specs} == names
        rows = InstanceRows(specs)
        rows.append(array("i", [5, 6, 7]), 2, 0)
        (batch,) = rows.shuffled(RandomWords(0))
        found = features_of(encode_columns(rows.columns(batch))[0])
        assert set(found) == names
        assert found["segment_ids"] == [0] * 6


@pytest.mark.parametrize("max_bytes", [0, 400, 1 << 20])
def test_rows_in_a_file_are_the_same_as_rows_in_memory(max_bytes):
    specs = pretraining_features(5, 1)
    rows = InstanceRows(specs, max_bytes=max_bytes)
    for number in range(2500):
        rows.append(array("i", [number, 1, 2]), 1, number % 2, [0], [number])
    order = list(range(2500))
    RandomWords(3).shuffle(order)
    found = []
    for batch in rows.shuffled(RandomWords(3)):
        columns = rows.columns(batch)
        found += columns["input_ids"][:, 0].tolist()
        assert columns["next_sentence_labels"].tolist() == [n % 2 for n in found[-len(batch) :]]
    rows.close()
    assert found == order
    assert len(rows) == 2500


def test_bits_that_were_for_the_masker_do_not_go_into_the_record():
    rows = InstanceRows(pretraining_features(4, 1))
    rows.append(array("i", [1, 2 | CONTINUES, 3]), 1, 0, [1], [2 | CONTINUES])
    (batch,) = rows.shuffled(RandomWords(0))
    columns = rows.columns(batch)
    assert columns["input_ids"].tolist() == [[1, 2, 3, 0]]
    assert columns["masked_lm_ids"].tolist() == [[2]]
