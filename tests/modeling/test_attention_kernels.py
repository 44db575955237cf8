"""cuDNN's attention, as far as a machine without a GPU can tell: the StableHLO that carries it is
lowered for a GPU, and what replaces the kernel here gives the outputs and gradients of the formula."""

import contextlib
import re
from dataclasses import replace

import numpy as np
import pytest
import tensorflow as tf
from tiny_training import B, S, bert_config, pretrainer, pretraining_batches

from bert_tf.modeling import attention_kernels, compat
from bert_tf.modeling.attention import attention_bias
from bert_tf.modeling.attention_kernels import (
    attention,
    cudnn_attention,
    kernel_problem,
    padding_is_last,
)
from bert_tf.modeling.dropout import dropout_seed
from bert_tf.modeling.models import BertForPreTraining

N, D = 2, 8
LENGTHS = np.array([9, 1, 4, 9, 7])
PADDING_LAST = (np.arange(S) < LENGTHS[:, None]).astype("int32")


def plain_attention(query, key, value, lengths):
    scores = tf.einsum("bfnd,btnd->bnft", query, key) / tf.cast(query.shape[-1], query.dtype) ** 0.5
    mask = tf.sequence_mask(lengths, query.shape[1])[:, None, None]
    return tf.einsum("bnft,btnd->bfnd", tf.nn.softmax(tf.where(mask, scores, -1e30)), value)


def call_on_cpu(module, operands, results, platform):
    """Compute what cuDNN's kernel computes for these operands."""
    assert platform == "CUDA"
    query, key, value = (tf.cast(x, "float32") for x in operands[:3])
    with tf.GradientTape() as tape:
        tape.watch((query, key, value))
        output = plain_attention(query, key, value, operands[-1])
    values = (output, tf.zeros(results[-1][1]))
    if "Backward" in module:
        assert operands[5].shape == operands[4].shape == query.shape
        upstream = tf.cast(operands[4], "float32")
        values = tape.gradient(output, (query, key, value), output_gradients=upstream)
    return [tf.cast(value, dtype) for value, (dtype, _) in zip(values, results, strict=True)]


@pytest.fixture
def kernel(monkeypatch):
    """Pretend to have a GPU; return a function that replaces the kernel."""

    def use(call):
        monkeypatch.setattr(compat, "call_module", call)

    monkeypatch.setattr(attention_kernels, "has_gpu", lambda: True)
    use(call_on_cpu)
    yield use
    attention_kernels.probe.cache_clear()


def test_without_a_gpu_attention_is_left_to_the_formula():
    assert "GPU" in kernel_problem(S, D, "bfloat16", by_lengths=True)
    query, key, value = tf.unstack(tf.cast(tf.random.normal([3, B, S, N, D]), tf.bfloat16))
    assert attention(query, key, value, attention_bias(PADDING_LAST), padding_is_last=True) is None


@pytest.mark.parametrize(
    ("length", "size", "dtype", "by_lengths", "words"),
    [
        (S, D, "float32", True, "float32"),
        (S, 12, "bfloat16", True, "12 values"),
        (S, 136, "bfloat16", True, "136 values"),
        (None, D, "bfloat16", True, "length"),
        (S, D, "bfloat16", False, "JAX"),
    ],
)
def test_what_the_kernel_cannot_compute_is_left_to_the_formula(
    kernel, length, size, dtype, by_lengths, words
):
    assert words in kernel_problem(length, size, dtype, by_lengths)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_right_kernel_passes_the_comparison_with_the_formula(kernel, dtype):
    assert kernel_problem(S, D, dtype, by_lengths=True) is None


def fail(*_):
    raise tf.errors.UnimplementedError(None, None, "no engine")


def ignore_padding(module, operands, results, platform):
    return call_on_cpu(module, (*operands[:-1], operands[-2]), results, platform)


def only_backward_is_wrong(module, operands, results, platform):
    values = call_on_cpu(module, operands, results, platform)
    return values if len(values) == 2 else [*values[:2], values[2] * float("nan")]


@pytest.mark.parametrize(
    ("call", "words"),
    [(fail, "no engine"), (ignore_padding, "output"), (only_backward_is_wrong, "its v")],
)
def test_a_kernel_that_fails_or_is_wrong_is_not_used(kernel, call, words):
    kernel(call)
    assert words in kernel_problem(S, D, "bfloat16", by_lengths=True)


