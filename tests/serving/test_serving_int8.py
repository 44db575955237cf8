"""SavedModels whose products are of 8-bit integers."""

import json
import logging
import shutil

import numpy as np
import pytest
import tensorflow as tf
from test_serving_openvino import INPUTS, TEXTS, served, trained, write_texts

from bert_tf.model_folder import load_model_folder
from bert_tf.modeling.inference_layout import WORDS, products
from bert_tf.predictor import Predictor
from bert_tf.programs.calibration_file import _records, read_calibration
from bert_tf.programs.export_saved_model import ExportOptions, export_saved_model
from bert_tf.programs.model_to_export import load_served
from bert_tf.serving import quantization
from bert_tf.serving.calibration import recorded_ids
from bert_tf.serving.quantization import check_int8, largest_weight, quantize
from bert_tf.serving.saved_model import write_saved_model
from bert_tf.training import strategy

WARNINGS = ("are [UNK]", "not in the records of the training")


def export(model_dir, folder, **options):
    given = {"precision": "int8", "calibration_file": write_texts(folder, TEXTS), **options}
    export_saved_model(
        ExportOptions(model_dir=str(model_dir), export_dir=str(folder / "1"), **given)
    )
    return json.loads((folder / "1" / "assets.extra" / "export.json").read_text())


def test_an_export_answers_nearly_like_the_model_and_describes_each_product(
    sentence_model, tmp_path
):
    values = export(sentence_model, tmp_path, keep_precision="layer_1/output")
    model = load_model_folder(str(sentence_model)).model
    described = values["quantization"]
    assert list(described) == [WORDS, *products(model)]
    assert all(0 < product["error"] < 0.1 for product in described.values())
    floats = [name for name, product in described.items() if product["precision"] != "int8"]
    assert floats == ["layer_1/output"]
    assert "_QuantizedMatMul" not in values["custom_ops"]  # TensorFlow has it
    served = Predictor(str(tmp_path / "1")).predict(TEXTS)
    for found, expected in zip(served, Predictor(str(sentence_model)).predict(TEXTS), strict=True):
        assert found["label"] == expected["label"]
        assert found["probabilities"] == pytest.approx(expected["probabilities"], abs=0.05)
    loaded = tf.saved_model.load(str(tmp_path / "1"))
    int8 = [v for v in loaded.weights if v.dtype == tf.int8]
    assert len(int8) == len(described) - 1


def test_texts_with_other_words_than_the_training_are_reported(sentence_model, tmp_path, caplog):
    records = str(sentence_model / "train.tf_record")
    given = ExportOptions(model_dir=str(sentence_model), export_dir="unused", precision="int8")
    model = load_served(given, "float32")
    vocabulary = list(load_model_folder(str(sentence_model)).tokenizer.vocab)
    trained = {id for batch in _records(model, [records]) for id in batch["input_ids"].flat}
    unseen = [piece for id, piece in enumerate(vocabulary) if id not in trained and piece.isalpha()]
    usual = [" ".join(vocabulary[id] for id in sorted(trained) if vocabulary[id].isalpha())] * 20
    for texts, warnings in (
        (usual, []),
        ([" ".join(unseen)] * 20, ["not in the records of the training"]),
        ([f"☃ ☃ ☃ {usual[0]}"] * 20, ["are [UNK]"]),
    ):
        caplog.clear()
        read_calibration(model, write_texts(tmp_path, texts), trained_on=records)
        assert [words for words in WARNINGS if words in caplog.text] == warnings


def test_records_of_a_task_are_not_for_an_encoder(sentence_model, tmp_path):
    records = str(sentence_model / "train.tf_record")
    with pytest.raises(ValueError, match=r"train\.tf_record.*no task.*Give texts"):
        export(sentence_model, tmp_path, calibration_file=records, head="encoder")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["pair", "questions", "crf", "choices", "masks"])
