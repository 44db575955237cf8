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

Pieces and whole words use the same random draws as the reference, so that one seed gives the reference's
masks.

Source: Devlin et al. 2019, section 3.1 and appendix A.1; google-research/bert,
create_pretraining_data.py, `create_masked_lm_predictions`.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from bert_tf.options import OptionError, option
from bert_tf.pretraining.python_random import RandomWords


@dataclass(frozen=True, kw_only=True)
class MaskingOptions:
    """Masks in records, or new masks in each epoch."""

    do_whole_word_mask: bool = option(
        "Mask all pieces of a word together.", group="Masking", default=False, on_resume="warn"
    )
    masked_lm_prob: float = option(
        "Fraction of the tokens that is predicted.",
        group="Masking",
        default=0.15,
        above=0,
        max=1,
        on_resume="warn",
    )
    mask_token_prob: float = option(
        "Fraction of the predicted tokens that become [MASK].",
        default=0.8,
        min=0,
        max=1,
        on_resume="warn",
    )
    random_token_prob: float = option(
        "Fraction of the predicted tokens that become random ones; the rest stays unchanged.",
        default=0.1,
        min=0,
        max=1,
        on_resume="warn",
    )
    max_predictions_per_seq: int | None = option(
        "Most masked-LM predictions per sequence. Default: --max_seq_length times --masked_lm_prob, "
        "rounded up, which is the reference's 20 for 128.",
        group="Model",
        default=None,
        min=1,
    )
    segmented_text: bool = option(
        "The input has spaces between Chinese words; --do_whole_word_mask then masks all characters of "
        "a word together.",
        default=False,
    )

    def __post_init__(self) -> None:
        if round(self.mask_token_prob + self.random_token_prob, 9) > 1:
            both = f"{self.random_token_prob} and mask_token_prob={self.mask_token_prob}"
            raise OptionError("random_token_prob", f"{both} are more than 1 together.")


def count_predictions(max_seq_length: int, masked_lm_prob: float) -> int:
    """Return the predictions of a full sequence, rounded up.

    >>> [count_predictions(128, 0.15), count_predictions(100, 0.15), count_predictions(5, 0.01)]
    [20, 15, 1]
    """
    # 0.15 * 100 is 15 here; in floating point it is a little more.
    return max(1, math.ceil(round(max_seq_length * masked_lm_prob, 9)))


class MaskedTokens(NamedTuple):
    """The model's input and its targets, without padding."""

    token_ids: array
    masked_lm_positions: list[int]  # ascending, from 0 = [CLS]
    masked_lm_ids: list[int]  # the original token at each of these positions


class Masker:
    """Masks token sequences of one vocabulary; random words are drawn from all of its entries."""

    def __init__(
        self,
        vocab: Mapping[str, int],
        options: MaskingOptions,
        max_predictions: int,
        continuations: Collection[int],
    ):
        self._masked_lm_prob = options.masked_lm_prob
        self._max_predictions = max_predictions
        self._mask_id = vocab["[MASK]"]
        self._vocab_ids = list(vocab.values())
        self._whole_words = options.do_whole_word_mask
        self._continuations = frozenset(continuations)
        self._mask_prob = options.mask_token_prob
        # Fraction of the pieces that do not become [MASK] which stay unchanged: 0.5 for 0.8 and 0.1.
        not_masked = 1 - options.mask_token_prob
        unchanged = not_masked - options.random_token_prob
        self._unchanged_prob = round(unchanged / not_masked, 12) if not_masked else 0.0

    def __call__(self, token_ids: array, end_a: int, rng: RandomWords) -> MaskedTokens:
        """Mask [CLS] A [SEP] B [SEP], or [CLS] A [SEP]; `end_a` is the position of the first [SEP]."""
        num_to_predict = min(
            self._max_predictions, max(1, round(len(token_ids) * self._masked_lm_prob))
        )
        candidates = [*range(1, end_a), *range(end_a + 1, len(token_ids) - 1)]
        if self._whole_words:
            positions = self._choose_words(token_ids, candidates, num_to_predict, rng)
        else:
            rng.shuffle(candidates)
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
        for position in positions:
            if rng.random() < self._mask_prob:
                masked[position] = self._mask_id
            elif rng.random() >= self._unchanged_prob:
                masked[position] = self._vocab_ids[rng.randrange(len(self._vocab_ids))]
        positions.sort()
        return MaskedTokens(masked, positions, [token_ids[position] for position in positions])


def continuation_ids(vocab: Mapping[str, int]) -> frozenset[int]:
    return frozenset(index for token, index in vocab.items() if token.startswith("##"))
