"""Settings of Hugging Face's tokenizer files that FullTokenizer lacks, and cased or uncased."""

import json

from helpers import cause_of

from bert_tf.checkpoints.checkpoint import PretrainedCheckpoint
from bert_tf.checkpoints.tokenizer_files import check_case, read_tokenizer_files
from bert_tf.config import BertConfig
from bert_tf.tokenization import FullTokenizer, load_tokenizer
from bert_tf.vocabulary import vocab_is_cased

# As transformers 5.23 saves them for an ordinary BERT.
SAVED_CONFIG = {"do_lower_case": True, "strip_accents": None, "tokenize_chinese_chars": True}
SAVED_CONFIG["tokenizer_class"] = "BertTokenizer"
SAVED_NORMALIZER = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True}
SAVED_NORMALIZER |= {"strip_accents": None, "lowercase": True}
SAVED_MODEL = {"type": "WordPiece", "continuing_subword_prefix": "##"}
# `transformers` 5 takes only the vocabulary of tokenizer.json for a BertTokenizer, all for this class.
FROM_FILE = {"tokenizer_class": "PreTrainedTokenizerFast"}
CASED_CONFIG = {**SAVED_CONFIG, "do_lower_case": False}
VOCAB = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "##a")


def write_tokenizer(
    folder, config=None, normalizer=None, model=None, sentences=None, added=None, **others
):
    ids = {token: index for index, token in enumerate(VOCAB)}
    lowercase = (config or {}).get("do_lower_case", True)
    saved = {
        "normalizer": {**SAVED_NORMALIZER, "lowercase": lowercase, **(normalizer or {})},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "model": {**SAVED_MODEL, "vocab": ids, **(model or {})},
    }
    for name, values in (
        ("tokenizer_config.json", SAVED_CONFIG if config is None else config),
        ("tokenizer.json", {**saved, **others}),
        ("sentence_bert_config.json", {"max_seq_length": 5, **(sentences or {})}),
        ("added_tokens.json", added or {}),
    ):
        (folder / name).write_text(json.dumps(values))


def test_usual_settings_of_a_tokenizer_are_accepted(tmp_path):
    for files in (
        {},
        {"config": {}},
        {"config": {**SAVED_CONFIG, "strip_accents": True, "do_basic_tokenize": True}},
        {"config": {**CASED_CONFIG, "strip_accents": False}},
        {"config": SAVED_CONFIG, "normalizer": {"strip_accents": False}},
        {"sentences": {"do_lower_case": True}},
        {"added_tokens": [{"id": 1, "content": "[UNK]"}, {"id": 5, "content": "a"}]},
        {"config": {**SAVED_CONFIG, "additional_special_tokens": None}},
    ):
        write_tokenizer(tmp_path, **files)
        assert FullTokenizer.from_pretrained(tmp_path).tokenize("aa") == ["a", "##a"]


CONFIG_FILE, JSON_FILE = "tokenizer_config.json", "tokenizer.json"
LENGTH_FILE = "sentence_bert_config.json"
NO_STRIPPING = {"strip_accents": False}


def test_settings_that_change_the_tokens_are_refused(tmp_path):
    for number, (file, files) in enumerate(
        [
            (CONFIG_FILE, {"config": {"tokenizer_class": "BertJapaneseTokenizer"}}),
            (CONFIG_FILE, {"config": {**SAVED_CONFIG, **NO_STRIPPING}}),
            (CONFIG_FILE, {"config": {**CASED_CONFIG, "strip_accents": True}}),
            (CONFIG_FILE, {"config": {"tokenize_chinese_chars": False}}),
            (CONFIG_FILE, {"config": {**SAVED_CONFIG, "do_basic_tokenize": False}}),
            (CONFIG_FILE, {"config": {"added_tokens_decoder": {"2": {"content": "b"}}}}),
            (CONFIG_FILE, {"config": {"additional_special_tokens": ["b", {"content": "c"}]}}),
            (JSON_FILE, {"config": {}, "normalizer": NO_STRIPPING}),
            (JSON_FILE, {"config": FROM_FILE, "normalizer": NO_STRIPPING}),
            (JSON_FILE, {"config": {}, "normalizer": {"handle_chinese_chars": False}}),
            (JSON_FILE, {"model": {"continuing_subword_prefix": "@@"}}),
            (JSON_FILE, {"pre_tokenizer": {"type": "WhitespaceSplit"}}),
            (JSON_FILE, {"pre_tokenizer": None}),
            (JSON_FILE, {"config": FROM_FILE, "normalizer": {"type": "NFC"}}),
            (JSON_FILE, {"added_tokens": [{"content": "covidvax"}, {"content": "a"}]}),
            ("added_tokens.json", {"added": {"covidvax": 2, "a": 1}}),
            (LENGTH_FILE, {"config": CASED_CONFIG, "sentences": {"do_lower_case": True}}),
        ]
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        write_tokenizer(folder, **files)
        lower = files.get("config", SAVED_CONFIG).get("do_lower_case", True)
        tokenizer = read_tokenizer_files(str(folder))
        checkpoint = PretrainedCheckpoint(f"{folder}/model.safetensors", {}, tokenizer=tokenizer)
        assert cause_of(FullTokenizer.from_pretrained, folder) == str(folder / file), files
        arguments = None, lower, checkpoint, BertConfig(vocab_size=7)
        assert cause_of(load_tokenizer, *arguments) == str(folder / file), files


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
    assert "w0" in caplog.text


def test_two_files_that_contradict_each_other_in_case_are_refused(tmp_path):
    write_tokenizer(tmp_path, SAVED_CONFIG, {"lowercase": False})
    assert cause_of(FullTokenizer.from_pretrained, tmp_path) == str(tmp_path / CONFIG_FILE)


# ---- Letter case, by name, files and vocabulary ---------------------------------------------------

WORDS = [a + b + c for a in "abcde" for b in "aeiou" for c in "stuvwx"]  # 150
CASED = dict.fromkeys(["[UNK]", *WORDS, *(word.title() for word in WORDS)])
UNCASED = dict.fromkeys(["[UNK]", "<S>", *WORDS])
UNKNOWN = {"[UNK]": 0}


def accepted_cases(vocab, cases=()):
    accepted = []
    for lower_case in (True, False):
        try:
            check_case(lower_case, cases, vocab)
            accepted.append(lower_case)
        except ValueError:
            pass
    return accepted


def test_case_is_known_from_the_vocabulary():
    assert accepted_cases(UNCASED) == [True]
    assert accepted_cases(CASED) == [False]
    assert accepted_cases(UNKNOWN) == [True, False]


def test_case_of_a_vocabulary():
    for vocab, is_cased in (
        (CASED, True),
        (UNCASED, False),
        (WORDS[:99], None),  # too few to tell
        ([*WORDS, "Aes"], None),  # one upper-case word in 151 is noise
        ([*WORDS, "straße", "äst"], None),  # lower-cased by other means: accents are there
        (["漢", "字", *"123"] * 50, None),
        ([f"[unused{i}]" for i in range(500)], None),
    ):
        assert vocab_is_cased(vocab) is is_cased


def test_case_is_known_from_the_configuration_beside_the_checkpoint(tmp_path):
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": false, "model_max": 5}')
    cases = read_tokenizer_files(str(tmp_path)).cases
    assert accepted_cases(UNCASED, cases) == [False]
