"""A step that XLA cannot compile, or for which there is no memory."""

import logging
import re
import types

import numpy as np
import pytest
import tensorflow as tf
from tiny_training import (
    ONE,
    TWO,
    endless,
    float16_pretrainer,
    linear_batches,
    linear_trainer,
    pretrainer,
    pretraining_batches,
)

from bert_tf.training import strategy
from bert_tf.training.checkpoints import training_variables
from bert_tf.training.failures import is_compile_error, is_out_of_memory, out_of_memory, summary
from bert_tf.training.optimization import AdamWeightDecay
from bert_tf.training.progress import Speed

BLACKWELL = "PTX version 8.5 does not support target 'sm_120'. Minimum required PTX version is 8.7"
OOM = "OOM when allocating tensor with shape[64,12,512,512] and type float on GPU:0 by GPU_0_bfc"


def values_of(trainer):
    named = training_variables(trainer.model, trainer.optimizer)
    if trainer._step.loss_scale:
        named |= trainer._step.loss_scale.variables
    return {name: variable.numpy() for name, variable in named.items()}


def assert_same_bits(found, expected):
    for name, value in values_of(expected).items():
        np.testing.assert_array_equal(values_of(found)[name], value, err_msg=name)


def direction_in_python(self, m, v):
    """That of `AdamWeightDecay`; XLA cannot compile it."""
    return tf.ensure_shape(
        tf.py_function(lambda m, v: m / (tf.sqrt(v) + self.epsilon), [m, v], m.dtype), m.shape
    )


def forward_in_python(trainer):
    """The model's outputs go through Python, which XLA cannot compile."""
    forward = trainer._step._forward

    def outputs_of(inputs):
        outputs = forward(inputs)
        logits = outputs["next_sentence_logits"]
        copy = tf.py_function(tf.identity, [logits], logits.dtype)
        return {**outputs, "next_sentence_logits": tf.ensure_shape(copy, logits.shape)}

    trainer._step._forward = outputs_of


def as_on_a_gpu(trainer):
    """Forward and backward are one XLA function."""
    trainer._step._whole, trainer._step._fused = True, False


def trained(trainer, folder):
    data = endless(pretraining_batches())
    trainer.train(data, 4, output_dir=str(folder), max_steps_per_loop=2)
    return trainer


def linear_pair():
    """Trainers of `Linear`: one that compiles its updates, one that compiles nothing."""
    compiling, plain = linear_trainer(), linear_trainer()
    compiling._step._compile("auto")
    return compiling, plain


