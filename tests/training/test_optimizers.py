"""The optimizers against statements in NumPy, and what the name of a variable decides."""

import inspect
import re

import keras
import numpy as np
import pytest
import tensorflow as tf
from helpers import cause_of
from tiny_training import bert_config, strategy_on

from bert_tf.modeling.models import BertForPreTraining
from bert_tf.training.checkpoints import restore_checkpoint, save_checkpoint, training_variables
from bert_tf.training.optimizers import (
    OPTIMIZERS,
    AdamW,
    AdamWeightDecay,
    Lamb,
    Muon,
    freeze,
    layer_learning_rate_factors,
    orthogonal,
)
from bert_tf.training.schedules import WarmupDecay
from reference import optimizer as reference

PAIRS = [
    (AdamWeightDecay, reference.AdamWeightDecayOptimizer),
    (AdamW, reference.AdamWOptimizer),
    (Lamb, reference.LambOptimizer),
]


def random_gradients(shapes, seed):
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


def model_of(num_layers):
    return BertForPreTraining(bert_config(num_hidden_layers=num_layers))


def take_steps(optimizer, variables, steps):
    """Updates with the gradients of `random_gradients`, whose seed is the step."""
    shapes = {variable.path: variable.shape for variable in variables}
    for step in steps:
        gradients = random_gradients(shapes, seed=step)
        optimizer.apply([tf.constant(gradients[v.path]) for v in variables], variables)


@pytest.mark.parametrize(
    "ours, theirs", [*PAIRS[:2], pytest.param(*PAIRS[2], marks=pytest.mark.night)]
)
def test_a_trajectory_of_all_variables_of_a_model_is_the_references(ours, theirs):
    variables = model_of(1).trainable_variables
    schedule = WarmupDecay(1e-2, num_train_steps=12, num_warmup_steps=4)
    optimizer, expected = ours(schedule), theirs()
    optimizer.build(variables)
    values = {variable.path: variable.numpy() for variable in variables}
    shapes = {path: value.shape for path, value in values.items()}
    for step in range(12):
        take_steps(optimizer, variables, [step])
        gradients = random_gradients(shapes, seed=step)
        values = expected.update(values, gradients, reference.learning_rate(step, 1e-2, 12, 4))
        for variable in variables:
            np.testing.assert_allclose(variable, values[variable.path], rtol=0, atol=1e-6)
    for variable in variables:
        slots = optimizer.slots(variable)
        np.testing.assert_allclose(slots["adam_m"], expected.adam_m[variable.path], atol=1e-6)
        np.testing.assert_allclose(slots["adam_v"], expected.adam_v[variable.path], atol=1e-6)
    assert int(optimizer.iterations) == 12


def after_three_steps(optimizer):
    """The variables of a model; Keras' optimizers do not decay those that the reference leaves out."""
    keras.utils.set_random_seed(1)
    variables = model_of(1).trainable_variables
    undecayed = [v for v in variables if not reference.uses_weight_decay(v.path)]
    optimizer.exclude_from_weight_decay(var_list=undecayed)  # without effect in ours
    optimizer.build(variables)
    take_steps(optimizer, variables, range(3))
    return variables


def test_adamw_takes_the_steps_of_keras_where_that_excludes_the_same_variables():
    settings = dict(beta_1=0.8, beta_2=0.99, epsilon=1e-5)
    ours = after_three_steps(AdamW(0.01, weight_decay_rate=0.1, **settings))
    theirs = after_three_steps(keras.optimizers.AdamW(0.01, weight_decay=0.1, **settings))
    for variable, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(variable, other, rtol=0, atol=1e-6, err_msg=variable.path)


@pytest.mark.skipif(
    "rms_rate" not in inspect.signature(keras.optimizers.Muon).parameters,
    reason="the Muon of an older Keras, such as 3.12, takes other steps",
)
def test_muon_takes_the_steps_of_keras_in_the_layers_and_those_of_adamw_elsewhere():
    settings = dict(weight_decay_rate=0.1, beta_2=0.98, epsilon=1e-5)
    by_keras = keras.optimizers.Muon(0.01, weight_decay=0.1, adam_weight_decay=None)
    three = map(after_three_steps, (Muon(0.01, **settings), by_keras, AdamW(0.01, **settings)))
    num_matrices = 0
    for variable, *others in zip(*three, strict=True):
        is_matrix = "/layer_" in variable.path and variable.path.endswith("kernel")
        num_matrices += is_matrix
        expected = others[0 if is_matrix else 1]
        np.testing.assert_allclose(variable, expected, rtol=0, atol=1e-5, err_msg=variable.path)
    assert num_matrices == 6


