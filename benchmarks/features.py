"""Time saved before fine-tuning by several processes and by cached records.

    python benchmarks/features.py --num_workers=2

Seconds until the records of SQuAD's and of ARC's questions exist: in one process, in several, and after
an earlier run. Each begins with new examples and a new tokenizer, like a run of its own. The questions
are repeated (`--copies`): SQuAD's with passages that are tokenized anew, ARC's with a number before
each. The vocabulary is the official uncased one.
"""

from __future__ import annotations

import argparse
import dataclasses
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from multiple_choice import usable_rows

from bert_tf.data.multiple_choice import Question, read_questions
from bert_tf.data.question_answering import Findings, TrainingExample, examples_to_train, read_squad
from bert_tf.data.records import make_once
from bert_tf.tasks.base import Task
from bert_tf.tasks.multiple_choice import MultipleChoiceTask
from bert_tf.tasks.question_answering import QuestionAnsweringTask, label_questions
from bert_tf.tokenization import FullTokenizer

DATA = Path(__file__).resolve().parent.parent.parent / "shared/data"


def squad_examples(copies: int) -> list[TrainingExample]:
    """Return the training questions; each copy has its own passages."""
    found: list[TrainingExample] = []
    for _ in range(copies):
        examples = read_squad(DATA / "squad/train-subset-44articles.json")
        found += examples_to_train(examples, False, Findings())
    return found


def arc_questions(copies: int) -> list[Question]:
    """Return the questions; each copy has its own numbers before them."""
    with tempfile.TemporaryDirectory() as folder:
        file = usable_rows(DATA / "multiple_choice/ARC/arc_easy_dev.csv", Path(folder))
        questions = read_questions(str(file))
    return [
        dataclasses.replace(q, text_a=f"{n} {q.text_a}") for n in range(copies) for q in questions
    ]


def prepare_squad(
    examples: list[TrainingExample], tokenizer: FullTokenizer, path: str, num_workers: int
) -> int:
    """Prepare records as run_squad does before training."""
    questions = label_questions(examples, tokenizer, Findings())
    return write_once(
        QuestionAnsweringTask(max_seq_length=384), questions, tokenizer, path, num_workers
    )


def prepare_arc(
    questions: list[Question], tokenizer: FullTokenizer, path: str, num_workers: int
) -> int:
    """Prepare records as run_swag does before training."""
    most = max(len(question.choices) for question in questions)
    return write_once(MultipleChoiceTask(most, 128), questions, tokenizer, path, num_workers)


def write_once(
    task: Task, examples: list[Any], tokenizer: FullTokenizer, path: str, num_workers: int
) -> int:
    """Write the records unless the file has them. Return their number."""

    def write(path: str) -> int:
        return task.write_records(examples, tokenizer, path, num_workers)

    return make_once(path, task.records_key(examples, tokenizer), write)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--num_workers", type=int, default=2)
    parser.add_argument(
        "--copies", type=int, default=7, help="of SQuAD's 11,877 questions; ARC: 10x"
    )
    args = parser.parse_args()
    kinds: dict[str, tuple[Callable, Callable, int]] = {
        "SQuAD": (squad_examples, prepare_squad, args.copies),
        "ARC": (arc_questions, prepare_arc, 10 * args.copies),
    }
    print(
        f"| seconds | one process | {args.num_workers} processes | made before |\n|---|---|---|---|"
    )
    for name, (read, prepare, copies) in kinds.items():
        with tempfile.TemporaryDirectory() as folder:
            row = []
            for file, workers in (("one", 1), ("several", args.num_workers), ("one", 1)):
                examples = read(copies)
                tokenizer = FullTokenizer(str(DATA / "vocab/bert-base-uncased.vocab.txt"))
                start = time.perf_counter()
                prepare(examples, tokenizer, f"{folder}/{file}.tf_record", workers)
                row.append(f"{time.perf_counter() - start:.1f}")
            one, several = (Path(folder, f"{n}.tf_record").read_bytes() for n in ("one", "several"))
            assert one == several, "several processes wrote another file"
        print(f"| {name}, {len(examples):,} questions | {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