def test_an_update_that_xla_cannot_compile_is_taken_without_it(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(AdamWeightDecay, "direction", direction_in_python)
    found, expected = linear_pair()
    for trainer, name in ((found, "found"), (expected, "expected")):
        trainer.train(endless(linear_batches(2)), 5, output_dir=str(tmp_path / name))
    warned = [record for record in caplog.records if "XLA cannot compile" in record.message]
    assert len(warned) == 1 and "--jit_compile=false" in warned[0].message
    assert found.step == 5
    assert_same_bits(found, expected)


@pytest.mark.slow
def test_the_loss_scale_counts_no_step_that_was_not_taken(tmp_path, monkeypatch):
    monkeypatch.setattr(AdamWeightDecay, "direction", direction_in_python)
    found, expected = (
        trained(float16_pretrainer(dropout=0.2, jit_compile=kind), tmp_path / kind)
        for kind in ("auto", "false")
    )
    assert int(found._step.loss_scale.variables["loss_scale/good_steps"].numpy()) == 4
    assert_same_bits(found, expected)


@pytest.mark.parametrize(
    "devices", [ONE, pytest.param(TWO, marks=[pytest.mark.slow, pytest.mark.long])]
)
def test_a_pass_that_xla_cannot_compile_is_taken_without_it(tmp_path, caplog, devices):
    found, expected = (
        pretrainer(devices, dropout=0.2, jit_compile=kind) for kind in ("auto", "false")
    )
    as_on_a_gpu(found)
    for trainer in (found, expected):
        forward_in_python(trainer)
    trained(found, tmp_path / "found")
    assert caplog.text.count("XLA cannot compile the training step") == 1
    assert_same_bits(found, trained(expected, tmp_path / "expected"))


def fail_first(trainer, error, at=1):
    """The call that begins with step `at` raises once it has read a batch and counted the step."""
    take = trainer._train_steps

    def fail(iterator, *rest):
        if trainer.step + 1 < at:
            return take(iterator, *rest)
        next(iterator)
        trainer.optimizer.iterations.assign_add(1)
        raise error

    trainer._train_steps = fail
    return trainer


def test_an_error_of_a_compiler_for_an_older_gpu_is_such_a_failure(tmp_path, caplog):
    found, expected = linear_pair()
    fail_first(found, tf.errors.InternalError(None, None, BLACKWELL))
    for trainer, name in ((found, "found"), (expected, "expected")):
        trainer.train(endless(linear_batches(2)), 5, output_dir=str(tmp_path / name))
    assert_same_bits(found, expected)
    assert "sm_120" in caplog.text


@pytest.mark.parametrize("kind, at", [("true", 1), ("auto", 2)])
def test_a_compilation_that_was_asked_for_or_fails_later_ends_the_run(tmp_path, kind, at):
    trainer, _ = linear_pair()
    trainer._step._compile(kind)
    fail_first(trainer, tf.errors.InternalError(None, None, BLACKWELL), at)
    with pytest.raises(ValueError, match=r"XLA cannot compile.*sm_120.*Use jit_compile=false"):
        trainer.train(endless(linear_batches(2)), 3, output_dir=str(tmp_path))


def test_with_several_workers_it_ends_the_run_because_the_others_would_wait(tmp_path, monkeypatch):
    monkeypatch.setattr("bert_tf.training.step.is_multi_worker", lambda strategy: True)
    trainer, _ = linear_pair()
    fail_first(trainer, tf.errors.InternalError(None, None, BLACKWELL))
    with pytest.raises(ValueError, match=r"sm_120.*Use jit_compile=false on all workers\."):
        trainer.train(endless(linear_batches(2)), 3, output_dir=str(tmp_path))


def test_an_error_of_the_data_is_raised_as_it_is(tmp_path, caplog):
    trainer = linear_trainer()
    trainer._step._compile("auto")

    def bad_from(step):
        data = endless(linear_batches(2))(step)
        return data.map(lambda row: {**row, "x": row["x"] + 1 / tf.strings.to_number("one")})

    with pytest.raises(tf.errors.InvalidArgumentError, match="convert string: one"):
        trainer.train(bad_from, 3, output_dir=str(tmp_path))
    assert "XLA" not in caplog.text


@pytest.mark.parametrize(
    "kind, message, expected",
    [
        ("Internal", BLACKWELL, "compiler"),
        ("Internal", "libdevice not found at ./libdevice.10.bc", "compiler"),
        ("Unavailable", "No PTX compilation provider is available.", "compiler"),
        ("NotFound", "Autotuning failed for HLO: %fusion = f32[8]", "compiler"),
        ("InvalidArgument", "Detected unsupported operations when trying to compile", "compiler"),
        ("InvalidArgument", "indices[0,3] = 50 is not in [0, 30)", "other"),
        ("DataLoss", "corrupted record at 0", "other"),
        ("ResourceExhausted", OOM, "memory"),
        ("Internal", "CUDA_ERROR_OUT_OF_MEMORY while XLA compiled", "memory"),
        (
            "Internal",
            "Failed to allocate: Out of memory while trying to allocate 9 bytes",
            "memory",
        ),
    ],
)
def test_errors_are_told_apart_by_type_and_message(kind, message, expected):
    error = getattr(tf.errors, f"{kind}Error")(None, None, message)
    assert is_compile_error(error) is (expected == "compiler")
    assert is_out_of_memory(error) is (expected == "memory")


def test_names_of_operations_and_traces_tell_nothing_of_a_compiler():
    text = "{{function_node __inference_compiled_7}} bad label\n\t [[{{node XLA/JIT}}]] [Op:HLO_9]"
    error = tf.errors.InvalidArgumentError(None, None, text)
    assert summary(error).startswith("bad label") and not is_compile_error(error)


@pytest.mark.parametrize("devices, each", [(ONE, ""), (TWO, r" \(3 for each of 2 devices\)")])
def test_a_step_without_memory_names_smaller_settings(tmp_path, devices, each):
    error = tf.errors.ResourceExhaustedError(None, None, OOM)
    trainer = fail_first(linear_trainer(devices), error)
    wanted = (
        rf"step 1 .*train_batch_size=5{each}, gradient_accumulation_steps=1 and "
        r"precision=float32\. Try gradient_accumulation_steps=\d, which .*precision=mixed_bfloat16, "
        r"or train_batch_size=2, .*shape\[64,12,512,512\]"
    )
    with pytest.raises(tf.errors.ResourceExhaustedError, match=wanted):
        trainer.train(endless(linear_batches(5)), 3, output_dir=str(tmp_path), speed=Speed(5, 1.0))


@pytest.mark.parametrize(
    "size, replicas, parts, precision, tries",
    [
        (
            32,
            1,
            1,
            "float32",
            "accumulation_steps=2, which .*mixed_bfloat16, or train_batch_size=16",
        ),
        (32, 1, 2, "mixed_bfloat16", "accumulation_steps=4, which takes the same steps, or train"),
        (30, 1, 5, "mixed_bfloat16", "accumulation_steps=10, "),
        (32, 8, 4, "mixed_bfloat16", "Try train_batch_size=16, or a lower max_seq_length"),
        (1, 1, 1, "mixed_bfloat16", "Try a lower max_seq_length"),
        (None, 1, 1, "float32", "with gradient.* Try precision=mixed_bfloat16, or a lower max"),
    ],
)
def test_what_is_to_be_tried_depends_on_what_was_set(size, replicas, parts, precision, tries):
    error = tf.errors.ResourceExhaustedError(None, None, OOM)
    message = str(out_of_memory(error, 1, size, replicas, parts, precision))
    assert re.search(tries, message), message


@pytest.mark.slow  # TensorFlow waits ten seconds for memory
@pytest.mark.long
def test_memory_that_is_really_short_is_noticed(tmp_path):
    trainer = linear_trainer()
    forward = trainer._step._forward

    def too_much(inputs):
        size = 2**46 + tf.cast(inputs["x"][0, 0], tf.int64)
        return {"y": forward(inputs)["y"] + tf.cast(tf.reduce_max(tf.range(size)), "float32")}

    trainer._step._forward = too_much
    with pytest.raises(tf.errors.ResourceExhaustedError, match="The memory of the device is too"):
        trainer.train(endless(linear_batches(2)), 1, output_dir=str(tmp_path))


# ---- GPUs that XLA does not know -----------------------------------------------------------------


@pytest.mark.parametrize(
    "capability, cuda, is_known",
    [
        ((9, 0), "12.5.1", True),
        ((12, 0), "12.5.1", False),
        ((12, 0), "12.8.0", True),
        ((12, 1), "12.8.0", False),
        ((10, 0), "12.5.1", False),
        ((10, 3), "12.9.1", True),
        ((11, 0), "12.9.1", False),
        ((11, 0), "13.0.0", True),
        ((12, 0), None, True),
    ],
)
def test_gpus_that_are_newer_than_xla_are_recognised(monkeypatch, capability, cuda, is_known):
    details = {"compute_capability": capability}
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: ["gpu"])
    monkeypatch.setattr(tf.config.experimental, "get_device_details", lambda gpu: details)
    built = {} if cuda is None else {"cuda_version": cuda}
    monkeypatch.setattr(tf.sysconfig, "get_build_info", lambda: built)
    problem = strategy.gpu_compiler_problem()
    assert (problem is None) is is_known
    if problem:
        name = ".".join(map(str, capability))
        assert (
            f"built for CUDA {cuda}, does not support GPUs of compute capability {name}" in problem
        )


