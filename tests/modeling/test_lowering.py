"""Every model and its training step are lowered for TPU and CUDA on a machine that has neither.

`jax.export` makes the module that the compiler of a TPU or GPU gets. It runs in a process of its own,
under KERAS_BACKEND=jax, in bfloat16, with dropout, two parts per batch, and no packing.
"""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="jax is not installed"),
]

# Prints name of a model -> {"forward", "step"} -> what its module has, as JSON.
PROGRAM = """
import json, re, sys
import jax
import jax.numpy as jnp
import keras
import numpy as np
from bert_tf.config import BertConfig
from bert_tf.modeling import bert, models
from bert_tf.modeling.dropout import dropout_seed, fold_in

B, S, K, P, L, PARTS = 4, 7, 3, 2, 5, 2
config = BertConfig(
    vocab_size=23, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
    intermediate_size=11, max_position_embeddings=9, type_vocab_size=2,
)
whole = {"dtype": "mixed_bfloat16"}
allowed = np.ones((L + 1, L + 1), bool)
MODELS = {
    "encoder": (bert.BertModel(config, **whole), (B, S)),
    "pretraining": (models.BertForPreTraining(config, **whole), (B, S)),
    "masked_lm": (models.BertForMaskedLM(config, **whole), (B, S)),
    "classification": (models.BertForSequenceClassification(config, L, **whole), (B, S)),
    "token_classification": (models.BertForTokenClassification(config, L, **whole), (B, S)),
    "crf": (
        models.BertForTokenClassification(config, L, allowed_transitions=allowed, **whole), (B, S)
    ),
    "multiple_choice": (models.BertForMultipleChoice(config, **whole), (B, K, S)),
    "question_answering": (models.BertForQuestionAnswering(config, **whole), (B, S)),
    "embeddings": (models.BertForSentenceEmbedding(config, projection_size=6, **whole), (B, K, S)),
}

def inputs_of(model, shape):
    names = ("input_ids", "input_mask", "segment_ids")
    inputs = {name: np.ones(shape, "int32") for name in names}
    if "masked_lm_positions" in model.exported_inputs:
        inputs["masked_lm_positions"] = np.ones((B, P), "int32")
    return inputs

def logits_of(outputs):
    outputs = {name: value for name, value in outputs.items() if name != "all_encoder_layers"}
    return [jnp.asarray(value, "float32") for value in outputs.values()]

def in_bfloat16(lines):
    return [line for line in lines if "xbf16>" in line.partition("->")[0]]

def found_in(function, *arguments):
    module = jax.export.export(jax.jit(function), platforms=("tpu", "cuda"))(*arguments)
    text = module.mlir_module()
    products = [line for line in text.splitlines() if "= stablehlo.dot_general" in line]
    return {
        "platforms": module.platforms,
        "custom calls": sorted(set(re.findall(r"custom_call @(\\w+)", text))),
        "host calls": len(re.findall(r"infeed|outfeed|host_callback|stablehlo.(send|recv)", text)),
        "dynamic shapes": len(re.findall(r"tensor<[^>]*\\?", text)),
        "products in bfloat16": len(in_bfloat16(products)) / len(products),
        "drops": text.count(str(0x7FEB352D)),  # a constant of the masks
        "loops": text.count("stablehlo.while"),
    }

found = {}
for name, (model, shape) in MODELS.items():
    inputs = inputs_of(model, shape)
    model(inputs)
    optimizer = keras.optimizers.AdamW(1e-4, weight_decay=0.01, global_clipnorm=1.0)
    optimizer.build(model.trainable_variables)
    state = [
        [variable.value for variable in variables]
        for variables in (
            model.trainable_variables, model.non_trainable_variables, optimizer.variables
        )
    ]

    def forward(trained, others, inputs):
        outputs, _ = model.stateless_call(trained, others, inputs, training=False)
        return logits_of(outputs)

    def loss_of(trained, others, inputs, labels, seed):
        with dropout_seed(seed):
            outputs, _ = model.stateless_call(trained, others, inputs, training=True)
        losses = (
            keras.ops.sparse_categorical_crossentropy(
                jnp.broadcast_to(jnp.reshape(labels, (-1,) + (1,) * (logits.ndim - 2)),
                                 logits.shape[:-1]),
                logits, from_logits=True,
            ).mean()
            for logits in logits_of(outputs)
        )
        return sum(losses)

    def step(trained, others, slots, inputs, labels, seed):
        def add_part(sums, part):
            index, inputs, labels = part
            result = jax.value_and_grad(loss_of)(
                trained, others, inputs, labels, fold_in(seed, index)
            )
            return jax.tree.map(jnp.add, sums, result), None

        pieces = jax.tree.map(lambda x: x.reshape(PARTS, B // PARTS, *x.shape[1:]), (inputs, labels))
        start = jnp.zeros(()), jax.tree.map(jnp.zeros_like, trained)
        (loss, gradients), _ = jax.lax.scan(add_part, start, (jnp.arange(PARTS), *pieces))
        gradients = jax.tree.map(lambda g: g / PARTS, gradients)
        return loss / PARTS, *optimizer.stateless_apply(slots, gradients, trained)

    labels = np.zeros(B, "int32")
    found[name] = {
        "forward": found_in(forward, *state[:2], inputs),
        "step": found_in(step, *state, inputs, labels, np.uint32(7)),
    }
json.dump(found, sys.stdout)
"""
MODELS = (
    *("encoder", "pretraining", "masked_lm", "classification", "token_classification", "crf"),
    *("multiple_choice", "question_answering", "embeddings"),
)


@pytest.fixture(scope="module")
def modules():
    environment = {
        **os.environ,
        "KERAS_BACKEND": "jax",
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), *sys.path]),
    }
    process = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True
    )
    assert process.returncode == 0, process.stderr[-3000:]
    return json.loads(process.stdout)


@pytest.mark.parametrize("name", MODELS)
def test_a_model_and_its_step_are_lowered_for_tpu_and_cuda(modules, name):
    for what, found in modules[name].items():
        assert found["platforms"] == ["tpu", "cuda"]
        assert (found["custom calls"], found["host calls"]) == ([], 0)
        assert found["dynamic shapes"] == 0
        assert found["products in bfloat16"] > 0.5
        assert (found["drops"] > 0) is (what == "step")
        assert (found["loops"] > 0) is (what == "step")


def test_every_model_is_lowered(modules):
    assert sorted(modules) == sorted(MODELS)
