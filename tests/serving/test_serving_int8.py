"""SavedModels whose products are of 8-bit integers."""

import json
import shutil

import numpy as np
import pytest
import tensorflow as tf
from tiny_served import INPUTS, SENTENCES, served, trained
from tiny_served import MOODS as TEXTS

from bert_tf.model_folder import load_model
from bert_tf.modeling.inference_layout import WORDS, products
from bert_tf.options import OptionError
from bert_tf.prediction.text_model import padded, trimmed
from bert_tf.predictor import Predictor
from bert_tf.programs import export_saved_model as export_saved_model_module
from bert_tf.programs.export_saved_model import (
    ExportOptions,
    export_saved_model,
    read_calibration,
)
from bert_tf.serving import quantization
from bert_tf.serving.quantization import calibration_ids, largest_weight
from bert_tf.training import strategy


def write_texts(folder, texts):
    path = folder / "texts.txt"
    path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    return str(path)


def export(model_dir, folder, **options):
    given = {"precision": "int8", "calibration_file": write_texts(folder, TEXTS), **options}
    export_saved_model(
        ExportOptions(model_dir=str(model_dir), export_dir=str(folder / "1"), **given)
    )
    return json.loads((folder / "1" / "assets.extra" / "export.json").read_text())


@pytest.mark.night
def test_an_export_answers_nearly_like_the_model_and_describes_each_product(
    sentence_model, tmp_path
):
    values = export(sentence_model, tmp_path)
    model = load_model(str(sentence_model)).model
    described = values["quantization"]
    assert list(described) == [WORDS, *products(model)]
    assert all(0 < product["error"] < 0.1 for product in described.values())
    floats = [name for name, product in described.items() if product["precision"] != "int8"]
    assert floats == []
    assert "_QuantizedMatMul" not in values["custom_ops"]  # TensorFlow has it
    served = Predictor(str(tmp_path / "1")).predict(TEXTS)
    for found, expected in zip(served, Predictor(str(sentence_model)).predict(TEXTS), strict=True):
        assert found["label"] == expected["label"]
        assert found["probabilities"] == pytest.approx(expected["probabilities"], abs=0.05)
    loaded = tf.saved_model.load(str(tmp_path / "1"))
    int8 = [v for v in loaded.weights if v.dtype == tf.int8]
    assert len(int8) == len(described)


def test_a_tensorflow_without_the_operation_is_refused(monkeypatch, tmp_path):
    registry = export_saved_model_module.op_def_registry
    monkeypatch.setattr(registry, "get", lambda name: None)
    with pytest.raises(OptionError, match="precision"):
        export("absent", tmp_path)


@pytest.fixture
def processor(monkeypatch, tmp_path):
    """Return a function that gives this machine a processor with other instructions."""

    def set_flags(flags):
        (tmp_path / "cpuinfo").write_text(f"flags\t: {flags}\n")
        monkeypatch.setattr(strategy, "CPU_INFO", tmp_path / "cpuinfo")

    return set_flags


def test_a_processor_without_an_instruction_gets_seven_bits(processor, sentence_model, tmp_path):
    processor("fpu avx2 avx512f")
    metadata = export(sentence_model, tmp_path)
    assert {product["precision"] for product in metadata["quantization"].values()} == {"int8"}
    assert metadata["largest_weight"] == 63
    loaded = tf.saved_model.load(str(tmp_path / "1"))
    kernels = [v.numpy() for v in loaded.weights if v.dtype == tf.int8 and "kernel" in v.name]
    assert kernels and {np.abs(kernel).max() for kernel in kernels} == {63}
    served = Predictor(str(tmp_path / "1")).predict(TEXTS)
    for found, expected in zip(served, Predictor(str(sentence_model)).predict(TEXTS), strict=True):
        assert found["probabilities"] == pytest.approx(expected["probabilities"], abs=0.05)


def test_weights_of_eight_bits_are_refused_where_their_sums_overflow(processor, exported, tmp_path):
    processor("fpu avx2 avx512_vnni")
    assert largest_weight() == 127
    folder = shutil.copytree(exported.single, tmp_path / "1")
    file = folder / "assets.extra" / "export.json"
    values = json.loads(file.read_text()) | {"precision": "int8", "largest_weight": 127}
    file.write_text(json.dumps(values))
    Predictor(str(folder))
    processor("fpu avx2 avx512f")
    with pytest.raises(ValueError, match="overflow"):
        Predictor(str(folder))


def test_a_range_that_clips_an_outlier_is_chosen_by_the_error_of_the_outputs():
    rows = np.random.default_rng(0).normal(size=(200, 8)).astype(np.float32)
    rows[0, 0] = 12.0
    kernel = np.random.default_rng(1).normal(size=(8, 4)).astype(np.float32)
    error, low, high = quantization._best_range(rows, kernel, rows @ kernel, -12.0, 12.0)
    unclipped = quantization.rounded_range(-12.0, 12.0)
    whole = quantization.quantized_inputs(rows, *unclipped) @ kernel - rows @ kernel
    assert error <= np.linalg.norm(whole)
    assert high - low < 23  # 24 unclipped


# ------------------------------------------------------------------------------- calibration texts


def calibrated(kind, file):
    options = ExportOptions(model_dir="", export_dir="", precision="int8", calibration_file=file)
    return read_calibration(options, served(kind))


def lines_of(items):
    """Inputs of predict as lines of text."""
    for item in items:
        if isinstance(item, str):
            yield item
        else:
            first, second = item
            rest = [second] if isinstance(second, str) else second or []
            yield "\t".join([first, *rest])


@pytest.mark.weekly_cases(
    "choices", "crf", "embedder", "entities", "multi_label", "pair", "regression"
)
@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=[pytest.mark.night] * (kind != "windows")) for kind in INPUTS],
)
def test_the_ids_are_those_of_the_python_classes(tmp_path, kind):
    """Every window of a text is one row without padding."""
    file = write_texts(tmp_path, lines_of(INPUTS[kind]))
    rows = calibrated(kind, file)
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


def test_of_many_texts_the_same_are_drawn_each_time(monkeypatch):
    monkeypatch.setattr(quantization, "MOST_TEXTS", 5)
    many = [{"text_a": ["cat " * (number % 7 + 1)]} for number in range(200)]
    drawn = [calibration_ids(served("encoder"), iter(many)) for _ in range(2)]
    lengths = [[row["input_ids"].shape[1] for row in rows] for rows in drawn]
    assert lengths[0] == lengths[1] and len(lengths[0]) == 5 and len(set(lengths[0])) > 2


def test_a_line_that_is_not_an_input_is_refused(tmp_path):
    file = write_texts(tmp_path, ["the cat\tthe dog", "a log"])
    with pytest.raises(ValueError, match=r"texts\.txt:2"):
        calibrated("pair", file)
    with pytest.raises(ValueError, match=r"texts\.txt:1"):
        calibrated("single", file)
    with pytest.raises(OptionError, match="calibration_file"):
        calibrated("single", write_texts(tmp_path, []))
