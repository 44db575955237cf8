"""Classification: records, the model's outputs, and the figures of an evaluation set."""

import math

import numpy as np
import pytest
from helpers import cause_of

from bert_tf.tasks.classification import ClassificationTask, InputExample
from bert_tf.tokenization import FullTokenizer

# ids: 0 [PAD], 1 [UNK], 2 [CLS], 3 [SEP], 4 the, 5 dog, 6 barked, 7 ##s
VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "dog", "barked", "##s"]


TOKENIZER = FullTokenizer(VOCAB)


def task(max_seq_length=8, **kwargs):
    return ClassificationTask(["no", "yes", "maybe"], max_seq_length, **kwargs)


def test_examples_become_the_references_records(written):
    examples = [
        InputExample("1", "The dogs", "barked", "yes"),
        InputExample("2", "Cat", label="no"),
        InputExample("3", "the dog", label="no"),
    ]
    batch = written(task(is_pair=None), examples, TOKENIZER)
    assert {name: value.tolist() for name, value in batch.items()} == {
        "input_ids": [[2, 4, 5, 7, 3, 6, 3, 0], [2, 1, 3, 0, 0, 0, 0, 0], [2, 4, 5, 3, 0, 0, 0, 0]],
        "input_mask": [[1] * 7 + [0], [1] * 3 + [0] * 5, [1] * 4 + [0] * 4],
        "segment_ids": [[0] * 5 + [1, 1, 0], [0] * 8, [0] * 8],
        "label_ids": [1, 0, 0],
        "is_real_example": [1, 1, 1],
    }


def test_an_example_has_as_many_texts_as_its_task_takes(written):
    for is_pair, text_b in ((False, "dog"), (True, None)):
        examples = [InputExample("1", "dog", text_b, "no", origin="x.csv:3")]
        made = task(is_pair=is_pair)
        assert cause_of(written, made, examples, TOKENIZER) == "x.csv:3"
        assert cause_of(made.check_examples, examples) == "x.csv:3"


def test_classification_task_rejects_arguments():
    for name, changes in (
        ("labels", [{"labels": value} for value in (["a"], ["a", "b", "a"], {"a", "b"}, "a,b")]),
        ("labels", [{"problem_type": "regression"}]),
        ("problem_type", [{"problem_type": "ranking"}]),
        ("metric_names", [{"metric_names": ["f1_micro"]}, {"metric_names": []}]),
        ("metric_names", [{"labels": ["a", "b", "c"], "metric_names": ["f1"]}]),
        ("doc_stride", [{"doc_stride": 0}]),
    ):
        for change in changes:
            with pytest.raises((TypeError, ValueError), match=f"`{name}`"):
                ClassificationTask(**{"labels": ["a", "b"], "max_seq_length": 8} | change)


def test_examples_that_are_cut_are_counted(written, caplog):
    texts = ["the " * 6, "the " * 7, "dog"]
    examples = [InputExample("1", text, label="no") for text in texts]
    written(task(), examples, TOKENIZER)
    assert "1 of 3 examples" in caplog.text
    caplog.clear()
    written(task(doc_stride=2), examples, TOKENIZER)
    assert not caplog.text


def test_figures_of_an_evaluation_set_have_the_references_keys():
    logits = np.float32([[0, math.log(3), -99], [0, math.log(3), -99]])
    kept = {"logits": logits, "label_ids": np.array([1, 0])}
    loss = (math.log(4 / 3) + math.log(4)) / 2
    assert task().metrics(kept) == {
        "eval_accuracy": 0.5,
        "eval_f1_macro": pytest.approx(1 / 3),
        "eval_matthews_correlation": 0.0,
        "eval_loss": pytest.approx(loss, rel=1e-6),
        "loss": pytest.approx(loss, rel=1e-6),
    }


# ------------------------------------------------------------------- several labels, and numbers


def multi_task(**kwargs):
    return ClassificationTask(["rude", "threat"], 8, problem_type="multi_label", **kwargs)


def number_task(**kwargs):
    return ClassificationTask([], 8, problem_type="regression", **kwargs)


