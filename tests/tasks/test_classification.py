"""Classification: records, the model's outputs, and the figures of an evaluation set."""

import math

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.data.records import read_records
from bert_tf.tasks.classification import METRICS, ClassificationTask, InputExample
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
        InputExample("3", "the dog"),  # of a test set
    ]
    assert written(task(), examples, tokenizer, tmp_path / "train.tf_record") == {
        "input_ids": [[2, 4, 5, 7, 3, 6, 3, 0], [2, 1, 3, 0, 0, 0, 0, 0], [2, 4, 5, 3, 0, 0, 0, 0]],
        "input_mask": [[1] * 7 + [0], [1] * 3 + [0] * 5, [1] * 4 + [0] * 4],
        "segment_ids": [[0] * 5 + [1, 1, 0], [0] * 8, [0] * 8],
        "label_ids": [1, 0, 0],
        "is_real_example": [1, 1, 1],
    }


def test_the_record_of_a_label_is_an_int64_list_of_one_value_as_in_the_reference(
    tokenizer, tmp_path
):
    path = str(tmp_path / "train.tf_record")
    task().write_records([InputExample("1", "dog", label="maybe")], tokenizer, path)
    (record,) = tf.data.TFRecordDataset(path).as_numpy_iterator()
    features = tf.train.Example.FromString(record).features.feature
    assert sorted(features) == sorted(
        ["input_ids", "input_mask", "segment_ids", "label_ids", "is_real_example"]
    )
    assert list(features["label_ids"].int64_list.value) == [2]


def test_long_pairs_are_cut_to_the_sequence_length(tokenizer, tmp_path):
    example = InputExample("1", "the the the the", "dog dog", "no")
    batch = written(task(max_seq_length=7), [example], tokenizer, tmp_path / "x.tf_record")
    assert batch["input_ids"] == [[2, 4, 4, 3, 5, 5, 3]]


def test_an_unknown_label_is_an_error_with_file_and_line_and_leaves_no_file(tokenizer, tmp_path):
    examples = [
        InputExample("1", "dog", label="yes", origin="train.tsv:2"),
        InputExample("2", "dog", label="Yes", origin="train.tsv:3"),
    ]
    message = (
        "train.tsv:3: the label is 'Yes', but the labels of this task are 'no', 'yes', 'maybe'"
    )
    with pytest.raises(ValueError, match=message):
        task().write_records(examples, tokenizer, str(tmp_path / "train.tf_record"))
    assert not list(tmp_path.glob("*tf_record*"))


def test_an_example_without_origin_is_named_by_its_guid(tokenizer, tmp_path):
    with pytest.raises(ValueError, match=r"^dev-7: the label is '2'"):
        task().write_records(
            [InputExample("dev-7", "a", label="2")], tokenizer, str(tmp_path / "x")
        )


@pytest.mark.parametrize("labels", [[], ["a"], ["a", "b", "a"]])
def test_labels_must_be_two_or_more_that_differ(labels):
    with pytest.raises(
        ValueError, match=r"`labels` are \[.*\], but must be two or more that differ"
    ):
        ClassificationTask(labels, 8)


def test_the_model_takes_the_inputs_and_has_an_output_for_each_label():
    config = BertConfig(
        vocab_size=9,
        hidden_size=4,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=6,
        max_position_embeddings=8,
    )
    made = task()
    assert made.input_names == ("input_ids", "input_mask", "segment_ids")
    model = made.build_model(config)
    batch = {name: tf.ones([2, 5], tf.int32) for name in made.input_names}
    outputs = model(batch)
    assert outputs["logits"].shape == (2, 3)
    features = {**batch, "label_ids": tf.constant([1, 2]), "is_real_example": tf.ones([2])}
    kept = made.eval_outputs(outputs, features)
    assert sorted(kept) == ["label_ids", "logits"]


def test_figures_of_an_evaluation_set_have_the_references_keys():
    logits = np.float32([[0, math.log(3), -99], [0, math.log(3), -99]])
    kept = {"logits": logits, "label_ids": np.array([1, 0])}
    loss = (math.log(4 / 3) + math.log(4)) / 2
    assert task().metrics(kept) == {
        "eval_accuracy": 0.5,
        "eval_loss": pytest.approx(loss, rel=1e-6),
        "loss": pytest.approx(loss, rel=1e-6),
    }


def test_every_metric_that_a_task_may_name_is_reported():
    binary = ClassificationTask(["0", "1"], 8, metric_names=tuple(METRICS))
    predicted, labels = np.array([1, 1, 0, 1, 0, 0]), np.array([1, 1, 0, 0, 1, 1])
    kept = {"logits": np.eye(2)[predicted], "label_ids": labels}
    found = binary.metrics(kept)
    assert found["eval_accuracy"] == 0.5
    assert found["eval_f1"] == pytest.approx(4 / 7)
    assert found["eval_matthews_correlation"] == pytest.approx(0.0)
