"""Attention by cuDNN's kernel, which never writes the scores [B, N, F, T] to memory.

    with cudnn_attention(padding_is_last=True):
        outputs = model(inputs, training=True)

It needs an NVIDIA GPU, float16 or bfloat16, and no dropout of the probabilities. Before the first use
for a length, outputs and gradients of small inputs are compared with the formula. Wherever the kernel
cannot be used, the layers compute the formula, and the log says why, once.

JAX has a function for the kernel. In TensorFlow, a StableHLO module that calls it becomes a part of the
compiled step; XLA turns both into the same graph of cuDNN. Has never been run on a GPU
(docs/experiments.md, "Attention on a GPU").

Shapes: B batch, S sequence (F from, T to), N heads, D size per head, H = N * D hidden.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import json
import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import keras
import numpy as np
from keras import ops

from bert_tf.modeling.attention import MASKED_SCORE, SelfAttention
from bert_tf.modeling.layers import layer_forms

if keras.config.backend() == "jax":
    import jax
else:
    import tensorflow as tf

    from bert_tf.modeling import compat

logger = logging.getLogger(__name__)

DTYPES = {"bfloat16": "bf16", "float16": "f16"}  # of the kernel -> in StableHLO
TOLERANCE = 0.03  # of outputs and gradients, as a fraction of the largest one


@contextlib.contextmanager
def cudnn_attention(padding_is_last: bool = False) -> Iterator[None]:
    """Make the attention layers that are called inside use the kernel where it is possible.

    The layers then return None for the probabilities.

    Args:
        padding_is_last: the caller knows that a mask [B, S] has no 0 before a 1. The kernel then takes
            the number of real tokens. Otherwise it reads a bias [B, 1, S, S] (only on JAX).
    """
    with contextlib.ExitStack() as stack:
        for training in (True, False):
            form = functools.partial(
                _self_attention, training=training, padding_is_last=padding_is_last
            )
            stack.enter_context(layer_forms({SelfAttention: form}, training))
        yield


def padding_is_last(features: Mapping[str, Any]):
    """Return True if no mask [..., S] among the features has a 0 before a 1: bool scalar."""
    masks = [ops.cast(mask, "int32") for name, mask in features.items() if name.endswith("mask")]
    return ops.all([ops.all(mask[..., 1:] <= mask[..., :-1]) for mask in masks])


def _self_attention(layer: SelfAttention, hidden, bias, *, training: bool, padding_is_last: bool):
    """Compute `SelfAttention.call`, without the probabilities if the kernel is used."""
    rate, context = layer.dropout.rate if training else 0.0, None
    if rate:
        _log_once(f"the dropout of attention probabilities is {rate}, not 0")
    else:
        query, key, value = layer.project(hidden)  # [B, S, N, D]
        context = attention(query, key, value, bias, padding_is_last)
    if context is None:
        return inspect.unwrap(SelfAttention.call)(layer, hidden, bias, training=training)
    return ops.reshape(context, ops.shape(hidden)), None


def attention(query, key, value, bias, padding_is_last: bool = False):
    """Compute softmax(Q K^T / sqrt(D) + bias) V by the kernel; None if it cannot be used.

    Args:
        query, key, value: [B, S, N, D].
        bias: [B, 1, 1 or S, S]; 0 where attention is allowed, else -10000. Has no gradient.

    Returns:
        [B, S, N, D], or None.
    """
    batch, length, _, size = query.shape
    by_lengths = padding_is_last and bias.shape[2] == 1
    problem = kernel_problem(length, size, keras.backend.standardize_dtype(query.dtype), by_lengths)
    if batch is None:
        problem = "the size of a batch is not known before the step runs"
    if problem:
        _log_once(problem)
        return None
    if by_lengths:
        is_real = ops.cast(bias[:, 0, 0] > MASKED_SCORE / 2, "int32")
        lengths = ops.maximum(ops.sum(is_real, axis=-1), 1)  # [B]
        return _kernel(query, key, value, lengths=lengths)
    bias = ops.broadcast_to(bias, (batch, 1, length, length))
    return _kernel(
        query, key, value, bias=ops.cast(bias, query.dtype)
    )  # float32 gives NaN: jax#32242


@functools.cache
def _log_once(problem: str) -> None:
    logger.warning("Attention is computed without cuDNN's kernel: %s.", problem)


def kernel_problem(length: int | None, size: int, dtype: str, by_lengths: bool) -> str | None:
    """Return why the kernel cannot be used for these shapes, None if it can."""
    if not has_gpu():
        return "there is no NVIDIA GPU"
    if dtype not in DTYPES:
        return f"it computes in bfloat16 or float16, not in {dtype}"
    if size % 8 or size > 128:
        return f"a head has {size} values, which is above 128 or no multiple of 8"
    if length is None:
        return "the length of a batch is not known before the step runs"
    if not by_lengths and keras.config.backend() == "tensorflow":
        return "a mask of pairs of tokens, or with padding before tokens, needs JAX"
    if not by_lengths and length % 128:  # cuDNN has given NaN for 64 more: pytorch#196678
        return f"a mask of pairs of tokens needs multiples of 128 positions, not {length}"
    return probe(length, size, dtype, by_lengths)


@functools.cache
def has_gpu() -> bool:
    if keras.config.backend() == "jax":
        return jax.default_backend() == "gpu"
    return bool(tf.config.list_logical_devices("GPU"))


# ---- Comparison with the formula


@functools.cache
def probe(length: int, size: int, dtype: str, by_lengths: bool) -> str | None:
    """Return how far the kernel is from the formula, or its error; None if it is right."""
    with ThreadPoolExecutor(1) as thread:  # has no tape, and traces no function
        compared = thread.submit(_compare_with_formula, length, size, dtype, by_lengths)
    error = compared.exception()  # of any kind: the formula can still be computed
    return f"it fails with {type(error).__name__}: {error!s:.500}" if error else compared.result()


def _compare_with_formula(length: int, size: int, dtype: str, by_lengths: bool) -> str | None:
    arrays = np.random.default_rng(0).normal(size=(4, 2, length, 2, size))
    lengths = np.array([length, -(-length // 3)], "int32")
    bias = (np.arange(length) >= lengths[:, None])[:, None, None] * MASKED_SCORE
    bias = np.broadcast_to(bias, (2, 1, length, length))
    masks = {"bias": ops.cast(bias, dtype)}
    if by_lengths:
        masks = {"lengths": ops.convert_to_tensor(lengths)}
    tensors = [ops.cast(array, dtype) for array in arrays]
    rounded = [ops.convert_to_numpy(ops.cast(x, "float32")) for x in tensors]
    expected, results = formula(rounded, bias), _with_gradients(tensors, masks)
    for name, result, right in zip(("output", *"qkv"), results, expected, strict=True):
        distance = np.abs(ops.convert_to_numpy(ops.cast(result, "float32")) - right).max()
        if not distance <= TOLERANCE * np.abs(right).max():  # also if it is NaN
            return f"its {name} for {length} tokens is wrong by {distance:.2g}"
    return None


def _with_gradients(tensors, masks) -> Sequence[Any]:
    """Return the kernel's output and gradients for query, key, value and the output's gradient."""
    if keras.config.backend() == "jax":

        @jax.jit
        def differentiate(query, key, value, upstream, masks):
            output, pull_back = jax.vjp(functools.partial(_kernel, **masks), query, key, value)
            return output, *pull_back(upstream)

    else:

        @functools.partial(tf.function, jit_compile=True, autograph=False)
        def differentiate(query, key, value, upstream, masks):
            inputs = query, key, value
            with tf.GradientTape() as tape:
                tape.watch(inputs)
                output = _kernel(*inputs, **masks)
            return output, *tape.gradient(output, inputs, output_gradients=upstream)

    return differentiate(*tensors, masks)


def formula(arrays: Sequence[np.ndarray], bias: np.ndarray) -> tuple[np.ndarray, ...]:
    """Compute in NumPy what `_with_gradients` returns."""
    query, key, value, upstream = arrays
    scale = 1.0 / math.sqrt(query.shape[-1])
    scores = np.einsum("bfnd,btnd->bnft", query, key) * scale + bias
    p = np.exp(scores - scores.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)  # [B, N, F, T]
    d_p = np.einsum("bfnd,btnd->bnft", upstream, value)
    d_scores = (d_p - (d_p * p).sum(-1, keepdims=True)) * p * scale
    return (
        np.einsum("bnft,btnd->bfnd", p, value),
        np.einsum("bnft,btnd->bfnd", d_scores, key),
        np.einsum("bnft,bfnd->btnd", d_scores, query),
        np.einsum("bnft,bfnd->btnd", p, upstream),
    )


# ---- The kernel


def _kernel(query, key, value, lengths=None, bias=None):
    """Call the kernel with int32 [B] real keys, or with a bias [B, 1, S, S]."""
    if keras.config.backend() == "jax":
        return jax.nn.dot_product_attention(
            *(query, key, value, bias), key_value_seq_lengths=lengths, implementation="cudnn"
        )
    shape, dtype = query.shape, query.dtype
    forward, backward = _modules(tuple(shape), dtype.name)
    # Padding attends to real tokens too, as in the formula.
    lengths = (tf.fill(lengths.shape, shape[1]), lengths)

    @tf.custom_gradient
    def call(query, key, value):
        inputs = query, key, value
        log_sums = (tf.float32, (shape[0], shape[2], shape[1]))
        output, log_sum = compat.call_module(
            forward, (*inputs, *lengths), [(dtype, shape), log_sums], "CUDA"
        )

        def gradient(upstream):
            operands = (*inputs, log_sum, upstream, output, *lengths)
            return compat.call_module(backward, operands, [(dtype, shape)] * 3, "CUDA")

        return output, gradient

    return call(query, key, value)


def _modules(shape: Sequence[int], dtype: str) -> tuple[str, str]:
    """Return StableHLO that calls the kernel for [B, S, N, D], and its gradient.

    Forward: query, key, value and the lengths of queries and keys [B] -> output, log of the sums
    [B, N, S]. Backward: query, key, value, log of the sums, upstream, output and both lengths -> the
    gradients for query, key and value.

    Source of the interface: openxla/xla, gpu/backend_configs.proto and
    gpu/transforms/cudnn_custom_call_compiler.cc; the options are those that JAX sets.
    """
    batch, length, heads, size = shape
    values = f"{batch}x{length}x{heads}x{size}x{DTYPES[dtype]}"
    log_sums, rows = f"{batch}x{heads}x{length}xf32", f"{batch}xi32"
    options = {
        "algorithm": {
            "math_type": "TENSOR_OP_MATH",
            "tuning_knobs": {"17": 1, "24": 0},
            "is_cudnn_frontend": True,
        },
        "fmha_scale": 1.0 / math.sqrt(size),
        "intermediate_tensor_shape": {  # of the scores
            "element_type": DTYPES[dtype].upper(),
            "dimensions": [batch, heads, length, length],
            "layout": {"minor_to_major": [3, 2, 1, 0]},
            "is_dynamic_dimension": [False] * 4,
        },
        "is_flash_attention": True,
        "mask_type": "PADDING",
        "max_seg_per_batch": 1,
    }
    qkv, lengths = [values] * 3, [rows] * 2
    # The factors of each product by their contracting dimension. Scores are [B, N, F, T].
    forward = _products(bmm1=(3, 3), bmm2=(3, 1))
    backward = _products(
        bmm1_grad_gemm1=(2, 1),
        bmm1_grad_gemm2=(3, 1),
        bmm2_grad_gemm1=(2, 1),
        bmm2_grad_gemm2=(3, 3),
    )
    return (
        _module("", [*qkv, *lengths], [values, log_sums], options | forward),
        _module("Backward", [*qkv, log_sums, values, values, *lengths], qkv, options | backward),
    )


def _products(**contracting: tuple[int, int]) -> dict[str, dict[str, list[int]]]:
    """Describe matrix products over the heads; (3, 3) multiplies two [B, S, N, D], others scores."""
    return {
        f"{name}_dot_dimension_numbers": {
            "lhs_contracting_dimensions": [left],
            "rhs_contracting_dimensions": [right],
            "lhs_batch_dimensions": [0, 2 if (left, right) == (3, 3) else 1],
            "rhs_batch_dimensions": [0, 2],
        }
        for name, (left, right) in contracting.items()
    }


def _module(kind: str, operands: Sequence[str], results: Sequence[str], options: dict) -> str:
    """Return StableHLO whose `main` calls cuDNN with these types, such as "2x8x4x64xbf16".

    cuDNN's results are [B, N, S, D], but lie in memory as [B, S, N, D]; the transposes are free.
    """

    def tensors(types):
        return ", ".join(f"tensor<{each}>" for each in types)

    def layouts(types, order_of_four):
        orders = {4: order_of_four, 3: [2, 1, 0], 1: [0]}
        ranks = [each.count("x") for each in types]
        return ", ".join(f"dense<{orders[rank]}> : tensor<{rank}xindex>" for rank in ranks)

    arguments = ", ".join(f"%a{i}: tensor<{each}>" for i, each in enumerate(operands))
    names = ", ".join(f"%a{i}" for i in range(len(operands)))
    stored, returned, lines = [], [], []
    for i, each in enumerate(results):
        *sizes, dtype = each.split("x")
        if len(sizes) == 4:
            inner = "x".join([sizes[0], sizes[2], sizes[1], sizes[3], dtype])
            lines.append(
                f"%t{i} = stablehlo.transpose %r#{i}, dims = [0, 2, 1, 3]"
                f" : (tensor<{inner}>) -> tensor<{each}>"
            )
        stored.append(inner if len(sizes) == 4 else each)
        returned.append(f"%t{i}" if len(sizes) == 4 else f"%r#{i}")
    stored.append("0xui8")  # workspace; XLA sets its size
    config = {"operation_queue_id": 0, "cudnn_fmha_backend_config": options}
    escaped = json.dumps(config).replace('"', r"\22")
    return f"""module @attention {{
func.func public @main({arguments}) -> ({tensors(results)}) {{
%r:{len(stored)} = stablehlo.custom_call @__cudnn$fmhaSoftmax{kind}({names}) {{
  api_version = 2 : i32, backend_config = "{escaped}",
  operand_layouts = [{layouts(operands, [3, 2, 1, 0])}],
  result_layouts = [{layouts(stored, [3, 1, 2, 0])}]
}} : ({tensors(operands)}) -> ({tensors(stored)})
{chr(10).join(lines)}
return {", ".join(returned)} : {tensors(results)}
}}
}}"""
