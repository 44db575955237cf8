"""Reranking: a score for a query with a document, both in one sequence (a cross-encoder).

A training example is a query with K documents. The trained model is a `ClassificationTask` of one number
for a pair, which Hugging Face calls BertForSequenceClassification with one label, and
sentence-transformers CrossEncoder.

Shapes: B batch, K documents, S sequence.

Source: Nogueira and Cho 2019, arXiv 1901.04085.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.data.features import FeatureSpec, sequence_specs
from bert_tf.data.parallel import ChoiceRecords, ChoiceRow
from bert_tf.data.records import content_key
from bert_tf.embeddings.task import EmbeddingExample
from bert_tf.modeling.models import BertForMultipleChoice
from bert_tf.tasks.base import ExampleTask, Tensors
from bert_tf.tasks.classification import ClassificationTask
from bert_tf.tokenization import FullTokenizer
from bert_tf.training.losses import Loss, masked_choices


def binary(logits, is_document, labels):
    """Return the cross-entropy of the sigmoid of each score, averaged over the documents.

    The target of the first document is the label, that of the others 0.

    Args:
        logits: scores, float32 [B, K].
        is_document: float32 [B, K], 1 = a document, 0 = padding.
        labels: target of the first document, float32 [B].

    Returns:
        float32 [B].
    """
    targets = tf.one_hot(tf.zeros_like(labels, tf.int32), tf.shape(logits)[1]) * labels[:, None]
    terms = tf.nn.sigmoid_cross_entropy_with_logits(labels=targets, logits=logits) * is_document
    return tf.reduce_sum(terms, 1) / tf.reduce_sum(is_document, 1)


def pairwise(logits, is_document, labels):
    """Return log(1 + exp(score of a negative - score of the positive)), averaged over the negatives.

    Arguments and result are those of `binary`; the labels are unused.

    Source: Burges et al. 2005 (RankNet), equation 3.
    """
    terms = tf.nn.softplus(logits[:, 1:] - logits[:, :1]) * is_document[:, 1:]
    return tf.math.divide_no_nan(tf.reduce_sum(terms, 1), tf.reduce_sum(is_document[:, 1:], 1))


def listwise(logits, is_document, labels):
    """Return the cross-entropy of the positive among all documents of its query.

    Arguments and result are those of `binary`; the labels are unused.

    Source: Cao et al. 2007 (ListNet), with one relevant document.
    """
    return -tf.nn.log_softmax(masked_choices(logits, is_document))[:, 0]


RERANKING_LOSSES: dict[str, Callable] = {
    "binary": binary,
    "pairwise": pairwise,
    "listwise": listwise,
}


class RerankingTask(ExampleTask):
    """A score for each document of a query.

    Args:
        max_seq_length: S, of a query with one document.
        num_documents: K, maximum documents of an example; the first is the positive.
        loss: key of `RERANKING_LOSSES`.
        best_metric: of the evaluation.
    """

    name = ClassificationTask.name
    example_type = EmbeddingExample
    truncation = "%d of %d queries with a document fill --max_seq_length=%d, and may be truncated"
    labels = ()

    def __init__(
        self,
        max_seq_length: int,
        num_documents: int = 1,
        loss: str = "binary",
        best_metric: str = "eval_ndcg@10",
    ):
        self.max_seq_length, self.num_documents, self.loss = max_seq_length, num_documents, loss
        self.best_metric = best_metric
        self.soft_loss = "sigmoid" if num_documents == 1 else "softmax"
        self.features = (
            *sequence_specs((num_documents, max_seq_length)),
            FeatureSpec("choice_mask", (num_documents,), role="id"),
            FeatureSpec("label_ids", dtype="float32", role="id"),
            FeatureSpec("is_real_example", role="weight"),
        )
        self.losses = (_loss(RERANKING_LOSSES[loss]),)

    def arguments(self) -> dict[str, Any]:
        """Return those of the trained model's task."""
        task = ClassificationTask((), self.max_seq_length, is_pair=True, problem_type="regression")
        return task.arguments()

    def build_model(self, config: BertConfig, dtype: str | None = None) -> BertForMultipleChoice:
        return BertForMultipleChoice(config, dtype=dtype)

    def record_maker(self, tokenizer: FullTokenizer) -> ChoiceRecords:
        names, num_documents = self.record_names, self.num_documents
        return ChoiceRecords(tokenizer, self.max_seq_length, names, num_documents, "float32")

    def rows(
        self, examples: Sequence[EmbeddingExample], tokenizer: FullTokenizer
    ) -> list[ChoiceRow]:
        return [ChoiceRow(e.texts[0], e.texts[1:], e.label) for e in examples]

    def texts(self, example: EmbeddingExample) -> Iterable[str]:
        return example.texts

    def num_sequences(self, examples: Sequence[EmbeddingExample]) -> int:
        return sum(len(example.texts) - 1 for example in examples)

    def records_key(self, examples: Iterable[EmbeddingExample], tokenizer: FullTokenizer) -> str:
        settings = ["reranking", self.num_documents, self.max_seq_length]
        return content_key(tokenizer, settings, ((e.texts, e.label) for e in examples))

    def eval_outputs(self, outputs: Tensors, features: Tensors) -> Tensors:
        return {"logits": masked_choices(outputs["logits"], features["choice_mask"])}

    def learned_shapes(self, embedding_dim):
        return {"logits": (self.num_documents,)}

    def metrics(self, outputs: Mapping[str, np.ndarray]) -> dict[str, float]:
        raise NotImplementedError(
            "embeddings/run_reranker.py has the metrics, which need the lists."
        )


def _loss(of_scores: Callable) -> Loss:
    def weights(features: Tensors):
        return tf.cast(features["is_real_example"], tf.float32)

    def total(outputs: Tensors, features: Tensors):
        logits = tf.cast(outputs["logits"], tf.float32)
        documents = tf.cast(features["choice_mask"], tf.float32)
        return tf.reduce_sum(
            weights(features) * of_scores(logits, documents, features["label_ids"])
        )

    return Loss("loss", total, lambda features: tf.reduce_sum(weights(features)))
