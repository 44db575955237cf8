"""--verify of convert_checkpoint: what was written against its source, as numbers and as models."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import tensorflow as tf

from bert_tf.interop import verification
from bert_tf.interop.checkpoint import PretrainedCheckpoint
from bert_tf.interop.heads import Head
from bert_tf.interop.initial import folder_of, read_checkpoint
from bert_tf.interop.tensor_files import weights_file

logger = logging.getLogger(__name__)

_TOLERANCE = 1e-5  # of the outputs, or of their largest where that is above 1


def verify_conversion(checkpoint: PretrainedCheckpoint, head: Head, output_dir: str) -> None:
    """Compares what was written with the source: number by number, and as models that run.

    Raises:
        ValueError: they differ.
    """
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
            f"{output_dir} is not what {checkpoint.source} is: "
            f"{', '.join(differing[:3]) or 'the configuration'}. This is a fault of ours; please "
            "report it."
        )
    logger.info("verified: all %d variables read back bit-equal", len(names))

    folders = (folder_of(checkpoint.source), output_dir)
    sides = [side for folder in folders for side in _other_programs(folder, head)]
    if not sides:
        logger.info("neither side is for another program that could be run here")
        return
    batch = verification.example_batch(checkpoint.config, head)
    ours = None
    for program, outputs_of, folder in sides:
        try:
            theirs = outputs_of(folder, head, batch)
        except ImportError as error:
            logger.warning(
                "the logits were not compared: %s; `pip install transformers torch` for that", error
            )
            return
        if ours is None:
            ours = verification.own_outputs(checkpoint, head, batch)
        _compare(ours, theirs, batch["input_mask"], f"{program} ({folder})")


def _other_programs(folder: str, head: Head) -> Iterator[tuple[str, Callable, str]]:
    """What else can run the model in `folder`: (program, function that does so, folder)."""
    if tf.io.gfile.exists(os.path.join(folder, "config.json")) and weights_file(folder):
        yield "transformers", verification.transformers_outputs, folder
    # A SavedModel's signature has no outputs of heads.
    if head.name == "encoder" and tf.io.gfile.exists(os.path.join(folder, "saved_model.pb")):
        yield "the SavedModel", verification.saved_model_outputs, folder


def _compare(
    ours: Mapping[str, np.ndarray], theirs: Mapping[str, np.ndarray], mask: np.ndarray, other: str
) -> None:
    difference, magnitude = verification.largest_difference(ours, theirs, mask)
    outputs = ", ".join(ours)
    logger.info("verified: largest difference to %s: %.3g", other, difference)
    logger.info("  of %s; their largest value is %.3g", outputs, magnitude)
    if not difference <= _TOLERANCE * max(1.0, magnitude):
        raise ValueError(
            f"The model says something else in {other} than here: the largest difference of {outputs} "
            f"is {difference:.3g}, and {_TOLERANCE:g} of {magnitude:.3g} is allowed."
        )


def _same_bits(first: np.ndarray, second: np.ndarray) -> bool:
    return first.shape == second.shape and first.tobytes() == second.tobytes()
