"""Processes and threads on the same files and the same model: right answers, or one clear error."""

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import tiny_text_models as tiny

import bert_tf
from bert_tf.files import atomic_folder, atomic_path, atomic_write
from bert_tf.prediction.predictor import Predictor

IN_USE = "by another process"


def at_once(count, function):
    """The results of `function(number)` in so many threads that begin together."""
    barrier = threading.Barrier(count)

    def call(number):
        barrier.wait(timeout=60)
        return function(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(call, range(count)))


# ---- Files ----------------------------------------------------------------------------------------
# A lock is of an open file, so that two threads exclude each other as two processes do.


def test_of_two_that_write_the_same_path_the_second_is_refused(tmp_path):
    path, folder = tmp_path / "vectors.jsonl", tmp_path / "exported"
    with atomic_write(path) as file, atomic_folder(str(folder), "export_dir") as temporary:
        file.write("first ")
        Path(temporary, "one").write_text("first")
        with pytest.raises(ValueError, match=IN_USE), atomic_write(path) as second:
            second.write("never")
        with (
            pytest.raises(ValueError, match=IN_USE),
            atomic_folder(str(folder), "export_dir"),
        ):
            raise AssertionError("both write")
        file.write("alone")
        assert Path(temporary, "one").read_text() == "first"
    assert path.read_text() == "first alone"
    assert [file.name for file in folder.iterdir()] == ["one"]
    assert sorted(tmp_path.iterdir()) == [folder, path]


def test_who_comes_when_the_folder_was_just_made_overwrites_nothing(tmp_path, monkeypatch):
    path = tmp_path / "exported"
    check, called = bert_tf.files.check_new_folder, []

    def check_and_make(folder, name):
        check(folder, name)
        if not called:  # another process ends now
            called.append(path.mkdir())
            (path / "file").write_text("its")

    monkeypatch.setattr("bert_tf.files.check_new_folder", check_and_make)
    with pytest.raises(ValueError, match="is not empty"), atomic_folder(str(path), "export_dir"):
        raise AssertionError("it overwrites")
    assert (path / "file").read_text() == "its"
    assert list(tmp_path.iterdir()) == [path]


HOLDER = """
import sys, time
from bert_tf.files import atomic_folder, atomic_path
with atomic_path(sys.argv[1]), atomic_folder(sys.argv[2], "export_dir"):
    print("begun", flush=True)
    time.sleep(60)
"""


@pytest.mark.night
def test_another_process_is_refused_until_the_first_is_killed(tmp_path):
    file, folder = tmp_path / "file", tmp_path / "folder"
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, file, folder], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout.readline() == "begun\n"
        for held in (atomic_path(file), atomic_folder(str(folder), "x")):
            with pytest.raises(ValueError, match=IN_USE), held:
                raise AssertionError("both write")
    finally:
        process.kill()
        process.wait()
    with atomic_write(file) as opened, atomic_folder(str(folder), "export_dir") as temporary:
        opened.write("whole")
        Path(temporary, "one").touch()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]


# ---- Predicting -----------------------------------------------------------------------------------

TEXTS = ["the happy cat", "the angry dog in the barn", "the happy owl", "the angry dog"]


def test_a_predictor_answers_four_threads_as_it_answers_one():
    batches = [[text + " in the barn" * (number % 2) for text in TEXTS] for number in range(4)]
    alone = Predictor(tiny.classifier())
    expected = [alone.predict(batch) for batch in batches]
    shared = Predictor(tiny.classifier())  # nothing of it is traced yet
    found = at_once(4, lambda number: [shared.predict(batches[number]) for _ in range(3)])
    for answers, wanted in zip(found, expected, strict=True):
        assert answers == [wanted] * 3


def test_threads_fill_masks_with_as_many_words_as_each_wants():
    model = Predictor(tiny.pretrained())
    found = at_once(4, lambda k: model.fill_mask("a [MASK]", top_k=k + 2))
    assert [len(best) for (best,) in found] == [2, 3, 4, 5]
