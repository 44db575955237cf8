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

import copy
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.data.packing import PackedSequence, pack
from bert_tf.interop.read import folder_of
from bert_tf.interop.sentence_transformers import is_of_sentence_transformers
from bert_tf.metrics.retrieval import unit
from bert_tf.model_folder import TrainedModel, load_model
from bert_tf.modeling.bert import BertModel
from bert_tf.modeling.pooling import POOLINGS, check_pooler, check_pooling, sentence_embedding
from bert_tf.prediction.text_model import SequenceRunner, TextModel, checked_text
from bert_tf.tasks.base import Task
from bert_tf.tasks.embeddings import EmbeddingTask

logger = logging.getLogger(__name__)

EMBEDDING_POOLINGS = tuple(POOLINGS)


class SentenceEncoder(TextModel):
    """Vectors of texts; a text beyond the longest input is truncated.

        encoder = SentenceEncoder("all-MiniLM-L6-v2")
        vectors = encoder.encode(["A dog barked.", "A cat slept."])        # float32 [2, E]
        cosine_similarity(vectors, vectors)

    Args:
        model: any model folder or checkpoint, or the loaded folder.
        pooling: one of EMBEDDING_POOLINGS. Default: that of a model of run_embeddings (with its
            projection), else mean.
        normalize: scale vectors to length 1, so that their product is the cosine. Default: as a model
            of run_embeddings was trained, else True.
        batch_size: texts per batch.
        as_query: put the prefix of queries before each text, and not that of documents. Models of
            run_embeddings have them.

    Raises:
        ValueError: the pooling is unknown, or needs four layers or a pooler that the model lacks; or it
            is not given, and that of the folder is not supported.
    """

    columns = ("embedding",)

    def __init__(
        self,
        model: str | TrainedModel,
        pooling: str | None = None,
        normalize: bool | None = None,
        batch_size: int = 32,
        as_query: bool = False,
    ):
        trained = load_model(model) if isinstance(model, str) else model
        task = trained.task if isinstance(trained.task, EmbeddingTask) else None
        if normalize is None:
            normalize = True if task is None else task.normalize
        self._task: Task | None = task
        self.as_query, self._prefix = as_query, prefix_of(task, as_query)
        if self._prefix:
            kind = "queries" if as_query else "documents"
            logger.info("%s puts %r before %s", trained.source, self._prefix, kind)
        bert = trained.model if isinstance(trained.model, BertModel) else trained.model.bert
        self._tokenizer = trained.tokenizer
        self.max_seq_length = trained.max_seq_length
        if task is not None and pooling in (None, task.pooling):
            network, self._width = trained.model, task.width(bert.config)
        else:
            if pooling is None and trained.unused_head:
                if is_of_sentence_transformers(folder_of(trained.source)):
                    raise ValueError(
                        f"{trained.unused_head} Give pooling=mean for the means over the tokens alone."
                    )
                logger.warning("%s Its embeddings are means over the tokens.", trained.unused_head)
            check_pooling(pooling or "mean", bert.config.num_hidden_layers)
            check_pooler(pooling or "mean", trained.model)
            self._width = bert.config.hidden_size * POOLINGS[pooling or "mean"]

            def network(inputs, training=False):
                outputs = bert(inputs, training=training)
                mask = inputs["input_mask"]
                return {"embedding": sentence_embedding(outputs, mask, pooling or "mean")}

        def embed(inputs):
            vectors = network(inputs, training=False)["embedding"]
            return {"embedding": tf.math.l2_normalize(vectors, axis=-1) if normalize else vectors}

        self._run = SequenceRunner(embed, self.max_seq_length, batch_size)

    @property
    def width(self) -> int:
        """Size of a vector, E."""
        return self._width

    def for_queries(self) -> SentenceEncoder:
        """Return the same model with the prefix of queries, if it has one."""
        found = copy.copy(self)
        found.as_query, found._prefix = True, prefix_of(self._task, as_query=True)
        return found

    def prepare(self, item: str) -> PackedSequence:
        ids = self._tokenizer.encode(self._prefix + checked_text(item))
        cls_id, sep_id = self._tokenizer.convert_tokens_to_ids(["[CLS]", "[SEP]"])
        self.num_cut += len(ids) + 2 > self.max_seq_length
        length = min(len(ids) + 2, self.max_seq_length)
        return pack(ids, max_seq_length=length, cls_id=cls_id, sep_id=sep_id)

    def vectors(self, prepared: Sequence[PackedSequence]) -> list[np.ndarray]:
        """Return float32 [E] for each prepared input."""
        return [row["embedding"] for row in self._run(prepared)]

    def answer(self, prepared: Sequence[Any]) -> list[dict[str, Any]]:
        """Return {"embedding": [E numbers]} for each prepared input."""
        # The shortest digits of the same float32. Files are half as large as with `tolist`.
        return [
            {"embedding": [float(str(value)) for value in vector]}
            for vector in self.vectors(prepared)
        ]

    def encode(self, texts: str | Sequence[str]) -> np.ndarray:
        """Return float32 [N, E]; a single text is one row."""
        rows = self.vectors([self.prepare(text) for text in self.inputs(texts)])
        return np.stack(rows) if rows else np.zeros((0, self.width), np.float32)

    def short(self, answer: Mapping[str, Any]) -> str:
        return " ".join(map(str, answer["embedding"]))


def prefix_of(task: Task | None, as_query: bool = False) -> str:
    """Return what a model of run_embeddings puts before each text; "" for other models."""
    if not isinstance(task, EmbeddingTask):
        return ""
    return task.query_prefix if as_query else task.document_prefix


def cosine_similarity(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Return the cosines between each of N vectors and each of M, [N, M]; 0 for a zero vector.

    >>> cosine_similarity(np.array([[3.0, 0.0]]), np.array([[1.0, 0.0], [0.0, 2.0], [-2.0, 0.0]]))
    array([[ 1.,  0., -1.]])
    """
    return unit(np.atleast_2d(first)) @ unit(np.atleast_2d(second)).T
