"""quickstart: every step runs on a small corpus, and what it promises is there."""

import functools
import os
import random

import pytest

from bert_tf.programs import quickstart
from bert_tf.programs.demo_corpus import Document

LIBRARIES = ("python", "numpy", "keras", "tensorflow")


def documents():
    """Ten source files for each of four libraries, each library with words of its own."""
    rng = random.Random(1)
    made = []
    for number, library in enumerate(LIBRARIES):
        words = [f"{start}{end}" for start in "bcdfg" for end in ("at", "en", "ip", "ox")][
            number * 5 : number * 5 + 5
        ]
        for file in range(10):
            sentences = [
                " ".join(rng.choice(words) for _ in range(9)) + f" number {file} {sentence} ."
                for sentence in range(6)
            ]
            made.append(Document(library, f"file_{file}.py", tuple(sentences)))
    return made


def test_it_goes_the_whole_way_and_says_where_everything_lies(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(quickstart, "collect_documents", documents)
    # The pre-training is compiled; twice the fine-tuning would take as long again.
    uncompiled = functools.partial(quickstart.ClassifierOptions, jit_compile="false")
    monkeypatch.setattr(quickstart, "ClassifierOptions", uncompiled)
    options = quickstart.QuickstartOptions(
        output_dir=str(tmp_path / "out"),
        num_train_steps=5,
        train_batch_size=4,
        num_fine_tuning_examples=9,
        vocab_size=160,
        precision="float32",
    )
    quickstart.quickstart(options)
    made = set(os.listdir(tmp_path / "out"))
    assert {"corpus.txt", "model", "corpus.tf_record", "pretrained", "fine_tuned"} <= made
    assert (tmp_path / "out/exported/1/saved_model.pb").exists()

    printed = capfd.readouterr().out
    assert "from the pre-trained encoder" in printed and "from scratch" in printed
    for sentence in quickstart.SENTENCES:  # printed by the process that serves
        assert sentence in printed
    for text in quickstart.MASKED:
        assert text in printed
    assert f"All results are in {tmp_path / 'out'}" in printed


@pytest.mark.parametrize(
    "name", ["num_train_steps", "train_batch_size", "num_fine_tuning_examples", "vocab_size"]
)
def test_numbers_are_checked_before_the_first_step(name):
    with pytest.raises(ValueError, match=f"{name} is 0, but must be"):
        quickstart.QuickstartOptions(**{name: 0})


def test_what_the_process_that_serves_says_is_passed_on(monkeypatch):
    monkeypatch.setattr(quickstart, "_SERVING", "raise SystemExit('no space left')")
    message = "could not serve the model in here/1:\nno space left"
    with pytest.raises(RuntimeError, match=message):
        quickstart.serve("here/1", quickstart.SENTENCES)
