"""Losses of embeddings. Most compare the texts of an example with those of the whole batch.

A batch has N examples of K texts: an anchor, its positive and perhaps negatives; or two texts and a
score. All similarities are cosines.

Outputs: `embedding` float32 [N, K, E].
Features: `text_numbers` int32 [N, K], equal for equal texts, 0 = no text; `label_ids` float32 [N],
scores.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from bert_tf.training.losses import Loss

Tensors = Mapping[str, Any]

# Types of examples: anchors with positives, two texts with a score.
PAIRS, SCORES = "pairs", "scores"

MARGIN = 0.5  # between cosines, in contrastive and the triplet losses
_NEVER = -1e30  # a logit, for float32


def embedding_loss(name: str, *, scale: float = 20.0, widths: Sequence[int] = ()) -> Loss:
    """Return a loss by its name, one of `EMBEDDING_LOSSES`.

    Args:
        scale: multiplies the cosines in the losses with a softmax: 1 / temperature.
        widths: also compute the loss of the first `width` numbers of each vector, and add all
            (Matryoshka; Kusupati et al. 2022, arXiv 2205.13147).
    """
    rule, has_scale, _ = EMBEDDING_LOSSES[name]
    compute = functools.partial(rule, scale=scale) if has_scale else rule

    def total(outputs: Tensors, features: Tensors):
        vectors = outputs["embedding"]
        whole = vectors.shape[-1]
        terms = []
        for width in dict.fromkeys((whole, *widths)):
            unit = tf.math.l2_normalize(vectors[..., :width], axis=-1)
            terms.append(tf.reduce_mean(compute(unit, features)))
        return tf.add_n(terms) * _number_of_examples(features)

    return Loss("loss", total, _number_of_examples, whole_batch=("embedding",))


def _number_of_examples(features: Tensors):
    return tf.cast(tf.size(features["label_ids"]), tf.float32)


def multiple_negatives_ranking(unit, features: Tensors, *, scale: float):
    """Return the cross-entropy of the own positive among all positives and negatives of the batch.

    A text is left out if it equals the anchor, or a positive of the same anchor in any example.

    Args:
        unit: unit vectors of anchor, positive and negatives, float32 [N, K, E].
        features: `text_numbers` int32 [N, K].
        scale: factor of the cosines, 1 / temperature.

    Returns:
        float32 [N].

    Source: Henderson et al. 2017, arXiv 1705.00652, section 4; van den Oord et al. 2018 (InfoNCE).
    """
    anchors, positives = unit[:, 0], unit[:, 1]
    numbers = features["text_numbers"]
    count = tf.shape(unit)[0]
    negatives = tf.reshape(unit[:, 2:], [-1, unit.shape[-1]])
    logits = tf.matmul(anchors, tf.concat([positives, negatives], 0), transpose_b=True)
    has_anchor = tf.cast(_same(numbers[:, 0], numbers[:, 0]), tf.float32)

    def is_excluded(texts):
        is_positive = tf.cast(_same(numbers[:, 1], texts), tf.float32)
        is_positive = tf.matmul(has_anchor, is_positive) > 0  # of an example with the same anchor
        return is_positive | _same(numbers[:, 0], texts) | (texts == 0)

    others = is_excluded(numbers[:, 1]) & ~tf.eye(count, dtype=tf.bool)
    left_out = tf.concat([others, is_excluded(tf.reshape(numbers[:, 2:], [-1]))], 1)
    logits = tf.where(left_out, _NEVER, logits * scale)
    return tf.nn.sparse_softmax_cross_entropy_with_logits(labels=tf.range(count), logits=logits)


def multiple_negatives_symmetric_ranking(unit, features: Tensors, *, scale: float):
    """Return the mean of `multiple_negatives_ranking` from anchors and from positives, float32 [N]."""
    numbers = features["text_numbers"]
    other = {"text_numbers": tf.stack([numbers[:, 1], numbers[:, 0]], 1)}
    swapped = tf.stack([unit[:, 1], unit[:, 0]], 1)
    forward = multiple_negatives_ranking(unit, features, scale=scale)
    backward = multiple_negatives_ranking(swapped, other, scale=scale)
    return (forward + backward) / 2.0


def cosine_similarity(unit, features: Tensors):
    """Return the squared difference between the cosine of two texts and their score, float32 [N].

    Args:
        unit: unit vectors of both texts, float32 [N, 2, E].
        features: `label_ids` float32 [N], the scores.
    """
    return (_cosines(unit) - features["label_ids"]) ** 2


def cosent(unit, features: Tensors, *, scale: float):
    """Return log(1 + sum of exp(scale * (c_i - c_j))) over the pairs with score i < score j.

    Its value is that of the whole batch. Only the order of the scores counts.

    Args:
        unit: unit vectors of both texts, float32 [N, 2, E]; c_i is their cosine.
        features: `label_ids` float32 [N], the scores.
        scale: factor of the cosines, 1 / temperature.

    Returns:
        float32 scalar.

    Source: Su, "CoSENT", kexue.fm/archives/8847, 2022.
    """
    cosines, scores = _cosines(unit) * scale, features["label_ids"]
    differences = cosines[:, None] - cosines[None, :]
    is_wrong_order = scores[:, None] < scores[None, :]
    terms = tf.reshape(tf.where(is_wrong_order, differences, _NEVER), [-1])
    return tf.reduce_logsumexp(tf.concat([[0.0], terms], 0))


def contrastive(unit, features: Tensors):
    """Return label * d^2 / 2 + (1 - label) * max(0, MARGIN - d)^2 / 2, with d = 1 - cosine.

    Args:
        unit: unit vectors of both texts, float32 [N, 2, E].
        features: `label_ids` float32 [N], 1 = near, 0 = far.

    Returns:
        float32 [N].

    Source: Hadsell, Chopra and LeCun 2006, equation 4.
    """
    distances, labels = 1.0 - _cosines(unit), features["label_ids"]
    missing = tf.nn.relu(MARGIN - distances)
    return 0.5 * (labels * distances**2 + (1.0 - labels) * missing**2)


def triplet(unit, features: Tensors):
    """Return the mean over the negatives n of max(0, MARGIN + cos(anchor, n) - cos(anchor, positive)).

    A negative that equals the anchor or the positive does not count. An example without others has 0.

    Args:
        unit: unit vectors of anchor, positive and negatives, float32 [N, K, E].
        features: `text_numbers` int32 [N, K].

    Returns:
        float32 [N].

    Source: Reimers and Gurevych 2019, arXiv 1908.10084, section 3, with cosine distances.
    """
    if unit.shape[1] == 2:
        raise ValueError(
            "loss=triplet needs a negative in the examples, but the task's num_texts is 2. Add "
            "negatives, with num_texts=3 or more, or use loss=multiple_negatives_ranking."
        )
    near = tf.reduce_sum(unit[:, 0] * unit[:, 1], -1)[:, None]
    far = tf.einsum("ne,nke->nk", unit[:, 0], unit[:, 2:])
    numbers = features["text_numbers"]
    negatives = numbers[:, 2:]
    differs = tf.reduce_all(negatives[:, :, None] != numbers[:, None, :2], -1)
    counts = tf.cast((negatives > 0) & differs, tf.float32)
    missing = tf.nn.relu(far - near + MARGIN) * counts
    return tf.math.divide_no_nan(tf.reduce_sum(missing, 1), tf.reduce_sum(counts, 1))


def _cosines(unit):
    return tf.reduce_sum(unit[:, 0] * unit[:, 1], axis=-1)


def _same(rows, columns):
    return rows[:, None] == columns[None, :]


# Name -> rule, whether it takes `scale`, type of examples. A rule: (unit vectors [N, K, E], features)
# -> the loss of each example [N], or of the batch, a scalar.
EMBEDDING_LOSSES: dict[str, tuple[Callable, bool, str]] = {
    "multiple_negatives_ranking": (multiple_negatives_ranking, True, PAIRS),
    "multiple_negatives_symmetric_ranking": (multiple_negatives_symmetric_ranking, True, PAIRS),
    "cosine_similarity": (cosine_similarity, False, SCORES),
    "cosent": (cosent, True, SCORES),
    "contrastive": (contrastive, False, SCORES),
    "triplet": (triplet, False, PAIRS),
}
