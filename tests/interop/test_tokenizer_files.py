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


def write_tokenizer(
    folder,
    config=None,
    normalizer=None,
    model=None,
    sentences=None,
    added=None,
    special=None,
    **others,
):
    saved = {
        "normalizer": {**SAVED_NORMALIZER, **(normalizer or {})},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "model": {**SAVED_MODEL, "vocab": {"[UNK]": 0, "a": 1}, **(model or {})},
    }
    for name, values in (
        ("tokenizer_config.json", SAVED_CONFIG if config is None else config),
        ("tokenizer.json", {**saved, **others}),
        (
            "sentence_bert_config.json",
            {"max_seq_length": 5, "do_lower_case": False} | (sentences or {}),
        ),
        ("added_tokens.json", added or {}),
        ("special_tokens_map.json", special or {}),
    ):
        (folder / name).write_text(json.dumps(values))
    (folder / "vocab.txt").write_text("[UNK]\na\n")


CASED_CONFIG = {**SAVED_CONFIG, "do_lower_case": False}


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"config": {}},
        {"config": {**SAVED_CONFIG, "strip_accents": True}},
        {"config": {**CASED_CONFIG, "strip_accents": False}},
        {"config": SAVED_CONFIG, "normalizer": {"strip_accents": False}},
        {"config": {**SAVED_CONFIG, "do_basic_tokenize": True, "clean_text": True}},
        {"config": {**SAVED_CONFIG, "do_basic_tokenize": None, "clean_text": None}},
        {"sentences": {"do_lower_case": True}},
        {"added_tokens": [{"id": 0, "content": "[UNK]"}, {"id": 1, "content": "a"}]},
        {"config": {**SAVED_CONFIG, "added_tokens_decoder": {"0": {"content": "[UNK]"}}}},
        {"config": {**SAVED_CONFIG, "additional_special_tokens": None}},
        {"special": {"cls_token": "[CLS]", "sep_token": {"content": "[SEP]"}, "pad_token": None}},
        {"truncation": {"direction": "Right", "max_length": 8}},
        {
            "truncation": {"direction": "Left", "max_length": 8},
            "config": {**SAVED_CONFIG, "truncation_side": "right", "padding_side": "left"},
        },
    ],
)
def test_usual_settings_of_a_tokenizer_are_accepted(tmp_path, files):
    write_tokenizer(tmp_path, **files)
    assert FullTokenizer.from_pretrained(tmp_path).tokenize("a") == ["a"]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (
            {"config": {"tokenizer_class": "BertJapaneseTokenizer"}},
            "'BertJapaneseTokenizer', but wor",
        ),
        (
            {"config": {"word_tokenizer_type": "mecab"}},
            "`word_tokenizer_type` is 'mecab', but words",
        ),
        (
            {"config": {**SAVED_CONFIG, "strip_accents": False}},
            "fig.json: `strip_accents` is False",
        ),
        (
            {"config": {**CASED_CONFIG, "strip_accents": True}},
            "it must equal do_lower_case, which is False",
        ),
        (
            {"config": {}, "normalizer": {"strip_accents": False}},
            r"er\.json: `strip_accents` is False",
        ),
        (
            {"config": {"tokenize_chinese_chars": False}},
            r"fig\.json: Chinese characters are not spl",
        ),
        (
            {"config": {}, "normalizer": {"handle_chinese_chars": False}},
            r"tokenizer\.json: Chinese",
        ),
        (
            {"config": {**SAVED_CONFIG, "do_basic_tokenize": False}},
            "fig.json: `do_basic_tokenize` is False, but words are split",
        ),
        (
            {"config": {**SAVED_CONFIG, "clean_text": False}},
            r"fig\.json: `clean_text` is False, but control characters are removed",
        ),
        (
            {"config": {**SAVED_CONFIG, "clean_text": True}, "normalizer": {"clean_text": False}},
            r"er\.json: `clean_text` is False, but control characters are removed",
        ),
        (
            {"pre_tokenizer": {"type": "Whitespace"}},
            "`pre_tokenizer` is 'Whitespace', but it must be",
        ),
        ({"pre_tokenizer": None}, "`pre_tokenizer` is None, but it must be"),
        ({"model": {"continuing_subword_prefix": "@@"}}, "prefix` is '@@', but it must be '##'"),
        (
            {"config": CASED_CONFIG, "sentences": {"do_lower_case": True}},
            r"sentence_bert_config\.json: `do_lower_case` is true, but the tokenizer",
        ),
        (
            {"added_tokens": [{"content": "covidvax"}, {"content": "a"}, {"content": "[E1]"}]},
            r"er\.json: the tokens covidvax, \[E1\] are added .* convert_checkpoint, which leaves",
        ),
        (
            {"added_tokens": [{"content": f"b{number}"} for number in range(7)]},
            "tokens b0, b1, b2, b3, b4, ... are added",
        ),
        (
            {"config": {"added_tokens_decoder": {"2": {"content": "[E1]", "special": True}}}},
            r"fig\.json: the tokens \[E1\] are added",
        ),
        (
            {"config": {"additional_special_tokens": ["[E1]", {"content": "[E2]"}]}},
            r"fig\.json: the tokens \[E1\], \[E2\] are added",
        ),
        (
            {"config": {**SAVED_CONFIG, "truncation_side": "left"}},
            r"fig\.json: `truncation_side` is 'left', but long texts are cut at their end here",
        ),
        (
            {"truncation": {"direction": "Left", "max_length": 8}},
            r"er\.json: `direction` is 'Left', but long texts",
        ),
        (
            {"config": {**SAVED_CONFIG, "cls_token": "[unused1]"}},
            r"fig\.json: `cls_token` is '\[unused1\]', but it must be '\[CLS\]'",
        ),
        (
            {"special": {"sep_token": {"content": "</s>", "normalized": False}}},
            r"special_tokens_map\.json: `sep_token` is '</s>', but it must be '\[SEP\]'",
        ),
        ({"special": {"unk_token": "<unk>"}}, r"`unk_token` is '<unk>', but it must be '\[UNK\]'"),
        ({"added": {"covidvax": 2, "a": 1}}, r"added_tokens\.json: the tokens covidvax are added"),
        (
            {"added": {"[E1]": 2}, "config": {"additional_special_tokens": ["[E1]"]}},
            r"added_tokens\.json, .*tokenizer_config\.json: the tokens \[E1\] are added",
        ),
    ],
)
def test_settings_that_change_the_tokens_are_refused(tmp_path, files, message):
    write_tokenizer(tmp_path, **files)
    with pytest.raises(ValueError, match=message):
        FullTokenizer.from_pretrained(tmp_path)
    lower = files.get("config", SAVED_CONFIG).get("do_lower_case", True)
    checkpoint = PretrainedCheckpoint(f"{tmp_path}/model.safetensors", {}, vocab=("[UNK]", "a"))
    for given in ((None, lower, checkpoint), (f"{tmp_path}/vocab.txt", lower, None)):
        with pytest.raises(ValueError, match=message):
            load_tokenizer(*given, BertConfig(vocab_size=2))


