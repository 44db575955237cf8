"""WikiExtractor's output, or plain text -> paragraphs of documents."""

import itertools
import json

import pytest

from bert_tf.pretraining.wikipedia import is_heading, read_paragraphs

EXTRACTED = """
<doc id="9" url="https://x.org/wiki?curid=9" title="Tides &amp; "seas"">
Tides &amp; "seas"

The tide is &lt;low&gt;. It
History.
\u3000Tides & seas are old, as all of us know.

</doc>

<doc id="10" url="https://x.org/wiki?curid=10" title="Moon">
A moon, it is said, circles a planet.
</doc>
"""

TIDES = [
    ("title", 'Tides & "seas"'),
    ("text", "The tide is <low>. It"),
    ("heading", "History."),
    ("text", "Tides & seas are old, as all of us know."),
    ("end", ""),
]
MOON = [("text", "A moon, it is said, circles a planet."), ("end", "")]


def read(lines, format="auto"):
    return list(read_paragraphs(lines, "wiki_00", format))


@pytest.mark.parametrize("format", ["auto", "wikiextractor"])
def test_documents_of_wikiextractor(format):
    assert read(EXTRACTED.splitlines(), format) == TIDES + MOON


@pytest.mark.parametrize("format", ["auto", "json"])
def test_documents_of_wikiextractor_as_json(format):
    tides = 'Tides &amp; "seas"\n\nThe tide is &lt;low&gt;. It\nHistory.\n'
    tides += "\u3000Tides & seas are old, as all of us know.\n"
    articles = [
        {"id": "9", "title": 'Tides & "seas"', "text": tides},
        {"id": "10", "title": "Moon", "text": "A moon, it is said, circles a planet."},
        {"text": ""},
    ]
    lines = ["", *map(json.dumps, articles), ""]
    assert read(lines, format) == [*TIDES, *MOON, ("end", "")]


def test_plain_text_has_a_paragraph_per_line_and_empty_lines_between_documents():
    lines = ["", "One. Two.", " Three &amp; four. ", "", " \t", "History.", "Five."]
    expected = [
        ("text", "One. Two."),
        ("text", "Three &amp; four."),
        ("end", ""),
        ("text", "History."),
        ("text", "Five."),
        ("end", ""),
    ]
    assert read(lines) == read(lines, "plain") == expected


@pytest.mark.parametrize("format", ["auto", "wikiextractor", "json", "plain"])
def test_an_empty_file_has_no_document(format):
    assert read([], format) == read(["", " "], format) == []


def test_a_format_can_be_told_where_the_first_line_misleads():
    line = "{A set} is written in braces."
    assert read([line], "plain") == [("text", line), ("end", "")]
    with pytest.raises(
        ValueError, match=r"wiki_00:1: invalid JSON .*begins '{A set} .*give the format plain"
    ):
        read([line])


def test_only_the_first_paragraph_can_be_the_title():
    lines = ['<doc id="1" title="Tides">', "About.", "Tides", "</doc>"]
    assert [kind for kind, _ in read(lines)] == ["heading", "heading", "end"]
    assert [kind for kind, _ in read(["<doc>", "Tides", "</doc>"])] == ["heading", "end"]


def test_nothing_is_read_ahead():
    lines = itertools.chain(EXTRACTED.splitlines(), itertools.repeat("the rest would never end"))
    events = read_paragraphs(lines, "wiki_00")
    assert [next(events) for _ in TIDES] == TIDES
    lines = itertools.chain(["One."], itertools.repeat("on and on"))
    assert next(read_paragraphs(lines, "f")) == ("text", "One.")


DOC = '<doc id="1" url="u" title="T">'


@pytest.mark.parametrize(
    "format, lines, message",
    [
        ("auto", [DOC, "a", "</doc>", "", DOC, "b"], r"wiki_00:5: this <doc> is never closed"),
        ("auto", [DOC, "a", DOC, "b", "</doc>"], r"wiki_00:3: a <doc> within the <doc> of line 1"),
        ("auto", [DOC, "a", "</doc>", "</doc>"], r"wiki_00:4: a </doc> that no <doc> opened"),
        (
            "auto",
            [DOC, "</doc>", "b"],
            r"wiki_00:3: text outside of <doc> and </doc>, .*begins 'b'",
        ),
        ("wikiextractor", ["a"], r"wiki_00:1: text outside .*give the right one \(json or plain\)"),
        (
            "auto",
            ['{"text": "a"}', '{"text": "b'],
            r"wiki_00:2: invalid JSON .*begins '{\"text\": \"b'",
        ),
        ("json", ['{"text": "a", "text": "b"}'], r"wiki_00:1: .*the key 'text' occurs twice"),
        ("json", ["[1]"], r"wiki_00:1: expected a JSON object with a \"text\""),
        ("json", ['{"title": "T"}'], r"wiki_00:1: expected a JSON object with a \"text\""),
        ("json", ['{"text": 3}'], r"wiki_00:1: expected a JSON object with a \"text\""),
        ("json", ['{"text": "a\\ud800"}'], r"wiki_00:1: the text has half of a surrogate pair"),
        ("xml", ["a"], r"`format` is 'xml', but must be auto or one of wikiextractor, json, plain"),
    ],
)
def test_a_damaged_file_is_named_by_the_line(format, lines, message):
    with pytest.raises(ValueError, match=message):
        read(lines, format)


@pytest.mark.parametrize(
    "text",
    [
        "History.",
        "See also",
        "First International and the Paris Commune.",
        "Use in mathematics, logic and science.",
        "formula_27",
        "分析哲学：",
        "대한민국 정부 수립.",
    ],
)
def test_a_heading_is_short_and_has_no_mark_but_a_full_stop(text):
    assert is_heading(text)


@pytest.mark.parametrize(
    "text",
    [
        "Why?",
        "He came. He saw.",
        "ሰላም ነው።",
        "He was born in Rome in 1542.",
        "他走了。",
        "증명된다.",
        "Llanfairpwllgwyngyllgogerychwyrndrobwllllantysiliogogogoch is a Welsh village.",
    ],
)
def test_what_is_long_or_has_another_mark_is_no_heading(text):
    assert not is_heading(text)
