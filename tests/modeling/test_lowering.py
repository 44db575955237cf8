"""Every model and its training step are lowered for TPU and CUDA on a machine that has neither.

`jax.export` makes the module that the compiler of a TPU or GPU gets. It runs in a process of its own,
under KERAS_BACKEND=jax, in bfloat16, with dropout, two parts per batch, and no packing. The losses of
the tasks are TensorFlow's. Here they are the cross-entropy of each output, and the likelihood of a CRF.
"""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bert_tf.registry import TYPES
from bert_tf.training.optimization import OPTIMIZERS

MODELS = (
    *dict.fromkeys(entry.model.partition(":")[2] for entry in TYPES.values()),
    *("BertForMaskedLM", "crf", "bilstm", "bilstm_crf", "groups_of_texts"),
)
# Heads without a structure of their own, and optimizers other than the default and Muon, are long.
NOT_LONG = ("BertForPreTraining", "bilstm_crf", "muon")
pytestmark = [
    pytest.mark.night,
    pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="jax is not installed"),
]

# Takes the names of models and of optimizers. Prints, as JSON, for each model what the modules of
# "forward" and "step" have, and for each optimizer that of "step".
PROGRAM = """
import json, re, sys
import jax
import jax.numpy as jnp
import keras
import numpy as np
from bert_tf import registry
from bert_tf.config import BertConfig
from bert_tf.modeling import crf, feature_based, models
from bert_tf.modeling.configured_model import ConfiguredModel
from bert_tf.modeling.dropout import dropout_seed, fold_in
from bert_tf.training.optimization import OPTIMIZERS

B, S, K, P, L, PARTS = 4, 7, 3, 2, 5, 2
config = BertConfig(
    vocab_size=23, hidden_size=8, num_hidden_layers=1, num_attention_heads=2,
    intermediate_size=11, max_position_embeddings=9, type_vocab_size=2,
)
with_crf = {"allowed_transitions": np.ones((L + 1, L + 1), bool)}
bilstm = {"num_labels": L, "feature_layers": "last_hidden", "units": 3}
bilstm_model = feature_based.BertBiLstmForTokenClassification
MODELS = {}  # name -> class, arguments, shape of the ids or None for that of `exported_inputs`
for entry in registry.TYPES.values():
    cls = entry.load("model")
    MODELS[cls.__name__] = cls, {"num_labels": L} if entry.has_labels else {}, None
MODELS |= {
    "BertForMaskedLM": (models.BertForMaskedLM, {}, None),
    "crf": (models.BertForTokenClassification, {"num_labels": L, **with_crf}, None),
    "bilstm": (bilstm_model, bilstm, None),
    "bilstm_crf": (bilstm_model, {**bilstm, **with_crf}, None),
    "groups_of_texts": (models.BertForSentenceEmbedding, {"projection_size": 6}, (B, K, S)),
}

def inputs_of(model, shape):
    shape = shape or ((B, S), (B, K, S))[len(model.exported_inputs["input_ids"]) - 2]
    inputs = {name: np.ones(shape, "int32") for name in model.exported_inputs}
    if "masked_lm_positions" in inputs:
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

def loss_of(outputs, labels):
    if "transitions" in outputs:
        logits = outputs["logits"]
        ids = jnp.broadcast_to(labels[:, None], logits.shape[:2])
        chains = crf.sentence_chains(logits, outputs["transitions"], jnp.full(len(ids), S))
        return -crf.log_likelihood(chains, ids, jnp.ones_like(ids)).mean()
    return sum(
        keras.ops.sparse_categorical_crossentropy(
            jnp.broadcast_to(
                jnp.reshape(labels, (-1,) + (1,) * (logits.ndim - 2)), logits.shape[:-1]
            ),
            logits, from_logits=True,
        ).mean()
        for logits in logits_of(outputs)
    )

def lowered(model, inputs, optimizer, *wanted):
    model(inputs)
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

    def loss_of_part(trained, others, inputs, labels, seed):
        with dropout_seed(seed):
            outputs, _ = model.stateless_call(trained, others, inputs, training=True)
        return loss_of(outputs, labels)

    def step(trained, others, slots, inputs, labels, seed):
        def add_part(sums, part):
            index, inputs, labels = part
            result = jax.value_and_grad(loss_of_part)(
                trained, others, inputs, labels, fold_in(seed, index)
            )
            return jax.tree.map(jnp.add, sums, result), None

        pieces = jax.tree.map(
            lambda x: x.reshape(PARTS, B // PARTS, *x.shape[1:]), (inputs, labels)
        )
        start = jnp.zeros(()), jax.tree.map(jnp.zeros_like, trained)
        (loss, gradients), _ = jax.lax.scan(add_part, start, (jnp.arange(PARTS), *pieces))
        gradients = jax.tree.map(lambda g: g / PARTS, gradients)
        return loss / PARTS, *optimizer.stateless_apply(slots, gradients, trained)

    functions = {
        "forward": (forward, *state[:2], inputs),
        "step": (step, *state, inputs, np.zeros(B, "int32"), np.uint32(7)),
    }
    return {name: found_in(*functions[name]) for name in wanted}

def classes(base):
    return {base, *(each for child in base.__subclasses__() for each in classes(child))}

def model_of(name):
    cls, arguments, shape = MODELS[name]
    model = cls(config, dtype="mixed_bfloat16", **arguments)
    return model, inputs_of(model, shape)

default = OPTIMIZERS["adam_weight_decay"]
public = {
    cls for cls in classes(ConfiguredModel)
    if cls.__module__.startswith("bert_tf.") and not cls.__name__.startswith("_")
}
chosen, optimizers = (list(filter(None, names.split(","))) for names in sys.argv[1:])
found = {
    "models": {
        name: lowered(*model_of(name), default(1e-4), "forward", "step") for name in chosen
    },
    "optimizers": {
        name: lowered(
            *model_of("BertForSequenceClassification"),
            OPTIMIZERS[name](1e-4),
            "step",
        )
        for name in optimizers
    },
    "known": list(MODELS),
    "not tried": [
        cls.__name__ for cls in public - {ConfiguredModel, *(cls for cls, _, _ in MODELS.values())}
    ],
}
json.dump(found, sys.stdout)
"""


