"""EntityRecognizer and ChoicePredictor on raw text, and `predict` with their models."""

import json

import numpy as np
import pytest

from bert_tf.predictor import ChoicePredictor, EntityRecognizer
from bert_tf.programs.predict import PredictionOptions, predict


@pytest.fixture(scope="module")
def recognizer(ner_model):
    return EntityRecognizer(str(ner_model))


@pytest.fixture(scope="module")
def chooser(swag_model):
    return ChoicePredictor(str(swag_model))


def test_entities_have_their_characters(recognizer):
    texts = ["  a Owl is in the barn", "", "a pig is in the lake"]
    answers = recognizer.predict(texts)
    assert [[(e["type"], e["text"]) for e in found] for found in answers] == [
        [("A", "Owl"), ("B", "the barn")],
        [],
        [("A", "pig"), ("B", "the lake")],
    ]
    for text, found in zip(texts, answers, strict=True):
        for entity in found:
            assert text[entity["start"] : entity["end"]] == entity["text"]
            assert 0.5 < entity["probability"] <= 1


def test_a_text_longer_than_the_model_reads_at_once_keeps_its_entities(recognizer, monkeypatch):
    text = "a cat is in the wood " * 30
    (cat,) = recognizer._trained.tokenizer.encode("cat")

    def cats(task, records):  # a model that labels the word alone, whatever its window
        columns = {name: np.array([r[name] for r in records]) for name in records[0]}
        ids = np.take_along_axis(columns["input_ids"], columns["word_positions"], axis=1)
        predictions = np.where(ids == cat, task.labels.index("B-A"), task.labels.index("O"))
        return {**columns, "predictions": predictions, "probabilities": np.ones(ids.shape)}

    monkeypatch.setattr(recognizer, "_run", cats)
    first, second = recognizer.predict([text, "a cat"])
    assert [(e["start"], e["end"]) for e in first] == [(2 + 21 * n, 5 + 21 * n) for n in range(30)]
    assert [e["text"] for e in second] == ["cat"]


def test_nothing_asked_is_nothing_answered(recognizer, chooser):
    assert recognizer.predict([]) == []
    assert chooser.predict([]) == []


def test_the_best_choice_is_named_whatever_their_number(chooser):
    answers = chooser.predict(
        [
            ("in the barn", ["the rude dog", "the kind cat"]),
            ("in the barn", ["the calm hen", "the sad hen", "the angry hen"]),
        ]
    )
    assert [(a["prediction"], a["choice"]) for a in answers] == [
        (1, "the kind cat"),
        (0, "the calm hen"),
    ]
    assert [len(answer["probabilities"]) for answer in answers] == [2, 3]
    assert sum(answers[1]["probabilities"]) == pytest.approx(1.0)


@pytest.mark.parametrize("choices", [["the kind cat"], "the kind cat"])
def test_choices_are_two_or_more_texts(chooser, choices):
    with pytest.raises(ValueError, match=r"choices?.* 'in the barn'"):
        chooser.predict([("in the barn", choices)])


def answers_of_predict(model_dir, tmp_path, text, name="input.txt"):
    (tmp_path / name).write_text(text)
    predict(
        PredictionOptions(
            model_dir=str(model_dir),
            input_file=str(tmp_path / name),
            output_file=str(tmp_path / "output.jsonl"),
        )
    )
    return [json.loads(line) for line in (tmp_path / "output.jsonl").read_text().splitlines()]


def test_predict_writes_the_entities_of_each_line(ner_model, tmp_path):
    lines = answers_of_predict(ner_model, tmp_path, "a cat is in the yard\nsat\n")
    assert [list(line) for line in lines] == [["text", "entities"]] * 2
    assert [e["text"] for e in lines[0]["entities"]] == ["cat", "the yard"]
    assert lines[1]["entities"] == []


@pytest.mark.parametrize("column", ["words", "tokens", "text"])
def test_predict_takes_lists_of_words(ner_model, tmp_path, column):
    words = ["a", "pig", "is", "in", "the", "barn"]
    rows = json.dumps({column: words}) + "\n" + json.dumps({column: ["a", 1]}) + "\n"
    found, wrong = answers_of_predict(ner_model, tmp_path, rows, "words.jsonl")
    assert found[column] == words and "words.jsonl:2" in wrong["error"]
    entities = [(e["start"], e["end"], e["text"]) for e in found["entities"]]
    assert entities == [(1, 2, "pig"), (4, 6, "the barn")]


def test_predict_chooses_between_what_tabs_separate(swag_model, tmp_path):
    text = "in the barn\tthe rude dog\tthe kind cat\nin the barn\n"
    first, second = answers_of_predict(swag_model, tmp_path, text)
    assert first["choice"] == "the kind cat"
    assert second["text"] == "in the barn" and f"{tmp_path}/input.txt:2: " in second["error"]
