"""The same layers under KERAS_BACKEND=jax, in a process of their own, against the NumPy BERT."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.night,
    pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="jax is not installed"),
]

# What the process finds out, as one JSON object on standard output.
PROGRAM = """
import json, sys
import jax
import jax.numpy as jnp
import keras
import numpy as np
from bert_tf.config import BertConfig
from bert_tf.modeling import bert, crf, models
from bert_tf.modeling.dropout import dropout_seed
from bert_tf.training.optimization import AdamWeightDecay
from reference import numpy_bert
from reference.optimizer import AdamWeightDecayOptimizer

found = {"backend": keras.backend.backend(), "tensorflow": "tensorflow" in sys.modules}
B, S, K, P, L = 3, 7, 4, 2, 5
config = BertConfig(
    vocab_size=23, hidden_size=8, num_hidden_layers=2, num_attention_heads=2,
    intermediate_size=11, max_position_embeddings=9, type_vocab_size=2,
)
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

def distance(ours, theirs):
    return float(np.abs(np.asarray(ours, np.float64) - theirs).max())

inputs = batch(B)
errors = found["errors"] = {}

encoder, arrays = filled(bert.BertModel(config))
encoded = numpy_bert.encode(config, arrays, *inputs.values())
outputs = encoder(inputs)
renamed = {"attention_mask": inputs["input_mask"], "token_type_ids": inputs["segment_ids"]}
errors["other names"] = distance(
    encoder({"input_ids": inputs["input_ids"], **renamed})["pooled_output"],
    encoded.pooled_output,
)
for name in ("embedding_output", "sequence_output", "pooled_output"):
    errors[name] = distance(outputs[name], getattr(encoded, name))
layers = np.stack([np.asarray(layer) for layer in outputs["all_encoder_layers"]])
errors["all_encoder_layers"] = distance(layers, np.stack(encoded.all_encoder_layers))
shapes = numpy_bert.variable_shapes(config)
found["paths"] = {v.path: tuple(v.shape) for v in encoder.weights} == shapes

model, arrays = filled(models.BertForPreTraining(config), "masked_lm", "next_sentence")
positions = np.array([[1, 4], [0, 6], [3, 3]], "int32")
outputs = model({**inputs, "masked_lm_positions": positions})
encoded = numpy_bert.encode(config, arrays, *inputs.values())
errors["masked_lm_logits"] = distance(
    outputs["masked_lm_logits"],
    numpy_bert.masked_lm_logits(config, arrays, encoded.sequence_output, positions),
)
errors["next_sentence_logits"] = distance(
    outputs["next_sentence_logits"], numpy_bert.next_sentence_logits(arrays, encoded.pooled_output)
)

model, arrays = filled(models.BertForTokenClassification(config, L), "token_classifier")
sequence_output = numpy_bert.encode(config, arrays, *inputs.values()).sequence_output
errors["token_logits"] = distance(
    model(inputs)["logits"], numpy_bert.token_classifier_logits(arrays, sequence_output)
)

model, arrays = filled(models.BertForQuestionAnswering(config), "span")
sequence_output = numpy_bert.encode(config, arrays, *inputs.values()).sequence_output
start, end = numpy_bert.span_logits(arrays, sequence_output)
errors["start_logits"] = distance(model(inputs)["start_logits"], start)
errors["end_logits"] = distance(model(inputs)["end_logits"], end)

model, arrays = filled(models.BertForMultipleChoice(config), "multiple_choice")
choices = batch(B, K)
errors["choice_logits"] = distance(
    model(choices)["logits"], numpy_bert.multiple_choice_logits(config, arrays, *choices.values())
)

# The gradient of a CRF.
rows, ids = rng.normal(size=(B, S, L)).astype("float32"), rng.integers(0, L, (B, S))
chains = crf.sentence_chains(rows, rng.normal(size=(B, L + 1, L + 1)).astype("float32"), [S] * B)

def likelihood(words):
    return crf.log_likelihood(chains._replace(words=words), ids, np.ones((B, S))).sum()

expected = np.eye(L)[ids] - np.asarray(crf.marginals(chains))
errors["crf"] = distance(jax.jit(jax.grad(likelihood))(chains.words), expected)

# A jitted function of weights and inputs, as JAX programs call a Keras model.
model, arrays = filled(models.BertForSequenceClassification(config, L), "classifier")
pooled_output = numpy_bert.encode(config, arrays, *inputs.values()).pooled_output
expected = numpy_bert.classifier_logits(arrays, pooled_output)
weights = [variable.value for variable in model.trainable_variables]
fixed = [variable.value for variable in model.non_trainable_variables]

