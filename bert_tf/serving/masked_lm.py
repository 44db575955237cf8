"""Served pre-trained model: predictions for [MASK].

    serving_default   text: string [B], with [MASK] in it
                      -> token string [B, M, K] and probability float32 [B, M, K]: for each [MASK] of a
                         text, in order, the K best tokens, the best first; padded with "" and 0 after
                         the last [MASK] of a row
    tokens            input_ids, input_mask, segment_ids: int32 [B, S], masked_lm_positions: int32 [B, M]
                      -> token, probability, and token_id int32 [B, M, K]

A literal [PAD], [UNK], [CLS], [SEP] or [MASK] in the text is that token. A text is truncated to
`max_seq_length`. A [MASK] beyond that is not filled.

Shapes: B batch, S sequence, M most [MASK] of a text, K best tokens, V vocabulary.
"""

from __future__ import annotations

import tensorflow as tf

from bert_tf.prediction.model_folder import TrainedModel
from bert_tf.serving.served import TEXT, Outputs, Served, texts_spec
from bert_tf.vocabulary import SPECIAL_TOKENS

# The tokenizer drops both. The first marks the parts of a text. The second replaces it in the text:
# without any character there, "[MA\0SK]" would become [MASK].
_BREAK, _DROPPED = "\0", "\ufffd"


class ServedMaskFiller(Served):
    """Texts with [MASK] -> tokens.

    Args:
        top_k: K; at most the size of the vocabulary is used.

    Raises:
        ValueError: the vocabulary has no [MASK].
    """

    def __init__(
        self,
        trained: TrainedModel,
        max_seq_length: int,
        top_k: int = 5,
        with_text: bool = True,
    ):
        super().__init__(trained, max_seq_length, with_text)
        vocab = trained.tokenizer.vocab
        if "[MASK]" not in vocab:
            raise ValueError(
                "The vocabulary has no [MASK], so nothing can be filled. Give the vocab_file of the "
                "model's training, or use head=encoder."
            )
        self.top_k = min(top_k, len(vocab))
        self._special = {token: vocab[token] for token in SPECIAL_TOKENS if token in vocab}
        self._pieces = trained.tokenizer.convert_ids_to_tokens(range(len(vocab)))

    def ids_specs(self) -> dict[str, tf.TensorSpec]:
        name = "masked_lm_positions"
        return {**super().ids_specs(), name: tf.TensorSpec([None, None], tf.int32, name)}

    def tokens(  # type: ignore[override]  # `ids_specs` names the fourth
        self, input_ids, input_mask, segment_ids, masked_lm_positions
    ) -> Outputs:
        logits = self.call_model(
            input_ids=input_ids,
            input_mask=input_mask,
            segment_ids=segment_ids,
            masked_lm_positions=masked_lm_positions,
        )["masked_lm_logits"]
        # A table of embeddings may be longer than the vocabulary. The extra rows are not tokens.
        probabilities = tf.nn.softmax(logits[:, :, : len(self.vocabulary)])
        best, ids = tf.math.top_k(probabilities, self.top_k)
        return {"token": tf.gather(self._pieces, ids), "probability": best, "token_id": ids}

    def hugging_face(self, input_ids, input_mask, segment_ids) -> Outputs:
        shape = tf.shape(input_ids)
        outputs = self.call_model(
            input_ids=input_ids,
            input_mask=input_mask,
            segment_ids=segment_ids,
            masked_lm_positions=tf.broadcast_to(tf.range(shape[1]), shape),
        )
        return {"logits": outputs["masked_lm_logits"]}

    def fill(self, text) -> Outputs:
        packed = self.pack(self._encode(text), None)
        is_mask = tf.equal(packed["input_ids"], self._special["[MASK]"])
        positions = tf.RaggedTensor.from_row_lengths(
            tf.cast(tf.where(is_mask)[:, 1], tf.int32),
            tf.reduce_sum(tf.cast(is_mask, tf.int64), axis=1),
            validate=False,
        )
        outputs = self.tokens(**packed, masked_lm_positions=positions.to_tensor())
        is_filled = tf.ones_like(positions).to_tensor()[:, :, tf.newaxis] > 0
        return {
            "token": tf.where(is_filled, outputs["token"], ""),
            "probability": tf.where(is_filled, outputs["probability"], 0.0),
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

    def requests(self, texts):
        return {TEXT: [{"text": [f"[MASK] {text}"]} for text in texts]}
