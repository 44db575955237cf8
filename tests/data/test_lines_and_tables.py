"""Lines of text files, and rows of tables."""

import gzip

import pytest
import tensorflow as tf

from bert_tf.data.lines import count_lines, read_lines, read_texts
from bert_tf.data.tables import read_table, read_tsv


@pytest.fixture
def file(tmp_path):
    """Writes bytes or text to a file and gives its path."""

    def write(content, name="rows.tsv"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    return write


# Lines


@pytest.mark.parametrize(
    "content",
    [b"a\n\nb c\n", b"a\n\nb c", b"a\r\n\r\nb c\r\n", b"\xef\xbb\xbfa\n\nb c\n"],
    ids=["plain", "no end at the last line", "CRLF", "byte order mark"],
)
def test_lines_come_without_ends_and_marks(file, content):
    assert list(read_lines(file(content))) == ["a", "", "b c"]


def test_only_a_line_feed_ends_a_line(file):
    text = "a\x0bb\x0cc\u2028d\x85e\rf"
    assert list(read_lines(file(text + "\n"))) == [text]


def test_gzip_is_recognised_by_its_content(file):
    assert list(read_lines(file(gzip.compress(b"a\nb\n"), "corpus.txt"))) == ["a", "b"]


def test_remote_files_go_through_gfile(file):
    path = "ram://bert_tf_test/corpus.txt"
    with tf.io.gfile.GFile(path, "wb") as stream:
        stream.write(b"a\r\nb\r c\n" + b"x" * 2_000_000)
    assert [len(line) for line in read_lines(path)] == [1, 4, 2_000_000]


def test_a_byte_that_is_not_utf8_is_named_by_line_and_offset(file):
    path = file(b"gr\xc3\xbcn\r\ngr\xfcn\n")
    with pytest.raises(ValueError, match=r"rows\.tsv:2: .* byte 0xfc at offset 9 of the file"):
        list(read_lines(path))


@pytest.mark.parametrize("name", ["a.txt", "a.txt.gz", "ram://bert_tf_test/part.txt"])
def test_a_part_of_a_file_is_read_as_if_it_were_alone(file, name):
    data = "\ufeffeins\nzwei ß\r\n\ndrei\n".encode()
    if "://" in name:
        with tf.io.gfile.GFile(name, "wb") as stream:
            stream.write(data)
        path = name
    else:
        path = file(gzip.compress(data) if name.endswith(".gz") else data, name)
    starts = [0, *(i + 1 for i, byte in enumerate(data) if byte == 10)]
    lines = ["eins", "zwei ß", "", "drei"]
    for first, start in enumerate(starts):
        assert list(read_lines(path, start=start)) == lines[first:]
        for last in range(first + 1, len(starts)):
            assert list(read_lines(path, start=start, end=starts[last])) == lines[first:last]


def test_a_part_far_from_the_start_of_a_remote_file_is_found():
    path = "ram://bert_tf_test/far.txt"
    first = b"x" * 3_000_000 + b"\n"
    with tf.io.gfile.GFile(path, "wb") as stream:
        stream.write(first + b"a\nb\n")
    assert list(read_lines(path, start=len(first))) == ["a", "b"]
    assert list(read_lines(path, start=len(first), end=len(first) + 2)) == ["a"]


def test_a_bad_byte_in_a_part_has_the_line_and_offset_of_the_whole_file(file):
    path = file(b"one\ntwo\nthr\xff\n")
    with pytest.raises(ValueError, match=r"rows\.tsv:3: .* byte 0xff at offset 11 of the file"):
        list(read_lines(path, start=4))


def test_an_empty_file_has_no_lines(file):
    assert list(read_lines(file(b""))) == []


# TSV by column number


@pytest.mark.parametrize("encoding", ["utf-16le", "utf-16be"])
@pytest.mark.parametrize("text", ["text,label\r\na,x\r\n", "“Café”, he said\nno\n"])
def test_utf_16_without_a_byte_order_mark_is_an_error_with_the_command(file, encoding, text):
    with pytest.raises(ValueError, match=rf"UTF-16 without .* iconv -f {encoding} -t utf8 /"):
        list(read_lines(file(text.encode(encoding))))


@pytest.mark.parametrize(
    "data", [b"a\0\n", b"text\0a\n", b"a\0b\0\0c\n", b"\0\0\0\0", b"ab\na\0b\0"]
)
def test_a_text_may_contain_zero_bytes(file, data):
    assert list(read_lines(file(data))) == data.decode().removesuffix("\n").split("\n")


def test_lines_without_line_feeds_are_refused_with_the_command_that_converts_them(file):
    path = file(b"text\tlabel\ra\tx\rb\ty\r")
    for rows in (read_tsv(path), read_table(path, format="tsv")):
        with pytest.raises(ValueError, match=r"no line feed; .* Convert it: tr '\\r' '\\n' < /"):
            list(rows)
    with pytest.raises(ValueError, match=r"no line feed; "):
        read_texts(path)
    assert list(read_texts(file(b"a\rb\nc\n"))) == ["a\rb", "c"]
    assert [list(row) for row in read_tsv(file(b"a\rb\tc\nd\te\n"))] == [["a\rb", "c"], ["d", "e"]]


def test_quotation_marks_in_tsv_are_ordinary_characters(file):
    rows = list(read_tsv(file('\ufeff1\t"open\r\n0\tclosed" \t\r\n')))
    assert rows == [["1", '"open'], ["0", 'closed" ', ""]]


def test_rows_know_where_they_stand(file):
    rows = list(read_tsv(file("a\tb\n\nc\td\n")))
    assert [row.place.rsplit("/", 1)[1] for row in rows] == ["rows.tsv:1", "rows.tsv:3"]


def test_quoted_columns_may_hold_tabs_and_line_ends(file):
    rows = list(read_tsv(file('a\t"b\tb\nb"\nc\t"say ""d"""\n'), quoted=True))
    assert rows == [["a", "b\tb\nb"], ["c", 'say "d"']]
    assert [row.line for row in rows] == [1, 3]


def test_an_open_quotation_mark_is_named_by_the_line_where_it_opens(file):
    with pytest.raises(ValueError, match=r"rows\.tsv:2: .*Double a .* use quoted=False\."):
        list(read_tsv(file('a\tb\nc\t"d\ne\tf\n'), quoted=True))


@pytest.mark.parametrize(
    ("quoted", "text", "warned"),
    [
        (None, 'text\nhe said "so"\n"say ""so"""\n"say ""no"""\n', 1),
        (None, 'text\n"say" so, "and so"\n"so, and so"\n"no, no"\n', 1),
        (None, 'text\tlabel\n"a"\t"" "\nsay ""so"" he said\t1\n', 0),
        (False, 'text\n"say ""so"""\n', 0),
        (True, 'text\n"say ""so"""\n', 0),
    ],
)
def test_a_tsv_that_is_quoted_like_csv_is_warned_of_once(file, caplog, quoted, text, warned):
    rows = list(read_table(file(text), format="tsv", quoted=quoted))
    assert caplog.text.count("quotes as in CSV, read as text (see --quoted)") == warned
    assert (":3: quotes" in caplog.text) == bool(warned)
    assert rows[-1]["text"].startswith('"') == (quoted is not True and "label" not in rows[0])


def test_a_tsv_with_an_enclosed_line_end_is_told_about_quotes(file):
    path = file('\ufefftext\tlabel\r\n"a\nb"\tx\r\n'.encode("utf-16-le"))
    with pytest.raises(
        ValueError, match=r"rows.tsv:2: found 1 columns, .*columns .* quoted=True\."
    ):
        list(read_table(path))
    assert [*read_table(path, quoted=True)] == [{"text": "a\nb", "label": "x"}]
    with pytest.raises(ValueError, match=r"begins 'a'\.$"):
        list(read_table(file("text\tlabel\na\n")))


def test_a_tsv_with_enclosed_names_needs_to_know_whether_columns_are_quoted(file):
    path = file('"text"\t"label"\n"a"\t"x"\n')
    for told in ({}, {"separator": "tab"}):
        with pytest.raises(
            ValueError, match=r"rows.tsv:1: .* \"text\", \"label\"\. Use quoted=True, or"
        ):
            list(read_table(path, **told))
    assert [*read_table(path, quoted=True)] == [{"text": "a", "label": "x"}]
    assert [*read_table(path, quoted=False)] == [{'"text"': '"a"', '"label"': '"x"'}]
    assert len([*read_table(path, header=False)]) == 2


def test_a_quoted_column_may_be_a_whole_book(file):
    (row,) = read_tsv(file('a\t"' + "b" * 200_000 + '"\n'), quoted=True)
    assert len(row[1]) == 200_000


# Tables by column name


@pytest.mark.parametrize(
    "name, content",
    [
        ("t.tsv", 'text\tlabel\nsay "a, b"\t1\n'),
        ("t.CSV", '\ufefftext,label\r\n"say ""a, b""",1\r\n'),
        ("t.jsonl", '{"text": "say \\"a, b\\"", "label": "1"}\n\n'),
    ],
)
def test_the_same_table_in_three_formats(file, name, content):
    assert list(read_table(file(content, name))) == [{"text": 'say "a, b"', "label": "1"}]


def test_format_and_quoting_can_be_told(file):
    path = file('text\tlabel\n"a\tb"\t1\n', "table.txt")
    assert list(read_table(path, format="tsv", quoted=True)) == [{"text": "a\tb", "label": "1"}]


def test_json_keeps_its_types(file):
    (row,) = read_table(file('{"ids": [1, 2], "score": 0.5}', "t.jsonl"))
    assert row == {"ids": [1, 2], "score": 0.5}


@pytest.mark.parametrize("separator, name", [("\t", "t.tsv"), (",", "t.csv")])
def test_a_row_with_another_number_of_columns_is_named(file, separator, name):
    rows = ["text,label", "fine,1", "one,too,many"]
    path = file("\n".join(rows).replace(",", separator), name)
    message = rf"{name}:3: found 3 columns, but 2 are expected \(text, label\).*begins 'one"
    with pytest.raises(ValueError, match=message):
        list(read_table(path))


def test_a_column_that_is_not_there_is_named_beside_those_that_are(file):
    (row,) = read_table(file("sentence\tlabel\na\t1\n"))
    with pytest.raises(ValueError, match=r"rows\.tsv:1: .*'sentense'; did you mean \"sentence\"\?"):
        row["sentense"]
    with pytest.raises(ValueError, match=r"no column 'x'\. The columns are sentence, label"):
        row["x"]


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("t.tsv", "", r"t\.tsv is empty"),
        ("t.tsv", "a\tb\ta\n", r"t\.tsv:1: .*'a' 2 times"),
        ("t.csv", "a,,b\n", r"t\.csv:1: .*'' 1 times"),
        ("t.csv", ",\nText,Mark\na,b\n", r"t\.csv:1: .* but is empty\. .* lines above the names"),
        ("t.csv", "Sales,\nText,Mark\na,b\n", r"t\.csv:2: found 2 .* is a title, remove the lines"),
        ("t.csv", "Sales\nText,Mark\na,b\n", r"t\.csv:2: found 2 .* is a title, remove the lines"),
        ("t.jsonl", '{"a": 1}\n{"a": \n', r"t\.jsonl:2: .*JSON .*begins '{\"a\": '"),
        (
            "t.jsonl",
            '{"a": 1}\n{"b": {"a": 1}, "a": 2, "a": 2}\n',
            r"t\.jsonl:2: .*the key 'a' occurs twice",
        ),
        ("t.jsonl", "[1, 2]\n", r"t\.jsonl:1: .*JSON object"),
        ("t.txt", "a\n", r"t\.txt: .*\.tsv, \.csv, \.jsonl"),
    ],
)
def test_a_table_that_is_none_is_refused(file, name, content, message):
    with pytest.raises(ValueError, match=message):
        list(read_table(file(content, name)))


