"""Predictions of a masked language model: tokens for [MASK], and the likelihood of a text.

Shapes: B batch, S sequence, P masks of a text, V vocabulary, K best tokens.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.data.packing import PackedSequence, pack
from bert_tf.model_folder import TrainedModel, load_model, with_special_tokens
from bert_tf.modeling.models import BertForPreTraining
from bert_tf.prediction.text_model import (
    SequenceRunner,
    TextModel,
    beginning,
    checked_text,
    padded,
    trimmed,
)
from bert_tf.training.losses import cross_entropy

NUM_BEST = "num_best"  # input of the compiled function, K in each row: threads may differ in it
_MOST_LOGITS = 512  # rows of [V] per batch


class Candidate(NamedTuple):
    """A token predicted for a [MASK]."""

    token: str
    probability: float


class _MaskedTokens(NamedTuple):
    """A text with its masks."""

    sequence: PackedSequence
    positions: list[int]


class MaskFiller(TextModel):
    """A pre-trained model that predicts tokens for [MASK].

        MaskFiller("pretrained").predict("The dog [MASK] at the cat.")

    Args:
        model: the --output_dir of run_pretraining, any checkpoint with a masked-LM head, or the loaded
            folder.
        top_k: tokens per [MASK] in `answer`.
        batch_size: texts per batch.

    Raises:
        ValueError: the model is not pre-trained, or its vocabulary has no [MASK].
    """

    columns = ("masks",)

    def __init__(self, model: str | TrainedModel, top_k: int = 5, batch_size: int = 32):
        trained = _pretrained(model)
        self._tokenizer = with_special_tokens(trained.tokenizer)
        self._max_seq_length = trained.max_seq_length
        self.top_k = top_k
        num_tokens = len(self._tokenizer.vocab)

        def most_probable(columns):
            inputs = dict(columns)
            num_best = inputs.pop(NUM_BEST)[0, 0]
            logits = trained.model(inputs, training=False)["masked_lm_logits"]
            # A table of embeddings may be longer than the vocabulary. The extra rows are not tokens.
            probabilities = tf.nn.softmax(logits[..., :num_tokens])
            values, tokens = tf.math.top_k(probabilities, tf.minimum(num_best, num_tokens))
            return {"probabilities": values, "tokens": tokens}  # [B, P, K]

        self._run = SequenceRunner(most_probable, self._max_seq_length, batch_size)

    def prepare(self, item: str) -> _MaskedTokens:
        text = checked_text(item)
        cls_id, sep_id, mask_id = self._tokenizer.convert_tokens_to_ids(
            ["[CLS]", "[SEP]", "[MASK]"]
        )
        ids = self._tokenizer.encode(text)
        packed = pack(
            ids,
            max_seq_length=min(self._max_seq_length, len(ids) + 2),
            cls_id=cls_id,
            sep_id=sep_id,
        )
        positions = [index for index, token in enumerate(packed.input_ids) if token == mask_id]
        if len(positions) < max(1, ids.count(mask_id)):
            raise ValueError(
                f"{beginning(text)} needs a [MASK], and each within {self._max_seq_length} tokens."
            )
        self.num_cut += len(ids) + 2 > self._max_seq_length
        return _MaskedTokens(packed, positions)

    def candidates(
        self, prepared: Sequence[_MaskedTokens], top_k: int
    ) -> list[list[list[Candidate]]]:
        """Return the best tokens for each mask of each text, at most `top_k`, the best first."""
        most = max((len(row.positions) for row in prepared), default=1)
        outputs = self._run(
            [row.sequence for row in prepared],
            {
                "masked_lm_positions": [row.positions for row in prepared],
                NUM_BEST: [[top_k]] * len(prepared),
            },
            batch_size=max(1, min(self._run.batch_size, _MOST_LOGITS // most)),
        )
        return [
            [
                [
                    Candidate(token, float(probability))
                    for token, probability in zip(
                        self._tokenizer.convert_ids_to_tokens(tokens), probabilities, strict=True
                    )
                ]
                for tokens, probabilities, _ in zip(
                    found["tokens"].tolist(), found["probabilities"], row.positions, strict=False
                )
            ]
            for row, found in zip(prepared, outputs, strict=True)
        ]

    def answer(self, prepared: Sequence[_MaskedTokens]) -> list[dict[str, Any]]:
        """Return {"masks": for each [MASK] a list of {"token", "probability"}, the best first}."""
        return [
            {"masks": [[c._asdict() for c in candidates] for candidates in masks]}
            for masks in self.candidates(prepared, self.top_k)
        ]

    def predict(self, text: str, top_k: int = 5) -> list[list[Candidate]]:
        """Return the `top_k` best tokens (at most the vocabulary) for each [MASK], the best first.

        Raises:
            TypeError: `text` is not a text.
            ValueError: the text contains no [MASK], or one beyond the longest input.
        """
        (item,) = self.inputs([text])
        return self.candidates([self.prepare(item)], top_k)[0]

    def short(self, answer: Mapping[str, Any]) -> str:
        return " ".join(candidates[0]["token"] for candidates in answer["masks"])


class PseudoPerplexity(TextModel):
    """Pseudo-perplexity of texts under a masked language model.

    Each token is masked in turn, and PLL(W) = sum_t log P(w_t | W without w_t) in nats. The
    pseudo-perplexity of a text, or of a corpus, is exp(-sum of PLL / number of tokens). Texts longer
    than the model's input are scored in parts.

    Args:
        model: see `MaskFiller`.
        batch_size: masked copies per batch.

    Source: Salazar et al. 2020, Masked Language Model Scoring, equations 1 and 3.
    """

    columns = ("pseudo_perplexity", "pseudo_log_likelihood", "num_tokens")

    def __init__(self, model: str | TrainedModel, batch_size: int = 32):
        trained = _pretrained(model)
        self._tokenizer = trained.tokenizer
        self._max_seq_length = trained.max_seq_length
        self._batch_size = batch_size
        num_tokens = len(self._tokenizer.vocab)

        def log_likelihood(columns):
            inputs = dict(columns)
            targets = inputs.pop("targets")
            logits = trained.model(inputs, training=False)["masked_lm_logits"][..., :num_tokens]
            return {"log_likelihood": -cross_entropy(logits, targets)[:, 0]}  # [B]

        self._run = SequenceRunner(log_likelihood, self._max_seq_length, batch_size)

    def prepare(self, item: str) -> list[PackedSequence]:
        """Split a text into parts. All tokens except the first and last of each are scored."""
        ids = self._tokenizer.encode(checked_text(item))
        if not ids:
            raise ValueError(
                f"There is no token in {beginning(item)}, so there is nothing to score."
            )
        cls_id, sep_id = self._tokenizer.convert_tokens_to_ids(["[CLS]", "[SEP]"])
        room = self._max_seq_length - 2
        length = self._max_seq_length
        return [
            trimmed(
                pack(ids[first : first + room], max_seq_length=length, cls_id=cls_id, sep_id=sep_id)
            )
            for first in range(0, len(ids), room)
        ]

    def answer(self, prepared: Sequence[list[PackedSequence]]) -> list[dict[str, Any]]:
        parts = [(index, part) for index, parts in enumerate(prepared) for part in parts]
        parts.sort(key=lambda part: len(part[1].input_ids))
        totals = np.zeros(len(prepared), np.float64)
        masked = self._masked(parts)
        while batch := list(islice(masked, self._batch_size)):
            longest = max(len(ids) for _, ids, _ in batch)
            columns = {"input_ids": [ids for _, ids, _ in batch]}
            columns |= {"input_mask": [[1] * len(ids) for _, ids, _ in batch]}
            inputs = padded(columns, longest)
            inputs["masked_lm_positions"] = np.array([[at] for _, _, (at, _) in batch], np.int32)
            inputs["targets"] = np.array([[token] for _, _, (_, token) in batch], np.int32)
            for (index, _, _), row in zip(batch, self._run.rows(inputs), strict=True):
                totals[index] += row["log_likelihood"]
        counts = [sum(len(part.input_ids) - 2 for part in text) for text in prepared]
        return [
            {
                "pseudo_perplexity": _perplexity(total, count),
                "pseudo_log_likelihood": float(total),
                "num_tokens": count,
            }
            for total, count in zip(totals, counts, strict=True)
        ]

    def _masked(
        self, parts: Iterable[tuple[int, PackedSequence]]
    ) -> Iterator[tuple[int, list[int], tuple[int, int]]]:
        """Yield copies of the parts with one token masked: text, ids, (position, original token)."""
        (mask_id,) = self._tokenizer.convert_tokens_to_ids(["[MASK]"])
        for index, part in parts:
            for position in range(1, len(part.input_ids) - 1):
                ids = list(part.input_ids)
                token, ids[position] = ids[position], mask_id
                yield index, ids, (position, token)

    def predict(self, texts: Sequence[str]) -> list[dict[str, Any]]:
        """Return {"pseudo_perplexity", "pseudo_log_likelihood" (nats), "num_tokens"} for each text.

        Raises:
            ValueError: a text has no tokens.
        """
        return self.answers(texts)

    def short(self, answer: Mapping[str, Any]) -> str:
        return f"{answer['pseudo_perplexity']:.6g}"


def corpus_pseudo_perplexity(answers: Iterable[Mapping[str, Any]]) -> float:
    """Return the pseudo-perplexity of all texts together; every token has the same weight.

    >>> two = [{"pseudo_log_likelihood": -3.0, "num_tokens": 1},
    ...        {"pseudo_log_likelihood": -1.0, "num_tokens": 3}]
    >>> round(corpus_pseudo_perplexity(two), 6) == round(math.e, 6)
    True
    """
    total, count = 0.0, 0
    for answer in answers:
        total += answer["pseudo_log_likelihood"]
        count += answer["num_tokens"]
    return _perplexity(total, count)


def _perplexity(log_likelihood: float, num_tokens: int) -> float:
    """Return the perplexity; infinite if it exceeds the range of float."""
    try:
        return math.exp(-log_likelihood / num_tokens) if num_tokens else math.nan
    except OverflowError:
        return math.inf


def _pretrained(model: str | TrainedModel) -> TrainedModel:
    trained = load_model(model) if isinstance(model, str) else model
    lacks = ""
    if not isinstance(trained.model, BertForPreTraining):
        lacks = trained.unused_head or "It has no masked-LM head (cls/predictions)."
    elif "[MASK]" not in trained.tokenizer.vocab:
        lacks = "Its vocabulary has no [MASK]."
    if lacks:
        raise ValueError(f"{trained.source} cannot fill a [MASK]. {lacks}")
    return trained
