"""The flags of export_saved_model."""

from __future__ import annotations

import functools
from dataclasses import dataclass, fields
from typing import Any

from bert_tf.interop.hub import local_path
from bert_tf.interop.read import check_exists
from bert_tf.interop.tf2 import check_no_export
from bert_tf.modeling.pooling import POOLINGS
from bert_tf.options import EncoderFilesOptions, option
from bert_tf.programs.calibration_file import training_records
from bert_tf.programs.predict_input import InputColumnsOptions
from bert_tf.registry import TYPES
from bert_tf.serving.lite import LITE_PRECISIONS
from bert_tf.serving.onnx import ONNX_PRECISIONS
from bert_tf.serving.openvino import OPENVINO_PRECISIONS
from bert_tf.serving.quantization import INT8, MOST_ERROR, fastest_precision
from bert_tf.serving.served import IDS_SIGNATURES, TOKENS
from bert_tf.serving.server_versions import check_server_version
from bert_tf.training.strategy import Choice, precision_for_cpu

HEADS = ("task", *(name for name, entry in TYPES.items() if entry.served and not entry.task))
# Format -> supported precisions.
FORMATS = {
    "saved_model": ("float32", "bfloat16", INT8),
    "tflite": LITE_PRECISIONS,
    "onnx": ONNX_PRECISIONS,
    "openvino": OPENVINO_PRECISIONS,
}
AUTO = "auto"  # for a SavedModel
_PRECISIONS = tuple(dict.fromkeys(name for names in FORMATS.values() for name in names))


