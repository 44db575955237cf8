"""A step that XLA cannot compile, or for which there is no memory."""

import pytest
import tensorflow as tf
from tiny_training import (
    Linear,
    endless,
    linear_batches,
    linear_trainer,
    pretrainer,
    pretraining_batches,
)

from bert_tf.training.failures import raise_with_remedy
from bert_tf.training.step import TrainStep

BLACKWELL = "PTX version 8.5 does not support target 'sm_120'. Minimum required PTX version is 8.7"
OOM = "OOM when allocating tensor with shape[64,12,512,512] and type float on GPU:0 by GPU_0_bfc"


@pytest.mark.parametrize(
    "kind, message, raised, text",
    [
        ("Internal", BLACKWELL, ValueError, "jit_compile"),
        ("NotFound", "Autotuning failed for HLO: %f = f32[8]", ValueError, "jit_compile"),
        ("InvalidArgument", "indices[0,3] = 50 is not in [0, 30)", tf.errors.OpError, "indices"),
        ("ResourceExhausted", OOM, tf.errors.ResourceExhaustedError, "gradient_accumulation_steps"),
        (
            "Internal",
            "CUDA_ERROR_OUT_OF_MEMORY while XLA compiled",
            tf.errors.ResourceExhaustedError,
            "precision",
        ),
        (  # names of operations and traces tell nothing of a compiler
            "InvalidArgument",
            "{{function_node __inference_compiled_7}} bad\n\t [[{{node XLA/JIT}}]] [Op:HLO_9]",
            tf.errors.OpError,
            "bad",
        ),
    ],
)
def test_an_error_of_a_step_names_the_remedy(kind, message, raised, text):
    error = getattr(tf.errors, f"{kind}Error")(None, None, message)
    with pytest.raises(raised, match=text):
        raise_with_remedy(error, 3, {"devices": 1}, compiles=True)
    if raised is ValueError:
        with pytest.raises(type(error)):
            raise_with_remedy(error, 3, {"devices": 1}, compiles=False)


def test_a_run_without_memory_ends_with_the_remedy(tmp_path):
    def rows():
        yield {name: value[0] for name, value in linear_batches(2).items()}
        raise MemoryError

    def dataset_from(step):
        specs = tf.data.Dataset.from_tensor_slices(linear_batches(2)).element_spec
        return tf.data.Dataset.from_generator(rows, output_signature=specs)

    with pytest.raises(tf.errors.ResourceExhaustedError, match="gradient_accumulation_steps"):
        linear_trainer().train(dataset_from, 3, output_dir=str(tmp_path))


def test_a_gpu_that_is_newer_than_xla_trains_without_it_unless_that_is_asked_for(pretend):
    error = tf.errors.InternalError(None, None, BLACKWELL)
    pretend([(12, 0)], cuda="12.5.1")
    gpu = tf.distribute.OneDeviceStrategy("GPU:0")  # nothing is computed on it
    arguments = dict(input_names=(), gradient_accumulation_steps=1, seed=1)
    for kind, raised in {"auto": tf.errors.InternalError, "true": ValueError}.items():
        step = TrainStep(Linear(), [], None, gpu, **arguments, jit_compile=kind)
        with pytest.raises(raised):
            step.raise_with_remedy(error, 1, None)


@pytest.mark.parametrize("kind", ["false", pytest.param("auto", marks=pytest.mark.night)])
def test_without_compilation_not_even_dropout_is_compiled(kind):
    trainer = pretrainer(dropout=0.2, jit_compile=kind)
    iterator = trainer._iterator(endless(pretraining_batches()))
    step = trainer._train_steps.get_concrete_function(iterator, tf.constant(1), tf.constant(0.0))
    functions = step.graph.as_graph_def().library.function
    compiled = [f.signature.name for f in functions if f.attr["_XlaMustCompile"].b]
    assert bool(compiled) is (kind == "auto")
