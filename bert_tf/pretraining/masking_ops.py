"""Masks that are new in every epoch, as TensorFlow operations on a batch of unmasked records.

`create_pretraining_data --masking=none` writes records without masks. Here a batch of them gets the
features of masked records, with the same shapes and dtypes.

The rules are those of masking.py (pieces and whole words), with other random draws, which depend only on
(seed, number of the batch). Resumed and uninterrupted runs therefore see the same masks.

Shapes: B batch, S sequence, P predictions. A sequence has at most S words.

Source: see masking.py. New masks in each epoch: Liu et al. 2019 (RoBERTa), section 4.1.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from bert_tf.pretraining.masking import MaskingOptions, continuation_ids


class DynamicMasker:
    """Masker of batches of sequences. `vocab`: token -> id, all of 0, 1, 2, ..."""

    def __init__(
        self,
        vocab: Mapping[str, int],
        options: MaskingOptions | None = None,
        max_predictions_per_seq: int = 20,
    ):
        self._options = options or MaskingOptions()
        self._max_predictions = max_predictions_per_seq
        self._mask_id, self._vocab_size = vocab["[MASK]"], len(vocab)
        # Per piece: True if it may be chosen; True if it continues a word.
        self._is_candidate = np.ones(self._vocab_size, bool)
        self._is_candidate[[vocab["[CLS]"], vocab["[SEP]"]]] = False
        self._continues = np.zeros(self._vocab_size, bool)
        self._continues[sorted(continuation_ids(vocab))] = True

    def __call__(
        self, features: Mapping[str, tf.Tensor], seed: tf.Tensor | int, number: tf.Tensor | int
    ) -> dict[str, tf.Tensor]:
        """Mask one batch.

        Args:
            features: `input_ids` and `input_mask`, int32 [B, S]. Others are returned unchanged.

        Returns:
            `features` with `input_ids` as the model sees them, and `masked_lm_positions` (int32
            [B, P], ascending), `masked_lm_ids` (int32 [B, P], the original pieces) and
            `masked_lm_weights` (float32 [B, P]). Unused slots are 0 in all three.
        """
        seed, number = tf.cast(seed, tf.int64), tf.cast(number, tf.int64)
        seeds = tf.unstack(tf.random.experimental.stateless_split([seed, number], 3))
        input_ids = features["input_ids"]
        limit = self._num_to_predict(features["input_mask"])
        is_chosen = self._choose(input_ids, features["input_mask"], limit, seeds[0])
        positions, weights = self._positions(is_chosen)
        masked_lm_ids = tf.gather(input_ids, positions, batch_dims=1) * tf.cast(weights, tf.int32)
        shape = tf.shape(input_ids)
        draw = tf.random.stateless_uniform(shape, seeds[1])
        random_ids = tf.random.stateless_uniform(
            shape, seeds[2], 0, self._vocab_size, dtype=tf.int32
        )
        mask_prob, random_prob = self._options.mask_token_prob, self._options.random_token_prob
        replaced = tf.where(draw < mask_prob + random_prob, random_ids, input_ids)
        replaced = tf.where(draw < mask_prob, self._mask_id, replaced)
        return {
            **features,
            "input_ids": tf.where(is_chosen, replaced, input_ids),
            "masked_lm_positions": positions,
            "masked_lm_ids": masked_lm_ids,
            "masked_lm_weights": weights,
        }

    def _choose(
        self, input_ids: tf.Tensor, input_mask: tf.Tensor, limit: tf.Tensor, seed: tf.Tensor
    ) -> tf.Tensor:
        """Choose at most `limit` (int32 [B, 1]) positions to predict, bool [B, S]."""
        is_candidate = tf.gather(self._is_candidate, input_ids) & (input_mask > 0)
        word = self._words(input_ids, is_candidate)  # number of the word of each position
        lengths = _count(word)  # [B, S]: pieces of each word, 0 for unused numbers
        score = tf.random.stateless_uniform(tf.shape(lengths), seed)
        order = tf.argsort(tf.where(lengths > 0, score, 2.0))  # the words of a sequence, shuffled
        is_taken = _take_fitting(tf.gather(lengths, order, batch_dims=1), limit)
        # Back from the shuffled words to the words, then to their pieces.
        is_taken = tf.gather(is_taken, tf.argsort(order), batch_dims=1)
        return is_candidate & tf.gather(is_taken, tf.maximum(word, 0), batch_dims=1)

    def _words(self, input_ids: tf.Tensor, is_candidate: tf.Tensor) -> tf.Tensor:
        """Return the number of each position's word, from 0, int32 [B, S]; -1 without a word.

        As in the reference, `##` pieces at the start of a truncated B belong to the last word of A.
        """
        starts = is_candidate
        if self._options.do_whole_word_mask:
            starts &= ~tf.gather(self._continues, input_ids)
        word = tf.cumsum(tf.cast(starts, tf.int32), axis=1) - 1
        # The first pieces of a sequence that begins within a word are a word as well.
        word += tf.reduce_max(tf.cast(is_candidate & (word < 0), tf.int32), axis=1, keepdims=True)
        return tf.where(is_candidate, word, -1)

    def _num_to_predict(self, input_mask: tf.Tensor) -> tf.Tensor:
        """Return int32 [B, 1], rounded by Python's `round` for every possible length."""
        prob = self._options.masked_lm_prob
        counts = [
            min(self._max_predictions, max(1, round(length * prob)))
            for length in range(input_mask.shape[1] + 1)
        ]
        return tf.gather(counts, tf.reduce_sum(input_mask, axis=1, keepdims=True))

    def _positions(self, is_chosen: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return positions int32 [B, P], ascending and then 0, and weights float32 [B, P]."""
        length = is_chosen.shape[1]
        from_end = tf.where(is_chosen, tf.range(length, 0, -1), 0)  # S for position 0
        from_end = tf.math.top_k(from_end, min(self._max_predictions, length)).values
        from_end = tf.pad(from_end, [[0, 0], [0, max(0, self._max_predictions - length)]])
        is_used = from_end > 0
        return tf.where(is_used, length - from_end, 0), tf.cast(is_used, tf.float32)


def _count(word: tf.Tensor) -> tf.Tensor:
    """Count each of the numbers 0 to S - 1 in its row of int32 [B, S]."""
    rows, length = tf.shape(word)[0], word.shape[1]
    first = tf.range(rows)[:, None] * length
    flat = tf.where(word >= 0, word + first, -1)  # -1 is not counted
    counts = tf.math.unsorted_segment_sum(tf.ones_like(word), flat, rows * length)
    return tf.reshape(counts, [-1, length])


def _take_fitting(lengths: tf.Tensor, limit: tf.Tensor) -> tf.Tensor:
    """Take words in their order; skip a word that is too long, because a shorter one may fit.

    Each round takes words one after the other until one does not fit. That word is longer than the
    room left. The room only shrinks, so the word never fits later. After a few rounds nothing fits.

    Args:
        lengths: int32 [B, S], 0 without a word.
        limit: int32 [B, 1], maximum number of pieces.

    Returns:
        bool [B, S].
    """

    def fits(is_taken: tf.Tensor, left: tf.Tensor) -> tf.Tensor:
        return ~is_taken & (lengths > 0) & (lengths <= left)

    def take(is_taken: tf.Tensor, left: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        possible = tf.where(fits(is_taken, left), lengths, 0)
        is_next = (possible > 0) & (tf.cumsum(possible, axis=1) <= left)
        used = tf.reduce_sum(tf.where(is_next, lengths, 0), axis=1, keepdims=True)
        return is_taken | is_next, left - used

    is_taken, _ = tf.while_loop(
        lambda is_taken, left: tf.reduce_any(fits(is_taken, left)),
        take,
        (tf.zeros_like(lengths, tf.bool), limit),
    )
    return is_taken
