"""Options of the fine-tuning programs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bert_tf.options import OptionError, flag_values, option, require_files


@dataclass(frozen=True, kw_only=True)
class FineTuningOptions:
    """Epochs, teacher, head and files of a fine-tuning program."""

    do_predict: bool = option("Predict the test set.", group="Actions", default=False)
    predict_batch_size: int = option("Examples per prediction batch.", default=8, min=1)
    num_train_epochs: float = option(
        "Passes over the training set.", group="Training", default=3.0, min=0, on_resume="warn"
    )
    warmup_proportion: float = option(
        "Fraction of the steps that warm up, 0 to 1.",
        group="Training",
        default=0.1,
        min=0,
        max=1,
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
    train_file: str | None = option("File to train on.", group="Data", default=None)
    eval_file: str | None = option("File to evaluate on.", group="Data", default=None)
    predict_file: str | None = option("File to predict.", group="Data", default=None)


# Flag of an action -> flag of its file.
FILES = {"do_train": "train_file", "do_eval": "eval_file", "do_predict": "predict_file"}


def select_files(options: Any) -> dict[str, str | None]:
    """Return split -> file of the splits that a run needs: "train", "dev" and "test"."""
    training, fine_tuning = options.training, options.fine_tuning
    files = {}
    if training.do_train:
        files["train"] = fine_tuning.train_file
    if training.do_eval:
        files["dev"] = fine_tuning.eval_file
    if fine_tuning.do_predict:
        files["test"] = fine_tuning.predict_file
    return files


def check_data(options: Any, task_name: str | None, data_dir: str | None) -> None:
    """Raise unless there is something to do, with a data set in its folder or with files."""
    has_files = any(flag_values(options)[file] for file in FILES.values())
    if bool(task_name) == has_files or bool(task_name) > bool(data_dir):
        raise OptionError("task_name", "give it with data_dir, or files of your own.")
    require_files(options, FILES if has_files else dict.fromkeys(FILES, "output_dir"))
