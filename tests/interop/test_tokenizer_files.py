"""Settings of Hugging Face's tokenizer files that FullTokenizer does not have."""

import json

import pytest

from bert_tf.config import BertConfig
from bert_tf.interop.checkpoint import PretrainedCheckpoint
from bert_tf.interop.sidecar import load_tokenizer
from bert_tf.tokenization import FullTokenizer

# As transformers 5.23 saves them for an ordinary BERT.
SAVED_CONFIG = {
    "do_lower_case": True,
    "strip_accents": None,
    "tokenize_chinese_chars": True,
    "tokenizer_class": "BertTokenizer",
}
SAVED_NORMALIZER = {
    "type": "BertNormalizer",
    "clean_text": True,
    "handle_chinese_chars": True,
    "strip_accents": None,
    "lowercase": True,
}
SAVED_MODEL = {"type": "WordPiece", "continuing_subword_prefix": "##"}


# `transformers` 5 takes only the vocabulary of tokenizer.json for a BertTokenizer, all for this class.
FROM_FILE = {"tokenizer_class": "PreTrainedTokenizerFast"}
CASED_CONFIG = {**SAVED_CONFIG, "do_lower_case": False}
VOCAB = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "##a")


def write_tokenizer(
    folder, config=None, normalizer=None, model=None, sentences=None, added=None, **others
):
    ids = {token: index for index, token in enumerate(VOCAB)}
    saved = {
        "normalizer": {**SAVED_NORMALIZER, **(normalizer or {})},
        "model": {**SAVED_MODEL, "vocab": ids, **(model or {})},
    }
    for name, values in (
        ("tokenizer_config.json", SAVED_CONFIG if config is None else config),
        ("tokenizer.json", {**saved, **others}),
        ("sentence_bert_config.json", {"max_seq_length": 5, **(sentences or {})}),
        ("added_tokens.json", added or {}),
    ):
        (folder / name).write_text(json.dumps(values))


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"config": {}},
        {"config": {**SAVED_CONFIG, "strip_accents": True}},
        {"config": {**CASED_CONFIG, "strip_accents": False}},
        {"config": SAVED_CONFIG, "normalizer": {"strip_accents": False}},
        {"sentences": {"do_lower_case": True}},
        {"added_tokens": [{"id": 1, "content": "[UNK]"}, {"id": 5, "content": "a"}]},
        {"config": {**SAVED_CONFIG, "additional_special_tokens": None}},
    ],
)
def test_usual_settings_of_a_tokenizer_are_accepted(tmp_path, files):
    write_tokenizer(tmp_path, **files)
    assert FullTokenizer.from_pretrained(tmp_path).tokenize("aa") == ["a", "##a"]


@pytest.mark.parametrize(
    ("files", "setting"),
    [
        ({"config": {"tokenizer_class": "BertJapaneseTokenizer"}}, "fig.json: `tokenizer_class`"),
        ({"config": {**SAVED_CONFIG, "strip_accents": False}}, "fig.json: `strip_accents`"),
        ({"config": {**CASED_CONFIG, "strip_accents": True}}, "fig.json: `strip_accents`"),
        ({"config": {}, "normalizer": {"strip_accents": False}}, "er.json: `strip_accents`"),
        ({"config": FROM_FILE, "normalizer": {"strip_accents": False}}, "er.json: `strip_accents`"),
        ({"config": {"tokenize_chinese_chars": False}}, "fig.json: `tokenize_chinese"),
        ({"config": {}, "normalizer": {"handle_chinese_chars": False}}, "er.json: `tokenize_chin"),
        ({"model": {"continuing_subword_prefix": "@@"}}, "er.json: `continuing_subword_prefix`"),
        (
            {"config": CASED_CONFIG, "sentences": {"do_lower_case": True}},
            "sentence_bert_config.json: `do_lower_case`",
        ),
        ({"added_tokens": [{"content": "covidvax"}, {"content": "a"}]}, "er.json: .* covidvax"),
        ({"config": {"added_tokens_decoder": {"2": {"content": "b"}}}}, "fig.json: .* b "),
        ({"config": {"additional_special_tokens": ["b", {"content": "c"}]}}, "fig.json: .* b, c "),
        ({"added": {"covidvax": 2, "a": 1}}, "added_tokens.json: .* covidvax"),
    ],
)
def test_settings_that_change_the_tokens_are_refused(tmp_path, files, setting):
    write_tokenizer(tmp_path, **files)
    with pytest.raises(ValueError, match=setting):
        FullTokenizer.from_pretrained(tmp_path)
    lower = files.get("config", SAVED_CONFIG).get("do_lower_case", True)
    checkpoint = PretrainedCheckpoint(f"{tmp_path}/model.safetensors", {}, vocab=VOCAB)
    with pytest.raises(ValueError, match=setting):
        load_tokenizer(None, lower, checkpoint, BertConfig(vocab_size=7))


def test_another_token_in_tokenizer_json_is_a_warning(tmp_path, caplog):
    """The published Chinese vocab.txt has a line with U+2028 alone, which is read as ""."""
    words = [f"w{number}" for number in range(40)]
    ids = {token: index for index, token in enumerate((*VOCAB, "\u2028", *words))}
    write_tokenizer(tmp_path, model={"vocab": ids})
    (tmp_path / "vocab.txt").write_text("\n".join(ids) + "\n", "utf-8")
    assert FullTokenizer.from_pretrained(tmp_path).vocab["w39"] == 47
    assert not caplog.text
    lines = [*VOCAB, "\u2028", "swapped", *words[1:]]
    (tmp_path / "vocab.txt").write_text("\n".join(lines) + "\n", "utf-8")
    assert FullTokenizer.from_pretrained(tmp_path).vocab["swapped"] == 8
    assert "1 of 48 tokens, such as w0" in caplog.text


@pytest.mark.parametrize(("tokenizer_class", "tokens"), [(FROM_FILE, ["[UNK]"]), ({}, ["a"])])
def test_the_case_of_tokenizer_json_counts_if_the_class_follows_it(
    tmp_path, tokenizer_class, tokens
):
    write_tokenizer(tmp_path, {**SAVED_CONFIG, **tokenizer_class}, {"lowercase": False})
    assert FullTokenizer.from_pretrained(tmp_path).tokenize("A") == tokens
