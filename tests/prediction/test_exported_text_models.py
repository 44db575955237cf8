"""What is special to predictors of exports; contracts/test_exports.py compares their answers."""

import dataclasses

import pytest
import tiny_text_models as tiny
from export_kinds import ITEMS, served
from models import golden

from bert_tf.options import make_options
from bert_tf.prediction.predict import PredictionOptions, choose_model
from bert_tf.prediction.predictor import Predictor
from bert_tf.serving.formats import write_file
from bert_tf.serving.saved_model import write_saved_model
from bert_tf.serving.token_classification import ServedTokenClassification
from bert_tf.tasks.token_classification import TokenClassificationTask


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


def test_mask_filler_gives_at_most_the_tokens_of_the_export(folder):
    predictor = Predictor(folder("masked_lm"))
    ((all_five,),) = (answer["masks"] for answer in predictor.predict("the [MASK] sat"))
    assert len(all_five) == 5
    assert predictor.fill_mask("the [MASK] sat") == [all_five]
    options = make_options(PredictionOptions, model_dir="unused", top_k=2)
    assert choose_model(Predictor(folder("masked_lm")), options).top_k == 2
    assert predictor.fill_mask("the [MASK] sat", top_k=2) == [all_five[:2]]
    assert predictor.fill_mask("the [MASK] sat", top_k=9) == [all_five]


@pytest.mark.night
def test_windows_are_no_longer_than_the_inputs_of_the_export(tmp_path):
    trained = tiny.trained(TokenClassificationTask(["O", "B-X"], tiny.MAX_SEQ_LENGTH, doc_stride=9))
    write_file(
        ServedTokenClassification(dataclasses.replace(trained, max_seq_length=8)),
        str(tmp_path / "1"),
        "tflite",
    )
    found = Predictor(tmp_path / "1").predict(tiny.TEXTS)
    expected = Predictor(trained, max_seq_length=8, doc_stride=6).predict(tiny.TEXTS)
    for one, other in zip(found, expected, strict=True):
        assert [e.pop("probability") for e in one["entities"]] == pytest.approx(
            [e.pop("probability") for e in other["entities"]], abs=1e-5
        )
        assert one == other


def test_settings_may_differ_from_those_of_the_export(folder):
    settings = {"max_seq_length": 19, "doc_stride": 2, "n_best_size": 3, "max_answer_length": 2}
    found = Predictor(folder("squad2"), **settings).predict(ITEMS["squad2"])
    expected = Predictor(golden("squad2"), **settings).predict(ITEMS["squad2"])
    for one, other in zip(found, expected, strict=True):
        assert [one.pop(n) for n in ("probability", "null_odds")] == pytest.approx(
            [other.pop(n) for n in ("probability", "null_odds")], abs=1e-4
        )
        assert one == other


@pytest.mark.night
def test_functions_that_were_not_exported_are_refused(folder, tmp_path):
    encoder = Predictor(folder("encoder"))
    assert [encoder.embed(texts).shape[0] for texts in (["owls"], [])] == [1, 0]
    squad = Predictor(folder("squad2"))
    write_saved_model(served("regression"), str(tmp_path / "1"), ["serving_default"])
    for refused, named in (
        (lambda: encoder.embed(["owls"], pooling="cls"), "export"),
        (lambda: encoder.model, "export"),
        (lambda: encoder.fill_mask("a [MASK]"), "export"),
        (lambda: squad.embed(["owls"]), "export"),
        (lambda: Predictor(folder("squad2"), max_seq_length=99), "max_seq_length"),
        (lambda: Predictor(tmp_path / "1"), "tokens"),
    ):
        with pytest.raises(ValueError) as caught:
            refused()
        assert named in str(caught.value)
