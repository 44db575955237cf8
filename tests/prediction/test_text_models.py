"""Every model on raw text answers as if each text stood alone, whatever else is in the batch."""

import dataclasses
import math

import numpy as np
import pytest
import tensorflow as tf
import tiny_text_models as tiny
from packed_windows import pack_windows
from tiny_text_models import MAX_SEQ_LENGTH, TEXTS, TOKENS, alone, run_alone

from bert_tf.prediction.text_model import plain_texts, trimmed
from bert_tf.predictor import (
    ChoicePredictor,
    MaskFiller,
    Predictor,
    PseudoPerplexity,
    QuestionAnswerer,
    SentenceEncoder,
    TextClassifier,
    corpus_pseudo_perplexity,
)
from bert_tf.tokenization import FullTokenizer


def logits_alone(trained, sequence):
    return run_alone(trained.model, sequence)["logits"].numpy()[0].astype(np.float64)


# ------------------------------------------------------------------------------- forms of the inputs


@pytest.fixture(scope="module")
def classifying():
    return Predictor(tiny.classifier())


@pytest.fixture(scope="module")
def filling():
    return Predictor(tiny.pretrained())


ONE_TEXT = ["owls", b"owls", np.str_("owls"), np.array("owls"), tf.constant("owls")]


@pytest.mark.parametrize("text", ONE_TEXT, ids=lambda text: type(text).__name__)
def test_a_lone_text_is_one_text(classifying, filling, text):
    assert classifying.predict(text) == classifying.predict(["owls"])
    assert filling.pseudo_perplexity(text) == filling.pseudo_perplexity(["owls"])
    np.testing.assert_array_equal(classifying.embed(text), classifying.embed(["owls"]))


@pytest.mark.parametrize(
    "texts",
    [
        ("a log", "京 京"),
        ["a log", "京 京".encode()],
        np.array(["a log", "京 京"]),
        np.array([b"a log", "京 京".encode()]),
        np.array(["a log", "京 京".encode()], object),
        tf.constant(["a log", "京 京"]),
        [tf.constant("a log"), np.array("京 京")],
        iter(["a log", "京 京"]),
        {"first": "a log", "second": "京 京"}.values(),
    ],
)
def test_bytes_arrays_and_tensors_of_texts_are_taken(classifying, texts):
    expected = classifying.embed(["a log", "京 京"])
    np.testing.assert_array_equal(classifying.embed(texts), expected)


def test_half_of_a_surrogate_pair_counts_as_u_fffd(classifying):
    assert plain_texts([("a \ud83d", ["\ude00 b"])]) == [["a \ufffd", ["\ufffd b"]]]
    np.testing.assert_array_equal(classifying.embed("a lo\ud83dg"), classifying.embed("a log"))


@pytest.mark.parametrize(
    ("texts", "value"),
    [
        (["owls", 3], r"items\[1\]"),
        (["owls", "a", None], "None"),
        (np.array([1.5, 2.5]), r"items\[0\]"),
        (["owls", ["a", "log"]], "log"),
        ({"text": "owls"}, "items"),
    ],
)
def test_other_values_than_texts_are_errors(classifying, texts, value):
    with pytest.raises((TypeError, ValueError), match=value):
        classifying.embed(texts)


def test_pairs_may_be_bytes_and_rows_of_an_array():
    pairs = Predictor(tiny.classifier(is_pair=True))
    expected = pairs.predict([("a log", "owls")])
    assert pairs.predict(np.array([["a log", "owls"]])) == expected
    assert pairs.predict([(b"a log", tf.constant("owls"))]) == expected
    assert pairs.predict(tf.constant([["a log", "owls"]])) == expected


@pytest.mark.parametrize(
    "make, items, message",
    [
        (tiny.classifier, ["owls", b"\xff\xfe"], "utf-8"),
        (tiny.classifier, [("a", "log", "owls")], r"\(text_a, text_b\)"),
        (tiny.classifier, [("x", "y")], "'x'"),
        (lambda: tiny.classifier(is_pair=True), ["x"], "'x'"),
        (tiny.answerer, ["who ?", "a log"], r"\(question, context\)"),
        (tiny.answerer, [("who ?",)], r"\(question, context\)"),
        (tiny.chooser, ["ab"], r"\(text_a, choices\)"),
        (tiny.chooser, [("who ?", ["a dog"])], "'who \\?'"),
        (tiny.chooser, [("who ?", "a dog")], "'who \\?'"),
        (tiny.pretrained, ["no mask"], r"\[MASK\]"),
        (lambda: tiny.trained(None), ["the cat"], "embed"),
    ],
)
def test_invalid_inputs_are_errors(make, items, message):
    with pytest.raises(ValueError, match=message):
        Predictor(make()).predict(items)


# ---------------------------------------------------------------------------------- classification


