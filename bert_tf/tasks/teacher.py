"""The teacher of a run: its outputs are computed once and written into the records of the student."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.checkpoints.read import read_checkpoint
from bert_tf.checkpoints.sidecar import find_config, load_tokenizer
from bert_tf.data.features import FeatureSpec
from bert_tf.data.parallel import encode_columns
from bert_tf.data.records import RecordWriter, make_once
from bert_tf.options import OptionError
from bert_tf.tasks import evaluation as loop
from bert_tf.tasks.base import ExampleTask
from bert_tf.tasks.distillation import student_task
from bert_tf.tasks.initial_weights import load_weights
from bert_tf.tasks.load import load_task, make_task
from bert_tf.tasks.of_checkpoint import align_head
from bert_tf.tasks.options import FineTuningOptions
from bert_tf.tokenization import FullTokenizer
from bert_tf.training.loop import TrainLoop
from bert_tf.training.strategy import is_multi_worker

logger = logging.getLogger(__name__)

_CHUNK = 1000  # records that are encoded at once


@dataclass(frozen=True)
class Teacher:
    """A trained model that reads the records of the student.

    Args:
        source: its path.
        model: its outputs have the order of the student's labels.
        task: of the records.
        student: task of the student's training.
    """

    source: str
    model: keras.Model
    task: ExampleTask
    student: ExampleTask
    devices: tf.distribute.Strategy
    policy: str

    def write_records(
        self, records: str, examples: Sequence[Any], tokenizer: FullTokenizer, batch_size: int
    ) -> str:
        """Return the path of `train_taught.tf_record`: the training records with the teacher's outputs.

        The file is written unless it exists for the same examples and teacher.

        Args:
            records: path of the records of the examples.
        """
        key = self.task.records_key(examples, tokenizer)
        about = [key, self.policy, [spec.name for spec in self.student.record_features]]
        digest = hashlib.sha256(json.dumps([*about, self.model.config.to_dict()]).encode())
        for variable in self.model.weights:
            digest.update(np.asarray(variable).tobytes())

        def write(path: str) -> int:
            outputs = self._outputs(records, batch_size)
            columns = {f"teacher_{name}": values for name, values in outputs.items()}
            return add_columns(records, columns, self.student.record_features, path)

        path = os.path.join(os.path.dirname(records), "train_taught.tf_record")
        make_once(path, digest.hexdigest(), write)
        return path

    def _outputs(self, records: str, batch_size: int) -> Mapping[str, np.ndarray]:
        task, devices = self.task, self.devices
        if is_multi_worker(devices):  # each worker computes all outputs, for its own file
            devices = tf.distribute.get_strategy()
        runner = TrainLoop(self.model, (), strategy=devices, input_names=task.input_names)
        logger.info("***** Running the teacher, %s *****", self.source)
        return loop.collect_outputs(
            *(runner, task, [records], task.learned_outputs, batch_size),
            label="teacher",
            lengths="bucketed",
        )


def load_teacher(
    options: FineTuningOptions,
    task: ExampleTask,
    tokenizer: FullTokenizer,
    devices: tf.distribute.Strategy,
    policy: str,
    other_names: Sequence[str] = (),
) -> Teacher:
    """Load the teacher of the model for a task.

    Args:
        tokenizer: of the student.
        policy: precision of the model.
        other_names: second names of the labels of the task, in their order.

    Raises:
        ValueError: the teacher is for another task, for other labels, or has another tokenizer.
    """
    source = str(options.teacher)
    checkpoint = read_checkpoint(source)
    config = find_config(None, checkpoint)
    config.check_sequence_length(task.max_seq_length)
    known: Any = load_task(checkpoint, task.max_seq_length)[0]
    is_embedder = task.name == "embeddings"  # whose pooling may differ
    if is_embedder and (known is None or known.name == "pretraining"):
        # the means of an encoder's tokens
        known = make_task({"task": task.name, "max_seq_length": task.max_seq_length}, source)
    if known is None:
        raise OptionError("teacher", f"{source} has no head for a known task. Train it first.")
    theirs = _settings(known, load_tokenizer(None, None, checkpoint, config))
    ours = _settings(task, tokenizer)
    if differing := [name for name in ours if theirs[name] != ours[name]]:
        text = f"{source} has another {', '.join(differing)} than the model. Use one with the same."
        raise OptionError("teacher", text)
    checkpoint = align_head(checkpoint, known, task, other_names)
    taught, embedding_dim = (known, known.width(config)) if is_embedder else (task, 0)
    with devices.scope():
        model = taught.build_model(config, dtype=policy)
    load_weights(model, checkpoint, taught)
    student = student_task(task, options.temperature, embedding_dim)
    return Teacher(source, model, task, student, devices, policy)


def _settings(task: ExampleTask, tokenizer: FullTokenizer) -> dict[str, Any]:
    """Return what a teacher and its student must have in common."""
    names = ("problem_type", "crf", "feature_layers", "query_prefix", "document_prefix")
    settings = {name: task.arguments().get(name) for name in names}
    tokenization = {"vocabulary": list(tokenizer.vocab), "do_lower_case": tokenizer.do_lower_case}
    return {"task": task.name, **tokenization, **settings}


def add_columns(
    source: str, columns: Mapping[str, np.ndarray], specs: Sequence[FeatureSpec], path: str
) -> int:
    """Write the records of a file with additional features, and return their number.

    Two serialized messages, one after the other, are the message with the fields of both.

    Args:
        columns: name -> array [N, ...].
        specs: all features of the new records.
    """
    with RecordWriter(path, specs) as writer:
        records = tf.data.TFRecordDataset(source).batch(_CHUNK).as_numpy_iterator()
        for batch in records:
            rows = slice(writer.count, writer.count + len(batch))
            added = encode_columns({name: values[rows] for name, values in columns.items()})
            for record, more in zip(batch, added, strict=True):
                writer.write_serialized(record + more)
    return writer.count
