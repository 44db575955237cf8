"""What is seen at the beginning of a corpus."""

import os

import pytest

from bert_tf.pretraining.corpus_sample import sample_lines
from bert_tf.pretraining.settings import RecordSettings


@pytest.fixture
def corpus(tmp_path):
    def write(text):
        path = tmp_path / "a.txt"
        path.write_text(text, encoding="utf-8", newline="")
        return [str(path)]

    return write


def test_a_corpus_with_carriage_returns_only_is_an_error_with_a_remedy(corpus):
    assert sample_lines(corpus("abc.\r\ndef.\r\n")) == ["abc.", "def."]
    with pytest.raises(ValueError, match=r"a\.txt: the file has no line feed; .*tr '"):
        sample_lines(corpus("abc def.\rghi abc.\r\rabc\r"))


@pytest.mark.parametrize("end", ["}\n", ', "text": "' + "low tide " * 10**6 + '"}'])
def test_json_lines_with_other_keys_than_text_are_an_error_with_a_remedy(corpus, end):
    line = '{"content": "The dog.", "metadata": {"id": null' + " " * 1000 + "}" + end
    with pytest.raises(ValueError, match=r'a\.txt is JSON: .*Rename the key .* to "text".*prepare'):
        sample_lines(corpus("\n" + line))


@pytest.mark.parametrize(
    "line",
    ['{"Low tide", he said: 1}', "{the dog}: no", "{}", '{"' + "a" * 10**6, '{"name": "tide",'],
)
def test_a_sentence_that_begins_with_a_brace_is_text(corpus, line):
    assert sample_lines(corpus(line)) == [line[:1000]]


SENTENCE = "The tide is low. "


@pytest.mark.parametrize(
    "text, objective, warnings",
    [
        (
            f"{SENTENCE * 500}\n\n" * 9,
            "mlm_nsp",
            ["100% of the first lines", "100% of the first doc"],
        ),
        (f"{SENTENCE * 500}\n\n" * 9, "mlm", ["100% of the first lines"]),
        (f"{'潮' * 200}\n{'汐' * 200}\n\n潮\n" * 9, "mlm_nsp", ["67% of the first lines"]),
        (f"{SENTENCE}\n\n" * 9 + f"{SENTENCE}\n" * 2, "mlm_nsp", ["90% of the first documents"]),
        (f"{SENTENCE}\n\n" * 9, "mlm", []),
        (f"{SENTENCE * 9}\n{SENTENCE}\n\n" * 9 + f"{SENTENCE * 500}\n\n" * 8, "mlm_nsp", []),
        (SENTENCE, "mlm_nsp", []),
        ("", "mlm_nsp", []),
    ],
)
def test_lines_that_are_no_sentences_are_warned_about(corpus, caplog, text, objective, warnings):
    settings = RecordSettings(vocab_file="v.txt", max_seq_length=128, objective=objective)
    sample_lines(corpus(text), settings=settings)
    assert len(caplog.messages) == len(warnings)
    for message, beginning in zip(caplog.messages, warnings, strict=True):
        assert message.startswith(beginning) and "--input_file=" in message


def test_a_pipe_is_an_error_because_a_corpus_is_read_more_than_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(
        ValueError, match=r"pipe is a pipe or a device, but a corpus is read more than"
    ):
        sample_lines([str(tmp_path / "pipe")])
