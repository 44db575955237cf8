"""The task and examples that the flags of run_classifier name."""

from __future__ import annotations

import itertools
import logging
from collections import Counter
from collections.abc import Sequence

from bert_tf.data.tables import warn_of_empty_cells
from bert_tf.finetuning.classification_options import ClassifierOptions
from bert_tf.finetuning.options import SPLITS
from bert_tf.options import reject_unused
from bert_tf.tasks.classification import ClassificationTask, InputExample
from bert_tf.tasks.glue import GlueTask, find_glue_task, read_glue, splits_of
from bert_tf.tasks.of_checkpoint import (
    are_unnamed,
    in_order_of,
    spelled_as,
    split_labels,
)
from bert_tf.tasks.problem_types import PROBLEM_TYPES
from bert_tf.tasks.tables import TableLayout, are_measurements, infer_labels, read_examples
from bert_tf.training.checkpoints import latest_checkpoint

logger = logging.getLogger(__name__)

Splits = dict[str, list[InputExample]]


def read_data(
    options: ClassifierOptions,
    trained: ClassificationTask | None = None,
    max_seq_length: int = 128,
    known_labels: Sequence[str] = (),
) -> tuple[ClassificationTask, Splits]:
    """Return the task, and the examples of the splits that the run needs.

    Args:
        trained: task that the model was trained for, None for a new model.
        max_seq_length: S.
        known_labels: of the initial weights. The same labels in the data get their order.

    Returns:
        The splits are "train", "dev" and "test"; for MNLI also "dev_mismatched" and "test_mismatched".

    Raises:
        ValueError: a table cannot be read or is empty, a label is unknown, or the task differs from
            `trained`.
    """
    if options.task_name:
        glue_task = find_glue_task(options.task_name)
        _check_same_problem_type(glue_task.problem_type, trained)
        settings, splits = _read_glue_data(options, glue_task)
    else:
        settings, splits = _read_tables(options, trained, known_labels)
    for split, examples in splits.items():
        if not examples:
            raise ValueError(f"The {split} set has no examples{_source(options, split)}.")
    if options.doc_stride is not None:
        settings |= {"doc_stride": options.doc_stride, "window_pooling": options.window_pooling}
    elif trained is not None and trained.doc_stride is not None:
        settings |= {"doc_stride": trained.doc_stride, "window_pooling": trained.window_pooling}
    task = ClassificationTask(max_seq_length=max_seq_length, **settings)
    for split, examples in splits.items():
        if not split.startswith("test"):
            task.check_examples(examples)
    if options.class_weights and "train" in splits:
        settings["class_weights"] = class_weights(options.class_weights, task, splits["train"])
        task = ClassificationTask(max_seq_length=max_seq_length, **settings)
    if trained is not None:
        resumes = latest_checkpoint(options.output_dir) is not None
        _check_same_task(task, trained, same_labels=resumes)
    if "train" in splits and task.kind.has_labels:
        _warn_of_missing_labels(task, splits["train"])
    return task, splits


def _source(options: ClassifierOptions, split: str) -> str:
    """Return the flag of a split's file, or of a GLUE task's folder, for messages."""
    if options.task_name:
        return f" (data_dir={options.data_dir})"
    (file,) = (file for name, _, file in SPLITS if name == split)
    header = "; no rows after the header" if options.header else ""
    return f" ({file}={getattr(options, file)}{header})"


def _read_glue_data(options: ClassifierOptions, glue_task: GlueTask) -> tuple[dict, Splits]:
    splits: Splits = {}
    for name, flag, _ in SPLITS:
        if not getattr(options, flag):
            continue
        is_training = name == "train"
        language = (options.train_language if is_training else None) or options.language
        for split in splits_of(glue_task, options.data_dir, name):
            splits[split] = list(read_glue(glue_task, options.data_dir, split, language))
    return {
        "labels": glue_task.labels,
        "metric_names": glue_task.metrics,
        "is_pair": glue_task.is_pair,
        "problem_type": glue_task.problem_type,
    }, splits


