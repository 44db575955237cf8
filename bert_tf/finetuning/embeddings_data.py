"""The examples of run_embeddings and run_reranker: from files, GLUE data sets and SNLI."""

from __future__ import annotations

import logging
import math
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import cast

from bert_tf.data.tables import read_table
from bert_tf.finetuning.embeddings_options import TextFilesOptions
from bert_tf.finetuning.embeddings_tables import check_some, read_file, text_of
from bert_tf.finetuning.options import SPLITS
from bert_tf.tasks.classification import InputExample
from bert_tf.tasks.embeddings import EmbeddingExample, text_key
from bert_tf.tasks.glue import find_glue_task, read_glue, splits_of
from bert_tf.tasks.problem_types import Label
from bert_tf.training.embedding_losses import PAIRS, SCORES

logger = logging.getLogger(__name__)

_MOST_SCORE = 5.0  # of STS-B


def read_examples(
    options: TextFilesOptions,
) -> tuple[dict[str, str], dict[str, list[EmbeddingExample]]]:
    """Return the examples of the splits that the run needs, and their types: split -> type.

    A model may be trained on one type and evaluated on another. The test set needs no labels: a missing
    one is nan.

    Raises:
        ValueError: a file cannot be read, has no examples, lacks a column, or has an empty text or an
            invalid score.
    """
    splits, types = {}, {}
    for split, wanted, flag in SPLITS:
        if not getattr(options, wanted):
            continue
        if options.task_name:
            types[split], splits[split] = _of_data_set(options, split)
            check_some(splits[split], source_of(options, split), "pairs, or no entailed ones")
        else:
            types[split], splits[split] = read_file(
                getattr(options, flag),
                options,
                missing_label=math.nan if split == "test" else None,
            )
    for split, examples in splits.items():
        if types[split] == PAIRS:
            splits[split] = in_one_spelling(examples)
    _check_repetitions(types.get("train", ""), splits.get("train", []))
    return types, splits


def in_one_spelling(examples: Sequence[EmbeddingExample]) -> list[EmbeddingExample]:
    """Return the examples with the first of all texts that differ only in case or whitespace.

    Otherwise they would be different documents, and negatives of each other.
    """
    firsts: dict[str, str] = {}
    found = [
        replace(each, texts=tuple(firsts.setdefault(text_key(text), text) for text in each.texts))
        for each in examples
    ]
    others = {text for each in examples for text in each.texts} - set(firsts.values())
    if others:
        logger.info(
            "%d texts differ from another one only in case or whitespace, such as %r, and are replaced "
            "by it",
            *(len(others), min(others)[:60]),
        )
    return found


def source_of(options: TextFilesOptions, split: str) -> str:
    """Return where the examples of a split are from, for messages."""
    if options.task_name:
        return f"{options.data_dir} (task_name={options.task_name})"
    return str(next(getattr(options, flag) for name, _, flag in SPLITS if name == split))


def score_each_pair(types: dict[str, str], splits: dict[str, list[EmbeddingExample]]) -> None:
    """Make a test set of anchors with one positive each pairs without scores."""
    test = splits.get("test", [])
    if types.get("test") == PAIRS and all(len(each.texts) == 2 for each in test):
        logger.info("The test set has no scores. Each of its pairs gets one; no metrics.")
        types["test"] = SCORES
        splits["test"] = [replace(each, label=math.nan) for each in test]


def _of_data_set(options: TextFilesOptions, split: str) -> tuple[str, list[EmbeddingExample]]:
    name, data_dir = str(options.data_set), str(options.data_dir)
    if name == "snli":
        return PAIRS, _of_inference(_read_snli(data_dir, split))
    task = find_glue_task(name)
    parts = splits_of(task, data_dir, split)
    rows = [row for part in parts for row in read_glue(task, data_dir, part)]
    labelled = [row for row in rows if row.label is not None]
    if not labelled and split != "test":
        raise ValueError(
            f"{data_dir}: {', '.join(parts)} has no labels, so there is nothing to compare. Omit "
            f"{next(wanted for name, wanted, _ in SPLITS if name == split)}."
        )
    if labelled and name == "mnli":
        return PAIRS, _of_inference(labelled)
    most = _MOST_SCORE if name == "sts-b" else 1.0
    return SCORES, [
        EmbeddingExample((row.text_a, str(row.text_b)), _number(row.label) / most, row.origin)
        for row in labelled or rows
    ]


def _number(label: Label) -> float:
    return math.nan if label is None else float(cast(str, label))


def _read_snli(data_dir: str, split: str) -> Iterator[InputExample]:
    """Yield the pairs of a split of SNLI 1.0. Those without agreement have the label "-"."""
    for row in read_table(os.path.join(data_dir, f"snli_1.0_{split}.jsonl")):
        a, b = text_of(row, "sentence1"), text_of(row, "sentence2")
        yield InputExample("", a, b, str(row["gold_label"]), row.place)


def _of_inference(rows: Iterable[InputExample]) -> list[EmbeddingExample]:
    """Return premises with their entailed hypotheses, and contradictions as negatives."""
    by_premise: dict[str, dict[str, list]] = {}
    for row in rows:
        labels = by_premise.setdefault(row.text_a, {})
        labels.setdefault(str(row.label), []).append(row)
    examples = []
    for premise, labels in by_premise.items():
        against = [row.text_b for row in labels.get("contradiction", [])]
        for row in labels.get("entailment", []):
            examples.append(EmbeddingExample((premise, row.text_b, *against[:1]), 0.0, row.origin))
    return examples


def _check_repetitions(example_type: str, examples: Sequence[EmbeddingExample]) -> None:
    """Log how many examples share a text, which are not used as negatives of each other."""
    if example_type != PAIRS:
        return
    for index, what in enumerate(("anchor", "positive")):
        counts = Counter(example.texts[index] for example in examples)
        repeated = sum(count for count in counts.values() if count > 1)
        if repeated:
            logger.info(
                "%d of %d examples share their %s with another one; these are not used as negatives of "
                "each other in a batch",
                *(repeated, len(examples), what),
            )


def unique_texts(texts: Iterator[str]) -> dict[str, int]:
    """Return the texts in the order of their first occurrence: text -> index."""
    found: dict[str, int] = {}
    for text in texts:
        found.setdefault(text, len(found))
    return found
