"""Predictions of a masked language model: tokens for [MASK].

Shapes: B batch, S sequence, P masks of a text, V vocabulary, K best tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from bert_tf.modeling.models import BertForPreTraining
from bert_tf.packing import PackedSequence
from bert_tf.prediction.loading import TrainedModel, outputs_of_export
from bert_tf.prediction.text_model import Network, TextModel, check_texts
from bert_tf.tokenization import FullTokenizer

_NUM_BEST = "num_best"  # input of the compiled function, K in each row: threads may differ in it
_TOP_K = 5
_MAX_LOGITS = 512  # rows of [V] per batch


_MaskedTokens = tuple[PackedSequence, list[int]]  # a text, and the positions of its masks


class MaskedLMPredictor(TextModel):
    """A pre-trained model that predicts tokens for [MASK].

    Answers: {"masks": for each [MASK] a list of {"token", "probability"}, the best first}.

    Args:
        top_k: tokens per [MASK] in `answer`. Default: 5, or all that an export has.
    """

    columns = ("masks",)

    def __init__(self, trained: TrainedModel, batch_size: int = 32, top_k: int | None = None):
        super().__init__(trained, batch_size)
        tokens = sorted(self.tokenizer.vocab, key=self.tokenizer.vocab.__getitem__)
        self.tokenizer = FullTokenizer(  # keeps a [MASK] in a text whole
            tokens, self.tokenizer.do_lower_case, preserve_special_tokens=True
        )
        self.top_k = top_k

    def network(self, trained: TrainedModel) -> Network:
        """Return inputs, positions and `_NUM_BEST` -> `token_id` and `probability`, [B, P, K]."""
        if "token_id" in outputs_of_export(trained):
            return trained.network
        model, num_tokens = _masked_lm(trained), len(trained.tokenizer.vocab)

        def most_probable(columns):
            inputs = dict(columns)
            num_best = inputs.pop(_NUM_BEST)[0, 0]
            logits = model(inputs)["masked_lm_logits"]
            # A table of embeddings may be longer than the vocabulary. The extra rows are not tokens.
            probabilities = tf.nn.softmax(logits[..., :num_tokens])
            values, tokens = tf.math.top_k(probabilities, tf.minimum(num_best, num_tokens))
            return {"probability": values, "token_id": tokens}

        return most_probable

    def prepare(self, item: str) -> _MaskedTokens:
        check_texts(item)
        ids = self.tokenizer.encode(item)
        (mask_id,) = self.tokenizer.convert_tokens_to_ids(["[MASK]"])
        room = self.max_seq_length - 2
        positions = [index for index, token in enumerate(ids[:room], start=1) if token == mask_id]
        if len(positions) < max(1, ids.count(mask_id)):
            raise ValueError(
                f"{item[:60]!r} needs a [MASK], and each within {self.max_seq_length} tokens."
            )
        return self.pack(ids), positions

    def answer(
        self, prepared: Sequence[_MaskedTokens], top_k: int | None = None
    ) -> list[dict[str, Any]]:
        top_k = top_k or self.top_k
        max_masks = max((len(positions) for _, positions in prepared), default=1)
        outputs = self.run(
            [sequence for sequence, _ in prepared],
            {
                "masked_lm_positions": [positions for _, positions in prepared],
                _NUM_BEST: [[top_k or _TOP_K]] * len(prepared),
            },
            batch_size=max(1, min(self.run.batch_size, _MAX_LOGITS // max_masks)),
        )

        def best(token_ids, probabilities):
            tokens = self.tokenizer.convert_ids_to_tokens(token_ids[:top_k].tolist())
            pairs = zip(tokens, probabilities[:top_k].tolist(), strict=True)
            return [{"token": token, "probability": value} for token, value in pairs]

        return [
            {
                "masks": [
                    best(row["token_id"][i], row["probability"][i]) for i in range(len(positions))
                ]
            }
            for (_, positions), row in zip(prepared, outputs, strict=True)
        ]

    def short(self, answer: Mapping[str, Any]) -> str:
        return " ".join(candidates[0]["token"] for candidates in answer["masks"])


def _masked_lm(trained: TrainedModel) -> BertForPreTraining:
    if not isinstance(trained.model, BertForPreTraining):
        lacks = trained.unused_head or "It has no masked-LM head (cls/predictions)."
        raise ValueError(f"{trained.source} cannot fill a [MASK]. {lacks}")
    return trained.model