def test_an_unknown_format_is_refused(file):
    with pytest.raises(ValueError, match="`format` is 'xls', but must be one of tsv, csv, jsonl"):
        read_table(file("a\n"), format="xls")


# What spreadsheets and Windows programs write


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-32"])
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_utf_16_is_recognised_by_its_byte_order_mark(file, encoding, ending):
    lines = ["grüße\u2028a", "", "ਊ ਊ"]  # U+0A0A holds the bytes of two line feeds
    mark = "\ufeff" if encoding.endswith("be") else ""
    path = file((mark + ending.join(lines) + ending).encode(encoding))
    assert list(read_lines(path)) == lines
    assert count_lines([path]) == 3


def test_damaged_utf_16_is_named_by_the_file(file):
    path = file("ab".encode("utf-16") + b"\x00")
    with pytest.raises(ValueError, match=f"{path}.*utf-16"):
        list(read_lines(path))


def test_a_part_of_a_file_in_utf_16_is_refused_with_the_command_that_converts_it(file):
    path = file("a\nb\n".encode("utf-16"))
    with pytest.raises(ValueError, match="iconv -f utf-16"):
        list(read_lines(path, end=4))


def test_a_file_that_is_no_text_is_not_to_be_converted(file):
    with pytest.raises(
        ValueError, match=r"rows.tsv:1: this is not text: there is a byte 0x00\. Name"
    ):
        list(read_lines(file(b"\xff\x80\0\x01\n")))


