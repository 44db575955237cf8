"""Served classifiers: of sentences or pairs, and of the choices for a text.

    serving_default   text_a [, text_b]: string [B]                        -> the outputs
    tokens            input_ids, input_mask, segment_ids: int32 [B, S]     -> the same

Outputs, in addition to `logits` float32 [B, L]:

    single_label   `probabilities` float32 [B, L], `label` string [B]
    multi_label    `probabilities` float32 [B, L], `has_label` bool [B, L]
    regression     `score` float32 [B]

A model trained with --doc_stride reads a long text in windows and pools their logits, as its evaluation
does. A row of ids is one window.

Multiple choice:

    serving_default   text_a: string [B]; choices: string [B, K], "" for missing choices of a row
                      -> prediction int32 [B], choice string [B], probabilities and logits float32 [B, K]
    tokens            input_ids, input_mask, segment_ids: int32 [B, K, S] -> the same without `choice`
"""

from __future__ import annotations

from dataclasses import dataclass

import tensorflow as tf

from bert_tf.prediction.loading import TEXT
from bert_tf.serving.served import Outputs, Served, texts_spec
from bert_tf.serving.text_packing import graph_document_windows, map_in_parts
from bert_tf.training.losses import masked_choices


@dataclass(frozen=True, eq=False)
class ServedClassification(Served):
    kind = "classifier"

    def tokens(self, **ids) -> Outputs:
        return self._answer(**self.call_model(**ids))

    def _answer(self, logits) -> Outputs:
        kind = self.task.kind.name
        if kind == "regression":
            return {"score": logits[:, 0], "logits": logits}
        if kind == "multi_label":
            outputs = {"probabilities": tf.sigmoid(logits), "has_label": logits > 0}
            return {**outputs, "logits": logits}
        label = tf.gather(self.labels, tf.argmax(logits, axis=-1))
        return {"probabilities": tf.nn.softmax(logits), "logits": logits, "label": label}

    def classify(self, text_a, text_b=None) -> Outputs:
        ids_a = self.tokenizer(text_a)
        ids_b = None if text_b is None else self.tokenizer(text_b)
        if not self.task.doc_stride:
            return self.tokens(**self.pack(ids_a, ids_b))
        windows, counts = graph_document_windows(
            ids_a, ids_b, doc_stride=self.task.doc_stride, **self.packing
        )
        logits = map_in_parts(self.call_model, windows)["logits"]
        texts = tf.size(counts, tf.int64)
        texts_of_windows = tf.repeat(tf.range(texts), counts)
        return self._answer(tf.math.unsorted_segment_mean(logits, texts_of_windows, texts))

    def text_functions(self):
        names = ("text_a", "text_b") if self.task.is_pair else ("text_a",)
        return {TEXT: (self.classify, list(map(texts_spec, names)))}


@dataclass(frozen=True, eq=False)
class ServedMultipleChoice(Served):
    kind = "chooser"
    ids_shape = (None, None, None)

    def tokens(self, **ids) -> Outputs:
        return self._answer(**self.call_model(**ids))

    def _answer(self, logits) -> Outputs:
        prediction = tf.argmax(logits, axis=-1, output_type=tf.int32)
        probabilities = tf.nn.softmax(logits)
        return {"prediction": prediction, "probabilities": probabilities, "logits": logits}

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
        outputs = self._answer(masked_choices(logits, is_choice))
        best = tf.gather(choices, outputs["prediction"], batch_dims=1)
        return {**outputs, "choice": best}

    def text_functions(self):
        choices = tf.TensorSpec([None, None], tf.string, "choices")
        return {TEXT: (self.choose, [texts_spec("text_a"), choices])}
