"""export_saved_model: from a model folder or checkpoint to a file for serving."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import partial
from typing import Any

from bert_tf.checkpoints.hub import local_path
from bert_tf.data.tables import TableOptions
from bert_tf.files import (
    check_new_folder,
    expand_files,
    file_facts,
    list_checkpoint_files,
)
from bert_tf.modeling.compat import has_operation
from bert_tf.modeling.heads import POOLINGS
from bert_tf.modeling.int8 import OPERATION
from bert_tf.modeling.models import BertForPreTraining
from bert_tf.options import (
    ModelOptions,
    OptionError,
    changes,
    make_options,
    option,
    require_packages,
)
from bert_tf.prediction.loading import TEXT, TOKENS, load_model
from bert_tf.prediction.predict import read_inputs
from bert_tf.prediction.predictor import Predictor
from bert_tf.registry import TYPES
from bert_tf.report.model_card import as_flags, changed_options, without_folders
from bert_tf.serving.check import ExportCheck
from bert_tf.serving.classification import ServedClassification, ServedMultipleChoice
from bert_tf.serving.formats import write_file
from bert_tf.serving.pretrained import ServedEncoder, ServedMaskedLM
from bert_tf.serving.quantization import INT8, Ids, calibration_ids, quantize
from bert_tf.serving.question_answering import ServedQuestionAnswering
from bert_tf.serving.saved_model import write_saved_model
from bert_tf.serving.served import HUGGING_FACE, TF_EXAMPLE, Served
from bert_tf.serving.token_classification import ServedTokenClassification
from bert_tf.tasks.answer_decoding import AnswerSettings
from bert_tf.tasks.base import MIN_SEQ_LENGTH
from bert_tf.tasks.classification import ClassificationTask
from bert_tf.tasks.question_answering import QuestionAnsweringTask
from bert_tf.tasks.run_folder import RunRecord
from bert_tf.training.checkpoints import checkpoint_step
from bert_tf.training.options import parse_layers
from bert_tf.training.strategy import check_backend, precision_for_cpu

logger = logging.getLogger(__name__)

HEADS = ("task", "encoder", "masked_lm")
# Name of a task -> what exports it.
SERVED: dict[str, Callable[..., Served]] = {
    "classification": ServedClassification,
    "token_classification": ServedTokenClassification,
    "question_answering": ServedQuestionAnswering,
    "multiple_choice": ServedMultipleChoice,
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
        "written for TFX or Hugging Face: tf_example, hugging_face.",
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
        takes_ids = self.format == "saved_model" or self.signature in (None, TOKENS)
        for name, is_valid, rule in (
            ("precision", self.precision in precisions, f"must be {' or '.join(precisions)}"),
            ("signature", takes_ids, "must be omitted: the file takes ids"),
            ("calibration_file", self.calibration_file or not self.is_calibrated, "is needed"),
        ):
            if not is_valid:
                raise OptionError(name, f"{rule}, for {self.precision} as {self.format}.")

    @property
    def signatures(self) -> list[str]:
        """Names in `signature`; [] for the default."""
        return self.signature.split(",") if self.signature else []

    @property
    def is_calibrated(self) -> bool:
        """True if the ranges of values are measured on texts."""
        return self.precision == INT8 and self.format in ("saved_model", "openvino")


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
    _check_environment(options)
    served = load_served(options)
    names = _choose_signatures(options, served)
    check = ExportCheck(served, names, options.format, options.precision)
    source = _describe_source(options, served.trained.checkpoint)
    ids = read_calibration(options, served) if options.is_calibrated else []
    folder, format, precision = options.export_dir, options.format, options.precision
    if format != "saved_model":
        values = write_file(served, folder, format, precision, ids, source, check)
    else:
        quantization = quantize(served, ids) if ids else None
        if precision != "float32":  # in int8, that of all but the products
            dtype = precision_for_cpu().removeprefix("mixed_") if ids else precision
            served = load_served(options, dtype)
        values = write_saved_model(
            *(served, folder, names),
            precision=precision,
            quantization=quantization,
            source=source,
            check=check,
        )
    logger.info("Wrote a %s in %s to %s", format, precision, folder)
    for name, signature in values["signatures"].items():
        logger.info("  %s: %s -> %s", name, *map(", ".join, signature.values()))


def _check_environment(options: ExportOptions) -> None:
    """Raise, before the model is loaded, if the export would fail."""
    check_backend()
    check_new_folder(options.export_dir, "export_dir")
    int8 = options.precision == INT8
    packages = {
        "onnx": ["onnx", "onnxruntime", "tf2onnx"],
        "openvino": ["openvino", "nncf"] if int8 else ["openvino"],
    }
    require_packages("format", packages.get(options.format, []), options.format)
    if options.format == "saved_model" and int8 and not has_operation(OPERATION):
        raise OptionError(
            "precision", f"int8 needs a TensorFlow for x86 CPUs: {OPERATION} is missing."
        )


def _choose_signatures(options: ExportOptions, served: Served) -> list[str]:
    if options.format != "saved_model":
        return [TOKENS]
    known = [*served.signature_names(), TF_EXAMPLE]
    known += [HUGGING_FACE] * (served.kind != "embedder")  # which has no class there
    for name in options.signatures:
        if name not in known:
            raise OptionError("signature", f"the model has {', '.join(known)}, but no {name!r}.")
    return options.signatures or served.signature_names()


def load_served(options: ExportOptions, dtype: str = "float32") -> Served:
    """Return the model to export, with its weights, in a precision policy of Keras."""
    read = partial(
        load_model,
        options.model_dir,
        dtype=dtype,
        bert_config_file=options.model.bert_config_file,
        vocab_file=options.model.vocab_file,
        do_lower_case=options.model.do_lower_case,
    )
    trained = read(head=None if options.head == "task" else options.head)
    task, served_class = trained.task, None
    if task is not None:
        entry = TYPES.get(task.name)
        served_class = (entry and entry.served) or SERVED.get(task.name)
    if served_class is None and options.head in (None, "task"):
        if trained.unused_head or options.head or (task and task.name != "pretraining"):
            reason = trained.unused_head or f"{options.model_dir} has no head that can be exported."
            raise OptionError("head", f"{reason} Its encoder can be: head=encoder.")
        trained, task = read(head="encoder"), None

    if isinstance(task, QuestionAnsweringTask):
        settings = AnswerSettings(
            options.n_best_size,
            options.max_answer_length,
            task.version_2_with_negative,
            options.null_score_diff_threshold,
        )
        return ServedQuestionAnswering(trained, settings)
    if isinstance(task, ClassificationTask) and options.is_pair is not None:
        task = type(task)(**task.arguments() | {"is_pair": options.is_pair})
    length = options.model.max_seq_length or trained.max_seq_length
    config = trained.model.config
    config.check_sequence_length(length, task.min_seq_length if task else MIN_SEQ_LENGTH)
    trained = replace(trained, task=task, max_seq_length=length)
    if served_class is not None:
        return served_class(trained)
    if isinstance(trained.model, BertForPreTraining):
        return ServedMaskedLM(trained, options.top_k)
    layers = parse_layers(options.layers, config.num_hidden_layers) if options.layers else []
    return ServedEncoder(trained, options.pooling, options.normalize, layers)


def read_calibration(options: ExportOptions, served: Served) -> list[Ids]:
    names = [spec.name for spec in served.text_functions()[TEXT][1]]
    predictor = Predictor(served.trained)
    is_encoder = isinstance(served, ServedEncoder)
    model = predictor.encoder() if is_encoder else predictor.text_model
    files = expand_files(options.calibration_file or "")
    trained = RunRecord.load(local_path(options.model_dir)).flags

    def requests() -> Iterator[dict[str, Any]]:
        for row in read_inputs(files, options.table, model, trained=trained):
            item = " ".join(row.item) if isinstance(row.item, list) else row.item  # words
            parts = [item] if isinstance(item, str) else [part for part in item if part]
            if len(parts) != len(names):
                rule = f"{row.location}: the model takes {' and '.join(names)}."
                raise OptionError("calibration_file", rule)
            yield {name: [part] for name, part in zip(names, parts, strict=True)}

    ids = calibration_ids(served, requests())
    if not ids:
        raise OptionError("calibration_file", f"{options.calibration_file} contains no texts.")
    return ids


def _describe_source(options: ExportOptions, checkpoint: str) -> dict[str, Any]:
    """Return the facts that trace an export to the path of its weights, for export.json."""
    name = os.path.basename(checkpoint)
    is_ours = re.fullmatch(r"model\.ckpt-\d+", name)
    return {
        "checkpoint": name,
        "files": {os.path.basename(f): file_facts(f) for f in list_checkpoint_files(checkpoint)},
        "step": checkpoint_step(checkpoint) if is_ours else None,
        "exported": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "flags": as_flags(without_folders(changed_options(options))),
    }
