"""export_saved_model: from a model folder or checkpoint to a file for serving."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import op_def_registry

from bert_tf.data.files import check_new_folder, check_writable, expand_files, removing_new_parents
from bert_tf.interop.hub import path_of_model
from bert_tf.model_folder import TrainedModel
from bert_tf.modeling.quantized import OPERATION
from bert_tf.options import OptionError
from bert_tf.programs.export_options import ExportOptions
from bert_tf.programs.model_to_export import describe_source, load_served
from bert_tf.programs.predict_input import read_inputs
from bert_tf.registry import TYPES
from bert_tf.serving.calibration import Ids, calibration_ids
from bert_tf.serving.check import ExportCheck
from bert_tf.serving.lite import write_lite
from bert_tf.serving.onnx import write_onnx
from bert_tf.serving.openvino import write_openvino
from bert_tf.serving.quantization import INT8, Quantization, quantize
from bert_tf.serving.saved_model import default_signatures, write_saved_model
from bert_tf.serving.served import TEXT, TOKENS, Served
from bert_tf.training.strategy import BFLOAT16_FLAGS, INT8_FLAGS, check_backend, cpu_flags

logger = logging.getLogger(__name__)


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
    model_dir, export_dir = path_of_model(model_dir), os.fspath(export_dir)
    export_saved_model(ExportOptions(model_dir=model_dir, export_dir=export_dir, **options))


def export_saved_model(options: ExportOptions) -> None:
    """Write the export, and log its signatures."""
    with removing_new_parents(options.export_dir):
        _export(options)


def _export(options: ExportOptions) -> None:
    _check(options)
    served = load_served(options, "float32", options.takes_text or options.is_calibrated)
    signatures = [TOKENS]
    if options.format == "saved_model":
        signatures = list(options.signatures or default_signatures(served))
        served.check_signatures(signatures)
    check = ExportCheck(served, signatures, options.format, options.precision)
    ids = read_calibration(options, served) if options.is_calibrated else []
    if options.format == "saved_model":
        quantization = _quantize(options, served, ids) if ids else None
        if options.precision != "float32":
            served = load_served(options, options.dtype, options.takes_text)
        served.note_source(describe_source(options, served.checkpoint))
        values = write_saved_model(
            served,
            options.export_dir,
            signatures,
            precision=options.precision,
            quantization=quantization,
            check=check,
        )
    else:
        served.note_source(describe_source(options, served.checkpoint))
        to = (served, options.export_dir)
        if options.format == "tflite":
            values = write_lite(*to, options.precision, check)
        elif options.format == "onnx":
            values = write_onnx(*to, check)
        else:
            values = write_openvino(*to, options.precision, ids, check)
    _log(options, values)


def _check(options: ExportOptions) -> None:
    """Raise, before the model is loaded, if the export would fail. Log warnings."""
    check_backend()
    check_new_folder(options.export_dir, "export_dir")
    wanted = {"onnx": ["onnx", "onnxruntime", "tf2onnx"], "openvino": ["openvino"]}
    modules = wanted.get(options.format, [])
    if options.format == "openvino" and options.precision == INT8:
        modules.append("nncf")
    if missing := [name for name in modules if find_spec(name) is None]:
        raise ImportError(
            f"format={options.format} needs {', '.join(missing)}: "
            f"pip install -e '.[{options.format}]' in the checkout of bert_tf."
        )
    is_int8 = (options.format, options.precision) == ("saved_model", INT8)
    if is_int8 and op_def_registry.get(OPERATION) is None:
        raise OptionError(
            "precision", f"int8 needs a TensorFlow for x86 CPUs: {OPERATION} is missing."
        )
    check_writable(
        os.path.dirname(options.export_dir.rstrip("/")) or ".", "the folder of export_dir"
    )
    if options.calibration_file:
        expand_files(options.calibration_file)  # raises if a file is missing
    if options.format == "saved_model":
        _warn_of_version(options.export_dir)
    found = [name for name in (*BFLOAT16_FLAGS, *INT8_FLAGS) if name in (cpu_flags() or ())]
    logger.info("Instructions of this processor: %s", ", ".join(found) or "none for low precision")


def read_calibration(options: ExportOptions, served: Served) -> list[Ids]:
    """Return the ids of the texts in `calibration_file`.

    Args:
        served: takes text.

    Raises:
        ValueError: a line is not an input of the model, or there is no text.
    """
    names = [spec.name for spec in served.text_functions()[TEXT][1]]
    entry = next(e for e in TYPES.values() if e.served and e.load("served") is type(served))
    model = entry.load("predictor")(
        TrainedModel(served.model, served.full_tokenizer, served.task, served.max_seq_length)
    )

    def requests() -> Iterator[dict[str, Any]]:
        for row in read_inputs(expand_files(options.calibration_file or ""), options, model):
            if row.error is not None:
                raise ValueError(f"{row.place}: {row.error}")
            item = " ".join(row.item) if isinstance(row.item, list) else row.item
            parts = [item] if isinstance(item, str) else [part for part in item if part is not None]
            if len(parts) != len(names):
                raise ValueError(
                    f"{row.place} has {len(parts)} texts, but the model takes {' and '.join(names)}."
                )
            yield {name: [part] for name, part in zip(names, parts, strict=True)}

    ids = calibration_ids(served, requests())
    if not ids:
        raise OptionError("calibration_file", f"{options.calibration_file} contains no texts.")
    return ids


def _warn_of_version(export_dir: str) -> None:
    """Log a warning if a folder seems to be a version, but its name is not a number."""
    folder, name = os.path.split(os.path.abspath(export_dir))
    others = tf.io.gfile.listdir(folder) if tf.io.gfile.isdir(folder) else []
    versions = [int(other.rstrip("/")) for other in others if other.rstrip("/").isdecimal()]
    if not name.isdecimal() and (versions or re.fullmatch(r"(v|version)?[-_]?\d[\d.]*", name)):
        logger.warning(
            "export_dir=%s: a TensorFlow server ignores folders whose name is not a number. For a "
            "server, name it by the number of the version, such as %s.",
            export_dir,
            os.path.join(
                os.path.dirname(export_dir.rstrip("/")), str(1 + max(versions, default=0))
            ),
        )


def _quantize(options: ExportOptions, served: Served, ids: Sequence[Ids]) -> Quantization:
    """Return the products of the model in 8-bit integers. Log the errors of those that are not."""
    found = quantize(served, ids)
    kept = ", ".join(f"{name} ({found.errors[name]:.1%})" for name in found.kept)
    logger.info("%d of %d products and tables in int8", len(found.replacements), len(found.errors))
    if kept:
        logger.info("  in %s, with their errors in int8: %s", options.dtype, kept)
    return found


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
