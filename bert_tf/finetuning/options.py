"""Flags of the fine-tuning programs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

from bert_tf.data.parallel import usable_cores
from bert_tf.options import EncoderFilesOptions, option, require_one_of
from bert_tf.training.options import TrainingOptions

# Name of the split, flag that needs it, flag of its file.
SPLITS = (
    ("train", "do_train", "train_file"),
    ("dev", "do_eval", "eval_file"),
    ("test", "do_predict", "predict_file"),
)

_SEQUENCES_PER_WORKER = 100_000  # with fewer, starting a process takes longer than it saves


@dataclass(frozen=True, kw_only=True)
class FineTuningOptions(EncoderFilesOptions, TrainingOptions):
    """Flags of every fine-tuning program."""

    actions: ClassVar[tuple[str, ...]] = ("do_train", "do_eval", "do_predict")

    max_seq_length: int | None = option(
        "WordPieces of an input, with [CLS] and [SEP]. Default: that of the model in --output_dir; "
        "without --do_train, that of --init_checkpoint; else 128 (or the model's number of positions, "
        "if lower).",
        group="Model",
        default=None,
        on_resume="model",
    )
    do_predict: bool = option("Predict the test set.", group="Actions", default=False)
    predict_batch_size: int = option("Examples per prediction batch.", default=8, min=1)
    num_train_epochs: float = option(
        "Passes over the training set.", group="Training", default=3.0, min=0, on_resume="warn"
    )
    warmup_proportion: float = option(
        "Fraction of the steps that warm up, 0 to 1.",
        group="Training",
        default=0.1,
        between=(0, 1),
        on_resume="warn",
    )
    pad_to_max_length: bool = option(
        "Pad every batch to --max_seq_length tokens, as in the reference and on a TPU. Default: a batch "
        "contains examples of similar length, padded to the longest.",
        default=False,
    )
    num_workers: int | None = option(
        "Processes that make the records. Default: one per 100,000 sequences, at most one per core.",
        group="Machine",
        default=None,
        min=1,
    )
    feature_cache_dir: str | None = option(
        "Folder of records to reuse in other runs on the same data. Default: --output_dir.",
        default=None,
    )
    teacher: str | None = option(
        "Trained model whose outputs the model learns, half and half with the labels: the --output_dir "
        "of a run, or any checkpoint with a head for the task.",
        default=None,
        on_resume="warn",
    )
    temperature: float = option(
        "Divisor of the logits of --teacher and of the model, before the softmax. Higher values give "
        "the smaller probabilities more influence.",
        default=2.0,
        above=0,
        on_resume="warn",
    )
    num_bilstm_layers: int | None = option(
        "BiLSTM layers between the encoder and the head, as in the paper's ablation; stored in the "
        "bert_config.json of --output_dir. Default: the value in --bert_config_file.",
        default=None,
        min=0,
    )
    report: bool = option(
        "Write report.html after an evaluation: results and errors of the model.", default=True
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        require_one_of(self, self.actions)

    @property
    def config_changes(self) -> dict[str, Any]:
        """Fields of the configuration set by flags."""
        layers = self.num_bilstm_layers
        return {} if layers is None else {"num_bilstm_layers": layers}

    @property
    def lengths(self) -> str:
        """One of `batch_lengths.LENGTHS`."""
        return "full" if self.pad_to_max_length else "bucketed"

    def workers_for(self, num_sequences: int) -> int:
        """Return `num_workers`, or by default one process per 100,000 sequences."""
        if self.num_workers is not None:
            return self.num_workers
        return max(1, min(usable_cores(), num_sequences // _SEQUENCES_PER_WORKER))

    def require_files(self, files: Iterable[tuple[str, str]]) -> None:
        """Raise ValueError if a file of the pairs (flag of an action, flag of its file) is missing."""
        for wanted, file in files:
            if getattr(self, wanted) and not getattr(self, file):
                raise ValueError(f"`{wanted}` needs `{file}`.")


@dataclass(frozen=True, kw_only=True)
class ThreeFilesOptions(FineTuningOptions):
    """Flags of a program that reads a training, a dev and a test file."""

    train_file: str | None = option("File to train on.", group="Data", default=None)
    eval_file: str | None = option("File to evaluate on.", group="Data", default=None)
    predict_file: str | None = option("File to predict.", group="Data", default=None)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.do_train:
            self._need("do_eval", ["evaluate_steps", "eval_file"])
            self._need("do_predict", ["predict_file"])
