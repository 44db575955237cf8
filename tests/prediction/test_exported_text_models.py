"""Exports answer text as the models that were exported."""

import json

import numpy as np
import pytest
import tiny_text_models as tiny
from tiny_served import INPUTS, served, trained

import bert_tf
from bert_tf.predictor import Predictor
from bert_tf.programs.export_saved_model import export
from bert_tf.programs.predict import PredictionOptions, choose_model, predict
from bert_tf.serving.formats import write_lite
from bert_tf.serving.saved_model import write_saved_model
from bert_tf.serving.token_classification import ServedTagger
from bert_tf.tasks.token_classification import TokenClassificationTask


def assert_equal(found, expected):
    """The same plain values; numbers within 1e-5."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        found, expected = list(found.values()), list(expected.values())
    if isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_equal(one, other)
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=0, abs=1e-5)
    else:
        assert found == expected


def text_model(kind):
    """The Python classes of a kind, with weights."""
    predictor = Predictor(trained(kind))
    return predictor.encoder() if kind == "encoder" else predictor.text_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Function kind -> the folder of a SavedModel with the signature on ids alone."""
    made = {}

    def of(kind):
        if kind not in made:
            made[kind] = str(tmp_path_factory.mktemp(kind) / "1")
            write_saved_model(served(kind), made[kind], ["tokens"])
        return made[kind]

    return of


SLOW = set(INPUTS) - {"single", "encoder", "masks", "crf", "questions"}


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.night] * (kind in SLOW)) for kind in INPUTS]
)
def test_saved_models_answer_as_the_model(folder, kind):
    found = bert_tf.load(folder(kind), batch_size=3).predict(INPUTS[kind])
    assert_equal(found, text_model(kind).answers(INPUTS[kind]))


@pytest.mark.night
@pytest.mark.parametrize("kind", ["encoder", "masks", "choices"])
def test_tflite_files_answer_as_the_model(tmp_path, kind):
    write_lite(served(kind), str(tmp_path / "1"), "float32")
    found = bert_tf.load(tmp_path / "1").predict(INPUTS[kind])
    assert_equal(found, text_model(kind).answers(INPUTS[kind]))


def test_the_best_tokens_are_at_most_those_of_the_export(folder):
    filler = Predictor(folder("masks")).text_model
    (all_five,) = filler.predict("the [MASK] sat")
    assert [len(all_five), filler.top_k] == [5, 5]
    assert Predictor(folder("masks")).fill_mask("the [MASK] sat") == [all_five]
    options = PredictionOptions(model_dir="unused", top_k=2)
    assert choose_model(Predictor(folder("masks")), options).top_k == 2
    assert filler.predict("the [MASK] sat", top_k=2) == [all_five[:2]]
    assert filler.predict("the [MASK] sat", top_k=9) == [all_five]


def test_windows_of_an_export_are_no_longer_than_its_inputs(tmp_path):
    task = TokenClassificationTask(["O", "B-X"], tiny.MAX_SEQ_LENGTH, doc_stride=9)
    model, shorter = tiny.trained(task), tiny.MAX_SEQ_LENGTH - 3
    write_lite(ServedTagger(model, shorter), str(tmp_path / "1"), "float32")
    found = Predictor(tmp_path / "1")
    expected = Predictor(model, max_seq_length=shorter, doc_stride=shorter - 2)
    assert_equal(found.predict(INPUTS["entities"]), expected.predict(INPUTS["entities"]))


@pytest.mark.night
def test_lengths_and_settings_may_differ_from_those_of_the_export(folder):
    questions, shorter = folder("questions"), {"max_seq_length": 9, "doc_stride": 2}
    settings = {**shorter, "n_best_size": 3, "max_answer_length": 2}
    found = Predictor(questions, **settings).predict(INPUTS["questions"])
    assert_equal(found, Predictor(trained("questions"), **settings).predict(INPUTS["questions"]))
    with pytest.raises(ValueError, match="99"):
        Predictor(folder("windows"), max_seq_length=99)


def test_functions_that_were_not_exported_are_refused(folder):
    encoder = Predictor(folder("encoder"))
    assert encoder.embed(["owls"]).shape == (1, encoder.text_model.width)
    with pytest.raises(ValueError, match="pooling"):
        encoder.embed(["owls"], pooling="cls")
    for refused in (lambda: encoder.model, lambda: encoder.fill_mask("a [MASK]")):
        with pytest.raises(ValueError, match="is an export"):
            refused()
    with pytest.raises(ValueError, match="is an export"):
        Predictor(folder("single")).embed(["owls"])


def test_predict_asks_a_tflite_file(sentence_model, tmp_path):
    export(sentence_model, tmp_path / "lite", format="tflite", max_seq_length=13)
    texts = ["the happy cat in the barn", "sad dog", "the rude pig and the owl " * 5]
    (tmp_path / "texts.txt").write_text("".join(f"{text}\n" for text in texts))
    options = {"input_file": str(tmp_path / "texts.txt"), "output_file": str(tmp_path / "answers")}
    predict(PredictionOptions(model_dir=str(tmp_path / "lite"), **options))
    found = [json.loads(line) for line in (tmp_path / "answers").read_text().splitlines()]
    expected = bert_tf.load(sentence_model, max_seq_length=13).predict(texts)
    assert_equal(found, [{"text": text, **e} for text, e in zip(texts, expected, strict=True)])
    probabilities = [list(answer["probabilities"].values()) for answer in expected]
    assert np.ptp(np.array(probabilities)[:, 0]) > 1e-3  # the answers depend on the texts


def test_a_saved_model_without_the_signature_on_ids_is_an_error(tmp_path):
    write_saved_model(served("single"), str(tmp_path / "1"), ["serving_default"])
    with pytest.raises(ValueError, match="tokens"):
        Predictor(tmp_path / "1")


def test_prefix_of_queries_is_that_of_the_model(folder):
    found = Predictor(folder("embedder")).embed(["owls"], as_query=True)
    expected = Predictor(trained("embedder")).embed(["owls"], as_query=True)
    np.testing.assert_allclose(found, expected, atol=1e-6)
