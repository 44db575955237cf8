"""Explanations of an answer: attention, and the contribution of each token to an output.

`attributions` are integrated gradients (Sundararajan et al. 2017). Along the straight line from a
baseline to the input, in the space of the embeddings,

    attribution_t = sum over H of (x_t - b_t) * mean over the path of d output / d x_t

The baseline is the same input, with every token but [CLS] and [SEP] replaced by [MASK]. If the
vocabulary has no [MASK], [PAD] replaces them.

Gradient x input is not used: the gradient of a confident output is nearly zero, and so would be every
contribution. Integrated gradients sum to output(input) - output(baseline), so their error is known.

Shapes: S sequence, H hidden, N heads, L layers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from bert_tf.modeling.bert import BertModel
from bert_tf.packing import PackedSequence
from bert_tf.tokenization import FullTokenizer

_POINTS_AT_ONCE = 16
_FIRST_STEPS = 32


@dataclass(frozen=True)
class Attributions:
    """Contribution of each token to an output.

    Args:
        values: float64 [S]; positive values raise the output.
        output: of the input.
        baseline: output of the baseline.
    """

    values: np.ndarray
    output: float
    baseline: float

    @property
    def gap(self) -> float:
        """Sum of the values minus (`output` - `baseline`); 0 if exact."""
        return float(self.values.sum() - (self.output - self.baseline))


def attention(bert: BertModel, sequence: PackedSequence) -> np.ndarray:
    """Return the attention probabilities of one input without padding, float32 [L, N, S, S].

    `[layer, head, f, t]` is the weight of position t for position f. Each row sums to 1.
    """
    wanted, bert.output_attentions = bert.output_attentions, True
    try:
        probabilities = bert(_batch_of_one(sequence), training=False)["attention_probs"]
    finally:
        bert.output_attentions = wanted
    return np.stack([tf.cast(layer, tf.float32).numpy()[0] for layer in probabilities])


def attributions(
    bert: BertModel,
    sequence: PackedSequence,
    tokenizer: FullTokenizer,
    output_of: Callable[[dict], tf.Tensor],
    tolerance: float = 0.01,
    most_steps: int = 1024,
) -> Attributions:
    """Return integrated gradients of one output by the tokens of one input.

    The path is sampled at 32 Gauss-Legendre points, which converge much faster than equal steps. Their
    number is doubled until the gap is small enough.

    Args:
        bert: encoder of the model.
        sequence: without padding.
        output_of: inputs of the model, [B, S] -> the output of interest [B].
        tolerance: largest gap, as a fraction of the difference between the two outputs.
        most_steps: largest number of points.
    """
    inputs = _batch_of_one(sequence)
    embedded = tf.cast(_embeddings(bert, inputs), tf.float32)  # [1, S, H]
    silent = {**inputs, "input_ids": tf.constant([_without_words(sequence, tokenizer)])}
    baseline = tf.cast(_embeddings(bert, silent), tf.float32)

    def outputs_at(points: tf.Tensor) -> tf.Tensor:
        repeated = {name: tf.repeat(value, len(points), axis=0) for name, value in inputs.items()}
        repeated["embedding_output"] = tf.cast(points, bert.compute_dtype)
        return tf.cast(output_of(repeated), tf.float32)  # [B]

    ends = outputs_at(tf.concat([embedded, baseline], axis=0)).numpy()
    difference = (embedded - baseline)[0].numpy().astype(np.float64)
    num_steps = _FIRST_STEPS
    while True:
        gradient = _mean_gradient(outputs_at, baseline, embedded, num_steps)
        values = (difference * gradient).sum(axis=-1)
        found = Attributions(values, float(ends[0]), float(ends[1]))
        allowed = tolerance * max(abs(found.output - found.baseline), tolerance)
        if abs(found.gap) <= allowed or num_steps >= most_steps:
            return found
        num_steps *= 2


def _mean_gradient(
    outputs_at: Callable[[tf.Tensor], tf.Tensor],
    baseline: tf.Tensor,
    embedded: tf.Tensor,
    num_steps: int,
) -> np.ndarray:
    """Return the mean gradient on the path from the baseline, float64 [S, H]."""
    places, weights = np.polynomial.legendre.leggauss(num_steps)  # on [-1, 1], weights of sum 2
    places, weights = (places + 1) / 2, weights / 2
    total = np.zeros(embedded.shape[1:], np.float64)
    for first in range(0, num_steps, _POINTS_AT_ONCE):
        fractions = tf.constant(places[first : first + _POINTS_AT_ONCE], tf.float32)[:, None, None]
        points = baseline + fractions * (embedded - baseline)  # [B, S, H]
        with tf.GradientTape() as tape:
            tape.watch(points)
            outputs = outputs_at(points)
        gradients = tape.gradient(outputs, points).numpy().astype(np.float64)
        total += np.tensordot(weights[first : first + _POINTS_AT_ONCE], gradients, axes=1)
    return total


def _embeddings(bert: BertModel, inputs: dict[str, tf.Tensor]) -> tf.Tensor:
    return bert.embeddings(inputs["input_ids"], inputs["segment_ids"], training=False)


def _without_words(sequence: PackedSequence, tokenizer: FullTokenizer) -> Sequence[int]:
    blank = tokenizer.vocab.get("[MASK]", tokenizer.vocab.get("[PAD]", 0))
    kept = {tokenizer.vocab.get(token) for token in ("[CLS]", "[SEP]")}
    return [token if token in kept else blank for token in sequence.input_ids]


def _batch_of_one(sequence: PackedSequence) -> dict[str, tf.Tensor]:
    return {name: tf.constant([values]) for name, values in sequence._asdict().items()}
