"""Failures of a training step: no memory, XLA cannot compile it, or the loss is not finite."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping
from typing import Any, NoReturn

import tensorflow as tf

from bert_tf.training import checkpoints

_COMPILER = re.compile(
    r"XLA|\bHLO|PTX|ptxas|nvlink|libdevice|LLVM|JIT|[Aa]utotun|[Cc]ompil(e|ation)"
)
_TRACE = re.compile(
    r"\s*(Graph execution error:|Detected at node |<stack trace|Stack trace |The op is created|File \")"
)
_OUT_OF_MEMORY = re.compile(r"\bOOM\b|[Oo]ut of memory|OUT_OF_MEMORY|ALLOC_FAILED|memory limit")


def raise_with_remedy(
    error: tf.errors.OpError, step: int, settings: Mapping[str, Any], compiles: bool
) -> NoReturn:
    """Raise the error of a step, with what to try if memory is short or XLA cannot compile it.

    Args:
        step: in whose call the error was raised, from 1.
        settings: name -> value of what the memory depends on.
        compiles: True if XLA compiles a part of the step.
    """
    text = summary(error)
    # XLA reports a full memory with other types of errors too.
    if isinstance(error, tf.errors.ResourceExhaustedError) or _OUT_OF_MEMORY.search(text):
        used = ", ".join(f"{name}={value}" for name, value in settings.items())
        raise tf.errors.ResourceExhaustedError(
            None,
            None,
            f"The memory of the device is too small for step {step} with {used}. Raise "
            "gradient_accumulation_steps, which takes the same steps, or try "
            f"precision=mixed_bfloat16 or a lower max_seq_length. TensorFlow's message: {text}",
        ) from error
    if compiles and _COMPILER.search(text):
        raise ValueError(
            f"XLA cannot compile the training step ({text}). Use jit_compile=false."
        ) from error
    raise error


def summary(error: tf.errors.OpError) -> str:
    """Return the beginning of a message, without names of operations and where they were made."""
    lines = [line for line in error.message.splitlines() if not _TRACE.match(line)]
    text = re.sub(r"{{[^}]*}}|\[\[.*?\]\]|\[Op:\w+\]", "", " ".join(lines))
    return textwrap.shorten(text, 300, placeholder=" ...")


def raise_lost_weights(
    values: Mapping[str, float], step: int, saver: checkpoints.BackgroundSaver | None
) -> NoReturn:
    """Raise because the new weights are lost; the loss may be finite and its gradient not."""
    saved = None
    if saver is not None:
        saver.wait()
        saved = checkpoints.latest_checkpoint(saver.directory)
    raise FloatingPointError(
        f"The loss is {values['loss']} and the norm of its gradient {values['gradient_norm']} at step "
        f"{step}. Lower learning_rate, or raise the number of warm-up steps. "
        + (f"{saved} is from before." if saved else "No earlier checkpoint exists.")
    )
