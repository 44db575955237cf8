"""Settings that decide the bytes of pre-training records, each declared once.

They are flags of `create_pretraining_data` and arguments of its workers, and the manifest notes them.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass, fields
from fractions import Fraction
from typing import Any

from bert_tf.interop.sidecar import find_case
from bert_tf.options import OptionError, Options, option
from bert_tf.pretraining.sentence_pairs import MIN_SEQ_LENGTH, OBJECTIVES
from bert_tf.vocabulary import load_vocab

logger = logging.getLogger(__name__)

MASKINGS = ("static", "none")


@dataclass(frozen=True, kw_only=True)
class MaskingOptions(Options):
    """Options of masks in records and of new masks in each epoch."""

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
        between=(0, 1),
        on_resume="warn",
    )
    random_token_prob: float = option(
        "Fraction of the predicted tokens that become random ones; the rest stays unchanged.",
        default=0.1,
        between=(0, 1),
        on_resume="warn",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if exact(self.mask_token_prob) + exact(self.random_token_prob) > 1:
            both = f"{self.random_token_prob} and mask_token_prob={self.mask_token_prob}"
            raise OptionError("random_token_prob", f"{both} are more than 1 together.")


def exact(value: float) -> Fraction:
    """Return the number as it is written: a tenth for 0.1."""
    return Fraction(repr(float(value)))


@dataclass(frozen=True, kw_only=True)
class MaskSettings(MaskingOptions):
    """Settings of the masks in records."""

    max_predictions_per_seq: int | None = option(
        "Most masked-LM predictions per sequence. Default: --max_seq_length times --masked_lm_prob, "
        "rounded up, which is the reference's 20 for 128.",
        group="Model",
        default=None,
        min=1,
    )
    max_ngram_size: int = option("Most neighbours that are masked together.", default=1, min=1)
    segmented_text: bool = option(
        "The input has spaces between Chinese words; --do_whole_word_mask then masks all characters of "
        "a word together.",
        default=False,
    )


@dataclass(frozen=True, kw_only=True)
class RecordSettings(MaskSettings):
    """Settings of the records, masks included."""

    vocab_file: str = option("The vocabulary of the model, one token per line.", group="Model")
    do_lower_case: bool | None = option(
        "Lower-case the text: True for uncased models, False for cased ones. Default: from "
        "tokenizer_config.json next to the vocabulary, else from its tokens, else True.",
        group="Model",
        default=None,
    )
    max_seq_length: int = option(
        "Tokens per sequence, with [CLS], [SEP] and padding.",
        group="Model",
        default=128,
        min=MIN_SEQ_LENGTH,
        hint=": [CLS] A [SEP] B [SEP]",
    )
    random_seed: int = option("Seed of all random draws.", group="Masking", default=12345)
    dupe_factor: int = option(
        "Number of times the corpus is used, each time with new masks.",
        group="Masking",
        default=10,
        min=1,
    )
    short_seq_prob: float = option(
        "Fraction of documents cut into shorter sequences.",
        group="Masking",
        default=0.1,
        between=(0, 1),
    )
    objective: str = option(
        "mlm_nsp: masked words and next sentence; mlm: masked words, single sequences; mlm_sop: "
        "masked words and the order of two neighbours.",
        group="Masking",
        default="mlm_nsp",
        choices=OBJECTIVES,
    )
    masking: str = option(
        "static: masked now, as in the reference; none: not masked, for masks made while training.",
        group="Masking",
        default="static",
        choices=MASKINGS,
    )

    def resolved(self) -> RecordSettings:
        """Return these settings with every default filled in.

        `max_predictions_per_seq` is None for records without masks.
        """
        values = {f.name: getattr(self, f.name) for f in fields(RecordSettings)}
        values["do_lower_case"] = self._find_case()
        values["max_predictions_per_seq"] = self._find_max_predictions()
        return RecordSettings(**values)

    def noted(self) -> dict[str, Any]:
        """Return what the manifest notes: not the path of the vocabulary, whose hash it has."""
        return {
            f.name: getattr(self, f.name) for f in fields(RecordSettings) if f.name != "vocab_file"
        }

    def _find_case(self) -> bool:
        if self.do_lower_case is not None:
            return self.do_lower_case
        found = find_case(None, None, list(load_vocab(self.vocab_file)), self.vocab_file)
        if found is None:
            return True
        logger.info("do_lower_case = %s, as the vocabulary is", found)
        return found

    def _find_max_predictions(self) -> int | None:
        if self.masking == "none":
            return None
        if self.max_predictions_per_seq is not None:
            return self.max_predictions_per_seq
        return most_predictions(self.max_seq_length, self.masked_lm_prob)


def most_predictions(max_seq_length: int, masked_lm_prob: float) -> int:
    """Return the predictions of a full sequence, rounded up.

    >>> [most_predictions(128, 0.15), most_predictions(100, 0.15), most_predictions(5, 0.01)]
    [20, 15, 1]
    """
    # Exact for the number as it is written: 0.15 * 100 is 15, not a little more.
    return max(1, math.ceil(max_seq_length * exact(masked_lm_prob)))
