"""create_vocab: a corpus -> vocab.txt and bert_config.json."""

import dataclasses
import gzip

import pytest

from bert_tf.config import BertConfig
from bert_tf.tokenization import SPECIAL_TOKENS, FullTokenizer, load_vocab
from bert_tf.workflows.vocabulary import VocabularyOptions, create_vocab

TEXT = "The tide is low.\nLower tides are wider.\n\nZürich is wide.\n" * 3


@pytest.fixture
def options(tmp_path):
    (tmp_path / "a.txt").write_text(TEXT, encoding="utf-8")
    (tmp_path / "b.txt").write_bytes(gzip.compress(b"A newer tide.\r\n" * 5))
    return VocabularyOptions(
        input_file=f"{tmp_path}/a.txt,{tmp_path}/b*",
        output_dir=str(tmp_path / "new" / "vocab"),
        vocab_size=151,
        model_size="mini",
    )


def test_it_writes_a_vocabulary_that_the_tokenizer_takes_and_a_matching_config(options):
    summary = create_vocab(options)
    vocab = load_vocab(summary.vocab_file, required=SPECIAL_TOKENS)
    config = BertConfig.from_json_file(summary.config_file)
    assert len(vocab) == summary.vocab_size == config.vocab_size == 151
    assert (config.hidden_size, config.num_hidden_layers) == (256, 4)
    tokenizer = FullTokenizer(summary.vocab_file)
    assert tokenizer.tokenize("NEWER Zürich") == ["newer", "z", "##urich"]


def test_it_leaves_two_files_and_says_what_they_are(options, tmp_path, caplog):
    with caplog.at_level("INFO"):
        summary = create_vocab(options)
    written = sorted(path.name for path in (tmp_path / "new" / "vocab").iterdir())
    assert written == ["bert_config.json", "vocab.txt"]
    assert summary.coverage.num_words == 3 * 14 + 5 * 4
    assert f"Wrote 151 tokens to {summary.vocab_file}" in caplog.text
    assert "62 words (13 different ones): 1." in caplog.text
    assert "0.000% unknown words" in caplog.text


def test_the_size_is_rounded_up_to_a_multiple(options):
    summary = create_vocab(dataclasses.replace(options, round_up_to=8))
    assert len(load_vocab(summary.vocab_file)) == summary.vocab_size == 152


def test_a_cased_vocabulary_keeps_capitals_and_accents(options):
    summary = create_vocab(dataclasses.replace(options, do_lower_case=False, vocab_size=160))
    vocab = load_vocab(summary.vocab_file)
    assert {"T", "##ü"} <= set(vocab)
    assert not {"T", "##ü"} & set(
        load_vocab(create_vocab(dataclasses.replace(options, overwrite=True)).vocab_file)
    )


def test_an_existing_vocabulary_is_kept_unless_told_otherwise(options):
    first = create_vocab(options)
    with pytest.raises(ValueError, match=r"vocab\.txt exists, .*--overwrite"):
        create_vocab(options)
    other = dataclasses.replace(options, vocab_size=149, overwrite=True)
    assert create_vocab(other).vocab_file == first.vocab_file
    assert len(load_vocab(first.vocab_file)) == 149


def test_a_corpus_without_text_is_refused(options, tmp_path):
    (tmp_path / "a.txt").write_text("\n \n")
    with pytest.raises(ValueError, match=r"There is no text in .*a\.txt"):
        create_vocab(dataclasses.replace(options, input_file=f"{tmp_path}/a.txt"))


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"vocab_size": 0}, "`vocab_size` is 0"),
        ({"round_up_to": 0}, "`round_up_to` is 0"),
        ({"model_size": "basic"}, "no BERT size named 'basic'; did you mean \"base\""),
    ],
)
def test_options_are_checked_when_made(options, changes, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(options, **changes)


def test_every_option_has_a_help_text():
    assert all(f.metadata["help"] for f in dataclasses.fields(VocabularyOptions))
