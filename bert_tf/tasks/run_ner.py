"""run_ner: fine-tune, evaluate and predict on CoNLL columns; feature-based training as an option.

Source: Devlin et al. 2019, section 5.3. The reference has no such program.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np

from bert_tf.data.label_schemes import (
    Scores,
    complete_labels,
    find_entities,
    format_report,
    format_word_report,
)
from bert_tf.data.token_classification import (
    ConllColumns,
    Sentence,
    choose_rule,
    read_conll,
    relabel_lines,
)
from bert_tf.modeling.crf import IOB2, WORDS
from bert_tf.modeling.feature_based import FEATURE_LAYERS
from bert_tf.options import ModelOptions, OptionError, option
from bert_tf.report.token_classification import Spans, span_sections
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
    devices: DeviceOptions
    training: TrainingOptions
    model: ModelOptions
    fine_tuning: FineTuningOptions
    word_column: int = option("Column of the word, counted from 1.", group="Data", default=1, min=1)
    label_column: int | None = option(
        "Column of the label, counted from 1. Default: the last.", group="Data", default=None, min=1
    )
    label_scheme: str = option(
        "auto: labels of entities in any scheme, such as IOB1 or BIOES, which are learned as IOB2. "
        "words: labels of words, such as parts of speech; the metrics are accuracy and macro F1.",
        group="Data",
        default="auto",
        choices=("auto", WORDS),
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
        check_files(self)

    def columns(self, split: str) -> ConllColumns:
        """Return the columns of a split; a test file may lack labels."""
        return ConllColumns(self.word_column, self.label_column, labelled=split != "test")


NerRun = Run[TokenClassificationTask, NerOptions]
Splits = dict[str, list[Sentence]]


def run_ner(options: NerOptions) -> dict[str, float]:
    """Train, evaluate and predict, as the options set. Return the metrics of the evaluation, if any.

    Write `train.tf_record`, `eval.tf_record`, `test.tf_record`, `model.ckpt-N`, `metrics.jsonl`,
    `labels.txt`, the files of checkpoints/write.py, and

        eval_results.txt        "key = value" lines: loss, accuracy, precision, recall and F1, 0 to 1
        eval_report.txt         the output of conlleval, in per cent; for labels of words accuracy, macro
                                F1 and each label
        report.html             metrics by type, confusions and errors
        eval_predictions.txt    the rows of --eval_file with the prediction as an extra column: the
                                input of conlleval
        test_predictions.txt    the lines of --predict_file with predictions instead of labels
        test_results.txt, test_report.txt    if --predict_file has labels
    """
    setup = resolve(options, "token_classification")
    task, splits = read_data(options, setup.trained, setup.max_seq_length)
    num_windows = task.count_windows(splits.get("train", ()), setup.tokenizer)
    rates = choose_learning_rates(options)
    run: NerRun = start_fine_tuning(setup, task, splits, num_windows, learning_rates=rates)

    def dev_metrics() -> dict[str, float]:
        return task.metrics(run.outputs(splits["dev"], "eval", options.training.eval_batch_size))

    if options.training.do_train:
        run.train(splits["train"], dev_metrics if options.training.do_eval else None)
    results = {}
    if options.training.do_eval:
        results = predict(run, splits["dev"], "eval", options.training.eval_batch_size)
    if options.fine_tuning.do_predict:
        predict(run, splits["test"], "test", options.fine_tuning.predict_batch_size)
    return results


def choose_learning_rates(options: NerOptions) -> dict[str, float]:
    """Return the peak learning rates that the program sets itself; see `Plan`."""
    rates = {"": _BILSTM_LEARNING_RATE} if options.feature_based else {}
    return rates | ({"^crf/": _CRF_LEARNING_RATE} if options.crf else {})


def predict(
    run: NerRun, sentences: Sequence[Sentence], name: str, batch_size: int
) -> dict[str, float]:
    """Label the set "eval" or "test". Return its metrics, or {} if its labels are unknown."""
    task, file = run.task, sentences[0].file
    action = "evaluation" if name == "eval" else "prediction"
    logger.info("***** Running %s on %d sentences *****", action, len(sentences))
    outputs = run.outputs(sentences, name, batch_size)
    actual, predicted = (task.sentence_labels(outputs, n) for n in ("label_ids", "predictions"))
    gold = None
    if name == "eval":
        gold = [label for sentence in sentences for label in sentence.labels or ()]
    columns = run.options.columns("dev" if name == "eval" else "test")
    lines = relabel_lines(file, list(chain.from_iterable(predicted)), columns, gold)
    run.write_lines(f"{name}_predictions.txt", (f"{line}\n" for line in lines))
    if sentences[0].labels is None:
        return {}
    results, scores = run.write_results(name, task.metrics(outputs)), task.scores(outputs)
    text = (format_word_report if task.word_labels else format_report)(scores)
    run.write_lines(f"{name}_report.txt", [text])
    for line in text.splitlines():
        logger.info("%s", line)
    if name == "eval":
        find_spans = _word_spans if task.word_labels else find_entities
        rows = [
            Spans(sentence.words, find_spans(labels), find_spans(guesses), sentence.location(0))
            for sentence, labels, guesses in zip(sentences, actual, predicted, strict=True)
        ]
        _write_report(run, rows, scores, results, list(chain.from_iterable(actual)))
    return results


def _word_spans(labels: Sequence[str]) -> list[tuple[str, int, int]]:
    return [(label, index, index + 1) for index, label in enumerate(labels)]


def _write_report(
    run: NerRun,
    rows: Sequence[Spans],
    scores: Scores,
    results: Mapping[str, float],
    labels: Sequence[str],
) -> None:
    counts = [
        (name, c.precision, c.recall, c.f1, c.actual, c.predicted, c.correct)
        for name, c in scores.by_type.items()
    ]
    are_words = run.task.word_labels
    sections = span_sections(rows, counts, are_words=are_words)
    file = os.path.basename(str(run.options.fine_tuning.eval_file))
    title = f"{'Labels' if are_words else 'Entities'} of {file}"
    endings = tuple(f"_{kind}" for kind in scores.by_type)
    facts = {name: v for name, v in results.items() if not name.endswith(endings)}
    facts |= {"sentences": len(rows), "words": len(labels)}
    facts["eval_accuracy_of_largest_class"] = largest_class(np.array(labels))
    run.write_report(title, facts, sections)


def read_data(
    options: NerOptions,
    trained: TokenClassificationTask | None = None,
    max_seq_length: int = 128,
) -> tuple[TokenClassificationTask, Splits]:
    """Return the task, and the sentences of the splits that the run needs."""
    word_labels = options.label_scheme == WORDS or (trained is not None and trained.word_labels)
    splits = {
        split: read_conll(str(file), options.columns(split), word_labels)
        for split, file in select_files(options).items()
    }
    labeled = [splits["train"]] if "train" in splits else splits.values()
    names = sorted({name for rows in labeled for row in rows for name in row.labels or ()})
    if options.training.do_train:
        rule, whole_words = choose_rule([sentence.words for sentence in splits["train"]])
        task = TokenClassificationTask(
            tuple(names) if word_labels else complete_labels(names),
            max_seq_length,
            options.document_context,
            options.doc_stride,
            options.feature_layers if options.feature_based else None,
            word_labels=word_labels,
            crf=(WORDS if word_labels else IOB2) if options.crf else None,
            word_splitting=rule,
            whole_words=whole_words,
        )
    elif trained is None:
        raise OptionError(
            "init_checkpoint",
            "it has no task.json, so its labels are unknown. Give a folder of run_ner, or --do_train.",
        )
    else:
        given = {"document_context": options.document_context, "doc_stride": options.doc_stride}
        arguments = trained.arguments() | {name: value for name, value in given.items() if value}
        task = TokenClassificationTask(**arguments | {"max_seq_length": max_seq_length})
    for sentences in splits.values():
        for sentence in sentences:
            task.label_ids(sentence)  # raises if a label is unknown
    return task, splits
