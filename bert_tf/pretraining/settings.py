"""Options of pre-training records: flags of `create_pretraining_data` and arguments of its workers.

Those that decide the bytes of the records are noted in the manifest.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from bert_tf.checkpoints.sidecar import find_case
from bert_tf.options import OptionError, flag_values, option, require_packages
from bert_tf.pretraining.sentence_pairs import MIN_SEQ_LENGTH, OBJECTIVES
from bert_tf.tokenization import load_vocab

logger = logging.getLogger(__name__)

MASKINGS = ("static", "none")


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
    max_ngram_size: int = option("Most neighbours that are masked together.", default=1, min=1)
    segmented_text: bool = option(
        "The input has spaces between Chinese words; --do_whole_word_mask then masks all characters of "
        "a word together.",
        default=False,
    )

    def __post_init__(self) -> None:
        if exact(self.mask_token_prob) + exact(self.random_token_prob) > 1:
            both = f"{self.random_token_prob} and mask_token_prob={self.mask_token_prob}"
            raise OptionError("random_token_prob", f"{both} are more than 1 together.")


def exact(value: float) -> Fraction:
    """Return the number as it is written: a tenth for 0.1."""
    return Fraction(repr(float(value)))


@dataclass(frozen=True, kw_only=True)
class PretrainingDataOptions:
    """The flags of create_pretraining_data: the reference's with its defaults, and others.

    Raises:
        ValueError: two values contradict each other.
    """

    masks: MaskingOptions
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
        min=0,
        max=1,
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
    input_file: str = option(
        "Plain UTF-8 text, one sentence per line, an empty line between documents: a comma list of "
        "files, globs or folders; .gz is read as well.",
        group="Data",
    )
    output_file: str = option(
        "TFRecord file or comma list of files, filled in turn. A corpus of several groups makes "
        "<file>-00000-of-00009 and so on of each. <first file>.manifest.json is written next to them.",
        group="Data",
    )
    num_workers: int = option(
        "Processes, each with a group at a time. Each needs room for its instances in the temporary "
        "folder, which the environment variable TMPDIR sets.",
        group="Machine",
        default=1,
        min=1,
    )
    runner: str | None = option(
        "Run as an Apache Beam pipeline: DirectRunner, FlinkRunner, SparkRunner, DataflowRunner. "
        "Flags of Beam follow after --, for example: -- --project=... --region=...",
        group="Machine",
        default=None,
    )
    runner_flags: tuple[str, ...] = option("Flags of Beam.", default=())

    def __post_init__(self) -> None:
        if self.runner:
            require_packages("runner", ["apache_beam"], "beam")
        elif self.runner_flags:
            raise ValueError(
                f"Unknown argument {self.runner_flags[0]!r}: flags of Beam need `runner`."
            )


# Flags that do not decide on the bytes, and the vocabulary, of which the manifest has the hash.
_NOT_NOTED = {"vocab_file", "input_file", "output_file", "num_workers", "runner", "runner_flags"}


def noted_settings(options: PretrainingDataOptions) -> dict[str, Any]:
    """Return the settings that the manifest notes."""
    return {name: v for name, v in flag_values(options).items() if name not in _NOT_NOTED}


def resolve_settings(options: PretrainingDataOptions) -> PretrainingDataOptions:
    """Return the options with every default filled in.

    `max_predictions_per_seq` is None for records without masks.
    """
    most = options.masks.max_predictions_per_seq
    if options.masking == "none":
        most = None
    elif most is None:
        most = most_predictions(options.max_seq_length, options.masks.masked_lm_prob)
    # `replace` would count as reading every flag.
    masks = type(options.masks)(**{**vars(options.masks), "max_predictions_per_seq": most})
    changed = {"do_lower_case": _find_case(options), "masks": masks}
    return type(options)(**{**vars(options), **changed})


def _find_case(options: PretrainingDataOptions) -> bool:
    if options.do_lower_case is not None:
        return options.do_lower_case
    found = find_case(None, None, list(load_vocab(options.vocab_file)), options.vocab_file)
    if found is None:
        return True
    logger.info("do_lower_case = %s, as the vocabulary is", found)
    return found


def most_predictions(max_seq_length: int, masked_lm_prob: float) -> int:
    """Return the predictions of a full sequence, rounded up.

    >>> [most_predictions(128, 0.15), most_predictions(100, 0.15), most_predictions(5, 0.01)]
    [20, 15, 1]
    """
    # Exact for the number as it is written: 0.15 * 100 is 15, not a little more.
    return max(1, math.ceil(max_seq_length * exact(masked_lm_prob)))
