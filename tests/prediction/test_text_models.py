"""Every model on raw text answers as if each text stood alone, whatever else is in the batch."""

import dataclasses
import math

import numpy as np
import pytest
import tiny_text_models as tiny
from helpers import pack_windows
from tiny_text_models import MAX_SEQ_LENGTH, TEXTS, TOKENS, alone, run_alone

from bert_tf.prediction.classification import ClassificationPredictor
from bert_tf.prediction.encoder import EmbeddingPredictor
from bert_tf.prediction.masked_lm import MaskedLMPredictor
from bert_tf.prediction.multiple_choice import MultipleChoicePredictor
from bert_tf.prediction.predictor import Predictor
from bert_tf.prediction.question_answering import QuestionAnsweringPredictor
from bert_tf.prediction.text_model import without_padding
from bert_tf.tokenization import FullTokenizer
from reference.numpy_bert import softmax


def logits_alone(trained, sequence):
    return run_alone(trained.model, sequence)["logits"].numpy()[0].astype(np.float64)


# ------------------------------------------------------------------------------- forms of the inputs


def test_predictor_takes_a_lone_text():
    classifying = Predictor(tiny.classifier())
    assert classifying.predict("owls") == classifying.predict(["owls"])
    np.testing.assert_array_equal(classifying.embed("owls"), classifying.embed(["owls"]))
    with pytest.raises(TypeError, match="items"):
        classifying.predict({"text": "owls"})


def test_predictor_refuses_inputs_that_do_not_fit_the_model():
    pairs, encoder = tiny.classifier(is_pair=True), tiny.trained(None)
    for trained, items, named in (
        (tiny.classifier(), ["owls", b"owls"], "b'owls'"),
        (tiny.classifier(), [("a", "log", "owls")], "(text_a, text_b)"),
        (tiny.classifier(), [("x", "y")], "single sentences"),
        (tiny.classifier(), ["owls", ["a", "log"]], "single sentences"),
        (tiny.classifier(), ["owls", "a", None], "None"),
        (pairs, ["x"], "pairs"),
        (tiny.answerer(), ["who ?", "a log"], "(question, context)"),
        (tiny.answerer(), [("who ?",)], "(question, context)"),
        (tiny.chooser(), ["ab"], "(text_a, choices)"),
        (tiny.chooser(), [("who ?", ["a dog"])], "['a dog']"),
        (tiny.chooser(), [("who ?", "a dog")], "'a dog'"),
        (tiny.pretrained(), ["no mask"], "[MASK]"),
        (tiny.pretrained(), ["cat " * 9 + "[MASK]"], "[MASK]"),  # behind the last place
        (encoder, ["the cat"], "embed"),
    ):
        with pytest.raises(ValueError) as error:
            Predictor(trained).predict(items)
        assert named in str(error.value)


# ---------------------------------------------------------------------------------- classification


@pytest.mark.parametrize("problem_type", ["single_label", "multi_label", "regression"])
def test_classifier_answers_each_text_as_alone(problem_type):
    trained, labels = tiny.classifier(problem_type), ("bad", "fair", "good")
    logits = [logits_alone(trained, alone(text)) for text in TEXTS]
    for batch_size in (1, 3, 100):
        answers = ClassificationPredictor(trained, batch_size).predict(TEXTS)
        for scores, answer in zip(logits, answers, strict=True):
            if problem_type == "regression":
                assert answer == {"score": pytest.approx(float(scores[0]), abs=1e-5)}
                continue
            is_single = problem_type == "single_label"
            shares = softmax(scores) if is_single else 1 / (1 + np.exp(-scores))
            expected = dict(zip(labels, shares, strict=True))
            assert list(answer["probabilities"]) == list(labels)
            assert answer["probabilities"] == pytest.approx(expected, abs=1e-5)
            if is_single:
                assert answer["label"] == labels[int(scores.argmax())]
            else:
                assert answer["labels"] == [n for n, share in expected.items() if share > 0.5]


def test_classifier_averages_the_logits_of_windows():
    """Also of a model that was trained without; that one cuts by itself."""
    trained, long = tiny.classifier(doc_stride=4), TEXTS[3]
    model = ClassificationPredictor(trained, batch_size=2)
    answers = model.predict(TEXTS)
    for text, answer in zip(TEXTS, answers, strict=True):
        windows = pack_windows(
            trained.tokenizer.encode(text),
            max_seq_length=MAX_SEQ_LENGTH,
            doc_stride=4,
            cls_id=TOKENS.index("[CLS]"),
            sep_id=TOKENS.index("[SEP]"),
        )
        logits = np.mean(
            [logits_alone(trained, without_padding(window)) for window in windows], axis=0
        )
        found = list(answer["probabilities"].values())
        np.testing.assert_allclose(found, softmax(logits), atol=1e-5)
    assert model.num_truncated == 0
    cut, whole = Predictor(tiny.classifier()), Predictor(tiny.classifier(), doc_stride=4)
    (found,) = whole.predict([long])
    assert cut.predict([long]) != [found]
    assert found["probabilities"] == pytest.approx(answers[3]["probabilities"], abs=1e-5)
    assert (cut.text_model.num_truncated, whole.text_model.num_truncated) == (1, 0)


