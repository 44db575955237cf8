"""Initial weights of a run: the chosen layers of a checkpoint, loaded into a model."""

from __future__ import annotations

from dataclasses import replace

import keras

from bert_tf.checkpoints.checkpoint import PretrainedCheckpoint
from bert_tf.checkpoints.heads import HEADS
from bert_tf.checkpoints.initial import initialize, with_layers
from bert_tf.config import BertConfig
from bert_tf.modeling.pooling import parse_layers
from bert_tf.options import OptionError
from bert_tf.tasks.base import Task
from bert_tf.training.options import TrainingOptions


def with_init_layers(
    training: TrainingOptions, checkpoint: PretrainedCheckpoint | None, config: BertConfig
) -> tuple[PretrainedCheckpoint | None, BertConfig]:
    """Return the weights and the architecture with the layers of `init_layers`, if given.

    Args:
        config: any number of layers.

    Raises:
        ValueError: the checkpoint lacks a layer.
    """
    if checkpoint is None or training.init_layers is None:
        return checkpoint, config
    layers = parse_layers(training.init_layers, name="init_layers")
    chosen = with_layers(checkpoint, layers)
    return chosen, replace(config, num_hidden_layers=len(layers))


def load_weights(
    model: keras.Model, checkpoint: PretrainedCheckpoint, task: Task, will_train: bool = False
) -> None:
    """Load a checkpoint into the model of a task.

    Raises:
        ValueError: the encoder does not fit, or the checkpoint has no head for the task and the model
            will not be trained.
    """
    report = initialize(model, checkpoint, HEADS.get(task.name))
    unused = () if task.uses_pooler else "bert/pooler/"
    missing = [name for name in report.missing if not name.startswith(unused)]
    if missing and not will_train:
        raise OptionError(
            "init_checkpoint",
            f"{checkpoint.source} has no {', '.join(missing[:3])}: do_train, or it answers at random.",
        )
