"""Served multiple-choice model.

serving_default   text_a: string [B]; choices: string [B, K], "" for missing choices of a row
                  -> prediction int32 [B], choice string [B], probabilities and logits float32 [B, K]
tokens            input_ids, input_mask, segment_ids: int32 [B, K, S]
                  -> the same without `choice`
"""

from __future__ import annotations

from dataclasses import dataclass

import tensorflow as tf

from bert_tf.prediction.loading import TEXT
from bert_tf.serving.served import Outputs, Served, texts_spec
from bert_tf.training.losses import masked_choices


@dataclass(frozen=True, eq=False)
class ServedMultipleChoice(Served):
    """A text and choices -> the best choice."""

    kind = "chooser"
    ids_shape = (None, None, None)

    def tokens(self, **ids) -> Outputs:
        return _answer(**self.call_model(**ids))

    def choose(self, text_a, choices) -> Outputs:
        shape = tf.shape(choices)  # B, K
        repeated = tf.repeat(tf.range(shape[0]), shape[1])
        ids_a = tf.gather(self.tokenizer(text_a), repeated)  # ragged [B*K, None]
        packed = self.pack(ids_a, self.tokenizer(tf.reshape(choices, [-1])))
        length = tf.shape(packed["input_ids"])[1]
        folded = {
            name: tf.reshape(value, [shape[0], shape[1], length]) for name, value in packed.items()
        }
        logits = self.call_model(**folded)["logits"]
        is_choice = tf.cast(tf.strings.length(choices) > 0, tf.int32)
        outputs = _answer(masked_choices(logits, is_choice))
        best = tf.gather(choices, outputs["prediction"], batch_dims=1)
        return {**outputs, "choice": best}

    def text_functions(self):
        choices = tf.TensorSpec([None, None], tf.string, "choices")
        return {TEXT: (self.choose, [texts_spec("text_a"), choices])}


def _answer(logits: tf.Tensor) -> Outputs:
    return {
        "prediction": tf.argmax(logits, axis=-1, output_type=tf.int32),
        "probabilities": tf.nn.softmax(logits),
        "logits": logits,
    }
