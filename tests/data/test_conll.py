"""CoNLL columns: what is read, what is written back, and what is refused."""

from pathlib import Path

import pytest

from bert_tf.data.token_classification import Columns, read_conll, relabelled_lines
from bert_tf.metrics.conlleval import conlleval

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


def test_labels_of_any_form_are_read_if_none_marks_an_entity_or_the_scheme_says_so(written):
    (sentence,) = read_conll(written("a DT\nb NN\n"))
    assert sentence.labels == ("DT", "NN")
    mixed = written("a B-X\nb NN\n")
    assert read_conll(mixed, Columns(), "words")[0].labels == ("B-X", "NN")
    with pytest.raises(ValueError, match=r"a.conll:1: .* is 'DT'"):
        read_conll(written("a DT\n"), Columns(), "iob2")


def test_a_word_without_a_label_is_named_with_its_row(written):
    with pytest.raises(ValueError, match=r"a.conll:2: the row .* has no label.*label_column"):
        read_conll(written("a\tDT\tx\nb\t\tx\n"), Columns(label=2))


def test_a_file_of_words_alone_has_no_labels(written):
    (first, second) = read_conll(written("a\nb\n\nc\n"))
    assert (first.words, first.labels, second.labels) == (("a", "b"), None, None)


def test_a_second_column_may_be_no_label(written):
    (sentence,) = read_conll(written("a NN\n"), Columns(labelled=False))
    assert (sentence.words, sentence.labels) == (("a",), None)


@pytest.mark.parametrize(
    "text, columns, message",
    [
        ("", Columns(), r"a.conll contains no word"),
        ("\n \n-DOCSTART-\n", Columns(), r"a.conll contains no word"),
        ("a O\n\nb\n", Columns(), r"a.conll:3: found 1 columns, but the first row has 2.*'b'"),
        ("a\tO\nb B-X\n", Columns(), r"a.conll:2: found 1 columns.*'b B-X'"),
        ("a x O\nb O\n", Columns(), r"a.conll:2: found 2 columns, but the first row has 3"),
        ("a\n", Columns(labelled=True), r"a.conll:1: found one column, .* a word and its label"),
        ("a B-X\nb NN\n", Columns(), r"a.conll:2: .* is 'NN'.*label_column.*=words"),
        ("a O\n", Columns(label=3), r"a.conll:1: label_column is 3, but the row has 2"),
        ("a O\n", Columns(word=0), r"a.conll:1: word_column is 0"),
        ("a\tO\n\tO\n", Columns(), r"a.conll:2: the row .* has no word"),
        ("a O\n" * 501, Columns(), r"a.conll has no empty line, .* one sentence of 501 words"),
    ],
)
def test_what_is_refused(written, text, columns, message):
    with pytest.raises(ValueError, match=message):
        read_conll(written(text), columns)


def test_a_first_column_that_numbers_the_words_is_an_error(written):
    text = "1\tOh\tX\n\n1-2\tIt's\t_\n1\tIt\tX\n2\t's\tX\n"
    with pytest.raises(ValueError, match=r"a.conll:1: .* 1, 2, .*word_column .* CoNLL-U 2"):
        read_conll(written(text))
    assert len(read_conll(written(text), Columns(word=2))) == 2
    for words in ("1\tX\n", "1\tX\n3\tX\n", "1\tX\n\n2\tX\nb\tX\n", "1\n2\n"):
        assert read_conll(written(words))


@pytest.mark.parametrize("names", ["Word\tTag", "word\tx\tPOS", "TOKEN\tlabel"])
def test_a_first_row_with_names_of_columns_is_an_error(written, names):
    row = names.lower().replace("word", "a").replace("token", "b")
    with pytest.raises(
        ValueError, match=r"a.conll:1: the first row .* but names columns: .*Remove"
    ):
        read_conll(written(f"{names}\n{row}\n"))
    assert read_conll(written(f"{row}\n{names}\n"))


@pytest.mark.parametrize("row", ['","\tO', '""""\tO', '"EU"\t"B-ORG"', '","'])
def test_columns_that_a_spreadsheet_encloses_in_quotes_are_an_error(written, row):
    other = "EU\tB-ORG" if "\t" in row else "EU"
    with pytest.raises(ValueError, match=r"a.conll:2: quotation marks enclose .*Google Sheets"):
        read_conll(written(f"{other}\n{row}\n"))
    assert read_conll(written('"\tO\n"a"\tO\n,\t"\n'))


def test_lines_without_line_feeds_are_an_error(written):
    with pytest.raises(ValueError, match=r"the file has no line feed"):
        list(read_conll(written("EU\tB-ORG\rrejects\tO\r")))


