"""Instances as rows, in memory or in a file."""

from array import array

import pytest
import tensorflow as tf

from bert_tf.data.parallel import encode_columns
from bert_tf.pretraining.instances import InstanceRows, pretraining_features
from bert_tf.pretraining.python_random import RandomWords


def features_of(record):
    features = tf.train.Example.FromString(record).features.feature
    return {name: list(getattr(f, f.WhichOneof("kind")).value) for name, f in features.items()}


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
