"""The flags of run_reranker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from bert_tf.finetuning.embeddings_options import TextFilesOptions
from bert_tf.options import option
from bert_tf.tasks.reranking import RERANKING_LOSSES


@dataclass(frozen=True, kw_only=True)
class RerankerOptions(TextFilesOptions):
    """The flags of run_reranker."""

    program: ClassVar[str] = "run_reranker"  # in the model card, because others train classifiers

    max_seq_length: int | None = option(
        "WordPieces of a query with its document, with [CLS] and two [SEP]. Default: that of the "
        "reranker or CrossEncoder that the program begins with, else 128 (or the model's number of "
        "positions, if lower).",
        group="Model",
        default=None,
        on_resume="warn",
    )
    loss: str | None = option(
        "binary: cross-entropy of each score. pairwise: the positive against each negative. listwise: "
        "the positive among all documents of its query. Default: binary for scores, else listwise.",
        group="Model",
        default=None,
        choices=tuple(RERANKING_LOSSES),
        on_resume="warn",
    )
    num_negatives: int = option(
        "Negatives of a training example: those of --train_file, and positives of other anchors, drawn "
        "with --seed, up to this number.",
        default=4,
        min=1,
        on_resume="warn",
    )
    retriever: str | None = option(
        "Model of run_embeddings, or another folder for embeddings, that finds the documents to rank in "
        "an evaluation, among the positives and negatives of the file, except the query itself. "
        "Default: a query has the documents of its own rows.",
        default=None,
    )