@jax.jit
def logits(weights, inputs):
    return model.stateless_call(weights, fixed, inputs, training=False)[0]["logits"]

errors["jitted logits"] = distance(logits(weights, inputs), expected)

@jax.jit
def dropped(weights, seed):
    with dropout_seed(seed):
        return model.stateless_call(weights, fixed, inputs, training=True)[0]["logits"]

first, again, other = (np.asarray(dropped(weights, jnp.uint32(seed))) for seed in (5, 5, 6))
found["same seed, same masks"] = bool((first == again).all())
found["other seed, other masks"] = float(np.abs(first - other).max())
with dropout_seed(5):
    eager = np.asarray(model(inputs, training=True)["logits"])
errors["dropout under jit"] = distance(first, eager)

# A gradient step lowers the loss, with dropout that depends on the step alone.
def loss(weights):
    with dropout_seed(jnp.uint32(7)):
        outputs, _ = model.stateless_call(weights, fixed, inputs, training=True)
    return -jax.nn.log_softmax(outputs["logits"])[jnp.arange(B), jnp.array([1, 4, 0])].mean()

before, gradients = jax.jit(jax.value_and_grad(loss))(weights)
after = jax.jit(loss)([w - 0.01 * g for w, g in zip(weights, gradients)])
found["loss"] = [float(before), float(after)]

# The gradients are those of the step above.
optimizer = AdamWeightDecay(0.1)
optimizer.build(model.trainable_variables)
slots = [variable.value for variable in optimizer.variables]
stepped, _ = jax.jit(optimizer.stateless_apply)(slots, gradients, weights)
paths = [variable.path for variable in model.trainable_variables]
values, slopes = (dict(zip(paths, map(np.asarray, each))) for each in (weights, gradients))
expected = AdamWeightDecayOptimizer().update(values, slopes, 0.1)
errors["optimizer"] = max(map(distance, stepped, expected.values()))

# A functional model with inputs of unknown length.
functional = {name: keras.Input((None,), dtype="int32", name=name) for name in inputs}
functional = keras.Model(functional, model(functional))
errors["functional"] = distance(functional(inputs)["logits"], np.asarray(model(inputs)["logits"]))

# A gradient that is not finite leaves its variable as it was.
optimizer = AdamWeightDecay(0.1, skip_nonfinite=True)
optimizer.build(model.trainable_variables)
slots = [variable.value for variable in optimizer.variables]
infinite = [jnp.full_like(gradients[0], jnp.inf), *gradients[1:]]
skipped, _ = jax.jit(optimizer.stateless_apply)(slots, infinite, weights)
errors["skipped"] = max(map(distance, skipped, [weights[0], *stepped[1:]]))
json.dump(found, sys.stdout)
"""


# Parts of the package that compute with TensorFlow, and what they raise.
TENSORFLOW_PROGRAM = """
import json, sys
import bert_tf

config = bert_tf.BertConfig.from_name("tiny", vocab_size=9)
calls = {
    "export": lambda: bert_tf.export("folder", "export"),
    "load": lambda: bert_tf.load("folder"),
    "model.export": lambda: bert_tf.BertModel(config).export("export"),
    "Trainer": lambda: bert_tf.Trainer(
        bert_tf.ClassificationTask(["no", "yes"], 8), output_dir="output", num_train_steps=1
    ),
}
found = {}
for name, call in calls.items():
    try:
        call()
    except Exception as error:
        found[name] = [type(error).__name__, str(error)]
json.dump(found, sys.stdout)
"""


def run_under_jax(program):
    tests = str(Path(__file__).parents[1])
    environment = {
        **os.environ,
        "KERAS_BACKEND": "jax",
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": os.pathsep.join([tests, *sys.path]),
    }
    process = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True
    )
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


@pytest.fixture(scope="module")
def found():
    return run_under_jax(PROGRAM)


def test_values_equal_those_in_numpy_jitted_or_not(found):
    assert (found["backend"], found["tensorflow"], found["paths"]) == ("jax", False, True)
    assert len(found["errors"]) == 17
    assert {name: error for name, error in found["errors"].items() if error > 1e-5} == {}


def test_a_step_depends_on_its_seed_alone_and_lowers_the_loss(found):
    assert found["same seed, same masks"]
    assert found["other seed, other masks"] > 1e-3
    before, after = found["loss"]
    assert after < before


def test_what_computes_with_tensorflow_names_the_backend_and_the_variable_to_set():
    found = run_under_jax(TENSORFLOW_PROGRAM)
    assert found.keys() == {"export", "load", "model.export", "Trainer"}
    for error, message in found.values():
        assert error == "ValueError"
        assert "is jax" in message
        assert "KERAS_BACKEND=tensorflow" in message
