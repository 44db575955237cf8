"""export_saved_model: from a model folder or checkpoint to a file for serving."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from bert_tf.data.files import check_new_folder
from bert_tf.interop.initial import initialize, read_checkpoint
from bert_tf.interop.sidecar import find_config, load_tokenizer
from bert_tf.model_folder import TASK_FILE, TrainedModel, load_model
from bert_tf.modeling.pooling import POOLINGS, parse_layers
from bert_tf.options import EncoderFilesOptions, check_names, option
from bert_tf.registry import TYPES
from bert_tf.serving.encoder import ServedEncoder
from bert_tf.serving.lite import LITE_PRECISIONS, write_lite
from bert_tf.serving.masked_lm import ServedMaskFiller
from bert_tf.serving.onnx import ONNX_PRECISIONS, write_onnx
from bert_tf.serving.other_names import TF_HUB
from bert_tf.serving.preprocessing import PREPROCESSING, preprocessing_dir
from bert_tf.serving.question_answering import ServedAnswerer
from bert_tf.serving.saved_model import write_saved_model
from bert_tf.serving.served import IDS_SIGNATURES, TOKENS, Served
from bert_tf.serving.server_versions import check_server_version
from bert_tf.tasks.answer_decoding import AnswerSettings
from bert_tf.tasks.base import MIN_SEQ_LENGTH
from bert_tf.tasks.classification import ClassificationTask
from bert_tf.tasks.question_answering import QuestionAnsweringTask

logger = logging.getLogger(__name__)

HEADS = ("task", *(name for name, entry in TYPES.items() if entry.served and not entry.task))
# Format -> supported precisions.
FORMATS = {
    "saved_model": ("float32", "bfloat16"),
    "tflite": LITE_PRECISIONS,
    "onnx": ONNX_PRECISIONS,
}
_PRECISIONS = tuple(dict.fromkeys(name for names in FORMATS.values() for name in names))

# Settings of one type of model: name in registry.TYPES -> fields of ExportOptions.
_SETTINGS_OF = {
    "question_answering": ("null_score_diff_threshold", "max_answer_length", "n_best_size"),
    "encoder": ("pooling", "normalize", "layers"),
    "masked_lm": ("top_k",),
}


@dataclass(frozen=True, kw_only=True)
class ExportOptions(EncoderFilesOptions):
    """The flags of export_saved_model."""

    model_dir: str = option(
        "The --output_dir of a bert_tf run, or any checkpoint that --init_checkpoint accepts."
    )
    export_dir: str = option("New folder; TF Serving needs .../<version>.")
    head: str | None = option(
        "Head to export. task: the one of the fine-tuning, also of a Hugging Face folder. "
        "encoder: embeddings and vectors of layers. masked_lm: tokens for [MASK]. Default: task for a "
        "fine-tuned model, else encoder.",
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
        "saved_model, tflite (takes ids), or onnx (takes ids, or text with --signature=serving_default; "
        "needs the extra [onnx]).",
        default="saved_model",
        choices=tuple(FORMATS),
    )
    precision: str = option(
        "Type of the weights; outputs are float32. saved_model: float32, bfloat16. tflite: float32, "
        "float16, int8 (dynamic range). onnx: float32, int8.",
        default="float32",
        choices=_PRECISIONS,
    )
    device: str = option(
        "Layout of a SavedModel; every device can run both. cpu: in bfloat16, one oneDNN operation per "
        "LayerNorm and transposed kernels; in float32 the same as any. any: plain operations.",
        default="cpu",
        choices=("cpu", "any"),
    )
    server_version: str | None = option(
        "TensorFlow of the server that will load a SavedModel, such as 2.19. An error if it is older "
        "than the oldest proven one, which export.json names. Default: not checked.",
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
        default=None,
    )
    null_score_diff_threshold: float = option(
        "For SQuAD 2.0: the answer is empty if the odds of no answer exceed this.",
        default=0.0,
        infinite=True,
    )
    max_answer_length: int = option("For SQuAD: longest answer, in tokens.", default=30, min=1)
    n_best_size: int = option(
        "For SQuAD: best tokens of each window that may begin or end an answer.", default=20, min=1
    )
    pooling: str = option(
        "For an encoder: pooling of the tokens into one vector.",
        default="mean",
        choices=tuple(POOLINGS),
    )
    normalize: bool = option("For an encoder: scale embeddings to length 1.", default=True)
    layers: str | None = option(
        "For an encoder: layers to return in addition, comma-separated; -1 is the last.",
        default=None,
    )
    top_k: int = option("For a masked LM: tokens per [MASK].", default=5, min=1)
    warm_up: bool = option("Write warm-up requests for TF Serving.", default=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.precision not in FORMATS[self.format]:
            raise ValueError(
                f"precision is {self.precision}, but for format={self.format} it must be "
                f"{' or '.join(FORMATS[self.format])}."
            )
        if self.format == "tflite" and self.signatures not in (None, (TOKENS,)):
            raise ValueError(
                f"signature is {self.signature}, but format={self.format} takes only ids. Omit it."
            )
        if self.server_version is not None:
            if self.format != "saved_model":
                raise ValueError(
                    f"server_version is {self.server_version}, but no TensorFlow server loads "
                    f"format={self.format}. Omit it, or use format=saved_model."
                )
            check_server_version(self.server_version, self.precision)
        if self.format == "onnx" and len(self.signatures or (TOKENS,)) != 1:
            raise ValueError(
                f"signature is {self.signature}, but an ONNX file has one signature. Export each to a "
                "folder of its own."
            )

    @property
    def signatures(self) -> tuple[str, ...] | None:
        """Names in `signature`; None for the default."""
        if self.signature is None:
            return None
        return tuple(dict.fromkeys(name.strip() for name in self.signature.split(",")))

    @property
    def with_text(self) -> bool:
        names = self.signatures
        takes_text = names is None or not set(names) <= set(IDS_SIGNATURES)
        return self.format == "saved_model" and takes_text

    @property
    def dtype(self) -> str:
        """Precision of the loaded model; the other formats convert from float32."""
        return self.precision if self.format == "saved_model" else "float32"


def export(model_dir: str | os.PathLike, export_dir: str | os.PathLike, **options) -> None:
    """Write a SavedModel on raw text, or a file for TFLite or ONNX.

    >>> import bert_tf
    >>> bert_tf.export("mrpc_output", "served/mrpc/1", precision="bfloat16")  # doctest: +SKIP

    Args:
        model_dir: any folder that `load` accepts, except a SavedModel.
        export_dir: new folder; TensorFlow Serving needs .../<version>.
        **options: flags of export_saved_model, such as `precision`, `format`, `head`,
            `max_seq_length`.

    Raises:
        TypeError: an option is unknown.
        ValueError: the folder is not empty, or an option does not fit the model.
    """
    check_names("bert_tf.export", options, ExportOptions)
    model_dir, export_dir = os.fspath(model_dir), os.fspath(export_dir)
    export_saved_model(ExportOptions(model_dir=model_dir, export_dir=export_dir, **options))


def export_saved_model(options: ExportOptions) -> None:
    """Write the export, and log its signatures."""
    check_new_folder(options.export_dir, "export_dir")  # before the model is loaded
    has_preprocessing = TF_HUB in (options.signatures or ())
    if has_preprocessing:
        check_new_folder(preprocessing_dir(options.export_dir), PREPROCESSING)
    served = load_served(options)
    if options.format != "saved_model":
        if options.format == "tflite":
            values = write_lite(served, options.export_dir, options.precision)
        else:
            (name,) = options.signatures or (TOKENS,)
            values = write_onnx(served, options.export_dir, options.precision, name)
        logger.info("Wrote %s/%s (%s)", options.export_dir, values["file"], options.precision)
        _log_signatures(values)
        if values.get("custom_ops"):
            ops = ", ".join(values["custom_ops"])
            logger.info("  operations of onnxruntime-extensions: %s", ops)
        else:
            logger.info("  it takes ids: clients tokenize with the vocab.txt next to it")
        return
    values = write_saved_model(
        served,
        options.export_dir,
        options.signatures,
        precision=options.precision,
        warm_up=options.warm_up,
        for_cpu=options.device == "cpu",
    )
    logger.info("Wrote a SavedModel to %s", options.export_dir)
    if has_preprocessing:
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


def _log_signatures(values: Mapping[str, Any]) -> None:
    for name, signature in values["signatures"].items():
        sides = [
            ", ".join(f"{n} {spec['dtype']} {spec['shape']}" for n, spec in signature[side].items())
            for side in ("inputs", "outputs")
        ]
        logger.info("  %s: %s\n    -> %s", name, *sides)
    if values["labels"]:
        logger.info("  labels: %s", ", ".join(values["labels"]))


def load_served(options: ExportOptions) -> Served:
    """Return the model to export, with its weights.

    Raises:
        ValueError: the folder lacks the head, or a flag does not fit the model.
    """
    if options.head in ("encoder", "masked_lm"):
        return _without_task(options.head, options)
    trained = load_model(
        options.model_dir,
        dtype=options.dtype,
        bert_config_file=options.bert_config_file,
        vocab_file=options.vocab_file,
        do_lower_case=options.do_lower_case,
    )
    task = trained.task
    if task is not None and TYPES[task.name].served:
        return _with_task(trained, options)
    if task is not None and task.name != "pretraining":
        raise ValueError(
            f"{options.model_dir} contains a model for {task.name}, which has no `served` in "
            "registry.TYPES. Add it, or export only the encoder: head=encoder."
        )
    if trained.unused_head:
        raise ValueError(
            f"{trained.unused_head} Convert it with convert_checkpoint to a folder that states its "
            "task, or export only the encoder: head=encoder."
        )
    if options.head == "task":
        raise ValueError(
            f"{options.model_dir} contains no fine-tuned model: it has no {TASK_FILE} of "
            "run_classifier, run_squad, run_ner or run_swag, and no such head. Use head=encoder or "
            "head=masked_lm."
        )
    return _without_task("encoder", options)


def _check_settings(options: ExportOptions, head: str) -> None:
    """Raise if a setting is for another type of model than that of `head`."""
    for field in fields(options):
        owner = next((name for name, names in _SETTINGS_OF.items() if field.name in names), head)
        value = getattr(options, field.name)
        if owner != head and value != field.default:
            raise ValueError(
                f"{field.name} is {value}, but it is for {owner}, and {options.model_dir} is exported "
                f"for {head}. Omit it."
            )


def _with_task(trained: TrainedModel, options: ExportOptions) -> Served:
    task = trained.task
    _check_settings(options, task.name)
    if options.is_pair is not None:
        trained = _as_pairs(trained, options.is_pair)
        task = trained.task
    if isinstance(task, QuestionAnsweringTask):
        if options.max_seq_length is not None:
            raise ValueError(
                "max_seq_length is not for question-answering models: longer contexts are read in "
                f"windows of {task.max_seq_length} tokens, as in training. Omit it."
            )
        settings = AnswerSettings(
            options.n_best_size,
            options.max_answer_length,
            task.version_2_with_negative,
            options.null_score_diff_threshold,
        )
        return ServedAnswerer(trained, settings, options.with_text)
    length = options.max_seq_length or trained.max_seq_length
    trained.model.config.check_sequence_length(length, task.min_seq_length)
    return TYPES[task.name].load("served")(trained, length, options.with_text)


def _as_pairs(trained: TrainedModel, is_pair: bool) -> TrainedModel:
    """Set the input of a classifier that does not state it: pairs or single texts."""
    task = trained.task
    if not isinstance(task, ClassificationTask) or task.is_pair not in (None, is_pair):
        raise ValueError(
            f"is_pair={is_pair} is for classifiers of Hugging Face, which do not state whether they "
            f"take pairs, but {trained.source} states it. Omit the flag."
        )
    task = ClassificationTask(**task.arguments() | {"is_pair": is_pair})
    return replace(trained, task=task)


def _without_task(head: str, options: ExportOptions) -> Served:
    _check_settings(options, head)
    checkpoint = read_checkpoint(options.model_dir)
    config = find_config(options.bert_config_file, checkpoint)
    tokenizer = load_tokenizer(options.vocab_file, options.do_lower_case, checkpoint, config)
    length = options.max_seq_length or config.max_position_embeddings
    config.check_sequence_length(length, MIN_SEQ_LENGTH)
    model = TYPES[head].load("model")(config, dtype=options.dtype)
    report = initialize(model, checkpoint)
    if head == "encoder":
        layers = parse_layers(options.layers, config.num_hidden_layers) if options.layers else []
        return ServedEncoder(
            model,
            tokenizer,
            length,
            options.pooling,
            options.normalize,
            layers,
            options.with_text,
        )
    missing = [name for name in report.missing if name.startswith("cls/predictions")]
    if missing:
        raise ValueError(
            f"{checkpoint.source} has no masked-LM head: it lacks {', '.join(missing[:3])}. Use "
            "head=encoder, or a pre-trained checkpoint with its heads."
        )
    return ServedMaskFiller(model, tokenizer, length, options.top_k, options.with_text)
