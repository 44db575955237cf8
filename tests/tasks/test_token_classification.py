"""Token classification, also with a CRF: records of windows, the loss, and the outputs."""

import itertools
import math

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.data.label_schemes import to_iob2
from bert_tf.data.token_classification import Sentence
from bert_tf.tasks.metrics import f1_macro
from bert_tf.tasks.token_classification import TokenClassificationTask, split_by_sentence
from bert_tf.tokenization import FullTokenizer

# ids: 0 [PAD], 1 [UNK], 2 [CLS], 3 [SEP], 4 a, 5 ##b, 6 c
TOKENIZER = FullTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "##b", "c"])
LABELS = ("O", "B-X", "I-X")


def sentence(text, labels=None, document=0, line=1):
    labels = None if labels is None else tuple(labels.split())
    words = tuple(text.split())
    return Sentence(words, labels, document, "a.conll", range(line, line + len(words)))


def test_the_label_stands_at_the_first_piece_of_each_word(written):
    task = TokenClassificationTask(LABELS, 8)
    batch = written(task, [sentence("abb c a", "B-X I-X O")], TOKENIZER)
    assert {name: value[0].tolist() for name, value in batch.items()} == {
        "input_ids": [2, 4, 5, 5, 6, 4, 3, 0],
        "input_mask": [1, 1, 1, 1, 1, 1, 1, 0],
        "segment_ids": [0] * 8,
        "word_positions": [1, 4, 5, 0, 0, 0],
        "label_ids": [1, 2, 0, 0, 0, 0],
        "label_weights": [1, 1, 1, 0, 0, 0],
        "sentence_starts": [1, 0, 0, 0, 0, 0],
    }


def test_with_document_context_a_window_holds_its_neighbours_and_no_other_document(written):
    sentences = [
        sentence("a a", "B-X I-X", document=1),
        sentence("c", "O", document=1),
        sentence("ab c", "O B-X", document=2),
    ]
    task = TokenClassificationTask(LABELS, 9, document_context=True)
    batch = written(task, sentences, TOKENIZER)
    assert task.count_windows(sentences, TOKENIZER) == len(batch["input_ids"])
    assert batch["input_ids"].tolist() == [
        [2, 4, 4, 6, 3, 0, 0, 0, 0],
        [2, 4, 5, 6, 3, 0, 0, 0, 0],
    ]
    kept = {**batch, "predictions": batch["label_ids"]}
    assert task.sentence_labels(kept, "predictions") == [["B-X", "I-X"], ["O"], ["O", "B-X"]]


def test_a_document_longer_than_a_window_slides_and_predicts_each_word_once(written):
    sentences = [sentence("a c a", "B-X O O"), sentence("ab ab", "O B-X"), sentence("c", "B-X")]
    task = TokenClassificationTask(LABELS, 6, document_context=True, doc_stride=1)
    batch = written(task, sentences, TOKENIZER)
    assert batch["label_weights"].sum() == 6
    assert (batch["input_mask"].sum(axis=1) <= 6).all()
    kept = {**batch, "predictions": batch["label_ids"]}
    assert task.sentence_labels(kept, "label_ids") == [["B-X", "O", "O"], ["O", "B-X"], ["B-X"]]
    # More context than the word's own sentence:
    assert (batch["input_mask"].sum(axis=1) > 2 + 1).all()


def test_the_loss_is_the_mean_over_the_words_that_are_predicted(written):
    task = TokenClassificationTask(LABELS, 6)
    sentences = [sentence("a c ab c a a c", "B-X I-X O B-X I-X I-X O"), sentence("c", "B-X")]
    batch = written(task, sentences, TOKENIZER)
    logits = np.random.default_rng(0).normal(size=(4, 6, 3)).astype("float32")
    (loss,) = task.losses
    outputs = {"logits": tf.constant(logits)}
    features = {k: tf.constant(v) for k, v in batch.items()}
    value = loss.total(outputs, features)[0] / loss.weight(features)

    losses = []
    for row in range(4):
        columns = (batch[n][row] for n in ("word_positions", "label_ids", "label_weights"))
        for position, label, weight in zip(*columns, strict=True):
            scores = logits[row, position]
            if weight:
                losses.append(np.log(np.exp(scores).sum()) - scores[label])
    assert len(losses) == 8
    assert float(value) == pytest.approx(np.mean(losses), rel=1e-5)

    kept = {k: v.numpy() for k, v in task.eval_outputs(outputs, features).items()}
    assert task.metrics(kept)["eval_loss"] == pytest.approx(np.mean(losses), rel=1e-5)


