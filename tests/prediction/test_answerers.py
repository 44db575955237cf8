"""Answers to raw questions: in Python from a folder, and from a SavedModel; both say the same."""

import json
import random

import pytest
import tensorflow as tf
import tensorflow_text  # noqa: F401  (the operations of a SavedModel)
from tiny_runs import ANIMALS, GOOD, PLACES
from tiny_squad import write_squad

from bert_tf.data.question_answering import read_squad
from bert_tf.predictor import QuestionAnswerer, load
from bert_tf.programs.export_saved_model import ExportOptions, export_saved_model
from bert_tf.programs.predict import PredictionOptions, predict


def questions(count, seed):
    """Questions on contexts of one to many windows, with accents and other spaces."""
    rng = random.Random(seed)
    asked = []
    for _ in range(count):
        sentences = [
            f"The\u202f{rng.choice(GOOD)} {rng.choice(ANIMALS)} is in\u00a0the {rng.choice(PLACES)}."
            for _ in range(rng.randint(1, 9))
        ]
        text = " ".join(sentences).replace("owl", "ôwl").replace("barn", "BARN 猫")
        asked.append((f"the {rng.choice(ANIMALS)} in the", text))
    return asked


@pytest.fixture(scope="module")
def served(squad2_model, tmp_path_factory):
    """The folder of a SavedModel that may have no answer."""
    return saved(squad2_model, tmp_path_factory.mktemp("served") / "squad2")


@pytest.fixture(scope="module")
def answerer(squad_model):
    return QuestionAnswerer(str(squad_model))


@pytest.fixture(scope="module")
def answerer2(squad2_model):
    """One that may give no answer, with several batches for a few questions."""
    return QuestionAnswerer(str(squad2_model), batch_size=5)


def saved(model_dir, folder):
    export_saved_model(ExportOptions(model_dir=str(model_dir), export_dir=str(folder)))
    return str(folder)


def text_answers(folder, asked):
    """Answers of the signature on text: (answer, start, end, null odds or 0)."""
    serve = tf.saved_model.load(folder).signatures["serving_default"]
    question, context = map(tf.constant, zip(*asked, strict=True))
    found = {
        n: value.numpy().tolist() for n, value in serve(question=question, context=context).items()
    }
    odds = found.get("null_odds", [0.0] * len(asked))
    rows = zip(found["answer"], found["start"], found["end"], odds, strict=True)
    return [
        (text.decode(), *((None, None) if start < 0 else (start, end)), odds)
        for text, start, end, odds in rows
    ]


def test_answers_are_exact_parts_of_the_text(answerer):
    asked = questions(20, seed=1)
    for answer, (_, text) in zip(answerer.predict(asked), asked, strict=True):
        assert answer["answer"] == text[answer["start"] : answer["end"]] != ""
        assert 0 < answer["probability"] <= 1
        assert "null_odds" not in answer


def test_a_trained_model_answers_what_it_learned(answerer, tmp_path):
    examples = read_squad(write_squad(tmp_path / "new.json", 30, seed=77))
    asked = [(example.question_text, example.passage.text) for example in examples]
    found = answerer.predict(asked)
    right = [
        answer["answer"] == example.answers[0].text and answer["start"] == example.answers[0].start
        for answer, example in zip(found, examples, strict=True)
    ]
    assert sum(right) > 24


def test_a_batch_is_answered_as_one_by_one(answerer2):
    asked = questions(12, seed=2)
    single = [answerer2.predict([question])[0] for question in asked]
    for one, other in zip(answerer2.predict(asked), single, strict=True):
        assert (one["answer"], one["start"]) == (other["answer"], other["start"])
        assert one["null_odds"] == pytest.approx(other["null_odds"], abs=1e-4)


def test_the_threshold_decides_about_no_answer(squad2_model):
    asked = questions(6, seed=3)
    none = QuestionAnswerer(str(squad2_model), null_score_diff_threshold=-1e9).predict(asked)
    assert {(a["answer"], a["start"], a["end"]) for a in none} == {("", None, None)}
    every = QuestionAnswerer(str(squad2_model), null_score_diff_threshold=1e9).predict(asked)
    assert all(answer["answer"] for answer in every)
    odds = [answer["null_odds"] for answer in every]
    assert [answer["null_odds"] for answer in none] == pytest.approx(odds, abs=1e-4)


@pytest.mark.parametrize(
    "version_2", [pytest.param(False, marks=[pytest.mark.night, pytest.mark.weekly]), True]
)
def test_a_saved_model_answers_as_the_folder(request, tmp_path, version_2):
    if version_2:
        served = request.getfixturevalue("served")
    else:
        served = saved(request.getfixturevalue("squad_model"), tmp_path / "squad")
    model = request.getfixturevalue("answerer2" if version_2 else "answerer")
    asked = [*questions(25, seed=4), ("who", ""), ("", "The cat."), ("猫", "\u200b \u0301")]
    expected = model.predict(asked)
    for one, other in zip(text_answers(served, asked), expected, strict=True):
        assert one[:3] == (other["answer"], other["start"], other["end"])
        assert one[3] == pytest.approx(other.get("null_odds", 0.0), abs=1e-3)
    for one, other in zip(load(served).predict(asked), expected, strict=True):
        assert list(one) == list(other)
        assert (one["answer"], one["start"]) == (other["answer"], other["start"])
        assert one["probability"] == pytest.approx(other["probability"], abs=1e-5)


@pytest.mark.parametrize("kind", ["folder", "saved"])
def test_predict_answers_lines_of_question_tab_text(squad2_model, served, kind, tmp_path):
    lines = ["the cat in the\tThe cat is in the lake. The owl is in the cave.", "no tab here"]
    (tmp_path / "lines.txt").write_text("\n".join(lines) + "\n")
    predict(
        PredictionOptions(
            model_dir=str(squad2_model) if kind == "folder" else served,
            input_file=str(tmp_path / "lines.txt"),
            output_file=str(tmp_path / "answers.jsonl"),
        )
    )
    answered, refused = map(json.loads, (tmp_path / "answers.jsonl").read_text().splitlines())
    assert answered["text"] == lines[0]
    assert {"answer", "start", "end", "null_odds"} <= set(answered)
    assert "lines.txt:2: A line must be a question, a tab, and the text" in refused["error"]


def test_what_answers_no_questions_is_refused(sentence_model):
    with pytest.raises(ValueError, match=r"not for question_answering"):
        QuestionAnswerer(str(sentence_model))