def test_an_orthogonal_matrix_has_the_singular_vectors_and_values_near_1():
    for shape in ((5, 9), (9, 5), (6, 6)):
        matrix = np.random.default_rng(0).normal(size=shape).astype("float32")
        left, _, right = np.linalg.svd(matrix, full_matrices=False)
        in_float32, in_bfloat16 = (
            orthogonal(tf.constant(matrix), dtype).numpy() for dtype in ("float32", "bfloat16")
        )
        found = left.T @ in_float32 @ right.T
        np.testing.assert_allclose(found, np.diag(np.diag(found)), atol=1e-4)
        # The rounding of bfloat16, 0.004, grows by up to 3.4 in each of the five iterations.
        np.testing.assert_allclose(left.T @ in_bfloat16 @ right.T, found, atol=0.2)
        for each in (in_float32, in_bfloat16):
            values = np.linalg.svd(each, compute_uv=False)
            assert np.all((values > 0.6) & (values < 1.25)), shape


def updated(optimizer, by_shape=None, scales=(0.5, np.nan, 0.5)):
    """Values and moments of the last parts of two layers after updates of `apply`, or compiled."""
    keras.utils.set_random_seed(1)
    variables = [v for v in model_of(2).trainable_variables if re.search(r"_\d/output/", v.path)]
    optimizer.build(variables)
    for step, scale in enumerate(scales):
        gradients = random_gradients({v.path: v.shape for v in variables}, seed=step)
        values = [tf.constant(gradients[variable.path]) for variable in variables]
        if by_shape is None:
            optimizer.apply([scale * value for value in values], variables)
        else:
            optimizer.apply_compiled(values, variables, tf.constant(scale), by_shape=by_shape)
    assert optimizer.iterations == len(scales) and len(variables) == 2 * 4
    return {
        (variable.path, name): value.numpy()
        for variable in variables
        for name, value in {"value": variable, **optimizer.slots(variable)}.items()
    }


@pytest.mark.parametrize(
    "name, settings, tolerance",
    [
        ("adam_weight_decay", {}, 1e-6),
        ("muon", {"product_dtype": "bfloat16"}, 1e-5),
        pytest.param("adamw", {}, 1e-6, marks=pytest.mark.night),
        pytest.param("lamb", {}, 1e-6, marks=pytest.mark.night),
    ],
)
def test_compiled_updates_are_those_of_apply_and_by_shape_have_the_same_bits(
    name, settings, tolerance
):
    settings |= {"skip_nonfinite": True}
    # Vectors of one shape with and without decay, each with both rates.
    settings |= {"exclude_from_weight_decay": ("layer_0",)}
    settings |= {"learning_rate_factors": {"dense/bias": 0.5}}
    applied, one, by_shape = (
        updated(OPTIMIZERS[name](0.01, **settings), kind) for kind in (None, False, True)
    )
    assert applied.keys() == one.keys() == by_shape.keys()
    for key, value in one.items():
        np.testing.assert_array_equal(by_shape[key], value, err_msg=str(key))
        np.testing.assert_allclose(applied[key], value, rtol=0, atol=tolerance, err_msg=str(key))


def after_a_step(kind, num_devices):
    """A kernel and its moments. Each of two replicas has its gradient, one replica their sum."""
    strategy = strategy_on(num_devices)
    with strategy.scope(), keras.name_scope("bert"), keras.name_scope("layer_0"):
        kernel = keras.Variable(np.float32([[1, 2], [3, -4], [5, 6]]), name="kernel")
        optimizer = kind(0.1)
        optimizer.build([kernel])

    def step():
        parts = tf.constant(random_gradients({"parts": (2, 3, 2)}, seed=0)["parts"])
        number = tf.distribute.get_replica_context().replica_id_in_sync_group
        optimizer.apply([tf.reduce_sum(parts, 0) if num_devices == 1 else parts[number]], [kernel])

    tf.function(lambda: strategy.run(step))()
    return [value.numpy() for value in (kernel, *optimizer.slots(kernel).values())]


