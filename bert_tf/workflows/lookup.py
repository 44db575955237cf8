"""Where a run finds its architecture, vocabulary and case: in its flags, else beside the checkpoint."""

from __future__ import annotations

import logging
import os
from dataclasses import fields

import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.interop.checkpoint import PretrainedCheckpoint
from bert_tf.interop.initial import read_checkpoint
from bert_tf.interop.sidecar import (  # noqa: F401  (workflows find all of it here)
    compare_vocabularies,
    find_case,
    find_config,
    find_vocabulary,
    load_tokenizer,
)
from bert_tf.options import TrainingOptions
from bert_tf.training import checkpoints

logger = logging.getLogger(__name__)


def read_initial_checkpoint(options: TrainingOptions) -> PretrainedCheckpoint | None:
    """What --init_checkpoint names, else the newest checkpoint in --output_dir, else None.

    Configuration and vocabulary lie beside either, so that a run goes on, or is evaluated, without
    being told again what it is.
    """
    path = options.init_checkpoint or checkpoints.latest_checkpoint(options.output_dir)
    return read_checkpoint(path) if path else None


def trained_weights_needed(options: TrainingOptions) -> None:
    """Evaluation or prediction without training needs weights from somewhere."""
    if options.do_train or options.init_checkpoint:
        return
    if checkpoints.latest_checkpoint(options.output_dir) is None:
        raise ValueError(
            f"There is no checkpoint in --output_dir={options.output_dir} and --init_checkpoint is "
            "not given: train first with --do_train, or name the weights."
        )


def check_same_architecture(output_dir: str, config: BertConfig) -> None:
    """Refuses to go on with another model than the one that a folder holds checkpoints of.

    Not all that may differ shows in the shapes of the variables: the number of heads does not.
    """
    path = os.path.join(output_dir, "bert_config.json")
    if checkpoints.latest_checkpoint(output_dir) is None or not tf.io.gfile.exists(path):
        return
    there = BertConfig.from_json_file(path)
    compared = (field.name for field in fields(BertConfig) if field.compare)
    differences = [
        f"{name}: {getattr(there, name)} there, {getattr(config, name)} now"
        for name in compared
        if getattr(there, name) != getattr(config, name)
    ]
    if differences:
        raise ValueError(
            f"{output_dir} holds checkpoints of another model:\n  "
            + "\n  ".join(differences)
            + "\nUse another --output_dir; to start from its weights, name it in --init_checkpoint."
        )


def check_sequence_length(max_seq_length: int, config: BertConfig) -> None:
    """Refuses sequences that the position table does not cover."""
    limit = config.max_position_embeddings
    if max_seq_length > limit:
        raise ValueError(
            f"--max_seq_length is {max_seq_length}, but `max_position_embeddings` in the model's "
            f"configuration is {limit}. Use --max_seq_length={limit} or less."
        )
