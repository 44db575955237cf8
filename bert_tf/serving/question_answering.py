"""Served model for question answering.

    serving_default   question, context: string [B]
                      -> answer string [B], start and end int64 [B] (characters of the context; -1 for no
                         answer), score float32 [B] (sum of the logits) and, with SQuAD 2.0, null_odds
                         float32 [B]
    tokens            input_ids, input_mask, segment_ids: int32 [B, S]
                      -> start_logits, end_logits float32 [B, S]

Long contexts are read in windows, as in training. The answer is the best of all windows.
"""

from __future__ import annotations

from dataclasses import dataclass

import tensorflow as tf

from bert_tf.prediction.loading import TEXT
from bert_tf.serving.served import Outputs, Served, texts_spec
from bert_tf.serving.text_packing import best_spans, graph_windows, map_in_parts
from bert_tf.serving.text_tokenizer import replace_invalid_utf8
from bert_tf.tasks.answer_decoding import CERTAINLY_NULL, AnswerSettings


@dataclass(frozen=True, eq=False)
class ServedQuestionAnswering(Served):
    """Questions and contexts -> answers, chosen by `settings`."""

    settings: AnswerSettings

    kind = "answerer"

    def tokens(self, **ids) -> Outputs:
        return self.call_model(**ids)

    def answer(self, question, context) -> Outputs:
        context = replace_invalid_utf8(context)
        passage_ids, starts, ends = self.tokenizer.with_offsets(context)
        windows = graph_windows(
            self.tokenizer(question),
            passage_ids,
            doc_stride=self.task.doc_stride,
            max_query_length=self.task.max_query_length,
            **self.packing,
        )
        spans = best_spans(
            windows,
            **map_in_parts(self.call_model, windows.inputs),
            n_best_size=self.settings.n_best_size,
            max_answer_length=self.settings.max_answer_length,
        )
        null_odds = tf.where(spans.score < -1e29, CERTAINLY_NULL, spans.null_score - spans.score)
        is_answer = spans.score > -1e29
        if self.settings.version_2_with_negative:
            is_answer &= null_odds <= self.settings.null_score_diff_threshold
        start = _at(starts.flat_values, spans.start, is_answer)
        end = _at(ends.flat_values, spans.end, is_answer)
        length = tf.cast(end - start, tf.int32)
        first = tf.maximum(tf.cast(start, tf.int32), 0)
        outputs = {
            "answer": tf.strings.substr(context, first, length, unit="UTF8_CHAR"),
            "start": start,
            "end": end,
            "score": spans.score,
        }
        if self.settings.version_2_with_negative:
            outputs["null_odds"] = null_odds
        return outputs

    def text_functions(self):
        return {TEXT: (self.answer, [texts_spec("question"), texts_spec("context")])}


def _at(values: tf.Tensor, index: tf.Tensor, is_answer: tf.Tensor) -> tf.Tensor:
    """Return `values[index]`, or -1 without an answer."""
    values = tf.concat([values, [-1]], axis=0)
    return tf.gather(values, tf.where(is_answer, index, tf.size(values, tf.int64) - 1))
