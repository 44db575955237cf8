"""Tokens that the masked language model predicts, and their replacements in its input.

About `masked_lm_prob` of all pieces except [CLS] and [SEP] are chosen. Of these, 80 % become [MASK],
10 % become a random entry of the vocabulary, and 10 % do not change.

    token_ids            [CLS] my dog  is hairy [SEP]
    masked               [CLS] my dog  is [MASK] [SEP]
    masked_lm_positions                    4
    masked_lm_ids                        hairy

Units that are chosen together:

    a piece              the paper's first models
    a whole word         a first piece and the "##" that follow (`do_whole_word_mask`)
    an n-gram            1 to n neighbours of either kind, shorter ones more often (`max_ngram_size`)

Pieces and whole words use the same random draws as the reference, so that one seed gives the reference's
masks.

Source: Devlin et al. 2019, section 3.1 and appendix A.1; google-research/bert,
create_pretraining_data.py, `create_masked_lm_predictions`.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect
from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

from bert_tf.pretraining.python_random import RandomWords, Threshold
from bert_tf.pretraining.settings import MaskingOptions, exact


class MaskedTokens(NamedTuple):
    """The model's input and its targets, without padding."""

    token_ids: array
    masked_lm_positions: list[int]  # ascending, from 0 = [CLS]
    masked_lm_ids: list[int]  # the original token at each of these positions


class Masker:
    """Masks token sequences of one vocabulary.

    Args:
        vocab: token -> id, in file order. Random words are drawn from all entries.
        settings: `segmented_text` has no effect here. The reference has no n-grams. Runs of k are k
            times rarer than runs of 1, up to `max_ngram_size`.
        continuations: ids that continue a word. Default: those of the `##` pieces.
    """

    def __init__(
        self,
        vocab: Mapping[str, int],
        settings: MaskingOptions,
        continuations: Collection[int] | None = None,
    ):
        size = settings.max_ngram_size
        self._masked_lm_prob = settings.masked_lm_prob
        self._max_predictions = settings.max_predictions_per_seq or sys.maxsize
        self._mask_id = vocab["[MASK]"]
        self._vocab_ids = list(vocab.values())
        self._whole_words = settings.do_whole_word_mask
        own = continuation_ids(vocab) if continuations is None else continuations
        self._continuations = frozenset(own)
        self._is_mask = Threshold.of(settings.mask_token_prob)
        # Fraction kept of the pieces that do not become [MASK]: 0.5 for 0.8 and 0.1.
        others, random = 1 - exact(settings.mask_token_prob), exact(settings.random_token_prob)
        self._kept_prob = float((others - random) / others) if others else 0.0
        # Cumulative fractions of the lengths 1, 2, ...; None if only single units are masked.
        weights = [1 / k for k in range(1, size + 1)] if size > 1 else None
        self._length_probs = weights and [w / sum(weights) for w in accumulate(weights)]

    def __call__(self, token_ids: array, end_a: int, rng: RandomWords) -> MaskedTokens:
        """Mask one sequence.

        Args:
            token_ids: [CLS] A [SEP] B [SEP], or [CLS] A [SEP], without padding.
            end_a: position of the first [SEP].
            rng: shuffles the candidates, then draws the replacement of each chosen piece.
        """
        num_to_predict = min(
            self._max_predictions, max(1, round(len(token_ids) * self._masked_lm_prob))
        )
        candidates = [*range(1, end_a), *range(end_a + 1, len(token_ids) - 1)]
        if self._length_probs is not None:
            positions = self._choose_runs(token_ids, candidates, end_a, num_to_predict, rng)
        elif self._whole_words:
            positions = self._choose_words(token_ids, candidates, num_to_predict, rng)
        else:
            rng.shuffle(candidates, keep=num_to_predict)
            positions = candidates[:num_to_predict]
        return self._replace(token_ids, positions, rng)

    def _choose_words(
        self, token_ids: Sequence[int], candidates: list[int], num_to_predict: int, rng: RandomWords
    ) -> list[int]:
        words = self._group_words(token_ids, candidates)
        rng.shuffle(words)
        positions: list[int] = []
        for word in words:  # skip a word that is too long, because a shorter one may still fit
            if len(positions) + len(word) <= num_to_predict:
                positions += word
                if len(positions) == num_to_predict:
                    break
        return positions

    def _choose_runs(
        self,
        token_ids: Sequence[int],
        candidates: list[int],
        end_a: int,
        num_to_predict: int,
        rng: RandomWords,
    ) -> list[int]:
        """Choose runs of neighbouring words (or pieces), each in one sentence of the pair."""
        units = [[position] for position in candidates]
        if self._whole_words:
            units = self._group_words(token_ids, candidates)
        first_of_b = sum(unit[0] < end_a for unit in units)
        starts = list(range(len(units)))
        rng.shuffle(starts)
        taken = bytearray(len(units))
        positions: list[int] = []
        length_probs = self._length_probs or ()
        left = num_to_predict
        for start in starts:
            if not left:
                break
            length = 1 + bisect(length_probs, rng.random())
            run: list[int] = []
            end = first_of_b if start < first_of_b else len(units)
            for index in range(start, min(start + length, end)):
                if taken[index] or len(run) + len(units[index]) > left:
                    break
                taken[index] = 1
                run += units[index]
            positions += run
            left -= len(run)
        return positions

    def _group_words(self, token_ids: Sequence[int], candidates: list[int]) -> list[list[int]]:
        """Group candidate positions by word: its first piece and those that continue it.

        As in the reference, `##` pieces at the start of a truncated B belong to the last word of A.
        """
        continuations = self._continuations
        words: list[list[int]] = []
        for position in candidates:
            if token_ids[position] in continuations and words:
                words[-1].append(position)
            else:
                words.append([position])
        return words

    def _replace(self, token_ids: array, positions: list[int], rng: RandomWords) -> MaskedTokens:
        """Replace pieces one by one. Sort `positions`, which come in the order of the draws."""
        masked = token_ids[:]
        mask_id, (low, high, rest) = self._mask_id, self._is_mask
        rng.reserve(2 * len(positions))
        words, at = rng.words, rng.at
        left = 2 * len(positions)  # least number of words needed
        for position in positions:
            # `random() < mask_token_prob`, inlined because this loop runs most often.
            first = words[at]
            at += 2
            if first < low or (first < high and words[at - 1] < rest):
                masked[position] = mask_id
                continue
            rng.at = at
            if rng.random() >= self._kept_prob:
                masked[position] = self._vocab_ids[rng.randrange(len(self._vocab_ids))]
            rng.reserve(left)
            words, at = rng.words, rng.at
        rng.at = at
        positions.sort()
        return MaskedTokens(masked, positions, [token_ids[position] for position in positions])


def continuation_ids(vocab: Mapping[str, int]) -> frozenset[int]:
    """Return the ids of the `##` pieces."""
    return frozenset(index for token, index in vocab.items() if token.startswith("##"))