# `transformers` 5 takes only the vocabulary of tokenizer.json for a BertTokenizer, all for this class.
FROM_FILE = {"tokenizer_class": "PreTrainedTokenizerFast"}
VOCAB = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "##a")


def template(pair_end):
    pieces = [("[CLS]", 0), ("A", 0), ("[SEP]", 0), ("B", 1), *pair_end]
    pieces = [
        {"Sequence" if len(name) == 1 else "SpecialToken": {"id": name, "type_id": segment}}
        for name, segment in pieces
    ]
    return {
        "type": "TemplateProcessing",
        "single": pieces[:3],
        "pair": pieces,
        "special_tokens": {
            token: {"id": token, "ids": [VOCAB.index(token)], "tokens": [token]}
            for token in ("[CLS]", "[SEP]")
        },
    }


BERT_PROCESSING = {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]}
SAVED_TEMPLATE = template([("[SEP]", 1)])


def write_fast(folder, config, model=None, **others):
    ids = {token: index for index, token in enumerate(VOCAB)}
    saved = {
        "normalizer": SAVED_NORMALIZER,
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": SAVED_TEMPLATE,
        "model": {**SAVED_MODEL, "vocab": ids, **(model or {})},
    }
    (folder / "tokenizer.json").write_text(json.dumps({**saved, **others}))
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


