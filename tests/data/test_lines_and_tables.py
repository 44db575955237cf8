"""Lines of text files, and rows of tables."""

import gzip
import pickle

import pytest
import tensorflow as tf
from helpers import refused

from bert_tf.data.tables import read_table, read_tsv
from bert_tf.files import read_lines
from bert_tf.limits import DataError


def test_read_lines_strips_ends_and_marks(written):
    for content in (b"a\n\nb c\n", b"a\n\nb c", b"a\r\n\r\nb c\r\n", b"\xef\xbb\xbfa\n\nb c\n"):
        assert list(read_lines(written(content))) == ["a", "", "b c"], content
    text = "a\x0bb\x0cc\u2028d\x85e\rf\0g"  # no ends of lines
    assert list(read_lines(written(text + "\n"))) == [text]


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz", "ram://bert_tf_test/part.txt"])
def test_read_lines_reads_any_range(written, name):
    data = "\ufeffeins\nzwei ß\r\n\ndrei\n".encode()
    if "://" in name:
        with tf.io.gfile.GFile(name, "wb") as stream:
            stream.write(data)
        path = name
    else:
        path = written(gzip.compress(data) if name.endswith(".gz") else data, name)
    starts = [0, *(i + 1 for i, byte in enumerate(data) if byte == 10)]
    lines = ["eins", "zwei ß", "", "drei"]
    for first, start in enumerate(starts):
        assert list(read_lines(path, start=start)) == lines[first:]
        for last in range(first + 1, len(starts)):
            assert list(read_lines(path, start=start, end=starts[last])) == lines[first:last]


def test_read_lines_refuses_bad_bytes_by_line(written):
    for content, arguments, line in (
        (b"gr\xc3\xbcn\r\ngr\xfcn\n", {}, ":2"),
        (b"gr\xc3\xbcn\r\ngr\xfcn\n", {"start": 7}, ":2"),
        ("a\n".encode("utf-16"), {}, ":1"),
        (gzip.compress(b"a\n" * 99)[:-9], {}, ""),
    ):
        path = written(content)
        with refused(path + line) as error:
            list(read_lines(path, **arguments))
    assert pickle.loads(pickle.dumps(error.value)).location == path


def test_rows_know_their_lines(written):
    rows = list(read_tsv(written('\ufeff1\t"open\r\n\n0\tclosed" \t\r\n')))
    assert rows == [["1", '"open'], ["0", 'closed" ', ""]]
    assert [row.location.rsplit("/", 1)[1] for row in rows] == ["a.txt:1", "a.txt:3"]
    path = written('1,2\na,"b,b\nb"\nc,"say ""d"""\n', "t.csv")
    rows = list(read_table(path))
    assert rows == [{"1": "a", "2": "b,b\nb"}, {"1": "c", "2": 'say "d"'}]
    assert [row.line for row in rows] == [2, 4]


def test_read_table_gives_equal_rows_of_three_formats(written):
    for name, content in (
        ("t.tsv", 'text\tlabel\nsay "a, b"\t1\n'),
        ("t.CSV", '\ufefftext,label\r\n"say ""a, b""",1\r\n'),
        ("t.jsonl", '{"text": "say \\"a, b\\"", "label": "1"}\n\n'),
    ):
        assert list(read_table(written(content, name))) == [{"text": 'say "a, b"', "label": "1"}]


def test_read_table_takes_a_format_and_a_separator(written):
    path = written("text;label\nso, so;1\n", "t.txt")
    for format in ("tsv", "csv"):
        (row,) = read_table(path, format=format, separator=";")
        assert row == {"text": "so, so", "label": "1"}


def test_column_names_the_flag_of_a_missing_column(written):
    (row,) = read_table(written("sentence\tlabel\na\t1\n", "t.tsv"))
    assert row.column("label", "label_column") == "1"
    with pytest.raises(DataError, match="text_a_column") as error:
        row.column("sentense", "text_a_column")
    assert error.value.location == row.location


def test_read_table_refuses_rows_by_line(written):
    for name, content, line in (
        ("t.tsv", "text\tlabel\nfine\t1\none\ttoo\tmany\n", ":3"),
        ("t.csv", "text,label\nfine,1\none,too,many\n", ":3"),
        ("t.csv", 'a,b\nc,"d\ne,f\n', ":2"),
        ("t.csv", f"a,b\n{'c' * 200_000},d\n", ":2"),
        ("t.tsv", "a\tb\ta\n", ":1"),
        ("t.jsonl", '{"a": 1}\n{"a": \n', ":2"),
        ("t.jsonl", "[1, 2]\n", ":1"),
        ("t.txt", "a\n", ""),
    ):
        path = written(content, name)
        with refused(path + line):
            list(read_table(path))
