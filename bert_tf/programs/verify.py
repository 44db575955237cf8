"""Comparison of a converted model with its source, and of bert_tf with other programs.

Shapes: B batch, S sequence, K choices.
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.interop.checkpoint import PretrainedCheckpoint
from bert_tf.interop.initial import folder_of, initialize, read_checkpoint
from bert_tf.interop.sidecar import find_config
from bert_tf.interop.tensor_files import weights_file
from bert_tf.modeling.inputs import OTHER_NAMES
from bert_tf.registry import TaskType

logger = logging.getLogger(__name__)

_TOLERANCE = 1e-5  # absolute, or relative to the largest output if that exceeds 1
_NUM_CHOICES = 3
# Our name of an output -> the name in transformers.
_HUGGINGFACE_OUTPUTS = {
    "sequence_output": "last_hidden_state",
    "pooled_output": "pooler_output",
    "next_sentence_logits": "seq_relationship_logits",
    "masked_lm_logits": "prediction_logits",
}


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


def transformers_outputs(
    folder: str, head: TaskType, batch: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Return the outputs of a Hugging Face folder in `transformers`, under our names.

    Raises:
        ImportError: `transformers` or PyTorch is not installed.
    """
    import torch
    import transformers

    transformers.utils.logging.disable_progress_bar()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # from the imported libraries
        model = getattr(transformers, head.architecture).from_pretrained(folder)
    model = model.eval().float()
    names = {"input_ids": "input_ids", **OTHER_NAMES}
    inputs = {name: torch.tensor(batch[ours]).long() for name, ours in names.items()}
    with torch.no_grad():
        outputs = {name: value.numpy() for name, value in model(**inputs).items()}
    ours = {theirs: name for name, theirs in _HUGGINGFACE_OUTPUTS.items()}
    if head.name in ("masked_lm", "next_sentence"):
        ours["logits"] = f"{head.name}_logits"
    return {ours.get(name, name): value for name, value in outputs.items()}


def saved_model_outputs(
    folder: str, _: TaskType, batch: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """Return `sequence_output` and `pooled_output` of a TF Hub encoder.

    Raises:
        ValueError: it has another signature.
    """
    signature = tf.saved_model.load(folder).signatures.get("serving_default")
    named = {
        "input_word_ids": batch["input_ids"],
        "input_mask": batch["input_mask"],
        "input_type_ids": batch["segment_ids"],
    }
    taken = set(signature.structured_input_signature[1]) if signature else set()
    if taken != set(named):
        raise ValueError(
            f"{folder} has no signature `serving_default` with the inputs {', '.join(named)} (it has "
            f"{', '.join(sorted(taken)) or 'nothing'}), so it cannot be run for `verify`."
        )
    outputs = signature(**{name: tf.constant(value) for name, value in named.items()})
    return {name: value.numpy() for name, value in outputs.items()}


def largest_difference(
    ours: Mapping[str, np.ndarray], theirs: Mapping[str, np.ndarray], input_mask: np.ndarray
) -> tuple[float, float]:
    """Return the largest difference and the largest magnitude of our outputs, without padding.

    Raises:
        ValueError: an output is missing, or has another shape.
    """
    difference = magnitude = 0.0
    for name, value in ours.items():
        if name not in theirs or theirs[name].shape != value.shape:
            found = theirs[name].shape if name in theirs else "absent"
            raise ValueError(f"{name} is {value.shape} here, but {found} there.")
        other = theirs[name]
        if value.shape[: input_mask.ndim] == input_mask.shape:
            value, other = value[input_mask == 1], other[input_mask == 1]
        difference = max(difference, float(np.abs(value - other).max()))
        magnitude = max(magnitude, float(np.abs(value).max()))
    return difference, magnitude


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

    folders = (folder_of(checkpoint.source), output_dir)
    sides = [side for folder in folders for side in _other_programs(folder, head)]
    if not sides:
        logger.info("neither side is for another program that can run here")
        return
    batch = example_batch(checkpoint.config, head)
    ours = None
    for program, outputs_of, folder in sides:
        try:
            theirs = outputs_of(folder, head, batch)
        except ImportError as error:
            logger.warning(
                "the logits were not compared: %s; run `pip install transformers torch`", error
            )
            return
        if ours is None:
            ours = own_outputs(checkpoint, head, batch)
        _compare(ours, theirs, batch["input_mask"], f"{program} ({folder})")


def _other_programs(folder: str, head: TaskType) -> Iterator[tuple[str, Callable, str]]:
    """Yield (program, function, folder) for every other program that can run the model."""
    if tf.io.gfile.exists(os.path.join(folder, "config.json")) and weights_file(folder):
        yield "transformers", transformers_outputs, folder
    # A SavedModel's signature has no outputs of heads.
    if head.name == "encoder" and tf.io.gfile.exists(os.path.join(folder, "saved_model.pb")):
        yield "the SavedModel", saved_model_outputs, folder


def _compare(
    ours: Mapping[str, np.ndarray], theirs: Mapping[str, np.ndarray], mask: np.ndarray, other: str
) -> None:
    difference, magnitude = largest_difference(ours, theirs, mask)
    outputs = ", ".join(ours)
    logger.info("verified: largest difference to %s: %.3g", other, difference)
    logger.info("  of %s; their largest value is %.3g", outputs, magnitude)
    if not difference <= _TOLERANCE * max(1.0, magnitude):
        raise ValueError(
            f"The outputs of {other} differ from ours: the largest difference of {outputs} is "
            f"{difference:.3g}, but at most {_TOLERANCE:g} of {magnitude:.3g} is allowed."
        )


def _same_bits(first: np.ndarray, second: np.ndarray) -> bool:
    return first.shape == second.shape and first.tobytes() == second.tobytes()