@pytest.fixture(scope="module")
def modules(request):
    """What the process prints for the models and optimizers of the tests that are run."""
    params = [
        item.callspec.params
        for item in request.session.items
        if item.path == request.path and hasattr(item, "callspec")
    ]
    chosen = [[each[kind] for each in params if kind in each] for kind in ("model", "optimizer")]
    environment = {
        **os.environ,
        "KERAS_BACKEND": "jax",
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[1]), *sys.path]),
    }
    process = subprocess.run(
        [sys.executable, "-c", PROGRAM, *map(",".join, chosen)],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stderr[-3000:]
    return json.loads(process.stdout)


def check(found, forward_has_loops=False):
    for what, module in found.items():
        assert module["platforms"] == ["tpu", "cuda"]
        assert (module["custom calls"], module["host calls"]) == ([], 0)
        assert module["dynamic shapes"] == 0
        assert (module["drops"] > 0) is (what == "step")
        assert (module["loops"] > 0) is (what == "step" or forward_has_loops)


def some_long(names):
    return [pytest.param(n, marks=() if n in NOT_LONG else pytest.mark.weekly) for n in names]


@pytest.mark.parametrize("model", some_long(MODELS))
def test_a_model_and_its_step_are_lowered_for_tpu_and_cuda(modules, model):
    check(modules["models"][model], forward_has_loops="bilstm" in model)
    assert all(module["products in bfloat16"] > 0.5 for module in modules["models"][model].values())


@pytest.mark.parametrize("optimizer", some_long(OPTIMIZERS))
def test_the_step_of_every_optimizer_is_lowered(modules, optimizer):
    check(modules["optimizers"][optimizer])


def test_every_model_of_the_package_is_lowered(modules):
    assert sorted(modules["known"]) == sorted(MODELS)
    assert modules["not tried"] == []