def _read_tables(
    options: ClassifierOptions,
    trained: ClassificationTask | None,
    known_labels: Sequence[str],
) -> tuple[dict, Splits]:
    known = trained.kind.name if trained is not None else "single_label"
    problem_type = PROBLEM_TYPES[options.problem_type or known]
    _check_same_problem_type(problem_type.name, trained)
    if options.labels and not problem_type.has_labels:
        raise ValueError(
            f"labels is {options.labels}, but a {problem_type.name} has no labels. Omit the flag."
        )
    if problem_type.name != "multi_label":
        reject_unused(options, ("label_separator",), f"with problem_type={problem_type.name}")
    layout = _layout(options, problem_type.name)
    splits = {
        split: list(read_examples(getattr(options, file), layout, labelled=split != "test"))
        for split, flag, file in SPLITS
        if getattr(options, flag)
    }
    metric_names = None
    if options.metrics:
        metric_names = tuple(name.strip() for name in options.metrics.split(","))
    elif trained is not None:
        metric_names = trained.metric_names
    labels: Sequence[str] = ()
    if problem_type.has_labels:
        labels = _labels(options, layout, splits, trained, known_labels)
    _warn_of_shared_examples(splits, options.train_file)
    return {
        "labels": labels,
        "metric_names": metric_names,
        "is_pair": layout.text_b is not None,
        "problem_type": problem_type.name,
    }, splits


def _layout(options: ClassifierOptions, problem_type: str) -> TableLayout:
    return TableLayout(
        text_a=options.text_a_column,
        text_b=options.text_b_column,
        label=options.label_column,
        problem_type=problem_type,
        label_separator=options.label_separator,
        format=options.table_format,
        quoted=options.quoted,
        header=options.header,
        separator=options.column_separator,
    )


def _labels(
    options: ClassifierOptions,
    layout: TableLayout,
    splits: Splits,
    trained: ClassificationTask | None,
    known_labels: Sequence[str],
) -> Sequence[str]:
    """Return the labels of the flag, else of the training table, else of the model."""
    if options.labels:
        return split_labels(options.labels)
    if layout.label_columns and (trained is None or "train" in splits):
        return layout.label_columns
    if "train" in splits:
        labels = infer_labels(splits["train"])
        if not labels and splits["train"]:
            raise ValueError(
                f"{options.train_file}: no example has a label, so there is nothing to learn. Check "
                "label_column."
            )
        if len(labels) == 1 and layout.problem_type == "single_label":
            raise ValueError(
                f"{options.train_file}: every example has the label {labels[0]!r}, so there is nothing "
                "to learn. Check label_column, or add examples with another label."
            )
        is_open = options.problem_type is None and trained is None
        if is_open and are_measurements(labels, len(splits["train"])):
            raise ValueError(
                f"{options.train_file}: the {len(labels)} labels of {len(splits['train'])} examples are "
                f"decimal numbers ({'; '.join(labels[:3])} ...). Use problem_type=regression to "
                "predict a number (with decimal points, not commas), or problem_type=single_label if "
                "each number is a class."
            )
        warn_of_empty_cells(labels, options.train_file)
        _warn_of_joined_labels(labels, options.train_file)
        return in_order_of(known_labels if trained is None else trained.labels, labels)
    if trained is not None and not (are_unnamed(trained.labels) and options.train_file):
        examples = itertools.chain(*splits.values())
        found = {name for example in examples for name in example.names}
        spelled = spelled_as(trained.labels, sorted(found))
        if spelled != tuple(trained.labels):
            logger.info(
                "The labels of the model are %s; in the data they are spelled %s",
                ", ".join(trained.labels),
                ", ".join(spelled),
            )
        return spelled
    if options.train_file:
        return infer_labels(read_examples(options.train_file, layout, labelled=True))
    raise ValueError(
        "The labels of the model's outputs are unknown, because there is no task.json next to its "
        "weights. Set `labels`, in the order of its outputs, or train_file, the table of its training, "
        "if they are sorted."
    )


def _warn_of_joined_labels(labels: Sequence[str], file: str) -> None:
    """Warn of labels that consist of other labels, such as "rude;threat" next to both."""
    for label in labels:
        for separator in ",;|#":
            parts = [part.strip() for part in label.split(separator)]
            if len(parts) > 1 and set(labels).issuperset(parts):
                logger.warning(
                    "%s: the label %r consists of others, but is a class of its own here. For several "
                    "labels of an example use --problem_type=multi_label --label_separator=%r.",
                    *(file, label, separator),
                )
                return


