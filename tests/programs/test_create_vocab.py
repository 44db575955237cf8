"""create_vocab: a corpus -> vocab.txt and bert_config.json."""

import dataclasses
import gzip
import hashlib
import os
import re
from pathlib import Path

import pytest

from bert_tf.config import BertConfig
from bert_tf.interop.sidecar import vocab_is_cased
from bert_tf.pretraining.wordpieces import first_tokens
from bert_tf.programs.create_vocab import VocabularyOptions, create_vocab
from bert_tf.tokenization import SPECIAL_TOKENS, FullTokenizer
from bert_tf.vocabulary import load_vocab

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


def test_it_leaves_three_files_and_says_what_they_are(options, tmp_path, caplog):
    with caplog.at_level("INFO"):
        summary = create_vocab(options)
    written = sorted(path.name for path in (tmp_path / "new" / "vocab").iterdir())
    assert written == ["bert_config.json", "tokenizer_config.json", "vocab.txt"]
    assert summary.coverage.num_words == 3 * 14 + 5 * 4
    assert f"Wrote 151 tokens to {summary.vocab_file}" in caplog.text
    assert "62 words (13 different ones): 1." in caplog.text
    assert "0.000% unknown words" in caplog.text


@pytest.mark.parametrize("vocab_size, expected", [(131, 192), (192, 192), (193, 256)])
def test_the_size_is_rounded_up_to_a_multiple(options, tmp_path, vocab_size, expected):
    words = (f"{a}{b}{c}" for a in "abcde" for b in "fghij" for c in "klmno")
    (tmp_path / "a.txt").write_text(" ".join(words))
    options = dataclasses.replace(
        options, input_file=f"{tmp_path}/a.txt", round_up_to=64, min_frequency=1
    )
    summary = create_vocab(dataclasses.replace(options, vocab_size=vocab_size))
    assert len(load_vocab(summary.vocab_file)) == summary.vocab_size == expected
    assert BertConfig.from_json_file(summary.config_file).vocab_size == expected


def test_a_cased_vocabulary_keeps_capitals_and_accents(options):
    summary = create_vocab(dataclasses.replace(options, do_lower_case=False, vocab_size=160))
    vocab = load_vocab(summary.vocab_file)
    assert {"T", "##ü"} <= set(vocab)
    assert not {"T", "##ü"} & set(
        load_vocab(create_vocab(dataclasses.replace(options, overwrite=True)).vocab_file)
    )


def test_a_vocabulary_that_the_next_run_would_count_is_an_error(options, tmp_path):
    inside = dataclasses.replace(options, input_file=str(tmp_path), overwrite=True)
    with pytest.raises(ValueError, match=r"vocab\.txt would be one of the files of input_file="):
        create_vocab(inside)


def test_an_existing_vocabulary_is_kept_unless_told_otherwise(options):
    first = create_vocab(options)
    with pytest.raises(ValueError, match=r"vocab\.txt exists, .*`overwrite`"):
        create_vocab(options)
    other = dataclasses.replace(options, vocab_size=149, overwrite=True)
    assert create_vocab(other).vocab_file == first.vocab_file
    assert len(load_vocab(first.vocab_file)) == 149


def test_a_size_that_does_not_fit_is_named_with_its_rounding(options):
    message = r"yields \d+ tokens .* Any size is raised to a multiple of round_up_to=64\."
    with pytest.raises(ValueError, match=message):
        create_vocab(dataclasses.replace(options, vocab_size=500, round_up_to=64))


def test_a_corpus_without_text_is_refused(options, tmp_path):
    (tmp_path / "a.txt").write_text("\n \n")
    with pytest.raises(ValueError, match=r"There is no text in .*a\.txt"):
        create_vocab(dataclasses.replace(options, input_file=f"{tmp_path}/a.txt"))


def test_output_of_wikiextractor_is_an_error_that_names_prepare_corpus(options, tmp_path):
    (tmp_path / "a.txt").write_text('<doc id="5" title="T">\nT\n\nThe dog barked.\n</doc>\n')
    with pytest.raises(ValueError, match=r"a\.txt is the output of WikiExtractor.*prepare_corpus"):
        create_vocab(options)


