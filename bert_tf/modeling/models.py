"""Keras models of the encoder with a head for each task: dict of tensors in, dict of logits out.

Shapes: B batch, S sequence, V vocabulary, P predictions, L labels, K choices. Inputs as in `BertModel`.
Outputs are float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import keras
from keras import ops

from bert_tf.config import HUGGINGFACE_PROBLEM_TYPES, BertConfig
from bert_tf.modeling.bert import BertModel
from bert_tf.modeling.configured_model import ConfiguredModel
from bert_tf.modeling.crf import Crf
from bert_tf.modeling.heads import (
    POOLINGS,
    ClassificationHead,
    MaskedLMHead,
    NextSentenceHead,
    ProjectionHead,
    SpanHead,
    check_pooling,
    sentence_embedding,
)
from bert_tf.modeling.inputs import normalize_inputs


class _ModelWithHead(ConfiguredModel):
    """An encoder, `bert`, to which a subclass adds its heads."""

    def __init__(self, config: BertConfig, **kwargs):
        super().__init__(config, **kwargs)
        self.bert = BertModel(config, dtype=self.dtype_policy)
        self.built = True


@keras.saving.register_keras_serializable(package="bert_tf")
class BertForPreTraining(_ModelWithHead):
    """Masked language model and next-sentence prediction.

    A left-to-right model (`attention_direction` of the configuration) predicts a masked word at its
    position from the words before it. The paper's left-to-right model predicts every word. Here the
    data and the predicted fraction stay the same, so that only the context differs.

    Inputs: those of `BertModel` and `masked_lm_positions`, int32 [B, P].
    Outputs: `masked_lm_logits` [B, P, V]; `next_sentence_logits` [B, 2] (0 = is next, 1 = random).
    """

    def __init__(self, config: BertConfig, **kwargs):
        super().__init__(config, **kwargs)
        self.masked_lm = MaskedLMHead(config, dtype=self.dtype_policy)
        self.next_sentence = NextSentenceHead(config, 2, dtype=self.dtype_policy)

    def call(self, inputs, training=None) -> dict[str, Any]:
        inputs = normalize_inputs(inputs, "masked_lm_positions")
        masked_lm_positions = inputs.pop("masked_lm_positions")
        outputs = self.bert(inputs, training=training)
        return {
            "masked_lm_logits": self.masked_lm(
                outputs["sequence_output"],
                masked_lm_positions,
                ops.convert_to_tensor(self.bert.embeddings.word_embeddings),
                training=training,
            ),
            "next_sentence_logits": self.next_sentence(outputs["pooled_output"]),
        }


@keras.saving.register_keras_serializable(package="bert_tf")
class BertForMaskedLM(_ModelWithHead):
    """Masked language model without next-sentence prediction.

    Inputs: those of `BertModel`; `masked_lm_positions`, int32 [B, P], default every position.
    Outputs: `masked_lm_logits` [B, P, V].
    """

    def __init__(self, config: BertConfig, **kwargs):
        super().__init__(config, **kwargs)
        self.masked_lm = MaskedLMHead(config, dtype=self.dtype_policy)

    def call(self, inputs, training=None) -> dict[str, Any]:
        inputs = normalize_inputs(inputs, optional=("masked_lm_positions",))
        positions = inputs.pop("masked_lm_positions", None)
        hidden = self.bert(inputs, training=training)["sequence_output"]
        if positions is None:
            batch, length = ops.shape(hidden)[:2]
            positions = ops.broadcast_to(ops.arange(length, dtype="int32"), (batch, length))
        table = ops.convert_to_tensor(self.bert.embeddings.word_embeddings)
        return {"masked_lm_logits": self.masked_lm(hidden, positions, table, training=training)}


class _LabeledModel(_ModelWithHead):
    """Base of the models with `num_labels` outputs; 1 for a number. Default: that of `labels`."""

    def __init__(
        self,
        config: BertConfig,
        num_labels: int | None = None,
        labels: Sequence[str] | None = None,
        **kwargs,
    ):
        super().__init__(config, **kwargs)
        count = len(labels or ()) if num_labels is None else int(num_labels)
        has_order = not isinstance(labels, str | set | frozenset)
        if count < 1 or (labels is not None and len(set(labels)) != count) or not has_order:
            raise ValueError(
                f"`num_labels` is {num_labels} and `labels` {labels!r:.60}, but must be a list of "
                "different names, and their number, 1 or more."
            )
        self.num_labels = count
        self.labels = None if labels is None else tuple(map(str, labels))
        self.classifier = ClassificationHead(config, count, dtype=self.dtype_policy)

    def get_config(self) -> dict[str, Any]:
        names = {} if self.labels is None else {"labels": list(self.labels)}
        return {**super().get_config(), "num_labels": self.num_labels, **names}


@keras.saving.register_keras_serializable(package="bert_tf")
class BertForSequenceClassification(_LabeledModel):
    """A label (or, with one output, a number) for a sentence or a pair of sentences.

    Args:
        problem_type: "single_label_classification" (softmax), "multi_label_classification" (sigmoids,
            as with BinaryCrossentropy) or "regression", for `bert_tf.load` of the saved folder. It does
            not change the logits. Default: that of `config`, else one label, or a number with L = 1.

    Outputs: `logits` [B, L].
    """

    def __init__(
        self,
        config: BertConfig,
        num_labels: int | None = None,
        labels: Sequence[str] | None = None,
        problem_type: str | None = None,
        **kwargs,
    ):
        super().__init__(config, num_labels, labels, **kwargs)
        if problem_type is not None:
            self.config = replace(config, extra={**config.extra, "problem_type": problem_type})
            valid = list(HUGGINGFACE_PROBLEM_TYPES.values())
            valid = valid[self.num_labels == 1 :]  # a label of one class is no choice
            if problem_type not in valid:
                raise ValueError(
                    f"`problem_type` is {problem_type!r}, but must be one of {', '.join(valid)}."
                )

    @property
    def problem_type(self) -> str | None:
        """Type of the labels, in Hugging Face's terms; None for the default."""
        stated = self.config.extra.get("problem_type")
        return stated if stated in HUGGINGFACE_PROBLEM_TYPES.values() else None

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "problem_type": self.problem_type}

    def call(self, inputs, training=None) -> dict[str, Any]:
        pooled_output = self.bert(inputs, training=training)["pooled_output"]
        return {"logits": self.classifier(pooled_output, training=training)}


