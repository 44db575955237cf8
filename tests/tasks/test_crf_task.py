"""Token classification with a CRF: its records, its loss, and whole sentences in several windows."""

import itertools
import math

import numpy as np
import pytest
import tensorflow as tf
from test_token_classification import LABELS, TOKENIZER, sentence

from bert_tf.data.label_schemes import breaks
from bert_tf.tasks.token_classification import TokenClassificationTask, by_sentence

LONG = sentence("a c ab c a a c", "B-X I-X O B-X I-X I-X O")  # three windows of 6 tokens


def crf_task(max_seq_length=6, **settings):
    return TokenClassificationTask(LABELS, max_seq_length, crf="iob2", **settings)


def random_outputs(batch, seed=0, scale=2.0):
    """Logits and transitions as of a model. I-X is forbidden after O and at the beginning."""
    rng = np.random.default_rng(seed)
    count, length = batch["input_ids"].shape
    logits = rng.normal(scale=scale, size=(count, length, 3)).astype(np.float32)
    transitions = rng.normal(size=(4, 4)).astype(np.float32)
    transitions[[0, 3], 2] = -1e30
    return logits, transitions


def outputs_of(logits, transitions):
    rows = np.broadcast_to(transitions, (len(logits), *transitions.shape))
    return {"logits": tf.constant(logits), "transitions": tf.constant(rows)}


def all_paths(logits, transitions, starts=True, ends=True):
    """Sequence of labels -> exp(score)."""
    found = {}
    for labels in itertools.product(range(3), repeat=len(logits)):
        score = sum(float(row[label]) for row, label in zip(logits, labels, strict=True))
        score += sum(float(transitions[pair]) for pair in itertools.pairwise(labels))
        score += float(transitions[3, labels[0]]) * starts
        found[labels] = math.exp(score + float(transitions[labels[-1], 3]) * ends)
    return found


def test_labels_that_break_the_scheme_become_those_of_the_same_entities(written):
    broken = sentence("a c c a", "O I-X I-X B-X")
    batch = written(crf_task(), [broken], TOKENIZER)
    assert batch["label_ids"].tolist() == [[0, 1, 2, 1]]
    outputs = outputs_of(*random_outputs(batch))
    assert crf_task().losses[0].total(outputs, batch) < 100  # not -log 0
    plain = written(TokenClassificationTask(LABELS, 6), [broken], TOKENIZER)
    assert plain["label_ids"].tolist() == [[0, 2, 2, 1]]
    keys = {
        TokenClassificationTask(LABELS, 6, crf=scheme).records_key([broken], TOKENIZER)
        for scheme in (None, "iob1", "iob2")
    }
    assert len(keys) == 3


def test_the_loss_is_the_likelihood_of_the_predicted_words_in_their_windows(written):
    task = crf_task()
    batch = written(task, [LONG, sentence("c a", "B-X O")], TOKENIZER)
    logits, transitions = random_outputs(batch)
    expected = 0.0
    for index, own in enumerate(logits):
        row = {name: value[index] for name, value in batch.items()}
        words = row["word_positions"] > 0
        known, labels = row["label_weights"][words] > 0, row["label_ids"][words]
        found = all_paths(
            own[row["word_positions"][words]],
            transitions,
            starts=row["sentence_starts"][0],
            ends=row["sentence_ends"].any(),
        )
        fitting = sum(v for path, v in found.items() if (np.array(path) == labels)[known].all())
        expected -= math.log(fitting / sum(found.values()))
    (loss,) = task.losses
    features = {name: tf.constant(value) for name, value in batch.items()}
    assert float(loss.weight(features)) == 9
    value = float(loss.total(outputs_of(logits, transitions), features))
    assert value == pytest.approx(expected, rel=1e-4)
    parts = 0.0  # micro-batches and replicas
    for rows in (slice(0, 3), slice(3, 4)):
        part = {name: value[rows] for name, value in features.items()}
        parts += float(loss.total(outputs_of(logits[rows], transitions), part))
    assert parts == pytest.approx(value, rel=1e-5)


@pytest.mark.parametrize("document_context", [False, True])
def test_a_sentence_in_several_windows_is_labelled_as_a_whole(written, document_context):
    task = crf_task(document_context=document_context)
    sentences = [LONG, sentence("c a", "B-X O"), sentence("a", "O")]
    batch = written(task, sentences, TOKENIZER)
    logits, transitions = random_outputs(batch, seed=3, scale=0.5)
    features = {name: tf.constant(value) for name, value in batch.items()}
    outputs = task.eval_outputs(outputs_of(logits, transitions), features)
    windows = {name: np.asarray(value) for name, value in outputs.items()}
    kept = task.decode(dict(windows))
    assert "logits" not in kept and "transitions" not in kept
    total = 0.0
    for own, actual, found, certain in zip(
        *(by_sentence(windows, name) for name in ("logits", "label_ids")),
        *(by_sentence(kept, name) for name in ("predictions", "probabilities")),
        strict=True,
    ):
        assert not list(breaks([LABELS[label] for label in found], "iob2"))
        paths = all_paths(own, transitions)
        everything = sum(paths.values())
        assert tuple(found) == max(paths, key=paths.get)
        for place, label in enumerate(found):
            marginal = sum(value for path, value in paths.items() if path[place] == label)
            assert certain[place] == pytest.approx(marginal / everything, abs=1e-4)
        total -= math.log(paths[tuple(actual)] / everything)
    assert task.metrics(kept)["eval_loss"] == pytest.approx(total / 10, rel=1e-4)
