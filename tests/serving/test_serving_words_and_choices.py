"""SavedModels of run_ner and run_swag: the same answers as the models, on text."""

import random

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.metrics.conlleval import entities as conlleval_entities
from bert_tf.predictor import ChoicePredictor, EntityRecognizer
from bert_tf.programs.export_saved_model import ExportOptions, export_saved_model
from bert_tf.serving.token_classification import _EntityRules


@pytest.fixture(scope="module")
def folders(ner_model, swag_model, tmp_path_factory):
    """Folders of the two SavedModels."""
    folder = tmp_path_factory.mktemp("exported_words_and_choices")
    found = {"words": str(folder / "words"), "choices": str(folder / "choices")}
    for name, model_dir in (("words", ner_model), ("choices", swag_model)):
        export_saved_model(ExportOptions(model_dir=str(model_dir), export_dir=found[name]))
    return found


@pytest.fixture(scope="module")
def served(folders):
    return {name: tf.saved_model.load(folder) for name, folder in folders.items()}


def label(served, rows):
    width = max(map(len, rows))
    words = tf.constant([[*row, *[""] * (width - len(row))] for row in rows])
    outputs = served["words"].signatures["words"](words=words)
    return outputs["label"].numpy().astype(str).tolist(), outputs["probability"].numpy()


def test_words_get_the_labels_that_the_recognizer_finds(served, ner_model):
    rows = [["a", "owl", "is", "in", "the", "barn"], ["a", "pig"]]
    labels, probabilities = label(served, rows)
    found = EntityRecognizer(str(ner_model)).predict([" ".join(row) for row in rows])
    (animal,) = found[1]
    assert labels[0] == ["O", "B-A", "O", "O", "B-B", "I-B"]
    assert labels[1] == ["O", f"B-{animal['type']}", "", "", "", ""]
    assert probabilities[0, 1] == pytest.approx(found[0][0]["probability"], rel=1e-4)
    assert probabilities[1, 1] == pytest.approx(found[1][0]["probability"], rel=1e-4)
    assert (probabilities[1, 2:] == 0).all()


def test_a_word_of_which_nothing_is_left_has_a_label_and_moves_no_other(served):
    with_mark, _ = label(served, [["a", "\u200d", "owl", "is", "in", "the", "barn"]])
    assert len(with_mark[0]) == 7 and all(with_mark[0])
    unknown, _ = label(served, [["a", "qqq", "owl", "is", "in", "the", "barn"]])
    assert with_mark == unknown


TEXTS = (
    "a owl is in the barn",
    "",
    "In\u00a0the barn, a PIG!",
    " \u200d ",
    " ".join(["a pig is in the lake. the hen, the cave 猫 \u200d a ôwl"] * 9),  # many windows
    "supercalifragilisticexpialidocious" * 3 + " a dog",  # a word of more pieces than a window
)


def test_entities_of_texts_of_any_length_are_those_of_the_recognizer(served, ner_model):
    outputs = served["words"].signatures["serving_default"](text=tf.constant(TEXTS))
    expected = EntityRecognizer(str(ner_model)).predict(TEXTS)
    assert max(map(len, expected)) == outputs["type"].shape[1] > 9
    for row, entities in enumerate(expected):
        found = {name: value.numpy()[row] for name, value in outputs.items()}
        count = len(entities)
        assert found["type"][:count].astype(str).tolist() == [e["type"] for e in entities]
        assert found["start"][:count].tolist() == [e["start"] for e in entities]
        assert found["end"][:count].tolist() == [e["end"] for e in entities]
        assert [part.decode() for part in found["entity"][:count]] == [e["text"] for e in entities]
        expected_probabilities = [e["probability"] for e in entities]
        np.testing.assert_allclose(found["probability"][:count], expected_probabilities, atol=1e-5)
        assert {*found["type"][count:], *found["entity"][count:]} <= {b""}
        assert {*found["start"][count:], *found["end"][count:]} <= {-1}
        assert not found["probability"][count:].any()


def test_which_entities_labels_make_is_what_conlleval_says():
    labels = ["O", *(f"{prefix}-{kind}" for kind in "XY" for prefix in "BIES")]
    rules = _EntityRules.of(labels)
    rng = random.Random(1)
    for _ in range(50):
        rows = [[rng.choice(labels) for _ in range(rng.randint(0, 9))] for _ in range(4)]
        ids = tf.constant([labels.index(name) for row in rows for name in row], tf.int64)
        splits = np.cumsum([0, *map(len, rows)])
        found = rules.find(ids, tf.constant(splits))
        kinds = rules.types[ids.numpy()[found.first.numpy()]]
        expected = [
            (row, kind, splits[row] + first, splits[row] + end - 1)
            for row in range(4)
            for kind, first, end in conlleval_entities(rows[row])
        ]
        columns = (found.text.numpy(), kinds, found.first.numpy(), found.last.numpy())
        assert list(zip(*columns, strict=True)) == expected


def test_choices_get_the_probabilities_of_the_predictor(served, swag_model):
    questions = [
        ("in the barn", ["the rude dog", "the kind cat"]),
        ("in the barn", ["the calm hen", "the sad hen", "the angry hen"]),
    ]
    outputs = served["choices"].signatures["serving_default"](
        text_a=tf.constant([text for text, _ in questions]),
        choices=tf.constant([[*choices, ""][:3] for _, choices in questions]),
    )
    expected = ChoicePredictor(str(swag_model)).predict(questions)
    assert outputs["prediction"].numpy().tolist() == [1, 0]
    assert outputs["choice"].numpy().tolist() == [b"the kind cat", b"the calm hen"]
    probabilities = outputs["probabilities"].numpy()
    for row, answer in zip(probabilities, expected, strict=True):
        np.testing.assert_allclose(
            row[: len(answer["probabilities"])], answer["probabilities"], atol=1e-5
        )
    assert probabilities[0, 2] == 0