@pytest.mark.parametrize(
    "content, name",
    [(b"PK\x03\x04", "t.csv"), (b"PK\x03\x04", "t.xlsx"), (b"\xd0\xcf\x11\xe0", "t.tsv")],
)
def test_a_workbook_is_to_be_exported_as_csv(file, content, name):
    path = file(content + b"\0\0\n", name)
    with pytest.raises(ValueError, match=f"{path}.*CSV"):
        list(read_table(path))
    with pytest.raises(ValueError, match=f"{path}.*CSV"):
        list(read_lines(path))


@pytest.mark.parametrize(
    "name, content",
    [
        ("t.parquet", "PAR1"),
        ("t.arrow", ""),
        ("saved/dataset_info.json", "{}"),
        ("sets/dataset_dict.json", "{}"),
        ("t.jsonl", '[{"text": "a"}]\n'),
        ("t.jsonl", '[\n{"text": "a"}]\n'),
    ],
)
def test_other_files_of_datasets_and_pandas_are_to_be_written_as_json_lines(
    tmp_path, name, content
):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(content)
    table = path if path.parent == tmp_path else path.parent
    with pytest.raises(ValueError, match=rf"{table}.* Write a table as JSON lines: to_json\(\"tr"):
        list(read_table(table))


@pytest.mark.parametrize(
    ("header", "end"),
    [
        (",text", r"without pandas' index: to_csv\(\.\.\., index=False\)\."),
        ("text,text", "'text,text'."),
    ],
)
def test_the_index_of_pandas_is_named_as_the_cause(file, header, end):
    with pytest.raises(ValueError, match=f":1: the first line must name each column once.*{end}$"):
        list(read_table(file(f"{header}\n0,a\n", "t.csv")))


