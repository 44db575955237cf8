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

from bert_tf.modeling.models import BertForPreTraining
from bert_tf.packing import PackedSequence
from bert_tf.prediction.model_folder import TrainedModel
from bert_tf.prediction.runtimes import outputs_of_export
from bert_tf.prediction.text_model import Network, TextModel, check_text, pad_rows
from bert_tf.tokenization import FullTokenizer
from bert_tf.training.losses import cross_entropy

_NUM_BEST = "num_best"  # input of the compiled function, K in each row: threads may differ in it
_TOP_K = 5
_MAX_LOGITS = 512  # rows of [V] per batch


class Candidate(NamedTuple):
    """A token predicted for a [MASK]."""

    token: str
    probability: float


class _MaskedTokens(NamedTuple):
    """A text with its masks."""

    sequence: PackedSequence
    positions: list[int]


class MaskedLMPredictor(TextModel):
    """A pre-trained model that predicts tokens for [MASK].

    Answers: {"masks": for each [MASK] a list of {"token", "probability"}, the best first}.

    Args:
        top_k: tokens per [MASK] in `answer`. Default: 5, or all that an export has.

    Raises:
        ValueError: the model is not pre-trained, or its vocabulary has no [MASK].
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
        check_text(item)
        ids = self.tokenizer.encode(item)
        (mask_id,) = self.tokenizer.convert_tokens_to_ids(["[MASK]"])
        room = self.max_seq_length - 2
        positions = [index for index, token in enumerate(ids[:room], start=1) if token == mask_id]
        if len(positions) < max(1, ids.count(mask_id)):
            raise ValueError(
                f"{item[:60]!r} needs a [MASK], and each within {self.max_seq_length} tokens."
            )
        return _MaskedTokens(self.pack(ids), positions)

    def _candidates(
        self, prepared: Sequence[_MaskedTokens], top_k: int | None
    ) -> list[list[list[Candidate]]]:
        """Return the best tokens for each mask of each text, at most `top_k`, the best first."""
        max_masks = max((len(row.positions) for row in prepared), default=1)
        outputs = self.run(
            [row.sequence for row in prepared],
            {
                "masked_lm_positions": [row.positions for row in prepared],
                _NUM_BEST: [[top_k or _TOP_K]] * len(prepared),
            },
            batch_size=max(1, min(self.run.batch_size, _MAX_LOGITS // max_masks)),
        )

        def best(token_ids, probabilities):
            tokens = self.tokenizer.convert_ids_to_tokens(token_ids[:top_k].tolist())
            return list(map(Candidate, tokens, map(float, probabilities[:top_k])))

        return [
            [best(row["token_id"][i], row["probability"][i]) for i in range(len(text.positions))]
            for text, row in zip(prepared, outputs, strict=True)
        ]

    def answer(self, prepared: Sequence[_MaskedTokens]) -> list[dict[str, Any]]:
        return [
            {"masks": [[c._asdict() for c in candidates] for candidates in masks]}
            for masks in self._candidates(prepared, self.top_k)
        ]

    def fill(self, text: str, top_k: int | None = None) -> list[list[Candidate]]:
        """Return the `top_k` best tokens (at most the vocabulary) for each [MASK], the best first."""
        (item,) = self.inputs([text])
        return self._candidates([self.prepare(item)], top_k)[0]

    def short(self, answer: Mapping[str, Any]) -> str:
        return " ".join(candidates[0]["token"] for candidates in answer["masks"])


class PseudoPerplexityPredictor(TextModel):
    """Pseudo-perplexity of texts under a masked language model: one without an export.

    Answers: {"pseudo_perplexity", "pseudo_log_likelihood" (nats), "num_tokens"}.

    Each token is masked in turn, and PLL(W) = sum_t log P(w_t | W without w_t) in nats. The
    pseudo-perplexity of a text, or of a corpus, is exp(-sum of PLL / number of tokens). Texts longer
    than the model's input are scored in parts.

    Source: Salazar et al. 2020, Masked Language Model Scoring, equations 1 and 3.
    """

    columns = ("pseudo_perplexity", "pseudo_log_likelihood", "num_tokens")

    def network(self, trained: TrainedModel) -> Network:
        model, num_tokens = _masked_lm(trained), len(trained.tokenizer.vocab)

        def log_likelihood(columns):
            inputs = dict(columns)
            targets = inputs.pop("targets")
            logits = model(inputs)["masked_lm_logits"][..., :num_tokens]
            return {"log_likelihood": -cross_entropy(logits, targets)[:, 0]}  # [B]

        return log_likelihood

    def prepare(self, item: str) -> list[PackedSequence]:
        """Split a text into parts. All tokens except the first and last of each are scored."""
        check_text(item)
        ids = self.tokenizer.encode(item)
        if not ids:
            raise ValueError(f"There is no token in {item[:60]!r}, so there is nothing to score.")
        room = self.max_seq_length - 2
        return [self.pack(ids[first : first + room]) for first in range(0, len(ids), room)]

    def answer(self, prepared: Sequence[list[PackedSequence]]) -> list[dict[str, Any]]:
        parts = [(index, part) for index, parts in enumerate(prepared) for part in parts]
        parts.sort(key=lambda part: len(part[1].input_ids))
        totals = np.zeros(len(prepared), np.float64)
        copies = self._masked(parts)
        while batch := list(islice(copies, self.run.batch_size)):
            texts, ids, positions, targets = zip(*batch, strict=True)
            columns = {"input_ids": ids, "input_mask": [[1] * len(row) for row in ids]}
            inputs = pad_rows(columns, max(map(len, ids)))
            inputs |= pad_rows({"masked_lm_positions": positions, "targets": targets}, 1)
            for text, row in zip(texts, self.run.rows(inputs), strict=True):
                totals[text] += row["log_likelihood"]
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
    ) -> Iterator[tuple[int, list[int], list[int], list[int]]]:
        """Yield copies of the parts with a masked token: text, ids, [position], [original token]."""
        (mask_id,) = self.tokenizer.convert_tokens_to_ids(["[MASK]"])
        for index, part in parts:
            for position in range(1, len(part.input_ids) - 1):
                ids = list(part.input_ids)
                token, ids[position] = ids[position], mask_id
                yield index, ids, [position], [token]

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


def _masked_lm(trained: TrainedModel) -> BertForPreTraining:
    lacks = ""
    if not isinstance(trained.model, BertForPreTraining):
        lacks = trained.unused_head or "It has no masked-LM head (cls/predictions)."
    elif "[MASK]" not in trained.tokenizer.vocab:
        lacks = "Its vocabulary has no [MASK]."
    if lacks:
        raise ValueError(f"{trained.source} cannot fill a [MASK]. {lacks}")
    return trained.model
