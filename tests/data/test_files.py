"""Text files that appear whole or not at all."""

import pytest

from bert_tf.data.files import open_whole, write_text


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
