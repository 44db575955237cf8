"""Processes and threads on the same files and the same model: right answers, or one clear error."""

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import tiny_text_models as tiny

from bert_tf.files import atomic_folder, atomic_write
from bert_tf.prediction.predictor import Predictor


def at_once(count, function):
    """The results of `function(number)` in so many threads that begin together."""
    barrier = threading.Barrier(count)

    def call(number):
        barrier.wait(timeout=60)
        return function(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(call, range(count)))


# ---- Files ----------------------------------------------------------------------------------------


def test_of_two_that_write_one_file_each_is_whole(tmp_path):
    path = tmp_path / "vectors.jsonl"
    with atomic_write(path) as first, atomic_write(path) as second:
        first.write("first ")
        second.write("second")
        first.write("alone")
    assert path.read_text() == "first alone"
    assert sorted(tmp_path.iterdir()) == [path]


def test_of_two_that_write_one_folder_the_last_overwrites_nothing(tmp_path):
    folder = tmp_path / "exported"
    with (
        pytest.raises(ValueError, match="is not empty"),
        atomic_folder(str(folder), "export_dir") as last,
    ):
        Path(last, "two").touch()
        with atomic_folder(str(folder), "export_dir") as first:
            Path(first, "one").touch()
    assert [file.name for file in folder.iterdir()] == ["one"]
    assert list(tmp_path.iterdir()) == [folder]


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