def test_bytes_that_are_not_utf8_are_named_with_file_and_offset(options, tmp_path, caplog):
    (tmp_path / "a.txt").write_bytes(b"low tide\nZ\xfcrich\n" + TEXT.encode())
    message = r"a\.txt:2: .* byte 0xfc at offset 10 of the file .*errors=replace"
    with pytest.raises(ValueError, match=message):
        create_vocab(options)
    assert not list((tmp_path / "new" / "vocab").iterdir())
    assert not caplog.records


def test_bytes_that_are_not_utf8_are_left_out_when_asked(options, tmp_path, caplog):
    (tmp_path / "a.txt").write_bytes(b"low tide\nZ\xfcrich\n" + TEXT.encode())
    summary = create_vocab(dataclasses.replace(options, errors="replace"))
    assert summary.coverage.num_words == 3 + 3 * 14 + 5 * 4
    vocab = load_vocab(summary.vocab_file)
    assert "zurich" in FullTokenizer(summary.vocab_file).tokenize("Zürich") or "##rich" in vocab
    assert not any("\ufffd" in token for token in vocab)
    assert "In 1 lines, bytes that are not UTF-8 were left out." in caplog.text


def test_a_file_that_was_cut_off_is_named_without_a_flag_that_would_not_help(options, tmp_path):
    data = (tmp_path / "b.txt").read_bytes()
    (tmp_path / "b.txt").write_bytes(data[:-4])
    with pytest.raises(ValueError, match=r"b\.txt .*gzip.* Copy it again\.$"):
        create_vocab(dataclasses.replace(options, do_lower_case=False))


def test_an_empty_file_is_named_and_the_others_are_read(options, tmp_path, caplog):
    (tmp_path / "b2.txt").write_text("")
    assert create_vocab(options).coverage.num_words == 3 * 14 + 5 * 4
    assert f"{tmp_path}/b2.txt is empty." in caplog.text


def test_a_line_of_a_megabyte_is_counted_with_a_warning(options, tmp_path, caplog):
    with (tmp_path / "a.txt").open("a", encoding="utf-8") as file:
        file.write("low tide " * 120_000 + "\n" + "x" * 1_000_001)
    options = dataclasses.replace(options, character_coverage=1.0)
    assert create_vocab(options).coverage.num_words == 3 * 14 + 240_000 + 1 + 5 * 4
    assert "A line of 1,080,000 characters, which begins 'low tide low" in caplog.text
    assert "2 lines have more than 1,000,000 characters." in caplog.text


@pytest.mark.parametrize("output_dir", ["a.txt", "a.txt/vocab"])
def test_a_folder_that_cannot_be_written_to_is_found_before_the_work(options, tmp_path, output_dir):
    (tmp_path / "a.txt").write_bytes(b"\xff")  # would be the next error
    message = "Cannot write into output_dir="
    with pytest.raises(ValueError, match=message):
        create_vocab(dataclasses.replace(options, output_dir=str(tmp_path / output_dir)))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_the_right_to_write_is_refused(options, tmp_path):
    (tmp_path / "locked").mkdir(mode=0o500)
    with pytest.raises(ValueError, match="Cannot write into"):
        create_vocab(dataclasses.replace(options, output_dir=str(tmp_path / "locked")))


def test_a_file_that_is_named_twice_counts_twice(options, tmp_path):
    files = ",".join([f"{tmp_path}/a.txt"] * 3)
    assert create_vocab(dataclasses.replace(options, input_file=files)).coverage.num_words == 126


