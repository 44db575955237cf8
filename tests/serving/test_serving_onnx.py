"""ONNX files: operations of ONNX only."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from export_kinds import served

from bert_tf.modeling.layers import get_activation
from bert_tf.prediction.loading import Onnx
from bert_tf.serving.formats import write_file

pytest.importorskip("tf2onnx")
onnx = pytest.importorskip("onnx")

IDS = {
    "input_ids": np.array([[2, 10, 20, 12, 3], [2, 21, 3, 0, 0]], np.int32),
    "input_mask": np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], np.int32),
    "segment_ids": np.zeros((2, 5), np.int32),
}


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """The file of a model with the exact GELU, which TensorFlow computes by `Erfc`; its logits."""
    model = served("pair")
    for layer in model.model.bert.encoder_layers:
        layer.config = dataclasses.replace(layer.config, hidden_act="gelu_erf")
        layer.intermediate.activation = get_activation("gelu_erf")
    expected = model.tokens(**{name: tf.constant(value) for name, value in IDS.items()})["logits"]
    folder = tmp_path_factory.mktemp("onnx") / "1"
    write_file(model, str(folder), "onnx")
    return str(folder / "model.onnx"), expected


def test_onnx_file_has_operations_of_onnx_only(file):
    assert {node.domain for node in onnx.load(file[0]).graph.node} == {""}


def test_onnx_file_answers_batches_of_any_shape(file):
    pytest.importorskip("onnxruntime")
    model = Onnx(file[0])
    for rows, length in ((slice(None), 5), (slice(1, None), 3)):
        found = model.ask("tokens", {name: value[rows, :length] for name, value in IDS.items()})
        np.testing.assert_allclose(found["logits"], file[1][rows], rtol=0, atol=1e-5)