@pytest.mark.parametrize("kind, is_compiled", [("auto", False), ("true", True)])
def test_such_a_gpu_trains_without_xla_unless_that_is_asked_for(
    monkeypatch, caplog, kind, is_compiled
):
    monkeypatch.setattr("bert_tf.training.step.gpu_compiler_problem", lambda: "XLA is too old")
    trainer = linear_trainer()
    extended = types.SimpleNamespace(worker_devices=["/device:GPU:0"])
    trainer._step._strategy = types.SimpleNamespace(extended=extended)
    caplog.set_level(logging.WARNING)
    trainer._step._compile(kind)
    assert (trainer._step._compiled, trainer._step._whole) == (is_compiled, is_compiled)
    assert ("XLA is too old. The training runs without XLA." in caplog.text) is not is_compiled


@pytest.mark.parametrize("kind", ["false", pytest.param("auto", marks=pytest.mark.slow)])
def test_without_compilation_not_even_dropout_is_compiled(kind):
    trainer = pretrainer(dropout=0.2, jit_compile=kind)
    iterator = trainer._iterator(endless(pretraining_batches()))
    step = trainer._train_steps.get_concrete_function(iterator, tf.constant(1), tf.constant(0.0))
    functions = step.graph.as_graph_def().library.function
    compiled = [f.signature.name for f in functions if f.attr["_XlaMustCompile"].b]
    assert bool(compiled) is (kind == "auto")
