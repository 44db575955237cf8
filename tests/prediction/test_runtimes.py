"""Runtimes of exports: each thread gets the answer to its own inputs."""

import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.prediction.loading import Lite, OpenVino

SIZE = 257
SHIFT = np.roll(np.eye(SIZE, dtype=np.float32), 1, axis=0)


@pytest.fixture
def quick_switches():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def lite_file(folder):
    """A file that shifts the columns of x."""

    @tf.function(input_signature=[tf.TensorSpec([None, SIZE], tf.float32, "x")])
    def shifted(x):
        for _ in range(9):
            x = tf.matmul(x, SHIFT)
        return {"y": x}

    module = tf.Module()
    module.shifted = shifted
    functions = [shifted.get_concrete_function()]
    content = tf.lite.TFLiteConverter.from_concrete_functions(functions, module).convert()
    (folder / "model.tflite").write_bytes(content)
    return str(folder / "model.tflite")


def openvino_file(folder):
    """The same."""
    openvino = pytest.importorskip("openvino", reason="needs the extra [openvino]")
    from openvino import opset13 as opset

    given = opset.parameter([-1, SIZE], np.float32, name="x")
    given.output(0).get_tensor().set_names({"x"})
    found = given
    for _ in range(9):
        found = opset.matmul(found, opset.constant(SHIFT), False, False)
    found.output(0).get_tensor().set_names({"y"})
    openvino.save_model(openvino.Model([found], [given]), folder / "model.xml")
    return str(folder / "model.xml")


@pytest.mark.parametrize(("kind", "make"), [(Lite, lite_file), (OpenVino, openvino_file)])
def test_two_threads_get_their_own_answers(tmp_path, quick_switches, kind, make):
    runtime = kind(make(tmp_path))

    def wrong(number):
        rows = np.full((33, SIZE), number, np.float32)  # any shift is the same
        answers = (runtime.ask("serving_default", {"x": rows})["y"] for _ in range(100))
        return sum(not np.array_equal(answer, rows) for answer in answers)

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(wrong, (1, 2))) == [0, 0]
