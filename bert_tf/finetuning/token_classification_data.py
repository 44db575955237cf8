"""Input of run_ner: files, their labels, and the resulting task."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence

import tensorflow as tf

from bert_tf.data.label_schemes import (
    OUTSIDE,
    SCHEMES,
    WORDS,
    breaks,
    check_unicode_forms,
    complete_labels,
    entity_type,
    find_scheme,
    may_mark_entities,
)
from bert_tf.data.token_classification import Columns, Sentence, read_conll
from bert_tf.finetuning.options import SPLITS
from bert_tf.finetuning.token_classification_options import NerOptions
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
    labelled = options.test_labels if split == "test" else True
    return Columns(options.word_column, options.label_column, labelled)


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
    if options.unlabelled_file and options.do_train:
        columns = Columns(options.word_column, labelled=False)
        splits["unlabelled"] = read_conll(options.unlabelled_file, columns, stated)
    check_unicode_forms(
        (entity_type(label) or label, sentence.place(index))
        for sentences in splits.values()
        for sentence in sentences
        for index, label in enumerate(sentence.labels or ())
    )
    scheme, labels = _scheme_and_labels(stated, splits, trained, known_labels)
    if len(labels) < 2:
        column = (
            "the last column" if options.label_column is None else f"column {options.label_column}"
        )
        raise ValueError(
            f"{splits['train'][0].file}: every label in {column} is {labels[0]!r}, but training needs "
            "two or more labels. Add sentences with others, or name another column with label_column."
        )
    if trained is not None and not options.do_train:
        task = _adjusted(trained, labels, options, max_seq_length, stated)
    else:
        task = TokenClassificationTask(
            labels,
            max_seq_length,
            options.document_context,
            options.doc_stride,
            options.feature_layers if options.feature_based else None,
            options.bilstm_units,
            scheme == WORDS,
            scheme if options.crf else None,
        )
    if task.word_labels:
        logger.info(
            "The %d labels mark words, not entities: the metrics are accuracy and macro F1.",
            len(labels),
        )
        if options.label_scheme == "auto" and may_mark_entities(labels):
            logger.warning(
                "Labels such as %r look like those of entities, which must be written as B-PER, I-PER "
                "and O. Rewrite them, or give --label_scheme=words if they are labels of words.",
                next(label for label in labels if label.upper() != OUTSIDE),
            )
    if trained is not None and options.do_train:
        _check_same_task(task, trained)
    for split, sentences in splits.items():
        _check_labels(sentences, labels, split)
        _check_scheme(sentences, task.crf or scheme, strict=stated != "auto")
        if task.document_context and not any(sentence.document for sentence in sentences):
            logger.warning(
                "%s has no -DOCSTART- line, so with --document_context the whole file is one document.",
                sentences[0].file,
            )
    return task, splits


def _scheme_and_labels(
    stated: str,
    splits: Splits,
    trained: TokenClassificationTask | None,
    known_labels: Sequence[str],
) -> tuple[str, Sequence[str]]:
    """Return scheme and labels of the training set; without training, of the model."""
    if "train" in splits:
        labels = [sentence.labels for sentence in splits["train"]]
        scheme = find_scheme(labels) if stated == "auto" else stated
        found = complete_labels({label for row in labels for label in row}, scheme)
        return scheme, in_order_of(known_labels if trained is None else trained.labels, found)
    if trained is None:
        raise ValueError(
            "The labels of the model's outputs are unknown, because there is no task.json next to its "
            "weights. Give the output_dir of run_ner, or train with do_train."
        )
    known = [row.labels for rows in splits.values() for row in rows if row.labels is not None]
    spelled = spelled_as(trained.labels, sorted({label for row in known for label in row}))
    if stated != "auto":
        return stated, spelled
    for scheme in (find_scheme(known), *SCHEMES):  # IOB1 and IOB2 have the same labels
        if set(spelled) <= set(complete_labels(spelled, scheme)):
            return scheme, spelled
    raise ValueError(
        f"The labels of the model, {', '.join(spelled)}, do not fit a single scheme. Give "
        f"label_scheme={' or '.join(SCHEMES)}."
    )


def _check_scheme(sentences: Sequence[Sentence], scheme: str, strict: bool) -> None:
    """Raise if `strict` and labels break the scheme, else warn: they are read as conlleval does."""
    found = [
        f"{sentence.place(index)}: {why}"
        for sentence in sentences
        if sentence.labels is not None
        for index, why in breaks(sentence.labels, scheme)
    ]
    if not found:
        return
    examples = "; ".join(found[:3])
    if strict:
        raise ValueError(
            f"{len(found)} labels break label_scheme={scheme}: {examples}. Fix them, or omit the flag "
            "to read them as conlleval does."
        )
    logger.warning(
        "%d labels break the scheme %s and are read as conlleval reads them: %s. If the scheme is "
        "wrong, give --label_scheme.",
        len(found),
        scheme,
        examples,
    )


def _check_labels(sentences: Sequence[Sentence], labels: Sequence[str], split: str) -> None:
    known = set(labels)
    for sentence in sentences:
        for index, label in enumerate(sentence.labels or ()):
            if label not in known:
                remedy = {
                    "train": "The file has labels of several schemes. Bring them into one.",
                    "test": "If that column has no labels, use test_labels=False.",
                }.get(split, "Check for a typing error, or for a type that the training data lack.")
                raise ValueError(
                    f"{sentence.place(index)}: the label is {label!r}, but the labels of this model "
                    f"are {', '.join(labels)}. {remedy}"
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
            raise ValueError(
                f"`{name}` is set, but the model was trained without it. Omit it, or train with "
                "do_train into another output_dir."
            )
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
    if task.labels != trained.labels:
        raise ValueError(
            f"The labels of the data are {', '.join(task.labels)}, but the model was trained for "
            f"{', '.join(trained.labels)}. Use the data it was trained on, or another output_dir."
        )
    for name, none in (
        ("feature_layers", "fine-tuning"),
        ("bilstm_units", "fine-tuning"),
        ("crf", "no CRF"),
    ):
        now, there = getattr(task, name), getattr(trained, name)
        if now != there:
            raise ValueError(
                f"output_dir contains a model with `{name}` {there}, but this run sets {now} (None: "
                f"{none}). Use another output_dir."
            )
