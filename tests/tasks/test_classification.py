"""Classification: records, the model's outputs, and the figures of an evaluation set."""

import math

import numpy as np
import pytest

from bert_tf.data.records import read_records
from bert_tf.tasks.classification import ClassificationTask, InputExample
from bert_tf.tokenization import FullTokenizer

# ids: 0 [PAD], 1 [UNK], 2 [CLS], 3 [SEP], 4 the, 5 dog, 6 barked, 7 ##s
VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "dog", "barked", "##s"]


@pytest.fixture
def tokenizer(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join(VOCAB))
    return FullTokenizer(str(path), do_lower_case=True)


def task(max_seq_length=8, **kwargs):
    return ClassificationTask(["no", "yes", "maybe"], max_seq_length, **kwargs)


def written(task, examples, tokenizer, path):
    """The records of `examples` as one batch of lists."""
    assert task.write_records(examples, tokenizer, str(path)) == len(examples)
    dataset = read_records(
        [str(path)],
        task.features,
        batch_size=len(examples),
        shuffle=False,
        repeat=False,
        drop_remainder=False,
    )
    (batch,) = dataset
    return {name: value.numpy().tolist() for name, value in batch.items()}


def test_examples_become_the_references_records(tokenizer, tmp_path):
    examples = [
        InputExample("1", "The dogs", "barked", "yes"),
        InputExample("2", "Cat", label="no"),
        InputExample("3", "the dog", label="no"),
    ]
    made = task(is_pair=None)
    assert written(made, examples, tokenizer, tmp_path / "train.tf_record") == {
        "input_ids": [[2, 4, 5, 7, 3, 6, 3, 0], [2, 1, 3, 0, 0, 0, 0, 0], [2, 4, 5, 3, 0, 0, 0, 0]],
        "input_mask": [[1] * 7 + [0], [1] * 3 + [0] * 5, [1] * 4 + [0] * 4],
        "segment_ids": [[0] * 5 + [1, 1, 0], [0] * 8, [0] * 8],
        "label_ids": [1, 0, 0],
        "is_real_example": [1, 1, 1],
    }


@pytest.mark.parametrize(("is_pair", "text_b"), [(False, "dog"), (True, None)])
def test_an_example_has_as_many_texts_as_its_task_takes(tokenizer, tmp_path, is_pair, text_b):
    example = InputExample("1", "dog", text_b, "no", origin="x.csv:3")
    for call in (
        lambda: task(is_pair=is_pair).write_records([example], tokenizer, str(tmp_path / "x")),
        lambda: task(is_pair=is_pair).check_examples([example]),
    ):
        with pytest.raises(ValueError, match=f"x.csv:3: .*is_pair={is_pair}"):
            call()
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    "arguments, name",
    [
        ({"labels": ["a"]}, "labels"),
        ({"labels": ["a", "b", "a"]}, "labels"),
        ({"labels": {"no", "yes"}}, "labels"),
        ({"labels": "no,yes"}, "labels"),
        ({"problem_type": "regression"}, "labels"),
        ({"problem_type": "ranking"}, "problem_type"),
        ({"metric_names": ["f1_micro"]}, "metric_names"),
        ({"metric_names": []}, "metric_names"),
        ({"labels": ["a", "b", "c"], "metric_names": ["f1"]}, "metric_names"),
        ({"class_weights": [1.0]}, "class_weights"),
        ({"class_weights": [0.0, 1.0]}, "class_weights"),
        ({"class_weights": {"a": 1.0, "b": 5.0}}, "class_weights"),
        ({"class_weights": "balanced"}, "class_weights"),
        ({"doc_stride": 0}, "doc_stride"),
    ],
)
def test_classification_task_rejects_arguments(arguments, name):
    with pytest.raises((TypeError, ValueError), match=f"`{name}`"):
        ClassificationTask(**{"labels": ["a", "b"], "max_seq_length": 8} | arguments)


def test_examples_that_are_cut_are_counted(tokenizer, tmp_path, caplog):
    texts = ["the " * 6, "the " * 7, "dog"]
    examples = [InputExample("1", text, label="no") for text in texts]
    task().write_records(examples, tokenizer, str(tmp_path / "x"))
    assert "1 of 3 examples are longer than --max_seq_length=8 tokens and are" in caplog.text
    caplog.clear()
    task(doc_stride=2).write_records(examples, tokenizer, str(tmp_path / "y"))
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


def test_a_record_of_several_labels_holds_zeros_and_ones(tokenizer, tmp_path):
    examples = [
        InputExample("1", "dog", label=("threat",)),
        InputExample("2", "dog", label=()),
        InputExample("3", "dog", label=("threat", "rude")),
    ]
    batch = written(multi_task(), examples, tokenizer, tmp_path / "x")
    assert batch["label_ids"] == [[0.0, 1.0], [0.0, 0.0], [1.0, 1.0]]


def test_a_single_name_is_one_of_several_labels(tokenizer, tmp_path):
    made = ClassificationTask(["a", "b"], 8, problem_type="multi_label")
    assert written(made, [InputExample("1", "dog", label="a")], tokenizer, tmp_path / "x")[
        "label_ids"
    ] == [[1.0, 0.0]]
    with pytest.raises(ValueError, match=r"1: the label is 'ab', but"):
        made.check_examples([InputExample("1", "dog", label="ab")])


