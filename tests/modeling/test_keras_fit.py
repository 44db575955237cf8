"""The models are ordinary Keras models: compile and fit, on one device and on two."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.data.features import split
from bert_tf.modeling.models import (
    BertForSequenceClassification,
)
from bert_tf.tasks.classification import ClassificationTask
from bert_tf.training.optimization import AdamWeightDecay
from bert_tf.training.schedules import WarmupDecay

S, LABELS, EXAMPLES, BATCH, STEPS = 7, 3, 48, 8, 30
CONFIG = BertConfig(
    vocab_size=23,
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=11,
    max_position_embeddings=9,
    type_vocab_size=2,
    initializer_range=0.2,
)


def inputs(rng):
    lengths = rng.integers(3, S + 1, (EXAMPLES, 1))
    mask = (np.arange(S) < lengths).astype("int32")
    return {
        "input_ids": rng.integers(5, 23, (EXAMPLES, S)).astype("int32") * mask,
        "input_mask": mask,
        "segment_ids": np.zeros((EXAMPLES, S), "int32"),
    }


def classification_batches():
    """The second token tells the label; the last example of each batch is no real one."""
    rng = np.random.default_rng(1)
    features = inputs(rng)
    features["label_ids"] = rng.integers(0, LABELS, EXAMPLES).astype("int32")
    features["input_ids"][:, 1] = 5 + features["label_ids"]
    features["is_real_example"] = (np.arange(EXAMPLES) % BATCH != BATCH - 1).astype("int32")
    task = ClassificationTask([str(label) for label in range(LABELS)], S)
    return batches(features, task.features)


def batches(features, specs):
    dataset = tf.data.Dataset.from_tensor_slices(features).repeat().batch(BATCH)
    return dataset.map(lambda batch: split(specs, batch)).take(STEPS)


def cross_entropy():
    # The mean over what has a weight: Keras' default reduction divides by all positions.
    return keras.losses.SparseCategoricalCrossentropy(
        from_logits=True, reduction="mean_with_sample_weight"
    )


def compiled(model, *outputs, jit_compile=False):
    schedule = WarmupDecay(5e-3, num_train_steps=3 * STEPS, num_warmup_steps=STEPS // 2)
    model.compile(
        optimizer=AdamWeightDecay(schedule, global_clipnorm=1.0),
        loss={name: cross_entropy() for name in outputs},
        jit_compile=jit_compile,
    )
    return model


def fit(model, dataset):
    return model.fit(dataset, epochs=3, steps_per_epoch=STEPS, shuffle=False, verbose=0).history


def test_a_classifier_learns_by_fit_as_keras_compiles_it_by_default():
    keras.utils.set_random_seed(1)
    config = dataclasses.replace(CONFIG, num_hidden_layers=1)  # XLA compiles it in half the time
    model = BertForSequenceClassification(config, LABELS)
    compiled(model, "logits", jit_compile="auto")
    losses = fit(model, classification_batches().repeat())["loss"]
    assert losses[-1] < 0.6 * losses[0]


def test_the_only_output_needs_no_name_and_the_mask_may_have_its_other_one():
    model = BertForSequenceClassification(CONFIG, LABELS)
    names = {"input_mask": "attention_mask"}
    batches = classification_batches().map(
        lambda x, y, w: ({names.get(n, n): v for n, v in x.items()}, y["logits"], w["logits"])
    )
    model.compile("adam", cross_entropy(), weighted_metrics=["accuracy"], run_eagerly=True)
    history = model.fit(batches.take(2), verbose=0).history
    assert set(history) == {"loss", "accuracy"}
    assert np.isfinite(history["loss"]).all()


@pytest.mark.parametrize(
    "loss",
    [
        "sparse_categorical_crossentropy",
        keras.losses.SparseCategoricalCrossentropy(),
        {"logits": keras.losses.sparse_categorical_crossentropy},
        ["binary_focal_crossentropy"],
        keras.losses.KLDivergence(),
        keras.losses.Dice(),
    ],
)
def test_a_loss_that_takes_logits_for_probabilities_is_an_error(loss):
    model = BertForSequenceClassification(CONFIG, LABELS)
    model.compile("adam", loss, run_eagerly=True)
    with pytest.raises(ValueError, match=r"`logits` .*from_logits=True"):
        model.fit(classification_batches().take(1), verbose=0)


def test_evaluate_and_predict_take_the_batches_of_split():
    keras.utils.set_random_seed(3)
    model = compiled(BertForSequenceClassification(CONFIG, LABELS), "logits")
    dataset = classification_batches().take(2)
    loss = model.evaluate(dataset, steps=2, verbose=0)
    logits = model.predict(dataset, steps=2, verbose=0)["logits"]
    labels, weights = (
        np.concatenate([part["logits"].numpy() for part in parts])
        for parts in zip(*((y, weight) for _, y, weight in dataset), strict=True)
    )
    nll = np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(len(labels)), labels]
    assert loss == pytest.approx((weights * nll).sum() / weights.sum(), rel=1e-5)


def test_frozen_parts_are_still_frozen_in_a_saved_and_in_a_cloned_model(tmp_path):
    model = BertForSequenceClassification(CONFIG, LABELS)
    model.bert.embeddings.trainable = model.bert.encoder_layers[0].trainable = False
    model.bert.pooler.bias.trainable = False
    trained = [variable.path for variable in model.trainable_variables]
    model.save(tmp_path / "frozen.keras")
    for copy in (
        keras.saving.load_model(tmp_path / "frozen.keras"),
        keras.models.clone_model(model),
    ):
        assert [variable.path for variable in copy.trainable_variables] == trained
    model.bert.trainable = False
    copy = keras.models.clone_model(model)
    assert len(copy.trainable_variables) == 2
    copy.trainable = False
    assert not type(model).from_config(copy.get_config()).trainable
