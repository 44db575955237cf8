"""The teacher of a run: its checks, its outputs in the records, and the task of the student's training.

The logits are computed once. `train_taught.tf_record` contains the records of `train.tf_record` with
them, and is reused as other records are (data/record_cache.py).
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.data.example_bytes import encode_columns
from bert_tf.data.features import FeatureSpec
from bert_tf.data.record_checks import count_records
from bert_tf.data.records import RecordWriter, read_records
from bert_tf.finetuning import loop
from bert_tf.finetuning.distillation_options import TeacherOptions
from bert_tf.finetuning.options import FineTuningOptions
from bert_tf.finetuning.setup import Setup
from bert_tf.finetuning.teacher_checks import (
    check_same_type,
    order_of_labels,
    same_tokenizer,
    warn_of_other_numbers,
)
from bert_tf.interop.sidecar import MissingVocabularyError
from bert_tf.model_folder import TrainedModel, load_model
from bert_tf.modeling.models import BertForPreTraining
from bert_tf.options import reject_unused
from bert_tf.prediction.exported import is_exported
from bert_tf.prediction.saved_models import is_saved_model
from bert_tf.tasks.base import ExampleTask, Task
from bert_tf.tasks.classification import ClassificationTask
from bert_tf.tasks.distillation import (
    MASKED_WORDS,
    TEACHER_LOGITS,
    DistilledTask,
    TeacherInStep,
    TeacherTask,
    aligned,
    masked_words,
    soft_targets,
)
from bert_tf.tasks.embeddings import EmbeddingTask
from bert_tf.tasks.pretraining import PretrainingTask
from bert_tf.tasks.reranking import RerankingTask
from bert_tf.tasks.token_classification import TokenClassificationTask
from bert_tf.training.batch_trainer import BatchTrainer
from bert_tf.training.distillation import IS_LABELLED, distillation_losses, states_loss
from bert_tf.training.encoder_parts import freezes_encoder
from bert_tf.training.losses import Loss
from bert_tf.training.strategy import is_multi_worker

if TYPE_CHECKING:
    from bert_tf.finetuning.run import Run

logger = logging.getLogger(__name__)

_CHUNK = 1000  # records that are encoded at once


@dataclass(frozen=True)
class Teacher:
    """A trained model, and what a student learns from it.

    Args:
        trained: model and tokenizer.
        order: the teacher's output for each label of the student; None for outputs without labels.
        reads_same: True if the teacher reads the records of the student.
        learned: task of the student's training.
    """

    trained: TrainedModel
    order: Sequence[int] | None
    reads_same: bool
    learned: DistilledTask

    @classmethod
    def for_task(
        cls,
        options: FineTuningOptions,
        setup: Setup,
        task: ExampleTask,
        other_names: Sequence[str] = (),
        all_labelled: bool = True,
    ) -> Teacher:
        """Load the teacher, and check that a model for `task` can learn from it.

        Args:
            other_names: second names of the labels of `task`, in their order.
            all_labelled: False if some training examples have no label.

        Raises:
            ValueError: the teacher is for another type of task or for other labels, or has another
                tokenizer where the student learns tokens.
        """
        trained = _load(str(options.teacher), options.policy, setup.devices)
        if isinstance(task, EmbeddingTask) and not (trained.task or trained.unused_head):
            length = min(trained.max_seq_length, task.max_seq_length)
            trained = _rebuilt(trained, EmbeddingTask(length), setup.devices)
        check_same_type(trained, task)
        if isinstance(task, RerankingTask):  # reads a query with its documents
            trained = replace(_rebuilt(trained, task, setup.devices), task=trained.task)
        reads_same = same_tokenizer(trained.tokenizer, setup.tokenizer)
        reads_same = reads_same and _prefixes(trained.task) == _prefixes(task)
        if reads_same:
            trained.model.config.check_sequence_length(task.max_seq_length)
        elif task.name == "question_answering" or options.teacher_states != "none":
            raise ValueError(
                f"{trained.source} has another vocabulary or case than the model, but the model learns "
                "from it token by token. Use a teacher with the same tokenizer"
                + ("." if task.name == "question_answering" else ", or teacher_states=none.")
            )
        reads_same = reads_same and _has_crf(trained.task) == _has_crf(task)
        if _is_regression(task):
            reject_unused(options, ("temperature",), "with problem_type=regression")
        targets = soft_targets(task, _width(trained))
        losses = distillation_losses(
            task.losses[0], targets, options.temperature, options.hard_labels, all_labelled
        )
        features = [*targets.features]
        if not all_labelled:
            features.append(FeatureSpec(IS_LABELLED, role="id"))
        in_step, states_losses = _in_step(options, trained, setup)
        learned = DistilledTask(task, features, (*losses, *states_losses), in_step)
        return cls(trained, order_of_labels(trained, task, other_names), reads_same, learned)

    def check_size(self, student: keras.Model) -> None:
        """Warn if the student has more parameters than the teacher."""
        warn_of_larger_student(student, self.trained)

    def records(self, run: Run, examples: Sequence[Any], name: str) -> str:
        """Return the path of `<name>_taught.tf_record`. Write it unless it exists.

        Args:
            name: "train" or "unlabelled".
        """
        source = run.records(examples, name)
        names = [spec.name for spec in self.learned.record_features]
        about = [run.task.records_key(examples, run.tokenizer), self._key(run), name, names]
        key = hashlib.sha256(json.dumps(about).encode()).hexdigest()

        def write(path: str) -> int:
            learns_labels = name == "train" and run.options.hard_labels > 0
            columns = dict(self._outputs(run, examples, source, learns_labels))
            if IS_LABELLED in names:
                is_labelled = np.full(count_records([source]), name == "train", np.int32)
                columns[IS_LABELLED] = is_labelled
            return add_columns(source, columns, self.learned.record_features, path)

        return run.make_records(f"{name}_taught", key, write)

    def _key(self, run: Run) -> str:
        """Return a hash of everything that the logits depend on, except the examples."""
        trained = self.trained
        about = [trained.model.config.to_dict(), list(trained.tokenizer.vocab), self.order]
        about += [trained.tokenizer.do_lower_case, run.options.policy]
        about += [task and task.arguments() for task in (trained.task, self._task(run))]
        found = hashlib.sha256(json.dumps(about).encode())
        for variable in trained.model.weights:
            found.update(variable.path.encode())
            found.update(np.asarray(variable).tobytes())
        return found.hexdigest()

    def _task(self, run: Run) -> ExampleTask:
        """Return the task that makes the teacher's records."""
        if self.reads_same:
            return run.task
        positions = self.trained.model.config.max_position_embeddings
        longest = max(self.trained.max_seq_length, run.task.max_seq_length)
        length = min(longest, positions)
        if isinstance(run.task, RerankingTask):
            return run.task.with_length(length)
        changed = {"max_seq_length": length, **_prefixes(self.trained.task)}
        if isinstance(self.trained.task, TokenClassificationTask):
            changed["crf"] = self.trained.task.crf
        return type(run.task)(**{**run.task.arguments(), **changed})

    def _outputs(
        self, run: Run, examples: Sequence[Any], source: str, learns_labels: bool
    ) -> Mapping[str, np.ndarray]:
        """Return the teacher's outputs for the records in `source`, by feature."""
        makes_records = self._task(run)
        task = TeacherTask(makes_records, _width(self.trained))
        devices = run.trainer.strategy
        if is_multi_worker(devices):  # each worker computes all outputs, for its own file
            devices = tf.distribute.get_strategy()
        runner = BatchTrainer(
            self.trained.model, (), strategy=devices, input_names=task.input_names
        )
        batch_size = run.options.train_batch_size
        logger.info("***** Running the teacher, %s *****", self.trained.source)
        with tempfile.TemporaryDirectory() as folder:
            if not self.reads_same:
                path = os.path.join(folder, "teacher.tf_record")
                workers = run.options.workers_for(makes_records.num_sequences(examples))
                makes_records.write_records(examples, self.trained.tokenizer, path, workers)
                source, of_student = path, _columns(run.task, source)
            kept = loop.run_model(
                runner, task, [source], batch_size, "teacher", lengths=run.options.lengths
            )
        names = [spec.name for spec in task.targets.features]
        if learns_labels and _is_regression(run.task):
            numbers = kept[TEACHER_LOGITS][:, 0]
            warn_of_other_numbers(self.trained.source, numbers, kept["label_ids"])
        if self.order is not None:
            kept |= {name: kept[name][..., list(self.order)] for name in names}
        if self.reads_same:
            return {name: kept[name] for name in names}
        return {name: aligned(makes_records, kept, of_student) for name in names}


