"""Served token classifier.

    serving_default   text: string [B]
                      -> the entities of each text in order, each [B, E] for the most entities of a text:
                         type string, start and end int64 (characters of the text; `end` is exclusive),
                         entity string (that part of the text), probability float32 (of the least certain
                         of its words). Rows are padded with "", -1 and 0.
                         If labels are of words: every word, as `label` and `word` instead of `type` and
                         `entity`.
    words             words: string [B, W], rows padded with ""
                      -> label string [B, W] ("" for padding), probability float32 [B, W]
    tokens            input_ids, input_mask, segment_ids: int32 [B, S] -> logits float32 [B, S, L]
                      With a CRF also transitions float32 [B, L + 1, L + 1]

Long texts are read in windows, as in the evaluation of run_ner. A CRF labels each text or row as one
sentence, from the scores of its windows.

Shapes: B batch, S sequence, W words, N words of all texts, L labels, E entities.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.data.label_schemes import find_entities
from bert_tf.modeling.crf import best_labels, sentence_chains
from bert_tf.prediction.loading import TEXT
from bert_tf.serving.served import Outputs, Served, texts_spec
from bert_tf.serving.text_packing import first_values, graph_word_windows, map_in_parts
from bert_tf.serving.text_tokenizer import graph_split_words, replace_invalid_utf8
from bert_tf.tasks.token_classification import NUM_SPECIAL_TOKENS


@dataclass(frozen=True, eq=False)
class ServedTokenClassification(Served):
    kind = "tagger"
    has_spans = True

    @cached_property
    def _tables(self) -> _EntityTables:
        return _entity_tables(self.task.entity_label_names)

    def tokens(self, **ids) -> Outputs:
        return self.call_model(**ids)

    def _label(self, words: tf.RaggedTensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return labels, int64 [N], and probabilities of words, string ragged [B, None], none empty."""
        logits = self._logits(words)
        if self.task.crf is None:
            probabilities = tf.nn.softmax(logits)
            return tf.argmax(probabilities, axis=-1), tf.reduce_max(probabilities, axis=-1)
        counts = tf.cast(words.row_lengths(), tf.int32)
        rows = words.with_values(logits).to_tensor()  # [B, W, L]
        labels, certain = best_labels(sentence_chains(rows, self.model.crf(rows), counts))
        is_word = tf.sequence_mask(counts)
        return tf.cast(tf.boolean_mask(labels, is_word), tf.int64), tf.boolean_mask(
            certain, is_word
        )

    def _logits(self, words: tf.RaggedTensor) -> tf.Tensor:
        pieces = self.tokenizer(words.values)  # ragged [N, None]
        # A word without word pieces becomes [UNK], as in windows.encode_words.
        is_empty = tf.cast(pieces.row_lengths() == 0, tf.int64)
        unknown = tf.fill([tf.reduce_sum(is_empty)], self.trained.tokenizer.vocab["[UNK]"])
        pieces = tf.concat([pieces, tf.RaggedTensor.from_row_lengths(unknown, is_empty)], axis=1)
        room = self.trained.max_seq_length - NUM_SPECIAL_TOKENS
        stride = self.task.doc_stride
        windows = graph_word_windows(
            first_values(pieces, room),
            words.row_splits,
            room,
            None if stride is None else min(stride, room),
        )
        packed = self.pack(windows.pieces, None)
        parts = map_in_parts(lambda **ids: {"logits": self.call_model(**ids)["logits"]}, packed)
        indexes = tf.stack([windows.window, windows.position + 1], axis=1)  # after [CLS]
        return tf.gather_nd(parts["logits"], indexes)

    def words(self, words) -> Outputs:
        is_word = tf.strings.length(words) > 0
        rows = tf.RaggedTensor.from_row_lengths(
            tf.boolean_mask(words, is_word), tf.reduce_sum(tf.cast(is_word, tf.int64), axis=1)
        )
        labels, certain = self._label(rows)
        where, shape = tf.where(is_word), tf.shape(words, tf.int64)
        names = tf.gather(self.labels, labels)
        empty = tf.fill(shape, "")
        return {
            "label": tf.tensor_scatter_nd_update(empty, where, names),
            "probability": tf.scatter_nd(where, certain, shape),
        }

    def text(self, text) -> Outputs:
        text = replace_invalid_utf8(text)
        located = graph_split_words(text, self.task.word_splitting, sorted(self.task.whole_words))
        labels, certain = self._label(located.words)
        # Entities: int64 [entities]; that of each word, int64 [N], -1 for none.
        splits, number = located.words.row_splits, tf.range(tf.size(labels, tf.int64))
        owner = located.words.value_rowids()
        before = tf.concat([[0], labels], axis=0)[: tf.size(labels)]
        is_first = tf.equal(number, tf.gather(splits, owner))
        before = tf.where(is_first, tf.constant(len(self._tables.types), tf.int64), before)
        begins = tf.gather_nd(self._tables.begins, tf.stack([before, labels], axis=1))
        is_inside = tf.gather(self._tables.is_inside, labels)
        entity = tf.boolean_mask(tf.cumsum(tf.cast(begins, tf.int64)) - 1, is_inside)
        first = tf.boolean_mask(number, begins)
        last = tf.math.unsorted_segment_max(
            tf.boolean_mask(number, is_inside), entity, tf.size(first)
        )
        certain = tf.boolean_mask(certain, is_inside)
        probability = tf.math.unsorted_segment_min(certain, entity, tf.size(first))
        start, end = tf.gather(located.starts, first), tf.gather(located.ends, last)
        owner = tf.gather(owner, first)
        position, length = tf.cast(start, tf.int32), tf.cast(end - start, tf.int32)
        part = tf.strings.substr(tf.gather(text, owner), position, length, unit="UTF8_CHAR")

        def table(values, padding):
            ragged = tf.RaggedTensor.from_value_rowids(values, owner, tf.size(text, tf.int64))
            return ragged.to_tensor(padding)

        kind, part_name = ("label", "word") if self.task.word_labels else ("type", "entity")
        return {
            kind: table(tf.gather(self._tables.types, tf.gather(labels, first)), ""),
            "start": table(start, -1),
            "end": table(end, -1),
            part_name: table(part, ""),
            "probability": table(probability, 0.0),
        }

    def text_functions(self):
        words = tf.TensorSpec([None, None], tf.string, "words")
        return {TEXT: (self.text, [texts_spec("text")]), "words": (self.words, [words])}


class _EntityTables(NamedTuple):
    """`label_schemes.find_entities` as tables over labels and pairs of consecutive ones."""

    begins: np.ndarray  # bool [L + 1, L], does an entity begin at the second; label L is "no word"
    is_inside: np.ndarray  # bool [L], is a word with the label in an entity
    types: np.ndarray  # string [L], of an entity that begins with the label


def _entity_tables(labels: Sequence[str]) -> _EntityTables:
    def begins(before: Sequence[str], label: str) -> bool:
        return any(e.start == len(before) for e in find_entities([*before, label]))

    befores = [*([label] for label in labels), []]
    alone = [find_entities([label]) for label in labels]  # at most one entity each
    return _EntityTables(
        np.array([[begins(before, label) for label in labels] for before in befores]),
        np.array([bool(entities) for entities in alone]),
        np.array([entities[0].type if entities else "" for entities in alone], object),
    )