@keras.saving.register_keras_serializable(package="bert_tf")
class BertForTokenClassification(_LabeledModel):
    """A label for each token.

    Args:
        crf: scheme of the `labels` ("iob2", "words"), for a CRF; None for a model
            without one.

    Outputs: `logits` [B, S, L]; with a CRF `transitions` [B, L + 1, L + 1], the same for each row.
    """

    def __init__(
        self,
        config: BertConfig,
        num_labels: int | None = None,
        labels: Sequence[str] | None = None,
        crf: str | None = None,
        **kwargs,
    ):
        super().__init__(config, num_labels, labels, **kwargs)
        self.crf = None if crf is None else Crf(self.labels or (), crf)

    def call(self, inputs, training=None) -> dict[str, Any]:
        sequence_output = self.bert(inputs, training=training)["sequence_output"]
        logits = self.classifier(sequence_output, training=training)
        return {"logits": logits} | ({} if self.crf is None else {"transitions": self.crf(logits)})

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "crf": self.crf and self.crf.scheme}


@keras.saving.register_keras_serializable(package="bert_tf")
class BertForMultipleChoice(_ModelWithHead):
    """A score for each of K choices. Each choice is a separate sequence.

    Inputs: `input_ids`, `input_mask`, `segment_ids`, int32 [B, K, S].
    Outputs: `logits` [B, K].
    """

    def __init__(self, config: BertConfig, **kwargs):
        super().__init__(config, **kwargs)
        self.classifier = ClassificationHead(config, 1, dtype=self.dtype_policy)

    def call(self, inputs, training=None) -> dict[str, Any]:
        inputs = normalize_inputs(inputs, axes=(3,))
        batch, choices, length = ops.shape(inputs["input_ids"])
        folded = {key: ops.reshape(value, (-1, length)) for key, value in inputs.items()}
        pooled_output = self.bert(folded, training=training)["pooled_output"]  # [B*K, H]
        scores = self.classifier(pooled_output, training=training)  # [B*K, 1]
        return {"logits": ops.reshape(scores, (batch, choices))}


