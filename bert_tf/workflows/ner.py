"""run_ner: fine-tune, evaluate and predict on CoNLL columns; or the feature-based way.

Source: Devlin et al. 2019, section 5.3. The reference has no such program.
"""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from bert_tf.data.conll import Sentence, relabelled_lines
from bert_tf.data.files import open_whole, write_text
from bert_tf.modeling.feature_based import check_feature_layers
from bert_tf.tasks.token_classification import TokenClassificationTask
from bert_tf.training.conlleval import report
from bert_tf.training.trainer import Trainer
from bert_tf.workflows import training
from bert_tf.workflows.fine_tuning import (
    Start,
    count_steps,
    make_trainer,
    prepare,
    record_file,
    write_beside_checkpoints,
)
from bert_tf.workflows.ner_data import columns_of, find_files, read_data
from bert_tf.workflows.ner_options import NerOptions
from bert_tf.workflows.ner_report import entity_sections
from bert_tf.workflows.report import write_report

logger = logging.getLogger(__name__)

_OF_ALL_TYPES = (
    "global_step",
    *(f"eval_{n}" for n in ("f1", "precision", "recall", "accuracy", "loss")),
)


def run_ner(options: NerOptions) -> dict[str, float]:
    """Trains, evaluates and predicts, as the flags say; the results of the evaluation, if any.

    Writes `train.tf_record`, `eval.tf_record`, `test.tf_record`, `model.ckpt-N`, `metrics.jsonl`,
    `labels.txt`, what model_folder.py lists, and

        eval_results.txt        "key = value" lines: loss, accuracy, precision, recall and F1, 0 to 1
        eval_report.txt         what conlleval prints, in per cent
        report.html             which types are found, what is taken for what, where it errs
        eval_predictions.txt    the rows of --eval_file and the prediction as one more column: the
                                input of conlleval
        test_predictions.txt    the lines of --predict_file with predictions in the place of the labels
        test_results.txt, test_report.txt    if --predict_file has labels
    """
    options, start, trained = prepare(options, TokenClassificationTask)
    if options.feature_based:
        check_feature_layers(options.feature_layers, start.config.num_hidden_layers)
        options = replace(options, learning_rate=options.bilstm_learning_rate)
    options = find_files(options)
    task, splits = read_data(options, trained)

    num_train_steps = num_warmup_steps = 0
    if options.do_train:  # windows are what is trained on: a long sentence makes several
        num_windows = task.count_windows(splits["train"], start.tokenizer)
        num_train_steps, num_warmup_steps = count_steps(num_windows, options)
    trainer, options = make_trainer(task, start, options, num_train_steps, num_warmup_steps)
    results: dict[str, float] = {}
    if options.do_train:
        write_beside_checkpoints(options.output_dir, start, task, task.labels)
        path = _records(trainer, task, splits["train"], start, options, "train")
        logger.info(
            "%d sentences, %d windows, %d steps", len(splits["train"]), num_windows, num_train_steps
        )

        def evaluate_now() -> dict[str, float]:
            return task.metrics(_run(trainer, task, splits["dev"], start, options, "eval"))

        evaluated = evaluate_now if options.do_eval else None
        training.train(
            trainer, task, [path], options, num_train_steps, evaluated, lengths=options.lengths
        )
    if options.do_eval:
        results = evaluate(trainer, task, splits["dev"], start, options)
    if options.do_predict:
        predict(trainer, task, splits["test"], start, options)
    return results


def evaluate(
    trainer: Trainer,
    task: TokenClassificationTask,
    sentences: Sequence[Sentence],
    start: Start,
    options: NerOptions,
) -> dict[str, float]:
    """The figures of the dev set; also written, with the predictions."""
    logger.info("***** Running evaluation *****")
    logger.info("  Num sentences = %d", len(sentences))
    kept = _run(trainer, task, sentences, start, options, "eval")
    _write_predictions(task, kept, options.eval_file, options, "eval", append=True)
    results = _write_scores(trainer, task, kept, options, "eval")
    if options.report:
        actual, predicted = (task.sentence_labels(kept, n) for n in ("label_ids", "predictions"))
        sections = entity_sections(sentences, actual, predicted, task.scores(kept))
        title = f"Entities of {os.path.basename(options.eval_file)}"
        of_all = {name: value for name, value in results.items() if name in _OF_ALL_TYPES}
        write_report(os.path.join(options.output_dir, "report.html"), title, of_all, sections)
    return results


def predict(
    trainer: Trainer,
    task: TokenClassificationTask,
    sentences: Sequence[Sentence],
    start: Start,
    options: NerOptions,
) -> None:
    """The test file with predicted labels; and its figures, where it has labels of its own."""
    logger.info("***** Running prediction *****")
    logger.info("  Num sentences = %d", len(sentences))
    kept = _run(trainer, task, sentences, start, options, "test")
    _write_predictions(task, kept, options.predict_file, options, "test", append=False)
    if sentences[0].labels is not None:
        _write_scores(trainer, task, kept, options, "test")


def _run(
    trainer: Trainer,
    task: TokenClassificationTask,
    sentences: Sequence[Sentence],
    start: Start,
    options: NerOptions,
    name: str,
) -> dict[str, np.ndarray]:
    path = _records(trainer, task, sentences, start, options, name)
    batch_size = options.eval_batch_size if name == "eval" else options.predict_batch_size
    return training.run_model(
        trainer, task, [path], batch_size, label=name, lengths=options.lengths
    )


def _records(
    trainer: Trainer,
    task: TokenClassificationTask,
    sentences: Sequence[Sentence],
    start: Start,
    options: NerOptions,
    name: str,
) -> str:
    """The path of the sentences' records."""
    key = task.records_key(sentences, start.tokenizer)
    write = functools.partial(task.write_records, sentences, start.tokenizer)
    return record_file(trainer, options, name, key, len(sentences), write)


def _write_scores(
    trainer: Trainer,
    task: TokenClassificationTask,
    kept: Mapping[str, np.ndarray],
    options: NerOptions,
    name: str,
) -> dict[str, float]:
    results = {"global_step": trainer.step, **task.metrics(kept)}
    scores = task.scores(kept)
    if scores.overall.actual and not scores.overall.predicted:
        logger.warning(
            "Every prediction is O, though there are %d entities: the model has learned nothing but "
            "that. Train longer, or with another --learning_rate.",
            scores.overall.actual,
        )
    text = report(scores)
    folder = options.output_dir
    if name != "eval":
        results = {key.replace("eval_", f"{name}_", 1): value for key, value in results.items()}
    training.write_results(os.path.join(folder, f"{name}_results.txt"), results, f"{name} results")
    write_text(os.path.join(folder, f"{name}_report.txt"), text)
    for line in text.splitlines():
        logger.info("%s", line)
    return results


def _write_predictions(
    task: TokenClassificationTask,
    kept: Mapping[str, np.ndarray],
    source: str,
    options: NerOptions,
    name: str,
    append: bool,
) -> None:
    labels = [label for row in task.sentence_labels(kept, "predictions") for label in row]
    columns = columns_of(options, "test" if name == "test" else "dev")
    path = os.path.join(options.output_dir, f"{name}_predictions.txt")
    with open_whole(path) as file:
        for line in relabelled_lines(source, labels, columns, append=append):
            file.write(line + "\n")
    logger.info("Wrote %d predictions to %s", len(labels), path)
