"""Warm-up requests for TensorFlow Serving, so that the first client does not wait.

When it loads a model, the server reads `assets.extra/tf_serving_warmup_requests`: TFRecords, each a
`tensorflow.serving.PredictionLog`. The package tensorflow-serving-api has these messages. This file
encodes the few fields that it needs:

    PredictionLog    6: PredictLog
    PredictLog       1: PredictRequest
    PredictRequest   1: ModelSpec    2: map of input name -> TensorProto
    ModelSpec        1: name         3: signature_name
    entry of a map   1: key          2: value

Source: tensorflow_serving/apis/prediction_log.proto, predict.proto and model.proto;
https://protobuf.dev/programming-guides/encoding for the wire format.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from bert_tf.data.record_makers import varint

WARMUP_FILE = "tf_serving_warmup_requests"


def prediction_log(model_name: str, signature: str, inputs: Mapping[str, Any]) -> bytes:
    """Serialize a `PredictionLog` of one request; `inputs` maps names to `TensorProto`s."""
    model_spec = _field(1, model_name.encode()) + _field(3, signature.encode())
    request = _field(1, model_spec)
    for name, value in inputs.items():
        request += _field(2, _field(1, name.encode()) + _field(2, value.SerializeToString()))
    return _field(6, _field(1, request))


def write_warmup_requests(
    folder: str,
    model_name: str,
    examples: Mapping[str, Sequence[Mapping[str, Any]]],
    dtypes: Mapping[str, Mapping[str, tf.DType]],
) -> int:
    """Write the file into `folder` and return the number of requests.

    Args:
        model_name: the server's name for the model.
        examples: signature -> requests: values by input name.
        dtypes: signature -> dtypes by input name.
    """
    count = 0
    with tf.io.TFRecordWriter(os.path.join(folder, WARMUP_FILE)) as writer:
        for signature, requests in examples.items():
            for request in requests:
                inputs = {
                    name: tf.make_tensor_proto(value, dtypes[signature][name])
                    for name, value in request.items()
                }
                writer.write(prediction_log(model_name, signature, inputs))
                count += 1
    return count


def _field(number: int, payload: bytes) -> bytes:
    """Encode a length-delimited field: tag, length, value."""
    return varint(number << 3 | 2) + varint(len(payload)) + payload
