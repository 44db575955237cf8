"""Files on ids answer text as the models that were exported."""

import json

import numpy as np
import pytest
import tensorflow as tf
import tiny_text_models as tiny
from tiny_served import INPUTS, served, trained

import bert_tf
from bert_tf.prediction import exported
from bert_tf.prediction.runtimes import Runtime
from bert_tf.predictor import Predictor
from bert_tf.programs.export_saved_model import export
from bert_tf.programs.predict import PredictionOptions, choose_model, predict
from bert_tf.serving.lite import write_lite
from bert_tf.serving.saved_model import described, metadata, write_beside
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


class InMemory(Runtime):
    """The function that a file contains, without the file."""

    def __init__(self, model):
        self._function = model.numeric_tokens().get_concrete_function()
        self.signatures = {"tokens": described(self._function)}

    def _ask(self, signature, inputs):
        names = self.signatures[signature]["inputs"]
        outputs = self._function(*(tf.constant(inputs[name], tf.int32) for name in names))
        return {name: value.numpy() for name, value in outputs.items()}


def text_model(kind):
    """The Python classes of a kind, with weights."""
    predictor = Predictor(trained(kind))
    return predictor.encoder() if kind == "encoder" else predictor.text_model


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Function kind -> a folder as of a TFLite export, whose model is in memory."""

    def of(kind, model=None):
        model = model or served(kind)
        facts = metadata(model, "float32") | {"format": "tflite"}
        write_beside(model, str(tmp_path / kind), facts)
        (tmp_path / kind / "model.tflite").touch()
        monkeypatch.setattr(exported, "load", lambda name, path: InMemory(model))
        return str(tmp_path / kind)

    return of


SLOW = set(INPUTS) - {"single", "encoder", "masks"}


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=[pytest.mark.slow] * (kind in SLOW)) for kind in INPUTS]
)
def test_every_type_of_task_answers_as_the_model(folder, kind):
    found = bert_tf.load(folder(kind), batch_size=3).predict(INPUTS[kind])
    assert_equal(found, text_model(kind).answers(INPUTS[kind]))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["encoder", "masks", "choices"])
def test_real_tflite_files_answer_as_the_model(tmp_path, kind):
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


def test_windows_of_an_export_are_no_longer_than_its_inputs(folder):
    task = TokenClassificationTask(["O", "B-X"], tiny.MAX_SEQ_LENGTH, doc_stride=9)
    model, shorter = tiny.trained(task), tiny.MAX_SEQ_LENGTH - 3
    found = Predictor(folder("entities", ServedTagger(model, shorter)))
    expected = Predictor(model, max_seq_length=shorter, doc_stride=shorter - 2)
    assert_equal(found.predict(INPUTS["entities"]), expected.predict(INPUTS["entities"]))


@pytest.mark.slow
def test_lengths_and_settings_may_differ_from_those_of_the_export(folder):
    questions, shorter = folder("questions"), {"max_seq_length": 9, "doc_stride": 2}
    settings = {**shorter, "n_best_size": 3, "max_answer_length": 2}
    found = Predictor(questions, **settings).predict(INPUTS["questions"])
    assert_equal(found, Predictor(trained("questions"), **settings).predict(INPUTS["questions"]))
    windows = folder("windows")
    for given, message in (
        ({"n_best_size": 3}, "n_best_size is 3, but .* question_answering"),
        (
            {"precision": "mixed_bfloat16"},
            "precision is mixed_bfloat16, but .* is an export, .* fixed",
        ),
        ({"max_seq_length": 99}, "99"),
    ):
        with pytest.raises(ValueError, match=message):
            Predictor(windows, **given)


def test_functions_that_were_not_exported_are_refused(folder):
    encoder = Predictor(folder("encoder"))
    assert encoder.embed(["owls"]).shape == (1, encoder.text_model.width)
    with pytest.raises(
        ValueError, match=r"pooling is cls, but .* is an export, .*fixed by the export"
    ):
        encoder.embed(["owls"], pooling="cls")
    for refused in (lambda: encoder.model, lambda: encoder.fill_mask("a [MASK]")):
        with pytest.raises(ValueError, match=r"is an export, .* Name the folder that was exported"):
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
