"""Losses of distillation: Keras' Distiller, NumPy and values by hand; parts add up to the whole."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert_tf.embeddings.task import EmbeddingTask
from bert_tf.tasks.classification import ClassificationTask
from bert_tf.tasks.distillation import distillation_losses, divergence, similarity_divergence
from bert_tf.tasks.question_answering import QuestionAnsweringTask
from bert_tf.tasks.token_classification import TokenClassificationTask

RNG = np.random.default_rng(3)


def normal(*shape):
    return RNG.normal(size=shape).astype("float32")


def task_of(problem_type="single_label", **kwargs):
    labels = () if problem_type == "regression" else ("bad", "fair", "good")
    return ClassificationTask(labels, 7, problem_type=problem_type, **kwargs)


def mean(losses, outputs, features):
    """The sum of the terms of one batch, each divided by its weight, as the trainer takes it."""
    outputs, features = (
        {name: tf.constant(value) for name, value in part.items()} for part in (outputs, features)
    )
    found = 0.0
    for loss in losses:
        total = loss.total(outputs, features)
        total = total[0] if loss.accuracy else total
        found += float(total / loss.weight(features))
    return found


def soft_mean(task, temperature, outputs, features):
    """The mean of the soft loss, without its factor."""
    return 2 * mean(distillation_losses(task, temperature)[1:], outputs, features)


def batch(size=5, **features):
    """Features of a classification with three labels."""
    return {
        "label_ids": RNG.integers(3, size=size).astype("int32"),
        "is_real_example": np.ones(size, np.int32),
        "teacher_logits": normal(size, 3),
        **features,
    }


@pytest.mark.parametrize("temperature", [1.0, 3.0])
def test_the_loss_is_that_of_keras_distiller(temperature):
    features, student = batch(), 2 * normal(5, 3)
    both = keras.Input((6,))  # "models" that give their half of the input
    # The name "kl_divergence", its default, means a function of Keras that is not given a softmax.
    kl_divergence = keras.losses.KLDivergence()
    distiller = keras.distillation.Distiller(
        keras.Model(both, both[:, :3]),
        keras.Model(both, both[:, 3:]),
        keras.distillation.LogitsDistillation(temperature, loss=kl_divergence),
        student_loss_weight=0.5,
    )
    distiller.compile(loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    x = np.concatenate([features["teacher_logits"], student], axis=1)
    expected = distiller.compute_loss(x, features["label_ids"], tf.constant(student))
    found = mean(distillation_losses(task_of(), temperature), {"logits": student}, features)
    assert found == pytest.approx(float(expected), rel=1e-5)


def test_several_labels_have_the_binary_cross_entropy_to_the_probabilities_of_the_teacher():
    features, student = batch(label_ids=np.zeros((5, 3), np.float32)), normal(5, 3)
    wanted = tf.sigmoid(features["teacher_logits"] / 2)
    expected = 4 * keras.losses.BinaryCrossentropy(from_logits=True)(wanted, student / 2)
    found = soft_mean(task_of("multi_label"), 2.0, {"logits": student}, features)
    assert found == pytest.approx(float(expected), rel=1e-5)


def test_a_regression_has_the_squared_error_to_the_number_of_the_teacher_at_any_temperature():
    features = batch(2, label_ids=np.float32([0, 0]), teacher_logits=np.float32([[1.0], [2.0]]))
    outputs = {"logits": np.float32([[4.0], [2.5]])}
    assert soft_mean(task_of("regression"), 9.0, outputs, features) == (9 + 0.25) / 2


# ---- other types of task -------------------------------------------------------------------------


def test_words_that_a_window_does_not_predict_have_no_loss():
    task = TokenClassificationTask(("O", "B-A", "I-A"), 6)
    weights = np.float32([[1, 1, 0, 0], [1, 0, 0, 0]])
    features = {
        "word_positions": np.int32([[1, 3, 0, 0], [2, 0, 0, 0]]),
        "label_ids": np.zeros((2, 4), np.int32),
        "label_weights": weights,
        "teacher_logits": normal(2, 4, 3),
    }
    logits = normal(2, 6, 3)
    words = np.stack([logits[0, 1], logits[0, 3], logits[1, 2]])
    soft = divergence(features["teacher_logits"][weights > 0], words, 2.0)
    hard = tf.nn.sparse_softmax_cross_entropy_with_logits([0, 0, 0], words)
    expected = 0.5 * (sum(soft) + sum(hard)) / 3
    losses = distillation_losses(task, 2.0)
    assert mean(losses, {"logits": logits}, features) == pytest.approx(float(expected), rel=1e-5)


def test_an_answer_learns_start_and_end_without_padding_in_a_trimmed_batch():
    task = QuestionAnsweringTask(9, doc_stride=2, max_query_length=2)
    mask = np.int32([[1, 1, 1, 0], [1, 1, 1, 1]])
    whole = np.full((2, 9), -1e30, np.float32)  # padding, as `eval_outputs` gives it
    teacher = {name: np.where(mask, normal(2, 4), -1e30) for name in ("start", "end")}
    outputs = {f"{name}_logits": normal(2, 4) for name in teacher}
    features = {
        "input_ids": mask,
        "input_mask": mask,
        "start_positions": np.int32([0, 0]),
        "end_positions": np.int32([0, 0]),
        "unique_ids": np.int32([1, 2]),
    }
    soft, hard = np.zeros(2), np.zeros(2)
    for name, logits in teacher.items():
        features[f"teacher_{name}_logits"] = whole.copy()
        features[f"teacher_{name}_logits"][:, :4] = logits
        for row, length in enumerate((3, 4)):
            student = outputs[f"{name}_logits"][row, :length]
            soft[row] += divergence(np.float32(logits[row, :length]), student, 2.0) / 2
            hard[row] += tf.nn.sparse_softmax_cross_entropy_with_logits(0, student) / 2
    losses = distillation_losses(task, 2.0)
    expected = 0.5 * (soft.sum() + hard.sum()) / 2
    assert mean(losses, outputs, features) == pytest.approx(expected, rel=1e-5)


def test_similarities_diverge_as_a_loop_over_single_texts_says():
    rng = np.random.default_rng(4)
    teacher, student = (rng.normal(size=(3, 2, size)).astype("float32") for size in (5, 4))
    is_text = np.array([[True, True], [True, False], [True, True]])
    scale, temperature, kept = 3.0, 2.0, np.flatnonzero(is_text)

    def probabilities(vectors, index):
        flat = vectors.reshape(6, -1).astype("float64")
        flat /= np.linalg.norm(flat, axis=-1, keepdims=True)
        others = [other for other in kept if other != index]
        scores = np.exp([scale * flat[index] @ flat[other] / temperature for other in others])
        return scores / scores.sum()

    terms = []
    for index in kept:
        wanted, found = (probabilities(vectors, index) for vectors in (teacher, student))
        terms.append(temperature**2 * np.sum(wanted * np.log(wanted / found)))
    found = similarity_divergence(
        tf.constant(teacher), tf.constant(student), tf.constant(is_text), scale, temperature
    )
    assert float(found) == pytest.approx(np.mean(terms), rel=1e-4)
    turned = teacher @ np.linalg.qr(rng.normal(size=(5, 5)))[0].astype("float32")
    same = similarity_divergence(tf.constant(teacher), tf.constant(turned), is_text, 3.0, 2.0)
    assert float(same) == pytest.approx(0.0, abs=1e-5)


def test_the_first_numbers_of_a_students_vectors_learn_the_similarities_too():
    teacher, student = normal(4, 2, 6), normal(4, 2, 5)
    task = EmbeddingTask(7, matryoshka_dims=(3, 2))
    features = {"teacher_embedding": teacher, "text_numbers": np.ones((4, 2), "int32")}
    features["label_ids"] = np.zeros(4, "float32")
    outputs, is_text = {"embedding": student}, tf.ones((4, 2), tf.bool)
    soft = sum(
        similarity_divergence(tf.constant(teacher), student[..., :width], is_text, 20.0, 2.0)
        for width in (5, 3, 2)
    )
    expected = 0.5 * (mean(task.losses, outputs, features) + float(soft))
    found = mean(distillation_losses(task, 2.0), outputs, features)
    assert found == pytest.approx(expected, rel=1e-5)