@pytest.mark.night
@pytest.mark.parametrize("kind", [AdamW, Lamb, Muon])
def test_two_replicas_take_the_step_of_one(kind):
    for one, two in zip(after_a_step(kind, 1), after_a_step(kind, 2), strict=True):
        np.testing.assert_allclose(two, one, rtol=0, atol=1e-6)


def test_a_lamb_update_is_as_long_as_the_rate_times_the_variable():
    rows = {  # before, gradient, after an update with the sign of the gradient
        "kernel": ([[3, 0], [0, 4]], [[1e-3, 2e-3], [-1e-3, 1e-3]], [[2.75, -0.25], [0.25, 3.75]]),
        "bias": ([3, 4], [5.0, -7.0], [2.9, 4.1]),
        "zero": ([0, 0, 0], [1.0, -2.0, 3.0], [-0.1, 0.1, -0.1]),
        "still": ([1, 1, 1], [0.0, 0.0, 0.0], [1, 1, 1]),
    }
    variables = [keras.Variable(np.float32(rows[name][0]), name=name) for name in rows]
    Lamb(0.1, weight_decay_rate=0.0).apply([tf.constant(rows[n][1]) for n in rows], variables)
    for variable in variables:  # the kernel's norm is 5, and 2 that of its direction
        np.testing.assert_allclose(variable, rows[variable.name][2], rtol=0, atol=3e-4)


def test_a_resumed_optimizer_takes_the_steps_of_one_that_never_stopped(tmp_path):
    def made(seed):
        keras.utils.set_random_seed(seed)
        model = model_of(2)
        freeze(model, "0", num_hidden_layers=2)
        optimizer = Muon(WarmupDecay(1e-2, 4, 2))
        optimizer.build(model.trainable_variables)
        return model, optimizer

    results = []
    for pauses in (False, True):
        model, optimizer = made(seed=5)
        take_steps(optimizer, model.trainable_variables, range(2))
        if pauses:
            prefix = save_checkpoint(str(tmp_path), training_variables(model, optimizer), step=2)
            model, optimizer = made(seed=6)  # other initial weights, frozen ones too
            restore_checkpoint(prefix, training_variables(model, optimizer))
        take_steps(optimizer, model.trainable_variables, range(2, 4))
        results.append(training_variables(model, optimizer))
    straight, resumed = results
    assert int(resumed["global_step"]) == 4
    frozen = "bert/encoder/layer_0/output/dense/bias"  # saved, without moments
    assert frozen in straight and f"{frozen}/adam_m" not in straight
    for name, variable in straight.items():
        np.testing.assert_array_equal(variable, resumed[name], err_msg=name)


def test_repeated_ids_in_a_sparse_gradient_count_as_their_sum():
    rows, ids = np.float32([[1, 2], [30, 40], [-3, 0.5], [5, 6]]), [2, 0, 2, 2]
    dense = np.zeros((4, 2), np.float32)
    np.add.at(dense, ids, rows)
    results = []
    for gradient in (tf.IndexedSlices(rows, tf.constant(ids), tf.constant([4, 2])), dense):
        table = keras.Variable(np.ones((4, 2), np.float32), name="word_embeddings")
        optimizer = AdamWeightDecay(0.1)
        for _ in range(3):
            optimizer.apply([tf.nest.map_structure(tf.identity, gradient)], [table])
        results.append([table.numpy(), *map(np.asarray, optimizer.slots(table).values())])
    for sparse, expected in zip(*results, strict=True):
        np.testing.assert_array_equal(sparse, expected)


@pytest.mark.parametrize("ours, theirs", PAIRS)
def test_other_settings_reach_the_update(ours, theirs):
    settings = dict(weight_decay_rate=0.3, beta_1=0.5, beta_2=0.7, epsilon=0.01)
    settings["exclude_from_weight_decay"] = ["emb.*ings"]
    table = keras.Variable(np.full((3,), 4.0, np.float32), name="embeddings")
    bias = keras.Variable(np.full((2,), 4.0, np.float32), name="bias")
    optimizer, expected = ours(0.1, **settings), theirs(**settings)
    values = {"embeddings": table.numpy(), "bias": bias.numpy()}
    for step in range(4):
        gradients = random_gradients({"embeddings": (3,), "bias": (2,)}, seed=step)
        optimizer.apply([tf.constant(gradients[v.path]) for v in (table, bias)], [table, bias])
        values = expected.update(values, gradients, 0.1)
    np.testing.assert_allclose(table, values["embeddings"], atol=1e-6)
    np.testing.assert_allclose(bias, values["bias"], atol=1e-6)


