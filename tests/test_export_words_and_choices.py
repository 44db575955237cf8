"""SavedModels of run_ner and run_swag: the same answers as the models, on text."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.predictor import ChoicePredictor, EntityRecognizer, SavedClassifier
from bert_tf.workflows.exporting import ExportOptions, export_saved_model


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
    outputs = served["words"].signatures["serving_default"](words=words)
    return outputs["label"].numpy().astype(str).tolist(), outputs["probability"].numpy()


def test_words_get_the_labels_that_the_recognizer_finds(served, ner_model):
    rows = [["a", "owl", "is", "in", "the", "barn"], ["a", "pig"]]
    labels, probabilities = label(served, rows)
    assert labels == [["O", "B-A", "O", "O", "B-B", "I-B"], ["O", "B-A", "", "", "", ""]]
    found = EntityRecognizer(str(ner_model)).predict([" ".join(row) for row in rows])
    assert probabilities[0, 1] == pytest.approx(found[0][0]["probability"], rel=1e-4)
    assert probabilities[1, 1] == pytest.approx(found[1][0]["probability"], rel=1e-4)
    assert (probabilities[1, 2:] == 0).all()


def test_a_word_of_which_nothing_is_left_has_a_label_and_moves_no_other(served):
    with_mark, _ = label(served, [["a", "\u200d", "owl", "is", "in", "the", "barn"]])
    assert len(with_mark[0]) == 7 and all(with_mark[0])
    unknown, _ = label(served, [["a", "qqq", "owl", "is", "in", "the", "barn"]])
    assert with_mark == unknown


def test_a_row_that_is_too_long_is_an_error_and_not_cut(served):
    assert len(label(served, [["cat"] * 29])[0][0]) == 29  # 31 positions
    with pytest.raises(tf.errors.InvalidArgumentError, match="more than 29 WordPieces"):
        label(served, [["cat"] * 30])


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
    probabilities = outputs["probabilities"].numpy()
    for row, answer in zip(probabilities, expected, strict=True):
        np.testing.assert_allclose(
            row[: len(answer["probabilities"])], answer["probabilities"], atol=1e-5
        )
    assert probabilities[0, 2] == 0


def test_the_other_signature_takes_ids(served):
    ids = {
        name: tf.ones([2, 3, 7], tf.int32) for name in ("input_ids", "input_mask", "segment_ids")
    }
    outputs = served["choices"].signatures["tokens"](**ids)
    np.testing.assert_allclose(outputs["probabilities"], np.full((2, 3), 1 / 3), atol=1e-6)
    ids = {name: value[0] for name, value in ids.items()}
    assert served["words"].signatures["tokens"](**ids)["logits"].shape == (3, 7, 5)


@pytest.mark.parametrize("name, inputs", [("words", "words"), ("choices", "text_a|choices")])
def test_they_are_not_taken_for_classifiers(folders, name, inputs):
    with pytest.raises(ValueError, match=f"takes .*({inputs}).*, so it is no classifier"):
        SavedClassifier(folders[name])


def test_lengths_beyond_the_model_are_refused(ner_model, tmp_path):
    options = ExportOptions(
        model_dir=str(ner_model), export_dir=str(tmp_path / "e"), max_seq_length=32
    )
    with pytest.raises(ValueError, match=r"--max_seq_length is 32, but must be from 3 to .* = 31"):
        export_saved_model(options)
