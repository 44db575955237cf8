"""A step that XLA cannot compile, or for which there is no memory."""

import logging
import types

import pytest
import tensorflow as tf
from tiny_training import endless, linear_batches, linear_trainer, pretrainer, pretraining_batches

from bert_tf.training import strategy

BLACKWELL = "PTX version 8.5 does not support target 'sm_120'. Minimum required PTX version is 8.7"
OOM = "OOM when allocating tensor with shape[64,12,512,512] and type float on GPU:0 by GPU_0_bfc"


@pytest.mark.parametrize(
    "kind, message, raised, text",
    [
        ("Internal", BLACKWELL, ValueError, "jit_compile=false"),
        ("NotFound", "Autotuning failed for HLO: %f = f32[8]", ValueError, "jit_compile=false"),
        ("InvalidArgument", "indices[0,3] = 50 is not in [0, 30)", tf.errors.OpError, "indices"),
        ("ResourceExhausted", OOM, tf.errors.ResourceExhaustedError, "gradient_accumulation_steps"),
        (
            "Internal",
            "CUDA_ERROR_OUT_OF_MEMORY while XLA compiled",
            tf.errors.ResourceExhaustedError,
            "mixed_bfloat16",
        ),
        (  # names of operations and traces tell nothing of a compiler
            "InvalidArgument",
            "{{function_node __inference_compiled_7}} bad\n\t [[{{node XLA/JIT}}]] [Op:HLO_9]",
            tf.errors.OpError,
            "bad",
        ),
    ],
)
def test_an_error_of_a_step_names_the_remedy(tmp_path, kind, message, raised, text):
    trainer = linear_trainer()
    trainer._step._compile("true")

    def fail(*_):
        raise getattr(tf.errors, f"{kind}Error")(None, None, message)

    trainer._train_steps = fail
    with pytest.raises(raised, match=text):
        trainer.train(endless(linear_batches(2)), 3, output_dir=str(tmp_path))


@pytest.mark.parametrize(
    "capability, cuda, is_known",
    [
        ((9, 0), "12.5.1", True),
        ((12, 0), "12.5.1", False),
        ((12, 0), "12.8.0", True),
        ((12, 1), "12.8.0", False),
        ((10, 0), "12.5.1", False),
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
    assert (strategy.gpu_compiler_problem() is None) is is_known


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
    assert ("XLA is too old" in caplog.text) is not is_compiled


@pytest.mark.parametrize("kind", ["false", pytest.param("auto", marks=pytest.mark.night)])
def test_without_compilation_not_even_dropout_is_compiled(kind):
    trainer = pretrainer(dropout=0.2, jit_compile=kind)
    iterator = trainer._iterator(endless(pretraining_batches()))
    step = trainer._train_steps.get_concrete_function(iterator, tf.constant(1), tf.constant(0.0))
    functions = step.graph.as_graph_def().library.function
    compiled = [f.signature.name for f in functions if f.attr["_XlaMustCompile"].b]
    assert bool(compiled) is (kind == "auto")