@pytest.mark.parametrize(
    "made, label, zeros", [(task(), "yes", 0), (multi_task(), (), [0, 0]), (number_task(), 0.5, 0)]
)
def test_all_examples_of_a_file_have_a_label_or_none_has(made, label, zeros, tokenizer, tmp_path):
    none = [InputExample("1", "dog"), InputExample("2", "cat", origin="x.csv:3")]
    batch = written(made, none, tokenizer, tmp_path / "x")  # of a test set
    assert batch["label_ids"] == [zeros, zeros]
    with pytest.raises(ValueError, match=r"x.csv:3: the label is None, as in 1 of 2 examples\."):
        written(made, [InputExample("1", "dog", label=label), none[1]], tokenizer, tmp_path / "y")


@pytest.mark.parametrize(
    "made, label, message",
    [
        (
            multi_task(),
            ("rude", "kind"),
            "x.csv:3: the label is 'kind'",
        ),
        (number_task(), "much", "x.csv:3: the label is 'much'"),
        (number_task(), math.inf, "x.csv:3: the label is inf"),
        (number_task(), 1e39, "x.csv:3: the label is 1e.39"),
    ],
)
def test_a_wrong_label_of_any_kind_is_named_with_its_line_before_anything_is_written(
    made, label, message
):
    with pytest.raises(ValueError, match=message):
        made.check_examples([InputExample("1", "a", label=label, origin="x.csv:3")])


def test_figures_of_several_labels_and_of_numbers():
    logits = np.float32([[2, -1], [-1, -2], [1, 1]])
    labels = np.float32([[1, 1], [0, 0], [1, 1]])
    found = multi_task().metrics_of(logits, labels)
    assert list(found) == ["eval_f1_micro", "eval_f1_macro", "eval_accuracy", "eval_loss", "loss"]
    assert found["eval_f1_micro"] == pytest.approx(2 * 3 / (3 + 4))
    assert found["eval_f1_macro"] == pytest.approx((1 + 2 / 3) / 2)
    assert found["eval_accuracy"] == pytest.approx(2 / 3)
    terms = [
        -math.log(1 / (1 + math.exp(-z if y else z)))
        for z, y in zip(logits.ravel().tolist(), labels.ravel().tolist(), strict=True)
    ]
    assert found["eval_loss"] == pytest.approx(sum(terms) / 6)

    found = number_task().metrics_of(np.float32([[1], [2], [4]]), np.float32([1, 3, 5]))
    assert list(found) == [
        *("eval_pearson", "eval_spearman", "eval_mean_absolute_error"),
        *("eval_loss", "loss"),
    ]
    assert found["eval_loss"] == pytest.approx(2 / 3)
    assert found["eval_spearman"] == pytest.approx(1.0)


@pytest.mark.parametrize("made", [task(), multi_task(), number_task()])
def test_a_task_is_made_again_from_its_arguments(made):
    again = ClassificationTask(**made.arguments())
    assert again.arguments() == made.arguments()
    assert again.kind is made.kind
    windowed = {**made.arguments(), "doc_stride": 3}
    assert ClassificationTask(**windowed).arguments() == windowed
    if made.labels:
        weighed = {**made.arguments(), "class_weights": [2.0] * len(made.labels)}
        assert ClassificationTask(**weighed).arguments() == weighed


# ------------------------------------------------------------------------------- long documents


def test_a_long_text_becomes_windows_that_know_their_example(tokenizer, tmp_path):
    examples = [
        InputExample("1", "dog", label="no"),
        InputExample("2", "the dog barked the dog barked", label="yes"),
    ]
    made = task(max_seq_length=6, doc_stride=2)
    assert made.count_records(examples, tokenizer) == 3
    assert made.write_records(examples, tokenizer, str(tmp_path / "x")) == 3
    (batch,) = read_records(
        [str(tmp_path / "x")],
        made.features,
        batch_size=9,
        shuffle=False,
        repeat=False,
        drop_remainder=False,
    )
    assert batch["example_numbers"].numpy().tolist() == [0, 1, 1]
    assert batch["label_ids"].numpy().tolist() == [0, 1, 1]
    assert batch["input_ids"].numpy().tolist() == [
        [2, 5, 3, 0, 0, 0],
        [2, 4, 5, 6, 4, 3],
        [2, 6, 4, 5, 6, 3],
    ]


def test_per_example_averages_the_logits_of_windows():
    made = ClassificationTask(["a", "b"], 8, doc_stride=4)
    kept = {
        "logits": np.float32([[2, 2], [9, 7], [4, 0]]),
        "label_ids": np.array([1, 0, 1]),
        "example_numbers": np.array([5, 2, 5]),
    }
    found = made.per_example(kept)
    assert found["logits"].tolist() == [[9.0, 7.0], [3.0, 1.0]]
    assert found["label_ids"].tolist() == [0, 1]
    assert made.metrics(kept)["eval_accuracy"] == 0.5


# --------------------------------------------------------------------------- records in parallel