def _warn_of_shared_examples(splits: Splits, train_file: str | None) -> None:
    trained = {(each.text_a, each.text_b) for each in splits.get("train", ())}
    shared = [each for each in splits.get("dev", ()) if (each.text_a, each.text_b) in trained]
    if shared:
        logger.warning(
            "%d of %d evaluation examples are also in %s, so the metrics are too high for new texts. "
            "The first is %s. Remove them from one of the files.",
            len(shared),
            len(splits["dev"]),
            train_file,
            shared[0].origin,
        )


def _check_same_problem_type(problem_type: str, trained: ClassificationTask | None) -> None:
    if trained is not None and trained.kind.name != problem_type:
        raise ValueError(
            f"The problem type of the data is {problem_type}, but the model was trained for "
            f"{trained.kind.name}. Give problem_type={trained.kind.name}, or another output_dir."
        )


def _check_same_task(
    task: ClassificationTask, trained: ClassificationTask, same_labels: bool
) -> None:
    if same_labels and task.labels != trained.labels:
        raise ValueError(
            f"The labels of the data are {', '.join(task.labels)}, but the model was trained for "
            f"{', '.join(trained.labels)}. Use the data it was trained on, or another output_dir."
        )
    if trained.is_pair is not None and task.is_pair != trained.is_pair:
        inputs = ("single sentences", "pairs of sentences")
        raise ValueError(
            f"The data are {inputs[task.is_pair]}, but the model was trained on "
            f"{inputs[trained.is_pair]}. For a table, text_b_column names the second sentence."
        )


def count_labels(task: ClassificationTask, examples: Sequence[InputExample]) -> list[int]:
    """Return the number of examples with each of the task's labels."""
    counts = Counter(name for example in examples for name in set(example.names))
    return [counts[label] for label in task.labels]


def class_weights(
    flag: str, task: ClassificationTask, examples: Sequence[InputExample]
) -> list[float]:
    """Return the weight of each label, from the value of --class_weights.

    "balanced" is examples / (labels * count), which gives all labels the same total weight. In a
    multi-label task it is (examples - count) / count, which gives yes and no the same total weight.

    Raises:
        ValueError: a label is unknown or never occurs, a weight is not above 0, or the task has no
            labels.
    """
    if not task.kind.has_labels:
        raise ValueError(
            f"class_weights={flag}: a {task.kind.name} has no labels to weight. Omit the flag."
        )
    if flag == "balanced":
        counts = count_labels(task, examples)
        for label, count in zip(task.labels, counts, strict=True):
            if count in (0, len(examples)):
                raise ValueError(
                    f"class_weights=balanced: {count} of {len(examples)} training examples have the "
                    f"label {label!r}, so no weight can balance it. Give weights as label=weight."
                )
        if task.kind.name == "multi_label":
            return [(len(examples) - count) / count for count in counts]
        return [len(examples) / (len(counts) * count) for count in counts]
    weights = dict.fromkeys(task.labels, 1.0)
    for part in flag.split(","):
        label, _, value = part.rpartition("=")
        if label not in weights:
            raise ValueError(
                f"class_weights: {part!r} is not label=weight with one of the labels "
                f"{', '.join(task.labels)}."
            )
        try:
            weights[label] = float(value)
        except ValueError as error:
            raise ValueError(f"class_weights: {value!r} in {part!r} is not a number.") from error
        if not 0 < weights[label] < float("inf"):
            raise ValueError(f"class_weights: {part!r}, but a weight must be above 0.")
    return list(weights.values())


def _warn_of_missing_labels(task: ClassificationTask, examples: Sequence[InputExample]) -> None:
    counts = count_labels(task, examples)
    missing = [label for label, n in zip(task.labels, counts, strict=True) if n == 0]
    if missing:
        logger.warning(
            "%d of %d labels have no training example and will not be learned: %s",
            len(missing),
            len(task.labels),
            ", ".join(missing),
        )