@pytest.mark.parametrize("batch_size", [1, 3, 100])
def test_labels_are_those_of_each_text_alone_in_the_order_of_the_texts(batch_size):
    trained = tiny.classifier()
    answers = TextClassifier(trained, batch_size).predict(TEXTS)
    for text, answer in zip(TEXTS, answers, strict=True):
        logits = logits_alone(trained, alone(text))
        expected = np.exp(logits) / np.exp(logits).sum()
        assert list(answer["probabilities"]) == ["bad", "fair", "good"]
        np.testing.assert_allclose(list(answer["probabilities"].values()), expected, atol=1e-5)
        assert answer["label"] == ("bad", "fair", "good")[int(logits.argmax())]


def test_several_labels_are_those_above_one_half_each_for_itself():
    trained = tiny.classifier("multi_label")
    for text, answer in zip(TEXTS, TextClassifier(trained).predict(TEXTS), strict=True):
        shares = 1 / (1 + np.exp(-logits_alone(trained, alone(text))))
        np.testing.assert_allclose(list(answer["probabilities"].values()), shares, atol=1e-5)
        names = zip(("bad", "fair", "good"), shares, strict=True)
        assert answer["labels"] == [name for name, share in names if share > 0.5]


def test_a_regression_answers_with_its_number():
    trained = tiny.classifier("regression")
    found = [answer["score"] for answer in TextClassifier(trained).predict(TEXTS)]
    expected = [float(logits_alone(trained, alone(text))[0]) for text in TEXTS]
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_a_long_text_is_read_in_windows_whose_logits_are_averaged():
    trained = tiny.classifier(doc_stride=4)
    model = TextClassifier(trained, batch_size=2)
    for text, answer in zip(TEXTS, model.predict(TEXTS), strict=True):
        windows = pack_windows(
            trained.tokenizer.encode(text),
            max_seq_length=MAX_SEQ_LENGTH,
            doc_stride=4,
            cls_id=TOKENS.index("[CLS]"),
            sep_id=TOKENS.index("[SEP]"),
        )
        logits = np.mean([logits_alone(trained, trimmed(window)) for window in windows], axis=0)
        expected = np.exp(logits) / np.exp(logits).sum()
        np.testing.assert_allclose(list(answer["probabilities"].values()), expected, atol=1e-5)
    assert model.num_cut == 0


def test_doc_stride_can_be_asked_of_a_model_that_was_trained_without():
    trained = tiny.classifier()
    cut, whole = Predictor(trained), Predictor(trained, doc_stride=4)
    long = TEXTS[3]
    assert cut.predict([long]) != whole.predict([long])
    assert (cut.text_model.num_cut, whole.text_model.num_cut) == (1, 0)
    expected = TextClassifier(tiny.classifier(doc_stride=4)).predict([long])
    assert whole.predict([long])[0]["label"] == expected[0]["label"]


def test_a_pair_is_one_sequence():
    pair = TextClassifier(tiny.classifier(is_pair=True))
    (answer,) = pair.predict([("the cat", "a dog")])
    logits = logits_alone(tiny.classifier(is_pair=True), alone("the cat", "a dog"))
    assert answer["label"] == ("bad", "fair", "good")[int(logits.argmax())]


# -------------------------------------------------------------------------------- multiple choice


def test_choices_get_the_softmax_over_the_scores_of_each_alone():
    trained = tiny.chooser()
    questions = [("the cat", ["a mat", "the owl sat", "log"]), ("who ?", ["", "the dog"])]
    answers = ChoicePredictor(trained, batch_size=2).predict(questions)
    for (text, choices), answer in zip(questions, answers, strict=True):
        scores = []
        for choice in choices:
            packed = alone(text, choice or None)
            inputs = {n: np.array([[values]]) for n, values in packed._asdict().items()}
            scores.append(float(trained.model(inputs)["logits"][0, 0]))
        expected = np.exp(scores) / np.exp(scores).sum()
        np.testing.assert_allclose(answer["probabilities"], expected, atol=1e-5)
        assert answer["choice"] == choices[int(np.argmax(scores))]


# ---------------------------------------------------------------------------------- masked language


def masked_lm_logits(model, ids, position):
    inputs = {"input_ids": np.array([ids]), "masked_lm_positions": np.array([[position]])}
    logits = model(inputs)["masked_lm_logits"].numpy()[0, 0, : len(TOKENS)].astype(np.float64)
    return logits - np.log(np.exp(logits).sum())


def test_a_question_with_a_truncated_choice_is_counted_once():
    model = ChoicePredictor(tiny.chooser())
    fits, long = ("who ?", ["a dog", ""]), ("who ?", ["a log", "the cat " * 9, "a dog " * 9])
    _, sequences = model.prepare(fits)
    assert model.num_cut == 0 and sequences[0] == alone("who ?", "a dog")
    model.prepare(long)
    assert model.num_cut == 1


