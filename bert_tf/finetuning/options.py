"""Flags of the fine-tuning programs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

from bert_tf.options import EncoderFilesOptions, OptionError, option, require_one_of
from bert_tf.training.options import TrainingOptions

# Name of the split, flag that needs it, flag of its file.
SPLITS = (
    ("train", "do_train", "train_file"),
    ("dev", "do_eval", "eval_file"),
    ("test", "do_predict", "predict_file"),
)


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

    def __post_init__(self) -> None:
        super().__post_init__()
        require_one_of(self, self.actions)

    @property
    def config_changes(self) -> dict[str, Any]:
        """Fields of the configuration set by flags."""
        layers = self.num_bilstm_layers
        return {} if layers is None else {"num_bilstm_layers": layers}

    def require_files(self, files: Iterable[tuple[str, str]]) -> None:
        """Raise ValueError if a file of the pairs (flag of an action, flag of its file) is missing."""
        for wanted, file in files:
            if getattr(self, wanted) and not getattr(self, file):
                raise OptionError(file, f"is needed by `{wanted}`.")


@dataclass(frozen=True, kw_only=True)
class ThreeFilesOptions(FineTuningOptions):
    """Flags of a program that reads a training, a dev and a test file."""

    train_file: str | None = option("File to train on.", group="Data", default=None)
    eval_file: str | None = option("File to evaluate on.", group="Data", default=None)
    predict_file: str | None = option("File to predict.", group="Data", default=None)

    def check_data(self, task_name: str | None, data_dir: str | None) -> None:
        """Raise ValueError unless there are either a data set and its folder, or the files."""
        files = any(getattr(self, name) for _, _, name in SPLITS)
        if bool(task_name) == files or bool(task_name) > bool(data_dir):
            raise OptionError("task_name", "give it with data_dir, or files of your own.")
        if not task_name:
            self.require_files((wanted, file) for _, wanted, file in SPLITS)