def pretraining_student(
    options: TeacherOptions,
    setup: Setup,
    task: PretrainingTask,
    vocab: Sequence[str] | None,
) -> tuple[DistilledTask, TrainedModel]:
    """Return the task of a student of pre-training, and its teacher, which runs in every step.

    The student learns the distributions of masked words, unless `hard_labels` is 1, and the states of
    `teacher_states`. Other losses stay as they are.

    Args:
        vocab: WordPieces of the records, None if unknown.

    Raises:
        ValueError: the teacher has no masked-LM head, or another vocabulary than the records.
    """
    trained = _load(str(options.teacher), setup.options.policy, setup.devices)
    there = list(trained.tokenizer.vocab)
    if there != list(vocab or there) or trained.model.config.vocab_size != setup.config.vocab_size:
        raise ValueError(
            f"The teacher {trained.source} has another vocabulary than the records or the model. Use a "
            "teacher of the same vocabulary."
        )
    trained.model.config.check_sequence_length(task.max_seq_length)
    learns_words = options.hard_labels < 1
    if learns_words and not isinstance(trained.model, BertForPreTraining):
        raise ValueError(
            f"The teacher {trained.source} has no masked-LM head. Use a pre-trained model, or learn "
            "only its states: hard_labels=1 with teacher_states."
        )
    hard, *others = task.losses
    in_step, losses = _in_step(options, trained, setup, MASKED_WORDS if learns_words else "")
    if learns_words:
        words = masked_words()
        losses += distillation_losses(hard, words, options.temperature, options.hard_labels)
    else:
        losses += (hard,)
    return DistilledTask(task, (), (*losses, *others), in_step), trained


