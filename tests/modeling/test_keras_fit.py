"""The models are ordinary Keras models: compile and fit, on one device and on two."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from tiny_config import tiny_config

from bert_tf.config import BertConfig
from bert_tf.data.features import split
from bert_tf.modeling.models import BertForSequenceClassification
from bert_tf.tasks.classification import ClassificationTask
from bert_tf.training.optimizers import AdamWeightDecay
from bert_tf.training.schedules import WarmupDecay

S, LABELS, EXAMPLES, BATCH, STEPS = 7, 3, 48, 8, 30
CONFIG = tiny_config(hidden_size=16, initializer_range=0.2)


def classification_batches():
    """The second token tells the label; the last example of each batch is no real one."""
    rng = np.random.default_rng(1)
    mask = (np.arange(S) < rng.integers(3, S + 1, (EXAMPLES, 1))).astype("int32")
    features = {
        "input_ids": rng.integers(5, 23, (EXAMPLES, S)).astype("int32") * mask,
        "input_mask": mask,
        "segment_ids": np.zeros((EXAMPLES, S), "int32"),
        "label_ids": rng.integers(0, LABELS, EXAMPLES).astype("int32"),
        "is_real_example": (np.arange(EXAMPLES) % BATCH != BATCH - 1).astype("int32"),
    }
    features["input_ids"][:, 1] = 5 + features["label_ids"]
    task = ClassificationTask([str(label) for label in range(LABELS)], S)
    dataset = tf.data.Dataset.from_tensor_slices(features).repeat().batch(BATCH)
    return dataset.map(lambda batch: split(task.features, batch)).take(STEPS)


def cross_entropy():
    # The mean over what has a weight: Keras' default reduction divides by all positions.
    return keras.losses.SparseCategoricalCrossentropy(
        from_logits=True, reduction="mean_with_sample_weight"
    )


def compiled(jit_compile=False):
    model = BertForSequenceClassification(CONFIG, LABELS)
    schedule = WarmupDecay(5e-3, num_train_steps=3 * STEPS, num_warmup_steps=STEPS // 2)
    optimizer = AdamWeightDecay(schedule, global_clipnorm=1.0)
    model.compile(optimizer, loss={"logits": cross_entropy()}, jit_compile=jit_compile)
    return model


@pytest.mark.night
def test_a_classifier_learns_by_fit_as_keras_compiles_it_by_default():
    keras.utils.set_random_seed(1)
    model = compiled(jit_compile="auto")
    dataset = classification_batches().repeat()
    losses = model.fit(dataset, epochs=3, steps_per_epoch=STEPS, verbose=0).history["loss"]
    assert losses[-1] < 0.6 * losses[0]


def test_the_only_output_needs_no_name_and_the_mask_may_have_its_other_one():
    without_dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    model = BertForSequenceClassification(tiny_config(**without_dropout), LABELS)
    model.classifier.dropout.rate = 0.0
    model.compile("adam", {"logits": cross_entropy()}, run_eagerly=True)
    expected = model.evaluate(classification_batches().take(1), verbose=0)
    names = {"input_mask": "attention_mask"}
    batches = classification_batches().map(
        lambda x, y, w: ({names.get(n, n): v for n, v in x.items()}, y["logits"], w["logits"])
    )
    model.compile("adam", cross_entropy(), weighted_metrics=["accuracy"], run_eagerly=True)
    history = model.fit(batches.take(1), verbose=0).history
    assert set(history) == {"loss", "accuracy"}
    assert history["loss"] == [pytest.approx(expected, rel=1e-5)]


def test_a_loss_that_takes_logits_for_probabilities_is_an_error():
    model = BertForSequenceClassification(CONFIG, LABELS)
    for loss in (
        "sparse_categorical_crossentropy",
        keras.losses.SparseCategoricalCrossentropy(),
        {"logits": keras.losses.sparse_categorical_crossentropy},
        ["binary_focal_crossentropy"],
        keras.losses.KLDivergence(),
        keras.losses.Dice(),
    ):
        model.compile("adam", loss, run_eagerly=True)
        with pytest.raises(ValueError, match="from_logits"):
            model.fit(classification_batches().take(1), verbose=0)


def test_evaluate_and_predict_take_the_batches_of_split():
    keras.utils.set_random_seed(3)
    model = compiled()
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
    assert not type(model).from_config(copy.get_config()).trainable_variables


@pytest.mark.night
def test_tensorflows_converter_takes_a_model_after_fit():
    config = BertConfig(50, 8, 1, 2, 16, max_position_embeddings=9)
    model = BertForSequenceClassification(config, num_labels=2)
    inputs = {
        name: np.ones([4, 8], np.int32) for name in ("input_ids", "input_mask", "segment_ids")
    }
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(inputs, np.array([0, 1, 0, 1]), verbose=0)
    assert tf.lite.TFLiteConverter.from_keras_model(model).convert()