def kept_outputs(batch, predictions):
    """What an evaluation keeps: the labels predicted for the words of two windows."""
    found = np.zeros_like(batch["label_ids"])
    found[0, :3], found[1, 0] = predictions
    return {**batch, "predictions": found, "losses": np.zeros_like(batch["label_weights"])}


def test_the_figures_are_those_of_conlleval_overall_and_by_type(written):
    task = TokenClassificationTask(("O", "B-X", "I-X", "B-Y", "I-Y"), 8)
    batch = written(task, [sentence("a c a", "B-X I-X B-Y"), sentence("a", "O")], TOKENIZER)
    kept = kept_outputs(batch, [(1, 2, 1), 0])
    assert task.metrics(kept) == {
        "eval_accuracy": 0.75,
        "eval_loss": 0.0,
        "loss": 0.0,
        **{"eval_precision": 0.5, "eval_recall": 0.5, "eval_f1": 0.5},
        **{"eval_precision_X": 0.5, "eval_recall_X": 1.0, "eval_f1_X": pytest.approx(2 / 3)},
        **{"eval_precision_Y": 0.0, "eval_recall_Y": 0.0, "eval_f1_Y": 0.0},
    }
    assert set(task.metric_keys) == set(task.metrics(kept))


def test_labels_of_words_have_accuracy_and_the_macro_f1_of_classification(written):
    task = TokenClassificationTask(("CC", "DT", "NN"), 8)
    assert not TokenClassificationTask(("B", "I", "O"), 8).word_labels
    assert task.word_labels and task.best_metric == "eval_accuracy"
    batch = written(task, [sentence("a c a", "DT NN DT"), sentence("a", "CC")], TOKENIZER)
    kept = kept_outputs(batch, [(1, 2, 2), 0])
    expected = f1_macro(np.array([1, 2, 2, 0]), np.array([1, 2, 1, 0]))
    assert task.metrics(kept) == {
        "eval_accuracy": 0.75,
        "eval_loss": 0.0,
        "loss": 0.0,
        "eval_f1_macro": pytest.approx(expected),
    }
    assert set(task.metric_keys) == set(task.metrics(kept))
    assert task.sentence_labels(kept, "predictions") == [["DT", "NN", "NN"], ["CC"]]


def test_what_cannot_be_a_task():
    options = "labels", "max_seq_length", "doc_stride", "doc_stride", "crf"
    for option, value in zip(options, (["O"], 2, 7, 0, "bioes"), strict=True):
        with pytest.raises(ValueError, match=option):
            TokenClassificationTask(**{"labels": LABELS, "max_seq_length": 8, option: value})


def test_a_task_is_made_again_from_its_arguments_with_the_same_kind_of_model():
    task = TokenClassificationTask(
        LABELS, 8, True, 3, "last_hidden", 4, True, "words", "outer_punctuation", ["U.S."]
    )
    again = TokenClassificationTask(**task.arguments())
    assert again.arguments() == task.arguments()
    config = BertConfig.from_name("tiny", vocab_size=11, num_hidden_layers=1)
    for made, name in ((again, "BiLstm"), (TokenClassificationTask(LABELS, 8), "")):
        assert type(made.build_model(config)).__name__ == f"Bert{name}ForTokenClassification"


# ---- With a CRF -------------------------------------------------------------------------------

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


def test_labels_of_other_schemes_become_iob2(written):
    broken = sentence("a c c a", "O I-X I-X B-X")
    batch = written(crf_task(), [broken], TOKENIZER)
    assert batch["label_ids"].tolist() == [[0, 1, 2, 1]]
    outputs = outputs_of(*random_outputs(batch))
    assert crf_task().losses[0].total(outputs, batch) < 100  # not -log 0
    plain = written(TokenClassificationTask(LABELS, 6), [broken], TOKENIZER)
    assert plain["label_ids"].tolist() == [[0, 1, 2, 1]]


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
        *(split_by_sentence(windows, name) for name in ("logits", "label_ids")),
        *(split_by_sentence(kept, name) for name in ("predictions", "probabilities")),
        strict=True,
    ):
        sentence_labels = [LABELS[label] for label in found]
        assert to_iob2(sentence_labels) == sentence_labels
        paths = all_paths(own, transitions)
        everything = sum(paths.values())
        assert tuple(found) == max(paths, key=paths.get)
        for place, label in enumerate(found):
            marginal = sum(value for path, value in paths.items() if path[place] == label)
            assert certain[place] == pytest.approx(marginal / everything, abs=1e-4)
        total -= math.log(paths[tuple(actual)] / everything)
    assert task.metrics(kept)["eval_loss"] == pytest.approx(total / 10, rel=1e-4)
