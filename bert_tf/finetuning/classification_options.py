"""The flags of run_classifier."""

from __future__ import annotations

from dataclasses import dataclass

from bert_tf.finetuning.options import SPLITS, ThreeFilesOptions
from bert_tf.options import OptionError, TableOptions, option
from bert_tf.tasks.glue import GLUE_TASKS
from bert_tf.tasks.problem_types import PROBLEM_TYPES


@dataclass(frozen=True, kw_only=True)
class ClassifierOptions(TableOptions, ThreeFilesOptions):
    """The flags of run_classifier."""

    data_dir: str | None = option(
        "Folder of a GLUE data set, for --task_name.", group="Data", default=None
    )
    task_name: str | None = option(
        f"Name of a data set: {', '.join(GLUE_TASKS)}. For your own data give --train_file instead.",
        group="Data",
        default=None,
    )
    language: str = option("For --task_name=xnli: language of the data.", default="zh")
    train_file: str | None = option(
        "Table to train on: .tsv, .csv or .jsonl.", group="Data", default=None
    )
    eval_file: str | None = option("Table to evaluate on.", group="Data", default=None)
    predict_file: str | None = option(
        "Table to predict; labels are optional.", group="Data", default=None
    )
    text_a_column: str = option("Column of the (first) sentence.", group="Data", default="text_a")
    text_b_column: str | None = option(
        "Column of the second sentence of a pair.", group="Data", default=None
    )
    label_column: str = option(
        "Column of the label. With --problem_type=multi_label also a comma list of columns that "
        "contain 0 or 1.",
        group="Data",
        default="label",
    )
    problem_type: str | None = option(
        "single_label: one of several labels. multi_label: any number of them. regression: a number. "
        "Default: that of --task_name or of the model in --output_dir, else single_label.",
        default=None,
        choices=tuple(PROBLEM_TYPES),
    )
    labels: str | None = option(
        "Comma list of all labels of --train_file, in the order of the outputs and of the columns of "
        "test_results.tsv. Default: those of the model in --output_dir, else of the table, sorted.",
        default=None,
    )
    class_weights: str | None = option(
        "Weights of the labels in the training loss: balanced (rare labels count more), or "
        "label=weight,label=weight, others 1.",
        default=None,
        on_resume="warn",
    )
    max_seq_length: int | None = option(
        "WordPieces of an input; longer ones are truncated. Default: that of the model in --output_dir, "
        "else 128 (or the model's number of positions, if lower).",
        group="Model",
        default=None,
        on_resume="model",
    )
    doc_stride: int | None = option(
        "Inputs beyond --max_seq_length are read in windows, which start this many tokens apart. Their "
        "logits are averaged. Default: that of the model in --output_dir, else inputs are truncated.",
        group="Model",
        default=None,
        min=1,
        on_resume="model",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_data()

    def _check_data(self) -> None:
        files = [name for _, _, name in SPLITS if getattr(self, name)]
        if bool(self.task_name) == bool(files):
            raise OptionError("task_name", "give it with data_dir, or files of your own.")
        if self.task_name:
            if not self.data_dir:
                raise OptionError("data_dir", "is the folder of task_name: give it.")
        else:
            self.require_files((wanted, file) for _, wanted, file in SPLITS)
