"""Token classification: records of windows, the loss, and what becomes of the outputs."""

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.data.token_classification import Sentence
from bert_tf.limits import DataError
from bert_tf.metrics.basic import f1_macro
from bert_tf.tasks.token_classification import TokenClassificationTask
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
    sentences = [sentence("a c a", "B-X O O"), sentence("ab ab", "O I-X"), sentence("c", "B-X")]
    task = TokenClassificationTask(LABELS, 6, document_context=True, doc_stride=1)
    batch = written(task, sentences, TOKENIZER)
    assert batch["label_weights"].sum() == 6
    assert (batch["input_mask"].sum(axis=1) <= 6).all()
    kept = {**batch, "predictions": batch["label_ids"]}
    assert task.sentence_labels(kept, "label_ids") == [["B-X", "O", "O"], ["O", "I-X"], ["B-X"]]
    # More context than the word's own sentence:
    assert (batch["input_mask"].sum(axis=1) > 2 + 1).all()


def test_a_label_that_is_not_known_is_named_with_its_line(tmp_path):
    task = TokenClassificationTask(LABELS, 8)
    with pytest.raises(DataError) as error:
        task.write_records([sentence("a a", "O B-Y", line=11)], TOKENIZER, str(tmp_path / "r"))
    assert error.value.location == "a.conll:12"
    assert not (tmp_path / "r").exists()


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
        "eval_precision": 0.5,
        "eval_recall": 0.5,
        "eval_f1": 0.5,
        "eval_precision_X": 0.5,
        "eval_recall_X": 1.0,
        "eval_f1_X": pytest.approx(2 / 3),
        "eval_precision_Y": 0.0,
        "eval_recall_Y": 0.0,
        "eval_f1_Y": 0.0,
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
    for option, value in (
        ("labels", ["O"]),
        ("max_seq_length", 2),
        ("doc_stride", 7),
        ("doc_stride", 0),
    ):
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
