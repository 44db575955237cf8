"""Every kind of model, in every format of export, answers as the predictor of its folder.

A SavedModel is asked on text and on ids, which Python makes; the files of the other formats on ids.
"""

import functools
import json

import models
import numpy as np
import pytest
import tensorflow as tf
from export_kinds import ITEMS, ONE_OF_A_CLASS, flags, folder, served, write_lines

import bert_tf
from bert_tf.serving.saved_model import write_saved_model

night = pytest.mark.night


def kinds(commit, nightly):
    return [*commit, *(pytest.param(kind, marks=night) for kind in nightly)]


@functools.cache
def answers(kind):
    """What the predictor of the folder says."""
    model = bert_tf.load(folder(kind), batch_size=3)
    found = (model.encoder() if kind == "encoder" else model.text_model).predict(ITEMS[kind])
    assert np.ptp(split(found)[1]) > 0.01  # it depends on the texts
    return found


def split(found):
    """The answers without their numbers, and the numbers."""
    numbers = []
    text = json.dumps(found, sort_keys=True, default=bytes.decode)
    return json.loads(text, parse_float=lambda digits: numbers.append(float(digits))), numbers


def assert_same(found, expected, atol=1e-5):
    (found, numbers), (expected, wanted) = split(found), split(expected)
    assert found == expected
    np.testing.assert_allclose(numbers, wanted, rtol=0, atol=atol)


# --------------------------------------------------------------------------------------- on text


def requests(items, names):
    """The inputs by name. Rows of choices are padded with empty ones."""
    columns = [items] if len(names) == 1 else zip(*items, strict=True)
    found = dict(zip(names, map(list, columns), strict=True))
    if "choices" in found:
        found["choices"] = [[*row, ""][:3] for row in found["choices"]]
    return {name: tf.constant(values) for name, values in found.items()}


def answer(row, labels, item):
    """One row of the outputs on text, as the predictor says it."""
    if "answer" in row:
        places = {n: None if row[n] < 0 else row[n] for n in ("start", "end")}
        return {n: row[n] for n in ("answer", "null_odds") if n in row} | places
    if "type" in row:
        names = ("type", "start", "end", "text", "probability")
        columns = (row["type"], row["start"], row["end"], row["entity"], row["probability"])
        found = zip(*columns, strict=True)
        return {"entities": [dict(zip(names, each, strict=True)) for each in found if each[0]]}
    if "choice" in row:
        row["probabilities"] = row["probabilities"][: len(item[1])]
        return {name: row[name] for name in ("prediction", "choice", "probabilities")}
    if "token" in row:
        masks = zip(row["token"], row["probability"], strict=True)
        named = [[{"token": t, "probability": p} for t, p in zip(*m, strict=True)] for m in masks]
        return {"masks": [best for best in named if best[0]["token"]]}
    if "probabilities" not in row:
        return {name: row[name] for name in ("score", "embedding") if name in row}
    chosen = {"label": row.get("label")}
    if "has_label" in row:
        pairs = zip(labels, row["has_label"], strict=True)
        chosen = {"labels": [label for label, has in pairs if has]}
    return chosen | {"probabilities": dict(zip(labels, row["probabilities"], strict=True))}


def check_on_text(kind, function, model):
    items, specs = ITEMS[kind], model.text_functions()["serving_default"][1]
    outputs = function(**requests(items, [spec.name for spec in specs]))
    columns = [value.numpy().tolist() for value in outputs.values()]
    rows = [dict(zip(outputs, row, strict=True)) for row in zip(*columns, strict=True)]
    found = [answer(row, model.labels, item) for row, item in zip(rows, items, strict=True)]
    expected = answers(kind)
    if "answer" in outputs:  # its probability would need the n best
        expected = [{n: v for n, v in each.items() if n != "probability"} for each in expected]
    assert_same(found, expected, 1e-4 if "answer" in outputs else 1e-5)


@pytest.mark.parametrize("kind", ITEMS)
def test_function_on_text_answers_as_the_predictor(kind):
    model = served(kind)
    check_on_text(kind, model.text_functions()["serving_default"][0], model)


SAVED = (["classifier", "ner", "squad2", "swag"], ["windows", "crf", "encoder", "masked_lm"])


@pytest.mark.parametrize("kind", kinds(*SAVED))
def test_saved_model_on_text_answers_as_the_predictor(tmp_path, kind):
    model = served(kind)
    write_saved_model(model, str(tmp_path / "1"), ["serving_default"])
    loaded = tf.saved_model.load(str(tmp_path / "1"))
    check_on_text(kind, loaded.signatures["serving_default"], model)


# ---------------------------------------------------------------------------------------- on ids


def check_export(kind, export_dir, atol=1e-5, **options):
    bert_tf.export(folder(kind), export_dir, **flags(kind), **options)
    assert_same(bert_tf.load(export_dir, batch_size=3).predict(ITEMS[kind]), answers(kind), atol)


@pytest.mark.parametrize("kind", kinds(ONE_OF_A_CLASS, ["windows"]))
def test_saved_model_on_ids_answers_as_the_predictor(tmp_path, kind):
    check_export(kind, tmp_path / "1", signature="tokens")


@pytest.mark.night
@pytest.mark.parametrize("kind", ["classifier", "crf", "squad2", "swag", "masked_lm"])
@pytest.mark.parametrize(
    "format, module", [("tflite", "tensorflow"), ("onnx", "tf2onnx"), ("openvino", "openvino")]
)
def test_file_answers_as_the_predictor(tmp_path, format, module, kind):
    pytest.importorskip(module)
    check_export(kind, tmp_path / "1", format=format)


@pytest.mark.night
@pytest.mark.parametrize("kind", ["pair", "embedder"])
def test_int8_answers_nearly_as_the_predictor(tmp_path, kind):
    given = {"precision": "int8", "calibration_file": write_lines(tmp_path / "texts.txt", kind)}
    check_export(kind, tmp_path / "1", atol=0.1, signature="tokens", **given)


def test_every_kind_of_golden_run_is_exported():
    assert models.KINDS.keys() - {"pretrained"} <= ITEMS.keys()
