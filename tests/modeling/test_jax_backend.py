"""The same layers under KERAS_BACKEND=jax, in a process of their own: against the NumPy BERT, and
lowered for TPU and CUDA on a machine that has neither."""

import importlib.util
import json

import pytest
from helpers import output_of

pytestmark = [
    pytest.mark.night,
    pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="jax is not installed"),
]

BEGINNING = """
import json, sys
import jax
import jax.numpy as jnp
import keras
import numpy as np
from bert_tf.modeling import bert, crf, models
from bert_tf.modeling.dropout import dropout_seed
from bert_tf.training.optimizers import AdamWeightDecay
from reference import numpy_bert
from reference.optimizer import AdamWeightDecayOptimizer
from tiny_config import tiny_config

B, S, K, P, L = 3, 7, 4, 2, 5

def distance(ours, theirs):
    return float(np.abs(np.asarray(ours, np.float64) - theirs).max())
"""

# What the process finds out, as one JSON object on standard output.
PROGRAM = """
found = {"backend": keras.backend.backend(), "tensorflow": "tensorflow" in sys.modules}
config = tiny_config()
rng = np.random.default_rng(0)

def batch(*shape):
    lengths = rng.integers(1, S + 1, (*shape, 1))
    return {
        "input_ids": rng.integers(0, 23, (*shape, S)).astype("int32"),
        "input_mask": (np.arange(S) < lengths).astype("int32"),
        "segment_ids": rng.integers(0, 2, (*shape, S)).astype("int32"),
    }

def filled(model, *heads):
    arrays = numpy_bert.random_variables(config, seed=1, heads=heads, num_labels=L)
    for variable in model.weights:
        if variable.path in arrays:
            variable.assign(arrays[variable.path])
    return model, arrays

inputs = batch(B)
errors = found["errors"] = {}

encoder, arrays = filled(bert.BertModel(config))
encoded = numpy_bert.encode(config, arrays, *inputs.values())
outputs = encoder(inputs)
for name in ("embedding_output", "sequence_output", "pooled_output"):
    errors[name] = distance(outputs[name], getattr(encoded, name))
layers = np.stack([np.asarray(layer) for layer in outputs["all_encoder_layers"]])
errors["all_encoder_layers"] = distance(layers, np.stack(encoded.all_encoder_layers))
shapes = numpy_bert.variable_shapes(config)
found["paths"] = {v.path: tuple(v.shape) for v in encoder.weights} == shapes

model, arrays = filled(models.BertForPreTraining(config), "masked_lm", "next_sentence")
positions = np.array([[1, 4], [0, 6], [3, 3]], "int32")
outputs = model({**inputs, "masked_lm_positions": positions})
hidden, pooled = encoded.sequence_output, encoded.pooled_output
expected = numpy_bert.masked_lm_logits(config, arrays, hidden, positions)
errors["masked_lm_logits"] = distance(outputs["masked_lm_logits"], expected)
expected = numpy_bert.next_sentence_logits(arrays, pooled)
errors["next_sentence_logits"] = distance(outputs["next_sentence_logits"], expected)

model, arrays = filled(models.BertForMultipleChoice(config), "multiple_choice")
choices = batch(B, K)
expected = numpy_bert.multiple_choice_logits(config, arrays, *choices.values())
errors["choice_logits"] = distance(model(choices)["logits"], expected)

# The gradient of a CRF.
rows, ids = rng.normal(size=(B, S, L)).astype("float32"), rng.integers(0, L, (B, S))
chains = crf.sentence_chains(rows, rng.normal(size=(B, L + 1, L + 1)).astype("float32"), [S] * B)

def likelihood(words):
    return crf.log_likelihood(chains._replace(words=words), ids, np.ones((B, S))).sum()

expected = np.eye(L)[ids] - np.asarray(crf.marginals(chains))
errors["crf"] = distance(jax.jit(jax.grad(likelihood))(chains.words), expected)

# A jitted function of weights and inputs, as JAX programs call a Keras model.
model, arrays = filled(models.BertForSequenceClassification(config, L), "classifier")
weights = [variable.value for variable in model.trainable_variables]
fixed = [variable.value for variable in model.non_trainable_variables]

def logits(weights, inputs, seed=None):
    with dropout_seed(jnp.uint32(0) if seed is None else seed):
        training = seed is not None
        return model.stateless_call(weights, fixed, inputs, training=training)[0]["logits"]

jitted = jax.jit(logits)
errors["jitted"] = distance(jitted(weights, inputs), numpy_bert.classifier_logits(arrays, pooled))
first, again, other = (np.asarray(jitted(weights, inputs, jnp.uint32(n))) for n in (5, 5, 6))
found["same seed, same masks"] = bool((first == again).all())
found["other seed, other masks"] = float(np.abs(first - other).max())
with dropout_seed(5):
    errors["dropout under jit"] = distance(first, np.asarray(model(inputs, training=True)["logits"]))

# A gradient step lowers the loss, with dropout that depends on the step alone.
def loss(weights):
    chances = jax.nn.log_softmax(logits(weights, inputs, jnp.uint32(7)))
    return -chances[jnp.arange(B), jnp.array([1, 4, 0])].mean()

before, gradients = jax.jit(jax.value_and_grad(loss))(weights)
after = jax.jit(loss)([w - 0.01 * g for w, g in zip(weights, gradients)])
found["loss"] = [float(before), float(after)]

# The optimizer's step; a gradient that is not finite leaves its variable as it was.
def stepped(gradients, **settings):
    optimizer = AdamWeightDecay(0.1, **settings)
    optimizer.build(model.trainable_variables)
    slots = [variable.value for variable in optimizer.variables]
    return jax.jit(optimizer.stateless_apply)(slots, gradients, weights)[0]

paths = [variable.path for variable in model.trainable_variables]
values, slopes = (dict(zip(paths, map(np.asarray, each))) for each in (weights, gradients))
expected = [*AdamWeightDecayOptimizer().update(values, slopes, 0.1).values()]
errors["optimizer"] = max(map(distance, stepped(gradients), expected))
infinite = [jnp.full_like(gradients[0], jnp.inf), *gradients[1:]]
skipped = stepped(infinite, skip_nonfinite=True)
errors["skipped"] = max(map(distance, skipped, [weights[0], *expected[1:]]))
json.dump(found, sys.stdout)
"""

