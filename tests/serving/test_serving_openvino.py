"""OpenVINO files in every precision."""

import json
import logging

import numpy as np
import pytest
from models import DATA, golden

import bert_tf
from bert_tf.prediction.loading import load_model
from bert_tf.tokenization import pack_texts

pytest.importorskip("openvino")
pytest.importorskip("nncf")

TEXTS = [line.split("\t")[0] for line in (DATA / "moods/train.tsv").read_text().splitlines()[1:]]


def export(folder, precision):
    given = {"format": "openvino", "precision": precision}
    if precision == "int8":
        (folder / "texts.txt").write_text("\n".join(TEXTS))
        given["calibration_file"] = str(folder / "texts.txt")
    bert_tf.export(golden("classifier"), folder / precision, **given)
    return folder / precision


def test_openvino_files_answer_in_every_precision(tmp_path):
    """Batches of any shape. The folder has all files, and the handlers of the log stay."""
    import openvino

    trained = load_model(str(golden("classifier")))
    rows = [pack_texts(trained.tokenizer, text, None, 16) for text in TEXTS[::9]]
    names = ("input_ids", "input_mask", "segment_ids")
    ids = {name: np.array([getattr(row, name) for row in rows], np.int32) for name in names}
    logits, sizes = trained.model(ids)["logits"].numpy(), []
    root = logging.getLogger()
    before = list(root.handlers), list(root.filters), root.level
    files = ["model.xml", "model.bin", "export.json", "task.json", "bert_config.json"]
    for precision, atol in (("float32", 1e-5), ("bfloat16", 0.05), ("int8", 0.5)):
        folder = export(tmp_path, precision)
        assert {path.name for path in folder.iterdir()} == {*files, "vocab.txt", "labels.txt"}
        sizes.append((folder / "model.bin").stat().st_size)
        values = json.loads((folder / "export.json").read_text())
        assert values["file"] == "model.xml"
        assert values["signatures"]["tokens"]["inputs"]["input_ids"]["shape"] == [None, None]
        hints = {"INFERENCE_PRECISION_HINT": "f32"} if precision == "float32" else {}
        read = openvino.Core().read_model(str(folder / "model.xml"))
        assert {port.get_any_name() for port in read.inputs} == set(ids)
        assert {port.get_any_name() for port in read.outputs} == {"logits", "probabilities"}
        model = openvino.Core().compile_model(read, "CPU", hints)
        np.testing.assert_allclose(model(ids)["logits"], logits, rtol=0, atol=atol)
        length = ids["input_mask"][0].sum()
        alone = model({name: value[:1, :length] for name, value in ids.items()})["logits"]
        np.testing.assert_allclose(alone, logits[:1], rtol=0, atol=atol)
    bert_tf.load(tmp_path / "float32")
    assert (list(root.handlers), list(root.filters), root.level) == before
    assert sizes[1] < 0.55 * sizes[0] and sizes[2] < sizes[1]
