"""Pre-training: masked language model, and a classifier of sentence pairs.

    objective    the pair (`next_sentence_labels` 0 or 1)
    mlm_nsp      B follows A, or B is random
    mlm_sop      B follows A, or A follows B
    mlm          unused

Shapes: B batch, S sequence, P predictions, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.data.features import FeatureSpec
from bert_tf.modeling.models import BertForPreTraining
from bert_tf.pretraining.instances import pretraining_features
from bert_tf.pretraining.masking_ops import DynamicMasker
from bert_tf.pretraining.sentence_pairs import OBJECTIVES
from bert_tf.registry import TaskType, register_task
from bert_tf.tasks.base import Task, Tensors
from bert_tf.training.losses import cross_entropy, masked_lm_loss, next_sentence_loss


class PretrainingTask(Task):
    """Records of `create_pretraining_data`; the sum of the losses of the objective.

    The model is the same for every objective, so a checkpoint of one can start another. With `mlm`, the
    pooler and the next-sentence head do not change.

    Args:
        max_seq_length: S.
        max_predictions_per_seq: P.
        objective: one of OBJECTIVES.
        masker: masks records without masks; None for masked records.
    """

    name = "pretraining"
    best_metric = "masked_lm_loss"
    lower_is_better = ("loss", "masked_lm_loss", "masked_lm_perplexity", "next_sentence_loss")
    is_pretrained = True

    def __init__(
        self,
        max_seq_length: int,
        max_predictions_per_seq: int,
        objective: str = "mlm_nsp",
        masker: DynamicMasker | None = None,
    ):
        assert objective in OBJECTIVES and max_predictions_per_seq >= 1  # noqa: S101
        self.max_seq_length = max_seq_length
        self.max_predictions_per_seq = max_predictions_per_seq
        self.predictions_per_token = max_predictions_per_seq / max_seq_length
        self.objective = objective
        self.features = pretraining_features(max_seq_length, max_predictions_per_seq, objective)
        self.losses = (masked_lm_loss(),)
        if self._has_pairs:
            self.losses += (next_sentence_loss(),)
        self._masker = masker

    @property
    def _has_pairs(self) -> bool:
        return self.objective != "mlm"

    @property
    def metric_keys(self) -> tuple[str, ...]:
        pair_keys = ("next_sentence_accuracy", "next_sentence_loss")
        word_keys = ("loss", "masked_lm_loss", "masked_lm_accuracy", "masked_lm_perplexity")
        return word_keys + (pair_keys if self._has_pairs else ())

    def id_limits(self, config: BertConfig) -> dict[str, int]:
        return super().id_limits(config) | {
            "masked_lm_positions": self.max_seq_length,
            "masked_lm_ids": config.vocab_size,
            "next_sentence_labels": 2,
        }

    @property
    def record_features(self) -> Sequence[FeatureSpec]:
        if self._masker is None:
            return self.features
        return pretraining_features(self.max_seq_length, None, self.objective)

    def complete(
        self, dataset: tf.data.Dataset, seed: int, first_batch: int = 0
    ) -> tf.data.Dataset:
        """Mask records that have no masks."""
        if self._masker is None:
            return dataset
        masker = tf.autograph.experimental.do_not_convert(self._masker)
        return (
            dataset.enumerate(first_batch)
            .map(
                lambda number, features: masker(features, seed, number),
                num_parallel_calls=tf.data.AUTOTUNE,
                deterministic=True,
            )
            .prefetch(tf.data.AUTOTUNE)
        )

    def arguments(self) -> dict[str, Any]:
        return {
            "max_seq_length": self.max_seq_length,
            "max_predictions_per_seq": self.max_predictions_per_seq,
            "objective": self.objective,
        }

    def build_model(self, config: BertConfig, dtype: str | None = None) -> BertForPreTraining:
        return BertForPreTraining(config, dtype=dtype)

    def eval_outputs(self, outputs: Tensors, features: Tensors) -> Tensors:
        """Return sums per example, because the logits would be [B, P, V]."""
        weights = features["masked_lm_weights"]
        logits, ids = outputs["masked_lm_logits"], features["masked_lm_ids"]
        correct = tf.cast(tf.equal(_argmax(logits), ids), tf.float32)
        sums = {
            "masked_lm_weight": tf.reduce_sum(weights, axis=1),
            "masked_lm_nll": tf.reduce_sum(weights * cross_entropy(logits, ids), axis=1),
            "masked_lm_correct": tf.reduce_sum(weights * correct, axis=1),
        }
        if self._has_pairs:
            logits, labels = outputs["next_sentence_logits"], features["next_sentence_labels"]
            correct = tf.cast(tf.equal(_argmax(logits), labels), tf.float32)
            sums |= {
                "next_sentence_nll": cross_entropy(logits, labels),
                "next_sentence_correct": correct,
            }
        return sums

    def metrics(self, outputs: Mapping[str, np.ndarray]) -> dict[str, float]:
        """Return the reference's keys, and the perplexity: e to the masked-LM loss.

        Losses are in nats, per masked position and per pair.
        """
        # Without a masked position both metrics are 0, as in the reference.
        total = {name: float(values.sum(dtype=np.float64)) for name, values in outputs.items()}
        masked = total["masked_lm_weight"] or 1.0
        masked_lm_loss = total["masked_lm_nll"] / masked
        results = {
            "loss": masked_lm_loss,
            "masked_lm_accuracy": total["masked_lm_correct"] / masked,
            "masked_lm_loss": masked_lm_loss,
        }
        if self._has_pairs:
            accuracy = float(outputs["next_sentence_correct"].mean(dtype=np.float64))
            next_sentence_loss = float(outputs["next_sentence_nll"].mean(dtype=np.float64))
            results["loss"] += next_sentence_loss
            results["next_sentence_accuracy"] = accuracy
            results["next_sentence_loss"] = next_sentence_loss
        with np.errstate(over="ignore"):  # infinite if the loss is large
            results["masked_lm_perplexity"] = float(np.exp(masked_lm_loss))
        return results


def _argmax(logits):
    return tf.argmax(logits, axis=-1, output_type=tf.int32)


register_task(TaskType(name="encoder"))
register_task(TaskType(name="next_sentence"))
_FILL = 'fill_mask("The dog [MASK] at the cat.")'
register_task(TaskType(name="masked_lm", pipeline="fill-mask", usage=_FILL))
register_task(
    TaskType(
        name="pretraining",
        task=PretrainingTask,
        program="run_pretraining",
        pipeline="fill-mask",
        usage=_FILL,
    )
)
