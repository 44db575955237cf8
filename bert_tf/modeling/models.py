"""Keras models of the encoder with a head for each task: dict of tensors in, dict of logits out.

Shapes: B batch, S sequence, V vocabulary, P predictions, L labels, K choices. Inputs as in `BertModel`.
Outputs are float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
from keras import ops

from bert_tf.config import BertConfig
from bert_tf.modeling.bert import BertModel, ConfiguredModel
from bert_tf.modeling.crf import Crf
from bert_tf.modeling.heads import (
    ClassificationHead,
    MaskedLMHead,
    NextSentenceHead,
    SpanHead,
)
from bert_tf.modeling.inputs import checked_inputs


@keras.saving.register_keras_serializable(package="bert_tf")
class BertForPreTraining(ConfiguredModel):
    """Masked language model and next-sentence prediction.

    A left-to-right model (`attention_direction` of the configuration) predicts a masked word at its
    position from the words before it. The paper's left-to-right model predicts every word. Here the
    data and the predicted fraction stay the same, so that only the context differs.

    Inputs: those of `BertModel` and `masked_lm_positions`, int32 [B, P].
    Outputs: `masked_lm_logits` [B, P, V]; `next_sentence_logits` [B, 2] (0 = is next, 1 = random).
    """

    exported_inputs = dict.fromkeys(
        (*ConfiguredModel.exported_inputs, "masked_lm_positions"), (None, None)
    )

    def __init__(self, config: BertConfig, **kwargs):
        super().__init__(config, **kwargs)
        self.bert = BertModel(config, dtype=self.dtype_policy)
        self.masked_lm = MaskedLMHead(config, dtype=self.dtype_policy)
        self.next_sentence = NextSentenceHead(config, dtype=self.dtype_policy)
        self.built = True

    def call(self, inputs, training=None) -> dict[str, Any]:
        inputs = checked_inputs(inputs, "masked_lm_positions")
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
class BertForMaskedLM(ConfiguredModel):
    """Masked language model without next-sentence prediction.

    Inputs: those of `BertModel`; `masked_lm_positions`, int32 [B, P], default every position.
    Outputs: `masked_lm_logits` [B, P, V].
    """

    exported_inputs = BertForPreTraining.exported_inputs

    def __init__(self, config: BertConfig, **kwargs):
        super().__init__(config, **kwargs)
        self.bert = BertModel(config, dtype=self.dtype_policy)
        self.masked_lm = MaskedLMHead(config, dtype=self.dtype_policy)
        self.built = True

    def call(self, inputs, training=None) -> dict[str, Any]:
        inputs = checked_inputs(inputs, optional=("masked_lm_positions",))
        positions = inputs.pop("masked_lm_positions", None)
        hidden = self.bert(inputs, training=training)["sequence_output"]
        if positions is None:
            batch, length = ops.shape(hidden)[:2]
            positions = ops.broadcast_to(ops.arange(length, dtype="int32"), (batch, length))
        table = ops.convert_to_tensor(self.bert.embeddings.word_embeddings)
        return {"masked_lm_logits": self.masked_lm(hidden, positions, table, training=training)}


class _LabeledModel(ConfiguredModel):
    """Base of the models with a choice of labels.

    Args:
        num_labels: L; 1 for a number. Default: the number of `labels`.
        labels: names of the outputs, in their order.
    """

    def __init__(
        self,
        config: BertConfig,
        num_labels: int | None = None,
        labels: Sequence[str] | None = None,
        **kwargs,
    ):
        super().__init__(config, **kwargs)
        if num_labels is None:
            num_labels = len(labels or ())
        if num_labels < 1:
            raise ValueError(f"`num_labels` is {num_labels}, but must be 1 or more.")
        if labels is not None and len(labels) != num_labels:
            raise ValueError(f"`num_labels` is {num_labels}, but there are {len(labels)} `labels`.")
        self.num_labels = num_labels
        self.labels = None if labels is None else tuple(labels)
        self.bert = BertModel(config, dtype=self.dtype_policy)
        self.classifier = ClassificationHead(config, num_labels, dtype=self.dtype_policy)
        self.built = True

    def get_config(self) -> dict[str, Any]:
        names = {} if self.labels is None else {"labels": list(self.labels)}
        return {**super().get_config(), "num_labels": self.num_labels, **names}


@keras.saving.register_keras_serializable(package="bert_tf")
class BertForSequenceClassification(_LabeledModel):
    """A label (or, with one output, a number) for a sentence or a pair of sentences.

    Outputs: `logits` [B, L].
    """

    def call(self, inputs, training=None) -> dict[str, Any]:
        pooled_output = self.bert(inputs, training=training)["pooled_output"]
        return {"logits": self.classifier(pooled_output, training=training)}


@keras.saving.register_keras_serializable(package="bert_tf")
class BertForTokenClassification(_LabeledModel):
    """A label for each token.

    Args:
        allowed_transitions: of the labels, for a CRF (`modeling.crf.Crf`); None for a model without one.

    Outputs: `logits` [B, S, L]; with a CRF `transitions` [B, L + 1, L + 1], the same for each row.
    """

    def __init__(
        self,
        config: BertConfig,
        num_labels: int | None = None,
        labels: Sequence[str] | None = None,
        allowed_transitions: Sequence[Sequence[bool]] | None = None,
        **kwargs,
    ):
        super().__init__(config, num_labels, labels, **kwargs)
        self.crf = None if allowed_transitions is None else Crf(allowed_transitions)

    def call(self, inputs, training=None) -> dict[str, Any]:
        sequence_output = self.bert(inputs, training=training)["sequence_output"]
        logits = self.classifier(sequence_output, training=training)
        return {"logits": logits} | ({} if self.crf is None else {"transitions": self.crf(logits)})

    def get_config(self) -> dict[str, Any]:
        crf = {} if self.crf is None else {"allowed_transitions": self.crf.allowed.tolist()}
        return {**super().get_config(), **crf}


@keras.saving.register_keras_serializable(package="bert_tf")
class BertForMultipleChoice(_LabeledModel):
    """A score for each of K choices. Each choice is a separate sequence.

    Inputs: `input_ids`, `input_mask`, `segment_ids`, int32 [B, K, S].
    Outputs: `logits` [B, K].
    """

    exported_inputs = dict.fromkeys(ConfiguredModel.exported_inputs, (None, None, None))

    def __init__(self, config: BertConfig, **kwargs):
        super().__init__(config, num_labels=1, **kwargs)

    def call(self, inputs, training=None) -> dict[str, Any]:
        inputs = checked_inputs(inputs)
        batch, choices, length = ops.shape(inputs["input_ids"])
        folded = {key: ops.reshape(value, (-1, length)) for key, value in inputs.items()}
        pooled_output = self.bert(folded, training=training)["pooled_output"]  # [B*K, H]
        scores = self.classifier(pooled_output, training=training)  # [B*K, 1]
        return {"logits": ops.reshape(scores, (batch, choices))}

    def get_config(self) -> dict[str, Any]:
        left_out = ("num_labels", "labels")
        return {key: value for key, value in super().get_config().items() if key not in left_out}


@keras.saving.register_keras_serializable(package="bert_tf")
class BertForQuestionAnswering(ConfiguredModel):
    """Start and end of an answer in the sequence.

    Outputs: `start_logits` [B, S]; `end_logits` [B, S].
    """

    def __init__(self, config: BertConfig, **kwargs):
        super().__init__(config, **kwargs)
        self.bert = BertModel(config, dtype=self.dtype_policy)
        self.span = SpanHead(config, dtype=self.dtype_policy)
        self.built = True

    def call(self, inputs, training=None) -> dict[str, Any]:
        sequence_output = self.bert(inputs, training=training)["sequence_output"]
        start_logits, end_logits = self.span(sequence_output)
        return {"start_logits": start_logits, "end_logits": end_logits}
