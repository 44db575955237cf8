"""Element-wise parts of the encoder, each as one compiled function with its own gradient.

Between matrix products BERT has chains of small operations on every element: bias, dropout, residual,
LayerNorm; bias and GELU; scale, mask, softmax, dropout. On a CPU with fast bfloat16 products they take
longer than the products, if TensorFlow runs them one by one. Here each chain is one XLA function that
reads its inputs once. The products stay outside because oneDNN runs them on AMX and XLA does not.

Shapes: B batch, S sequence, R rows (B*S), H hidden, I intermediate, N heads, D size per head, F and T
positions, P predictions, V vocabulary. The functions compute in float32, for inputs of any dtype.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import tensorflow as tf
from keras import ops

from bert_tf.modeling.compat import stored_value
from bert_tf.modeling.dropout import scaled_mask
from bert_tf.modeling.embeddings import Embeddings, rows_of_positions
from bert_tf.modeling.heads import MaskedLMHead, gather_positions
from bert_tf.modeling.layers import layer_forms
from bert_tf.modeling.transformer import ResidualOutput, TransformerBlock

ACTIVATIONS = ("gelu", "gelu_erf")  # supported by `bias_activation`


@contextlib.contextmanager
def fused_parts(used: bool) -> Iterator[None]:
    """Make layers called inside in training use this file, if `used`. Open it within `dropout_seed`."""
    forms: dict[type, Callable] = {
        Embeddings: _embeddings,
        TransformerBlock: _block,
        MaskedLMHead: _masked_lm,
    }
    with layer_forms(forms if used else {}, training=True):
        yield


# ---- The layers


def _embeddings(layer: Embeddings, input_ids, segment_ids, position_ids=None):
    """Compute `Embeddings.call` in float32, rounded once at the end."""
    words = ops.take(stored_value(layer.word_embeddings), input_ids, axis=0)  # [B, S, H]
    one_hot = ops.one_hot(segment_ids, layer.config.type_vocab_size)
    segments = ops.matmul(one_hot, stored_value(layer.token_type_embeddings))  # [B, S, H]
    table = stored_value(layer.position_embeddings)
    positions = rows_of_positions(table, position_ids, ops.shape(input_ids)[1])
    summed = words + segments + positions
    outputs = norm_dropout(
        ops.reshape(summed, (-1, layer.config.hidden_size)),
        stored_value(layer.layer_norm.gamma),
        stored_value(layer.layer_norm.beta),
        layer.dropout.key(),
        layer.compute_dtype,
        rate=layer.dropout.rate,
        epsilon=layer.layer_norm.epsilon,
    )
    return ops.reshape(outputs, ops.shape(summed))


def _block(block: TransformerBlock, hidden, bias):
    attention, config = block.self_attention, block.config
    heads, size = config.num_attention_heads, config.size_per_head
    batch, length = ops.shape(hidden)[:2]
    rows = ops.reshape(hidden, (-1, config.hidden_size))  # [R, H]

    projections = attention.query, attention.key, attention.value
    weights = [ops.convert_to_tensor(layer.kernel) for layer in projections]
    offset = [stored_value(layer.bias) for layer in projections]
    joined = ops.matmul(rows, ops.concatenate(weights, axis=1))  # [R, 3H]
    joined = add_bias(joined, ops.concatenate(offset, axis=0))
    joined = ops.reshape(joined, (batch, length, 3, heads, size))
    query, key, value = ops.unstack(ops.transpose(joined, (2, 0, 3, 1, 4)), 3)  # [B, N, S, D]
    probabilities = masked_softmax_dropout(
        ops.matmul(query, ops.transpose(key, (0, 1, 3, 2))),  # [B, N, F, T]
        bias,
        attention.dropout.key(),
        factor=1.0 / math.sqrt(size),
        rate=attention.dropout.rate,
    )
    context = ops.transpose(ops.matmul(probabilities, value), (0, 2, 1, 3))  # [B, F, N, D]
    context = tf.reshape(context, tf.shape(rows))  # [R, H]; equal shapes can be fused

    attended, residual = _residual_output(block.attention_output, context, rows)
    if config.hidden_act in ACTIVATIONS:
        intermediate = bias_activation(
            ops.matmul(attended, ops.convert_to_tensor(block.intermediate.kernel)),
            stored_value(block.intermediate.bias),
            activation=config.hidden_act,
        )  # [R, I]
    else:
        intermediate = block.intermediate(attended)
    outputs, _ = _residual_output(block.feed_forward_output, intermediate, residual)
    return ops.reshape(outputs, ops.shape(hidden)), probabilities


def _residual_output(layer: ResidualOutput, inputs, residual):
    """Compute `ResidualOutput.call`, twice as `bias_dropout_norm` does."""
    return bias_dropout_norm(
        ops.matmul(inputs, ops.convert_to_tensor(layer.dense.kernel)),
        stored_value(layer.dense.bias),
        residual,
        stored_value(layer.layer_norm.gamma),
        stored_value(layer.layer_norm.beta),
        layer.dropout.key(),
        rate=layer.dropout.rate,
        epsilon=layer.layer_norm.epsilon,
    )


def _masked_lm(head: MaskedLMHead, sequence_output, masked_lm_positions, word_embeddings):
    """Compute `MaskedLMHead.call` as `Logits` [B, P, V]."""
    hidden = gather_positions(sequence_output, masked_lm_positions)  # [B*P, H]
    hidden = head.layer_norm(head.dense(hidden))
    table = tf.cast(word_embeddings, hidden.dtype)
    product = tf.matmul(hidden, table, transpose_b=True)  # [B*P, V]
    shape = (*ops.shape(masked_lm_positions), head.config.vocab_size)
    return Logits(ops.reshape(product, shape), tf.convert_to_tensor(head.output_bias))


# ---- Their parts


def _compiled(function: Callable) -> Callable:
    """Compile `function(*tensors, **constants)` with XLA, once for each set of constants."""

    @functools.cache
    def piece(**constants):
        bound = functools.partial(function, **constants)
        return tf.function(bound, jit_compile=True, autograph=False)

    return lambda *tensors, **constants: piece(**constants)(*tensors)


def bias_dropout_norm(inputs, bias, residual, gamma, beta, key, *, rate: float, epsilon: float):
    """Compute LayerNorm(residual + dropout(inputs + bias)), [R, H], twice.

    One result is for the next product, the other for the residual: the compiled gradient adds theirs.
    `key` is the uint32 scalar of the dropout mask, `rate` the fraction of dropped values.
    """
    constants = {"rate": rate, "epsilon": epsilon}

    @tf.custom_gradient
    def call(inputs, bias, residual, gamma, beta):
        outputs, normal, scale = _bias_dropout_norm(
            inputs, bias, residual, gamma, beta, key, **constants
        )

        def gradient(upstream, other_upstream):
            return _bias_dropout_norm_gradient(
                upstream, other_upstream, normal, scale, gamma, key, rate=rate
            )

        return (outputs, tf.identity(outputs)), gradient

    return call(inputs, bias, residual, gamma, beta)


@_compiled
def _bias_dropout_norm(inputs, bias, residual, gamma, beta, key, *, rate, epsilon):
    x = _drop(_f32(inputs) + bias, key, rate) + _f32(residual)
    normal, scale = _normalize(x, epsilon)
    outputs = normal * gamma + beta
    return tf.cast(outputs, inputs.dtype), tf.cast(normal, inputs.dtype), scale


@_compiled
def _bias_dropout_norm_gradient(upstream, other_upstream, normal, scale, gamma, key, *, rate):
    dtype = upstream.dtype
    upstream, normal = _f32(upstream) + _f32(other_upstream), _f32(normal)
    d_residual = _norm_gradient(upstream, normal, scale, gamma)
    d_inputs = _drop(d_residual, key, rate)
    return (
        tf.cast(d_inputs, dtype),
        tf.reduce_sum(d_inputs, 0),
        tf.cast(d_residual, dtype),
        tf.reduce_sum(upstream * normal, 0),
        tf.reduce_sum(upstream, 0),
    )


def norm_dropout(inputs, gamma, beta, key, dtype: str, *, rate: float, epsilon: float):
    """Compute dropout(LayerNorm(inputs)) of float32 [R, H] as `dtype`, the end of the embeddings."""

    @tf.custom_gradient
    def call(inputs, gamma, beta):
        outputs, normal, scale = _norm_dropout(
            inputs, gamma, beta, key, dtype=dtype, rate=rate, epsilon=epsilon
        )

        def gradient(upstream):
            return _norm_dropout_gradient(upstream, normal, scale, gamma, key, rate=rate)

        return outputs, gradient

    return call(inputs, gamma, beta)


@_compiled
def _norm_dropout(inputs, gamma, beta, key, *, dtype, rate, epsilon):
    normal, scale = _normalize(inputs, epsilon)
    outputs = _drop(normal * gamma + beta, key, rate)
    return tf.cast(outputs, dtype), tf.cast(normal, dtype), scale


@_compiled
def _norm_dropout_gradient(upstream, normal, scale, gamma, key, *, rate):
    upstream, normal = _drop(_f32(upstream), key, rate), _f32(normal)
    d_inputs = _norm_gradient(upstream, normal, scale, gamma)
    return d_inputs, tf.reduce_sum(upstream * normal, 0), tf.reduce_sum(upstream, 0)


def add_bias(inputs, bias):
    """Compute inputs + bias, for [R, O] and float32 [O].

    The bias' gradient is a compiled float32 sum, because TensorFlow's own sum over rows is slow.
    """

    @tf.custom_gradient
    def call(inputs, bias):
        # The runtime fuses this form with the product before it.
        outputs = tf.nn.bias_add(inputs, tf.cast(bias, inputs.dtype))
        return outputs, lambda upstream: (upstream, _sum_of_rows(upstream))

    return call(inputs, bias)


@_compiled
def _sum_of_rows(x):
    return tf.reduce_sum(_f32(x), 0)


def bias_activation(inputs, bias, *, activation: str):
    """Compute activation(inputs + bias), for [R, I], float32 [I] and one of `ACTIVATIONS`."""

    @tf.custom_gradient
    def call(inputs, bias):
        outputs = _bias_activation(inputs, bias, activation=activation)

        def gradient(upstream):
            return _bias_activation_gradient(upstream, inputs, bias, activation=activation)

        return outputs, gradient

    return call(inputs, bias)


@_compiled
def _bias_activation(inputs, bias, *, activation):
    x = _f32(inputs) + bias
    return tf.cast(x * _gate(x, activation), inputs.dtype)


@_compiled
def _bias_activation_gradient(upstream, inputs, bias, *, activation):
    x = _f32(inputs) + bias
    d_inputs = _f32(upstream) * (_gate(x, activation) + x * _gate_slope(x, activation))
    return tf.cast(d_inputs, inputs.dtype), tf.reduce_sum(d_inputs, 0)


def masked_softmax_dropout(scores, bias, key, *, factor: float, rate: float):
    """Compute dropout(softmax(factor * scores + bias)), [B, N, F, T].

    The bias [B, 1, 1 or F, T] is 0 where attention is allowed; it has no gradient.
    """

    @tf.custom_gradient
    def call(scores):
        # TensorFlow's softmax is faster than XLA's.
        probabilities = tf.nn.softmax(_scale_scores(scores, bias, factor=factor))
        outputs = probabilities
        if rate:
            outputs = _compiled_drop(probabilities, key, rate=rate)

        def gradient(upstream):
            return _softmax_gradient(upstream, probabilities, key, factor=factor, rate=rate)

        return outputs, gradient

    return call(scores)


@_compiled
def _scale_scores(scores, bias, *, factor):
    return tf.cast(_f32(scores) * factor + _f32(bias), scores.dtype)


@_compiled
def _compiled_drop(x, key, *, rate):
    return tf.cast(_drop(_f32(x), key, rate), x.dtype)


@_compiled
def _softmax_gradient(upstream, probabilities, key, *, factor, rate):
    p, d_p = _f32(probabilities), _drop(_f32(upstream), key, rate)
    d_scores = (d_p - tf.reduce_sum(d_p * p, -1, keepdims=True)) * p * factor
    return tf.cast(d_scores, upstream.dtype)


class Logits(NamedTuple):
    """Logits as a product [..., L] and a bias float32 [L] that is not yet added, so read once."""

    product: Any
    bias: Any


def cross_entropy(logits: Logits, labels):
    """Compute -log softmax(logits)[label], and 1 if no other logit is larger, else 0, float32 [...]."""

    @tf.custom_gradient
    def call(product, bias):
        losses, correct, log_sum = _cross_entropy(product, bias, flat)

        def gradient(upstream, _):
            return _cross_entropy_gradient(upstream, product, bias, log_sum, flat)

        return (losses, correct), gradient

    flat = tf.reshape(labels, [-1])
    losses, correct = call(tf.reshape(logits.product, [-1, logits.product.shape[-1]]), logits.bias)
    shape = tf.shape(labels)
    return tf.reshape(losses, shape), tf.reshape(correct, shape)


@_compiled
def _cross_entropy(product, bias, labels):
    logits = _f32(product) + bias
    max_logit = tf.reduce_max(logits, -1, keepdims=True)
    log_sum = tf.math.log(tf.reduce_sum(tf.exp(logits - max_logit), -1, keepdims=True)) + max_logit
    label_logits = tf.gather(logits, labels, batch_dims=1)
    return log_sum[:, 0] - label_logits, _f32(label_logits >= max_logit[:, 0]), log_sum


@_compiled
def _cross_entropy_gradient(upstream, product, bias, log_sum, labels):
    one_hot = tf.one_hot(labels, product.shape[-1])
    probabilities = tf.exp(_f32(product) + bias - log_sum)
    gradient = (probabilities - one_hot) * upstream[:, None]
    return tf.cast(gradient, product.dtype), tf.reduce_sum(gradient, 0)


def _f32(x):
    return tf.cast(x, tf.float32)


def _drop(x, key, rate):
    return x * scaled_mask(ops.shape(x), key, rate, x.dtype) if rate else x


def _normalize(x, epsilon):
    """Return rows with mean 0 and variance 1, and their factors."""
    centered = x - _row_mean(x)
    scale = tf.math.rsqrt(_row_mean(tf.square(centered)) + epsilon)
    return centered * scale, scale


def _norm_gradient(upstream, normal, scale, gamma):
    upstream = upstream * gamma
    return scale * (upstream - _row_mean(upstream) - normal * _row_mean(upstream * normal))


def _row_mean(x):
    """Compute row means, [R, H] -> [R, 1], as a product: XLA's sums over rows are slow on CPUs."""
    width = x.shape[-1]
    return tf.matmul(x, tf.ones([width, 1])) * (1.0 / width)


def _gate(x, activation):
    """Return the factor of x in GELU: Phi(x), or its approximation with tanh."""
    if activation == "gelu_erf":
        return 0.5 * (1.0 + tf.math.erf(x * 0.7071067811865476))
    return 0.5 * (1.0 + tf.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))


def _gate_slope(x, activation):
    if activation == "gelu_erf":
        return tf.exp(-0.5 * x * x) * 0.3989422804014327
    gate = _gate(x, activation)
    inner = 0.7978845608028654 * (1.0 + 3.0 * 0.044715 * x * x)
    return 2.0 * gate * (1.0 - gate) * inner
