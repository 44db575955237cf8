"""The options of run_pretraining."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bert_tf.config import ATTENTION_DIRECTIONS
from bert_tf.interop.hub import SCHEME
from bert_tf.options import EncoderFilesOptions, OptionError, option, require_one_of
from bert_tf.pretraining.record_sets import RecordSet
from bert_tf.pretraining.sentence_pairs import OBJECTIVES
from bert_tf.pretraining.settings import MaskingOptions, most_predictions
from bert_tf.tasks.base import MIN_SEQ_LENGTH
from bert_tf.training.options import TrainingOptions

_NUM_WARMUP_STEPS = 10_000  # the reference's default


@dataclass(frozen=True, kw_only=True)
class PretrainingOptions(EncoderFilesOptions, TrainingOptions, MaskingOptions):
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
    max_predictions_per_seq: int | None = option(
        "Most masked tokens per example. Default: that of records with masks. For records without masks "
        "--max_seq_length times --masked_lm_prob, rounded up.",
        group="Model",
        default=None,
        min=1,
        on_resume="warn",
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
    stop_step: int | None = option(
        "End at this step, with the learning rates of all training steps. For a first phase that "
        "--init_optimizer continues.",
        default=None,
        min=1,
    )
    init_optimizer: bool = option(
        "Also read the optimizer's moments and the step from --init_checkpoint, the --output_dir of a "
        "run or a model.ckpt-N in it. For a second phase that continues the first one, such as longer "
        "sequences or the decay of --lr_schedule=warmup_stable_decay.",
        default=False,
    )
    num_warmup_steps: int = option(
        "Steps until the full learning rate. The default becomes a tenth of --num_train_steps if the "
        "training is shorter than it.",
        group="Training",
        default=_NUM_WARMUP_STEPS,
        on_resume="warn",
    )
    max_eval_steps: int = option("Most batches to evaluate on.", default=100, min=1)

    def __post_init__(self) -> None:
        super().__post_init__()
        require_one_of(self, ("do_train", "do_eval"))
        if (self.stop_step or 0) > self.num_train_steps:
            raise OptionError(
                "stop_step", f"{self.stop_step} is above num_train_steps={self.num_train_steps}."
            )
        if self.init_optimizer and (self.init_checkpoint or SCHEME).startswith(SCHEME):
            raise OptionError("init_optimizer", "needs init_checkpoint, the output_dir of a run.")
        if self.init_optimizer and self.init_layers is not None:
            raise OptionError("init_layers", "cannot be combined with init_optimizer.")
        if self.do_train and not (
            0 <= self.num_warmup_steps <= self.num_train_steps
            or self.num_warmup_steps == _NUM_WARMUP_STEPS
        ):
            raise OptionError(
                "num_warmup_steps",
                f"must be from 0 to num_train_steps={self.num_train_steps}, but is "
                f"{self.num_warmup_steps}. A tenth of it is usual.",
            )

    def max_predictions_for(self, records: RecordSet) -> int:
        """Return `max_predictions_per_seq`, with its default for these records filled in."""
        if self.max_predictions_per_seq is not None:
            return self.max_predictions_per_seq
        if records.is_masked:
            return records.max_predictions_per_seq
        return most_predictions(self.max_seq_length, self.masked_lm_prob)

    @property
    def config_changes(self) -> dict[str, Any]:
        return {} if self.attention is None else {"attention_direction": self.attention}