# `jax.export` makes the module that the compiler of a TPU or GPU gets, in bfloat16.
LOWERING_PROGRAM = """
import re
from bert_tf.modeling import feature_based

config, found = tiny_config(), {}
labels = [str(label) for label in range(L)]
MODELS = {
    "pretraining": models.BertForPreTraining(config, dtype="mixed_bfloat16"),
    "crf": models.BertForTokenClassification(
        config, labels=labels, crf="words", dtype="mixed_bfloat16"
    ),
    "bilstm": feature_based.BertBiLstmForTokenClassification(
        config, labels, feature_layers="last_hidden", units=3, dtype="mixed_bfloat16"
    ),
}
for name, model in MODELS.items():
    inputs = {n: np.ones((B, S), "int32") for n in ("input_ids", "input_mask", "segment_ids")}
    if name == "pretraining":
        inputs["masked_lm_positions"] = np.ones((B, P), "int32")
    model(inputs)
    optimizer = AdamWeightDecay(0.1)
    optimizer.build(model.trainable_variables)
    trained, fixed, slots = (
        [variable.value for variable in variables]
        for variables in (
            model.trainable_variables, model.non_trainable_variables, optimizer.variables
        )
    )

    def loss(trained, inputs, seed):
        with dropout_seed(seed):
            outputs, _ = model.stateless_call(trained, fixed, inputs, training=True)
        return sum(
            jnp.square(jnp.asarray(value, "float32")).mean()
            for name, value in outputs.items() if name != "all_encoder_layers"
        )

    def step(trained, slots, inputs, seed):
        return optimizer.stateless_apply(slots, jax.grad(loss)(trained, inputs, seed), trained)

    arguments = trained, slots, inputs, np.uint32(7)
    module = jax.export.export(jax.jit(step), platforms=("tpu", "cuda"))(*arguments)
    text = module.mlir_module()
    products = [line for line in text.splitlines() if "= stablehlo.dot_general" in line]
    in_bfloat16 = [line for line in products if "xbf16>" in line.partition("->")[0]]
    found[name] = {
        "platforms": module.platforms,
        "custom calls": re.findall(r"custom_call @(\\w+)", text),
        "host calls": re.findall(r"infeed|outfeed|host_callback|stablehlo.(?:send|recv)", text),
        "dynamic shapes": re.findall(r"tensor<[^>]*\\?", text),
        "mostly bfloat16": len(in_bfloat16) > len(products) / 2,
    }
json.dump(found, sys.stdout)
"""

