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
                      With a CRF also word_positions: int32 [B, W], the first piece of each word, rows
                      padded with 0 -> label_id int32 [B, W] and probability float32 [B, W] of the row as
                      one sentence (-1 and 0 for padding), transitions float32 [B, L + 1, L + 1]

Texts and rows of words may be of any length. Long ones are read in windows. Each word is labelled in the
window with the most context for it, as in the evaluation of run_ner. A CRF labels each text or row as
one sentence, from the scores of its windows.

Shapes: B batch, S sequence, W words, N words of all texts, L labels, E entities.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.data.label_schemes import find_entities
from bert_tf.modeling.crf import best_labels, sentence_chains
from bert_tf.prediction.model_folder import TrainedModel
from bert_tf.serving.served import TEXT, Outputs, Served, texts_spec, valid_utf8
from bert_tf.serving.text_packing import first_values
from bert_tf.serving.text_words import graph_word_windows, split_words
from bert_tf.tasks.token_classification import NUM_SPECIAL_TOKENS, TokenClassificationTask
from bert_tf.training.losses import word_logits

WORDS = "word_positions"


class ServedTagger(Served):
    """Texts -> entities, words -> labels."""

    task: TokenClassificationTask
    has_spans = True

    def __init__(self, trained: TrainedModel, max_seq_length: int, with_text: bool = True):
        super().__init__(trained, max_seq_length, with_text)
        self._rules = _EntityRules.of(self.task.entity_label_names)

    def ids_specs(self) -> dict[str, tf.TensorSpec]:
        if self.task.crf is None:
            return super().ids_specs()
        return {**super().ids_specs(), WORDS: tf.TensorSpec([None, None], tf.int32, WORDS)}

    def tokens(  # `ids_specs` names the fourth
        self, input_ids, input_mask, segment_ids, word_positions=None
    ) -> Outputs:
        outputs = self.call_model(
            input_ids=input_ids, input_mask=input_mask, segment_ids=segment_ids
        )
        if word_positions is None:
            return outputs
        is_word = word_positions > 0
        counts = tf.reduce_sum(tf.cast(is_word, tf.int32), axis=1)
        logits = word_logits(outputs["logits"], word_positions)
        labels, certain = best_labels(sentence_chains(logits, outputs["transitions"], counts))
        return {
            **outputs,
            "label_id": tf.where(is_word, labels, -1),
            "probability": tf.where(is_word, certain, 0.0),
        }

    def _labelled(self, words: tf.RaggedTensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the labels of words without empty ones, int64 [N], and their probabilities.

        Args:
            words: string ragged [B, None].
        """
        logits = self._logits(words)
        if self.task.crf is None:
            probabilities = tf.nn.softmax(logits)
            return tf.argmax(probabilities, axis=-1), tf.reduce_max(probabilities, axis=-1)
        counts = tf.cast(words.row_lengths(), tf.int32)
        rows = words.with_values(logits).to_tensor()  # [B, W, L]
        decoded = best_labels(sentence_chains(rows, self.model.crf(rows), counts))
        labels, certain = (tf.boolean_mask(values, tf.sequence_mask(counts)) for values in decoded)
        return tf.cast(labels, tf.int64), certain

    def _logits(self, words: tf.RaggedTensor) -> tf.Tensor:
        """Return float32 [N, L] for words, string ragged [B, None], without empty ones."""
        pieces = self.tokenizer(words.values)  # ragged [N, None]
        # A word without word pieces becomes [UNK], as in windows.encode_words.
        is_lost = tf.cast(pieces.row_lengths() == 0, tf.int64)
        unknown = tf.fill([tf.reduce_sum(is_lost)], tf.cast(self.unk_id, tf.int32))
        pieces = tf.concat([pieces, tf.RaggedTensor.from_row_lengths(unknown, is_lost)], axis=1)
        room = self.max_seq_length - NUM_SPECIAL_TOKENS
        stride = self.task.doc_stride
        windows = graph_word_windows(
            first_values(pieces, room),
            words.row_splits,
            room,
            None if stride is None else min(stride, room),
        )
        logits = self.call_in_parts(self._emissions, self.pack(windows.pieces, None))["logits"]
        indexes = tf.stack([windows.window, windows.position + 1], axis=1)  # after [CLS]
        return tf.gather_nd(logits, indexes)

    def _emissions(self, input_ids, input_mask, segment_ids) -> Outputs:
        return {"logits": self.tokens(input_ids, input_mask, segment_ids)["logits"]}

    def words(self, words) -> Outputs:
        is_word = tf.strings.length(words) > 0
        ragged_words = tf.RaggedTensor.from_row_lengths(
            tf.boolean_mask(words, is_word), tf.reduce_sum(tf.cast(is_word, tf.int64), axis=1)
        )
        labels, certain = self._labelled(ragged_words)
        where, shape = tf.where(is_word), tf.shape(words, tf.int64)
        names = tf.gather(self.task.labels, labels)
        empty = tf.fill(shape, "")
        return {
            "label": tf.tensor_scatter_nd_update(empty, where, names),
            "probability": tf.scatter_nd(where, certain, shape),
        }

    def text(self, text) -> Outputs:
        text = valid_utf8(text)
        placed = split_words(text, self.task.word_splitting, sorted(self.task.whole_words))
        labels, certain = self._labelled(placed.words)
        entities = self._rules.find(labels, placed.words.row_splits)
        start = tf.gather(placed.starts, entities.first)
        end = tf.gather(placed.ends, entities.last)
        part = tf.strings.substr(
            tf.gather(text, entities.text),
            tf.cast(start, tf.int32),
            tf.cast(end - start, tf.int32),
            unit="UTF8_CHAR",
        )
        lowest = tf.math.unsorted_segment_min(
            tf.boolean_mask(certain, entities.entity >= 0),
            tf.boolean_mask(entities.entity, entities.entity >= 0),
            tf.size(entities.first),
        )
        counts = tf.math.bincount(
            tf.cast(entities.text, tf.int32), minlength=tf.size(text), dtype=tf.int64
        )

        def table(values, nothing):
            ragged = tf.RaggedTensor.from_row_lengths(values, counts, validate=False)
            return ragged.to_tensor(nothing)

        kind, part_name = ("label", "word") if self.task.word_labels else ("type", "entity")
        return {
            kind: table(tf.gather(self._rules.types, tf.gather(labels, entities.first)), ""),
            "start": table(start, -1),
            "end": table(end, -1),
            part_name: table(part, ""),
            "probability": table(lowest, 0.0),
        }

    def text_functions(self):
        words = tf.TensorSpec([None, None], tf.string, "words")
        return {TEXT: (self.text, [texts_spec("text")]), "words": (self.words, [words])}

    def requests(self, texts):
        return {
            TEXT: [{"text": [text]} for text in texts],
            "words": [{"words": [text.split()]} for text in texts],
        }


class _Entities(NamedTuple):
    """Entities of texts.

    first, last: int64 [entities], first and last word of each, counted over all texts.
    text: int64 [entities], index of its text.
    entity: int64 [N], index of each word's entity; -1 if it has none.
    """

    first: tf.Tensor
    last: tf.Tensor
    text: tf.Tensor
    entity: tf.Tensor


@dataclass(frozen=True)
class _EntityRules:
    """`label_schemes.entities` as tables over pairs of consecutive labels.

    begins: bool [L + 1, L], whether an entity begins at the second label; label L is "no word".
    is_inside: bool [L], whether a word with the label is in an entity.
    types: string [L], of an entity that begins with the label.
    """

    begins: np.ndarray
    is_inside: np.ndarray
    types: np.ndarray

    @classmethod
    def of(cls, labels: Sequence[str]) -> _EntityRules:
        alone = [find_entities([label]) for label in labels]
        rows = [
            [
                any(entity.start == 1 for entity in find_entities([before, label]))
                for label in labels
            ]
            for before in labels
        ]
        return cls(
            np.array([*rows, [bool(names) for names in alone]]),
            np.array([bool(names) for names in alone]),
            np.array([names[0].type if names else "" for names in alone], object),
        )

    def find(self, labels: tf.Tensor, splits: tf.Tensor) -> _Entities:
        """Find the entities in labels int64 [N] of texts that begin at word `splits` int64 [B + 1]."""
        number = tf.range(tf.size(labels, tf.int64))
        text = tf.searchsorted(splits, number, side="right", out_type=tf.int64) - 1
        is_first = tf.equal(number, tf.gather(splits, text))
        before = tf.concat([[0], labels], axis=0)[: tf.size(labels)]
        before = tf.where(is_first, tf.constant(len(self.types), tf.int64), before)
        begins = tf.gather_nd(self.begins, tf.stack([before, labels], axis=1))
        is_inside = tf.gather(self.is_inside, labels)
        entity = tf.where(is_inside, tf.cumsum(tf.cast(begins, tf.int64)) - 1, -1)
        first = tf.boolean_mask(number, begins)
        last = tf.math.unsorted_segment_max(
            tf.boolean_mask(number, is_inside),
            tf.boolean_mask(entity, is_inside),
            tf.size(first, tf.int64),
        )
        return _Entities(first, last, tf.gather(text, first), entity)