def test_pair_is_one_sequence():
    trained = tiny.classifier(is_pair=True)
    (answer,) = ClassificationPredictor(trained).predict([("the cat", "a dog")])
    expected = softmax(logits_alone(trained, alone("the cat", "a dog")))
    np.testing.assert_allclose(list(answer["probabilities"].values()), expected, atol=1e-5)


# -------------------------------------------------------------------------------- multiple choice


def test_choices_get_the_softmax_over_the_scores_of_each_alone():
    trained = tiny.chooser()
    questions = [("the cat", ["a mat", "the owl sat", "log"]), ("who ?", ["", "the dog"])]
    answers = MultipleChoicePredictor(trained, batch_size=2).predict(questions)
    for (text, choices), answer in zip(questions, answers, strict=True):
        scores = []
        for choice in choices:
            packed = alone(text, choice or None)
            inputs = {n: np.array([[values]]) for n, values in packed._asdict().items()}
            scores.append(float(trained.model(inputs)["logits"][0, 0]))
        np.testing.assert_allclose(answer["probabilities"], softmax(np.array(scores)), atol=1e-5)
        assert answer["choice"] == choices[int(np.argmax(scores))]


# ---------------------------------------------------------------------------------- masked language


def masked_lm_logits(model, ids, position):
    inputs = {"input_ids": np.array([ids]), "masked_lm_positions": np.array([[position]])}
    logits = model(inputs)["masked_lm_logits"].numpy()[0, 0, : len(TOKENS)].astype(np.float64)
    return logits - np.log(np.exp(logits).sum())


def test_each_mask_gets_the_tokens_of_the_text_alone():
    trained = tiny.pretrained()
    texts = ["the [MASK] sat", "[MASK] [MASK] on a mat .", "who [MASK]"]
    answers = MaskedLMPredictor(trained, 2, top_k=99).predict(texts)  # of all, but no row more
    assert [len(answer["masks"]) for answer in answers] == [1, 2, 1]
    ids = [TOKENS.index(t) for t in ("[CLS]", "[MASK]", "[MASK]", "on", "a", "mat", ".", "[SEP]")]
    for position, candidates in enumerate(answers[1]["masks"], start=1):
        expected = np.exp(masked_lm_logits(trained.model, ids, position))
        best = np.argsort(-expected)
        assert [c["token"] for c in candidates] == [TOKENS[index] for index in best]
        found = [c["probability"] for c in candidates]
        assert math.fsum(found) == pytest.approx(1, abs=1e-5)
        np.testing.assert_allclose(found, expected[best], atol=1e-5)


# ----------------------------------------------------------------------------------------- Predictor


def test_each_answer_has_a_short_form():
    for kind, trained, answer, text in (
        (ClassificationPredictor, tiny.classifier, {"label": "bad"}, "bad"),
        (ClassificationPredictor, tiny.classifier, {"labels": ["bad", "good"]}, "bad, good"),
        (ClassificationPredictor, tiny.classifier, {"score": 1 / 3}, "0.333333"),
        (MultipleChoicePredictor, tiny.chooser, {"choice": "a dog"}, "a dog"),
        (EmbeddingPredictor, tiny.pretrained, {"embedding": [0.5, -1.0]}, "0.5 -1.0"),
        (QuestionAnsweringPredictor, tiny.answerer, {"answer": "a log"}, "a log"),
    ):
        assert kind(trained()).short(answer) == text


def test_predictor_of_nothing_answers_nothing():
    for make in (tiny.classifier, tiny.chooser, tiny.pretrained):
        assert Predictor(make()).predict([]) == []


def test_masks_need_a_pretrained_model_with_mask():
    tokenizer = FullTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "cat"])
    without = dataclasses.replace(tiny.pretrained(), tokenizer=tokenizer)
    for trained in (tiny.trained(None), tiny.classifier(), without):
        with pytest.raises((ValueError, KeyError), match="MASK"):
            Predictor(trained).fill_mask("the [MASK]")


def test_predictor_refuses_settings_that_its_model_lacks():
    for make, settings in (
        (tiny.chooser, {"doc_stride": 3}),
        (tiny.pretrained, {"max_seq_length": 24}),
        (tiny.classifier, {"max_seq_length": 2}),
    ):
        with pytest.raises(ValueError) as caught:
            Predictor(make(), **settings)
        assert next(iter(settings)) in str(caught.value)
