"""Input of run_ner: files, their labels, and the resulting task."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence

import tensorflow as tf

from bert_tf.data.label_schemes import WORDS, breaks, complete_labels, find_scheme
from bert_tf.data.token_classification import Columns, Sentence, read_conll
from bert_tf.data.word_splitting import choose_rule
from bert_tf.finetuning.options import SPLITS
from bert_tf.finetuning.token_classification_options import NerOptions
from bert_tf.options import OptionError
from bert_tf.tasks.of_checkpoint import in_order_of, spelled_as
from bert_tf.tasks.token_classification import TokenClassificationTask

logger = logging.getLogger(__name__)

Splits = dict[str, list[Sentence]]

# Usual file names of data sets, for --data_dir.
FILE_NAMES: Mapping[str, Sequence[str]] = {
    "train": ("train.txt", "train.conll", "train.tsv", "eng.train", "wnut17train.conll"),
    "dev": ("dev.txt", "dev.conll", "dev.tsv", "valid.txt", "eng.testa", "emerging.dev.conll"),
    "test": ("test.txt", "test.conll", "test.tsv", "eng.testb", "emerging.test.annotated"),
}


def columns_of(options: NerOptions, split: str) -> Columns:
    """Return the columns of a split; a test file may lack labels."""
    return Columns(options.word_column, options.label_column, labelled=split != "test")


def find_files(options: NerOptions) -> dict[str, str]:
    """Return split -> file of the splits that the run needs, from the flags or from `data_dir`.

    Raises:
        ValueError: a required file is missing; the message lists the files of the folder.
    """
    found = {}
    names = set(tf.io.gfile.listdir(options.data_dir)) if options.data_dir else set()
    for split, wanted, flag in SPLITS:
        if not getattr(options, wanted):
            continue
        if getattr(options, flag):
            found[split] = getattr(options, flag)
            continue
        matching = [name for name in FILE_NAMES[split] if name in names]
        if not matching:
            raise ValueError(
                f"data_dir={options.data_dir} has none of {', '.join(FILE_NAMES[split])}, but "
                f"{', '.join(sorted(names)) or 'nothing'}. Give {flag}."
            )
        found[split] = os.path.join(options.data_dir, matching[0])
    return found


def read_data(
    options: NerOptions,
    trained: TokenClassificationTask | None = None,
    max_seq_length: int = 128,
    known_labels: Sequence[str] = (),
) -> tuple[TokenClassificationTask, Splits]:
    """Return the task, and the sentences of the splits that the run needs.

    Args:
        trained: task that the model was trained for, None for a new model.
        max_seq_length: S.
        known_labels: of the initial weights. The same labels in the data get their order.

    Raises:
        ValueError: a file is unreadable, empty or breaks the scheme, a label is unknown, or the task
            differs from `trained`.
    """
    stated = options.label_scheme
    if trained is not None and trained.word_labels and stated == "auto":
        stated = WORDS
    splits = {
        split: read_conll(file, columns_of(options, split), stated)
        for split, file in find_files(options).items()
    }
    known = {"train": splits["train"]} if "train" in splits else splits
    labelled = [row.labels for rows in known.values() for row in rows if row.labels is not None]
    scheme = find_scheme(labelled) if stated == "auto" else stated
    if options.do_train:
        order = known_labels if trained is None else trained.labels
        task = _new_task(options, splits["train"], scheme, order, max_seq_length)
        if trained is not None:
            _check_same_task(task, trained)
    elif trained is None:
        raise ValueError(
            "The weights have no task.json, so their labels are unknown. Give a folder of run_ner, or "
            "--do_train."
        )
    else:
        labels = spelled_as(trained.labels, sorted({n for labels in labelled for n in labels}))
        task = _adjusted(trained, labels, options, max_seq_length, stated)
    for sentences in splits.values():
        _check_labels(sentences, task.labels)
        _check_scheme(sentences, task.crf or scheme, strict=stated != "auto")
        if task.document_context and not any(sentence.document for sentence in sentences):
            logger.warning(
                "%s has no -DOCSTART- line, so with --document_context the whole file is one document.",
                sentences[0].file,
            )
    return task, splits


def _new_task(
    options: NerOptions,
    sentences: Sequence[Sentence],
    scheme: str,
    known_labels: Sequence[str],
    max_seq_length: int,
) -> TokenClassificationTask:
    labels = complete_labels((n for each in sentences for n in each.labels or ()), scheme)
    if len(labels) < 2:
        raise ValueError(
            f"{sentences[0].file}: every label is {labels[0]!r}. Name their column with --label_column."
        )
    rule, whole_words = choose_rule([sentence.words for sentence in sentences])
    return TokenClassificationTask(
        in_order_of(known_labels, labels),
        max_seq_length,
        options.document_context,
        options.doc_stride,
        options.feature_layers if options.feature_based else None,
        word_labels=scheme == WORDS,
        crf=scheme if options.crf else None,
        word_splitting=rule,
        whole_words=whole_words,
    )


def _check_scheme(sentences: Sequence[Sentence], scheme: str, strict: bool) -> None:
    """Raise if `strict` and labels break the scheme, else warn: they are read as conlleval does."""
    found = [
        f"{sentence.place(index)}: {why}"
        for sentence in sentences
        for index, why in breaks(sentence.labels or (), scheme)
    ]
    if not found:
        return
    examples = "; ".join(found[:3])
    if strict:
        raise ValueError(
            f"{len(found)} labels break --label_scheme={scheme}: {examples}. Without the flag they are "
            "read as conlleval does."
        )
    logger.warning(
        "%d labels break the scheme %s and are read as conlleval reads them: %s. If the scheme is "
        "wrong, give --label_scheme.",
        len(found),
        scheme,
        examples,
    )


def _check_labels(sentences: Sequence[Sentence], labels: Sequence[str]) -> None:
    known = set(labels)
    for sentence in sentences:
        for index, label in enumerate(sentence.labels or ()):
            if label not in known:
                raise ValueError(
                    f"{sentence.place(index)}: the label is {label!r}, but those of this model are "
                    f"{', '.join(labels)}."
                )


def _adjusted(
    trained: TokenClassificationTask,
    labels: Sequence[str],
    options: NerOptions,
    max_seq_length: int,
    stated: str,
) -> TokenClassificationTask:
    """Return the task of a trained model with this run's length and spelling of labels."""
    for name, is_missing in (
        ("crf", options.crf and trained.crf is None),
        ("feature_based", options.feature_based and trained.feature_layers is None),
    ):
        if is_missing:
            raise OptionError(name, "the model was trained without it. Omit the flag.")
    arguments = trained.arguments() | {"max_seq_length": max_seq_length, "labels": labels}
    if options.document_context:
        arguments["document_context"] = True
    if stated != "auto":
        arguments["word_labels"] = stated == WORDS
    if options.doc_stride is not None or max_seq_length != trained.max_seq_length:
        arguments["doc_stride"] = options.doc_stride
    return TokenClassificationTask(**arguments)


def _check_same_task(task: TokenClassificationTask, trained: TokenClassificationTask) -> None:
    """Raise if a resumed training would change the labels or the architecture of the head."""
    for name in ("labels", "feature_layers", "crf"):
        now, there = getattr(task, name), getattr(trained, name)
        if now != there:
            raise ValueError(
                f"The model in output_dir has `{name}` {there}, this run {now}. Use another output_dir."
            )