def test_attention_by_the_kernel_is_that_of_the_formula_padding_included(kernel):
    query, key, value = tf.unstack(tf.cast(tf.random.normal([3, B, S, N, D]), tf.float16))
    found = attention(query, key, value, attention_bias(PADDING_LAST), padding_is_last=True)
    expected = plain_attention(*(tf.cast(x, tf.float32) for x in (query, key, value)), LENGTHS)
    np.testing.assert_allclose(tf.cast(found, tf.float32), expected, atol=2e-3)


def test_padding_is_last_unless_a_zero_is_before_a_one():
    masks = {"input_mask": tf.constant(PADDING_LAST), "input_ids": tf.constant([[0, 1]])}
    assert padding_is_last(masks)
    assert padding_is_last({"input_ids": tf.constant([[0, 1]])})
    assert not padding_is_last(masks | {"anchor_mask": tf.constant([[[1, 1, 0], [1, 0, 1]]])})


def lowered_for_gpu(is_used):
    """Return the HLO of the gradients of a model of two layers, as TensorFlow's compiler reads it."""
    config = bert_config(0.1, attention_probs_dropout_prob=0.0, num_hidden_layers=2)
    model = BertForPreTraining(config, dtype="mixed_bfloat16")
    batch = {name: tf.constant(value[0]) for name, value in pretraining_batches().items()}
    inputs = {name: batch[name] for name in ("input_ids", "input_mask", "masked_lm_positions")}

    def differentiate(trained, others, inputs):
        with tf.GradientTape() as tape, dropout_seed(tf.constant(3, tf.uint32)):
            tape.watch(trained)
            outputs, _ = model.stateless_call(trained, others, inputs, training=True)
            loss = tf.reduce_sum(tf.cast(outputs["masked_lm_logits"], tf.float32))
        return [g for g in tape.gradient(loss, trained) if g is not None]

    values = (
        [tf.convert_to_tensor(variable.value) for variable in variables]
        for variables in (model.trainable_variables, model.non_trainable_variables)
    )
    with cudnn_attention(padding_is_last=True) if is_used else contextlib.nullcontext():
        compiled = tf.function(differentiate, jit_compile=True, autograph=False)
        return compiled.experimental_get_compiler_ir(*values, inputs)("hlo", platform_name="GPU")


def test_a_step_lowered_for_a_gpu_calls_the_kernels_and_has_no_scores(monkeypatch):
    monkeypatch.setattr(attention_kernels, "kernel_problem", lambda *_: None)
    scores = re.compile(rf"\w+\[{B},2,{S},{S}\]")
    without, with_kernels = lowered_for_gpu(False), lowered_for_gpu(True)
    assert scores.search(without)
    assert not scores.search(with_kernels)
    calls = re.findall(r'custom_call_target="(.*?)"', with_kernels)
    assert calls == ["__cudnn$fmhaSoftmax"] * 2 + ["__cudnn$fmhaSoftmaxBackward"] * 2


@pytest.mark.night
@pytest.mark.parametrize("padding", ["last", "first"])
def test_a_training_step_is_the_same_with_the_kernel_and_for_padding_that_is_first(kernel, padding):
    batch = {name: value[0] for name, value in pretraining_batches().items()}
    batch["input_mask"] = PADDING_LAST if padding == "last" else PADDING_LAST[:, ::-1]
    batch = {name: tf.constant(value) for name, value in batch.items()}
    results, calls = [], []
    kernel(lambda *arguments: calls.append(1) or call_on_cpu(*arguments))
    for is_one_function, is_used in ((False, False), (True, False), (True, True)):
        sizes = {"attention_probs_dropout_prob": 0.0, "hidden_size": 16}
        trainer = pretrainer(dropout=0.1, sizes=sizes, jit_compile="true", dtype="mixed_bfloat16")
        step = trainer.train_step
        step.compilation = replace(step.compilation, step=is_one_function, attention_kernel=is_used)
        data = tf.data.Dataset.from_tensors(batch).repeat()
        results.append(trainer.take_steps(iter(data), 3).values)
    assert calls
    expected, one_function, with_kernel = results
    assert one_function == pytest.approx(expected, rel=1e-6)
    assert with_kernel == pytest.approx(expected, rel=1e-2)
