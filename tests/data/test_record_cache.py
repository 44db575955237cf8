"""Record files: used again only where key and file are as they were; equal for any number of workers."""

import pytest

from bert_tf.data.records import make_once


class Writer:
    """Writes a file, and counts how often."""

    def __init__(self, content=b"records", num_records=7):
        self.content, self.num_records, self.calls = content, num_records, 0

    def __call__(self, path):
        self.calls += 1
        with open(path, "wb") as file:
            file.write(self.content)
        return self.num_records


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "train.tf_record")


def test_the_same_key_writes_once_and_tells_the_number_of_records(path):
    write = Writer()
    assert [make_once(path, "a", write) for _ in range(3)] == [7, 7, 7]
    assert write.calls == 1


def test_another_key_writes_anew(path):
    write = Writer()
    for key in ("a", "b", "a"):
        make_once(path, key, write)
    assert write.calls == 3


def test_a_file_of_another_size_is_not_used(path):
    write = Writer()
    make_once(path, "a", write)
    with open(path, "ab") as file:
        file.write(b"x")
    make_once(path, "a", write)
    assert write.calls == 2


def test_a_writer_that_fails_leaves_no_note(path, tmp_path):
    make_once(path, "a", Writer())

    def fail(path):
        raise ValueError("t.tsv:3: bad row")

    with pytest.raises(ValueError, match="bad row"):
        make_once(path, "b", fail)
    assert not (tmp_path / "train.tf_record.json").exists()
