"""run_classifier: fine-tune, evaluate and predict on sentences and pairs of sentences.

Source: google-research/bert, run_classifier.py.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from bert_tf.data.files import write_text
from bert_tf.interop.initial import folder_of
from bert_tf.model_folder import read_task, write_model_folder
from bert_tf.tasks.classification import ClassificationTask, InputExample
from bert_tf.tasks.glue import find_glue_task, read_glue
from bert_tf.tasks.tables import infer_labels, read_examples
from bert_tf.tokenization import FullTokenizer
from bert_tf.training import checkpoints
from bert_tf.training.metrics import softmax
from bert_tf.training.trainer import Trainer
from bert_tf.workflows import lookup, training
from bert_tf.workflows.options import TrainingOptions, option, require_one_of

logger = logging.getLogger(__name__)

Splits = dict[str, list[InputExample]]

# Name of the split, flag that asks for it, flag of its table.
_SPLITS = (
    ("train", "do_train", "train_file"),
    ("dev", "do_eval", "eval_file"),
    ("test", "do_predict", "predict_file"),
)
_MAX_SEQ_LENGTH = 128  # the reference's default


@dataclass(frozen=True, kw_only=True)
class ClassifierOptions(TrainingOptions):
    """The flags of run_classifier."""

    data_dir: str | None = option("Folder of a GLUE data set, for --task_name.", default=None)
    task_name: str | None = option(
        "A GLUE data set: cola, sst-2, mrpc or mnli. For your own data give --train_file instead.",
        default=None,
    )
    train_file: str | None = option(
        "Table to train on: .tsv, .csv (first line: names of the columns) or .jsonl.", default=None
    )
    eval_file: str | None = option("Table to evaluate on.", default=None)
    predict_file: str | None = option("Table to predict; needs no labels.", default=None)
    text_a_column: str = option("Column of the (first) sentence.", default="text_a")
    text_b_column: str | None = option("Column of the second sentence of a pair.", default=None)
    label_column: str = option("Column of the label.", default="label")
    bert_config_file: str | None = option(
        "Architecture. Default: the one beside --init_checkpoint or in --output_dir.", default=None
    )
    vocab_file: str | None = option(
        "Vocabulary. Default: the one beside --init_checkpoint or in --output_dir.", default=None
    )
    do_lower_case: bool | None = option(
        "Lower-case the text. Default: as the checkpoint says, else true.", default=None
    )
    max_seq_length: int | None = option(
        "Longer inputs are cut. Default: as the model in --output_dir was trained, else 128 (or all "
        "that the model has positions for).",
        default=None,
    )
    do_predict: bool = option("Predict the test set.", default=False)
    predict_batch_size: int = option("Examples per prediction batch.", default=8)
    num_train_epochs: float = option("Passes over the training set.", default=3.0)
    warmup_proportion: float = option("Share of the steps that warm up, 0 to 1.", default=0.1)

    def __post_init__(self) -> None:
        super().__post_init__()
        require_one_of(self, ("do_train", "do_eval", "do_predict"))
        files = [name for _, _, name in _SPLITS if getattr(self, name)]
        if bool(self.task_name) == bool(files):
            raise ValueError(
                "Give either --task_name with --data_dir, for a GLUE data set, or --train_file, "
                "--eval_file and --predict_file, for tables of your own."
            )
        if self.task_name and not self.data_dir:
            raise ValueError("--task_name needs --data_dir, the folder with its train.tsv.")
        if not self.task_name:
            for _, wanted, file in _SPLITS:
                if getattr(self, wanted) and not getattr(self, file):
                    raise ValueError(f"--{wanted} needs --{file}.")
        if not 0.0 <= self.warmup_proportion <= 1.0:
            raise ValueError(
                f"--warmup_proportion is {self.warmup_proportion}, but must be from 0 to 1."
            )
        if self.predict_batch_size < 1:
            raise ValueError(
                f"--predict_batch_size is {self.predict_batch_size}, but must be 1 or more."
            )


def run_classifier(options: ClassifierOptions) -> dict[str, float]:
    """Trains, evaluates and predicts, as the flags say; the results of the evaluation, if any.

    Writes `train.tf_record`, `eval.tf_record`, `predict.tf_record`, `model.ckpt-N`, `metrics.jsonl`,
    `eval_results.txt`, `test_results.tsv`, `labels.txt` and what model_folder.py lists.
    """
    devices = options.make_strategy()
    lookup.trained_weights_needed(options)
    checkpoint = lookup.read_initial_checkpoint(options)
    config = lookup.find_config(options.bert_config_file, checkpoint)
    lookup.check_same_architecture(options.output_dir, config)
    trained = trained_task(options)
    if options.max_seq_length is None:
        default = min(_MAX_SEQ_LENGTH, config.max_position_embeddings)
        options = replace(options, max_seq_length=trained.max_seq_length if trained else default)
    lookup.check_sequence_length(options.max_seq_length, config)
    tokenizer = lookup.load_tokenizer(options.vocab_file, options.do_lower_case, checkpoint, config)
    task, splits = read_data(options, trained)
    num_train_steps = num_warmup_steps = 0
    if options.do_train:
        num_examples = len(splits["train"])
        num_train_steps = int(num_examples / options.train_batch_size * options.num_train_epochs)
        num_warmup_steps = int(num_train_steps * options.warmup_proportion)
        if num_train_steps == 0:
            raise ValueError(
                f"{num_examples} examples make no step: --train_batch_size is "
                f"{options.train_batch_size} and --num_train_epochs {options.num_train_epochs}. "
                "Lower the batch size or raise the number of epochs."
            )
    trainer = training.make_trainer(
        task, config, options, devices, checkpoint, num_train_steps, num_warmup_steps
    )
    logger.info("%s", training.describe_model(trainer.model))
    options = replace(options, output_dir=training.folder_to_write(trainer, options.output_dir))

    results: dict[str, float] = {}
    if options.do_train:
        write_model_folder(
            options.output_dir, config, task, list(tokenizer.vocab), tokenizer.do_lower_case
        )
        labels = "".join(f"{label}\n" for label in task.labels)
        write_text(os.path.join(options.output_dir, "labels.txt"), labels)
        path = _write(task, splits["train"], tokenizer, options, "train")
        logger.info("%d examples, %d steps", len(splits["train"]), num_train_steps)
        training.train(trainer, task, [path], options, num_train_steps)
    if options.do_eval:
        results = evaluate(trainer, task, splits["dev"], tokenizer, options)
    if options.do_predict:
        predict(trainer, task, splits["test"], tokenizer, options)
    return results


def trained_task(options: ClassifierOptions) -> ClassificationTask | None:
    """What the model was trained for, which a run that goes on or only evaluates keeps to.

    None for a new model, and where nobody noted it.
    """
    folder = options.output_dir
    if checkpoints.latest_checkpoint(folder) is None:
        if options.do_train or not options.init_checkpoint:
            return None
        folder = folder_of(options.init_checkpoint)
    task = read_task(folder)
    return task if isinstance(task, ClassificationTask) else None


def read_data(
    options: ClassifierOptions, trained: ClassificationTask | None = None
) -> tuple[ClassificationTask, Splits]:
    """The task, and the examples of the splits that the run needs.

    Args:
        options: with a `max_seq_length`.
        trained: of `trained_task`.

    Raises:
        ValueError: a table cannot be read or is empty, or the task is another one than `trained`.
    """
    needed = [(split, file) for split, flag, file in _SPLITS if getattr(options, flag)]
    if options.task_name:
        glue_task = find_glue_task(options.task_name)
        splits = {split: list(read_glue(glue_task, options.data_dir, split)) for split, _ in needed}
        labels, metric_names = glue_task.labels, glue_task.metrics
        is_pair = glue_task.text_b is not None
    else:
        splits = {split: _read_table(options, split, file) for split, file in needed}
        labels, metric_names = _labels(options, splits, trained), ("accuracy",)
        is_pair = options.text_b_column is not None
    for split, examples in splits.items():
        if not examples:
            raise ValueError(f"There is no example in the {split} set.")
    task = ClassificationTask(labels, options.max_seq_length, metric_names, is_pair)
    if trained is not None:
        _check_same_task(task, trained)
    return task, splits


def _labels(
    options: ClassifierOptions, splits: Splits, trained: ClassificationTask | None
) -> Sequence[str]:
    """Of tables: those of the training set; without training, those that the model was trained for."""
    if "train" in splits:
        return infer_labels(splits["train"])
    if trained is not None:
        return trained.labels
    if options.train_file:
        return infer_labels(_read_table(options, "train", "train_file"))
    raise ValueError(
        "It is not known which label each output of the model stands for: no task.json lies beside its "
        "weights. Give --train_file, the table that it was trained on."
    )


def _check_same_task(task: ClassificationTask, trained: ClassificationTask) -> None:
    if task.labels != trained.labels:
        raise ValueError(
            f"The labels of the data are {', '.join(task.labels)}, but the model was trained for "
            f"{', '.join(trained.labels)}. Use the data it was trained on, or another --output_dir."
        )
    if task.is_pair != trained.is_pair:
        kinds = ("single sentences", "pairs of sentences")
        raise ValueError(
            f"The data are {kinds[task.is_pair]}, but the model was trained on "
            f"{kinds[trained.is_pair]}. For a table, --text_b_column names the second sentence."
        )


def evaluate(
    trainer: Trainer,
    task: ClassificationTask,
    examples: Sequence[InputExample],
    tokenizer: FullTokenizer,
    options: ClassifierOptions,
) -> dict[str, float]:
    """Metrics of the dev set; also written to `eval_results.txt`."""
    logger.info("***** Running evaluation *****")
    logger.info("  Num examples = %d", len(examples))
    path = _write(task, examples, tokenizer, options, "eval")
    kept = training.run_model(trainer, task, [path], options.eval_batch_size)
    _warn_of_collapse(task, kept["logits"].argmax(axis=-1), kept["label_ids"])
    results = {"global_step": trainer.step, **task.metrics(kept)}
    training.write_results(
        os.path.join(options.output_dir, "eval_results.txt"), results, "Eval results"
    )
    return results


def _warn_of_collapse(
    task: ClassificationTask, predictions: np.ndarray, labels: np.ndarray
) -> None:
    """Some fine-tunings never leave the most frequent class; their accuracy does not show it."""
    (found, *others), known = np.unique(predictions), np.unique(labels)
    if not others and len(known) > 1:
        logger.warning(
            "All %d predictions are %r, though the labels are of %d kinds: the model has learned "
            "nothing but that. Train again with another --seed, a lower --learning_rate or more data.",
            len(predictions),
            task.labels[found],
            len(known),
        )


def predict(
    trainer: Trainer,
    task: ClassificationTask,
    examples: Sequence[InputExample],
    tokenizer: FullTokenizer,
    options: ClassifierOptions,
) -> None:
    """Probabilities of the test set to `test_results.tsv`: a line per example, a column per label."""
    logger.info("***** Running prediction *****")
    logger.info("  Num examples = %d", len(examples))
    path = _write(task, examples, tokenizer, options, "predict")
    kept = training.run_model(trainer, task, [path], options.predict_batch_size, label="predict")
    rows = ("\t".join(str(float(p)) for p in row) + "\n" for row in softmax(kept["logits"]))
    path = os.path.join(options.output_dir, "test_results.tsv")
    write_text(path, "".join(rows))
    logger.info("Wrote %d predictions to %s", len(examples), path)


def _write(
    task: ClassificationTask,
    examples: Sequence[InputExample],
    tokenizer: FullTokenizer,
    options: ClassifierOptions,
    name: str,
) -> str:
    """Writes `<name>.tf_record` into the output folder; its path."""
    path = os.path.join(options.output_dir, f"{name}.tf_record")
    task.write_records(examples, tokenizer, path)
    return path


def _read_table(options: ClassifierOptions, split: str, file: str) -> list[InputExample]:
    return list(
        read_examples(
            getattr(options, file),
            text_a_column=options.text_a_column,
            text_b_column=options.text_b_column,
            label_column=None if split == "test" else options.label_column,
        )
    )
