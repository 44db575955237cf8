"""Programs that were written for other libraries, in processes without bert_tf (consumers/)."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tiny_text_models as tiny

from bert_tf.serving.classification import ServedClassifier
from bert_tf.serving.saved_model import write_saved_model

LENGTH = tiny.MAX_SEQ_LENGTH
CONSUMERS = Path(__file__).with_name("consumers")
TEXTS = [text for text in tiny.TEXTS if text]
WITHOUT_BERT_TF = """
import runpy, sys
sys.modules["bert_tf"] = None  # any import of it fails
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def consume(script, *arguments, data):
    """What a consumer prints."""
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            WITHOUT_BERT_TF,
            str(CONSUMERS / f"{script}.py"),
            *map(str, arguments),
        ],
        input=json.dumps(data),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def run(model, packed):
    """The outputs for each sequence alone, without padding."""
    return [tiny.run_alone(model, sequence) for sequence in packed]


def near(found, expected, atol=1e-5):
    np.testing.assert_allclose(np.array(found), np.array(expected), rtol=0, atol=atol)


@pytest.fixture(scope="module")
def encoder():
    """The model, and the ids that it takes."""
    trained = tiny.trained(None)
    return trained, [tiny.alone(text) for text in TEXTS]


# --------------------------------------------------------------------------------------------- TFX


@pytest.mark.long
@pytest.mark.slow
def test_tfx_sends_serialized_examples_to_a_classifier(tmp_path):
    trained = tiny.classifier()
    served = ServedClassifier(trained, LENGTH)
    write_saved_model(served, str(tmp_path / "1"), ["tf_example", "tokens"])
    rows = [{"text_a": text} for text in TEXTS]
    expected = run(trained.model, [tiny.alone(text) for text in TEXTS])
    for names in ((), ("tf_example",)):
        found = consume("tfx_bulk_inference", tmp_path / "1", *names, data=rows)
        near(found["logits"], [outputs["logits"][0] for outputs in expected])
        labels = [trained.task.labels[int(np.argmax(row))] for row in found["logits"]]
        assert found["label"] == labels


# ------------------------------------------------------------------------------------ Hugging Face
