"""Served classifier of sentences or pairs.

    serving_default   text_a [, text_b]: string [B]                        -> the outputs
    tokens            input_ids, input_mask, segment_ids: int32 [B, S]     -> the same

Outputs, in addition to `logits` float32 [B, L]:

    single_label   `probabilities` float32 [B, L], `label` string [B]
    multi_label    `probabilities` float32 [B, L], `has_label` bool [B, L]
    regression     `score` float32 [B]

A model trained with --doc_stride reads a long text in windows and pools their logits, as its evaluation
does. A row of ids is one window.
"""

from __future__ import annotations

from dataclasses import dataclass

import tensorflow as tf

from bert_tf.prediction.loading import TEXT
from bert_tf.serving.served import Outputs, Served, texts_spec
from bert_tf.serving.text_packing import graph_document_windows, map_in_parts


@dataclass(frozen=True, eq=False)
class ServedClassification(Served):
    """Texts -> labels or a number."""

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

    def _classify(self, ids_a: tf.RaggedTensor, ids_b: tf.RaggedTensor | None) -> Outputs:
        if not self.task.doc_stride:
            return self.tokens(**self.pack(ids_a, ids_b))
        windows, counts = graph_document_windows(
            ids_a, ids_b, doc_stride=self.task.doc_stride, **self.packing
        )
        logits = map_in_parts(self.call_model, windows)["logits"]
        texts = tf.size(counts, tf.int64)
        texts_of_windows = tf.repeat(tf.range(texts), counts)
        return self._answer(tf.math.unsorted_segment_mean(logits, texts_of_windows, texts))

    def single(self, text_a) -> Outputs:
        return self._classify(self.tokenizer(text_a), None)

    def pair(self, text_a, text_b) -> Outputs:
        return self._classify(self.tokenizer(text_a), self.tokenizer(text_b))

    def text_functions(self):
        if self.task.is_pair:
            return {TEXT: (self.pair, [texts_spec("text_a"), texts_spec("text_b")])}
        return {TEXT: (self.single, [texts_spec("text_a")])}
