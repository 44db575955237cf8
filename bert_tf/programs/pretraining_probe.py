"""A linear probe of a model in pre-training, on the texts of a labelled table.

Four fifths of the rows train a linear classifier on frozen features, and the others evaluate it. The
features of a text are the means of the last layer over its tokens. The parts are the same in every run.

Shapes: N rows, S sequence, H hidden.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.data.features import SEQUENCE_FEATURES, sequence_specs, trim_padding
from bert_tf.data.tables import read_table
from bert_tf.finetuning.embeddings_options import ANCHORS, POSITIVES
from bert_tf.finetuning.setup import Setup
from bert_tf.interop.sidecar import find_vocabulary, load_tokenizer
from bert_tf.limits import listed
from bert_tf.metrics.basic import largest_class
from bert_tf.metrics.linear_probe import probe_accuracy
from bert_tf.modeling.pooling import sentence_embedding
from bert_tf.tasks.classification import InputExample
from bert_tf.tasks.tables import TableLayout, infer_labels, read_examples
from bert_tf.tokenization import FullTokenizer
from bert_tf.training.batch_runner import BatchRunner
from bert_tf.training.batch_trainer import BatchTrainer
from bert_tf.training.strategy import needs_static_shapes

logger = logging.getLogger(__name__)

LABEL = "label"
PROBE_METRICS = ("probe_accuracy", "probe_majority_accuracy")
_LEAST_ROWS, _MOST_ROWS = 10, 5000
_PART = 5  # one row of this number is held out


class Probe:
    """A labelled table, encoded for a model.

    Args:
        path: of the table, a TSV, CSV or JSON lines file with a column "label". The text is in a column
            with one of the names `ANCHORS`, the second text of a pair in one of `POSITIVES`.
        tokenizer: of the model.
        max_seq_length: S; longer texts are truncated.

    Raises:
        ValueError: a column is missing, a row is invalid, or there are fewer than 10 rows, a single
            label, or more than one label for two rows.
    """

    def __init__(self, path: str, tokenizer: FullTokenizer, max_seq_length: int):
        layout = _layout(path)
        given = list(read_examples(path, layout, labelled=True))
        first: dict[tuple[str, str | None], InputExample] = {}
        for row in given:
            first.setdefault((row.text_a, row.text_b), row)
        rows = list(first.values())  # so that no text is in both parts
        if len(rows) < len(given):
            logger.info("%s: %d rows repeat a text and are not used", path, len(given) - len(rows))
        # The stream of RandomState is the same in every version of NumPy.
        chosen = np.random.RandomState(0).permutation(len(rows))[:_MOST_ROWS]
        examples = [rows[index] for index in chosen]
        labels = _labels(path, examples)
        self._labels = np.array([labels.index(str(example.label)) for example in examples])
        self._is_held_out = np.zeros(len(examples), bool)
        self._is_held_out[np.argsort(self._labels, kind="stable")[_PART - 1 :: _PART]] = True
        trained = np.unique(self._labels[~self._is_held_out])
        if len(trained) < 2:
            raise ValueError(
                f"{path}: every row that the probe trains on has the label {labels[trained[0]]!r}, so "
                "there is nothing to learn. Add rows with other labels."
            )
        self._majority = largest_class(self._labels[self._is_held_out])
        pairs = None if layout.text_b is None else [str(example.text_b) for example in examples]
        self._inputs = tokenizer(
            [example.text_a for example in examples],
            pairs,
            max_length=max_seq_length,
            pad_to_max_length=True,
        )
        self._specs = sequence_specs((max_seq_length,))
        self._runner: BatchRunner | None = None
        logger.info(
            "Probe on %s: %d of %d rows, of which %d are held out; texts in %s, truncated to %d tokens; "
            "%d labels; probe_majority_accuracy %.3f",
            *(path, len(examples), len(rows), int(self._is_held_out.sum())),
            " and ".join(filter(None, (layout.text_a, layout.text_b))),
            *(max_seq_length, len(labels), self._majority),
        )

    def metrics(self, trainer: BatchTrainer, batch_size: int) -> dict[str, float]:
        """Return the accuracy of a probe of the current model, and that of the largest label."""
        features = self._features(trainer, batch_size)
        accuracy = probe_accuracy(features, self._labels, self._is_held_out)
        return dict(zip(PROBE_METRICS, (accuracy, self._majority), strict=True))

    def _features(self, trainer: BatchTrainer, batch_size: int) -> np.ndarray:
        """Return the features of all rows, float32 [N, H]."""
        if self._runner is None:  # it compiles a step for the model
            self._runner = BatchRunner(trainer.model.bert, trainer.strategy, SEQUENCE_FEATURES)
        order = np.argsort(self._inputs["input_mask"].sum(axis=1), kind="stable")
        inputs = {name: values[order] for name, values in self._inputs.items()}
        dataset = tf.data.Dataset.from_tensor_slices(inputs).batch(batch_size)
        if not needs_static_shapes(trainer.strategy):
            trim = tf.autograph.experimental.do_not_convert(trim_padding)
            dataset = dataset.map(lambda batch: trim(batch, self._specs))
        batches = self._runner.batches(dataset, _means, batch_size, label="probe")
        found = np.concatenate([batch["features"] for batch in batches])
        return found[np.argsort(order)]


def read_probe(options: Any, setup: Setup, vocab_file: str | None) -> Probe | None:
    """Return the probe on `probe_file`, None without that.

    Args:
        options: of run_pretraining.
        vocab_file: that of the records, None for the vocabulary of the checkpoint.

    Raises:
        ValueError: the vocabulary is missing; see also `Probe`.
    """
    if not options.probe_file:
        return None
    tokens = find_vocabulary(vocab_file, setup.checkpoint)
    if tokens is None:
        raise ValueError(
            f"probe_file={options.probe_file} needs the vocabulary of the records, which is not next to "
            "bert_config_file or init_checkpoint. Give vocab_file."
        )
    tokenizer = load_tokenizer(vocab_file, options.do_lower_case, setup.checkpoint, setup.config)
    return Probe(options.probe_file, tokenizer, options.max_seq_length)


def _means(outputs, features):
    return {"features": sentence_embedding(outputs, features["input_mask"], "mean")}


def _layout(path: str) -> TableLayout:
    """Return the columns of the first row with usual names."""
    row = next(iter(read_table(path)), None)
    if row is None:
        raise ValueError(f"{path} has no rows, but a probe needs {_LEAST_ROWS} or more.")
    text = next((name for name in ANCHORS if name in row), None)
    if text is None or LABEL not in row:
        raise ValueError(
            f"{row.place_of_names}: the columns are {listed(row)}, but a probe needs {LABEL!r} and a "
            f"text ({', '.join(ANCHORS)}). Rename the columns."
        )
    second = next((name for name in POSITIVES if name in row), None)
    return TableLayout(text, second, LABEL)


def _labels(path: str, examples: Sequence[InputExample]) -> list[str]:
    """Return the different labels.

    Raises:
        ValueError: the rows are too few, or the labels too many.
    """
    labels, count = infer_labels(examples), len(examples)
    if count < _LEAST_ROWS:
        raise ValueError(f"{path} has {count} rows, but a probe needs {_LEAST_ROWS} or more.")
    if len(labels) > count / 2:
        raise ValueError(
            f"{path}: {count} rows have {len(labels)} different labels ({', '.join(labels[:3])} ...), "
            "but a probe needs classes of two rows or more. Use a column of classes as the label."
        )
    return labels
