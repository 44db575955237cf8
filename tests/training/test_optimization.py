"""The optimizer and its schedule against the reference's, stated in NumPy."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.modeling.models import BertForPreTraining, BertForSequenceClassification
from bert_tf.training.optimization import AdamWeightDecay, WarmupLinearDecay
from reference import optimizer as reference

CONFIG = BertConfig(
    vocab_size=13,
    hidden_size=4,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=6,
    max_position_embeddings=7,
    type_vocab_size=3,
)


def random_gradients(shapes, seed):
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}


@pytest.mark.parametrize(
    "peak, num_train_steps, num_warmup_steps",
    [(1e-3, 10, 4), (5e-5, 7, 0), (2.0, 6, 6), (1e-4, 100_000, 10_000), (1.0, 1, 0), (1.0, 1, 1)],
)
def test_the_rate_is_the_references_at_every_step(peak, num_train_steps, num_warmup_steps):
    schedule = WarmupLinearDecay(peak, num_train_steps, num_warmup_steps)
    steps = {0, 1, num_warmup_steps, num_train_steps, num_train_steps + 1, 10 * num_train_steps}
    steps |= {max(0, num_warmup_steps - 1), num_warmup_steps + 1, max(0, num_train_steps - 1)}
    steps |= set(range(min(12, num_train_steps)))
    for step in sorted(steps):
        expected = reference.learning_rate(step, peak, num_train_steps, num_warmup_steps)
        assert float(schedule(step)) == pytest.approx(expected, rel=1e-6, abs=1e-7 * peak), step


def test_the_first_rate_of_a_warm_up_is_zero_and_the_rate_falls_where_it_ends():
    schedule = WarmupLinearDecay(1.0, num_train_steps=10, num_warmup_steps=4)
    rates = [round(float(schedule(step)), 6) for step in (0, 3, 4, 9, 10, 11)]
    assert rates == [0.0, 0.75, 0.6, 0.1, 0.0, 0.0]


def test_the_schedule_takes_the_optimizers_step_counter():
    schedule = WarmupLinearDecay(1.0, num_train_steps=8, num_warmup_steps=2)
    assert float(tf.function(schedule)(tf.constant(4, tf.int64))) == 0.5
    assert schedule(keras.Variable(1, dtype="int32")).dtype == tf.float32


@pytest.mark.parametrize(
    "steps, message",
    [
        ((0, 0), "`num_train_steps` is 0, but must be 1 or more. With few examples"),
        ((-1, 0), "`num_train_steps` is -1"),
        ((5, 6), "`num_warmup_steps` is 6, but must be at least 0 and at most .* = 5"),
        ((5, -1), "`num_warmup_steps` is -1"),
    ],
)
def test_numbers_of_steps_out_of_range_are_refused(steps, message):
    with pytest.raises(ValueError, match=message):
        WarmupLinearDecay(1e-3, *steps)


def test_a_trajectory_of_all_variables_of_a_model_is_the_references():
    variables = BertForPreTraining(CONFIG).trainable_variables
    schedule = WarmupLinearDecay(1e-2, num_train_steps=20, num_warmup_steps=5)
    optimizer, expected = AdamWeightDecay(schedule), reference.AdamWeightDecayOptimizer()
    optimizer.build(variables)
    values = {variable.path: variable.numpy() for variable in variables}
    shapes = {path: value.shape for path, value in values.items()}
    for step in range(20):
        gradients = random_gradients(shapes, seed=step)
        optimizer.apply([tf.constant(gradients[v.path]) for v in variables], variables)
        values = expected.update(values, gradients, reference.learning_rate(step, 1e-2, 20, 5))
        for variable in variables:
            np.testing.assert_allclose(variable, values[variable.path], rtol=0, atol=1e-6)
    for variable in variables:
        slots = optimizer.slots(variable)
        np.testing.assert_allclose(slots["adam_m"], expected.adam_m[variable.path], atol=1e-6)
        np.testing.assert_allclose(slots["adam_v"], expected.adam_v[variable.path], atol=1e-6)
    assert int(optimizer.iterations) == 20


def test_biases_and_layer_norms_are_not_decayed_and_embeddings_are():
    variables = BertForPreTraining(CONFIG).trainable_variables
    optimizer = AdamWeightDecay(1.0)
    optimizer.build(variables)
    before = {variable.path: np.full(variable.shape, 2.0, np.float32) for variable in variables}
    for variable in variables:
        variable.assign(before[variable.path])
    optimizer.apply([tf.zeros(variable.shape) for variable in variables], variables)
    decayed = {v.path for v in variables if not np.array_equal(v.numpy(), before[v.path])}
    assert decayed == {path for path in before if reference.uses_weight_decay(path)}
    assert "bert/embeddings/word_embeddings" in decayed
    assert "cls/seq_relationship/output_weights" in decayed
    assert not decayed & {"bert/embeddings/LayerNorm/gamma", "cls/predictions/output_bias"}
    for variable in variables:
        left = 0.99 if variable.path in decayed else 1.0  # 1 - rate * weight_decay_rate
        np.testing.assert_allclose(variable, left * before[variable.path], rtol=1e-6)


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
        slots = optimizer.slots(table)
        results.append([table.numpy(), slots["adam_m"].numpy(), slots["adam_v"].numpy()])
    for sparse, expected in zip(*results, strict=True):
        np.testing.assert_array_equal(sparse, expected)


def test_other_settings_reach_the_update():
    settings = dict(weight_decay_rate=0.3, beta_1=0.5, beta_2=0.7, epsilon=0.01)
    settings["exclude_from_weight_decay"] = ["emb.*ings"]
    table = keras.Variable(np.full((3,), 4.0, np.float32), name="embeddings")
    bias = keras.Variable(np.full((2,), 4.0, np.float32), name="bias")
    optimizer = AdamWeightDecay(0.1, **settings)
    expected = reference.AdamWeightDecayOptimizer(**settings)
    values = {"embeddings": table.numpy(), "bias": bias.numpy()}
    for step in range(4):
        gradients = random_gradients({"embeddings": (3,), "bias": (2,)}, seed=step)
        optimizer.apply([tf.constant(gradients[v.path]) for v in (table, bias)], [table, bias])
        values = expected.update(values, gradients, 0.1)
    np.testing.assert_allclose(table, values["embeddings"], atol=1e-6)
    np.testing.assert_allclose(bias, values["bias"], atol=1e-6)


def test_serialization_keeps_every_setting():
    schedule = WarmupLinearDecay(3e-4, num_train_steps=9, num_warmup_steps=2)
    optimizer = AdamWeightDecay(
        schedule,
        weight_decay_rate=0.2,
        beta_1=0.8,
        beta_2=0.95,
        epsilon=1e-4,
        exclude_from_weight_decay=("pooler",),
        name="mine",
        clipnorm=2.0,
    )
    copy = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    assert type(copy) is AdamWeightDecay
    assert copy.get_config() == optimizer.get_config()
    assert copy.decays("bias") and not copy.decays("bert/pooler/dense/kernel")
    assert [float(copy._learning_rate(step)) for step in (1, 4)] == [
        float(schedule(step)) for step in (1, 4)
    ]


def regression():
    """One dense layer after 6 full-batch steps of `fit`: the model, its data, and where it began."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(5, 3)).astype("float32"), rng.normal(size=(5, 1)).astype("float32")
    inputs = keras.Input((3,))
    model = keras.Model(inputs, keras.layers.Dense(1, name="dense")(inputs))
    start = {variable.path: variable.numpy() for variable in model.trainable_variables}
    schedule = WarmupLinearDecay(0.1, num_train_steps=6, num_warmup_steps=2)
    model.compile(optimizer=AdamWeightDecay(schedule), loss="mse")
    model.fit(x, y, batch_size=5, epochs=6, verbose=0)
    return model, x, y, start


