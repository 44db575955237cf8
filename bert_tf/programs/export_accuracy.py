"""--eval_file: the metric of an export, next to that of the model in float32."""

from __future__ import annotations

import logging
import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from bert_tf.data.tables import read_table
from bert_tf.finetuning.run import Program, Run
from bert_tf.finetuning.setup import Setup
from bert_tf.metrics.basic import score
from bert_tf.options import TableOptions
from bert_tf.prediction import runtimes
from bert_tf.programs.export_options import FORMATS
from bert_tf.programs.model_to_export import SETTINGS_OF
from bert_tf.programs.predict_input import USUAL_NAMES
from bert_tf.registry import TYPES
from bert_tf.serving.quantization import INT8
from bert_tf.serving.served import TOKENS, Served
from bert_tf.tokenization import FullTokenizer

if TYPE_CHECKING:
    from bert_tf.programs.export_options import ExportOptions

logger = logging.getLogger(__name__)

Ask = Callable[[Mapping[str, Any]], Mapping[str, Any]]
MAX_ACCURACY_LOSS = 1.0  # points
FEWEST_EXAMPLES = 100  # fewer give a warning


class AccuracyCheck:
    """Compares an export with the model, on a labelled file. Call `measure` once before the check.

    Args:
        options: with `eval_file`, which is read at once.
        served: the model in float32.

    Raises:
        ValueError: the model has no task with labels, or the file does not fit it.
    """

    _expected: float  # set by `measure`

    def __init__(self, options: ExportOptions, served: Served):
        program = None if served.task is None else TYPES[served.task.name].load("finetuning")
        if program is None:
            raise ValueError(
                f"eval_file is {options.eval_file}, but {options.model_dir} is exported without a task "
                "that a program evaluates, so it has no metric. Omit it."
            )
        self._options, self._task, self._names = options, served.task, list(served.ids_specs())
        self._program: Program = program()
        self._folder = tempfile.TemporaryDirectory()  # of the records
        self._settings, self._setup, self._read_task, self._splits = self._read(served)

    def measure(self, served: Served) -> None:
        """Evaluate the float32 model, as the value to compare with. The model is unchanged.

        Raises:
            ValueError: the metric is nan, so nothing can be compared.
        """
        tokens = tf.function(served.tokens, autograph=False, reduce_retracing=True)
        self._expected = self._metric(lambda ids: tokens(**ids))
        if math.isnan(self._expected):
            raise ValueError(
                f"{self._task.best_metric} of the float32 model on eval_file={self._options.eval_file} "
                "is nan, so an export cannot be compared. Correct the labels, or omit eval_file."
            )

    def __call__(self, path: str) -> dict[str, Any]:
        """Return the metric of both, for export.json.

        Args:
            path: the folder of a SavedModel, or another file.

        Raises:
            ValueError: the export is worse by more than `max_accuracy_loss`.
        """
        options, name = self._options, self._task.best_metric
        precision = options.chosen.precision
        runtime = runtimes.load(options.format, path)
        found = self._metric(
            lambda ids: runtime.ask(TOKENS, {n: np.asarray(v) for n, v in ids.items()})
        )
        name = name.removeprefix("eval_")
        count = len(self._splits["dev"])
        logger.info(
            "%s on the %d examples of %s: %.4f of the float32 model, %.4f of the %s export",
            *(name, count, options.eval_file, self._expected, found, precision),
        )
        worse = score(name, self._expected) - score(name, found)
        is_fraction = self._task.name != "question_answering" and "error" not in name
        points = 100 * worse if is_fraction else worse
        most = MAX_ACCURACY_LOSS if options.max_accuracy_loss is None else options.max_accuracy_loss
        if count < FEWEST_EXAMPLES:
            logger.warning(
                "eval_file=%s has only %d examples: one example can be %.1f points. Give %d "
                "or more.",
                *(options.eval_file, count, 100 / count, FEWEST_EXAMPLES),
            )
        if points > most:
            remedy = "Use precision=float32, or raise max_accuracy_loss"
            if precision == INT8 and "bfloat16" in FORMATS[options.format]:
                remedy = "Use precision=bfloat16"
            if options.is_calibrated:
                remedy += ", or other texts in calibration_file"
            if options.is_int8_saved_model:
                remedy += ", or keep_precision for the products with the largest errors in the log"
            if precision == "float32":
                remedy = "Use another format, or raise max_accuracy_loss"
            raise ValueError(
                f"{name} on eval_file={options.eval_file} is {found:.4f} in {precision}, but "
                f"{self._expected:.4f} in float32: {points:.2f} points worse, and max_accuracy_loss is "
                f"{most:g}. Nothing is exported. {remedy}."
            )
        return {
            "evaluation": {
                "eval_file": options.eval_file,
                "metric": name,
                "float32": self._expected,
                "export": found,
            }
        }

    def _columns(self) -> dict[str, Any]:
        """Return the flags of columns for the program that reads `eval_file`."""
        options, reader = self._options, self._program.options_type
        is_table = issubclass(reader, TableOptions)
        known = {each.name for each in fields(reader)} if is_table else set()
        for name in options.columns:
            if name not in known and (name == "label_column" or not options.calibration_file):
                raise ValueError(
                    f"{name} is {options.columns[name]}, but eval_file of a model for "
                    f"{self._task.name} is read with the default columns of its training program. Omit "
                    "it, and bring the file into that form."
                )
        given = {name: value for name, value in options.columns.items() if name in known}
        return self._usual_columns() | given if "text_a_column" in known else given

    def _usual_columns(self) -> dict[str, Any]:
        """Return the columns of a classifier's table with usual names, as predict finds them."""
        options = self._options
        rows = read_table(
            options.eval_file or "",
            header=options.header,
            separator=options.column_separator,
        )
        usual: dict[str, Sequence[str]] = {"text_a": USUAL_NAMES["text_a"], "label": ("label",)}
        is_pair = getattr(self._task, "is_pair", False)
        if is_pair is not False:  # if unknown, a column without a name may be the label
            names = USUAL_NAMES["text_b"]
            usual["text_b"] = names if is_pair else [n for n in names if not n.isdecimal()]
        row = next(iter(rows), None)
        if row is None:
            return {}  # the reader names the empty file
        found = {f"{name}_column": row.find("", None, names) for name, names in usual.items()}
        return {flag: name for flag, name in found.items() if name is not None}

    def _read(self, served: Served) -> tuple[Any, Setup, Any, Any]:
        """Return the options, set-up, task and splits of `eval_file` for its program."""
        options = self._options
        settings = self._program.options_for(
            served.task,
            options.eval_file or "",
            self._folder.name,
            **{name: getattr(options, name) for name in SETTINGS_OF.get(self._task.name, ())},
            **self._columns(),
        )
        strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
        vocabulary = sorted(served.vocabulary, key=served.vocabulary.__getitem__)
        tokenizer = FullTokenizer(vocabulary, served.do_lower_case)
        length = served.max_seq_length
        setup = Setup(settings, strategy, None, served.config, length, tokenizer, served.task)
        return settings, setup, *self._program.read(settings, setup)

    def _metric(self, ask: Ask) -> float:
        settings, setup, task = self._settings, self._setup, self._read_task
        model: Any = _Answering(ask, setup, self._names)
        run = Run(settings, setup, model, task, self._splits, self._folder.name)
        return float(self._program.metrics(run)[task.best_metric])


class _Answering:
    """The part of `BatchTrainer` that evaluates, for a model that is a function."""

    is_chief = True

    def __init__(self, ask: Ask, setup: Setup, names: Sequence[str]):
        self._ask, self.strategy, self._names = ask, setup.devices, names
        self.model = SimpleNamespace(config=setup.config)

    def predict(
        self, dataset: tf.data.Dataset, outputs_of: Callable, batch_size: int, **_: Any
    ) -> dict[str, np.ndarray]:
        """Return the outputs that `outputs_of` keeps: name -> array [examples, ...]."""
        kept = []
        for features in dataset:
            ids = {name: features[name] for name in self._names}
            outputs = {name: tf.constant(value) for name, value in self._ask(ids).items()}
            kept.append(outputs_of(outputs, features))
        return {name: np.concatenate([batch[name] for batch in kept]) for name in kept[0]}
