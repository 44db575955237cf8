"""What we write, opened by `transformers`: no warning, nothing missing, the same logits."""

import json
import logging

import numpy as np
import pytest
from tiny_checkpoints import CONFIG
from tiny_conversions import CASES, arrays_for, convert, head_flags, tf1_folder

from bert_tf.checkpoints.heads import HEADS
from bert_tf.checkpoints.read import read_checkpoint
from bert_tf.tokenization import FullTokenizer
from reference import numpy_bert

transformers = pytest.importorskip("transformers", reason="an optional peer")
torch = pytest.importorskip("torch", reason="an optional peer")

pytestmark = pytest.mark.weekly
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdef", "##b", "ä"]


@pytest.fixture
def exported(tmp_path):
    def export(head, **flags):
        source = tf1_folder(tmp_path / "tf1", arrays_for(head), TOKENS)
        return convert(source, tmp_path / "out", "huggingface", **{**head_flags(head), **flags})

    return export


@pytest.mark.parametrize("head", CASES)
def test_every_head_loads_without_a_warning_and_says_the_same(exported, head, caplog, capfd):
    caplog.set_level(logging.INFO)
    folder = exported(head)
    caplog.clear()
    capfd.readouterr()
    transformers.utils.logging.disable_progress_bar()
    architecture = getattr(transformers, HEADS[head].architecture)
    transformers.utils.logging.enable_propagation()
    model, found = architecture.from_pretrained(folder, output_loading_info=True)
    transformers.utils.logging.disable_propagation()
    assert {key: list(value) for key, value in found.items() if value} == {}
    assert [record.message for record in caplog.records if record.levelno > logging.INFO] == []
    assert capfd.readouterr().err == ""
    assert type(transformers.AutoModel.from_pretrained(folder)).__name__ == "BertModel"
    assert model.config.hidden_act == "gelu_new"


def test_logits_of_transformers_are_those_of_the_numpy_bert(exported):
    folder = exported("classification")
    arrays = read_checkpoint(folder).arrays
    ids = np.random.default_rng(0).integers(0, CONFIG.vocab_size, (2, 7))
    mask = np.ones_like(ids)
    model = transformers.BertForSequenceClassification.from_pretrained(folder).eval()
    with torch.no_grad():
        found = model(torch.tensor(ids)).logits.numpy()
    encoded = numpy_bert.encode(CONFIG, arrays, ids, mask, 0 * ids)
    expected = numpy_bert.classifier_logits(arrays, encoded.pooled_output)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("do_lower_case", [True, False])
def test_tokenizer_splits_as_ours(exported, do_lower_case):
    folder = exported("encoder", do_lower_case=do_lower_case)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    ours = FullTokenizer(str(folder / "vocab.txt"), do_lower_case=do_lower_case)
    assert (tokenizer.model_max_length, tokenizer.mask_token) == (9, "[MASK]")
    for text in ("a b", "A ab ä Ä", "abb, c!d", "中a", "\u00a0b\u200bc", ""):
        pieces = ours.convert_tokens_to_ids(["[CLS]", *ours.tokenize(text), "[SEP]"])
        assert tokenizer(text)["input_ids"] == pieces, text
    assert tokenizer("a", "b")["token_type_ids"] == [0, 0, 0, 1, 1]


def test_what_transformers_saves_comes_back(exported, tmp_path):
    folder = exported("pretraining")
    model = transformers.BertForPreTraining.from_pretrained(folder)
    model.save_pretrained(tmp_path / "saved")
    transformers.AutoTokenizer.from_pretrained(folder).save_pretrained(tmp_path / "saved")
    convert(tmp_path / "saved", tmp_path / "back", "tf1")
    back, expected = read_checkpoint(tmp_path / "back"), read_checkpoint(tmp_path / "tf1")
    assert sorted(back.arrays) == sorted(expected.arrays)
    for name, array in expected.arrays.items():
        np.testing.assert_array_equal(back.arrays[name], array, err_msg=name)
    assert (tmp_path / "back" / "vocab.txt").read_text().split() == TOKENS
    assert json.loads((tmp_path / "saved" / "config.json").read_text())["hidden_act"] == "gelu_new"
