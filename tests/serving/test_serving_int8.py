"""SavedModels whose products are of 8-bit integers."""

import json
import os
import shutil

import numpy as np
import pytest
import tensorflow as tf
from export_kinds import folder, served, write_lines
from models import DATA, golden

import bert_tf
from bert_tf.modeling.inference import WORDS, products
from bert_tf.options import OptionError, make_options
from bert_tf.prediction.loading import load_model
from bert_tf.prediction.text_model import pad_rows
from bert_tf.serving.export_saved_model import ExportOptions, read_calibration
from bert_tf.serving.quantization import MAX_TEXTS, calibration_ids, largest_weight, quantize
from bert_tf.training import strategy

MOODS = [line.split("\t")[0] for line in (DATA / "moods/train.tsv").read_text().splitlines()[1:40]]


@pytest.fixture
def processor(monkeypatch, tmp_path):
    """Return a function that gives this machine a processor with other instructions."""

    def set_flags(flags):
        (tmp_path / "cpuinfo").write_text(f"flags\t: {flags}\n")
        monkeypatch.setattr(strategy, "CPU_INFO", tmp_path / "cpuinfo")

    return set_flags


def export(tmp_path):
    """The metadata of a classifier in int8."""
    (tmp_path / "texts.txt").write_text("".join(f"{text}\n" for text in MOODS))
    given = {"calibration_file": str(tmp_path / "texts.txt"), "signature": "tokens"}
    bert_tf.export(golden("classifier"), tmp_path / "1", precision="int8", **given)
    return json.loads((tmp_path / "1" / "assets.extra" / "export.json").read_text())


def check_answers(export_dir):
    found = bert_tf.load(export_dir).predict(MOODS)
    for one, other in zip(found, bert_tf.load(golden("classifier")).predict(MOODS), strict=True):
        assert one["label"] == other["label"]
        assert one["probabilities"] == pytest.approx(other["probabilities"], abs=0.05)


@pytest.mark.night
def test_int8_export_describes_each_product(tmp_path):
    values = export(tmp_path)
    described = values["quantization"]
    assert list(described) == [WORDS, *products(load_model(str(golden("classifier"))).model)]
    assert all(0 < product["error"] < 0.1 for product in described.values())
    assert {product["precision"] for product in described.values()} == {"int8"}
    assert "_QuantizedMatMul" not in values["custom_ops"]  # TensorFlow has it
    loaded = tf.saved_model.load(str(tmp_path / "1"))
    assert len([v for v in loaded.weights if v.dtype == tf.int8]) == len(described)
    check_answers(tmp_path / "1")


@pytest.mark.night
def test_int8_has_seven_bits_without_an_instruction(processor, tmp_path):
    processor("fpu avx2 avx512f")
    values = export(tmp_path)
    assert {product["precision"] for product in values["quantization"].values()} == {"int8"}
    assert values["largest_weight"] == 63
    loaded = tf.saved_model.load(str(tmp_path / "1"))
    kernels = [v.numpy() for v in loaded.weights if v.dtype == tf.int8 and "kernel" in v.name]
    assert kernels and {np.abs(kernel).max() for kernel in kernels} == {63}
    check_answers(tmp_path / "1")


@pytest.mark.night
def test_a_range_leaves_out_outliers_that_the_outputs_do_not_need():
    for weight, is_needed in ((0.0, False), (1.0, True)):
        model = served("regression")
        block = model.model.bert.encoder_layers[0]
        bias, kernel = block.intermediate.bias, block.feed_forward_output.dense.kernel
        bias.assign([50, *bias.numpy()[1:]])  # always an outlier
        kernel.assign([0 * kernel[0] + weight, *kernel[1:]])
        found = quantize(model, calibration_ids(model, ({"text_a": [text]} for text in MOODS[:4])))
        assert found.errors["layer_0/output"] < 0.1
        assert (found.replacements["layer_0/output"].high > 45) == is_needed


def test_weights_of_eight_bits_are_refused_where_their_sums_overflow(processor, exported, tmp_path):
    processor("fpu avx2 avx512_vnni")
    assert largest_weight() == 127
    export_dir = shutil.copytree(exported, tmp_path / "1")
    file = export_dir / "assets.extra" / "export.json"
    values = json.loads(file.read_text()) | {"precision": "int8", "largest_weight": 127}
    file.write_text(json.dumps(values))
    bert_tf.load(export_dir)
    processor("fpu avx2 avx512f")
    with pytest.raises(ValueError) as caught:
        bert_tf.load(export_dir)
    assert str(export_dir) in str(caught.value)


# ------------------------------------------------------------------------------- calibration texts


def calibrated(kind, file):
    model_dir = os.path.dirname(file)
    options = make_options(
        ExportOptions, model_dir=model_dir, export_dir="", precision="int8", calibration_file=file
    )
    return read_calibration(options, served(kind))


@pytest.mark.night
def test_calibration_reads_the_column_of_the_training(tmp_path):
    (tmp_path / "training.json").write_text('{"flags": {"text_a_column": "review"}}')
    (tmp_path / "in.csv").write_text("text,review\ncat,a b c d\ncat,a\n")
    rows = calibrated("classifier", str(tmp_path / "in.csv"))
    assert len({row["input_ids"].size for row in rows}) == 2


@pytest.mark.night
@pytest.mark.parametrize(
    "kind",
    ["windows", *(pytest.param(k, marks=pytest.mark.night) for k in ("pair", "swag"))],
)
def test_calibration_ids_are_those_of_the_python_classes(tmp_path, kind):
    """Every window of a text is one row without padding."""
    file = write_lines(tmp_path / "texts.txt", kind)
    found = sorted(tuple(row["input_ids"].ravel().tolist()) for row in calibrated(kind, file))
    model = bert_tf.load(folder(kind)).text_model
    lines = (tmp_path / "texts.txt").read_text(encoding="utf-8").split("\n")[:-1]
    prepared = [model.prepare(model.parse_line(line)) for line in lines]
    assert len(prepared) > 1
    if kind == "swag":
        rows = [[row.input_ids for row in choices] for _, choices in prepared]
        filled = (pad_rows({"ids": row}, max(map(len, row)))["ids"] for row in rows)
        expected = [ids.ravel().tolist() for ids in filled]
    else:
        expected = [window.input_ids for windows in prepared for window in windows]
    assert found == sorted(map(tuple, expected))


@pytest.mark.night
def test_calibration_ids_of_many_texts_are_the_same_each_time():
    many = [{"text_a": ["cat " * (number % 17 + 1)]} for number in range(MAX_TEXTS + 100)]
    drawn = [calibration_ids(served("encoder"), iter(many)) for _ in range(2)]
    lengths = [[row["input_ids"].shape[1] for row in rows] for rows in drawn]
    assert lengths[0] == lengths[1] and len(lengths[0]) == MAX_TEXTS
    assert lengths[0] != [number % 17 + 3 for number in range(MAX_TEXTS)]  # not the first ones


def test_calibration_file_refuses_what_is_no_input(tmp_path):
    path = tmp_path / "texts.txt"
    for kind, text, place in (
        ("pair", "the cat\tthe dog\na log\n", f"{path}:2"),
        ("classifier", "a\tb\n", f"{path}:1"),
        ("ner", "", str(path)),
    ):
        path.write_text(text)
        with pytest.raises(OptionError) as caught:
            calibrated(kind, str(path))
        assert caught.value.option == "calibration_file" and place in str(caught.value)
