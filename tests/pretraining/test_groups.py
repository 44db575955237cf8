"""A corpus in groups: nothing lost, nothing doubled, no document cut."""

import gzip
import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from bert_tf.pretraining.groups import TextRange, group_lines, group_size, plan_groups

lines = st.sampled_from(["", "a", "two words", "grün", " ", "\t", "\u3000", "x" * 30])
texts = st.lists(
    st.builds(
        lambda parts, end, last: end.join(parts) + last * end,
        st.lists(lines, max_size=12),
        st.sampled_from(["\n", "\r\n"]),
        st.integers(min_value=0, max_value=1),
    ),
    min_size=1,
    max_size=4,
)


def write(folder, contents, compress=False):
    files = []
    for number, text in enumerate(contents):
        path = folder / f"{number}.txt"
        path.write_bytes(gzip.compress(text.encode()) if compress else text.encode())
        files.append(str(path))
    return files


def documents(all_lines):
    found = [[]]
    for line in all_lines:
        if line:
            found[-1].append(line)
        elif found[-1]:
            found.append([])
    return [document for document in found if document]


def lines_of(contents):
    """The last line of a file ends with the file."""
    for text in contents:
        *whole, rest = text.split("\n")
        yield from [*whole, rest] if rest else whole


@settings(max_examples=60, deadline=None)
@given(contents=texts, max_group_bytes=st.integers(min_value=1, max_value=300), zip=st.booleans())
def test_the_documents_of_all_groups_are_those_of_the_corpus(
    tmp_path_factory, contents, max_group_bytes, zip
):
    files = write(tmp_path_factory.mktemp("corpus"), contents, compress=zip)
    groups = plan_groups(files, max_group_bytes)
    grouped = [document for group in groups for document in documents(group_lines(group))]
    assert grouped == documents(line.strip() for line in lines_of(contents))
    assert sum(map(group_size, groups)) == sum(len(text.encode()) for text in contents)


def next_cut(contents, target):
    """The end of the first empty line that begins after a byte of the corpus, found on its own."""
    before = 0
    for text in contents:
        offset = max(0, target - before)
        if offset < len(text):
            if offset:
                offset = text.find("\n", offset) + 1 or len(text)
            for line in text[offset:].splitlines(keepends=True):
                offset += len(line)
                if not line.strip():
                    return before + offset
        before += len(text)
    return before


@settings(max_examples=60, deadline=None)
@given(
    contents=st.lists(
        st.lists(st.sampled_from(["", "a", "  ", "ten bytes!"]), max_size=20).map("\n".join),
        min_size=1,
        max_size=4,
    ),
    max_group_bytes=st.integers(min_value=1, max_value=40),
)
def test_one_pass_finds_the_cut_of_each_target(tmp_path_factory, contents, max_group_bytes):
    files = write(tmp_path_factory.mktemp("corpus"), contents)
    total = sum(map(len, contents))
    number = -(-total // max_group_bytes) or 1
    cuts = {next_cut(contents, total * index // number) for index in range(1, number)}
    groups = plan_groups(files, max_group_bytes)
    ends = itertools.accumulate(map(group_size, groups))
    assert sorted({*cuts, total}) == list(ends)


def test_carriage_returns_and_space_around_a_line_are_left_out_as_in_the_reference(tmp_path):
    (file,) = write(tmp_path, ["\ufeff a\rb \r\n\u3000\nc"])
    assert list(group_lines((TextRange(file, 0, 15),))) == ["ab", "", "c"]