# Attention by a kernel, which the formula of JAX stands for here.
KERNEL_PROGRAM = """
from bert_tf.modeling import attention_kernels

found = {"without": attention_kernels.kernel_problem(128, 8, "bfloat16", True)}
calls, formula = [], jax.nn.dot_product_attention

def kernel(*arrays, implementation, **lengths):
    calls.append((implementation, lengths["key_value_seq_lengths"] is not None))
    return formula(*arrays, implementation="xla", **lengths)

jax.nn.dot_product_attention = kernel
attention_kernels.has_gpu = lambda: True
found["short bias"] = attention_kernels.kernel_problem(100, 8, "bfloat16", False)
config = tiny_config(
    hidden_size=16, attention_probs_dropout_prob=0.0, max_position_embeddings=130
)
model = models.BertForSequenceClassification(config, L, dtype="mixed_bfloat16")
weights, fixed = (
    [variable.value for variable in variables]
    for variables in (model.trainable_variables, model.non_trainable_variables)
)
mask = (np.arange(128) < np.array([[128], [3], [77]])).astype("int32")

def differentiate(mask, *scope):
    def loss(weights):
        inputs = {"input_ids": mask * 7, "input_mask": mask}
        with dropout_seed(jnp.uint32(5)), attention_kernels.cudnn_attention(*scope):
            outputs, _ = model.stateless_call(weights, fixed, inputs, training=True)
        return jnp.square(jnp.asarray(outputs["logits"], "float32")).sum()

    return jax.tree.leaves(jax.jit(jax.value_and_grad(loss))(weights))

found["distances"] = []
for each, scope in ((mask, True), (mask, False), (mask[:, ::-1], False)):
    with_kernel = differentiate(each, scope)
    attention_kernels.has_gpu = lambda: False
    found["distances"].append(max(map(distance, with_kernel, differentiate(each, scope))))
    attention_kernels.has_gpu = lambda: True
found["calls"] = sorted(set(calls))
json.dump(found, sys.stdout)
"""


# Parts of the package that compute with TensorFlow, and what they raise.
def run_under_jax(program):
    printed = output_of("-c", BEGINNING + program, KERAS_BACKEND="jax", JAX_PLATFORMS="cpu")
    return json.loads(printed)


def test_values_equal_those_in_numpy_jitted_or_not_and_a_step_lowers_the_loss():
    found = run_under_jax(PROGRAM)
    assert (found["backend"], found["tensorflow"], found["paths"]) == ("jax", False, True)
    assert len(found["errors"]) == 12
    assert {name: error for name, error in found["errors"].items() if error > 1e-5} == {}
    assert found["same seed, same masks"]  # of dropout
    assert found["other seed, other masks"] > 1e-3
    before, after = found["loss"]
    assert after < before


def test_a_step_is_lowered_for_tpu_and_cuda_without_calls_of_the_host():
    found = run_under_jax(LOWERING_PROGRAM)
    assert sorted(found) == ["bilstm", "crf", "pretraining"]
    expected = {"custom calls": [], "host calls": [], "dynamic shapes": []}
    expected |= {"platforms": ["tpu", "cuda"], "mostly bfloat16": True}
    for name, module in found.items():
        assert module == expected, name


def test_attention_by_a_kernel_has_the_gradients_of_the_formula_for_any_mask():
    found = run_under_jax(KERNEL_PROGRAM)
    assert "GPU" in found["without"]
    assert "128" in found["short bias"]
    assert found["calls"] == [["cudnn", False], ["cudnn", True]]
    assert max(found["distances"]) < 1e-4
