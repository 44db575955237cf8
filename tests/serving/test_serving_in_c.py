"""An exported model in a C program: the libraries of TensorFlow and tensorflow-text, nothing else."""

from pathlib import Path

import c_client
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text

pytestmark = pytest.mark.night

LIBRARY = Path(tensorflow_text.__file__).parent / c_client.LIBRARY
TEXTS = ("the happy cat in the barn", "", "The HÄPPY cât 猫", "calm dog " * 300, "sad 😀 dog\0\n")


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    if c_client.compiler() is None:
        pytest.skip("there is no C compiler (cc, gcc or clang)")
    binary = tmp_path_factory.mktemp("c") / "serve"
    c_client.build(Path(tf.sysconfig.get_lib()), binary)
    return binary


def column(texts):
    return np.array([text.encode() for text in texts], object)


def ids(shape):
    arrays = {name: np.ones(shape, np.int32) for name in ("input_ids", "input_mask", "segment_ids")}
    arrays["input_ids"][0] = range(5, 5 + shape[1])
    return arrays


def test_client_gets_the_outputs_that_python_gets(program, exported):
    requests = [("serving_default", {"text_a": column(TEXTS)})]
    requests += [("tokens", ids([2, 7])), ("tokens", ids([1, 3]))]
    signatures = tf.saved_model.load(str(exported)).signatures
    answers = c_client.ask(program, exported, LIBRARY, requests)
    for (signature, inputs), found in zip(requests, answers, strict=True):
        expected = signatures[signature](**{n: tf.constant(value) for n, value in inputs.items()})
        assert sorted(found) == sorted(expected) == ["label", "logits", "probabilities"]
        assert found["label"].tolist() == expected["label"].numpy().tolist()
        for name in ("logits", "probabilities"):
            assert found[name].dtype == np.float32
            np.testing.assert_allclose(found[name], expected[name].numpy(), rtol=0, atol=1e-5)
