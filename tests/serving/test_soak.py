"""benchmarks/soak.py and soak_training.py: peaks of memory, and the verdicts on memory and answers."""

import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import bert_tf
from bert_tf.model_folder import load_model_folder


@pytest.fixture
def soak(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "benchmarks"))
    import soak

    yield soak
    del sys.modules["soak"]


def test_memory_is_flat_within_two_percent_after_the_first_tenth(soak):
    is_flat, sentence = soak.memory_verdict({0.0: 500, 0.1: 1000, 0.5: 1020, 1.0: 990})
    assert is_flat
    assert sentence == (
        "resident memory 1000 MB after a tenth, at most 1020 MB afterwards: +2.0%, flat within 2%"
    )
    assert not soak.memory_verdict({0.0: 500, 0.11: 1000, 0.5: 1021, 1.0: 990})[0]
    assert not soak.memory_verdict({0.0: 500})[0]


def test_an_answer_is_wrong_if_it_is_not_finite_or_changes(soak):
    answer = {"probabilities": np.array([0.25, 0.75])}
    soak.check_answer(answer, {"probabilities": np.array([0.25001, 0.74999])})
    with pytest.raises(SystemExit, match=r"probabilities was \[0.5 0.5\], is \[0.25 0.75\]"):
        soak.check_answer(answer, {"probabilities": np.array([0.5, 0.5])})
    with pytest.raises(SystemExit, match="probabilities is not finite"):
        soak.check_answer({"probabilities": np.array([np.nan])}, {})


def test_the_peak_of_each_part_is_printed(soak, capsys):
    from soak_training import peaks

    with subprocess.Popen(["/bin/sleep", "60"]) as process:
        found = peaks(process, 1.0)
        process.kill()
    printed = [line.partition(":")[0] for line in capsys.readouterr().out.splitlines()]
    assert printed == [f"{part:.0%}" for part in found]
    assert all(value > 0 for value in found.values())
    with pytest.raises(SystemExit, match="the script ended with -9"):
        peaks(process, 1.0)


def test_a_model_file_gets_about_as_many_ids_as_its_texts_have_word_pieces(
    soak, sentence_model, tmp_path
):
    bert_tf.export(str(sentence_model), str(tmp_path / "lite"), format="tflite")
    path = str(tmp_path / "lite" / "model.tflite")
    inputs_of, send = soak.open_model_file(path, random.Random(0), longest=19)
    inputs = inputs_of([b"the happy cat", b"", b"the rude pig " * 20])
    assert inputs["input_mask"].sum(axis=1).tolist() == [4, 2, 19]
    assert not inputs["input_ids"][inputs["input_mask"] == 0].any()
    expected = load_model_folder(str(sentence_model)).model(inputs)["logits"]
    np.testing.assert_allclose(send(inputs)["logits"], expected, atol=1e-5)
    (tmp_path / "lite" / "vocab.txt").write_text("a\n\u2028\n")  # a line end of Python alone
    inputs_of, _ = soak.open_model_file(path, random.Random(0), longest=19)
    assert set(inputs_of([b"x" * 99] * 20)["input_ids"].flat) == {0, 1}