@dataclass(frozen=True, kw_only=True)
class ExportOptions(InputColumnsOptions, EncoderFilesOptions):
    """The flags of export_saved_model."""

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
        "Signatures, comma-separated. Default: those on text and tokens. --signature=tokens takes ids "
        "and needs only operations of TensorFlow itself. For code that was written for other libraries: "
        "tf_example, hugging_face, and for an encoder tf_hub and spark_nlp. An ONNX file has one: "
        "tokens, or one on text, such as serving_default, which needs onnxruntime-extensions to run.",
        default=None,
    )
    format: str = option(
        "saved_model; tflite (takes ids); onnx (takes ids, or text with --signature=serving_default; "
        "needs the extra [onnx]); openvino (takes ids; needs the extra [openvino]).",
        group="Model",
        default="saved_model",
        choices=tuple(FORMATS),
    )
    precision: str = option(
        "Type of the weights; outputs are float32. saved_model: float32, bfloat16, int8. tflite: "
        "float32, float16, int8 (dynamic range). onnx: float32, int8. openvino: float32, bfloat16, "
        "int8. auto, for a SavedModel: the fastest for this processor, int8 only if there "
        "is a --calibration_file or its default.",
        group="Machine",
        default="float32",
        choices=(*_PRECISIONS, AUTO),
    )
    calibration_file: str | None = option(
        "For int8 as a SavedModel or for OpenVINO: about 300 texts like those that the model will get, "
        "in the format of predict's --input_file, or records of the training (.tf_record). Default: "
        "train.tf_record in --model_dir.",
        default=None,
    )
    keep_precision: str | None = option(
        "For int8 as a SavedModel: products that are not quantized, comma-separated, such as "
        f"layer_0/output. Default: those with an error above {MOST_ERROR:g} on the calibration texts.",
        default=None,
    )
    eval_file: str | None = option(
        "Labelled data in the format of the training program's --eval_file (SQuAD: --predict_file). A "
        "classifier's table has the columns label, text_a and for pairs text_b. predict's other usual "
        "names of the texts are found too. Flags name any others. The metric of the export is logged "
        "and checked.",
        group="Data",
        default=None,
    )
    label_column: str | None = option(
        "Column of the label in --eval_file. Default: that of the training program.",
        group="Data",
        default=None,
    )
    max_accuracy_loss: float | None = option(
        "With --eval_file: no export if its metric is worse by more than that of the model in float32. "
        "In points of 100, or of an error in its own unit. Default: 1.",
        default=None,
        min=0,
    )
    device: str = option(
        "Layout of a SavedModel. cpu: for CPUs; in bfloat16, one oneDNN operation per LayerNorm and "
        "transposed kernels, and in float32 the same as any. any: plain operations, for GPUs too.",
        default="cpu",
        choices=("cpu", "any"),
    )
    server_version: str | None = option(
        "TensorFlow of the server that will load a SavedModel, such as 2.19. An error if it is older "
        "than all proven ones, which export.json names, and a warning if it is not one of them. "
        "Default: not checked.",
        default=None,
    )
    is_pair: bool | None = option(
        "For a classifier of Hugging Face: it takes pairs, so the signature has text_a and text_b. "
        "Default: false; a model of run_classifier states it.",
        default=None,
    )
    max_seq_length: int | None = option(
        "Longer texts are truncated, or read in windows of this length. Default: that of the training. "
        "Not for question answering.",
        group="Model",
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
    warm_up: bool = option("Write warm-up requests for TF Serving.", default=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        known = [*FORMATS[self.format], *([AUTO] if self.format == "saved_model" else [])]
        if self.precision not in known:
            raise ValueError(
                f"precision is {self.precision}, but for format={self.format} it must be "
                f"{' or '.join(known)}."
            )
        if self.format in ("tflite", "openvino") and self.signatures not in (None, (TOKENS,)):
            raise ValueError(
                f"signature is {self.signature}, but format={self.format} takes only ids. Omit it."
            )
        found = f"format={self.format} with precision={self.precision}"
        if self.is_calibrated and self.texts is None:
            model_dir = local_path(self.model_dir)
            check_exists(model_dir)
            check_no_export(model_dir)
            raise ValueError(
                f"{found} needs texts like those that the model will get, and model_dir has no "
                "train.tf_record. Give calibration_file."
            )
        if self.calibration_file and not self.is_calibrated and self.precision != AUTO:
            raise ValueError(
                f"calibration_file is {self.calibration_file}, but {found} measures no ranges. Omit it, "
                "or use precision=int8 with format=saved_model or openvino."
            )
        if self.is_int8_saved_model and self.device != "cpu":
            raise ValueError(
                f"precision={INT8} of a SavedModel is for CPUs, but `device` is {self.device}. Omit "
                "it, or use precision=bfloat16."
            )
        may_be_int8 = self.precision == AUTO and self.texts is not None
        if self.keep_precision is not None and not (self.is_int8_saved_model or may_be_int8):
            raise ValueError(
                f"keep_precision is {self.keep_precision}, but it is for format=saved_model with "
                f"precision={INT8}. Omit it."
            )
        self._need("eval_file", ("label_column", "max_accuracy_loss"))
        if self.eval_file is not None:
            if TOKENS not in (self.signatures or (TOKENS,)):
                remedy = "Add it" if self.format == "saved_model" else "Use it, or omit eval_file"
                raise ValueError(
                    f"eval_file needs the signature {TOKENS}, but `signature` is {self.signature}. "
                    f"{remedy}."
                )
        elif self.columns and not self.calibration_file:
            name, value = next(iter(self.columns.items()))
            raise ValueError(
                f"{name}={value} has no effect without calibration_file or eval_file. Omit it."
            )
        if self.format != "saved_model":
            for name in ("device", "warm_up", "server_version"):
                if getattr(self, name) != getattr(ExportOptions, name):
                    raise ValueError(
                        f"{name} is {getattr(self, name)}, but it is for format=saved_model, and "
                        f"`format` is {self.format}. Omit it, or use format=saved_model."
                    )
        elif self.server_version is not None:
            check_server_version(self.server_version, self.chosen.precision)
        if self.format == "onnx" and len(self.signatures or (TOKENS,)) != 1:
            raise ValueError(
                f"signature is {self.signature}, but an ONNX file has one signature. Export each to a "
                "folder of its own."
            )

    @functools.cached_property
    def fastest(self) -> Choice:
        """The fastest precision on this processor, and the reason."""
        return fastest_precision(has_texts=self.texts is not None and self.device == "cpu")

    @property
    def texts(self) -> str | None:
        """The files for calibration: `calibration_file`, or else `records`."""
        return self.calibration_file or self.records

    @functools.cached_property
    def records(self) -> str | None:
        """The records of the training of the head, if they are there."""
        return training_records(self.model_dir) if self.head in (None, "task") else None

    @property
    def columns(self) -> dict[str, Any]:
        """The flags of columns without those that have their default."""
        names = {"label_column", *(each.name for each in fields(InputColumnsOptions))}
        flags = [each for each in fields(self) if each.name in names]
        found = {each.name: getattr(self, each.name) for each in flags}
        return {each.name: found[each.name] for each in flags if found[each.name] != each.default}

    @property
    def chosen(self) -> Choice:
        """The precision, and the reason for it."""
        if self.precision != AUTO:
            return Choice(self.precision, f"precision is {self.precision}")
        return self.fastest

    @property
    def signatures(self) -> tuple[str, ...] | None:
        """Names in `signature`; None for the default."""
        if self.signature is None:
            return None
        return tuple(dict.fromkeys(name.strip() for name in self.signature.split(",")))

    @property
    def is_calibrated(self) -> bool:
        """True if the ranges of values are measured on texts."""
        return self.chosen.precision == INT8 and self.format in ("saved_model", "openvino")

    @property
    def is_int8_saved_model(self) -> bool:
        return (self.format, self.chosen.precision) == ("saved_model", INT8)

    @property
    def takes_text(self) -> bool:
        """True if the export has a signature on text."""
        if self.signatures is None:
            return self.format == "saved_model"
        return not set(self.signatures) <= set(IDS_SIGNATURES)

    @property
    def with_text(self) -> bool:
        """True if TensorFlow tokenizes: in the SavedModel, or for the calibration of OpenVINO files."""
        if self.format == "saved_model":
            return self.takes_text
        return self.format == "openvino" and self.is_calibrated

    @property
    def dtype(self) -> str:
        """Precision of the loaded model; the other formats convert from float32."""
        if self.format != "saved_model":
            return "float32"
        if self.is_int8_saved_model:  # of all but the products
            return precision_for_cpu().precision.removeprefix("mixed_")
        return self.chosen.precision
