"""Time saved before fine-tuning by several processes and by cached records.

    python benchmarks/features.py --num_workers=2

Seconds until the records of SQuAD's and of ARC's questions exist: in one process, in several, and after
an earlier run. The questions are repeated (`--copies`): SQuAD's with passages that are tokenized anew,
ARC's with a number before each. The vocabulary is the official uncased one.
"""

from __future__ import annotations

import argparse
import dataclasses
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from bert_tf.data.multiple_choice import read_questions
from bert_tf.data.question_answering import Findings, TrainingExample, examples_to_train, read_squad
from bert_tf.data.record_cache import make_once
from bert_tf.tasks.multiple_choice import MultipleChoiceTask
from bert_tf.tasks.question_answering import QuestionAnsweringTask, label
from bert_tf.tokenization import FullTokenizer

DATA = Path(__file__).resolve().parent.parent.parent / "shared/data"


def squad_examples(copies: int) -> list[TrainingExample]:
    """Return the training questions; each copy has its own passages."""
    found: list[TrainingExample] = []
    for _ in range(copies):
        examples = read_squad(DATA / "squad/train-subset-44articles.json")
        found += examples_to_train(examples, False, Findings())
    return found


def prepare_squad(
    examples: list[TrainingExample], tokenizer: FullTokenizer, path: str, num_workers: int
) -> int:
    """Prepare records as run_squad does before training."""
    task = QuestionAnsweringTask(max_seq_length=384)
    questions = label(examples, tokenizer, Findings(), num_workers)

    def write(path: str) -> int:
        return task.write_records(questions, tokenizer, path, num_workers)

    return make_once(path, task.records_key(questions, tokenizer), write)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--num_workers", type=int, default=2)
    parser.add_argument(
        "--copies", type=int, default=7, help="of SQuAD's 11,877 questions; ARC: 10x"
    )
    args = parser.parse_args()
    tokenizer = FullTokenizer(str(DATA / "vocab/bert-base-uncased.vocab.txt"))
    asked = squad_examples(args.copies)
    arc = read_questions(str(DATA / "multiple_choice/ARC/arc_easy_dev.csv"), [])
    arc = [
        dataclasses.replace(q, text_a=f"{n} {q.text_a}")
        for n in range(10 * args.copies)
        for q in arc
    ]
    choosing = MultipleChoiceTask(max(len(q.choices) for q in arc), 128)

    def prepare_arc(path: str, num_workers: int) -> int:
        def write(path: str) -> int:
            return choosing.write_records(arc, tokenizer, path, num_workers)

        return make_once(path, choosing.records_key(arc, tokenizer), write)

    kinds: dict[str, Callable[[str, int], int]] = {
        f"SQuAD, {len(asked):,} questions": lambda path, n: prepare_squad(
            asked, tokenizer, path, n
        ),
        f"ARC, {sum(len(q.choices) for q in arc):,} choices": prepare_arc,
    }
    print(
        f"| seconds | one process | {args.num_workers} processes | made before |\n|---|---|---|---|"
    )
    for name, prepare in kinds.items():
        with tempfile.TemporaryDirectory() as folder:
            row = []
            for file, workers in (("one", 1), ("several", args.num_workers), ("one", 1)):
                start = time.perf_counter()
                prepare(f"{folder}/{file}.tf_record", workers)
                row.append(f"{time.perf_counter() - start:.1f}")
            one, several = (Path(folder, f"{n}.tf_record").read_bytes() for n in ("one", "several"))
            assert one == several, "several processes wrote another file"
        print(f"| {name} | {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
