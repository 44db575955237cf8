"""CoNLL columns: what is read, what is written back, and what is refused."""

from helpers import cause_of

from bert_tf.data.token_classification import ConllColumns, read_conll, relabel_lines

CONLL_2003 = """-DOCSTART- -X- -X- O

EU NNP B-NP B-ORG
rejects VBZ B-VP O

Peter NNP B-NP B-PER

-DOCSTART- -X- -X- O

. . O O
"""


def test_read_conll_knows_document_and_line(written):
    path = written(CONLL_2003)
    found = [
        (s.words, s.labels, s.document, s.location(len(s.words) - 1)) for s in read_conll(path)
    ]
    assert found == [
        (("EU", "rejects"), ("B-ORG", "O"), 1, f"{path}:4"),
        (("Peter",), ("B-PER",), 1, f"{path}:6"),
        ((".",), ("O",), 2, f"{path}:10"),
    ]


def test_read_conll_with_tabs(written):
    for text in (
        "a\tO\nb c\tB-X\n\nd\tO",  # a space inside a word, no line end at the end
        "\n\na\tO\r\nb c\tB-X\r\n\t\r\n \nd\tO\r\n\n",  # \r\n, lines of whitespace, several empty lines
        "\ufeffa\tO\nb c\tB-X\n\nd\tO\t\n",  # byte order mark, a tab at the end of a row
    ):
        found = [(s.words, s.labels, s.document) for s in read_conll(written(text))]
        assert found == [(("a", "b c"), ("O", "B-X"), 0), (("d",), ("O",), 0)], text
    begin = "-DOCSTART- -X- -X- O\n\n"  # with spaces in a file with tabs
    path = written(f"{begin}a\tO\n\n{begin}b\tB-X\n")
    assert [(s.words, s.document) for s in read_conll(path)] == [(("a",), 1), (("b",), 2)]


def test_read_conll_takes_columns_and_several_spaces(written):
    path = written("1  B-X   a\n2  O     b\n")
    (sentence,) = read_conll(path, ConllColumns(word=3, label=2))
    assert (sentence.words, sentence.labels) == (("a", "b"), ("B-X", "O"))


def test_read_conll_of_words_alone_has_no_labels(written):
    (first, second) = read_conll(written("a\nb\n\nc\n"))
    assert (first.words, first.labels, second.labels) == (("a", "b"), None, None)


def test_read_conll_refuses_rows_by_line(written):
    for text, columns, line in (
        ("\n \n-DOCSTART-\n", ConllColumns(), None),
        ("a O\n\nb\n", ConllColumns(), 3),
        ("a\tO\nb B-X\n", ConllColumns(), 2),
        ("a\n", ConllColumns(labelled=True), 1),
        ("a O\n", ConllColumns(label=3), 1),
        ("a\tO\n\tO\n", ConllColumns(), 2),
        ("a\tB-X\tx\nb\t\tx\n", ConllColumns(label=2), 2),
        # labels that are not of entities
        ("a DT\nb NN\n", ConllColumns(), 1),
    ):
        path = written(text)
        place = path if line is None else f"{path}:{line}"
        assert cause_of(read_conll, path, columns) == place, text


def test_read_conll_skips_comments_of_germeval(written):
    text = "#\thttp://a.org [2009]\n1\tAbebe\tB-PER\tO\n2\t#\tO\tO\n\n#\tb\n1\tKiel\tB-LOC\tO\n"
    path, columns = written(text), ConllColumns(word=2, label=3)
    first, second = read_conll(path, columns)
    assert (first.words, first.labels) == (("Abebe", "#"), ("B-PER", "O"))
    assert (second.words, second.location(0)) == (("Kiel",), f"{path}:6")
    assert "\n".join(relabel_lines(path, ["B-PER", "O", "B-LOC"], columns)) + "\n" == text


def test_read_conll_skips_rows_of_conll_u_that_are_no_words(written):
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
    path, columns = written("\n".join(lines) + "\n"), ConllColumns(word=2, label=4)
    first, second = read_conll(path, columns, word_labels=True)
    assert (first.words, first.labels) == (("It", "'s", "dog"), ("PRON", "AUX", "NOUN"))
    assert [first.location(index) for index in range(3)] == [f"{path}:{line}" for line in (3, 4, 6)]
    assert (second.words, second.location(0)) == (("1.5",), f"{path}:8")
    labels = [*first.labels, *second.labels]
    assert list(relabel_lines(path, labels, columns)) == lines
    appended = [line for line in relabel_lines(path, labels, columns, labels) if line]
    assert [line.split("\t")[1] for line in appended] == ["It", "'s", "dog", "1.5"]


def test_read_conll_takes_a_number_sign_as_word(written):
    for text in ("# X\na Y\n", "#\tX\na\tY\n", "a Y\n\n# X\n", "#\na\n"):
        sentences = read_conll(written(text), word_labels=True)
        assert "#" in {word for sentence in sentences for word in sentence.words}, text


def test_relabel_lines_changes_nothing_but_labels(written):
    lines = list(relabel_lines(written(CONLL_2003), ["X1", "X2", "X3", "X4"], ConllColumns()))
    expected = CONLL_2003.replace("B-ORG", "X1").replace("VBZ B-VP O", "VBZ B-VP X2")
    expected = expected.replace("B-PER", "X3").replace(". . O O", ". . O X4")
    assert lines == expected.splitlines()