def test_fit_takes_the_same_steps_as_the_reference():
    model, x, y, values = regression()
    expected = reference.AdamWeightDecayOptimizer()
    for step in range(6):
        error = x @ values["dense/kernel"] + values["dense/bias"] - y
        gradients = {"dense/kernel": 2 / 5 * x.T @ error, "dense/bias": 2 / 5 * error.sum(axis=0)}
        values = expected.update(values, gradients, reference.learning_rate(step, 0.1, 6, 2))
    for variable in model.trainable_variables:
        np.testing.assert_allclose(variable, values[variable.path], atol=1e-6)


def test_a_keras_file_holds_the_optimizer_with_its_moments(tmp_path):
    model, *_ = regression()
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert int(loaded.optimizer.iterations) == 6
    for ours, theirs in zip(loaded.trainable_variables, model.trainable_variables, strict=True):
        for slot, moment in model.optimizer.slots(theirs).items():
            np.testing.assert_array_equal(loaded.optimizer.slots(ours)[slot], moment)


def test_a_classifier_learns_with_compile_and_fit():
    keras.utils.set_random_seed(3)
    model = BertForSequenceClassification(CONFIG, num_labels=2)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=AdamWeightDecay(0.02), loss={"logits": loss})
    x = {"input_ids": np.int32([[1, 2, 3], [4, 5, 6], [1, 5, 2], [4, 2, 3]])}
    y = {"logits": np.int32([0, 1, 0, 1])}
    history = model.fit(x, y, batch_size=4, epochs=12, verbose=0).history["loss"]
    assert history[-1] < 0.3 * history[0]
