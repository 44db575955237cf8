"""OpenVINO files, and the texts with which 8 bits are calibrated."""

import json
import logging
import sys
from importlib.util import find_spec

import numpy as np
import pytest
from tiny_served import INPUTS, SENTENCES, served, trained

import bert_tf
from bert_tf.data.packing import pack_texts
from bert_tf.model_folder import load_model_folder
from bert_tf.prediction.text_model import padded, trimmed
from bert_tf.predictor import Predictor
from bert_tf.programs.calibration_file import read_calibration
from bert_tf.programs.export_saved_model import ExportOptions, export_saved_model
from bert_tf.serving import calibration
from bert_tf.serving.calibration import calibration_ids
from bert_tf.serving.openvino import write_openvino

needs_openvino = pytest.mark.skipif(find_spec("openvino") is None, reason="needs openvino")
needs_nncf = pytest.mark.skipif(find_spec("nncf") is None, reason="needs nncf")

TEXTS = [
    f"the {mood} {animal} in the {place}"
    for mood in ("happy", "calm", "kind", "angry", "sad", "rude")
    for animal in ("cat", "dog", "owl", "hen")
    for place in ("barn", "wood", "lake")
]
FORMAT = {"model_dir": "model", "export_dir": "export", "format": "openvino"}


def write_texts(folder, texts):
    path = folder / "texts.txt"
    path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    return str(path)


@pytest.fixture(scope="module")
def ids(sentence_model):
    tokenizer = load_model_folder(str(sentence_model)).tokenizer
    rows = [pack_texts(tokenizer, text, None, 16) for text in TEXTS[::9]]
    return {
        name: np.array([getattr(row, name) for row in rows], np.int32) for name in rows[0]._fields
    }


@pytest.fixture(scope="module")
def logits(sentence_model, ids):
    return load_model_folder(str(sentence_model)).model(ids)["logits"].numpy()


@pytest.fixture(scope="module")
def folders(sentence_model, tmp_path_factory):
    """Precision -> the export of a classifier."""
    pytest.importorskip("openvino")
    pytest.importorskip("nncf")
    folder = tmp_path_factory.mktemp("openvino")
    for precision in ("float32", "bfloat16", "int8"):
        given = {"format": "openvino", "precision": precision, "model_dir": str(sentence_model)}
        if precision == "int8":
            given["calibration_file"] = write_texts(folder, TEXTS)
        export_saved_model(ExportOptions(export_dir=str(folder / precision), **given))
    return folder


# ------------------------------------------------------------------------------------------- files


@needs_openvino
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["pair", "questions", "crf", "choices", "encoder", "masks"])
def test_every_type_of_task_answers_as_the_model(tmp_path, kind):
    write_openvino(served(kind), str(tmp_path / "1"))
    predictor = Predictor(trained(kind))
    model = predictor.encoder() if kind == "encoder" else predictor.text_model
    found = bert_tf.load(tmp_path / "1", batch_size=3).predict(INPUTS[kind])
    for one, other in zip(found, model.answers(INPUTS[kind]), strict=True):
        one, other = json.dumps(one), json.dumps(other)
        assert _words(one) == _words(other)
        np.testing.assert_allclose(_numbers(one), _numbers(other), rtol=0, atol=1e-5)


def _words(answer):
    found = []
    json.loads(answer, object_pairs_hook=found.append, parse_float=lambda text: 0.0)
    return found


def _numbers(answer):
    found = [0.0]
    json.loads(answer, parse_float=lambda text: found.append(float(text)))
    return np.array(found) if len(found) > 1 else np.zeros(0)


