"""run_ner: fine-tune, evaluate and predict on CoNLL columns; feature-based training as an option.

Source: Devlin et al. 2019, section 5.3. The reference has no such program.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
import tensorflow as tf

from bert_tf.checkpoints.labels import follow_order, match_spelling
from bert_tf.data.label_schemes import (
    SCHEMES,
    WORDS,
    Counts,
    complete_labels,
    find_entities,
    find_scheme,
    find_violations,
    format_report,
    format_word_report,
)
from bert_tf.data.token_classification import ConllColumns, Sentence, read_conll, relabel_lines
from bert_tf.data.word_splitting import WordSpan, are_spaced, choose_rule, join_words, split_words
from bert_tf.limits import DataError
from bert_tf.modeling.feature_based import FEATURE_LAYERS, check_feature_layers
from bert_tf.options import ModelOptions, OptionError, option
from bert_tf.report.token_classification import Spans, TypeCounts, span_sections
from bert_tf.tasks.metrics import largest_class
from bert_tf.tasks.run import Run, start_fine_tuning
from bert_tf.tasks.setup import FineTuningOptions, check_files, resolve, select_files
from bert_tf.tasks.token_classification import TokenClassificationTask
from bert_tf.training.options import DeviceOptions, TrainingOptions

logger = logging.getLogger(__name__)

_BILSTM_LEARNING_RATE = 1e-3
_CRF_LEARNING_RATE = 1e-2  # of the transitions, which start at zero


@dataclass(frozen=True, kw_only=True)
class NerOptions:
    """The flags of run_ner."""

    devices: DeviceOptions
    training: TrainingOptions
    model: ModelOptions
    fine_tuning: FineTuningOptions
    data_dir: str | None = option(
        "Folder with the three files under usual names, such as train.txt, dev.txt (or valid.txt) and "
        "test.txt. --train_file, --eval_file and --predict_file take precedence.",
        group="Data",
        default=None,
    )
    word_column: int = option("Column of the word, counted from 1.", group="Data", default=1, min=1)
    label_column: int | None = option(
        "Column of the label, counted from 1. Default: the last.", group="Data", default=None, min=1
    )
    label_scheme: str = option(
        "Scheme of the entity labels. auto: found in the training data. words: labels of words, such as "
        "parts of speech; the metrics are accuracy and macro F1. Labels that break the scheme are "
        "errors; with auto, warnings.",
        group="Data",
        default="auto",
        choices=("auto", *SCHEMES, WORDS),
    )
    document_context: bool = option(
        "Surround each sentence with its document, up to --max_seq_length, as in the paper. -DOCSTART- "
        "lines separate documents.",
        default=False,
        on_resume="warn",
    )
    doc_stride: int | None = option(
        "WordPieces from the start of a window to the next, if a sentence or document needs several. "
        "Default: half a window.",
        group="Model",
        default=None,
        min=1,
        on_resume="warn",
    )
    feature_based: bool = option(
        "Train a two-layer BiLSTM on layers of the unchanged encoder, instead of fine-tuning. Its "
        "learning rate is 1e-3.",
        group="Model",
        default=False,
    )
    feature_layers: str = option(
        "With --feature_based: layers to use.",
        default="concat_last_four_hidden",
        choices=tuple(FEATURE_LAYERS),
    )
    crf: bool = option(
        "Train a linear-chain CRF on the scores of the labels, which never takes a transition that the "
        "label scheme forbids. The model in --output_dir keeps it.",
        group="Model",
        default=False,
    )

    def __post_init__(self) -> None:
        check_files(self, are_needed=self.data_dir is None)

    def columns(self, split: str) -> ConllColumns:
        """Return the columns of a split; a test file may lack labels."""
        return ConllColumns(self.word_column, self.label_column, labelled=split != "test")


# The first rows of report.html.
_METRICS = ("f1", "f1_of_text", "precision", "recall", "accuracy", "f1_macro", "loss")

NerRun = Run[TokenClassificationTask, NerOptions]
Splits = dict[str, list[Sentence]]


def run_ner(options: NerOptions) -> dict[str, float]:
    """Train, evaluate and predict, as the options set. Return the metrics of the evaluation, if any.

    Write `train.tf_record`, `eval.tf_record`, `test.tf_record`, `model.ckpt-N`, `metrics.jsonl`,
    `labels.txt`, the files of checkpoints/write.py, and

        eval_results.txt        "key = value" lines: loss, accuracy, precision, recall and F1, 0 to 1;
                                F1 of the sentences as raw text if it differs
        eval_report.txt         the output of conlleval, in per cent; for labels of words accuracy, macro
                                F1 and each label
        report.html             metrics by type, confusions and errors
        eval_predictions.txt    the rows of --eval_file with the prediction as an extra column: the
                                input of conlleval
        test_predictions.txt    the lines of --predict_file with predictions instead of labels
        test_results.txt, test_report.txt    if --predict_file has labels
    """
    setup = resolve(options, "token_classification")
    if options.feature_based:
        check_feature_layers(options.feature_layers, setup.config.num_hidden_layers)
    task, splits = read_data(options, setup.trained, setup.max_seq_length, setup.labels)
    num_windows = task.count_windows(splits.get("train", ()), setup.tokenizer)
    rates = choose_learning_rates(options)
    run: NerRun = start_fine_tuning(setup, task, splits, num_windows, learning_rates=rates)

    def dev_metrics() -> dict[str, float]:
        return task.metrics(run.outputs(splits["dev"], "eval", options.training.eval_batch_size))

    if options.training.do_train:
        run.train(splits["train"], dev_metrics if options.training.do_eval else None)
    results = evaluate(run, splits["dev"]) if options.training.do_eval else {}
    if options.fine_tuning.do_predict:
        predict(run, splits["test"])
    return results


def choose_learning_rates(options: NerOptions) -> dict[str, float]:
    """Return the peak learning rates that the program sets itself; see `Plan`."""
    rates = {"": _BILSTM_LEARNING_RATE} if options.feature_based else {}
    return rates | ({"^crf/": _CRF_LEARNING_RATE} if options.crf else {})


def evaluate(run: NerRun, sentences: Sequence[Sentence]) -> dict[str, float]:
    """Return the metrics of the dev set. Write them and the predictions."""
    task = run.task
    logger.info("***** Running evaluation on %d sentences *****", len(sentences))
    outputs = run.outputs(sentences, "eval", run.options.training.eval_batch_size)
    actual, predicted = (task.sentence_labels(outputs, n) for n in ("label_ids", "predictions"))
    gold = [label for sentence in sentences for label in sentence.labels or ()]
    _write_predictions(run, predicted, sentences[0].file, "eval", gold)
    scores = task.scores(outputs)
    extra = {} if task.word_labels else _score_raw_text(run, sentences, scores.overall.f1)
    results = _write_scores(run, outputs, "eval", extra)
    find_spans = _word_spans if task.word_labels else find_entities
    rows = [
        Spans(sentence.words, find_spans(labels), find_spans(guesses), sentence.location(0))
        for sentence, labels, guesses in zip(sentences, actual, predicted, strict=True)
    ]
    counts = [
        TypeCounts(name, c.precision, c.recall, c.f1, c.actual, c.predicted, c.correct)
        for name, c in scores.by_type.items()
    ]
    sections = span_sections(rows, counts, are_words=task.word_labels)
    matter = "Labels" if task.word_labels else "Entities"
    title = f"{matter} of {os.path.basename(sentences[0].file)}"
    names = ("global_step", *(f"eval_{name}" for name in _METRICS))
    facts = {name: results[name] for name in names if name in results}
    words = np.array([label for labels in actual for label in labels])
    facts |= {"sentences": len(sentences), "words": len(words)}
    facts["eval_accuracy_of_largest_class"] = largest_class(words)
    run.write_report("run_ner", title, facts, sections)
    return results


def _word_spans(labels: Sequence[str]) -> list[tuple[str, int, int]]:
    return [(label, index, index + 1) for index, label in enumerate(labels)]


def predict(run: NerRun, sentences: Sequence[Sentence]) -> None:
    """Write the test file with predicted labels, and its metrics if it has labels."""
    logger.info("***** Running prediction on %d sentences *****", len(sentences))
    outputs = run.outputs(sentences, "test", run.options.fine_tuning.predict_batch_size)
    predicted = run.task.sentence_labels(outputs, "predictions")
    _write_predictions(run, predicted, sentences[0].file, "test")
    if sentences[0].labels is not None:
        _write_scores(run, outputs, "test")


def _write_predictions(
    run: NerRun,
    predicted: Sequence[Sequence[str]],
    source: str,
    name: str,
    gold: Sequence[str] | None = None,
) -> None:
    labels = [label for sentence in predicted for label in sentence]
    columns = run.options.columns("test" if name == "test" else "dev")
    lines = relabel_lines(source, labels, columns, gold)
    run.write_lines(f"{name}_predictions.txt", (f"{line}\n" for line in lines))


def _write_scores(
    run: NerRun,
    outputs: Mapping[str, np.ndarray],
    name: str,
    extra: Mapping[str, float] = MappingProxyType({}),
) -> dict[str, float]:
    results = run.write_results(name, {**run.task.metrics(outputs), **extra})
    make_text = format_word_report if run.task.word_labels else format_report
    text = make_text(run.task.scores(outputs))
    run.write_lines(f"{name}_report.txt", [text])
    for line in text.splitlines():
        logger.info("%s", line)
    return results


def _score_raw_text(run: NerRun, sentences: Sequence[Sentence], f1: float) -> dict[str, float]:
    """Return `eval_f1_of_text`, F1 of the joined words as raw text, if it differs by more than 0.01."""
    task = run.task
    with_spaces = are_spaced(sentence.words for sentence in sentences)
    actual, predicted = set(), set()
    split_again, spans_by_number = [], {}
    for number, sentence in enumerate(sentences):
        text, word_spans = join_words(sentence.words, with_spaces)
        actual |= _entities_in_text(number, sentence.labels or (), word_spans)
        if spans := split_words(text, task.word_splitting, task.whole_words):
            words = tuple(text[start:end] for start, end in spans)
            split_again.append(replace(sentence, words=words, labels=None))
            spans_by_number[number] = spans
    if [sentence.words for sentence in split_again] == [sentence.words for sentence in sentences]:
        return {}
    outputs = run.outputs(split_again, "eval_text", run.options.training.eval_batch_size)
    rows = task.sentence_labels(outputs, "predictions")
    for (number, spans), labels in zip(spans_by_number.items(), rows, strict=True):
        predicted |= _entities_in_text(number, labels, spans)
    f1_of_text = Counts(len(actual & predicted), len(predicted), len(actual)).f1
    if abs(f1_of_text - f1) <= 0.01:
        return {}
    logger.warning(
        "F1 is %.2f for the words of the file, but %.2f for the same text, split again. Give predict "
        "lists of words where they are known.",
        *(100 * f1, 100 * f1_of_text),
    )
    return {"eval_f1_of_text": f1_of_text}


def _entities_in_text(
    number: int, labels: Sequence[str], spans: Sequence[WordSpan]
) -> set[tuple[int, str, int, int]]:
    return {
        (number, kind, spans[first].start, spans[end - 1].end)
        for kind, first, end in find_entities(labels)
    }


# Usual file names of data sets, for --data_dir.
FILE_NAMES: Mapping[str, Sequence[str]] = {
    "train": ("train.txt", "train.conll", "train.tsv", "eng.train", "wnut17train.conll"),
    "dev": ("dev.txt", "dev.conll", "dev.tsv", "valid.txt", "eng.testa", "emerging.dev.conll"),
    "test": ("test.txt", "test.conll", "test.tsv", "eng.testb", "emerging.test.annotated"),
}


def find_files(options: NerOptions) -> dict[str, str]:
    """Return split -> file of the splits that the run needs, from the flags or from `data_dir`.

    Raises:
        ValueError: a required file is missing; the message lists the files of the folder.
    """
    files = {}
    folder = options.data_dir or ""
    names = set(tf.io.gfile.listdir(folder)) if folder else set()
    for split, file in select_files(options).items():
        name = file or next((name for name in FILE_NAMES[split] if name in names), None)
        if name is None:
            usual, existing = ", ".join(FILE_NAMES[split]), ", ".join(sorted(names)) or "nothing"
            text = f"{folder} has none of {usual}, but {existing}. Name the file."
            raise OptionError("data_dir", text)
        files[split] = file or os.path.join(folder, name)
    return files


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
    scheme = options.label_scheme
    if trained is not None and trained.word_labels and scheme == "auto":
        scheme = WORDS
    is_stated = scheme != "auto"
    splits = {
        split: read_conll(file, options.columns(split), scheme)
        for split, file in find_files(options).items()
    }
    labeled = {"train": splits["train"]} if "train" in splits else splits
    labels = [row.labels for rows in labeled.values() for row in rows if row.labels is not None]
    if not is_stated:
        scheme = find_scheme(labels)
    if options.training.do_train:
        known_labels = known_labels if trained is None else trained.labels
        task = _make_task(options, splits["train"], scheme, known_labels, max_seq_length)
    elif trained is None:
        raise OptionError(
            "init_checkpoint",
            "it has no task.json, so its labels are unknown. Give a folder of run_ner, or --do_train.",
        )
    else:
        names = match_spelling(trained.labels, sorted({n for row in labels for n in row}))
        task = _adjust_task(trained, names, options, max_seq_length)
    for sentences in splits.values():
        for sentence in sentences:
            task.label_ids(sentence)  # raises if a label is unknown
        _check_scheme(sentences, task.crf or scheme, strict=is_stated)
    return task, splits


def _make_task(
    options: NerOptions,
    sentences: Sequence[Sentence],
    scheme: str,
    known_labels: Sequence[str],
    max_seq_length: int,
) -> TokenClassificationTask:
    labels = complete_labels((n for row in sentences for n in row.labels or ()), scheme)
    if len(labels) < 2:
        text = f"every label is {labels[0]!r}. Name their column with --label_column."
        raise DataError(sentences[0].file, text)
    rule, whole_words = choose_rule([sentence.words for sentence in sentences])
    return TokenClassificationTask(
        follow_order(known_labels, labels),
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
    violations = [
        f"{sentence.location(index)}: {why}"
        for sentence in sentences
        for index, why in find_violations(sentence.labels or (), scheme)
    ]
    if not violations:
        return
    text = f"{len(violations)} labels break {scheme}: {'; '.join(violations[:3])}."
    if strict:
        raise OptionError("label_scheme", f"{text} Without it, conlleval's rule is used.")
    logger.warning("%s They are read as conlleval reads them; or give --label_scheme.", text)


def _adjust_task(
    trained: TokenClassificationTask,
    labels: Sequence[str],
    options: NerOptions,
    max_seq_length: int,
) -> TokenClassificationTask:
    """Return the task of a trained model with this run's length and spelling of labels."""
    arguments = trained.arguments() | {"max_seq_length": max_seq_length, "labels": labels}
    if options.document_context:
        arguments["document_context"] = True
    if options.label_scheme != "auto":
        arguments["word_labels"] = options.label_scheme == WORDS
    if options.doc_stride is not None or max_seq_length != trained.max_seq_length:
        arguments["doc_stride"] = options.doc_stride
    return TokenClassificationTask(**arguments)
