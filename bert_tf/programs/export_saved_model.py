"""export_saved_model: from a model folder or checkpoint to a file for serving."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import tensorflow as tf

from bert_tf.data.files import check_new_folder, check_writable, removing_new_parents
from bert_tf.data.globs import MissingFileError, expand_files
from bert_tf.interop.hub import path_of_model
from bert_tf.programs.calibration_file import read_calibration
from bert_tf.programs.export_accuracy import AccuracyCheck
from bert_tf.programs.export_options import ExportOptions
from bert_tf.programs.model_to_export import describe_source, load_served
from bert_tf.serving.calibration import Ids
from bert_tf.serving.lite import write_lite
from bert_tf.serving.onnx import write_onnx
from bert_tf.serving.openvino import check_openvino, write_openvino
from bert_tf.serving.other_names import TF_HUB
from bert_tf.serving.preprocessing import PREPROCESSING, preprocessing_dir
from bert_tf.serving.quantization import INT8, Quantization, check_int8, quantize
from bert_tf.serving.saved_model import write_saved_model
from bert_tf.serving.served import TOKENS, Served
from bert_tf.training.strategy import check_backend

logger = logging.getLogger(__name__)

_MOST_ERRORS = 3  # in the log


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
    served: Served | None = None
    ids: Sequence[Ids] = ()
    check = quantization = None
    if options.is_calibrated or options.eval_file is not None:
        # Both files are read before the long work. Calibration needs the signatures on text.
        readable = replace(options, signature=None) if options.is_calibrated else options
        served = load_served(readable, "float32")
        if options.eval_file is not None:
            check = AccuracyCheck(options, served)
        if options.is_calibrated:
            ids = read_calibration(served, options.texts or "", options, options.records)
        if check is not None:
            check.measure(served)
    if served is not None and options.is_int8_saved_model:
        quantization = _quantize(options, served, ids)
    if served is None or options.format == "saved_model":
        if served is not None:
            logger.info(
                "The model in float32 is for eval_file and calibration. Reading it again for the "
                "export, in %s",
                options.dtype,
            )
        served = load_served(options)
    served.note_source(describe_source(options, served.checkpoint))
    if options.format == "saved_model":
        _write_saved_model(options, served, quantization, check)
    else:
        _write_file(options, served, ids, check)


def _check(options: ExportOptions) -> None:
    """Raise ValueError, before the model is loaded, if the export would fail. Log warnings."""
    check_backend()
    check_new_folder(options.export_dir, "export_dir")
    precision = options.chosen.precision
    if options.format == "openvino":
        check_openvino(precision)
    elif options.is_int8_saved_model:
        check_int8()
    check_writable(
        os.path.dirname(options.export_dir.rstrip("/")) or ".", "the folder of export_dir"
    )
    if options.calibration_file:
        expand_files(options.calibration_file)  # raises if there is none
    if options.eval_file is not None and not tf.io.gfile.exists(options.eval_file):
        raise MissingFileError(options.eval_file)
    if options.format == "saved_model":
        _warn_of_version(options.export_dir)
    if options.format == "saved_model" and options.device == "cpu":
        logger.info("Fastest precision on this processor: %s (%s)", *options.fastest)
        logger.info("This export: %s", precision)
        if options.calibration_file and precision != INT8:
            logger.warning("calibration_file=%s is not used.", options.calibration_file)
    if _has_preprocessing(options):
        check_new_folder(preprocessing_dir(options.export_dir), PREPROCESSING)


def _has_preprocessing(options: ExportOptions) -> bool:
    return TF_HUB in (options.signatures or ())


def _write_file(
    options: ExportOptions, served: Served, ids: Sequence[Ids], check: AccuracyCheck | None
) -> None:
    """Write a file of TFLite, ONNX or OpenVINO, and log its signatures."""
    precision = options.chosen.precision
    if options.format == "tflite":
        values = write_lite(served, options.export_dir, precision, check)
    elif options.format == "openvino":
        values = write_openvino(served, options.export_dir, precision, ids, check)
    else:
        (name,) = options.signatures or (TOKENS,)
        values = write_onnx(served, options.export_dir, precision, name, check)
    logger.info("Wrote %s/%s (%s)", options.export_dir, values["file"], precision)
    _log_signatures(values)
    if values.get("custom_ops"):
        ops = ", ".join(values["custom_ops"])
        logger.info("  operations of onnxruntime-extensions: %s", ops)
    else:
        logger.info("  it takes ids: clients tokenize with the vocab.txt next to it")
        for name in ("query_prefix", "document_prefix"):
            if prefix := (values["task"] or {}).get(name):
                logger.info("  clients put the %s %r before a text", name, prefix)


def _write_saved_model(
    options: ExportOptions,
    served: Served,
    quantization: Quantization | None,
    check: AccuracyCheck | None,
) -> None:
    """Write a SavedModel, and log its signatures."""
    values = write_saved_model(
        served,
        options.export_dir,
        options.signatures,
        precision=options.chosen.precision,
        warm_up=options.warm_up,
        for_cpu=options.device == "cpu",
        quantization=quantization,
        check=check,
    )
    logger.info("Wrote a SavedModel to %s", options.export_dir)
    if _has_preprocessing(options):
        logger.info("Wrote its preprocessing to %s", preprocessing_dir(options.export_dir))
    _log_signatures(values)
    if values["custom_ops"]:
        logger.info(
            "  operations of tensorflow-text: %s (TensorFlow Serving has them; elsewhere import "
            "tensorflow_text or load its library)",
            ", ".join(values["custom_ops"]),
        )
    else:
        logger.info("  only operations of TensorFlow itself")


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
    names = options.keep_precision
    keep = None if names is None else [name.strip() for name in names.split(",") if name.strip()]
    found = quantize(served, ids, keep)
    kept = ", ".join(f"{name} ({found.errors[name]:.1%})" for name in found.kept)
    logger.info("%d of %d products and tables in int8", len(found.replacements), len(found.errors))
    if kept:
        logger.info("  in %s, with their errors in int8: %s", options.dtype, kept)
    largest = sorted(found.errors, key=lambda name: -found.errors[name])[:_MOST_ERRORS]
    shown = ", ".join(f"{name} ({found.errors[name]:.1%})" for name in largest)
    logger.info("  largest errors in int8: %s", shown)
    return found


def _log_signatures(values: Mapping[str, Any]) -> None:
    for name, signature in values["signatures"].items():
        sides = [
            ", ".join(f"{n} {spec['dtype']} {spec['shape']}" for n, spec in signature[side].items())
            for side in ("inputs", "outputs")
        ]
        logger.info("  %s: %s\n    -> %s", name, *sides)
    if values["labels"]:
        logger.info("  labels: %s", ", ".join(values["labels"]))
