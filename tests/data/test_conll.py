"""CoNLL columns: what is read, what is written back, and what is refused."""

import re
from pathlib import Path

import pytest

from bert_tf.data.token_classification import Columns, read_conll, relabelled_lines

WNUT17 = Path(__file__).parents[3] / "shared/data/ner/wnut17"

CONLL_2003 = """-DOCSTART- -X- -X- O

EU NNP B-NP B-ORG
rejects VBZ B-VP O

Peter NNP B-NP B-PER

-DOCSTART- -X- -X- O

. . O O
"""


@pytest.fixture
def written(tmp_path):
    def write(text, name="a.conll"):
        (tmp_path / name).write_text(text, encoding="utf-8", newline="")
        return str(tmp_path / name)

    return write


def test_sentences_of_four_columns_know_their_document_and_line(written):
    path = written(CONLL_2003)
    found = [(s.words, s.labels, s.document, s.place(len(s.words) - 1)) for s in read_conll(path)]
    assert found == [
        (("EU", "rejects"), ("B-ORG", "O"), 1, f"{path}:4"),
        (("Peter",), ("B-PER",), 1, f"{path}:6"),
        ((".",), ("O",), 2, f"{path}:10"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "a\tO\nb c\tB-X\n\nd\tO",  # tabs, a space inside a word, no line end at the end
        "\n\na\tO\r\nb c\tB-X\r\n\t\r\n \nd\tO\r\n\n",  # \r\n, lines of whitespace, several empty lines
        "\ufeffa\tO\nb c\tB-X\n\nd\tO\t\n",  # byte order mark, a tab at the end of a row
    ],
)
def test_two_columns_with_tabs(written, text):
    found = [(s.words, s.labels, s.document) for s in read_conll(written(text))]
    assert found == [(("a", "b c"), ("O", "B-X"), 0), (("d",), ("O",), 0)]


def test_each_document_may_begin_with_spaces_in_a_file_with_tabs(written):
    begin = "-DOCSTART- -X- -X- O\n\n"
    path = written(f"{begin}a\tO\n\n{begin}b\tB-X\n")
    assert [(s.words, s.document) for s in read_conll(path)] == [(("a",), 1), (("b",), 2)]


def test_spaces_may_be_several_and_columns_may_be_chosen(written):
    path = written("1  B-X   a\n2  O     b\n")
    (sentence,) = read_conll(path, Columns(word=3, label=2))
    assert (sentence.words, sentence.labels) == (("a", "b"), ("B-X", "O"))


def test_a_file_of_words_alone_has_no_labels(written):
    (first, second) = read_conll(written("a\nb\n\nc\n"))
    assert (first.words, first.labels, second.labels) == (("a", "b"), None, None)


@pytest.mark.parametrize(
    "text, columns, line",
    [
        ("\n \n-DOCSTART-\n", Columns(), ""),
        ("a O\n\nb\n", Columns(), ":3"),
        ("a\tO\nb B-X\n", Columns(), ":2"),
        ("a\n", Columns(labelled=True), ":1"),
        ("a O\n", Columns(label=3), ":1.*label_column"),
        ("a O\n", Columns(word=3), ":1.*word_column"),
        ("a\tO\n\tO\n", Columns(), ":2"),
        ("a\tB-X\tx\nb\t\tx\n", Columns(label=2), ":2"),
        # labels that are not of entities
        ("a DT\nb NN\n", Columns(), ":1.*label_scheme"),
        ("a B-X\nb NN\n", Columns(), ":2.*'NN'"),
        ("a o\nb b-per\n", Columns(), ":1.*'o'"),
    ],
)
def test_what_is_refused(written, text, columns, line):
    path = written(text)
    with pytest.raises(ValueError, match=re.escape(path) + line):
        read_conll(path, columns)


def test_labels_of_words_have_any_form(written):
    (sentence,) = read_conll(written("a M-X\nb PER_B\n"), label_scheme="words")
    assert sentence.labels == ("M-X", "PER_B")


def test_comments_of_germeval_are_skipped_and_counted(written, caplog):
    text = "#\thttp://a.org [2009]\n1\tAbebe\tB-PER\tO\n2\t#\tO\tO\n\n#\tb\n1\tKiel\tB-LOC\tO\n"
    path, columns = written(text), Columns(word=2, label=3)
    with caplog.at_level("INFO"):
        first, second = read_conll(path, columns)
    assert (first.words, first.labels) == (("Abebe", "#"), ("B-PER", "O"))
    assert (second.words, second.place(0)) == (("Kiel",), f"{path}:6")
    assert "2 comments" in caplog.text
    assert "\n".join(relabelled_lines(path, ["B-PER", "O", "B-LOC"], columns)) + "\n" == text


def test_rows_of_conll_u_that_are_no_words_are_skipped_and_kept_in_the_file(written, caplog):
    def row(number, word, tag):
        return "\t".join([number, word, "_", tag, *"______"])

    lines = [
        "# text = It's a dog",
        row("1-2", "It's", "_"),
        row("1", "It", "PRON"),
        row("2", "'s", "AUX"),
        row("2.1", "there", "_"),
        row("3", "dog", "NOUN"),
        "",
        row("1", "1.5", "NUM"),
    ]
    path, columns = written("\n".join(lines) + "\n"), Columns(word=2, label=4)
    with caplog.at_level("INFO"):
        first, second = read_conll(path, columns, "words")
    assert (first.words, first.labels) == (("It", "'s", "dog"), ("PRON", "AUX", "NOUN"))
    assert [first.place(index) for index in range(3)] == [f"{path}:{line}" for line in (3, 4, 6)]
    assert (second.words, second.place(0)) == (("1.5",), f"{path}:8")
    assert "a.conll: 3 comments and rows" in caplog.text
    labels = [*first.labels, *second.labels]
    assert list(relabelled_lines(path, labels, columns)) == lines
    appended = [line for line in relabelled_lines(path, labels, columns, labels) if line]
    assert [line.split("\t")[1] for line in appended] == ["It", "'s", "dog", "1.5"]


@pytest.mark.parametrize("text", ["# X\na Y\n", "#\tX\na\tY\n", "a Y\n\n# X\n", "#\na\n"])
def test_a_word_may_be_a_number_sign(written, text):
    sentences = read_conll(written(text), label_scheme="words")
    assert "#" in {word for sentence in sentences for word in sentence.words}


def test_other_labels_take_the_place_of_the_old_ones_and_nothing_else_changes(written):
    path = written(CONLL_2003)
    lines = list(relabelled_lines(path, ["X1", "X2", "X3", "X4"], Columns()))
    assert lines == [
        "-DOCSTART- -X- -X- O",
        "",
        "EU NNP B-NP X1",
        "rejects VBZ B-VP X2",
        "",
        "Peter NNP B-NP X3",
        "",
        "-DOCSTART- -X- -X- O",
        "",
        ". . O X4",
    ]
