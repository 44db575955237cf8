"""run_ner: fine-tune, evaluate and predict on CoNLL columns; feature-based training as an option.

Source: Devlin et al. 2019, section 5.3. The reference has no such program.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from bert_tf.data.files import open_whole, write_text
from bert_tf.data.token_classification import Sentence, relabelled_lines
from bert_tf.data.word_splitting import WordSpan, are_spaced, join_words, split_words
from bert_tf.finetuning import loop
from bert_tf.finetuning.run import Program, Run, Splits, fine_tune, renamed
from bert_tf.finetuning.setup import Setup
from bert_tf.finetuning.token_classification_data import columns_of, read_data
from bert_tf.finetuning.token_classification_options import NerOptions
from bert_tf.metrics.basic import largest_class
from bert_tf.metrics.conlleval import Counts, entities, report, word_report
from bert_tf.modeling.feature_based import check_feature_layers
from bert_tf.report.page import Command, write_report
from bert_tf.report.token_classification import entity_sections, word_sections
from bert_tf.tasks.token_classification import TokenClassificationTask

logger = logging.getLogger(__name__)

_OVERALL = (
    "global_step",
    *(
        f"eval_{n}"
        for n in ("f1", "f1_of_text", "precision", "recall", "accuracy", "f1_macro", "loss")
    ),
)

NerRun = Run[TokenClassificationTask, NerOptions]


def run_ner(options: NerOptions) -> dict[str, float]:
    """Train, evaluate and predict, as the options set. Return the metrics of the evaluation, if any.

    Write `train.tf_record`, `eval.tf_record`, `test.tf_record`, `model.ckpt-N`, `metrics.jsonl`,
    `labels.txt`, the files that model_files.py lists, and

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
    return fine_tune(TokenClassification(), options)


class TokenClassification(Program[TokenClassificationTask, NerOptions]):
    """Sentences with a label for each word."""

    task_type = "token_classification"
    examples = "sentences"

    def read(self, options: NerOptions, setup: Setup):
        if options.feature_based:
            check_feature_layers(options.feature_layers, setup.config.num_hidden_layers)
        known_labels = setup.labels_of(self.task_type)
        return read_data(options, setup.trained, setup.max_seq_length, known_labels)

    def count(
        self, task: TokenClassificationTask, examples: Sequence[Sentence], setup: Setup
    ) -> int:
        return task.count_windows(examples, setup.tokenizer)

    def metric_keys(self, task: TokenClassificationTask, splits: Splits) -> Sequence[str]:
        if "dev" not in splits:
            return task.metric_keys
        return task.metric_keys_of([sentence.labels or () for sentence in splits["dev"]])

    def evaluate(self, run: NerRun) -> dict[str, float]:
        return evaluate(run, run.splits["dev"])

    def predict(self, run: NerRun) -> None:
        predict(run, run.splits["test"])


def evaluate(run: NerRun, sentences: Sequence[Sentence]) -> dict[str, float]:
    """Return the metrics of the dev set. Write them and the predictions."""
    task, options = run.task, run.options
    logger.info("***** Running evaluation *****")
    logger.info("  Num sentences = %d", len(sentences))
    kept = run.outputs(sentences, "eval", options.eval_batch_size)
    _write_predictions(run, kept, sentences[0].file, "eval", append=True)
    f1 = task.scores(kept).overall.f1
    of_text = {} if task.word_labels else _compare_with_text(run, sentences, f1)
    results = _write_scores(run, kept, "eval", of_text)
    actual, predicted = (task.sentence_labels(kept, n) for n in ("label_ids", "predictions"))
    make = word_sections if task.word_labels else entity_sections
    sections = make(sentences, actual, predicted, task.scores(kept))
    what = "Labels" if task.word_labels else "Entities"
    title = f"{what} of {os.path.basename(sentences[0].file)}"
    of_all = {name: value for name, value in results.items() if name in _OVERALL}
    words = np.array([label for labels in actual for label in labels])
    of_all |= {"sentences": len(sentences), "words": len(words)}
    of_all["eval_accuracy_of_largest_class"] = largest_class(words)
    command = Command("run_ner", options)
    write_report(run.path("report.html"), title, of_all, sections, command)
    return results


