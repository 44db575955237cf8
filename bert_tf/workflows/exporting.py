"""export_saved_model: from a fine-tuned model's folder to a SavedModel that takes raw text."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from bert_tf.export import check_export_dir, export_answerer, export_classifier
from bert_tf.export_words_and_choices import SERVED, export_words_or_choices
from bert_tf.model_folder import TrainedModel, load_model_folder
from bert_tf.tasks.answers import AnswerSettings
from bert_tf.tasks.question_answering import QuestionAnsweringTask
from bert_tf.workflows.options import option

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class ExportOptions:
    """The flags of export_saved_model."""

    model_dir: str = option("The --output_dir of run_classifier, run_squad, run_ner or run_swag.")
    export_dir: str = option("New folder for the SavedModel; TF Serving wants .../<version>.")
    max_seq_length: int | None = option(
        "Longer texts are cut. Default: as in training. Not for questions.", default=None
    )
    null_score_diff_threshold: float = option(
        "For SQuAD 2.0: no answer is given where its odds are above this.", default=0.0
    )
    max_answer_length: int = option("For SQuAD: longest answer, in tokens.", default=30)
    n_best_size: int = option(
        "For SQuAD: best tokens of each window that may begin or end an answer.", default=20
    )

    def __post_init__(self) -> None:
        for name in ("max_answer_length", "n_best_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"--{name} is {getattr(self, name)}, but must be 1 or more.")


def export_saved_model(options: ExportOptions) -> None:
    """Writes the SavedModel, and says how it is asked."""
    check_export_dir(options.export_dir)  # before the model is loaded
    trained = load_model_folder(options.model_dir)
    if isinstance(trained.task, QuestionAnsweringTask):
        _export_answerer(trained, options)
        return
    if type(trained.task) in SERVED:
        signatures = export_words_or_choices(trained, options.export_dir, options.max_seq_length)
        logger.info("Wrote a SavedModel to %s", options.export_dir)
        for name, function in signatures.items():
            takes, gives = function.structured_input_signature[1], function.structured_outputs
            logger.info("  %s: %s -> %s", name, ", ".join(takes), ", ".join(gives))
        return
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


def _export_answerer(trained: TrainedModel, options: ExportOptions) -> None:
    if options.max_seq_length is not None:
        raise ValueError(
            "--max_seq_length is not for models that answer questions: longer contexts are read in "
            f"windows of the {trained.max_seq_length} tokens of training."
        )
    settings = AnswerSettings(
        options.n_best_size,
        options.max_answer_length,
        trained.task.version_2_with_negative,
        options.null_score_diff_threshold,
    )
    export_answerer(trained, options.export_dir, settings)
    logger.info("Wrote a SavedModel to %s", options.export_dir)
    logger.info("  serving_default: question, context (string) -> answer, start, end, score, ...")
    logger.info("  tokens: input_ids, input_mask, segment_ids (int32) -> start_logits, end_logits")
    logger.info("  loads where tensorflow and tensorflow_text are imported; bert_tf is not needed")