def test_comments_of_conll_u_are_skipped_and_kept_in_a_file_with_other_labels(written, caplog):
    text = "# newdoc\n# text = a #\na\tX\n#\tY\n\n# text = b\nb\tX\n\n"
    path = written(text)
    with caplog.at_level("INFO"):
        first, second = read_conll(path)
    assert (first.words, first.labels) == (("a", "#"), ("X", "Y"))
    assert (first.place(1), second.place(0)) == (f"{path}:4", f"{path}:7")
    assert "a.conll: 3 lines were skipped as comments" in caplog.text
    labels = ["X", "Y", "X"]
    assert "\n".join(relabelled_lines(path, labels, Columns())) + "\n" == text
    appended = relabelled_lines(path, labels, Columns(), append=True)
    assert list(appended) == ["a\tX\tX", "#\tY\tY", "", "b\tX\tX", ""]
    with pytest.raises(ValueError, match=r"a.conll:2: found 1 columns"):
        read_conll(written("a\tX\n# text = a\nb\tX\n"))


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
        first, second = read_conll(path, columns)
    assert (first.words, first.labels) == (("It", "'s", "dog"), ("PRON", "AUX", "NOUN"))
    assert [first.place(index) for index in range(3)] == [f"{path}:{line}" for line in (3, 4, 6)]
    assert (second.words, second.place(0)) == (("1.5",), f"{path}:8")
    assert "a.conll: 2 rows of CoNLL-U that are not words (1-2, 1.1) were skipped" in caplog.text
    labels = [*first.labels, *second.labels]
    assert list(relabelled_lines(path, labels, columns)) == lines
    appended = [line for line in relabelled_lines(path, labels, columns, append=True) if line]
    assert [line.split("\t")[1] for line in appended] == ["It", "'s", "dog", "1.5"]
    in_first_column = [
        sentence.words for sentence in read_conll(written(f"{row('1-2', 'a', 'X')}\n"))
    ]
    assert in_first_column == [("1-2",)]


@pytest.mark.parametrize("text", ["# X\na Y\n", "#\tX\na\tY\n", "a Y\n\n# X\n", "#\na\n"])
def test_a_word_may_be_a_number_sign(written, text):
    assert "#" in {word for sentence in read_conll(written(text)) for word in sentence.words}


def test_one_sentence_needs_no_empty_line(written):
    assert len(read_conll(written("a O\n" * 500))[0].words) == 500


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


def test_the_same_labels_give_the_same_file(written):
    text = "1  O  a b\n\n2  B-X  c d\n"
    columns = Columns(word=3, label=2)
    path = written(text)
    labels = [label for sentence in read_conll(path, columns) for label in sentence.labels]
    assert "\n".join(relabelled_lines(path, labels, columns)) + "\n" == text


def test_appended_labels_are_the_input_of_conlleval_which_has_no_docstart(written):
    lines = list(relabelled_lines(written(CONLL_2003), "ABCD", Columns(), append=True))
    assert [line for line in lines if line] == [
        "EU NNP B-NP B-ORG A",
        "rejects VBZ B-VP O B",
        "Peter NNP B-NP B-PER C",
        ". . O O D",
    ]


def test_a_file_without_labels_gets_a_column(written):
    assert list(relabelled_lines(written("a\n\nb\n"), "XY", Columns())) == ["a\tX", "", "b\tY"]


@pytest.mark.parametrize("labels, message", [("X", "more words"), ("XYZ", "fewer words")])
def test_a_number_of_labels_that_is_not_that_of_the_words_is_an_error(written, labels, message):
    with pytest.raises(ValueError, match=message):
        list(relabelled_lines(written("a O\nb O\n"), labels, Columns()))


@pytest.mark.parametrize(
    "name, line",
    [
        ("t.jsonl", '{"tokens": ["EU", "rejects"], "labels": ["B-ORG", "O"]}'),
        ("t.txt", '{"tokens": ["EU", "rejects"], "labels": ["B-ORG", "O"]}'),
        ("t.json", "["),
        ("t.csv", "word,label"),
        ("t.csv", "EU rejects,B-ORG O"),
        ("t.csv", "EU;B-ORG"),
    ],
)
def test_json_lines_and_csv_are_an_error_that_names_the_format(tmp_path, name, line):
    (tmp_path / name).write_text(f"{line}\n")
    with pytest.raises(ValueError, match=rf"{name}:1: JSON lines and CSV are not read, .*CoNLL"):
        read_conll(str(tmp_path / name))
    (tmp_path / "columns.csv").write_text("EU\tB-ORG\n,\tO\n")
    assert len(read_conll(str(tmp_path / "columns.csv"))) == 1


@pytest.mark.skipif(not WNUT17.is_dir(), reason="needs ../shared/data/ner/wnut17")
@pytest.mark.parametrize(
    "name, num_sentences, num_words, num_entities",
    [  # as counted by awk: lines with a word, and labels that begin with B-
        ("wnut17train.conll", 3394, 62730, 1975),
        ("emerging.dev.conll", 1009, 15733, 836),
        ("emerging.test.annotated", 1287, 23394, 1079),
    ],
)
def test_wnut17_is_read_whole(name, num_sentences, num_words, num_entities):
    sentences = read_conll(str(WNUT17 / name))
    assert len(sentences) == num_sentences
    labels = [sentence.labels for sentence in sentences]
    assert sum(map(len, labels)) == num_words
    assert conlleval(labels, labels).overall.actual == num_entities
