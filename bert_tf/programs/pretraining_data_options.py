"""The flags of create_pretraining_data."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from bert_tf.beam import BeamOptions
from bert_tf.options import option
from bert_tf.pretraining.phases import LENGTH, check_length_in_names, parse_phases
from bert_tf.pretraining.settings import MaskSettings, RecordSettings


@dataclass(frozen=True, kw_only=True)
class PretrainingDataOptions(BeamOptions, RecordSettings):
    """The reference's flags with its defaults, and others.

    Raises:
        ValueError: a value is out of its range, or two contradict each other.
    """

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
    phases: str | None = option(
        "Make records of each of these lengths, as run_pretraining --phases reads them: "
        "128:0.9,512:0.1, whose fractions matter only there. {length} in --output_file becomes the "
        "length. Replaces --max_seq_length. Default: one length.",
        default=None,
    )
    num_workers: int = option(
        "Processes, each with a group at a time. Each needs room for its instances in the temporary "
        "folder, which the environment variable TMPDIR sets.",
        group="Machine",
        default=1,
        min=1,
    )
    overwrite: bool = option(
        "Replace existing records as soon as all new ones are made.", default=False
    )
    num_logged_instances: int = option(
        "Number of instances that are logged in full.", default=20, min=0
    )

    def __post_init__(self) -> None:
        for name in ("input_file", "output_file", "vocab_file"):
            if not getattr(self, name):
                raise ValueError(f"`{name}` is empty.")
        super().__post_init__()
        self._check_combinations()

    def phase_options(self) -> list[PretrainingDataOptions]:
        """Return the options of each length; without `phases` these alone."""
        if self.phases is None:
            return [self]
        lengths = dict.fromkeys(phase.max_seq_length for phase in parse_phases(self.phases))
        return [
            replace(
                self,
                phases=None,
                max_seq_length=length,
                output_file=self.output_file.replace(LENGTH, str(length)),
            )
            for length in lengths
        ]

    def _check_combinations(self) -> None:
        check_length_in_names(self.phases, "output_file", self.output_file)
        if self.span_masking and self.max_ngram_size > 1:
            raise ValueError("span_masking and max_ngram_size exclude each other; give one.")
        if self.runner is not None and self.num_workers > 1:
            raise ValueError(
                f"num_workers={self.num_workers} has no effect with `runner`, whose own flags set its "
                "workers, such as -- --direct_num_workers=4. Omit num_workers."
            )
        if self.segmented_text and not (self.do_whole_word_mask or self.span_masking):
            raise ValueError(
                "segmented_text marks the words of Chinese text, which only do_whole_word_mask "
                "and span_masking use. Give one of them as well."
            )
        if self.masking == "none":
            given = [f.name for f in fields(MaskSettings) if getattr(self, f.name) != f.default]
            if given:
                raise ValueError(
                    "masking=none writes records without masks, but settings of masks are given: "
                    f"{', '.join(given)}. Give them to run_pretraining, which has no max_ngram_size, "
                    "span_masking and segmented_text, or leave out masking=none."
                )