@pytest.mark.parametrize("precision, atol", [("float32", 1e-5), ("bfloat16", 0.05), ("int8", 0.5)])
def test_a_file_answers_batches_of_any_shape(folders, ids, logits, precision, atol):
    import openvino

    hints = {"INFERENCE_PRECISION_HINT": "f32"} if precision == "float32" else {}
    path = str(folders / precision / "model.xml")
    read = openvino.Core().read_model(path)
    assert {port.get_any_name() for port in read.inputs} == set(ids)
    assert {port.get_any_name() for port in read.outputs} == {"logits", "probabilities"}
    model = openvino.Core().compile_model(read, "CPU", hints)
    np.testing.assert_allclose(model(ids)["logits"], logits, rtol=0, atol=atol)
    length = ids["input_mask"][0].sum()
    alone = model({name: value[:1, :length] for name, value in ids.items()})["logits"]
    np.testing.assert_allclose(alone, logits[:1], rtol=0, atol=atol)


def test_the_folder_has_all_that_a_client_needs_and_int8_is_smaller(folders):
    beside = ["export.json", "task.json", "bert_config.json", "vocab.txt", "labels.txt"]
    sizes = {}
    for precision in ("float32", "bfloat16", "int8"):
        found = [path.name for path in (folders / precision).iterdir()]
        assert sorted(found) == sorted(["model.xml", "model.bin", *beside])
        sizes[precision] = (folders / precision / "model.bin").stat().st_size
        values = json.loads((folders / precision / "export.json").read_text())
        assert values["file"] == "model.xml"
        files = {name: folders / precision / name for name in ("model.bin", "model.xml")}
        assert values["file_sizes"] == {name: path.stat().st_size for name, path in files.items()}
        assert values["signatures"]["tokens"]["inputs"]["input_ids"]["shape"] == [None, None]
    assert sizes["bfloat16"] < 0.55 * sizes["float32"]
    assert sizes["int8"] < sizes["bfloat16"]


@needs_openvino
def test_the_handlers_of_the_log_stay(sentence_model, tmp_path):
    root = logging.getLogger()
    before = list(root.handlers), list(root.filters), root.level
    flags = {"model_dir": str(sentence_model), "export_dir": str(tmp_path / "1")}
    export_saved_model(ExportOptions(format="openvino", **flags))
    bert_tf.load(tmp_path / "1")
    assert (list(root.handlers), list(root.filters), root.level) == before


@pytest.mark.parametrize("precision, missing", [("float32", "openvino"), ("int8", "nncf")])
def test_without_the_extra_the_error_names_it(monkeypatch, precision, missing):
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ImportError, match=rf"{missing}.* `pip install -e '\.\[openvino\]'`"):
        write_openvino(None, "export", precision, [{}])


@pytest.mark.parametrize(
    "precision, ids, message",
    [
        ("float16", [], "'float16', .* one of float32, bfloat16, int8"),
        ("int8", [], "precision=int8 .* none. Give calibration_file"),
    ],
)
def test_a_precision_or_texts_that_are_missing_are_refused(precision, ids, message):
    with pytest.raises(ValueError, match=message):
        write_openvino(None, "export", precision, ids)


# ------------------------------------------------------------------------------- calibration texts