def test_every_type_of_task_is_exported(tmp_path, kind):
    model = served(kind)
    requests = model.examples()["serving_default"]
    ids = recorded_ids(model, requests)
    found = quantize(model, ids)
    write_saved_model(model, str(tmp_path / "1"), precision="int8", quantization=found)
    answers = Predictor(str(tmp_path / "1")).predict(INPUTS[kind])
    assert len(answers) == len(Predictor(trained(kind)).predict(INPUTS[kind]))
    first = dict(ids[0])
    if kind == "crf":
        first["word_positions"] = np.array([[1, 2]], "int32")
    outputs = tf.saved_model.load(str(tmp_path / "1")).signatures["tokens"](
        **{name: tf.constant(value) for name, value in first.items()}
    )
    for name, value in served(kind).tokens(**first).items():
        if value.dtype == tf.float32:
            scale = max(1.0, float(np.abs(value).max()))
            np.testing.assert_allclose(outputs[name], value, rtol=0, atol=0.1 * scale)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"device": "any"}, "CPUs, but `device` is any.*bfloat16"),
        ({"keep_precision": "layer_9/output"}, "layer_9/output.*layer_0/query_key_value"),
    ],
)
def test_what_cannot_be_quantized_is_refused(sentence_model, tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        export(sentence_model, tmp_path, **options)
    assert not (tmp_path / "1").exists()


@pytest.mark.parametrize("precision", ["float32", "auto"])
def test_products_are_named_for_an_int8_saved_model_only(precision):
    given = {"model_dir": "a", "export_dir": "b", "precision": precision}
    with pytest.raises(ValueError, match=r"keep_precision is layer_0/output.*precision=int8"):
        ExportOptions(keep_precision="layer_0/output", **given)


@pytest.mark.parametrize("precision", ["float32", "int8"])
@pytest.mark.parametrize("format", ["saved_model", "tflite"])
def test_an_export_is_no_model_to_export_in_any_precision(exported, tmp_path, format, precision):
    folder = exported.single
    if format == "tflite":  # only the files that identify an export
        folder = tmp_path / "lite"
        folder.mkdir()
        for name in ("export.json", "model.tflite"):
            (folder / name).write_text("{}")
    message = (
        rf"{folder} is an export of export_saved_model.* Give the model folder that it was made"
    )
    with pytest.raises(ValueError, match=message):
        export(folder, tmp_path, precision=precision, calibration_file=None)


def test_a_missing_model_is_named_before_missing_texts(tmp_path):
    for format in ("saved_model", "openvino"):
        with pytest.raises(FileNotFoundError, match=r"There is no checkpoint .*absent"):
            ExportOptions(
                model_dir=str(tmp_path / "absent"), export_dir="b", format=format, precision="int8"
            )


def test_a_tensorflow_without_the_operation_is_refused(monkeypatch):
    monkeypatch.setattr(quantization.op_def_registry, "get", lambda name: None)
    with pytest.raises(ValueError, match=r"_QuantizedMatMul.*format=onnx"):
        check_int8()


@pytest.fixture
def processor(monkeypatch, tmp_path):
    """Return a function that gives this machine a processor with other instructions."""

    def set_flags(flags):
        (tmp_path / "cpuinfo").write_text(f"flags\t: {flags}\n")
        monkeypatch.setattr(strategy, "CPU_INFO", tmp_path / "cpuinfo")

    return set_flags


def test_a_processor_without_an_instruction_gets_seven_bits_and_the_records_of_the_training_are_used(
    processor, sentence_model, tmp_path, caplog
):
    records = sentence_model / "train.tf_record"
    assert records.exists()
    processor("fpu avx2 avx512f")
    with caplog.at_level(logging.INFO):
        metadata = export(sentence_model, tmp_path, calibration_file=None)
    assert f"texts of {records} (the records of the training)" in caplog.text
    assert {product["precision"] for product in metadata["quantization"].values()} == {"int8"}
    assert metadata["largest_weight"] == 63
    assert "none of avx512_vnni, avx_vnni, amx_int8. Weights get 7 bits" in caplog.text
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
