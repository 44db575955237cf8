"""Options of pre-training records: flags of `create_pretraining_data` and arguments of its workers.

The manifest has those that decide the bytes of the records.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from bert_tf.checkpoints.tokenizer_files import find_case, read_tokenizer_files
from bert_tf.options import flag_values, option, require_packages
from bert_tf.pretraining.masking import MaskingOptions, count_predictions
from bert_tf.pretraining.sentence_pairs import MIN_PAIR_LENGTH, OBJECTIVES

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class PretrainingDataOptions:
    """The flags of create_pretraining_data: the reference's with its defaults, and others."""

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
        min=MIN_PAIR_LENGTH,
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
        choices=("static", "none"),
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


# Flags that do not decide the bytes, and the vocabulary, of which the manifest has the hash.
_UNRECORDED = {"vocab_file", "input_file", "output_file", "num_workers", "runner", "runner_flags"}


def recorded_settings(options: PretrainingDataOptions) -> dict[str, Any]:
    """Return the settings that the manifest has."""
    return {name: v for name, v in flag_values(options).items() if name not in _UNRECORDED}


def resolve_settings(options: PretrainingDataOptions) -> PretrainingDataOptions:
    """Return the options with every default filled in; None predictions for records without masks."""
    max_predictions = options.masks.max_predictions_per_seq
    if options.masking == "none":
        max_predictions = None
    elif max_predictions is None:
        max_predictions = count_predictions(options.max_seq_length, options.masks.masked_lm_prob)
    do_lower_case = options.do_lower_case
    if do_lower_case is None:
        files = read_tokenizer_files(options.vocab_file)
        do_lower_case = find_case(None, None, files) is not False
        logger.info("do_lower_case = %s", do_lower_case)
    # `replace` would count as reading every flag.
    masks = type(options.masks)(
        **{**vars(options.masks), "max_predictions_per_seq": max_predictions}
    )
    return type(options)(**{**vars(options), "do_lower_case": do_lower_case, "masks": masks})
