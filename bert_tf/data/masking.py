"""Which tokens the masked language model has to predict, and what it sees in their place.

Of all pieces but [CLS] and [SEP], about `masked_lm_prob` are chosen. The model sees [MASK] for
80 % of them, a random entry of the vocabulary for 10 %, and the piece itself for 10 %.

    token_ids            [CLS] my dog  is hairy [SEP]
    masked               [CLS] my dog  is [MASK] [SEP]
    masked_lm_positions                    4
    masked_lm_ids                        hairy

Everything random comes from the given `random.Random`, drawn as often and in the same order as in
the reference, so that one seed gives the reference's masks.

Source: Devlin et al. 2019, section 3.1; google-research/bert, create_pretraining_data.py,
`create_masked_lm_predictions`.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import NamedTuple


class MaskedTokens(NamedTuple):
    """A sequence as the model sees it, and what it has to find out. Nothing is padded."""

    token_ids: list[int]
    masked_lm_positions: list[int]  # ascending, from 0 = [CLS]
    masked_lm_ids: list[int]  # the original token at each of these positions


class Masker:
    """Masks token sequences of one vocabulary.

    Args:
        vocab: token -> id, in file order; random words are drawn from all of its entries.
        masked_lm_prob: share of a sequence, [CLS] and [SEP] counted, that is predicted (0-1).
        max_predictions_per_seq: P, the most that is predicted of any sequence.
        do_whole_word_mask: mask all `##` pieces of a word together with its first one.

    Attributes:
        cls_id, sep_id: ids of [CLS] and [SEP], which are never masked.

    Raises:
        ValueError: the vocabulary lacks [CLS], [SEP] or [MASK].
    """

    def __init__(
        self,
        vocab: Mapping[str, int],
        *,
        masked_lm_prob: float,
        max_predictions_per_seq: int,
        do_whole_word_mask: bool = False,
    ):
        missing = [token for token in ("[CLS]", "[SEP]", "[MASK]") if token not in vocab]
        if missing:
            raise ValueError(
                f"The vocabulary has no {', '.join(missing)}, which masked-LM data needs. "
                "Use the vocabulary file of a BERT model, or one made by create_vocab."
            )
        self._masked_lm_prob = masked_lm_prob
        self._max_predictions = max_predictions_per_seq
        self.cls_id = vocab["[CLS]"]
        self.sep_id = vocab["[SEP]"]
        self._mask_id = vocab["[MASK]"]
        self._vocab_ids = list(vocab.values())
        self._whole_words = do_whole_word_mask
        self._continuations = frozenset(i for token, i in vocab.items() if token.startswith("##"))

    def __call__(self, token_ids: Sequence[int], rng: random.Random) -> MaskedTokens:
        """Masks one sequence.

        Args:
            token_ids: [CLS] A [SEP] B [SEP], without padding.
            rng: shuffles the candidates, then decides what stands in for each chosen piece.
        """
        positions = self._choose(token_ids, rng)
        masked = list(token_ids)
        for position in positions:
            masked[position] = self._stand_in(token_ids[position], rng)
        positions.sort()
        return MaskedTokens(masked, positions, [token_ids[position] for position in positions])

    def _choose(self, token_ids: Sequence[int], rng: random.Random) -> list[int]:
        """Positions to predict, in the order in which their stand-ins are drawn."""
        num_to_predict = min(
            self._max_predictions, max(1, round(len(token_ids) * self._masked_lm_prob))
        )
        never = (self.cls_id, self.sep_id)
        candidates = [i for i, token_id in enumerate(token_ids) if token_id not in never]
        if not self._whole_words:
            rng.shuffle(candidates)
            return candidates[:num_to_predict]

        words = self._group_words(token_ids, candidates)
        rng.shuffle(words)
        positions: list[int] = []
        for word in words:  # a word that would be too much is left out; a shorter one may still fit
            if len(positions) + len(word) <= num_to_predict:
                positions += word
        return positions

    def _group_words(self, token_ids: Sequence[int], candidates: list[int]) -> list[list[int]]:
        """Candidate positions, a list for each word: its first piece and the `##` that follow.

        As in the reference, `##` pieces at the front of B, whose word was cut off by truncation,
        count as pieces of the last word of A.
        """
        words: list[list[int]] = []
        for position in candidates:
            if words and token_ids[position] in self._continuations:
                words[-1].append(position)
            else:
                words.append([position])
        return words

    def _stand_in(self, token_id: int, rng: random.Random) -> int:
        """What the model sees in place of `token_id`."""
        if rng.random() < 0.8:
            return self._mask_id
        if rng.random() < 0.5:
            return token_id
        return rng.choice(self._vocab_ids)
