"""The task of question answering: records, loss, and that padding cannot be seen."""

import itertools

import numpy as np
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.data.features import trim_padding
from bert_tf.data.question_answering import Findings, SquadExample, TrainingExample
from bert_tf.data.windows import Passage, SquadAnswer
from bert_tf.tasks.answer_decoding import ANSWER_SPANS, AnswerSettings
from bert_tf.tasks.question_answering import (
    QuestionAnsweringTask,
    QuestionSet,
    label_questions,
    tokenize_passages,
)
from bert_tf.tokenization import FullTokenizer

WORDS = ["owl", "hen", "cat", "pig", "the", "saw", "who", "?", "."]
TOKENIZER = FullTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS])
TASK = QuestionAnsweringTask(max_seq_length=12, doc_stride=2, max_query_length=3)
LONG = Passage("the owl saw the hen . the cat saw the pig .")


def example(name, passage=LONG, answer=None):
    answers = () if answer is None else (SquadAnswer(answer, passage.text.index(answer)),)
    return SquadExample(name, "who saw who ?", passage, answers, answer is None)


def labeled(*examples):
    chosen = [TrainingExample(e, e.answers[0] if e.answers else None) for e in examples]
    return label_questions(chosen, TOKENIZER, Findings())


def test_records_for_training_have_the_features_of_the_reference(tmp_path):
    questions = labeled(example("a", answer="the cat"), example("b"))
    path = str(tmp_path / "train.tf_record")
    count = TASK.write_records(questions, TOKENIZER, path)
    found = [
        {
            name: list(value.int64_list.value)
            for name, value in tf.train.Example.FromString(record).features.feature.items()
        }
        for record in tf.data.TFRecordDataset(path).as_numpy_iterator()
    ]
    assert count == len(found) == 8  # windows of 12 - 3 - 3 tokens, 2 apart, of 12
    assert set(found[0]) == {
        *("unique_ids", "input_ids", "input_mask", "segment_ids"),
        *("start_positions", "end_positions", "is_impossible"),
    }
    assert [values["unique_ids"] for values in found] == [[1_000_000_000 + i] for i in range(8)]
    # "the cat" is tokens 6 and 7; the windows begin at 0, 2, 4 and 6, and the passage at position 5.
    positions = [(*values["start_positions"], *values["end_positions"]) for values in found]
    assert positions == [(0, 0), (9, 10), (7, 8), (5, 6)] + [(0, 0)] * 4
    assert [values["is_impossible"] for values in found] == [[0]] * 4 + [[1]] * 4
    tokens = TOKENIZER.convert_ids_to_tokens(found[1]["input_ids"])
    assert " ".join(tokens) == "[CLS] who saw who [SEP] saw the hen . the cat [SEP]"


def cross_entropy_by_hand(logits, mask, position):
    kept = np.where(mask == 1, np.exp(logits.astype(np.float64)), 0.0)
    return -np.log(kept[position] / kept.sum())


def tensors(batch):
    return {name: tf.constant(value) for name, value in batch.items()}


def test_the_loss_is_the_mean_of_both_cross_entropies_over_the_tokens(written):
    short = Passage("the owl saw the hen .")
    questions = labeled(example("a", short, "owl"), example("b", Passage("hen .")))
    windows = [*itertools.chain(*TASK.windows_by_question(questions, TOKENIZER))]
    features = tensors(written(TASK, questions, TOKENIZER))
    logits = np.random.default_rng(1).normal(size=(2, 2, 12)).astype(np.float32)
    outputs = {"start_logits": logits[0], "end_logits": logits[1]}
    expected = 0.0
    for row, (start, end) in enumerate(window.answer_positions for window in windows):
        mask = features["input_mask"][row].numpy()
        expected += cross_entropy_by_hand(logits[0, row], mask, start) / 2
        expected += cross_entropy_by_hand(logits[1, row], mask, end) / 2
    (loss,) = TASK.losses
    assert float(loss.weight(features)) == 2.0
    np.testing.assert_allclose(loss.total(outputs, features), expected, rtol=1e-6)
    # Cut to the longest example the loss is the same.
    trimmed = trim_padding(features, TASK.features, multiple=1)
    length = trimmed["input_ids"].shape[1]
    assert length < 12 or min(map(lambda w: w.num_tokens, windows)) < 12
    cut = {name: value[:, :length] for name, value in outputs.items()}
    np.testing.assert_allclose(loss.total(cut, trimmed), expected, rtol=1e-6)


def test_kept_logits_are_of_full_length_and_padding_is_no_answer(written):
    config = BertConfig.from_name("tiny", vocab_size=13, num_hidden_layers=1)
    examples = [example("a", Passage("owl ."), "owl"), example("b", Passage("the hen saw ."))]
    passages = tokenize_passages(examples, TOKENIZER)
    questions = [(e, passages[e.passage], None) for e in examples]
    asked = QuestionSet(questions, TASK, TOKENIZER, AnswerSettings())
    task = TASK.unlabeled()
    model = task.build_model(config)
    features = tensors(written(task, questions, TOKENIZER))
    trimmed = trim_padding(features, task.features, multiple=1)
    assert trimmed["input_ids"].shape[1] == 10

    def outputs_of(batch):
        outputs = model({name: batch[name] for name in task.input_names}, training=False)
        return {name: value.numpy() for name, value in task.eval_outputs(outputs, batch).items()}

    kept, whole = outputs_of(trimmed), outputs_of(features)
    assert kept["start_logits"].shape == (2, 12)
    for name, value in whole.items():
        np.testing.assert_allclose(kept[name], value, atol=1e-5)
    padding = features["input_mask"].numpy() == 0
    assert (kept["end_logits"][padding] < -1e29).all()
    assert set(asked.predict(kept)) == {"a", "b"}
    # Whatever the order of the rows.
    turned = {name: value[::-1] for name, value in kept.items()}
    assert asked.predict(turned) == asked.predict(kept)


def test_an_answer_that_the_tokenizer_drops_is_left_out_and_counted():
    passage = Passage("owl \u200b hen")
    findings, chosen = Findings(), example("a", passage, "\u200b")
    assert not label_questions([TrainingExample(chosen, chosen.answers[0])], TOKENIZER, findings)
    assert list(findings.questions.values()) == [["a"]]


def test_answers_inside_words_are_learned_whole_or_by_characters():
    tokenizer = FullTokenizer(["[UNK]", "un", "##happy", "happy", "hen"])
    passage = Passage("unhappy hen")
    chosen = [
        TrainingExample(example(name, passage, text), SquadAnswer(text, passage.text.index(text)))
        for name, text in (("inside", "happy"), ("whole", "unhappy"), ("cut", "hap"))
    ]
    spans = {
        kind: [span for *_, span in label_questions(chosen, tokenizer, Findings(), kind)]
        for kind in ANSWER_SPANS
    }
    assert spans == {
        "words": [(0, 1), (0, 1), (0, 1)],
        "characters": [(1, 1), (0, 1), (1, 1)],
    }
