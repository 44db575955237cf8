"""Exports of a model with a CRF: Viterbi inside, the same answers as the model, in every format."""

import itertools
import math

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.data.label_schemes import breaks
from bert_tf.predictor import load
from bert_tf.programs.export_saved_model import ExportOptions, export_saved_model

LABELS = ["O", "B-A", "I-A", "B-B", "I-B"]
TEXTS = [
    "a owl is in the barn",
    "",
    " \u200d ",
    " ".join(["a pig is in the lake. the hen, the cave 猫 \u200d a ôwl"] * 9),  # many windows
]
IDS = {
    "input_ids": np.array([[2, 20, 30, 40, 21, 3], [2, 21, 25, 3, 0, 0]], np.int32),
    "input_mask": np.array([[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0]], np.int32),
    "segment_ids": np.zeros((2, 6), np.int32),
    "word_positions": np.array([[1, 3, 4], [1, 0, 0]], np.int32),
}


def exported(model_dir, folder, **options):
    export_saved_model(ExportOptions(model_dir=str(model_dir), export_dir=str(folder), **options))
    return folder


@pytest.fixture(scope="module")
def saved(crf_model, tmp_path_factory):
    return exported(crf_model, tmp_path_factory.mktemp("crf") / "saved_model")


@pytest.fixture(scope="module")
def signatures(saved):
    model = tf.saved_model.load(str(saved))
    return {**model.signatures, "owner": model}


def entities(answers):
    kinds = ("type", "start", "end", "text")
    return [[tuple(e[kind] for kind in kinds) for e in each["entities"]] for each in answers]


def certainties(answers):
    return [entity["probability"] for each in answers for entity in each["entities"]]


def check_tokens(outputs):
    """Compare `label_id` and `probability` with brute force over the file's own scores."""
    transitions = outputs["transitions"][0].astype(float)
    for row, positions in enumerate(IDS["word_positions"]):
        words = positions[positions > 0]
        scores = outputs["logits"][row, words].astype(float)
        scores -= np.log(np.exp(scores).sum(axis=-1, keepdims=True))
        paths = {}
        for labels in itertools.product(range(len(LABELS)), repeat=len(words)):
            path = [len(LABELS), *labels, len(LABELS)]
            total = sum(transitions[pair] for pair in itertools.pairwise(path))
            paths[labels] = math.exp(total + sum(map(float, scores[range(len(words)), labels])))
        best = max(paths, key=paths.get)
        found, certain = outputs["label_id"][row], outputs["probability"][row]
        assert tuple(found[: len(words)]) == best
        for place, label in enumerate(best):
            marginal = sum(value for path, value in paths.items() if path[place] == label)
            assert certain[place] == pytest.approx(marginal / sum(paths.values()), abs=1e-4)
        assert set(found[len(words) :]) <= {-1} and not certain[len(words) :].any()


def test_a_saved_model_answers_as_the_model_for_texts_of_any_length(saved, signatures, crf_model):
    ours, theirs = (load(str(folder)).predict(TEXTS) for folder in (crf_model, saved))
    assert len(ours[3]["entities"]) > 9
    assert entities(theirs) == entities(ours)
    np.testing.assert_allclose(certainties(theirs), certainties(ours), atol=1e-5)
    found = {
        n: v.numpy() for n, v in signatures["serving_default"](text=tf.constant(TEXTS)).items()
    }
    is_entity = found["start"] >= 0
    assert found["start"][is_entity].tolist() == [e["start"] for a in ours for e in a["entities"]]
    assert found["type"][is_entity].astype(str).tolist() == [
        e["type"] for a in ours for e in a["entities"]
    ]
    np.testing.assert_allclose(found["probability"][is_entity], certainties(ours), atol=1e-5)


def test_words_get_no_forbidden_transition(signatures):
    rng = np.random.default_rng(0)
    words = ["owl", "barn", "the", "in", "a", "qqq", "."]
    rows = [[*rng.choice(words, size=n), *[""] * (40 - n)] for n in rng.integers(0, 41, size=40)]
    outputs = signatures["words"](words=tf.constant(rows))
    for row, labels in zip(rows, outputs["label"].numpy().astype(str), strict=True):
        count = sum(map(bool, row))
        assert not list(breaks(labels[:count].tolist(), "iob2"))
        assert all(labels[:count]) and not any(labels[count:])


def test_ids_are_labelled_at_the_positions_of_words(signatures):
    check_tokens({k: v.numpy() for k, v in signatures["tokens"](**IDS).items()})
