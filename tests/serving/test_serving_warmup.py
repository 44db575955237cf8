"""Requests with which TensorFlow Serving warms up: messages in its format that the model answers."""

from pathlib import Path

import tensorflow as tf
from tensorflow.core.framework.tensor_pb2 import TensorProto

from bert_tf.serving.saved_model import WARMUP_FILE, prediction_log


def fields(message: bytes):
    """(number, value) of a message whose fields all have a length, read as the standard says."""
    place = 0

    def varint():
        nonlocal place
        value = shift = 0
        while True:
            byte, place = message[place], place + 1
            value, shift = value | (byte & 127) << shift, shift + 7
            if byte < 128:
                return value

    found = []
    while place < len(message):
        tag = varint()
        assert tag & 7 == 2, "a field of variable length"
        length = varint()
        found.append((tag >> 3, message[place : place + length]))
        place += length
    assert place == len(message)
    return found


def decoded(record: bytes):
    """Name of the model, signature, and inputs."""
    ((predict_log, log),) = fields(record)
    ((request_number, request),) = fields(log)
    assert (predict_log, request_number) == (6, 1)
    (spec,) = [dict(fields(value)) for number, value in fields(request) if number == 1]
    entries = [dict(fields(value)) for number, value in fields(request) if number == 2]
    inputs = {
        entry[1].decode(): tf.make_ndarray(TensorProto.FromString(entry[2])) for entry in entries
    }
    return spec[1].decode(), spec[3].decode(), inputs


def requests(folder):
    path = Path(folder) / "assets.extra" / WARMUP_FILE
    return [decoded(record.numpy()) for record in tf.data.TFRecordDataset(str(path))]


def test_warm_up_asks_each_signature(exported):
    signatures = tf.saved_model.load(str(exported)).signatures
    found = requests(exported)
    assert [signature for _, signature, _ in found] == ["serving_default"] * 4 + ["tokens"]
    for name, signature, inputs in found:
        assert name == exported.name
        outputs = signatures[signature](**{n: tf.constant(v) for n, v in inputs.items()})
        assert outputs["logits"].shape == (4 if signature == "tokens" else 1, 2)


def test_prediction_log_takes_texts_of_any_length():
    for length in (0, 1, 127, 128, 300, 20000):
        text = "ä" * length
        record = prediction_log("m", "s", {"text": [text]})
        name, signature, inputs = decoded(record)
        assert (name, signature, inputs["text"].tolist()) == ("m", "s", [text.encode()])
