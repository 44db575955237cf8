"""Sentence embeddings: one vector for each raw text, from any encoder.

    mean               mean of the last layer's vectors over the tokens, as in sentence-transformers
    max                largest value of each number over the same
    cls                the last layer's vector of [CLS]
    pooled             the tanh layer on that vector, the input of classifiers
    concat_last_four   mean over the tokens of the last four layers, concatenated

A model of run_embeddings may have a linear layer on that vector, its projection.

Shapes: B batch, S sequence, H hidden, E embedding (H, 4 * H, or the projection's size), N texts.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.checkpoints.sentence_transformers import is_of_sentence_transformers
from bert_tf.modeling.heads import check_pooling, sentence_embedding
from bert_tf.packing import PackedSequence
from bert_tf.prediction.loading import TrainedModel, outputs_of_export
from bert_tf.prediction.text_model import Network, TextModel, check_texts, list_inputs
from bert_tf.tasks.metrics import l2_normalize

logger = logging.getLogger(__name__)


class EmbeddingPredictor(TextModel):
    """Vectors of texts; a text beyond the longest input is truncated.

    Answers: {"embedding": [E numbers]}.

    Args:
        pooling: key of `modeling.heads.POOLINGS`. Default: that of a model of run_embeddings (with
            its projection), else mean.
        normalize: scale vectors to length 1, so that their product is the cosine. Default: as a model
            of run_embeddings was trained, else True.
        as_query: put the prefix of queries before each text, and not that of documents. Models of
            run_embeddings have them.

    Raises:
        ValueError: the pooling is unknown, or needs four layers or a pooler that the model lacks; or it
            is not given, and that of the folder is not supported; or an export fixes it.
    """

    columns = ("embedding",)

    def __init__(
        self,
        trained: TrainedModel,
        batch_size: int = 32,
        *,
        pooling: str | None = None,
        normalize: bool | None = None,
        as_query: bool = False,
    ):
        self._pooling, self._normalize = pooling, normalize
        super().__init__(trained, batch_size)
        prefix = "query_prefix" if as_query else "document_prefix"
        self._prefix = getattr(self.task, prefix, "")

    def network(self, trained: TrainedModel) -> Network:
        if "embedding" in outputs_of_export(trained):
            if (self._pooling, self._normalize) != (None, None):
                raise ValueError("`pooling` and `normalize` are fixed by the export. Omit them.")
            return lambda inputs: {"embedding": trained.network(inputs)["embedding"]}
        normalize = self._normalize
        if normalize is None:
            normalize = getattr(trained.task, "normalize", True)
        pooling = getattr(trained.task, "pooling", None)  # of an EmbeddingTask
        if pooling is not None and self._pooling in (None, pooling):
            vectors = trained.network
        else:
            vectors = _pooled(trained, self._pooling)

        def embed(inputs):
            vector = vectors(inputs)["embedding"]
            return {"embedding": tf.math.l2_normalize(vector, axis=-1) if normalize else vector}

        return embed

    def prepare(self, item: str) -> PackedSequence:
        check_texts(item)
        return self.pack(self.tokenizer.encode(self._prefix + item))

    def _vectors(self, prepared: Sequence[PackedSequence]) -> list[np.ndarray]:
        return [row["embedding"] for row in self.run(prepared)]

    def answer(self, prepared: Sequence[Any]) -> list[dict[str, Any]]:
        # The shortest digits of the same float32. Files are half as large as with `tolist`.
        return [
            {"embedding": [float(str(value)) for value in vector]}
            for vector in self._vectors(prepared)
        ]

    def encode(self, texts: str | Sequence[str]) -> np.ndarray:
        """Return float32 [N, E]; a single text is one row."""
        prepared = [self.prepare(text) for text in list_inputs(texts)]
        return np.stack(self._vectors(prepared or [self.prepare("")]))[: len(prepared)]

    def short(self, answer: Mapping[str, Any]) -> str:
        return " ".join(map(str, answer["embedding"]))


def _pooled(trained: TrainedModel, pooling: str | None) -> Network:
    """Return the network of the encoder with a pooling, by default the mean over the tokens."""
    if pooling is None and trained.unused_head:
        if is_of_sentence_transformers(os.path.dirname(trained.checkpoint)):
            raise ValueError(
                f"{trained.unused_head} Give pooling=mean for the means over the tokens alone."
            )
        logger.warning("%s Its embeddings are means over the tokens.", trained.unused_head)
    method = pooling or "mean"
    bert = getattr(trained.model, "bert", trained.model)
    check_pooling(method, trained.model)
    return lambda inputs: {
        "embedding": sentence_embedding(bert(inputs), inputs["input_mask"], method)
    }


def cosine_similarity(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the cosines between each of N vectors and each of M, [N, M]; 0 for a zero vector.

    >>> cosine_similarity(np.array([[3.0, 0.0]]), np.array([[1.0, 0.0], [0.0, 2.0], [-2.0, 0.0]]))
    array([[ 1.,  0., -1.]])
    """
    return l2_normalize(np.atleast_2d(first)) @ l2_normalize(np.atleast_2d(second)).T
