"""Pre-training: masked language model and next-sentence prediction.

Shapes: B batch, S sequence, P predictions, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.data.pretraining_records import pretraining_features
from bert_tf.modeling.models import BertForPreTraining
from bert_tf.tasks.base import Task, Tensors
from bert_tf.training.losses import cross_entropy, masked_lm_loss, next_sentence_loss


class PretrainingTask(Task):
    """Records of `create_pretraining_data`; both losses, added."""

    name = "pretraining"

    def __init__(self, max_seq_length: int, max_predictions_per_seq: int):
        self.max_seq_length = max_seq_length
        self.max_predictions_per_seq = max_predictions_per_seq
        self.features = pretraining_features(max_seq_length, max_predictions_per_seq)
        self.losses = (masked_lm_loss(), next_sentence_loss())

    def arguments(self) -> dict[str, int]:
        return {
            "max_seq_length": self.max_seq_length,
            "max_predictions_per_seq": self.max_predictions_per_seq,
        }

    def build_model(self, config: BertConfig, dtype: str | None = None) -> BertForPreTraining:
        return BertForPreTraining(config, dtype=dtype)

    def eval_outputs(self, outputs: Tensors, features: Tensors) -> Tensors:
        """Sums of each example: the logits themselves would be [B, P, V]."""
        weights = features["masked_lm_weights"]
        logits, ids = outputs["masked_lm_logits"], features["masked_lm_ids"]
        right = tf.cast(tf.equal(_argmax(logits), ids), tf.float32)
        next_logits, next_labels = outputs["next_sentence_logits"], features["next_sentence_labels"]
        return {
            "masked_lm_weight": tf.reduce_sum(weights, axis=1),
            "masked_lm_nll": tf.reduce_sum(weights * cross_entropy(logits, ids), axis=1),
            "masked_lm_right": tf.reduce_sum(weights * right, axis=1),
            "next_sentence_nll": cross_entropy(next_logits, next_labels),
            "next_sentence_right": tf.cast(tf.equal(_argmax(next_logits), next_labels), tf.float32),
        }

    def metrics(self, kept: Mapping[str, np.ndarray]) -> dict[str, float]:
        """The reference's keys; losses in nats, per masked position and per pair."""
        # Without a masked position both figures are 0, as in the reference.
        masked = kept["masked_lm_weight"].sum(dtype=np.float64) or 1.0
        masked_lm_loss = float(kept["masked_lm_nll"].sum(dtype=np.float64) / masked)
        next_sentence_loss = float(kept["next_sentence_nll"].mean(dtype=np.float64))
        return {
            "loss": masked_lm_loss + next_sentence_loss,
            "masked_lm_accuracy": float(kept["masked_lm_right"].sum(dtype=np.float64) / masked),
            "masked_lm_loss": masked_lm_loss,
            "next_sentence_accuracy": float(kept["next_sentence_right"].mean(dtype=np.float64)),
            "next_sentence_loss": next_sentence_loss,
        }


def _argmax(logits):
    return tf.argmax(logits, axis=-1, output_type=tf.int32)
