"""Multiple choice: records, and choices that are only padding."""

import numpy as np
import pytest

from bert_tf.config import BertConfig
from bert_tf.data.multiple_choice import Question
from bert_tf.data.records import read_records
from bert_tf.metrics.basic import softmax
from bert_tf.tasks.multiple_choice import MultipleChoiceTask
from bert_tf.tokenization import FullTokenizer

# ids: 0 [PAD], 1 [UNK], 2 [CLS], 3 [SEP], 4 a, 5 b, 6 c
TOKENIZER = FullTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "b", "c"])
K, S = 3, 7


def question(text_a, *choices, label=0):
    return Question("q", text_a, choices, label, "a.csv:4")


def written(task, questions, path):
    task.write_records(questions, TOKENIZER, str(path))
    dataset = read_records(
        [str(path)],
        task.features,
        batch_size=len(questions),
        shuffle=False,
        repeat=False,
        drop_remainder=False,
    )
    (batch,) = dataset
    return dict(batch)


def test_each_choice_is_a_pair_and_missing_choices_are_padding(tmp_path):
    batch = written(
        MultipleChoiceTask(K, S), [question("a", "b c", "b", label=1)], tmp_path / "records"
    )
    assert {name: value.numpy()[0].tolist() for name, value in batch.items()} == {
        "input_ids": [[2, 4, 3, 5, 6, 3, 0], [2, 4, 3, 5, 3, 0, 0], [0] * 7],
        "input_mask": [[1] * 6 + [0], [1] * 5 + [0] * 2, [0] * 7],
        "segment_ids": [[0, 0, 0, 1, 1, 1, 0], [0, 0, 0, 1, 1, 0, 0], [0] * 7],
        "choice_mask": [1, 1, 0],
        "label_ids": 1,
        "is_real_example": 1,
    }


def test_a_question_without_an_answer_can_be_written_and_one_with_too_many_choices_not(tmp_path):
    task = MultipleChoiceTask(2, S)
    assert (
        task.write_records([question("a", "b", "c", label=None)], TOKENIZER, f"{tmp_path}/r") == 1
    )
    with pytest.raises(
        ValueError, match=r"a.csv:4: there are 3 choices, but the task has at most 2"
    ):
        task.write_records([question("a", "b", "c", "a")], TOKENIZER, f"{tmp_path}/r")


def model_outputs(task, batch):
    config = BertConfig.from_name("tiny", vocab_size=7)
    model = task.build_model(config)
    model.classifier.output_weights.assign(
        np.random.default_rng(0).normal(size=(1, config.hidden_size))
    )
    inputs = {name: batch[name] for name in task.input_names}
    return model, model(inputs)


def test_padding_choices_get_no_probability_and_change_nothing(tmp_path):
    wide, narrow = MultipleChoiceTask(5, S), MultipleChoiceTask(2, S)
    questions = [question("a", "b c", "b", label=1), question("c", "a", "c b", label=0)]
    batch = written(wide, questions, tmp_path / "wide")
    model, outputs = model_outputs(wide, batch)
    kept = wide.eval_outputs(outputs, batch)
    probabilities = softmax(kept["logits"].numpy())
    assert (probabilities[:, 2:] == 0).all()

    small = written(narrow, questions, tmp_path / "narrow")
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
