"""Comparison of a converted model with its source, and of bert_tf with other programs.

Shapes: B batch, S sequence, K choices.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping

import numpy as np
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.interop.checkpoint import PretrainedCheckpoint
from bert_tf.interop.initial import initialize
from bert_tf.interop.read import folder_of, read_checkpoint
from bert_tf.interop.sidecar import find_config
from bert_tf.interop.tensor_files import weights_file
from bert_tf.prediction.exports import ask_ids, ids_signatures, is_within, largest_difference
from bert_tf.prediction.runtimes import load
from bert_tf.registry import TYPES, TaskType

logger = logging.getLogger(__name__)

_TOLERANCE = 1e-5
_NUM_CHOICES = 3


def example_batch(config: BertConfig, head: TaskType, seed: int = 0) -> dict[str, np.ndarray]:
    """Return random ids of three lengths, with padding: int32 [B, S], or [B, K, S] for choices."""
    rng = np.random.default_rng(seed)
    length = min(config.max_position_embeddings, 48)
    lengths = np.array([length, max(1, length // 2), max(1, length // 5)])
    choices = (_NUM_CHOICES,) if head.name == "multiple_choice" else ()
    shape = (len(lengths), *choices, length)
    mask = np.arange(length) < lengths.reshape(-1, *(1 for _ in shape[1:]))
    return {
        "input_ids": rng.integers(0, config.vocab_size, shape).astype(np.int32),
        "input_mask": np.ascontiguousarray(np.broadcast_to(mask, shape), np.int32),
        "segment_ids": rng.integers(0, config.type_vocab_size, shape).astype(np.int32),
    }


def own_outputs(
    checkpoint: PretrainedCheckpoint, head: TaskType, batch: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Return the float32 outputs of our model by name. Every position counts as masked."""
    config = find_config(None, checkpoint)
    inputs = dict(batch)
    labels = {"num_labels": len(checkpoint.labels or ())} if head.has_labels else {}
    model = head.load("model")(config, **labels)
    if "masked_lm_positions" in model.exported_inputs:
        count, length = batch["input_ids"].shape
        inputs["masked_lm_positions"] = np.tile(np.arange(length, dtype=np.int32), (count, 1))
    initialize(model, checkpoint)
    outputs = {name: np.asarray(value) for name, value in model(inputs).items()}
    wanted = head.outputs or tuple(outputs)
    has_pooler = "bert/pooler/dense/kernel" in checkpoint.arrays
    return {n: outputs[n] for n in wanted if has_pooler or n != "pooled_output"}


def runtime_outputs(
    name: str, folder: str, head: TaskType, batch: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Return the outputs of a Hugging Face folder or a TF Hub encoder, under our names.

    Args:
        name: key of `runtimes.RUNTIMES`.

    Raises:
        ImportError: the runtime is not installed.
        ValueError: a SavedModel has no signature on ids.
    """
    settings = {"architecture": head.architecture} if name == "huggingface" else {}
    runtime = load(name, folder, **settings)
    signatures = ids_signatures(runtime)
    if not signatures:
        raise ValueError(
            f"{folder} has no signature that takes ids (input_word_ids, input_mask, input_type_ids), "
            f"only {', '.join(runtime.signatures) or 'none at all'}, so it cannot be run for `verify`."
        )
    return ask_ids(runtime, signatures[0], head, batch)


def verify_conversion(checkpoint: PretrainedCheckpoint, head: TaskType, output_dir: str) -> None:
    """Raise ValueError unless the new files have the bits and outputs of the source."""
    written = read_checkpoint(output_dir)
    names = set(checkpoint.arrays) | set(written.arrays)
    differing = [
        name
        for name in sorted(names)
        if name not in checkpoint.arrays
        or name not in written.arrays
        or not _same_bits(checkpoint.arrays[name], written.arrays[name])
    ]
    if differing or written.config != checkpoint.config:
        raise ValueError(
            f"{output_dir} differs from {checkpoint.source}: "
            f"{', '.join(differing[:3]) or 'the configuration'}. This is a bug of bert_tf; please "
            "report it."
        )
    logger.info("verified: all %d variables read back bit-equal", len(names))

    if head.name == "embeddings":  # pooling and projection are modules of their own there
        head = TYPES["encoder"]
    folders = (folder_of(checkpoint.source), output_dir)
    sides = [side for folder in folders for side in _other_programs(folder, head)]
    if not sides:
        logger.info(
            "no outputs were compared: neither folder is for a program that runs here (transformers, or "
            "a SavedModel of an encoder)"
        )
        return
    batch = example_batch(checkpoint.config, head)
    ours = None
    for program, name, folder in sides:
        try:
            theirs = runtime_outputs(name, folder, head, batch)
        except ImportError as error:
            logger.warning(
                "the logits were not compared: %s; run `pip install transformers torch`", error
            )
            return
        if ours is None:
            ours = own_outputs(checkpoint, head, batch)
        _compare(ours, theirs, batch["input_mask"], f"{program} ({folder})")


def _other_programs(folder: str, head: TaskType) -> Iterator[tuple[str, str, str]]:
    """Yield (program, runtime, folder) for every other program that can run the model."""
    if tf.io.gfile.exists(os.path.join(folder, "config.json")) and weights_file(folder):
        yield "transformers", "huggingface", folder
    # A SavedModel's signature has no outputs of heads.
    if head.name == "encoder" and tf.io.gfile.exists(os.path.join(folder, "saved_model.pb")):
        yield "the SavedModel", "saved_model", folder


def _compare(
    ours: Mapping[str, np.ndarray], theirs: Mapping[str, np.ndarray], mask: np.ndarray, other: str
) -> None:
    difference, magnitude = largest_difference(ours, theirs, mask)
    outputs = ", ".join(ours)
    logger.info("verified: largest difference to %s: %.3g", other, difference)
    logger.info("  of %s; their largest value is %.3g", outputs, magnitude)
    if not is_within(difference, magnitude, _TOLERANCE):
        raise ValueError(
            f"The outputs of {other} differ from ours: the largest difference of {outputs} is "
            f"{difference:.3g}, but at most {_TOLERANCE:g} of {max(1.0, magnitude):.3g} is allowed."
        )


def _same_bits(first: np.ndarray, second: np.ndarray) -> bool:
    return first.shape == second.shape and first.tobytes() == second.tobytes()
