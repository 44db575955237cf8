"""Post-training quantization of the encoder's products, and the ids on which their ranges are measured.

Each product has one range for all inputs: of the ranges between a part and all of the measured values,
the one with the smallest error of the product's outputs. The bias corrects the mean error of an output.

Shapes: B batch, S sequence, K choices, R rows (B*S).
"""

from __future__ import annotations

import logging
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.modeling.inference import WORDS, Affine, InferenceEncoder, products
from bert_tf.modeling.int8 import (
    ACTIVATIONS,
    OVERFLOW_FREE,
    QuantizedAffine,
    QuantizedTable,
    quantize_inputs,
    quantize_kernel,
    round_range,
)
from bert_tf.prediction.loading import TEXT
from bert_tf.serving.served import Served
from bert_tf.training.progress import Progress
from bert_tf.training.strategy import INT8_FLAGS, int8_instruction

logger = logging.getLogger(__name__)


MAX_TEXTS = 300  # NNCF's usual number of samples
INT8 = "int8"
MAX_ERROR = 0.1  # of a product, relative; products above stay in floats

_ROWS = 512  # inputs of a product on which its error is measured
_PARTS = (1.0, 0.85, 0.7, 0.55, 0.4, 0.2)  # of the smallest and the largest value
_POWERS = (0.5, 0.65, 0.8)  # of SmoothQuant; the product after an activation has no factors

Ids = dict[str, np.ndarray]


def calibration_ids(served: Served, requests: Iterable[Mapping[str, Any]]) -> list[Ids]:
    """Return the ids of a sample of requests, which is the same in every call.

    Returns:
        At most MAX_TEXTS inputs of the model: int32 [1, S] or [1, K, S], without padding. Long texts
        have one for each window.
    """
    texts = list(requests)
    count = len(texts)
    texts = random.Random(0).sample(texts, min(count, MAX_TEXTS))
    rows = [row for inputs in _record_ids(served, texts) for row in _split_rows(inputs)]
    logger.info("Calibration with %d of %d texts; 300 are enough", len(texts), count)
    return rows[:MAX_TEXTS]


def _record_ids(served: Served, requests: Sequence[Mapping[str, Any]]) -> list[Ids]:
    """Return what the model gets for each request, windows of long texts included."""
    recorded: list[Ids] = []

    def network(inputs):
        names = list(inputs)
        tf.numpy_function(
            lambda *values: recorded.append(dict(zip(names, values, strict=True))),
            list(inputs.values()),
            [],
        )
        return served.model(inputs, training=False)

    function, specs = replace(served, network=network).text_functions()[TEXT]

    @tf.function(autograph=False, reduce_retracing=True)
    def prepare(*texts: tf.Tensor) -> None:
        function(*texts)  # the model itself is not computed, because its outputs are not used

    for request in requests:
        prepare(*(tf.constant(request[spec.name], spec.dtype) for spec in specs))
    return recorded


def _split_rows(inputs: Ids) -> Iterator[Ids]:
    """Yield the rows of a batch without padding. Rows of padding only are left out."""
    masks = inputs["input_mask"]
    for row, mask in enumerate(masks):
        if length := int(mask.sum(axis=-1).max()):
            yield {
                name: value[row : row + 1, ..., : length if value.shape == masks.shape else None]
                for name, value in inputs.items()
            }


