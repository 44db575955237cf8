"""A written export is compared with its model before the folder appears."""

import pytest
import tensorflow as tf
from tiny_served import INPUTS, served

from bert_tf.programs.export_saved_model import ExportOptions, export_saved_model
from bert_tf.serving import saved_model
from bert_tf.serving.check import ExportCheck
from bert_tf.serving.formats import write_lite, write_onnx, write_openvino
from bert_tf.serving.saved_model import default_signatures, write_saved_model
from bert_tf.text_ops.tokenizer import GraphTokenizer

SLOW = set(INPUTS) - {"single", "crf"}


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.night] * (kind in SLOW)) for kind in INPUTS]
)
def test_a_saved_model_of_every_type_answers_as_the_model(tmp_path, kind):
    model = served(kind)
    signatures = [*default_signatures(model), "tf_example"]
    check = ExportCheck(model, signatures, "saved_model", "float32")
    values = write_saved_model(model, str(tmp_path / "1"), signatures, check=check)
    assert list(values["differences"]) == [*model.text_functions(), "tokens", "tf_example"]
    for outputs in values["differences"].values():
        assert outputs and all(0 <= difference < 1e-4 for difference in outputs.values())


@pytest.mark.night
@pytest.mark.parametrize("kind", ["choices", "masks", "crf"])
@pytest.mark.parametrize(
    "format, write, module",
    [
        ("tflite", write_lite, "tensorflow"),
        ("onnx", write_onnx, "tf2onnx"),
        ("openvino", write_openvino, "openvino"),
    ],
)
def test_a_file_answers_as_the_model(tmp_path, kind, format, write, module):
    pytest.importorskip(module)
    model = served(kind)
    check = ExportCheck(model, ["tokens"], format, "float32")
    assert write(model, str(tmp_path / "1"), check=check)["differences"]["tokens"]


def transposed_kernel(model):
    kernel = model.model.bert.encoder_layers[-1].attention_output.dense.kernel
    kernel.assign(kernel.numpy().T)


def other_case(model):
    model.tokenizer = GraphTokenizer(model.vocabulary, not model.do_lower_case)


def ignored_mask(model):
    call = model.call_model
    model.call_model = lambda **ids: call(**ids | {"input_mask": tf.ones_like(ids["input_mask"])})


@pytest.mark.parametrize("fault", [transposed_kernel, other_case, ignored_mask])
def test_a_wrong_export_leaves_no_folder(tmp_path, fault):
    model = served("single")
    check = ExportCheck(model, ["serving_default", "tokens"], "saved_model", "float32")
    fault(model)
    with pytest.raises(ValueError, match=r"FullTokenizer|differs from the model"):
        write_saved_model(model, str(tmp_path / "1"), check=check)
    assert not list(tmp_path.iterdir())


def test_the_program_compares(sentence_model, tmp_path, monkeypatch):
    prepare = saved_model.Served.prepare

    def damaging(served, *arguments):
        transposed_kernel(served)
        prepare(served, *arguments)

    monkeypatch.setattr(saved_model.Served, "prepare", damaging)
    options = {"model_dir": str(sentence_model), "export_dir": str(tmp_path / "new" / "1")}
    with pytest.raises(ValueError, match="differs from the model"):
        export_saved_model(ExportOptions(signature="tokens", **options))
    assert not list(tmp_path.iterdir())