def warn_of_larger_student(student: keras.Model, trained: TrainedModel) -> None:
    """Warn if a student has more parameters than its teacher."""
    ours, theirs = (loop.num_parameters(model) for model in (student, trained.model))
    if ours > theirs:
        logger.warning(
            "The model has %s parameters, but %s, its teacher, only %s. Distillation is for models "
            "that are smaller than their teacher.",
            f"{ours:,}",
            trained.source,
            f"{theirs:,}",
        )


def _width(trained: TrainedModel) -> int:
    """Return the size of the vectors, 0 of a model without embeddings."""
    task = trained.task
    return task.width(trained.model.config) if isinstance(task, EmbeddingTask) else 0


def _prefixes(task: Task | None) -> dict[str, str]:
    names = ("query_prefix", "document_prefix")
    return {n: getattr(task, n) for n in names} if isinstance(task, EmbeddingTask) else {}


def _is_regression(task: Task) -> bool:
    return isinstance(task, ClassificationTask) and task.kind.name == "regression"


def _has_crf(task: Task | None) -> bool:
    return getattr(task, "crf", None) is not None


def _rebuilt(
    trained: TrainedModel, task: ExampleTask, devices: tf.distribute.Strategy
) -> TrainedModel:
    """Return the teacher with its weights in the model of `task`."""
    values = {variable.path: variable for variable in trained.model.weights}
    with devices.scope():
        model = task.build_model(trained.model.config, dtype=trained.model.dtype_policy.name)
        for variable in model.weights:
            variable.assign(values[variable.path])
    return replace(trained, model=model, task=task)


def _load(path: str, policy: str, devices: tf.distribute.Strategy) -> TrainedModel:
    if is_saved_model(path) or is_exported(path):
        raise ValueError(
            f"The teacher {path} is an export, which gives no logits of tokens and no states. Name the "
            "folder that was exported."
        )
    logger.info("Loading the teacher, %s", path)
    try:
        with devices.scope():
            return load_model(path, dtype=policy)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"The training needs its teacher until it ends. {error}") from error
    except MissingVocabularyError as error:  # whose remedy, vocab_file, is that of the student
        raise ValueError(
            f"The teacher {path} has no vocabulary. Copy the vocab.txt of its model into its folder."
        ) from error


def _columns(task: ExampleTask, path: str) -> dict[str, np.ndarray]:
    """Return the features of all records except the inputs of the model, in the order of the records."""
    specs = [spec for spec in task.features if spec.role != "input"]
    batches = read_records(
        [path], specs, batch_size=_CHUNK, shuffle=False, repeat=False, drop_remainder=False
    )
    parts = list(batches.as_numpy_iterator())
    return {spec.name: np.concatenate([part[spec.name] for part in parts]) for spec in specs}


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


def _in_step(
    options: TeacherOptions, trained: TrainedModel, setup: Setup, logits: str = ""
) -> tuple[TeacherInStep | None, tuple[Loss, ...]]:
    """Return the teacher that runs in every step, if any, and the loss of its states.

    Args:
        logits: output of the teacher that the student learns, or "".
    """
    states, config = options.teacher_states, trained.model.config
    if states == "none":
        return (TeacherInStep(trained.model, states, logits=logits) if logits else None), ()
    frozen = setup.options.freeze or ""
    if freezes_encoder(frozen, setup.config.num_hidden_layers):
        reason = f"with freeze={frozen}, which freezes the whole encoder"
        reject_unused(options, ("teacher_states",), reason)
    layer = options.teacher_layer
    layer = config.num_hidden_layers - 1 if layer is None else layer
    if layer >= config.num_hidden_layers:
        raise ValueError(
            f"teacher_layer is {layer}, but the layers of {trained.source} are 0 to "
            f"{config.num_hidden_layers - 1}."
        )
    heads = options.relation_heads or setup.config.num_attention_heads
    for whose, size in (("teacher", config.hidden_size), ("model", setup.config.hidden_size)):
        if states == "relations" and size % heads:
            raise ValueError(
                f"relation_heads is {heads}, but must divide the hidden size of the {whose}, {size}. "
                "Give a common divisor of both hidden sizes."
            )
    loss = states_loss(states, options.states_weight, heads)
    return TeacherInStep(trained.model, states, layer, logits), (loss,)
