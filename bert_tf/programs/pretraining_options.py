"""The options of run_pretraining."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from bert_tf.config import ATTENTION_DIRECTIONS
from bert_tf.finetuning.distillation_options import TeacherOptions
from bert_tf.options import EncoderFilesOptions, option, reject_unused, require_one_of
from bert_tf.pretraining.phases import LENGTH, Phase, check_length_in_names, parse_phases
from bert_tf.pretraining.recipes import RECIPES, with_recipe
from bert_tf.pretraining.sentence_pairs import OBJECTIVES
from bert_tf.pretraining.settings import MaskingOptions, most_predictions
from bert_tf.programs.pretraining_record_sets import RecordSet
from bert_tf.tasks.base import MIN_SEQ_LENGTH
from bert_tf.training.options import TrainingOptions

_NUM_WARMUP_STEPS = 10_000  # the reference's default
MASKING = (*(field.name for field in fields(MaskingOptions)), "masked_lm_prob_end")


@dataclass(frozen=True, kw_only=True)
class PretrainingOptions(TeacherOptions, EncoderFilesOptions, TrainingOptions, MaskingOptions):
    """The flags of run_pretraining.

    Records without masks (`create_pretraining_data --masking=none`) are detected and get new masks in
    each epoch, by --masked_lm_prob, --do_whole_word_mask, --mask_token_prob and --random_token_prob. The
    masks of an evaluation depend only on --eval_batch_size.
    """

    input_file: str = option("TFRecord files to train on; comma list of globs.", group="Data")
    eval_file: str | None = option(
        "Held-out TFRecord files to evaluate on. Default: --input_file, as in the reference, which "
        "measures memory of the training data and not quality.",
        group="Data",
        default=None,
    )
    vocab_file: str | None = option(
        "Vocabulary of the records, copied into --output_dir so that the folder works alone. Default: "
        "the one next to --bert_config_file or --init_checkpoint, if any. Required for records without "
        "masks.",
        group="Model",
        default=None,
    )
    do_lower_case: bool | None = option(
        "The records are lower-cased; stored in --output_dir. Default: by the manifest of the records, "
        "else by the checkpoint, else by the vocabulary.",
        group="Model",
        default=None,
    )
    attention: str | None = option(
        "left_to_right: a token sees itself and those before it, as in the paper's ablation. Stored in "
        "the bert_config.json of --output_dir. Default: the value in --bert_config_file.",
        default=None,
        choices=ATTENTION_DIRECTIONS,
    )
    max_seq_length: int = option(
        "Tokens per example, as in the records.",
        group="Model",
        default=128,
        min=MIN_SEQ_LENGTH,
        on_resume="model",
    )
    phases: str | None = option(
        "Lengths of sequences one after the other, each with its fraction of the steps: "
        "128:0.9,512:0.1 are the paper's. {length} in --input_file and --eval_file becomes the length. "
        "create_pretraining_data --phases makes such records. Replaces --max_seq_length. Default: one "
        "length.",
        default=None,
    )
    scale_phase_batches: bool = option(
        "Give shorter phases more examples per step, so that all have the tokens of the longest one, "
        "whose examples are --train_batch_size.",
        default=False,
    )
    max_predictions_per_seq: int | None = option(
        "Most masked tokens per example. Default: that of records with masks. For records without masks "
        "--max_seq_length times --masked_lm_prob (or --masked_lm_prob_end, if larger), rounded up.",
        group="Model",
        default=None,
        min=1,
        on_resume="warn",
    )
    masked_lm_prob_end: float | None = option(
        "Fraction of the tokens that is predicted at the last step, reached in equal steps from "
        "--masked_lm_prob at the first one. Evaluations use this fraction. For records without masks. "
        "Default: --masked_lm_prob.",
        default=None,
        above=0,
        max=1,
    )
    recipe: str = option(
        "Set of flags, which the log and the model card list. paper: none, the reference's defaults. "
        "2026: "
        + " ".join(f"--{name}={value}" for name, value in RECIPES["2026"].items())
        + ". Flags that are given have precedence.",
        default="paper",
        choices=tuple(RECIPES),
    )
    z_loss: float = option(
        "Factor of log(sum(exp(logits)))^2, which is added to the masked-LM loss of each word in "
        "training, to keep the logits small. 1e-4 is usual.",
        default=0.0,
        min=0,
    )
    objective: str | None = option(
        "mlm_nsp: masked words and next sentence; mlm: only masked words; mlm_sop: masked words and the "
        "order of two segments. Default: the objective of the records; without --do_train that of the "
        "model.",
        group="Masking",
        default=None,
        choices=OBJECTIVES,
        on_resume="warn",
    )
    num_train_steps: int = option(
        "Optimizer steps.", group="Training", default=100000, min=1, on_resume="warn"
    )
    num_warmup_steps: int = option(
        "Steps until the full learning rate. The default becomes a tenth of --num_train_steps if the "
        "training is shorter than it.",
        group="Training",
        default=_NUM_WARMUP_STEPS,
        on_resume="warn",
    )
    auto_batch: bool = option(
        "Choose --gradient_accumulation_steps: the fewest parts of a device's batch that fit its memory "
        "by an estimate.",
        default=False,
    )
    max_eval_steps: int = option("Most batches to evaluate on.", default=100, min=1)
    probe_file: str | None = option(
        "Labelled table for a linear probe at every evaluation: .tsv, .csv or .jsonl with the column "
        "label and a text (text_a, text, sentence, sentence1 ...), perhaps a second text (text_b, "
        "sentence2 ...). A fifth of at most 5,000 rows is held out. Needs --do_eval.",
        default=None,
    )
    report: bool = option(
        "Write report.html at the end and after each evaluation: curves of the training.",
        default=True,
    )

    @classmethod
    def with_given(cls, **given: Any) -> PretrainingOptions:
        return cls(**with_recipe(given))

    def __post_init__(self) -> None:
        super().__post_init__()
        require_one_of(self, ("do_train", "do_eval"))
        self._need("phases", ("scale_phase_batches",))
        of_evaluations = ("probe_file", "evaluate_steps", "eval_file")
        self._need("do_eval", of_evaluations)
        self._need("do_train", ("auto_batch",))
        if not self.do_train:
            reject_unused(self, ("teacher",), "without do_train")
        elif (self.stop_step or 0) > self.num_train_steps:
            raise ValueError(
                f"stop_step is {self.stop_step}, but must be at most "
                f"num_train_steps={self.num_train_steps}, the last step. Omit it, or raise "
                "num_train_steps."
            )
        if self.auto_batch and (self.gradient_accumulation_steps > 1 or self.teacher):
            raise ValueError(
                "auto_batch cannot be combined with gradient_accumulation_steps, which it sets, or with "
                "teacher, whose memory it does not count."
            )
        if self.phases is not None:
            self._check_phases(parse_phases(self.phases))
        added = RECIPES[self.recipe].items()
        if added and all(getattr(self, name) != value for name, value in added):
            raise ValueError(
                f"recipe={self.recipe} sets other options, but none has its value. In Python, make the "
                "options by PretrainingOptions.with_given(recipe=..., ...)."
            )
        if self.do_train and not (
            0 <= self.num_warmup_steps <= self.num_train_steps
            or self.num_warmup_steps == _NUM_WARMUP_STEPS
        ):
            raise ValueError(
                f"num_warmup_steps is {self.num_warmup_steps}, but must be from 0 to "
                f"num_train_steps={self.num_train_steps}. A tenth of it is usual: "
                f"num_warmup_steps={self.num_train_steps // 10}."
            )

    def _check_phases(self, phases: Sequence[Phase]) -> None:
        steps = self.num_train_steps
        empty = [p.max_seq_length for p in phases if p.first_step(steps) == p.last_step(steps)]
        if empty:
            raise ValueError(
                f"phases={self.phases}: the phase of {empty[0]} tokens has no step of "
                f"num_train_steps={steps}. Give it a larger fraction."
            )
        for name in ("early_stopping", "lr_batch_size" if self.scale_phase_batches else ""):
            if name and getattr(self, name):
                raise ValueError(
                    f"{name} cannot be combined with `phases`, whose losses and batches differ. Omit "
                    "one."
                )

    def phase_options(self) -> list[PretrainingOptions]:
        """Return the options of each phase until `stop_step`; without `phases` these alone."""
        for name, files in (("input_file", self.input_file), ("eval_file", self.eval_file)):
            if files:
                check_length_in_names(self.phases, name, files)
        if self.phases is None:
            return [self]
        phases = parse_phases(self.phases)
        longest = max(phase.max_seq_length for phase in phases)
        stop = self.num_train_steps if self.stop_step is None else self.stop_step

        def options_of(phase: Phase) -> PretrainingOptions:
            length, scale = phase.max_seq_length, self.scale_phase_batches
            return replace(
                self,
                max_seq_length=length,
                train_batch_size=self.train_batch_size * (longest if scale else length) // length,
                stop_step=min(stop, phase.last_step(self.num_train_steps))
                if self.do_train
                else None,
                input_file=self.input_file.replace(LENGTH, str(length)),
                eval_file=self.eval_file and self.eval_file.replace(LENGTH, str(length)),
            )

        steps = self.num_train_steps
        return [options_of(phase) for phase in phases if phase.first_step(steps) < stop]

    def max_predictions_for(self, records: RecordSet) -> int:
        """Return `max_predictions_per_seq`, with its default for these records filled in."""
        if self.max_predictions_per_seq is not None:
            return self.max_predictions_per_seq
        if records.is_masked:
            return records.max_predictions_per_seq
        prob = max(self.masked_lm_prob, self.masked_lm_prob_end or 0.0)
        return most_predictions(self.max_seq_length, prob)

    @property
    def of_recipe(self) -> Mapping[str, Any]:
        """Defaults that `recipe` sets."""
        return RECIPES[self.recipe]

    @property
    def config_changes(self) -> dict[str, Any]:
        return {} if self.attention is None else {"attention_direction": self.attention}
