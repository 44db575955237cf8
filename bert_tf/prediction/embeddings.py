"""Sentence embeddings: one vector for each raw text, from any encoder.

    mean               mean of the last layer's vectors over the tokens, as sentence-transformers does
    cls                the last layer's vector of [CLS]
    concat_last_four   the mean over the tokens, of the last four layers one after the other

Shapes: B batch, S sequence, H hidden, E embedding (H, or 4 * H), N texts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.data.packing import PackedSequence, pack
from bert_tf.model_folder import TrainedModel
from bert_tf.modeling.bert import BertModel
from bert_tf.prediction.loading import load_model
from bert_tf.prediction.text_model import SequenceRunner, TextModel, checked_text

EMBEDDING_POOLINGS = ("mean", "cls", "concat_last_four")
_LAYERS = 4


class SentenceEncoder(TextModel):
    """Vectors of texts; a text beyond the longest input is cut.

        encoder = SentenceEncoder("all-MiniLM-L6-v2")
        vectors = encoder.encode(["A dog barked.", "A cat slept."])        # float32 [2, E]
        cosine_similarity(vectors, vectors)

    Args:
        model: any model folder or checkpoint, or what was loaded from there.
        pooling: one of EMBEDDING_POOLINGS.
        normalize: whether vectors get the length 1, so that their product is the cosine.
        batch_size: texts that go through the model at once.

    Raises:
        ValueError: there is no such pooling, or fewer than four layers for it.
    """

    columns = ("embedding",)

    def __init__(
        self,
        model: str | TrainedModel,
        pooling: str = "mean",
        normalize: bool = True,
        batch_size: int = 32,
    ):
        if pooling not in EMBEDDING_POOLINGS:
            raise ValueError(
                f"`pooling` is {pooling!r}, but must be one of {', '.join(EMBEDDING_POOLINGS)}."
            )
        trained = load_model(model) if isinstance(model, str) else model
        bert = trained.model if isinstance(trained.model, BertModel) else trained.model.bert
        if pooling == "concat_last_four" and bert.config.num_hidden_layers < _LAYERS:
            raise ValueError(
                f"--pooling={pooling} needs {_LAYERS} layers, and the model has "
                f"{bert.config.num_hidden_layers}. Use --pooling=mean."
            )
        self._tokenizer = trained.tokenizer
        self._max_seq_length = trained.max_seq_length

        def embed(inputs):
            layers = bert(inputs, training=False)["all_encoder_layers"]
            vectors = _pooled(
                [tf.cast(x, tf.float32) for x in layers], inputs["input_mask"], pooling
            )
            return {"embedding": tf.math.l2_normalize(vectors, axis=-1) if normalize else vectors}

        self._run = SequenceRunner(embed, self._max_seq_length, batch_size)

    def prepare(self, item: str) -> PackedSequence:
        ids = self._tokenizer.encode(checked_text(item))
        cls_id, sep_id = self._tokenizer.convert_tokens_to_ids(["[CLS]", "[SEP]"])
        self.num_cut += len(ids) + 2 > self._max_seq_length
        length = min(len(ids) + 2, self._max_seq_length)
        return pack(ids, max_seq_length=length, cls_id=cls_id, sep_id=sep_id)

    def answer(self, prepared: Sequence[PackedSequence]) -> list[dict[str, Any]]:
        """{"embedding": [E numbers]}."""
        # The shortest digits that are the same float32: half the file of what `tolist` gives.
        return [
            {"embedding": [float(str(value)) for value in row["embedding"]]}
            for row in self._run(prepared)
        ]

    def encode(self, texts: Sequence[str]) -> np.ndarray:
        """float32 [N, E]."""
        rows = self._run([self.prepare(text) for text in texts])
        return (
            np.stack([row["embedding"] for row in rows]) if rows else np.zeros((0, 0), np.float32)
        )

    def short(self, answer: Mapping[str, Any]) -> str:
        return " ".join(map(str, answer["embedding"]))


def _pooled(layers: Sequence[tf.Tensor], input_mask: tf.Tensor, pooling: str) -> tf.Tensor:
    """float32 [B, S, H] each, and int32 [B, S] -> [B, E]."""
    if pooling == "cls":
        return layers[-1][:, 0]
    hidden = layers[-1] if pooling == "mean" else tf.concat(layers[-_LAYERS:], axis=-1)
    weights = tf.cast(input_mask, tf.float32)[:, :, None]
    return tf.reduce_sum(hidden * weights, axis=1) / tf.reduce_sum(weights, axis=1)


def cosine_similarity(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The cosine of the angle between each of N vectors and each of M, [N, M]; 0 for a zero vector.

    >>> cosine_similarity(np.array([[3.0, 0.0]]), np.array([[1.0, 0.0], [0.0, 2.0], [-2.0, 0.0]]))
    array([[ 1.,  0., -1.]])
    """
    return _unit(np.asarray(first)) @ _unit(np.asarray(second)).T


def _unit(vectors: np.ndarray) -> np.ndarray:
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return vectors / np.where(lengths > 0, lengths, 1.0)
