"""Served encoder: embeddings of sentences, and vectors of tokens.

    serving_default   text_a: string [B]                                   -> the outputs
    pair              text_a, text_b: string [B]                           -> the same
    tokens            input_ids, input_mask, segment_ids: int32 [B, S]     -> the same without `token`

Outputs:

    embedding         float32 [B, H], pooled by the chosen method (modeling/pooling.py); its length is 1
                      if normalized
    layer_features    float32 [B, K, S, H], the chosen layers in that order; absent without layers
    token             string [B, S], only with `layer_features`: the WordPieces, "" in padding

Shapes: B batch, S the batch's longest sequence, H hidden, K layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import tensorflow as tf

from bert_tf.modeling.pooling import check_pooler, check_pooling, sentence_embedding
from bert_tf.prediction.runtimes import TEXT
from bert_tf.serving.served import Outputs, Served, texts_spec

PAIR = "pair"


@dataclass(frozen=True, eq=False)
class ServedEncoder(Served):
    """Texts -> vectors.

    Args:
        pooling: key of `POOLINGS`.
        normalize: scale embeddings to length 1, so that their product is the cosine.
        layers: indexes of the layers to return: 0 is the first, -1 the last.
    """

    pooling: str = "mean"
    normalize: bool = True
    layers: Sequence[int] = ()

    kind = "encoder"

    def __post_init__(self) -> None:
        check_pooling(self.pooling, self.config.num_hidden_layers)
        check_pooler(self.pooling, self.model)

    @property
    def length_step(self) -> int:
        # With layers, one row of vectors per token and no rows for padding.
        return 1 if self.layers else super().length_step

    def tokens(self, **ids) -> Outputs:
        encoded = self.call_model(**ids)
        embedding = sentence_embedding(encoded, ids["input_mask"], self.pooling)
        if self.normalize:
            embedding = tf.math.l2_normalize(embedding, axis=-1)
        outputs = {"embedding": embedding}
        if self.layers:
            layers = [encoded["all_encoder_layers"][index] for index in self.layers]
            outputs["layer_features"] = tf.cast(tf.stack(layers, axis=1), tf.float32)
        return outputs

    def single(self, text_a) -> Outputs:
        return self._encode(self.pack(self.tokenizer(text_a), None))

    def pair(self, text_a, text_b) -> Outputs:
        return self._encode(self.pack(self.tokenizer(text_a), self.tokenizer(text_b)))

    def _encode(self, packed: dict[str, tf.Tensor]) -> Outputs:
        outputs = self.tokens(**packed)
        if self.layers:
            pieces = tf.gather(self.pieces, packed["input_ids"])
            outputs["token"] = tf.where(packed["input_mask"] > 0, pieces, "")
        return outputs

    def text_functions(self):
        text_a, text_b = texts_spec("text_a"), texts_spec("text_b")
        return {TEXT: (self.single, [text_a]), PAIR: (self.pair, [text_a, text_b])}
