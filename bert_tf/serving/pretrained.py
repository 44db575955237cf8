"""Served pre-trained models: an encoder, which gives vectors, and predictions for [MASK].

Encoder:

    serving_default   text_a: string [B]                                   -> the outputs
    pair              text_a, text_b: string [B]                           -> the same
    tokens            input_ids, input_mask, segment_ids: int32 [B, S]     -> the same without `token`

    embedding         float32 [B, H], pooled by the chosen method (modeling/heads.py); its length is 1
                      if normalized
    layer_features    float32 [B, L, S, H], the chosen layers in that order; absent without layers
    token             string [B, S], only with `layer_features`: the WordPieces, "" in padding

Masked LM:

    serving_default   text: string [B], with [MASK] in it
                      -> token string [B, M, K] and probability float32 [B, M, K]: for each [MASK] of a
                         text, in order, the K best tokens, the best first; padded with "" and 0 after
                         the last [MASK] of a row
    tokens            input_ids, input_mask, segment_ids: int32 [B, S], masked_lm_positions: int32 [B, M]
                      -> token, probability, and token_id int32 [B, M, K]

A literal [PAD], [UNK], [CLS], [SEP] or [MASK] in the text is that token. A text is truncated to
`max_seq_length`. A [MASK] beyond that is not filled.

Shapes: B batch, S the batch's longest sequence, H hidden, L layers, M largest number of [MASK] in a
text, K best tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import tensorflow as tf

from bert_tf.modeling.heads import check_pooling, sentence_embedding
from bert_tf.prediction.loading import TEXT
from bert_tf.serving.served import Outputs, Served, texts_spec
from bert_tf.tokenization import SPECIAL_TOKENS


@dataclass(frozen=True, eq=False)
class ServedEncoder(Served):
    pooling: str = "mean"  # key of `POOLINGS`
    normalize: bool = True
    layers: Sequence[int] = ()  # to return: 0 is the first, -1 the last

    kind = "encoder"

    def __post_init__(self) -> None:
        check_pooling(self.pooling, self.model)

    def hugging_face(self, **ids) -> Outputs:
        encoded = self.call_model(**ids)
        return {
            "last_hidden_state": tf.cast(encoded["sequence_output"], tf.float32),
            "pooler_output": tf.cast(encoded["pooled_output"], tf.float32),
        }

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

    def encode(self, text_a, text_b=None) -> Outputs:
        ids_b = None if text_b is None else self.tokenizer(text_b)
        packed = self.pack(self.tokenizer(text_a), ids_b)
        outputs = self.tokens(**packed)
        if self.layers:
            pieces = tf.gather(self.pieces, packed["input_ids"])
            outputs["token"] = tf.where(packed["input_mask"] > 0, pieces, "")
        return outputs

    def text_functions(self):
        text_a, text_b = texts_spec("text_a"), texts_spec("text_b")
        return {TEXT: (self.encode, [text_a]), "pair": (self.encode, [text_a, text_b])}


# The tokenizer drops both. The first marks the parts of a text. The second replaces it in the text:
# without any character there, "[MA\0SK]" would become [MASK].
_BREAK, _DROPPED = "\0", "\ufffd"


@dataclass(frozen=True, eq=False)
class ServedMaskedLM(Served):
    top_k: int = 5  # K; at most the size of the vocabulary is used

    kind = "maskfiller"

    @cached_property
    def _special(self) -> dict[str, int]:
        vocab = self.trained.tokenizer.vocab
        return {token: vocab[token] for token in SPECIAL_TOKENS if token in vocab}

    def ids_specs(self) -> dict[str, tf.TensorSpec]:
        name = "masked_lm_positions"
        return {**super().ids_specs(), name: tf.TensorSpec([None, None], tf.int32, name)}

    def hugging_face(self, **ids) -> Outputs:
        shape = tf.shape(ids["input_ids"])
        positions = tf.broadcast_to(tf.range(shape[1]), shape)
        return {"logits": self.call_model(**ids, masked_lm_positions=positions)["masked_lm_logits"]}

    def tokens(self, **ids) -> Outputs:
        logits = self.call_model(**ids)["masked_lm_logits"]
        # A table of embeddings may be longer than the vocabulary. The extra rows are not tokens.
        probabilities = tf.nn.softmax(logits[:, :, : len(self.pieces)])
        best, token_ids = tf.math.top_k(probabilities, min(self.top_k, len(self.pieces)))
        token = tf.gather(self.pieces, token_ids)
        return {"token": token, "probability": best, "token_id": token_ids}

    def fill(self, text) -> Outputs:
        packed = self.pack(self._encode(text), None)
        is_mask = tf.equal(packed["input_ids"], self._special["[MASK]"])
        positions = tf.RaggedTensor.from_row_lengths(
            tf.cast(tf.where(is_mask)[:, 1], tf.int32),
            tf.reduce_sum(tf.cast(is_mask, tf.int64), axis=1),
            validate=False,
        )
        best = self.tokens(**packed, masked_lm_positions=positions.to_tensor())
        is_filled = tf.ones_like(positions).to_tensor()[:, :, tf.newaxis] > 0
        return {
            "token": tf.where(is_filled, best["token"], ""),
            "probability": tf.where(is_filled, best["probability"], 0.0),
        }

    def _encode(self, text: tf.Tensor) -> tf.RaggedTensor:
        """Do `FullTokenizer.encode` with `preserve_special_tokens`, in the graph."""
        text = tf.strings.regex_replace(text, r"\x00", _DROPPED)
        names = "|".join(name.strip("[]") for name in self._special)
        text = tf.strings.regex_replace(text, rf"\[({names})\]", rf"{_BREAK}[\1]{_BREAK}")
        parts = tf.strings.split(text, _BREAK)  # ragged [B, None]
        ids = tf.fill(tf.shape(parts.values), -1)
        for name, index in self._special.items():
            ids = tf.where(tf.equal(parts.values, name), index, ids)
        is_special = ids >= 0
        special = tf.RaggedTensor.from_row_lengths(
            tf.boolean_mask(ids, is_special), tf.cast(is_special, tf.int64)
        )
        plain = self.tokenizer(tf.where(is_special, "", parts.values))
        return parts.with_values(tf.concat([special, plain], axis=1)).merge_dims(1, 2)

    def text_functions(self):
        return {TEXT: (self.fill, [texts_spec("text")])}
