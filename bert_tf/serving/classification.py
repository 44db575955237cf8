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

import tensorflow as tf

from bert_tf.serving.served import TEXT, Outputs, Served, texts_spec
from bert_tf.serving.text_packing import graph_document_windows
from bert_tf.tasks.classification import ClassificationTask


class ServedClassifier(Served):
    """Texts -> labels or a number."""

    task: ClassificationTask

    def tokens(self, input_ids, input_mask, segment_ids) -> Outputs:
        return self._answer(**self._logits(input_ids, input_mask, segment_ids))

    def _logits(self, input_ids, input_mask, segment_ids) -> Outputs:
        return self.call_model(input_ids=input_ids, input_mask=input_mask, segment_ids=segment_ids)

    def _answer(self, logits) -> Outputs:
        kind = self.task.kind.name
        if kind == "regression":
            return {"score": logits[:, 0], "logits": logits}
        if kind == "multi_label":
            outputs = {"probabilities": tf.sigmoid(logits), "has_label": logits > 0}
            return {**outputs, "logits": logits}
        label = tf.gather(self.task.labels, tf.argmax(logits, axis=-1))
        return {"probabilities": tf.nn.softmax(logits), "logits": logits, "label": label}

    def _classify(self, ids_a: tf.RaggedTensor, ids_b: tf.RaggedTensor | None) -> Outputs:
        if not self.task.doc_stride:
            return self.tokens(**self.pack(ids_a, ids_b))
        windows, counts = graph_document_windows(
            ids_a,
            ids_b,
            max_seq_length=self.max_seq_length,
            doc_stride=self.task.doc_stride,
            cls_id=self.cls_id,
            sep_id=self.sep_id,
        )
        logits = self.call_in_parts(self._logits, windows)["logits"]
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
