"""What trained models say: answers, entities and choices on raw text, and `predict` with them."""

import json

import numpy as np
import pytest
import tiny_text_models as tiny
from export_kinds import QUESTIONS
from helpers import read_json_lines
from models import DATA, golden

from bert_tf.data.question_answering import read_squad
from bert_tf.options import make_options
from bert_tf.prediction.predict import PredictionOptions, predict
from bert_tf.prediction.predictor import Predictor
from bert_tf.tasks.token_classification import TokenClassificationTask


def answers_of_predict(kind, tmp_path, text, name="input.txt", **flags):
    (tmp_path / name).write_text(text)
    predict(
        make_options(
            PredictionOptions,
            model_dir=str(golden(kind)),
            input_file=str(tmp_path / name),
            output_file=str(tmp_path / "output.jsonl"),
            **flags,
        )
    )
    return read_json_lines(tmp_path / "output.jsonl")


# ------------------------------------------------------------------------------------------- answers


def test_answerer_says_exact_parts_that_it_learned():
    examples = list(read_squad(str(DATA / "squad/dev.json")))
    asked = [(example.question_text, example.passage.text) for example in examples]
    found = Predictor(golden("squad")).predict(asked)
    right = 0
    for answer, example in zip(found, examples, strict=True):
        text, (start, end) = example.passage.text, (answer["start"], answer["end"])
        assert answer["answer"] == text[start:end] != ""
        assert 0 < answer["probability"] <= 1 and "null_odds" not in answer
        right += (answer["answer"], start) == (example.answers[0].text, example.answers[0].start)
    assert right > 0.8 * len(examples)


def test_threshold_decides_about_no_answer():
    asked = [pair for pair in QUESTIONS if "cat" in pair[1]]
    folder = golden("squad2")
    none = Predictor(folder, null_score_diff_threshold=-1e9).predict(asked)
    assert {(a["answer"], a["start"], a["end"]) for a in none} == {("", None, None)}
    every = Predictor(folder, null_score_diff_threshold=1e9).predict(asked)
    assert all(answer["answer"] for answer in every)
    odds = [answer["null_odds"] for answer in every]
    assert [answer["null_odds"] for answer in none] == pytest.approx(odds, abs=1e-4)


# ------------------------------------------------------------------------------- entities and choices


def test_entities_have_their_characters():
    texts = ["  a Owl is in the barn", "", "a pig is in the lake"]
    recognizer = Predictor(golden("ner"))
    answers = [answer["entities"] for answer in recognizer.predict(texts)]
    assert [[(e["type"], e["text"]) for e in found] for found in answers] == [
        [("A", "Owl"), ("B", "the barn")],
        [],
        [("A", "pig"), ("B", "the lake")],
    ]
    for text, found in zip(texts, answers, strict=True):
        for entity in found:
            assert text[entity["start"] : entity["end"]] == entity["text"]
            assert 0.5 < entity["probability"] <= 1
    assert recognizer.predict([]) == []


def test_entities_of_long_texts_are_those_of_each_part():
    """The model labels each word by itself, whatever its window."""
    labels = ("O", "B-X", "B-Y", "B-Z")
    trained = tiny.trained(TokenClassificationTask(labels, tiny.MAX_SEQ_LENGTH))
    for variable in trained.model.weights:
        mixes = (
            "position_embeddings",
            "attention/output/dense",
            "layer_0/output",
            "layer_1/output",
        )
        if any(part in variable.path for part in mixes) and "LayerNorm" not in variable.path:
            variable.assign(np.zeros(variable.shape))
        if variable.path == "output_bias":
            variable.assign([0, 0.5, 1, -0.5])
    text = "the cat sat on a mat . who ? owls , a dog on the log "
    answers = Predictor(trained).predict([text, text * 20])
    short, long = (answer["entities"] for answer in answers)
    places = [(e["start"], e["end"], e["type"]) for e in short]
    assert {kind for _, _, kind in places} == {"Y", "Z"}
    assert [(e["start"], e["end"], e["type"]) for e in long] == [
        (start + len(text) * n, end + len(text) * n, kind)
        for n in range(20)
        for start, end, kind in places
    ]


def test_predict_takes_lists_of_words(tmp_path):
    words = ["a", "pig", "is", "in", "the", "barn"]
    rows = json.dumps({"words": words}) + "\n" + json.dumps({"words": ["a", 1]}) + "\n"
    found, wrong = answers_of_predict("ner", tmp_path, rows, "words.jsonl", text_a_column="words")
    assert found["words"] == words and "words.jsonl:2" in wrong["error"]
    entities = [(e["start"], e["end"], e["text"]) for e in found["entities"]]
    assert entities == [(1, 2, "pig"), (4, 6, "the barn")]
