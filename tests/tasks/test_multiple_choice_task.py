"""Multiple choice: records, and choices that are only padding."""

import numpy as np
import pytest
import tensorflow as tf
from helpers import cause_of

from bert_tf.config import BertConfig
from bert_tf.data.multiple_choice import Question
from bert_tf.tasks.metrics import softmax
from bert_tf.tasks.multiple_choice import MultipleChoiceTask
from bert_tf.tokenization import FullTokenizer

# ids: 0 [PAD], 1 [UNK], 2 [CLS], 3 [SEP], 4 a, 5 b, 6 c
TOKENIZER = FullTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "b", "c"])
K, S = 3, 7


def question(text_a, *choices, label=0):
    return Question("q", text_a, choices, label, "a.csv:4")


def test_each_choice_is_a_pair_and_missing_choices_are_padding(written):
    batch = written(MultipleChoiceTask(K, S), [question("a", "b c", "b", label=1)], TOKENIZER)
    assert {name: value[0].tolist() for name, value in batch.items()} == {
        "input_ids": [[2, 4, 3, 5, 6, 3, 0], [2, 4, 3, 5, 3, 0, 0], [0] * 7],
        "input_mask": [[1] * 6 + [0], [1] * 5 + [0] * 2, [0] * 7],
        "segment_ids": [[0, 0, 0, 1, 1, 1, 0], [0, 0, 0, 1, 1, 0, 0], [0] * 7],
        "choice_mask": [1, 1, 0],
        "label_ids": 1,
        "is_real_example": 1,
    }


def test_a_question_needs_no_answer_and_has_not_too_many_choices(written):
    task = MultipleChoiceTask(2, S)
    assert len(written(task, [question("a", "b", "c", label=None)], TOKENIZER)["label_ids"]) == 1
    assert cause_of(written, task, [question("a", "b", "c", "a")], TOKENIZER) == "a.csv:4"


def test_padding_choices_get_no_probability_and_change_nothing(written):
    wide, narrow = MultipleChoiceTask(5, S), MultipleChoiceTask(2, S)
    questions = [question("a", "b c", "b", label=1), question("c", "a", "c b", label=0)]
    batch = {n: tf.constant(value) for n, value in written(wide, questions, TOKENIZER).items()}
    model = wide.build_model(BertConfig.from_name("tiny", vocab_size=7, num_hidden_layers=1))
    weights = np.random.default_rng(0).normal(size=model.classifier.output_weights.shape)
    model.classifier.output_weights.assign(weights)
    outputs = model({name: batch[name] for name in wide.input_names})
    kept = wide.eval_outputs(outputs, batch)
    probabilities = softmax(kept["logits"].numpy())
    assert (probabilities[:, 2:] == 0).all()

    small = written(narrow, questions, TOKENIZER)
    logits = model({name: small[name] for name in narrow.input_names})["logits"].numpy()
    np.testing.assert_allclose(probabilities[:, :2], softmax(logits), atol=1e-6)

    (loss,) = wide.losses
    expected = -np.log(softmax(logits)[[0, 1], [1, 0]]).mean()
    found = loss.total(outputs, batch)[0] / loss.weight(batch)
    assert float(found) == pytest.approx(expected, rel=1e-5)
    figures = wide.metrics({name: value.numpy() for name, value in kept.items()})
    assert figures["eval_loss"] == pytest.approx(expected, rel=1e-5)
    assert set(wide.metric_keys) == set(figures)
    assert figures["eval_accuracy"] == (logits.argmax(axis=1) == [1, 0]).mean()
