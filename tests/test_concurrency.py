"""Processes and threads on the same files and the same model: right answers, or one clear error."""

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import tiny_text_models as tiny

import bert_tf
from bert_tf.data.files import new_folder, open_whole, whole_file
from bert_tf.prediction.text_model import SequenceRunner
from bert_tf.predictor import Predictor

IN_USE = "is being written by another process"


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


def test_of_two_that_write_the_same_file_the_second_is_refused(tmp_path):
    path = tmp_path / "vectors.jsonl"
    with open_whole(path) as file:
        file.write("first ")
        with pytest.raises(ValueError, match=f"{path} {IN_USE}"), open_whole(path) as second:
            second.write("never")
        file.write("alone")
    assert path.read_text() == "first alone"
    assert list(tmp_path.iterdir()) == [path]


def test_of_two_that_make_the_same_folder_the_second_is_refused(tmp_path):
    path = tmp_path / "exported"
    with new_folder(str(path), "export_dir") as folder:
        Path(folder, "one").write_text("first")
        with (
            pytest.raises(ValueError, match=f"{path} {IN_USE}"),
            new_folder(str(path), "export_dir"),
        ):
            raise AssertionError("both write")
        assert Path(folder, "one").read_text() == "first"
    assert [file.name for file in path.iterdir()] == ["one"]
    assert list(tmp_path.iterdir()) == [path]


def test_who_comes_when_the_folder_was_just_made_overwrites_nothing(tmp_path, monkeypatch):
    path = tmp_path / "exported"
    check, called = bert_tf.data.files.check_new_folder, []

    def check_and_make(folder, name):
        check(folder, name)
        if not called:  # another process ends now
            called.append(path.mkdir())
            (path / "file").write_text("its")

    monkeypatch.setattr("bert_tf.data.files.check_new_folder", check_and_make)
    with pytest.raises(ValueError, match="is not empty"), new_folder(str(path), "export_dir"):
        raise AssertionError("it overwrites")
    assert (path / "file").read_text() == "its"
    assert list(tmp_path.iterdir()) == [path]


HOLDER = """
import sys, time
from bert_tf.data.files import new_folder, whole_file
with whole_file(sys.argv[1]), new_folder(sys.argv[2], "export_dir"):
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
        with pytest.raises(ValueError, match=f"{file} {IN_USE}"), whole_file(file):
            raise AssertionError("both write")
        with pytest.raises(ValueError, match=f"{folder} {IN_USE}"), new_folder(str(folder), "x"):
            raise AssertionError("both write")
    finally:
        process.kill()
        process.wait()
    with open_whole(file) as opened:
        opened.write("whole")
    with new_folder(str(folder), "export_dir") as temporary:
        Path(temporary, "one").touch()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder"]


# ---- Predicting -----------------------------------------------------------------------------------

TEXTS = [f"the {mood} {animal}" for mood in ("happy", "angry") for animal in ("cat", "dog", "owl")]


@pytest.mark.parametrize("kind", ["run", "export"])
def test_a_predictor_answers_eight_threads_as_it_answers_one(sentence_model, exported, kind):
    folder = sentence_model if kind == "run" else exported.single
    batches = [[text + " in the barn" * (number % 3) for text in TEXTS] for number in range(8)]
    alone = bert_tf.load(folder)
    expected = [alone.predict(batch) for batch in batches]
    shared = bert_tf.load(folder)  # nothing of it is traced yet
    found = at_once(8, lambda number: [shared.predict(batches[number]) for _ in range(3)])
    for answers, wanted in zip(found, expected, strict=True):
        assert answers == [wanted] * 3


def test_no_thread_waits_for_the_mask_of_another(monkeypatch):
    both, alone = threading.Barrier(2), SequenceRunner.rows

    def rows(runner, inputs):
        both.wait(timeout=30)  # until the other thread is here too
        return alone(runner, inputs)

    monkeypatch.setattr(SequenceRunner, "rows", rows)
    model = Predictor(tiny.pretrained())
    found = at_once(2, lambda k: model.fill_mask("a [MASK]", top_k=k + 2))
    assert [len(best) for (best,) in found] == [2, 3]
