"""export_saved_model: from a fine-tuned model's folder to a SavedModel that takes raw text."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from bert_tf.export import check_export_dir, export_classifier
from bert_tf.model_folder import load_model_folder
from bert_tf.workflows.options import option

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """The flags of export_saved_model."""

    model_dir: str = option("The --output_dir of run_classifier.")
    export_dir: str = option("New folder for the SavedModel; TF Serving wants .../<version>.")
    max_seq_length: int | None = option(
        "Longer texts are cut. Default: as in training.", default=None
    )


def export_saved_model(options: ExportOptions) -> None:
    """Writes the SavedModel, and says how it is asked."""
    check_export_dir(options.export_dir)  # before the model is loaded
    trained = load_model_folder(options.model_dir)
    export_classifier(trained, options.export_dir, options.max_seq_length)
    inputs = "text_a, text_b" if trained.task.is_pair else "text_a"
    logger.info("Wrote a SavedModel to %s", options.export_dir)
    outputs = {
        "single_label": "label, probabilities, logits",
        "multi_label": "has_label, probabilities, logits",
        "regression": "score, logits",
    }[trained.task.kind.name]
    logger.info("  serving_default: %s (string) -> %s", inputs, outputs)
    logger.info("  tokens: input_ids, input_mask, segment_ids (int32) -> the same")
    if trained.task.labels:
        logger.info("  labels: %s", ", ".join(trained.task.labels))
    if trained.task.doc_stride:
        logger.warning(
            "The model was trained with --doc_stride, but the SavedModel reads the first %d tokens of a "
            "text: cut long documents before you send them, and pool the logits.",
            options.max_seq_length or trained.max_seq_length,
        )
    logger.info("  loads where tensorflow and tensorflow_text are imported; bert_tf is not needed")