def test_a_record_of_several_labels_holds_zeros_and_ones(written):
    labels = [("threat",), (), ("threat", "rude"), "rude"]  # a name is one of several labels
    examples = [InputExample(str(n), "dog", label=label) for n, label in enumerate(labels)]
    batch = written(multi_task(), examples, TOKENIZER)
    assert batch["label_ids"].tolist() == [[0.0, 1.0], [0.0, 0.0], [1.0, 1.0], [1.0, 0.0]]


def test_all_examples_of_a_file_have_a_label_or_none_has(written):
    none = [InputExample("1", "dog"), InputExample("2", "cat", origin="x.csv:3")]
    for made, label, zeros in (
        (task(), "yes", 0),
        (multi_task(), (), [0, 0]),
        (number_task(), 0.5, 0),
    ):
        assert written(made, none, TOKENIZER)["label_ids"].tolist() == [zeros, zeros]  # a test set
        half = [InputExample("1", "dog", label=label), none[1]]
        assert cause_of(written, made, half, TOKENIZER) == "x.csv:3"


def test_a_wrong_label_is_named_with_its_line_before_anything_is_written():
    for made, label in (
        (task(), "perhaps"),
        (multi_task(), ("rude", "kind")),
        (multi_task(), "kind"),
        (number_task(), "much"),
        (number_task(), math.inf),
        (number_task(), 1e39),
    ):
        examples = [InputExample("1", "a", label=label, origin="x.csv:3")]
        assert cause_of(made.check_examples, examples) == "x.csv:3"


def test_figures_of_several_labels_and_of_numbers():
    logits = np.float32([[2, -1], [-1, -2], [1, 1]])
    labels = np.float32([[1, 1], [0, 0], [1, 1]])
    found = multi_task().metrics({"logits": logits, "label_ids": labels})
    assert list(found) == ["eval_f1_micro", "eval_f1_macro", "eval_accuracy", "eval_loss", "loss"]
    assert found["eval_f1_micro"] == pytest.approx(2 * 3 / (3 + 4))
    assert found["eval_f1_macro"] == pytest.approx((1 + 2 / 3) / 2)
    assert found["eval_accuracy"] == pytest.approx(2 / 3)
    terms = [
        -math.log(1 / (1 + math.exp(-z if y else z)))
        for z, y in zip(logits.ravel().tolist(), labels.ravel().tolist(), strict=True)
    ]
    assert found["eval_loss"] == pytest.approx(sum(terms) / 6)

    outputs = {"logits": np.float32([[1], [2], [4]]), "label_ids": np.float32([1, 3, 5])}
    found = number_task().metrics(outputs)
    measures = ["eval_pearson", "eval_spearman", "eval_mean_absolute_error"]
    assert list(found) == [*measures, "eval_loss", "loss"]
    assert found["eval_loss"] == pytest.approx(2 / 3)
    assert found["eval_mean_absolute_error"] == pytest.approx(2 / 3)
    assert found["eval_spearman"] == pytest.approx(1.0)


# ------------------------------------------------------------------------------- long documents


def test_a_long_text_becomes_windows_that_know_their_example(written):
    examples = [
        InputExample("1", "dog", label="no"),
        InputExample("2", "the dog barked the dog barked", label="yes"),
    ]
    made = task(max_seq_length=6, doc_stride=2)
    assert made.count_records(examples, TOKENIZER) == 3
    batch = written(made, examples, TOKENIZER)
    assert batch["example_numbers"].tolist() == [0, 1, 1]
    assert batch["label_ids"].tolist() == [0, 1, 1]
    assert batch["input_ids"].tolist() == [
        [2, 5, 3, 0, 0, 0],
        [2, 4, 5, 6, 4, 3],
        [2, 6, 4, 5, 6, 3],
    ]


def test_decode_averages_the_logits_of_windows():
    made = ClassificationTask(["a", "b"], 8, doc_stride=4)
    outputs = {
        "logits": np.float32([[2, 2], [9, 7], [4, 0]]),
        "label_ids": np.array([1, 0, 1]),
        "example_numbers": np.array([5, 2, 5]),
    }
    found = made.decode(outputs)
    assert found["logits"].tolist() == [[9.0, 7.0], [3.0, 1.0]]
    assert found["label_ids"].tolist() == [0, 1]
    assert made.metrics(found)["eval_accuracy"] == 0.5
