"""OpenVINO files in every precision."""

import json
import logging

import numpy as np
import pytest
from models import DATA, golden

import bert_tf
from bert_tf.data.packing import pack_texts
from bert_tf.model_folder import load_model

pytest.importorskip("openvino")
pytest.importorskip("nncf")

TEXTS = [line.split("\t")[0] for line in (DATA / "moods/train.tsv").read_text().splitlines()[1:]]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Precision -> the export of a classifier. The handlers of the log stay."""
    folder = tmp_path_factory.mktemp("openvino")
    (folder / "texts.txt").write_text("\n".join(TEXTS))
    root = logging.getLogger()
    before = list(root.handlers), list(root.filters), root.level
    for precision in ("float32", "bfloat16", "int8"):
        given = {"format": "openvino", "precision": precision}
        if precision == "int8":
            given["calibration_file"] = str(folder / "texts.txt")
        bert_tf.export(golden("classifier"), folder / precision, **given)
    bert_tf.load(folder / "float32")
    assert (list(root.handlers), list(root.filters), root.level) == before
    return folder


@pytest.mark.parametrize("precision, atol", [("float32", 1e-5), ("bfloat16", 0.05), ("int8", 0.5)])
def test_openvino_file_answers_batches_of_any_shape(folders, precision, atol):
    import openvino

    trained = load_model(str(golden("classifier")))
    rows = [pack_texts(trained.tokenizer, text, None, 16) for text in TEXTS[::9]]
    names = ("input_ids", "input_mask", "segment_ids")
    ids = {name: np.array([getattr(row, name) for row in rows], np.int32) for name in names}
    logits = trained.model(ids)["logits"].numpy()
    hints = {"INFERENCE_PRECISION_HINT": "f32"} if precision == "float32" else {}
    read = openvino.Core().read_model(str(folders / precision / "model.xml"))
    assert {port.get_any_name() for port in read.inputs} == set(ids)
    assert {port.get_any_name() for port in read.outputs} == {"logits", "probabilities"}
    model = openvino.Core().compile_model(read, "CPU", hints)
    np.testing.assert_allclose(model(ids)["logits"], logits, rtol=0, atol=atol)
    length = ids["input_mask"][0].sum()
    alone = model({name: value[:1, :length] for name, value in ids.items()})["logits"]
    np.testing.assert_allclose(alone, logits[:1], rtol=0, atol=atol)


def test_openvino_folder_has_all_files_and_int8_is_smaller(folders):
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
