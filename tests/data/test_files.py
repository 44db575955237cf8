"""Files by their names, and text files that appear whole or not at all."""

import pytest

from bert_tf.data.files import expand_files, open_whole, write_text


def test_text_is_written_as_it_is_and_replaces_what_was_there(tmp_path):
    path = tmp_path / "new" / "file.txt"
    write_text(path, "first, and longer\n")
    write_text(str(path), "zweite ß\r\n")
    assert path.read_bytes() == "zweite ß\r\n".encode()
    assert [entry.name for entry in path.parent.iterdir()] == ["file.txt"]


def test_a_file_that_is_given_up_leaves_the_old_one_and_nothing_temporary(tmp_path):
    path = tmp_path / "file.txt"
    path.write_text("old")
    with pytest.raises(KeyError), open_whole(path) as file:
        file.write("half of the new")
        raise KeyError("a bug of the caller")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_has_no_name_before_it_is_whole(tmp_path):
    path = tmp_path / "file.txt"
    with open_whole(path) as file:
        file.write("some")
        assert not path.exists()
    assert path.read_text() == "some"


def test_a_name_without_a_folder_is_written_where_one_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_text("file.txt", "here")
    assert (tmp_path / "file.txt").read_text() == "here"


def test_globs_keep_their_order_and_are_sorted_within(tmp_path):
    for name in ("b1", "a2", "a1", "a3.tmp"):
        (tmp_path / name).touch()
    found = expand_files(f"{tmp_path}/b*, {tmp_path}/a*")
    assert [f.rsplit("/", 1)[1] for f in found] == ["b1", "a1", "a2"]


@pytest.mark.parametrize(
    "patterns, message",
    [
        ("{0}/a,{0}/nothing*", "No file matches '.*nothing"),
        ("{0}", r"is a folder; name its files"),
        (" ,", "No file is named"),
    ],
)
def test_a_glob_without_files_is_refused_by_name(tmp_path, patterns, message):
    (tmp_path / "a").touch()
    with pytest.raises(ValueError, match=message):
        expand_files(patterns.format(tmp_path))


def test_a_folder_stands_for_all_files_below_it_where_that_is_allowed(tmp_path):
    for name in ("AB/wiki_00", "AA/wiki_01", "AA/wiki_00", "AA/wiki_02.tmp", "AA/.hidden", "last"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    found = expand_files(str(tmp_path), folders=True)
    assert [f.removeprefix(f"{tmp_path}/") for f in found] == [
        "AA/wiki_00",
        "AA/wiki_01",
        "AB/wiki_00",
        "last",
    ]


def test_a_folder_without_files_is_refused_by_name(tmp_path):
    with pytest.raises(ValueError, match="No file matches"):
        expand_files(str(tmp_path), folders=True)
