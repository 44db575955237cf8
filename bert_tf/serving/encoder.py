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

import tensorflow as tf

from bert_tf.modeling.pooling import check_pooler, check_pooling, sentence_embedding
from bert_tf.prediction.model_folder import TrainedModel
from bert_tf.serving.served import TEXT, Outputs, Served, texts_spec

PAIR = "pair"


class ServedEncoder(Served):
    """Texts -> vectors.

    Args:
        pooling: key of `POOLINGS`.
        normalize: scale embeddings to length 1, so that their product is the cosine.
        layers: indexes of the layers to return: 0 is the first, -1 the last.
    """

    def __init__(
        self,
        trained: TrainedModel,
        max_seq_length: int,
        pooling: str = "mean",
        normalize: bool = True,
        layers: Sequence[int] = (),
        with_text: bool = True,
    ):
        super().__init__(trained, max_seq_length, with_text)
        check_pooling(pooling, self.config.num_hidden_layers)
        check_pooler(pooling, trained.model)
        self.pooling, self.normalize, self.layers = pooling, normalize, tuple(layers)
        if self.layers:
            self.length_step = 1  # one row of vectors per token, and no rows for padding
        self._pieces = trained.tokenizer.convert_ids_to_tokens(range(len(self.vocabulary)))

    def tokens(self, input_ids, input_mask, segment_ids) -> Outputs:
        tensors = self.call_model(
            input_ids=input_ids, input_mask=input_mask, segment_ids=segment_ids
        )
        embedding = sentence_embedding(tensors, input_mask, self.pooling)
        if self.normalize:
            embedding = tf.math.l2_normalize(embedding, axis=-1)
        outputs = {"embedding": embedding}
        if self.layers:
            layers = [tensors["all_encoder_layers"][index] for index in self.layers]
            outputs["layer_features"] = tf.cast(tf.stack(layers, axis=1), tf.float32)
        return outputs

    def hugging_face(self, input_ids, input_mask, segment_ids) -> Outputs:
        tensors = self.call_model(
            input_ids=input_ids, input_mask=input_mask, segment_ids=segment_ids
        )
        return {
            "last_hidden_state": tf.cast(tensors["sequence_output"], tf.float32),
            "pooler_output": tf.cast(tensors["pooled_output"], tf.float32),
        }

    def single(self, text_a) -> Outputs:
        return self._encode(self.pack(self.tokenizer(text_a), None))

    def pair(self, text_a, text_b) -> Outputs:
        return self._encode(self.pack(self.tokenizer(text_a), self.tokenizer(text_b)))

    def _encode(self, packed: dict[str, tf.Tensor]) -> Outputs:
        outputs = self.tokens(**packed)
        if self.layers:
            pieces = tf.gather(self._pieces, packed["input_ids"])
            outputs["token"] = tf.where(packed["input_mask"] > 0, pieces, "")
        return outputs

    def text_functions(self):
        text_a, text_b = texts_spec("text_a"), texts_spec("text_b")
        return {TEXT: (self.single, [text_a]), PAIR: (self.pair, [text_a, text_b])}