@pytest.mark.parametrize(
    "name, separator, word",
    [("t.csv", ";", "semicolon"), ("t.csv", "\t", "tab"), ("t.tsv", ",", "comma")],
)
@pytest.mark.parametrize("mark", ["", '"'])
def test_another_separator_is_named_and_can_be_told(file, name, separator, word, mark):
    rows = [["text", "label"], ["so, so; yes", "1"]]
    rows = [[f"{mark}{column}{mark}" for column in row] for row in rows]
    if not mark:
        rows[1][0] = "yes"
    path = file("".join(separator.join(row) + "\n" for row in rows), name)
    with pytest.raises(ValueError, match=rf"{path}.*column_separator={word}"):
        list(read_table(path))
    for told in (word, separator):
        (row,) = read_table(path, separator=told, quoted=True)
        assert row == {"text": rows[1][0].strip('"'), "label": "1"}


def test_a_single_column_is_a_table_too(file):
    path = file("text\nso, so; yes\n", "t.tsv")
    assert [dict(row) for row in read_table(path)] == [{"text": "so, so; yes"}]
    path = file("a,b\n1,2\n", "t.tsv")
    with pytest.raises(ValueError, match="of one column use column_separator=tab"):
        list(read_table(path))
    assert [dict(row) for row in read_table(path, separator="tab")] == [{"a,b": "1,2"}]


@pytest.mark.parametrize(("first", "mark"), [("sep=;", ";"), ("SEP=\t", "\t"), ("sep=,", ",")])
def test_the_first_line_may_state_the_separator_as_excel_reads_it(file, first, mark):
    (row,) = read_table(file(f"{first}\r\ntext{mark}label\r\na{mark}b\r\n", "t.csv"))
    assert row == {"text": "a", "label": "b"} and row.line == 3
    (row,) = read_table(file(f"{first}\na|{mark}\n", "t.csv"), header=False, separator="pipe")
    assert row == {"0": "a", "1": mark} and row.line == 2


@pytest.mark.parametrize("separator, name", [("||", "t.csv"), ('"', "t.csv"), ("||", "t.jsonl")])
def test_a_separator_that_is_none_is_refused(file, separator, name):
    with pytest.raises(ValueError, match="column_separator"):
        list(read_table(file("{}\n", name), separator=separator))


def test_empty_columns_at_the_end_of_a_header_are_left_out(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text("text,label,,\na,x,,\nb,y\n")
    assert [dict(row) for row in read_table(path)] == [
        {"text": "a", "label": "x"},
        {"text": "b", "label": "y"},
    ]
    path.write_text("text,label,\na,x,z\n")
    with pytest.raises(ValueError, match=r"table.csv:2: found 3 columns, but 2"):
        list(read_table(path))