def test_serialization_keeps_every_setting():
    schedule = WarmupDecay(3e-4, num_train_steps=9, num_warmup_steps=2)
    for kind in OPTIMIZERS.values():
        optimizer = kind(
            schedule,
            weight_decay_rate=0.2,
            beta_1=0.8,
            beta_2=0.95,
            epsilon=1e-4,
            exclude_from_weight_decay=("pooler",),
            learning_rate_factors={"pooler": 0.25, "dense": 0.5},
            skip_nonfinite=True,
            name="mine",
            clipnorm=2.0,
            **({"product_dtype": "bfloat16"} if kind is Muon else {}),
        )
        copy = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
        assert type(copy) is kind
        assert copy.get_config() == optimizer.get_config()
        assert copy.learning_rate_factor("bert/pooler/dense/kernel") == 0.25  # the first match
        assert copy.decays("bias") and not copy.decays("bert/pooler/dense/kernel")
        assert float(copy.schedule(4)) == float(schedule(4))


def test_layers_learn_the_slower_the_nearer_they_are_to_the_input():
    # layer_1 is not to be taken for layer_10 or layer_11
    factors = layer_learning_rate_factors(num_hidden_layers=12, decay=0.5)
    optimizer = AdamWeightDecay(1.0, learning_rate_factors=factors)
    for path, power in {
        "bert/embeddings/word_embeddings": 13,
        "bert/encoder/layer_1/output/LayerNorm/beta": 11,
        "bert/encoder/layer_10/output/dense/bias": 2,
        "bert/encoder/layer_11/intermediate/dense/kernel": 1,
        "bert/pooler/dense/kernel": 0,
    }.items():
        assert optimizer.learning_rate_factor(path) == 0.5**power, path


def test_each_variable_is_updated_with_its_share_of_the_rate():
    shares = {
        "bert/embeddings/position_embeddings": 0.027,
        "bert/encoder/layer_0/output/dense/kernel": 0.09,
        "bert/encoder/layer_1/attention/output/LayerNorm/gamma": 0.3,
        "bert/pooler/dense/bias": 1.0,
        "cls/seq_relationship/output_weights": 1.0,
    }
    for ours, theirs in PAIRS:
        variables = [v for v in model_of(2).trainable_variables if v.path in shares]
        before = {variable.path: variable.numpy() for variable in variables}
        optimizer = ours(0.1, learning_rate_factors=layer_learning_rate_factors(2, 0.3))
        optimizer.build(variables)
        take_steps(optimizer, variables, [0])
        gradients = random_gradients({p: value.shape for p, value in before.items()}, seed=0)
        for variable in variables:
            path, rate = variable.path, 0.1 * shares[variable.path]
            expected = theirs().update({path: before[path]}, gradients, rate)[path]
            np.testing.assert_allclose(variable, expected, rtol=0, atol=1e-6, err_msg=path)
        assert len(variables) == len(shares)


def test_what_is_frozen_is_named_by_part_and_layer():
    model = model_of(2)
    total = len(model.trainable_variables)
    for text, expected in {
        "": set(),
        "embeddings": {"embeddings"},
        "embeddings,0": {"embeddings", "layer_0"},
        " pooler , 0-1,": {"pooler", "layer_0", "layer_1"},
        "encoder": {"layer_0", "layer_1"},
        "1-1,1": {"layer_1"},
    }.items():
        for variable in model.weights:
            variable.trainable = True
        frozen = freeze(model, text, num_hidden_layers=2)
        parts = {path.split("/")[2 if "/encoder/" in path else 1] for path in frozen}
        assert parts == expected
        assert {v.path for v in model.weights if not v.trainable} == set(frozen)
        assert len(frozen) == len(set(frozen)) == total - len(model.trainable_variables)


def test_parts_that_do_not_exist_are_refused():
    model = model_of(2)
    for text in ("0-2", "embeddings,5", "1-0", "-1", "layer_0"):
        assert cause_of(freeze, model, text, num_hidden_layers=2) == "freeze"
        assert all(variable.trainable for variable in model.weights), text
