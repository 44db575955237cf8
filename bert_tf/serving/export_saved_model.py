"""export_saved_model: from a model folder or checkpoint to a file for serving."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import partial
from typing import Any

from bert_tf.data.tables import TableOptions
from bert_tf.files import (
    check_new_folder,
    expand_files,
    file_facts,
    list_checkpoint_files,
)
from bert_tf.modeling.compat import has_operation
from bert_tf.modeling.int8 import OPERATION
from bert_tf.modeling.models import BertForPreTraining
from bert_tf.modeling.pooling import POOLINGS, parse_layers
from bert_tf.options import (
    ModelOptions,
    OptionError,
    changes,
    make_options,
    option,
    require_packages,
)
from bert_tf.prediction.model_folder import TrainedModel, load_model
from bert_tf.prediction.predict import check_not_blank, read_inputs
from bert_tf.prediction.predictor import TEXT_MODELS
from bert_tf.registry import TYPES
from bert_tf.report.model_card import without_folders
from bert_tf.report.page import as_flags, changed_options
from bert_tf.serving.check import ExportCheck
from bert_tf.serving.classification import ServedClassifier
from bert_tf.serving.encoder import ServedEncoder
from bert_tf.serving.formats import write_file
from bert_tf.serving.masked_lm import ServedMaskFiller
from bert_tf.serving.multiple_choice import ServedChooser
from bert_tf.serving.quantization import INT8, Ids, Quantization, calibration_ids, quantize
from bert_tf.serving.question_answering import ServedAnswerer
from bert_tf.serving.saved_model import default_signatures, write_saved_model
from bert_tf.serving.served import IDS_SIGNATURES, TEXT, TOKENS, Served
from bert_tf.serving.token_classification import ServedTagger
from bert_tf.tasks.answer_decoding import AnswerSettings
from bert_tf.tasks.base import MIN_SEQ_LENGTH, Task
from bert_tf.tasks.classification import ClassificationTask
from bert_tf.tasks.question_answering import QuestionAnsweringTask
from bert_tf.training.checkpoints import checkpoint_step
from bert_tf.training.strategy import check_backend, precision_for_cpu

logger = logging.getLogger(__name__)

HEADS = ("task", "encoder", "masked_lm")
# Name of a task, or of a head without one -> what exports it.
SERVED: dict[str, Callable[..., Served]] = {
    "encoder": ServedEncoder,
    "masked_lm": ServedMaskFiller,
    "classification": ServedClassifier,
    "token_classification": ServedTagger,
    "question_answering": ServedAnswerer,
    "multiple_choice": ServedChooser,
}
# Format -> supported precisions.
FORMATS = {
    "saved_model": ("float32", "bfloat16", INT8),
    "tflite": ("float32", "float16", INT8),
    "onnx": ("float32",),
    "openvino": ("float32", "bfloat16", INT8),
}
_PRECISIONS = tuple(dict.fromkeys(name for names in FORMATS.values() for name in names))


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """The flags of export_saved_model."""

    model: ModelOptions = changes(
        max_seq_length={
            "help": "Longer texts are truncated, or read in windows of this length. Default: that of "
            "the training; of a pre-trained model, all positions. Not for question answering."
        }
    )
    table: TableOptions
    model_dir: str = option(
        "The --output_dir of a bert_tf run, or any checkpoint that --init_checkpoint accepts.",
        group="Model",
    )
    export_dir: str = option("New folder; TF Serving needs .../<version>.", group="Data")
    head: str | None = option(
        "Head to export. task: the one of the fine-tuning, also of a Hugging Face folder. "
        "encoder: embeddings and vectors of layers. masked_lm: tokens for [MASK]. Default: task for a "
        "fine-tuned model, else encoder.",
        group="Model",
        default=None,
        choices=HEADS,
    )
    signature: str | None = option(
        "Signatures of a SavedModel, comma-separated. Default: those on text and tokens. "
        "--signature=tokens takes ids and needs only operations of TensorFlow itself. For code that was "
        "written for other libraries: tf_example, hugging_face.",
        default=None,
    )
    format: str = option(
        "saved_model, with the tokenizer; tflite; onnx (needs the extra [onnx]); openvino (needs the "
        "extra [openvino]). The last three take ids.",
        group="Model",
        default="saved_model",
        choices=tuple(FORMATS),
    )
    precision: str = option(
        "Type of the weights; outputs are float32. saved_model: float32, bfloat16, int8. tflite: "
        "float32, float16, int8 (dynamic range). onnx: float32. openvino: float32, bfloat16, int8.",
        group="Machine",
        default="float32",
        choices=_PRECISIONS,
    )
    calibration_file: str | None = option(
        "For int8 as a SavedModel or for OpenVINO: about 300 texts like those that the model will get, "
        "in the format of predict's --input_file, such as the training file.",
        default=None,
    )
    is_pair: bool | None = option(
        "For a classifier of Hugging Face: it takes pairs, so the signature has text_a and text_b. "
        "Default: false; a model of run_classifier states it.",
        default=None,
    )
    null_score_diff_threshold: float = option(
        "For SQuAD 2.0: the answer is empty if the odds of no answer exceed this.",
        default=0.0,
        infinite=True,
    )
    max_answer_length: int = option(
        "For SQuAD: longest answer, in tokens.", group="Model", default=30, min=1
    )
    n_best_size: int = option(
        "For SQuAD: best tokens of each window that may begin or end an answer.", default=20, min=1
    )
    pooling: str = option(
        "For an encoder: pooling of the tokens into one vector.",
        group="Model",
        default="mean",
        choices=tuple(POOLINGS),
    )
    normalize: bool = option("For an encoder: scale embeddings to length 1.", default=True)
    layers: str | None = option(
        "For an encoder: layers to return in addition, comma-separated; -1 is the last.",
        group="Model",
        default=None,
    )
    top_k: int = option("For a masked LM: tokens per [MASK].", default=5, min=1)

    def __post_init__(self) -> None:
        precisions = FORMATS[self.format]
        takes_ids = self.format == "saved_model" or self.signatures in (None, (TOKENS,))
        for name, is_valid, rule in (
            ("precision", self.precision in precisions, f"must be {' or '.join(precisions)}"),
            ("signature", takes_ids, "must be omitted: the file takes ids"),
            ("calibration_file", self.calibration_file or not self.is_calibrated, "is needed"),
        ):
            if not is_valid:
                raise OptionError(name, f"{rule}, for {self.precision} as {self.format}.")

    @property
    def signatures(self) -> tuple[str, ...] | None:
        """Names in `signature`; None for the default."""
        if self.signature is None:
            return None
        return tuple(dict.fromkeys(name.strip() for name in self.signature.split(",")))

    @property
    def is_calibrated(self) -> bool:
        """True if the ranges of values are measured on texts."""
        return self.precision == INT8 and self.format in ("saved_model", "openvino")

    @property
    def takes_text(self) -> bool:
        """True if the export has a signature on text."""
        return self.format == "saved_model" and (
            self.signatures is None or not set(self.signatures) <= set(IDS_SIGNATURES)
        )

    @property
    def dtype(self) -> str:
        """Precision of the model that is written; the other formats convert from float32."""
        if self.format != "saved_model":
            return "float32"
        if self.precision == INT8:  # of all but the products
            return precision_for_cpu().removeprefix("mixed_")
        return self.precision


def export(model_dir: str | os.PathLike, export_dir: str | os.PathLike, **options) -> None:
    """Write a SavedModel on raw text, or files for TFLite, ONNX or OpenVINO.

    >>> import bert_tf
    >>> bert_tf.export("mrpc_output", "served/mrpc/1", precision="bfloat16")  # doctest: +SKIP

    Args:
        model_dir: any folder that `load` accepts, except a SavedModel.
        export_dir: new folder; TensorFlow Serving needs .../<version>.
        **options: flags of export_saved_model, such as `precision`, `format`, `head`,
            `max_seq_length`.

    Raises:
        ValueError: the folder is not empty, or an option does not fit the model.
    """
    model_dir, export_dir = os.fspath(model_dir), os.fspath(export_dir)
    export_saved_model(
        make_options(ExportOptions, model_dir=model_dir, export_dir=export_dir, **options)
    )


def export_saved_model(options: ExportOptions) -> None:
    """Write the export, and log its signatures."""
    _check(options)
    served = load_served(options, "float32", options.takes_text or options.is_calibrated)
    signatures = [TOKENS]
    if options.format == "saved_model":
        signatures = list(options.signatures or default_signatures(served))
        served.check_signatures(signatures)
    check = ExportCheck(served, signatures, options.format, options.precision)
    ids = read_calibration(options, served) if options.is_calibrated else []
    quantization = None
    if options.format == "saved_model" and options.precision != "float32":
        quantization = _quantize(options, served, ids) if ids else None
        served = load_served(options, options.dtype, options.takes_text)
    served.note_source(describe_source(options, served.checkpoint))
    folder, precision = options.export_dir, options.precision
    if options.format == "saved_model":
        values = write_saved_model(
            served, folder, signatures, precision=precision, quantization=quantization, check=check
        )
    else:
        values = write_file(served, folder, options.format, precision, ids, check)
    _log(options, values)


def _check(options: ExportOptions) -> None:
    """Raise, before the model is loaded, if the export would fail. Log warnings."""
    check_backend()
    check_new_folder(options.export_dir, "export_dir")
    packages = {"onnx": ["onnx", "onnxruntime", "tf2onnx"], "openvino": ["openvino"]}
    modules = packages.get(options.format, [])
    if options.format == "openvino" and options.precision == INT8:
        modules.append("nncf")
    require_packages("format", modules, options.format)
    is_int8 = (options.format, options.precision) == ("saved_model", INT8)
    if is_int8 and not has_operation(OPERATION):
        raise OptionError(
            "precision", f"int8 needs a TensorFlow for x86 CPUs: {OPERATION} is missing."
        )


def read_calibration(options: ExportOptions, served: Served) -> list[Ids]:
    """Return the ids of the texts in `calibration_file`.

    Args:
        served: takes text.

    Raises:
        ValueError: a line is not an input of the model, or there is no text.
    """
    names = [spec.name for spec in served.text_functions()[TEXT][1]]
    without_task = "masked_lm" if isinstance(served, ServedMaskFiller) else "encoder"
    kind = without_task if served.task is None else served.task.name
    trained = TrainedModel(served.model, served.full_tokenizer, served.task, served.max_seq_length)
    model = TEXT_MODELS[kind](trained)

    def requests() -> Iterator[dict[str, Any]]:
        for row in read_inputs(expand_files(options.calibration_file or ""), options.table, model):
            parts, reason = [], f"the model takes {' and '.join(names)}."
            try:
                check_not_blank(row.item)
                item = " ".join(row.item) if isinstance(row.item, list) else row.item
                parts = [item] if isinstance(item, str) else [part for part in item if part]
            except ValueError as error:
                reason = str(error)
            if len(parts) != len(names):
                raise OptionError("calibration_file", f"{row.location}: {reason}")
            yield {name: [part] for name, part in zip(names, parts, strict=True)}

    ids = calibration_ids(served, requests())
    if not ids:
        raise OptionError("calibration_file", f"{options.calibration_file} contains no texts.")
    return ids


def _quantize(options: ExportOptions, served: Served, ids: Sequence[Ids]) -> Quantization:
    """Return the products of the model in 8-bit integers. Log the errors of those that are not."""
    result = quantize(served, ids)
    count, total = len(result.replacements), len(result.errors)
    logger.info("%d of %d products and tables in int8", count, total)
    if floats := ", ".join(f"{name} ({result.errors[name]:.1%})" for name in result.in_floats):
        logger.info("  in %s, with their errors in int8: %s", options.dtype, floats)
    return result


def _log(options: ExportOptions, values: Mapping[str, Any]) -> None:
    """Log the signatures, and what a client needs."""
    logger.info("Wrote a %s in %s to %s", options.format, options.precision, options.export_dir)
    for name, signature in values["signatures"].items():
        sides = [
            ", ".join(f"{n} {spec['dtype']} {spec['shape']}" for n, spec in signature[side].items())
            for side in ("inputs", "outputs")
        ]
        logger.info("  %s: %s\n    -> %s", name, *sides)
    if values["labels"]:
        logger.info("  labels: %s", ", ".join(values["labels"]))
    if values.get("custom_ops"):
        logger.info(
            "  operations of tensorflow-text: %s (TensorFlow Serving has them; elsewhere import "
            "tensorflow_text or load its library)",
            ", ".join(values["custom_ops"]),
        )
    elif not options.takes_text:
        logger.info("  it takes ids: clients tokenize with the vocab.txt next to it")
        for name in ("query_prefix", "document_prefix"):
            if prefix := (values["task"] or {}).get(name):
                logger.info("  clients put the %s %r before a text", name, prefix)


def load_served(options: ExportOptions, dtype: str, with_text: bool) -> Served:
    """Return the model to export, with its weights.

    Args:
        dtype: Keras precision policy.
        with_text: True if it takes text.

    Raises:
        ValueError: the folder lacks the head, or a flag does not fit the model.
    """
    load = partial(
        load_model,
        options.model_dir,
        dtype=dtype,
        bert_config_file=options.model.bert_config_file,
        vocab_file=options.model.vocab_file,
        do_lower_case=options.model.do_lower_case,
    )
    if options.head in ("encoder", "masked_lm"):
        return _without_task(load(head=options.head), options, with_text)
    trained = load()
    task = trained.task
    if task is not None and _served_class(task.name) is not None:
        return _with_task(trained, task, options, with_text)
    if trained.unused_head or options.head == "task" or (task and task.name != "pretraining"):
        reason = trained.unused_head or f"{options.model_dir} has no head that can be exported."
        raise OptionError("head", f"{reason} Its encoder can be: head=encoder.")
    return _without_task(load(head="encoder"), options, with_text)


def _with_task(
    trained: TrainedModel, task: Task, options: ExportOptions, with_text: bool
) -> Served:
    if options.is_pair is not None and isinstance(task, ClassificationTask):
        task = ClassificationTask(**task.arguments() | {"is_pair": options.is_pair})
        trained = replace(trained, task=task)
    if isinstance(task, QuestionAnsweringTask):
        settings = AnswerSettings(
            options.n_best_size,
            options.max_answer_length,
            task.version_2_with_negative,
            options.null_score_diff_threshold,
        )
        return ServedAnswerer(trained, settings, with_text)
    length = options.model.max_seq_length or trained.max_seq_length
    trained.model.config.check_sequence_length(length, task.min_seq_length)
    return _served_class(task.name)(trained, length, with_text)


def _served_class(name: str) -> Any:
    entry = TYPES.get(name)
    return (entry and entry.served) or SERVED.get(name)


def _without_task(trained: TrainedModel, options: ExportOptions, with_text: bool) -> Served:
    config = trained.model.config
    length = options.model.max_seq_length or trained.max_seq_length
    config.check_sequence_length(length, MIN_SEQ_LENGTH)
    if isinstance(trained.model, BertForPreTraining):
        return ServedMaskFiller(trained, length, options.top_k, with_text)
    layers = parse_layers(options.layers, config.num_hidden_layers) if options.layers else []
    settings = (options.pooling, options.normalize, layers, with_text)
    return ServedEncoder(trained, length, *settings)


def describe_source(options: ExportOptions, checkpoint: str) -> dict[str, Any]:
    """Return the facts that trace an export to its model, for export.json.

    Args:
        checkpoint: path of the weights.

    Returns:
        The name of the checkpoint; size and SHA-256 of its files; its step and the
        the time in UTC; and the flags.
    """
    name = os.path.basename(checkpoint)
    is_ours = re.fullmatch(r"model\.ckpt-\d+", name)
    return {
        "checkpoint": name,
        "files": {os.path.basename(f): file_facts(f) for f in list_checkpoint_files(checkpoint)},
        "step": checkpoint_step(checkpoint) if is_ours else None,
        "exported": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "flags": as_flags(without_folders(changed_options(options))),
    }