def test_rows_are_kept_free_behind_mask(options):
    summary = create_vocab(dataclasses.replace(options, num_unused_tokens=111))
    assert load_vocab(summary.vocab_file)["[unused110]"] == 115
    assert summary.vocab_size == 151


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"model_size": "basic"}, "BERT size 'basic'; did you mean \"base\""),
    ],
)
def test_options_are_checked_when_made(options, changes, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(options, **changes)


# The vocabularies in vocab/

LEARNED = Path(__file__).parents[2] / "vocab"


def rows_of_the_readme():
    """(file, number of tokens, do_lower_case, sha256) of each vocabulary that vocab/README.md lists."""
    row = re.compile(r"\| `(\w+/vocab\.txt)` \| ([\d,]+) \| (\w+) \| `([0-9a-f]{64})` \|")
    return [
        (file, int(size.replace(",", "")), case == "uncased", digest)
        for file, size, case, digest in row.findall((LEARNED / "README.md").read_text("utf-8"))
    ]


def test_the_readme_lists_every_vocabulary():
    listed = [file for file, *_ in rows_of_the_readme()]
    assert listed == ["uncased_30522/vocab.txt", "cased_28996/vocab.txt"]
    assert {LEARNED / file for file in listed} == set(LEARNED.glob("**/vocab.txt"))


@pytest.mark.parametrize("file, vocab_size, do_lower_case, digest", rows_of_the_readme())
def test_a_committed_vocabulary_is_what_the_readme_says(file, vocab_size, do_lower_case, digest):
    data = (LEARNED / file).read_bytes()
    assert hashlib.sha256(data).hexdigest() == digest
    tokens = data.decode("utf-8").removesuffix("\n").split("\n")
    assert len(tokens) == len(set(tokens)) == vocab_size
    assert tokens[:106] == first_tokens()
    config = BertConfig.from_json_file(LEARNED / file.replace("vocab.txt", "bert_config.json"))
    assert config == BertConfig.from_name("base", vocab_size=vocab_size)
    assert vocab_is_cased(tokens) is not do_lower_case
    tokenizer = FullTokenizer(LEARNED / file, do_lower_case=do_lower_case)
    assert list(tokenizer.vocab) == tokens
    ascii_text = "".join(map(chr, range(33, 127)))
    assert "[UNK]" not in tokenizer.tokenize(" ".join(ascii_text) + " “Zürich” – " + ascii_text)
    assert tokenizer.tokenize("the history of the city") == ["the", "history", "of", "the", "city"]


def korean(options, tmp_path, **changes):
    """Options for a Korean text."""
    (tmp_path / "a.txt").write_text("한국어는 아름답다\n서울은 수도이다\n" * 50, encoding="utf-8")
    return dataclasses.replace(options, input_file=f"{tmp_path}/a.txt", vocab_size=145, **changes)


def test_letters_that_an_uncased_vocabulary_takes_apart_are_named(options, tmp_path, caplog):
    create_vocab(korean(options, tmp_path))
    assert "100% of its letters (Hangul) are changed: '한국어는' becomes 'ᄒ ᅡ ᆫ" in caplog.text
    assert "learn the vocabulary with --do_lower_case=False" in caplog.text


@pytest.mark.parametrize("cased", [True, False])
def test_there_is_no_word_of_it_for_a_cased_vocabulary_or_a_rare_accent(
    options, tmp_path, caplog, cased
):
    if cased:
        options = korean(options, tmp_path, do_lower_case=False)
    else:
        text = f"Zürich is wide.\n{TEXT.replace('Zürich', 'Zurich') * 20}"
        (tmp_path / "a.txt").write_text(text, encoding="utf-8")
    create_vocab(options)
    assert "do_lower_case" not in caplog.text


def test_characters_that_are_left_out_are_counted(options, tmp_path, caplog):
    caplog.set_level("INFO")
    options = korean(options, tmp_path, do_lower_case=False)
    create_vocab(
        dataclasses.replace(options, character_coverage=0.9, vocab_size=135, overwrite=True)
    )
    assert "1 of the 14 characters are left out by --character_coverage=0.9." in caplog.text
    assert "They are 6.667% of the text" in caplog.text
    caplog.clear()
    create_vocab(dataclasses.replace(options, overwrite=True))
    assert "left out" not in caplog.text


def test_the_case_of_another_tokenizer_is_not_overwritten(options):
    file = Path(options.output_dir) / "tokenizer_config.json"
    file.parent.mkdir(parents=True)
    file.write_text('{"do_lower_case": false}')
    with pytest.raises(ValueError, match=r"tokenizer_config\.json exists, .*overwrite"):
        create_vocab(options)
    assert file.read_text() == '{"do_lower_case": false}'
    assert [path.name for path in file.parent.iterdir()] == [file.name]