@keras.saving.register_keras_serializable(package="bert_tf")
class BertForQuestionAnswering(_ModelWithHead):
    """Start and end of an answer in the sequence.

    Outputs: `start_logits` [B, S]; `end_logits` [B, S].
    """

    def __init__(self, config: BertConfig, **kwargs):
        super().__init__(config, **kwargs)
        self.span = SpanHead(config, 2, dtype=self.dtype_policy)

    def call(self, inputs, training=None) -> dict[str, Any]:
        sequence_output = self.bert(inputs, training=training)["sequence_output"]
        start_logits, end_logits = self.span(sequence_output)
        return {"start_logits": start_logits, "end_logits": end_logits}


@keras.saving.register_keras_serializable(package="bert_tf")
class BertForSentenceEmbedding(_ModelWithHead):
    """A vector for each text.

    Args:
        pooling: one of `heads.POOLINGS`.
        projection_size: E, of a linear layer on the pooled vector. Default: none.

    Inputs: those of `BertModel`, [B, S]; or K texts per example, `input_ids`, `input_mask` [B, K, S].
        `anchor_ids`, `anchor_mask` [B, S]: one text before these, with its own length.
    Outputs: `embedding` [B, E], or [B, K, E] (with an anchor [B, 1 + K, E]); not normalized.
    """

    def __init__(
        self,
        config: BertConfig,
        pooling: str = "mean",
        projection_size: int | None = None,
        **kwargs,
    ):
        super().__init__(config, **kwargs)
        check_pooling(pooling, self)
        self.pooling, self.projection_size = pooling, projection_size
        self.projection = None
        if projection_size is not None:
            width = config.hidden_size * POOLINGS[pooling]
            self.projection = ProjectionHead(
                config, projection_size, width, dtype=self.dtype_policy
            )

    @property
    def width(self) -> int:
        """E."""
        return self.projection_size or self.config.hidden_size * POOLINGS[self.pooling]

    def call(self, inputs, training=None) -> dict[str, Any]:
        inputs = normalize_inputs(inputs, optional=("anchor_ids", "anchor_mask"), axes=(2, 3))
        anchor = {"input_ids": inputs.pop("anchor_ids", None)}
        anchor["input_mask"] = inputs.pop("anchor_mask", None)
        has_anchor = anchor["input_ids"] is not None
        if len(inputs["input_ids"].shape) == 2 and not has_anchor:
            return {"embedding": self._embed(inputs, training)}
        batch, texts, length = ops.shape(inputs["input_ids"])
        folded = {key: ops.reshape(value, (-1, length)) for key, value in inputs.items()}
        embedding = ops.reshape(self._embed(folded, training), (batch, texts, self.width))
        if has_anchor:
            first = ops.expand_dims(self._embed(anchor, training), 1)
            embedding = ops.concatenate([first, embedding], axis=1)
        return {"embedding": embedding}

    def _embed(self, inputs, training):
        mask = inputs.get("input_mask")
        mask = ops.ones_like(inputs["input_ids"]) if mask is None else mask
        outputs = self.bert(inputs, training=training)
        pooled = sentence_embedding(outputs, mask, self.pooling)
        return pooled if self.projection is None else self.projection(pooled)

    def get_config(self) -> dict[str, Any]:
        own = {"pooling": self.pooling, "projection_size": self.projection_size}
        return {**super().get_config(), **own}