def predict(run: NerRun, sentences: Sequence[Sentence]) -> None:
    """Write the test file with predicted labels, and its metrics if it has labels."""
    logger.info("***** Running prediction *****")
    logger.info("  Num sentences = %d", len(sentences))
    kept = run.outputs(sentences, "test", run.options.predict_batch_size)
    _write_predictions(run, kept, sentences[0].file, "test", append=False)
    if sentences[0].labels is not None:
        _write_scores(run, kept, "test", {})


def _write_scores(
    run: NerRun, kept: Mapping[str, np.ndarray], name: str, others: Mapping[str, float]
) -> dict[str, float]:
    results = {"global_step": run.trainer.step, **run.task.metrics(kept), **others}
    scores = run.task.scores(kept)
    if not run.task.word_labels and scores.overall.actual and not scores.overall.predicted:
        logger.warning(
            "Every prediction is O, but there are %d entities: the model has learned nothing else. "
            "Train longer, or with another --learning_rate.",
            scores.overall.actual,
        )
    text = word_report(scores) if run.task.word_labels else report(scores)
    results = renamed(results, name)
    loop.write_results(run.path(f"{name}_results.txt"), results, f"{name} results")
    write_text(run.path(f"{name}_report.txt"), text)
    for line in text.splitlines():
        logger.info("%s", line)
    return results


def _compare_with_text(run: NerRun, sentences: Sequence[Sentence], f1: float) -> dict[str, float]:
    """Return `eval_f1_of_text`, F1 of the joined words as raw text, if it differs by more than 0.01."""
    task = run.task
    with_spaces = are_spaced(sentence.words for sentence in sentences)
    joined = []  # sentences with the words of the text
    found, actual, predicted = [], set(), set()
    for number, sentence in enumerate(sentences):
        text, given = join_words(sentence.words, with_spaces)
        actual |= _entities_in_text(number, sentence.labels or (), given)
        if spans := split_words(text, task.word_splitting, task.whole_words):
            words = tuple(text[start:end] for start, end in spans)
            joined.append(replace(sentence, words=words, labels=None))
            found.append((number, spans))
    if [sentence.words for sentence in joined] == [sentence.words for sentence in sentences]:
        return {}
    kept = run.outputs(joined, "eval_text", run.options.eval_batch_size)
    rows = task.sentence_labels(kept, "predictions")
    for (number, spans), labels in zip(found, rows, strict=True):
        predicted |= _entities_in_text(number, labels, spans)
    f1_of_text = Counts(len(actual & predicted), len(predicted), len(actual)).f1
    if abs(f1_of_text - f1) <= 0.01:
        return {}
    logger.warning(
        "F1 is %.2f for the given words, but %.2f for the same sentences as raw text. Give predict "
        "lists of words where they are known.",
        *(100 * f1, 100 * f1_of_text),
    )
    return {"eval_f1_of_text": f1_of_text}


def _entities_in_text(
    number: int, labels: Sequence[str], spans: Sequence[WordSpan]
) -> set[tuple[int, str, int, int]]:
    return {
        (number, kind, spans[first].start, spans[end - 1].end)
        for kind, first, end in entities(labels)
    }


def _write_predictions(
    run: NerRun, kept: Mapping[str, np.ndarray], source: str, name: str, append: bool
) -> None:
    options = run.options
    labels = [label for row in run.task.sentence_labels(kept, "predictions") for label in row]
    columns = columns_of(options, "test" if name == "test" else "dev")
    path = run.path(f"{name}_predictions.txt")
    with open_whole(path) as file:
        for line in relabelled_lines(source, labels, columns, append=append):
            file.write(line + "\n")
    logger.info("Wrote %d predictions to %s", len(labels), path)
