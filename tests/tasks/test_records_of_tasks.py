"""What the records of all tasks have in common: several processes, and the key of their content."""

from pathlib import Path

import pytest

from bert_tf.data.multiple_choice import Question
from bert_tf.data.question_answering import (
    Findings,
    Passage,
    SquadAnswer,
    SquadExample,
    TrainingExample,
)
from bert_tf.data.token_classification import Sentence
from bert_tf.tasks.classification import ClassificationTask, InputExample
from bert_tf.tasks.embeddings import EmbeddingTask
from bert_tf.tasks.multiple_choice import MultipleChoiceTask
from bert_tf.tasks.question_answering import QuestionAnsweringTask, label
from bert_tf.tasks.token_classification import TokenClassificationTask
from bert_tf.tokenization import FullTokenizer

WORDS = ["owl", "hen", "cat", "the", "saw", "who", "?", ".", "##s"]
VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS]
TOKENIZER = FullTokenizer(VOCAB)


def sentences(label_of_owl="B-X"):
    words = ("the", "owl", "saw", "hens")
    labels = ("O", label_of_owl, "O", "B-X")
    return [Sentence(words * (1 + i % 3), labels * (1 + i % 3), i // 2, "f", ()) for i in range(7)]


def questions(text="the owl saw"):
    return [Question(f"q{i}", f"{text} hen" * i, ("cat", "the owl"), i % 2, "f") for i in range(7)]


def examples(text="the owl"):
    return [InputExample(str(i), text * i, "saw the hen", "yes") for i in range(1, 8)]


def asked(text="the owl saw the hen . the cat saw the owls .", answer="the cat"):
    passages = [Passage(text), Passage("the hen saw the cat .")]
    found = []
    for number in range(7):
        passage = passages[number % 2]
        right = SquadAnswer(answer, passage.text.index(answer)) if number < 5 else None
        example = SquadExample(f"q{number}", "who saw who ?", passage, None, right is None)
        found.append(TrainingExample(example, right))
    return found


class Squad(QuestionAnsweringTask):
    """Its records are those of windows of questions; so that it is called as the others are."""

    def records_key(self, chosen, tokenizer):
        return super().records_key(label(chosen, tokenizer, Findings()), tokenizer)

    def write_records(self, chosen, tokenizer, path, num_workers=1):
        labeled = label(chosen, tokenizer, Findings(), num_workers)
        return super().write_records(labeled, tokenizer, path, num_workers)


ENTITIES = ("O", "B-X", "I-X")
TASKS = {
    "classification": (ClassificationTask(["yes", "no"], 9, is_pair=True), examples),
    "classification in windows": (
        ClassificationTask(["yes", "no"], 9, is_pair=True, doc_stride=2),
        examples,
    ),
    "multiple choice": (MultipleChoiceTask(3, 9), questions),
    "sentences": (TokenClassificationTask(ENTITIES, 9), sentences),
    "documents": (TokenClassificationTask(ENTITIES, 9, document_context=True), sentences),
    "questions": (Squad(12, 2, 3), asked),
}


@pytest.mark.parametrize("task, make", TASKS.values(), ids=TASKS)
def test_several_processes_write_the_file_that_one_writes(task, make, tmp_path, monkeypatch):
    def write(name, num_workers):
        count = task.write_records(make(), TOKENIZER, str(tmp_path / name), num_workers)
        return count, (tmp_path / name).read_bytes()

    whole = write("in_one_chunk", 1)
    monkeypatch.setattr("bert_tf.data.records.CHUNK_SIZE", 2)
    for module in ("token_classification", "question_answering"):
        monkeypatch.setattr(f"bert_tf.tasks.{module}.CHUNK_SIZE", 2)
    monkeypatch.setattr("bert_tf.tasks.question_answering._PASSAGES_AT_ONCE", 1)
    assert write("one_process", 1) == write("two_processes", 2) == whole
    assert whole[0] >= 7


KEYED = {
    "entities": [
        (TokenClassificationTask(ENTITIES, 9), sentences()),
        (TokenClassificationTask(ENTITIES[::-1], 9), sentences()),
        (TokenClassificationTask(ENTITIES, 8), sentences()),
        (TokenClassificationTask(ENTITIES, 9, document_context=True), sentences()),
        (TokenClassificationTask(ENTITIES, 9, doc_stride=2), sentences()),
        (TokenClassificationTask(ENTITIES, 9), sentences("I-X")),
        (TokenClassificationTask(ENTITIES, 9), sentences()[1:]),
    ],
    "questions": [
        (Squad(12, 2, 3), asked()),
        (Squad(13, 2, 3), asked()),
        (Squad(12, 3, 3), asked()),
        (Squad(12, 2, 2), asked()),
        (Squad(12, 2, 3), asked("the owl saw the hen . the cat saw the hens .")),
        (Squad(12, 2, 3), asked(answer="cat")),
        (Squad(12, 2, 3), asked()[::-1]),
    ],
}


@pytest.mark.parametrize("cases", KEYED.values(), ids=KEYED)
def test_records_with_one_key_are_the_same_and_others_have_another(cases, tmp_path):
    keys, files = [], []
    for number, (task, rows) in enumerate(cases):
        path = Path(tmp_path, str(number))
        task.write_records(rows, TOKENIZER, str(path))
        keys.append(task.records_key(rows, TOKENIZER))
        files.append(path.read_bytes())
    assert len(set(keys)) == len(set(files)) == len(cases)
    task, rows = cases[0]
    for tokenizer in (FullTokenizer(VOCAB, do_lower_case=False), FullTokenizer([*VOCAB, "x"])):
        assert task.records_key(rows, tokenizer) not in keys


@pytest.mark.parametrize(
    "task",
    [
        ClassificationTask(["bad", "good"], 16),
        EmbeddingTask(16),
        MultipleChoiceTask(2, 16),
        TokenClassificationTask(["B-X", "O"], 16),
        QuestionAnsweringTask(16, max_query_length=4),
    ],
)
def test_rows_of_a_table_are_no_examples(tmp_path, task):
    with pytest.raises(TypeError, match="Example 0 is of type dict"):
        task.write_records([{"text": "good"}], TOKENIZER, str(tmp_path / "x.tf_record"))
    assert not list(tmp_path.iterdir())
