"""The request bodies of docs/serving.md: the models that they are for answer them."""

import functools
import json
import re
from pathlib import Path

import pytest
import tensorflow as tf

from bert_tf.programs.export_saved_model import ExportOptions, export_saved_model

pytestmark = pytest.mark.slow

GUIDE = (Path(__file__).parents[2] / "docs" / "serving.md").read_text(encoding="utf-8")
BODIES = dict(re.findall(r"^\| ([a-z ]+) \| `(\{.*\})` \|$", GUIDE, re.M))
MODELS = {  # kind -> fixture, options
    "sentences": ("sentence_model", {}),
    "questions": ("squad_model", {}),
    "entities": ("ner_model", {}),
    "words": ("ner_model", {}),
    "choices": ("swag_model", {}),
    "embeddings": ("pretrained", {}),
    "masked words": ("pretrained", {"head": "masked_lm"}),
    "ids": ("sentence_model", {}),
}


def tensors(body, names):
    """Values by input name: what TensorFlow Serving makes of the JSON (api_rest.md)."""
    if "inputs" in body:
        return body["inputs"]
    rows = body["instances"]
    if not isinstance(rows[0], dict):
        (name,) = names
        return {name: rows}
    return {name: [row[name] for row in rows] for name in rows[0]}


def test_there_is_a_body_for_each_kind_of_model():
    assert list(BODIES) == list(MODELS)


@pytest.fixture(scope="module")
def loaded(request, tmp_path_factory):
    """Function kind -> its export, one for kinds of the same model."""

    @functools.cache
    def of(fixture, **options):
        folder = str(tmp_path_factory.mktemp("served") / "1")
        model_dir = str(request.getfixturevalue(fixture))
        export_saved_model(ExportOptions(model_dir=model_dir, export_dir=folder, **options))
        return tf.saved_model.load(folder)

    return lambda kind: of(MODELS[kind][0], **MODELS[kind][1])


@pytest.mark.long_cases("choices", "embeddings", "words", "entities", "masked", "questions")
@pytest.mark.parametrize("kind", MODELS)
def test_the_body_is_answered(loaded, kind):
    body = json.loads(BODIES[kind])
    function = loaded(kind).signatures[body.get("signature_name", "serving_default")]
    names = function.structured_input_signature[1]
    dtype = tf.int32 if kind == "ids" else tf.string
    values = {n: tf.constant(v, dtype) for n, v in tensors(body, names).items()}
    if kind == "ids":  # those of another vocabulary
        values["input_ids"] = tf.minimum(values["input_ids"], 5)
    outputs = function(**values)
    assert {value.shape[0] for value in outputs.values()} == {
        value.shape[0] for value in values.values()
    }


def test_the_body_of_pairs_is_answered_by_columns_and_by_rows(exported):
    loaded = tf.saved_model.load(str(exported.pair))
    function = loaded.signatures["serving_default"]
    bodies = re.findall(r'(\{"(?:instances|signature_name)".*"text_b".*\})', GUIDE)
    assert len(bodies) == 2
    for body in bodies:
        values = tensors(json.loads(body), ["text_a", "text_b"])
        outputs = function(**{name: tf.constant(value) for name, value in values.items()})
        assert outputs["label"].shape == (1,)
