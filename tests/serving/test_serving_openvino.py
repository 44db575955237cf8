"""OpenVINO files in every precision."""

import json
import logging

import numpy as np
import pytest
from tiny_served import MOODS as TEXTS

import bert_tf
from bert_tf.data.packing import pack_texts
from bert_tf.model_folder import load_model
from bert_tf.programs.export_saved_model import ExportOptions, export_saved_model

pytest.importorskip("openvino")
pytest.importorskip("nncf")


@pytest.fixture(scope="module")
def ids(sentence_model):
    tokenizer = load_model(str(sentence_model)).tokenizer
    rows = [pack_texts(tokenizer, text, None, 16) for text in TEXTS[::9]]
    return {
        name: np.array([getattr(row, name) for row in rows], np.int32) for name in rows[0]._fields
    }


@pytest.fixture(scope="module")
def logits(sentence_model, ids):
    return load_model(str(sentence_model)).model(ids)["logits"].numpy()


@pytest.fixture(scope="module")
def folders(sentence_model, tmp_path_factory):
    """Precision -> the export of a classifier."""
    folder = tmp_path_factory.mktemp("openvino")
    texts = folder / "texts.txt"
    texts.write_text("\n".join(TEXTS))
    for precision in ("float32", "bfloat16", "int8"):
        given = {"format": "openvino", "precision": precision, "model_dir": str(sentence_model)}
        if precision == "int8":
            given["calibration_file"] = str(texts)
        export_saved_model(ExportOptions(export_dir=str(folder / precision), **given))
    return folder


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
        assert values["signatures"]["tokens"]["inputs"]["input_ids"]["shape"] == [None, None]
    assert sizes["bfloat16"] < 0.55 * sizes["float32"]
    assert sizes["int8"] < sizes["bfloat16"]


def test_the_handlers_of_the_log_stay(sentence_model, tmp_path):
    root = logging.getLogger()
    before = list(root.handlers), list(root.filters), root.level
    flags = {"model_dir": str(sentence_model), "export_dir": str(tmp_path / "1")}
    export_saved_model(ExportOptions(format="openvino", **flags))
    bert_tf.load(tmp_path / "1")
    assert (list(root.handlers), list(root.filters), root.level) == before
