"""What the records of all tasks have in common: several processes, and the key of their content."""

from pathlib import Path

import pytest
import tensorflow as tf

from bert_tf.data.multiple_choice import Question
from bert_tf.data.question_answering import Findings, SquadExample, TrainingExample
from bert_tf.data.token_classification import Sentence
from bert_tf.data.windows import Passage, SquadAnswer
from bert_tf.tasks.classification import ClassificationTask, InputExample
from bert_tf.tasks.multiple_choice import MultipleChoiceTask
from bert_tf.tasks.question_answering import QuestionAnsweringTask, label_questions
from bert_tf.tasks.token_classification import TokenClassificationTask
from bert_tf.tokenization import FullTokenizer

WORDS = ["owl", "hen", "cat", "the", "saw", "who", "?", ".", "##s"]
VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS]
TOKENIZER = FullTokenizer(VOCAB)


def sentences(label_of_owl="B-X", count=7):
    words = ("the", "owl", "saw", "hens")
    labels = ("O", label_of_owl, "O", "B-X")
    repeats = [1 + number % 3 for number in range(count)]
    return [Sentence(words * r, labels * r, i // 2, "f", ()) for i, r in enumerate(repeats)]


def questions(count):
    choices = ("cat", "the owl")
    return [Question("q", "the owl saw hen" * (i % 6), choices, i % 2, "f") for i in range(count)]


def examples(count):
    return [InputExample("x", "the owl" * (1 + i % 6), "saw the hen", "yes") for i in range(count)]


def asked(text="the owl saw the hen . the cat saw the owls .", answer="the cat", count=7):
    found = []
    for number in range(count):
        ends = " ".join(WORDS[number // size % 8] for size in (1, 8, 64))  # 512 passages
        passage = Passage(f"{text} {ends}")
        right = SquadAnswer(answer, passage.text.index(answer)) if number % 6 < 4 else None
        example = SquadExample(f"q{number}", "who saw who ?", passage, None, right is None)
        found.append(TrainingExample(example, right))
    return found


class Squad(QuestionAnsweringTask):
    """Its records are those of windows of questions; so that it is called as the others are."""

    def records_key(self, chosen, tokenizer):
        return super().records_key(label_questions(chosen, tokenizer, Findings()), tokenizer)

    def write_records(self, chosen, tokenizer, path, num_workers=1):
        labeled = label_questions(chosen, tokenizer, Findings(), num_workers)
        return super().write_records(labeled, tokenizer, path, num_workers)


ENTITIES = ("O", "B-X", "I-X")
TASKS = {
    "classification": (ClassificationTask(["yes", "no"], 9, is_pair=True), examples),
    "windows": (ClassificationTask(["yes", "no"], 9, is_pair=True, doc_stride=2), examples),
    "multiple choice": (MultipleChoiceTask(3, 9), questions),
    "sentences": (TokenClassificationTask(ENTITIES, 9), sentences),
    "documents": (TokenClassificationTask(ENTITIES, 9, document_context=True), sentences),
    "questions": (Squad(12, 2, 3), asked),
}


@pytest.mark.night
@pytest.mark.parametrize("task, make", TASKS.values(), ids=TASKS)
def test_several_processes_write_the_file_that_one_writes(task, make, tmp_path):
    """More rows than the chunks of 1,000 rows and 200 passages that a process gets."""

    def write(name, count, num_workers):
        rows, path = make(count=count), tmp_path / name
        num_records = task.write_records(rows, TOKENIZER, str(path), num_workers)
        records = list(tf.data.TFRecordDataset(str(path)).as_numpy_iterator())
        assert len(records) == num_records >= count / 2
        return records

    found = write("two_processes", 1206, 2)
    assert found == write("one_process", 1206, 1)
    if not any(spec.role == "id" for spec in task.features):  # rows repeat after 6, so do records
        assert found == write("part", 6, 1) * 201


KEYED = {
    "entities": [
        (TokenClassificationTask(ENTITIES, 9), sentences()),
        (TokenClassificationTask(ENTITIES[::-1], 9), sentences()),
        (TokenClassificationTask(ENTITIES, 8), sentences()),
        (TokenClassificationTask(ENTITIES, 9, document_context=True), sentences()),
        (TokenClassificationTask(ENTITIES, 9, doc_stride=2), sentences()),
        (TokenClassificationTask(ENTITIES, 9), sentences("O")),
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
