"""Embeddings: texts with the same meaning get vectors with a high cosine.

Two types of examples: an anchor with its positive and perhaps negatives; two texts with a score.

Shapes: B batch, K texts of an example, S sequence, E embedding.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.data.features import ANCHOR_FEATURES, FeatureSpec, sequence_specs
from bert_tf.data.parallel import SequencesRecords, SequencesRow
from bert_tf.data.records import content_key
from bert_tf.embeddings.losses import EMBEDDING_LOSSES, SCORES, embedding_loss
from bert_tf.embeddings.retrieval import pair_metrics, ranking_metrics
from bert_tf.embeddings.served import ServedEmbeddings
from bert_tf.limits import DataError
from bert_tf.modeling.heads import POOLINGS
from bert_tf.modeling.models import BertForSentenceEmbedding
from bert_tf.options import check_value
from bert_tf.registry import TaskType, register_task
from bert_tf.tasks.base import ExampleTask, Tensors
from bert_tf.tasks.metrics import l2_normalize
from bert_tf.tokenization import FullTokenizer

# Limits of the settings, as of `options.option`; the flags have them too.
LIMITS: Mapping[str, Mapping[str, Any]] = {
    "pooling": {"choices": tuple(POOLINGS)},
    "projection_size": {"min": 1},
    "scale": {"above": 0},
}


@dataclass(frozen=True)
class EmbeddingExample:
    """An example.

    Args:
        texts: anchor, positive and negatives; or two texts.
        label: score of two texts; 0.0 for an anchor with a positive.
        origin: "file:line", for messages.

    Raises:
        TypeError: `texts` is a single text.
    """

    texts: tuple[str, ...]
    label: float = 0.0
    origin: str = ""

    def __post_init__(self) -> None:
        texts: Any = self.texts
        if isinstance(texts, str):  # its letters would be texts
            raise TypeError(f"`texts` is {texts[:60]!r}, but must be a tuple of texts.")


def text_key(text: str) -> str:
    """Return the text without differences of case, and with single spaces.

    >>> text_key(" A  Dog ")
    'a dog'
    """
    return " ".join(text.casefold().split())


def text_number(text: str) -> int:
    """Return a positive int32, equal for texts with one `text_key`, in any file of records.

    Of 100,000 texts, about two share the number of another one.
    """
    digest = hashlib.blake2b(text_key(text).encode("utf-8", "replace"), digest_size=4).digest()
    return int.from_bytes(digest, "big") % (2**31 - 1) + 1


class EmbeddingTask(ExampleTask):
    """Vectors of texts.

    >>> task = EmbeddingTask(max_seq_length=64, query_prefix="query: ")
    >>> examples = [EmbeddingExample(("Who won?", "Denver beat Carolina."))]
    >>> task.write_records(examples, trainer.tokenizer, "pairs.tf_record")  # doctest: +SKIP

    Args:
        max_seq_length: S, of each text.
        num_texts: K, maximum texts of an example.
        pooling: "mean", "max", "cls", "pooled" or "concat_last_four", as of `embed`.
        normalize: the vectors that a model answers have length 1.
        projection_size: E, of a linear layer on the pooled vector; None for no layer.
        query_prefix: put before anchors and queries, such as "query: ".
        document_prefix: put before all other texts.
        loss: name of a loss of docs/embeddings.md, such as "multiple_negatives_ranking" or "cosent".
        scale: factor of the cosines in the ranking losses and cosent, 1 / temperature.
        matryoshka_dims: smaller widths, whose losses are added.
        best_metric: of the evaluation.

    Raises:
        ValueError: the loss is unknown, or a setting is not within its limits.
    """

    name = "embeddings"
    fixed_arguments = ("pooling", "projection_size", "normalize", "query_prefix", "document_prefix")
    soft_loss = "similarities"
    labels = ()

    def __init__(
        self,
        max_seq_length: int,
        num_texts: int = 2,
        pooling: str = "mean",
        normalize: bool = True,
        projection_size: int | None = None,
        query_prefix: str = "",
        document_prefix: str = "",
        loss: str = "multiple_negatives_ranking",
        scale: float = 20.0,
        matryoshka_dims: Sequence[int] = (),
        best_metric: str = "eval_spearman",
    ):
        self.max_seq_length, self.num_texts = max_seq_length, num_texts
        self.pooling, self.normalize, self.projection_size = pooling, normalize, projection_size
        self.query_prefix, self.document_prefix = query_prefix, document_prefix
        self.loss, self.scale = loss, scale
        self.matryoshka_dims = tuple(matryoshka_dims)
        self.best_metric = best_metric
        # The mean of an encoder is what `embed` gives of a model without a task.
        others = (projection_size, query_prefix, document_prefix)
        self.is_pretrained = normalize and pooling == "mean" and not any(others)
        for setting, limits in LIMITS.items():
            if (value := getattr(self, setting)) is not None:
                check_value(setting, value, limits)
        for width in self.matryoshka_dims:
            check_value("matryoshka_dims", width, {"min": 1})
        self.losses = (embedding_loss(loss, scale=scale, widths=self.matryoshka_dims),)
        rest: tuple[FeatureSpec, ...] = (FeatureSpec("label_ids", dtype="float32", role="id"),)
        if num_texts == 1:
            self.features = (*sequence_specs((max_seq_length,)), *rest)
            return
        rest = (FeatureSpec("text_numbers", (num_texts,), role="id"), *rest)
        anchor = (FeatureSpec(name, (max_seq_length,)) for name in ANCHOR_FEATURES)
        self.features = (*anchor, *self._sequences(num_texts - 1), *rest)

    def _sequences(self, number: int) -> tuple[FeatureSpec, ...]:
        shape = (number, self.max_seq_length)
        return (FeatureSpec("input_ids", shape), FeatureSpec("input_mask", shape))

    @property
    def record_features(self) -> Sequence[FeatureSpec]:
        if self.num_texts == 1:
            return self.features
        rest = [spec for spec in self.features if spec.role != "input"]
        return (*self._sequences(self.num_texts), *rest)  # the anchor is the first text

    def complete(self, dataset: tf.data.Dataset, seed: int, first_batch: int = 0):
        """Separate the anchors, which are padded to their own longest."""
        if self.num_texts == 1:
            return dataset

        @tf.autograph.experimental.do_not_convert
        def separate(features):
            ids, mask = features["input_ids"], features["input_mask"]
            anchor = {"anchor_ids": ids[:, 0], "anchor_mask": mask[:, 0]}
            return {**features, **anchor, "input_ids": ids[:, 1:], "input_mask": mask[:, 1:]}

        return dataset.map(separate, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)

    def of_single_texts(self, prefix: str) -> EmbeddingTask:
        """Return the task of the same vectors for examples of one text with this prefix."""
        return EmbeddingTask(**self.arguments() | {"num_texts": 1, "query_prefix": prefix})

    def build_model(self, config: BertConfig, dtype: str | None = None):
        self.check_widths(config)
        return BertForSentenceEmbedding(config, self.pooling, self.projection_size, dtype=dtype)

    @property
    def uses_pooler(self) -> bool:
        return self.pooling == "pooled"

    def width(self, config: BertConfig) -> int:
        """Return E."""
        return self.projection_size or config.hidden_size * POOLINGS[self.pooling]

    def check_widths(self, config: BertConfig) -> None:
        """Raise ValueError unless `matryoshka_dims` are below E."""
        for width in self.matryoshka_dims:
            if width >= self.width(config):
                raise ValueError(
                    f"matryoshka_dims has {width}, but must be below {self.width(config)}, the width."
                )

    def record_maker(self, tokenizer: FullTokenizer) -> SequencesRecords:
        return SequencesRecords(tokenizer, self.max_seq_length, self.record_names, self.num_texts)

    def rows(
        self, examples: Sequence[EmbeddingExample], tokenizer: FullTokenizer
    ) -> list[SequencesRow]:
        rows = []
        for index, example in enumerate(examples):
            self._check(example, index)
            anchor, *others = example.texts
            texts = [self.query_prefix + anchor, *(self.document_prefix + text for text in others)]
            text_numbers = [text_number(text) for text in example.texts]
            rows.append(SequencesRow(texts, example.label, numbers=text_numbers))
        return rows

    def _check(self, example: EmbeddingExample, index: int) -> None:
        """Raise unless the task has room for the texts of an example."""
        origin, count = example.origin or f"Example {index}", len(example.texts)
        if not min(2, self.num_texts) <= count <= self.num_texts:
            raise DataError(origin, f"{count} texts, but num_texts is {self.num_texts}.")
        is_scored = EMBEDDING_LOSSES[self.loss][2] == SCORES and count > 1
        if is_scored and not (0 <= example.label <= 1 or math.isnan(example.label)):
            raise DataError(origin, f"the label is {example.label:g}, but a score is from 0 to 1.")

    def num_sequences(self, examples: Sequence[EmbeddingExample]) -> int:
        return sum(len(example.texts) for example in examples)

    def records_key(self, examples: Iterable[EmbeddingExample], tokenizer: FullTokenizer) -> str:
        settings = [self.num_texts, self.max_seq_length, self.query_prefix, self.document_prefix]
        return content_key(tokenizer, settings, ((e.texts, e.label) for e in examples))

    def eval_outputs(self, outputs: Tensors, features: Tensors) -> Tensors:
        """Keep `embedding` [B, K, E] or [B, E], the numbers of the texts, and the labels."""
        names = [name for name in ("text_numbers", "label_ids") if name in features]
        return {"embedding": outputs["embedding"], **{name: features[name] for name in names}}

    def learned_shapes(self, embedding_dim):
        return {"embedding": (self.num_texts,) * (self.num_texts > 1) + (embedding_dim,)}

    def learned_outputs(self, outputs: Tensors, features: Tensors) -> Tensors:
        return {"embedding": outputs["embedding"]}

    def metrics(self, outputs: Mapping[str, np.ndarray]) -> dict[str, float]:
        """Return the metrics of anchors with positives, whose labels are all 0, or of pairs with scores.

        The loss of the training may be for others.
        """
        vectors = outputs["embedding"]
        if not outputs["label_ids"].any():
            return ranking_metrics(l2_normalize(vectors), outputs["text_numbers"])
        return pair_metrics(vectors[:, 0], vectors[:, 1], outputs["label_ids"])


register_task(
    TaskType(
        name="embeddings",
        task=EmbeddingTask,
        served=ServedEmbeddings,
        program="run_embeddings",
        pipeline="sentence-similarity",
        usage='embed(["Who won?"], as_query=True) @ model.embed(["Denver beat Carolina."]).T',
    )
)
