"""The flags of export_saved_model."""

from __future__ import annotations

from dataclasses import dataclass

from bert_tf.modeling.pooling import POOLINGS
from bert_tf.options import EncoderFilesOptions, OptionError, option
from bert_tf.programs.predict_input import InputColumnsOptions
from bert_tf.registry import TYPES
from bert_tf.serving.quantization import INT8
from bert_tf.serving.served import IDS_SIGNATURES, TOKENS
from bert_tf.training.strategy import precision_for_cpu

HEADS = ("task", *(name for name, entry in TYPES.items() if entry.served and not entry.task))
# Format -> supported precisions.
FORMATS = {
    "saved_model": ("float32", "bfloat16", INT8),
    "tflite": ("float32", "float16", INT8),
    "onnx": ("float32",),
    "openvino": ("float32", "bfloat16", INT8),
}
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

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.precision not in FORMATS[self.format]:
            precisions = " or ".join(FORMATS[self.format])
            raise OptionError(
                "precision", f"format={self.format} needs {precisions}, not {self.precision}."
            )
        if self.format != "saved_model" and self.signatures not in (None, (TOKENS,)):
            raise OptionError("signature", f"format={self.format} takes only ids. Omit it.")
        if self.is_calibrated and self.calibration_file is None:
            raise OptionError(
                "calibration_file", "int8 needs texts like those of the users. Name a file."
            )

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
            return precision_for_cpu().precision.removeprefix("mixed_")
        return self.precision