UNSUPPORTED_IN_FILE = [
    ({"normalizer": {"type": "Lowercase"}}, "`normalizer` is 'Lowercase', but it must be"),
    (
        {"normalizer": {"type": "Sequence", "normalizers": [{"type": "NFKC"}, SAVED_NORMALIZER]}},
        "`normalizer` is 'Sequence', but it must be",
    ),
    (
        {"normalizer": {**SAVED_NORMALIZER, "strip_accents": False}},
        "`strip_accents` is False, but it must equal do_lower_case, which is True",
    ),
    ({"normalizer": {**SAVED_NORMALIZER, "handle_chinese_chars": False}}, "Chinese characters are"),
    ({"normalizer": None}, "`normalizer` is None, but it must be 'BertNormalizer'"),
    ({"model": {"unk_token": "[MASK]"}}, r"`unk_token` is '\[MASK\]', but it must be '\[UNK\]'"),
    (
        {"model": {"max_input_chars_per_word": 5}},
        "`max_input_chars_per_word` is 5, but .* 200 letters",
    ),
    ({"model": {"max_input_chars_per_word": 1000}}, "`max_input_chars_per_word` is 1000, but "),
    ({"post_processor": None}, "`post_processor` is None, but .* must be .CLS. A .SEP. B .SEP."),
    (
        {"post_processor": {**BERT_PROCESSING, "type": "RobertaProcessing"}},
        "`post_processor` is 'Rob",
    ),
    ({"post_processor": {**BERT_PROCESSING, "cls": ["[MASK]", 4]}}, "`post_processor` is 'BertP"),
    ({"post_processor": {**BERT_PROCESSING, "sep": ["[SEP]", 4]}}, "`post_processor` is 'BertP"),
    ({"post_processor": template([])}, "`post_processor` is 'Templ"),
    ({"post_processor": template([("[SEP]", 0)])}, "`post_processor` is 'Templ"),
    ({"post_processor": {**SAVED_TEMPLATE, "special_tokens": {}}}, "`post_processor` is 'Templ"),
]


@pytest.mark.parametrize(("settings", "message"), UNSUPPORTED_IN_FILE)
def test_settings_of_tokenizer_json_count_if_the_class_follows_it(tmp_path, settings, message):
    write_fast(tmp_path, {**SAVED_CONFIG, "strip_accents": True, **FROM_FILE}, **settings)
    with pytest.raises(ValueError, match=rf"tokenizer\.json: {message}"):
        FullTokenizer.from_pretrained(tmp_path)


@pytest.mark.parametrize(
    "tokenizer_class", [{}, {"tokenizer_class": "BertTokenizerFast"}, {"tokenizer_class": None}]
)
def test_a_bert_tokenizer_takes_only_the_vocabulary_of_tokenizer_json(tmp_path, tokenizer_class):
    config = {**SAVED_CONFIG, "strip_accents": True, **tokenizer_class}
    for settings, _ in UNSUPPORTED_IN_FILE:
        write_fast(tmp_path, config, **settings)
        assert FullTokenizer.from_pretrained(tmp_path).tokenize("A") == ["a"]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"post_processor": BERT_PROCESSING},
        {"model": {"unk_token": "[UNK]", "max_input_chars_per_word": 100}},
        {"model": {"max_input_chars_per_word": 200}},
    ],
)
def test_usual_settings_of_tokenizer_json_are_accepted(tmp_path, settings):
    write_fast(tmp_path, FROM_FILE, **settings)
    assert FullTokenizer.from_pretrained(tmp_path).tokenize("Aa") == ["a", "##a"]


def test_another_token_in_tokenizer_json_is_a_warning(tmp_path, caplog):
    """The published Chinese vocab.txt has a line with U+2028 alone, which is read as ""."""
    words = [f"w{number}" for number in range(40)]
    ids = {token: index for index, token in enumerate((*VOCAB, "\u2028", *words))}
    write_fast(tmp_path, SAVED_CONFIG, {"vocab": ids})
    (tmp_path / "vocab.txt").write_text("\n".join(ids) + "\n", "utf-8")
    assert FullTokenizer.from_pretrained(tmp_path).vocab["w39"] == 47
    assert not caplog.text
    lines = [*VOCAB, "\u2028", "swapped", *words[1:]]
    (tmp_path / "vocab.txt").write_text("\n".join(lines) + "\n", "utf-8")
    assert FullTokenizer.from_pretrained(tmp_path).vocab["swapped"] == 8
    assert "1 of 48 tokens" in caplog.text
    assert "id 8 is 'swapped' in vocab.txt and 'w0' in tokenizer.json" in caplog.text


@pytest.mark.parametrize(("tokenizer_class", "tokens"), [(FROM_FILE, ["[UNK]"]), ({}, ["a"])])
def test_the_case_of_tokenizer_json_counts_if_the_class_follows_it(
    tmp_path, tokenizer_class, tokens
):
    normalizer = {**SAVED_NORMALIZER, "lowercase": False}
    write_fast(tmp_path, {**SAVED_CONFIG, **tokenizer_class}, normalizer=normalizer)
    assert FullTokenizer.from_pretrained(tmp_path).tokenize("A") == tokens
