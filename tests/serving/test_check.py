"""A written export is compared with its model before the folder appears."""

from dataclasses import replace

import pytest
import tensorflow as tf
from export_kinds import served

from bert_tf.serving.check import ExportCheck
from bert_tf.serving.saved_model import write_saved_model
from bert_tf.tokenization import FullTokenizer


def transposed_kernel(model):
    kernel = model.model.bert.encoder_layers[-1].attention_output.dense.kernel
    kernel.assign(kernel.numpy().T)
    return model


def other_case(model):
    tokenizer = FullTokenizer(model.pieces, not model.trained.tokenizer.do_lower_case)
    return replace(model, trained=replace(model.trained, tokenizer=tokenizer))


def ignored_mask(model):
    class IgnoresMask(type(model)):
        def call_model(self, **ids):
            return super().call_model(**ids | {"input_mask": tf.ones_like(ids["input_mask"])})

    return IgnoresMask(model.trained)


@pytest.mark.parametrize(
    "fault",
    [
        transposed_kernel,
        *(pytest.param(f, marks=pytest.mark.night) for f in (other_case, ignored_mask)),
    ],
)
def test_check_of_a_wrong_export_leaves_no_folder(tmp_path, fault):
    model = served("regression")
    check = ExportCheck(model, ["serving_default", "tokens"], "saved_model", "float32")
    model = fault(model)
    with pytest.raises(ValueError, match=r"FullTokenizer|differs from the model"):
        write_saved_model(model, str(tmp_path / "1"), check=check)
    assert not list(tmp_path.iterdir())