def test_each_mask_of_each_text_gets_the_tokens_of_the_text_alone():
    trained = tiny.pretrained()
    texts = ["the [MASK] sat", "[MASK] [MASK] on a mat .", "who [MASK]"]
    answers = MaskFiller(trained, top_k=3, batch_size=2).answers(texts)
    assert [len(answer["masks"]) for answer in answers] == [1, 2, 1]
    ids = [TOKENS.index(t) for t in ("[CLS]", "[MASK]", "[MASK]", "on", "a", "mat", ".", "[SEP]")]
    for position, candidates in enumerate(answers[1]["masks"], start=1):
        expected = np.exp(masked_lm_logits(trained.model, ids, position))
        best = np.argsort(-expected)[:3]
        assert [c["token"] for c in candidates] == [TOKENS[index] for index in best]
        np.testing.assert_allclose(
            [c["probability"] for c in candidates], expected[best], atol=1e-5
        )


def pseudo_log_likelihood(trained, ids):
    """Each token masked in turn, one call of the model for each (Salazar et al. 2020, equation 1)."""
    ids = [TOKENS.index("[CLS]"), *ids, TOKENS.index("[SEP]")]
    total = 0.0
    for position in range(1, len(ids) - 1):
        masked = [*ids[:position], TOKENS.index("[MASK]"), *ids[position + 1 :]]
        total += masked_lm_logits(trained.model, masked, position)[ids[position]]
    return total


@pytest.mark.parametrize("batch_size", [pytest.param(1, marks=pytest.mark.night), 7])
def test_pseudo_perplexity_masks_each_token_in_turn(batch_size):
    trained = tiny.pretrained()
    texts = [text for text in TEXTS if text]
    answers = PseudoPerplexity(trained, batch_size).predict(texts)
    total, room = 0.0, MAX_SEQ_LENGTH - 2
    for text, answer in zip(texts, answers, strict=True):
        ids = trained.tokenizer.encode(text)  # a long text is scored part by part
        parts = [ids[first : first + room] for first in range(0, len(ids), room)]
        expected = sum(pseudo_log_likelihood(trained, part) for part in parts)
        total += expected
        assert answer["num_tokens"] == len(ids)
        assert answer["pseudo_log_likelihood"] == pytest.approx(expected, abs=1e-3)
        assert answer["pseudo_perplexity"] == pytest.approx(
            math.exp(-expected / len(ids)), rel=1e-4
        )
    count = sum(answer["num_tokens"] for answer in answers)
    assert corpus_pseudo_perplexity(answers) == pytest.approx(math.exp(-total / count), rel=1e-4)


@pytest.mark.parametrize(
    "kind, trained, answer, text",
    [
        (TextClassifier, tiny.classifier, {"label": "bad"}, "bad"),
        (TextClassifier, tiny.classifier, {"labels": ["bad", "good"]}, "bad, good"),
        (TextClassifier, tiny.classifier, {"score": 1 / 3}, "0.333333"),
        (ChoicePredictor, tiny.chooser, {"choice": "a dog"}, "a dog"),
        (SentenceEncoder, tiny.pretrained, {"embedding": [0.5, -1.0]}, "0.5 -1.0"),
        (PseudoPerplexity, tiny.pretrained, {"pseudo_perplexity": 1 / 3}, "0.333333"),
        (QuestionAnswerer, tiny.answerer, {"answer": "a log"}, "a log"),
    ],
)
def test_each_answer_has_a_short_form(kind, trained, answer, text):
    assert kind(trained()).short(answer) == text


def test_what_no_number_holds_is_infinite():
    hopeless = [{"pseudo_log_likelihood": -1e6, "num_tokens": 1}]
    assert corpus_pseudo_perplexity(hopeless) == math.inf
    assert math.isnan(corpus_pseudo_perplexity([]))


# ----------------------------------------------------------------------------------------- Predictor


@pytest.mark.parametrize("make", [tiny.classifier, tiny.chooser, tiny.pretrained])
def test_nothing_asked_is_nothing_answered(make):
    assert Predictor(make()).predict([]) == []


def test_a_pre_trained_model_fills_masks_scores_and_embeds():
    predictor = Predictor(tiny.pretrained(), batch_size=2)
    ((best, *_),) = predictor.fill_mask("the [MASK]", top_k=2)
    (answer,) = predictor.predict(["the [MASK]"])
    assert (best.token, len(answer["masks"][0])) == (answer["masks"][0][0]["token"], 5)
    assert predictor.pseudo_perplexity(["the cat"])[0]["num_tokens"] == 2
    assert predictor.embed(["the cat", "a dog", "owl"]).shape == (3, 12)


@pytest.mark.parametrize("name", ["mask_filler", "scorer"])
def test_masks_need_a_pretrained_model_with_mask(name):
    tokenizer = FullTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "cat"])
    without = dataclasses.replace(tiny.pretrained(), tokenizer=tokenizer)
    for trained in (tiny.trained(None), tiny.classifier(), without):
        with pytest.raises(ValueError, match="MASK"):
            getattr(Predictor(trained), name)


@pytest.mark.parametrize(
    "make, settings",
    [
        (tiny.chooser, {"doc_stride": 3}),
        (tiny.pretrained, {"max_seq_length": 24}),
        (tiny.classifier, {"max_seq_length": 2}),
    ],
)
def test_settings_that_a_model_does_not_have_are_errors(make, settings):
    with pytest.raises(ValueError, match=next(iter(settings))):
        Predictor(make(), **settings)