@pytest.mark.parametrize(
    "options, message",
    [
        (
            {**FORMAT, "model_dir": ".", "precision": "int8"},
            "format=openvino with precision=int8 .*calibration_file",
        ),
        (
            {**FORMAT, "calibration_file": "texts.txt"},
            "texts.txt, but format=openvino with precision=float32 .*Omit it, or .*precision=int8",
        ),
        (
            {**FORMAT, "format": "onnx", "precision": "int8", "calibration_file": "texts.txt"},
            "texts.txt, but format=onnx with precision=int8 .*saved_model or openvino",
        ),
        ({**FORMAT, "precision": "float16"}, "must be float32 or bfloat16 or int8"),
        ({**FORMAT, "signature": "serving_default"}, "format=openvino takes only ids"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        ExportOptions(**options)


def lines_of(items):
    """Inputs of predict as lines of text."""
    for item in items:
        if isinstance(item, str):
            yield item
        else:
            first, second = item
            rest = [second] if isinstance(second, str) else second or []
            yield "\t".join([first, *rest])


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=[pytest.mark.slow] * (kind != "windows")) for kind in INPUTS],
)
def test_the_ids_are_those_of_the_python_classes(tmp_path, kind):
    """Every window of a text is one row without padding."""
    file = write_texts(tmp_path, lines_of(INPUTS[kind]))
    rows = read_calibration(served(kind), file)
    found = sorted(tuple(row["input_ids"].reshape(-1).tolist()) for row in rows)
    predictor = Predictor(trained(kind))
    model = predictor.encoder() if kind == "encoder" else predictor.text_model
    prepared = [model.prepare(item) for item in INPUTS[kind]]
    if kind == "choices":
        expected = []
        for _, choices in prepared:
            length = max(len(row.input_ids) for row in choices)
            filled = padded({"ids": [row.input_ids for row in choices]}, length)["ids"]
            expected.append(filled.reshape(-1).tolist())
        assert all(row["input_ids"].ndim == 3 for row in rows)
    elif kind == "questions":
        special = trained(kind).tokenizer.convert_tokens_to_ids(["[CLS]", "[SEP]"])
        windows = [window for _, windows in prepared for window in windows]
        expected = [list(trimmed(window.pack(15, *special)).input_ids) for window in windows]
    elif kind in ("entities", "crf"):
        kept = {tuple(row["input_ids"][0, [0, -1]]) for row in rows}
        assert kept == {tuple(trained(kind).tokenizer.convert_tokens_to_ids(["[CLS]", "[SEP]"]))}
        assert len(rows) > len(SENTENCES)  # the long sentence has windows
        return
    elif kind in ("encoder", "embedder", "masks"):
        expected = [getattr(row, "sequence", row).input_ids for row in prepared]
    else:
        expected = [window.input_ids for windows in prepared for window in windows]
    assert found == sorted(map(tuple, expected))


def test_columns_are_read_as_by_predict(tmp_path):
    path = tmp_path / "texts.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in SENTENCES))
    found = read_calibration(served("encoder"), str(path))
    expected = read_calibration(served("encoder"), write_texts(tmp_path, SENTENCES))
    assert [row["input_ids"].tolist() for row in found] == [
        row["input_ids"].tolist() for row in expected
    ]


def test_few_texts_are_reported_and_many_are_drawn(monkeypatch, caplog):
    caplog.set_level(logging.INFO, logger="bert_tf")
    monkeypatch.setattr(calibration, "FEWEST_TEXTS", 3)
    monkeypatch.setattr(calibration, "MOST_TEXTS", 5)
    model = served("encoder")
    calibration_ids(model, [{"text_a": ["the cat"]}] * 20, "few.txt")
    assert "few.txt contains only 1 different texts" in caplog.text
    assert "give 3 or more, better 5" in caplog.text
    caplog.clear()
    many = [{"text_a": ["cat " * (number % 7 + 1)]} for number in range(200)]
    drawn = [calibration_ids(model, iter(many), "many.txt") for _ in range(2)]
    lengths = [[row["input_ids"].shape[1] for row in rows] for rows in drawn]
    assert lengths[0] == lengths[1]  # always the same ones
    assert len(lengths[0]) == 5
    assert len(set(lengths[0])) > 2
    assert "Calibration with 5 rows, from 200 texts of many.txt" in caplog.text
    assert "only" not in caplog.text


@pytest.mark.parametrize(
    "texts, message",
    [
        ([], r"calibration_file=.*texts.txt contains no words.* 300 of them"),
        (["", " "], "contains no words"),
        (["Привет мир", "как дела ?"], r"80% of the WordPieces are \[UNK\], but at most 50%"),
    ],
)
def test_texts_that_are_unsuitable_are_refused(tmp_path, texts, message):
    with pytest.raises(ValueError, match=message):
        read_calibration(served("encoder"), write_texts(tmp_path, texts))


def test_a_line_that_is_not_an_input_is_refused(tmp_path):
    file = write_texts(tmp_path, ["the cat\tthe dog", "a log"])
    with pytest.raises(ValueError, match=r"calibration_file: .*texts.txt:2: .* pairs"):
        read_calibration(served("pair"), file)
    with pytest.raises(ValueError, match=r"calibration_file: .*texts.txt:1: .* single sentences"):
        read_calibration(served("single"), file)
