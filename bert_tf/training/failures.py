"""Failures of a training step: no memory, XLA cannot compile it, or the loss is not finite."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Mapping, Sequence

import tensorflow as tf

from bert_tf.training import checkpoints

# Types of the errors that XLA raises, and words in their messages.
_COMPILE_ERRORS = (
    tf.errors.FailedPreconditionError,
    tf.errors.InternalError,
    tf.errors.InvalidArgumentError,
    tf.errors.NotFoundError,
    tf.errors.UnavailableError,
    tf.errors.UnimplementedError,
    tf.errors.UnknownError,
)
_COMPILER = re.compile(
    r"XLA|\bHLO|PTX|ptxas|nvlink|libdevice|LLVM|JIT|[Aa]utotun|[Cc]ompil(e|ation)"
)
_TRACE = re.compile(
    r"\s*(Graph execution error:|Detected at node |<stack trace|Stack trace |The op is created|File \")"
)
_OUT_OF_MEMORY = re.compile(r"\bOOM\b|[Oo]ut of memory|OUT_OF_MEMORY|ALLOC_FAILED|memory limit")


def is_out_of_memory(error: tf.errors.OpError) -> bool:
    """Return True if a device has too little memory. XLA reports that with other types of errors too."""
    is_full = isinstance(error, tf.errors.ResourceExhaustedError)
    return is_full or bool(_OUT_OF_MEMORY.search(summary(error)))


def is_compile_error(error: tf.errors.OpError) -> bool:
    """Return True if XLA cannot compile a function on this machine."""
    is_possible = isinstance(error, _COMPILE_ERRORS) and not is_out_of_memory(error)
    return is_possible and bool(_COMPILER.search(summary(error)))


def summary(error: tf.errors.OpError) -> str:
    """Return the beginning of a message, without names of operations and where they were made."""
    lines = [line for line in error.message.splitlines() if not _TRACE.match(line)]
    text = re.sub(r"{{[^}]*}}|\[\[.*?\]\]|\[Op:\w+\]", "", " ".join(lines))
    return textwrap.shorten(text, 300, placeholder=" ...")


def out_of_memory(
    error: tf.errors.OpError,
    step: int,
    batch_size: int | None,
    num_replicas: int,
    num_parts: int,
    precision: str,
) -> tf.errors.ResourceExhaustedError:
    """Return an error with values that need less memory.

    Args:
        batch_size: examples per step, over all replicas; None if unknown.
        num_parts: `gradient_accumulation_steps`.
    """
    size, tries = "", []
    if batch_size is not None:
        each = -(-batch_size // num_replicas)
        size = f"train_batch_size={batch_size}, "
        if num_replicas > 1:
            size = f"train_batch_size={batch_size} ({each} for each of {num_replicas} devices), "
        if each > num_parts:
            more = next(n for n in range(min(2 * num_parts, each), each + 1) if each % n == 0)
            tries.append(f"gradient_accumulation_steps={more}, which takes the same steps")
    if precision == "float32":
        tries.append("precision=mixed_bfloat16")
    if batch_size is not None and batch_size > 1:
        tries.append(f"train_batch_size={batch_size // 2}")
    tries.append("a lower max_seq_length")
    return tf.errors.ResourceExhaustedError(
        None,
        None,
        f"The memory of the device is too small for step {step} with {size}"
        f"gradient_accumulation_steps={num_parts} and precision={precision}. Try "
        f"{', or '.join(tries)}. TensorFlow's message: {summary(error)}",
    )


def raise_lost_weights(
    values: Mapping[str, float],
    step: int,
    saver: checkpoints.BackgroundSaver | None,
    files_of_step: Callable[[int], Sequence[str]] | None,
) -> None:
    """Raise because the new weights are lost; the loss may be finite and its gradient not."""
    saved = None
    if saver is not None:
        saver.wait()
        saved = checkpoints.latest_checkpoint(saver.directory)
    before = f"{saved} is from before." if saved else "No earlier checkpoint exists."
    files = f" Its batch came from {', '.join(files_of_step(step))}." if files_of_step else ""
    raise FloatingPointError(
        f"The loss is {values['loss']} and the norm of its gradient {values['gradient_norm']} at "
        f"step {step}.{files} Lower learning_rate, or raise the number of warm-up steps. "
        f"{before}"
    )