class _Recorder:
    """A product that stores some of its inputs, and the range of each column."""

    def __init__(self, affine: Affine, rows_per_call: int):
        self.affine = affine
        self._rows_per_call = rows_per_call
        self._rows: list[np.ndarray] = []
        self.low = self.high = np.zeros(affine.kernel.shape[0], np.float32)

    def __call__(self, inputs: tf.Tensor, addend: tf.Tensor | None = None) -> tf.Tensor:
        if tf.executing_eagerly():  # not while the shapes of outputs are traced
            rows = inputs.numpy()
            self.low = np.minimum(self.low, rows.min(axis=0))
            self.high = np.maximum(self.high, rows.max(axis=0))
            step = max(1, len(rows) // self._rows_per_call)
            self._rows.append(rows[::step][: self._rows_per_call])
        return self.affine(inputs, addend)

    def rows(self) -> np.ndarray:
        return np.concatenate(self._rows)


@dataclass(frozen=True)
class Quantization:
    """The products of an encoder, and its table of words, in 8-bit integers."""

    replacements: dict[str, QuantizedAffine | QuantizedTable]  # by name in `inference.products`
    errors: dict[str, float]  # of each, replaced or not: relative, of the outputs, before the bias
    largest_weight: int  # the largest integer of the kernels


def largest_weight() -> int:
    """Return the largest integer of a kernel, so that sums do not overflow on this processor."""
    if int8_instruction() != "":
        return 127
    logger.warning("Weights get 7 bits: this processor lacks %s.", " and ".join(INT8_FLAGS))
    return OVERFLOW_FREE


def quantize(served: Served, batches: Sequence[Ids]) -> Quantization:
    """Return the products of a float32 model in int8, except those with an error above MAX_ERROR."""
    layers, hidden_act = products(served.model), served.config.hidden_act
    table, words_error = _quantize_words(served.model)
    rows = max(1, -(-_ROWS // len(batches)))
    recorders = {name: _Recorder(Affine.join(denses), rows) for name, denses in layers.items()}
    encoder = InferenceEncoder(served.model, replacements=recorders)
    progress = Progress("measure", len(batches), unit="texts")
    for number, batch in enumerate(batches, start=1):
        encoder({name: tf.constant(value) for name, value in batch.items()})
        progress.update(number)
    affines: dict[str, QuantizedAffine] = {}
    max_weight = largest_weight()
    errors = {} if table is None else {WORDS: words_error}
    progress = Progress("quantize", len(layers), unit="products")
    for number, name in enumerate(layers, start=1):
        is_fused = name.endswith("/intermediate") and hidden_act in ACTIVATIONS
        fused = (ACTIVATIONS[hidden_act],) if is_fused else ()
        powers = () if name.endswith("/output") else _POWERS
        affines[name], errors[name] = _quantize(recorders.pop(name), powers, fused, max_weight)
        progress.update(number)
    replacements: dict[str, QuantizedAffine | QuantizedTable] = {}
    if table is not None and words_error <= MAX_ERROR:
        replacements[WORDS] = table
    replacements |= _link({n: affine for n, affine in affines.items() if errors[n] <= MAX_ERROR})
    logger.info("%d of %d products and tables in int8", len(replacements), len(errors))
    return Quantization(replacements, errors, max_weight)


def _quantize_words(model: keras.Model) -> tuple[QuantizedTable | None, float]:
    """Return the table of words and its error. A masked LM has none: it multiplies with the table."""
    if hasattr(model, "masked_lm"):
        return None, 0.0
    table = getattr(model, "bert", model).embeddings.word_embeddings.numpy()
    columns, largest = quantize_kernel(table.T)
    scales = (largest / 127)[:, None]
    words = QuantizedTable(
        keras.Variable(columns.T, dtype="int8", trainable=False, name="word_embeddings"),
        keras.Variable(scales, dtype="float32", name="word_embeddings_scales"),
    )
    error = np.linalg.norm(columns.T * scales - table) / np.linalg.norm(table)
    return words, float(error)


def _link(affines: dict[str, QuantizedAffine]) -> dict[str, QuantizedAffine]:
    """Let a product with an activation write the integers that the product after it reads."""
    linked = dict(affines)
    for name, affine in affines.items():
        after = affines.get(f"{name.removesuffix('intermediate')}output")
        if affine.fused and after is not None:
            linked[name] = replace(affine, result=(after.low, after.high))
    return linked


def _quantize(
    recorder: _Recorder, powers: Sequence[float], fused: Sequence[str], max_weight: int
) -> tuple[QuantizedAffine, float]:
    """Return the product with the smallest error on the recorded rows, and this error."""
    kernel, bias = recorder.affine.kernel.numpy(), recorder.affine.bias.numpy()
    rows = recorder.rows()
    expected = rows @ kernel

    def attempt(factors):
        integers, largest = quantize_kernel((kernel.T / factors).T, max_weight)
        ends = float((recorder.low * factors).min()), float((recorder.high * factors).max())
        found = _best_range(rows * factors, integers * (largest / 127), expected, *ends)
        return *found, factors, integers, largest

    one = np.float32(1)
    attempts = map(attempt, (one, *(_factors(recorder, kernel, power) for power in powers)))
    best, low, high, factors, integers, largest = min(attempts, key=itemgetter(0))
    rounded = integers * (largest / 127)
    seen = quantize_inputs(rows * factors, low, high)
    bias_error = (seen.astype(np.float32) @ rounded - expected).mean(axis=0)
    affine = QuantizedAffine(
        keras.Variable(integers, dtype="int8", trainable=False, name="kernel"),
        keras.Variable(bias - bias_error + low * rounded.sum(axis=0), dtype="float32", name="bias"),
        largest,
        low,
        high,
        None if factors is one else factors,
        fused,
    )
    return affine, best / float(np.linalg.norm(expected + bias))


def _best_range(
    rows: np.ndarray, kernel: np.ndarray, expected: np.ndarray, low: float, high: float
) -> tuple[float, float, float]:
    """Return the error, and the range between parts of `low` and `high` that has the smallest one."""

    def error(low_part: float, high_part: float) -> tuple[float, float, float]:
        ends = round_range(low * low_part, high * high_part)
        outputs = quantize_inputs(rows, *ends).astype(np.float32) @ kernel
        return float(np.linalg.norm(outputs - expected)), low_part, high_part

    _, low_part, high_part = min(error(part, part) for part in _PARTS)
    _, _, high_part = min(error(low_part, part) for part in _PARTS)
    smallest, low_part, high_part = min(error(part, high_part) for part in _PARTS)
    return smallest, *round_range(low * low_part, high * high_part)


def _factors(recorder: _Recorder, kernel: np.ndarray, power: float) -> np.ndarray:
    """Return max|W|^(1 - power) / max|x|^power of each column of the inputs, 1 on average."""
    largest = np.maximum(np.maximum(recorder.high, -recorder.low), 1e-6)
    weights = np.maximum(np.abs(kernel).max(axis=1), 1e-6)
    logs = (1 - power) * np.log(weights) - power * np.log(largest)
    return np.exp(logs - logs.mean()).astype(np.float32)
