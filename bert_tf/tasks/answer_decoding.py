"""Answers from the logits of a question's windows: n-best list, text, characters, odds of no answer.

The score of an answer is the logit of its first token plus that of its last. Both must be among the
`n_best_size` best of their window; the first must have its max context there.

The text comes from the WordPieces as in the reference. Pieces and the passage's words are aligned by
character, because a word may contain more than the answer ("steve smith" in "Steve Smith's").

Shapes: W windows of the question, S sequence.

Source: google-research/bert, run_squad.py, `write_predictions`, `get_final_text`.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from bert_tf.data.windows import TokenSpan, Window
from bert_tf.tokenization import BasicTokenizer, FullTokenizer

logger = logging.getLogger(__name__)

# Conversion between answers and word pieces, for training and prediction: by whole words, as in the
# reference, or by the characters of each piece.
ANSWER_SPANS = ("words", "characters")

# `null_odds` of a question without candidates. It exceeds every threshold.
CERTAINLY_NULL = 1e6


@dataclass(frozen=True)
class AnswerSettings:
    n_best_size: int = 20  # answers to list, and tokens of each window that may be first or last
    max_answer_length: int = 30  # tokens
    version_2_with_negative: bool = False  # whether a question may have no answer
    null_score_diff_threshold: float = 0.0  # the answer is empty if `null_odds` is greater
    answer_spans: str = "words"  # one of `ANSWER_SPANS`

    def __post_init__(self) -> None:
        for name in ("n_best_size", "max_answer_length"):
            if getattr(self, name) < 1:
                raise ValueError(f"`{name}` is {getattr(self, name)}, but must be 1 or more.")


class Candidate(NamedTuple):
    """A possible answer; the text "" means no answer."""

    text: str
    start_logit: float
    end_logit: float
    probability: float
    window: int | None = None
    positions: tuple[int, int] | None = None

    @property
    def score(self) -> float:
        return self.start_logit + self.end_logit

    def as_json(self) -> dict[str, Any]:
        """Return an entry of nbest_predictions.json."""
        return {
            "text": self.text,
            "probability": self.probability,
            "start_logit": self.start_logit,
            "end_logit": self.end_logit,
        }


@dataclass(frozen=True)
class Prediction:
    text: str  # "" for no answer
    nbest: tuple[Candidate, ...]  # best first, each text once
    best_answer: str  # the best text except ""; "" if there are no others
    null_odds: float | None = None  # score of "" minus that of `best_answer`; None in SQuAD 1.1

    @property
    def probability(self) -> float:
        """Probability of `text` among the n-best; 0 if it is not there."""
        return next((c.probability for c in self.nbest if c.text == self.text), 0.0)


def predict_answer(
    windows: Sequence[Window],
    start_logits: Sequence[np.ndarray],
    end_logits: Sequence[np.ndarray],
    tokenizer: FullTokenizer,
    settings: AnswerSettings,
) -> Prediction:
    """Return the answer to one question, from W arrays of start and end logits, float32 [S]."""
    spans = _select_spans(windows, start_logits, end_logits, settings)
    null = None
    if settings.version_2_with_negative:
        # The logits of the [CLS] that scores no answer lowest.
        pairs = [(float(s[0]), float(e[0])) for s, e in zip(start_logits, end_logits, strict=True)]
        null = Candidate("", *min(pairs, key=sum, default=(0.0, 0.0)), 0.0)
    nbest = _select_distinct(spans, null, windows, tokenizer, settings)
    best = next((candidate for candidate in nbest if candidate.text), None)
    if not nbest:  # the reference's text without candidates
        nbest = [Candidate("empty", 0.0, 0.0, 1.0)]
    ranked = _normalize(nbest)
    if null is None:
        return Prediction(ranked[0].text, ranked, ranked[0].text)
    # The reference fails if "no answer" is the only candidate.
    null_odds = CERTAINLY_NULL
    if best is not None:  # the reference's order of subtraction
        null_odds = null.score - best.start_logit - best.end_logit
    best_answer = best.text if best else ""
    is_null = null_odds > settings.null_score_diff_threshold
    return Prediction("" if is_null else best_answer, ranked, best_answer, null_odds)


class _Spans(NamedTuple):
    """Possible answers, in the reference's order; arrays of one length."""

    window: np.ndarray
    first: np.ndarray  # position of the first token
    last: np.ndarray
    start_logit: np.ndarray  # float64
    end_logit: np.ndarray


def _select_spans(
    windows: Sequence[Window],
    start_logits: Sequence[np.ndarray],
    end_logits: Sequence[np.ndarray],
    settings: AnswerSettings,
) -> _Spans:
    parts = []
    for number, (window, starts, ends) in enumerate(
        zip(windows, start_logits, end_logits, strict=True)
    ):
        begin, stop = window.offset, window.offset + window.span.length
        first = np.argsort(-starts, kind="stable")[: settings.n_best_size]
        last = np.argsort(-ends, kind="stable")[: settings.n_best_size]
        first = first[(first >= begin) & (first < stop)]
        first = first[window.is_max_context[first - begin]]
        last = last[(last >= begin) & (last < stop)]
        length = last[None, :] - first[:, None] + 1
        rows, columns = np.nonzero((length >= 1) & (length <= settings.max_answer_length))
        first, last = first[rows], last[columns]
        parts.append((np.full(len(first), number), first, last, starts[first], ends[last]))
    if not parts:
        return _Spans(*(np.zeros(0, int) for _ in range(5)))
    numbers, first, last, start, end = map(np.concatenate, zip(*parts, strict=True))
    return _Spans(numbers, first, last, start.astype(np.float64), end.astype(np.float64))


def _select_distinct(
    spans: _Spans,
    null: Candidate | None,
    windows: Sequence[Window],
    tokenizer: FullTokenizer,
    settings: AnswerSettings,
) -> list[Candidate]:
    """Return the best candidates with different texts, "no answer" among them or at the end."""
    nbest: list[Candidate] = []
    seen: set[str] = set()
    for candidate in _rank(spans, null):
        if len(nbest) >= settings.n_best_size:
            break
        if candidate.window is None or candidate.positions is None:
            seen.add("")
        else:
            window = windows[candidate.window]
            if settings.answer_spans == "characters":
                span = find_characters(candidate, windows, tokenizer)
                text = window.passage.passage.text[slice(*span)] if span else ""
            else:
                text = _reference_text(window, candidate.positions, tokenizer)
            if text in seen:
                continue
            seen.add(text)
            candidate = candidate._replace(text=text)
        nbest.append(candidate)
    if null is not None and "" not in seen:
        nbest.append(null)
    return nbest


def _rank(spans: _Spans, null: Candidate | None) -> Iterator[Candidate]:
    """Yield all candidates, best first. Ties keep their order, with `null` last."""
    scores = spans.start_logit + spans.end_logit
    for index in np.argsort(-scores, kind="stable"):
        if null is not None and null.score > scores[index]:
            yield null
            null = None
        window, first, last, start, end = (array[index].item() for array in spans)
        yield Candidate("", start, end, 0.0, window, (first, last))
    if null is not None:
        yield null


def _reference_text(window: Window, positions: tuple[int, int], tokenizer: FullTokenizer) -> str:
    first, last = map(window.passage_token, positions)
    passage = window.passage
    pieces = tokenizer.convert_ids_to_tokens(passage.ids[first : last + 1])
    words = passage.passage.words[passage.word_of[first] : passage.word_of[last] + 1]
    return get_final_text(join_pieces(pieces), " ".join(words), tokenizer.basic_tokenizer)


def _normalize(nbest: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """Apply a softmax to the scores. Sum in the reference's order, for equality to the last digit."""
    best = max(candidate.score for candidate in nbest)
    weights = [math.exp(candidate.score - best) for candidate in nbest]
    total = 0.0
    for weight in weights:
        total += weight
    return tuple(c._replace(probability=w / total) for c, w in zip(nbest, weights, strict=True))


def find_characters(
    candidate: Candidate, windows: Sequence[Window], tokenizer: FullTokenizer
) -> tuple[int, int] | None:
    """Return (start, end) of an answer in the passage, `text[start:end]`; None for no answer.

    The tokens give the positions. They are right even if `get_final_text` returned all the words.
    """
    if candidate.window is None or candidate.positions is None:
        return None
    window = windows[candidate.window]
    span = TokenSpan(*map(window.passage_token, candidate.positions))
    return window.passage.characters(span, tokenizer)


def join_pieces(pieces: Sequence[str]) -> str:
    """Return word pieces as text.

    >>> join_pieces(["un", "##aff", "##able", "!"])
    'unaffable !'
    """
    text = " ".join(pieces).replace(" ##", "").replace("##", "")
    return " ".join(text.split())


def get_final_text(predicted: str, original: str, tokenizer: BasicTokenizer) -> str:
    """Return the part of `original` that matches `predicted`, or all of it if they do not align."""
    normalized = " ".join(tokenizer.tokenize(original))
    start = normalized.find(predicted)
    if start == -1:
        logger.debug("Unable to find text: %r in %r", predicted, original)
        return original
    end = start + len(predicted) - 1
    if predicted.startswith(" ") or predicted.endswith(" ") or not predicted:
        logger.debug("No character of %r is %r", original, predicted)
        return original
    positions = [index for index, char in enumerate(original) if char != " "]
    if len(positions) != len(normalized) - normalized.count(" "):
        logger.debug("Length not equal after stripping spaces: %r vs %r", original, normalized)
        return original
    first = start - normalized.count(" ", 0, start)
    last = end - normalized.count(" ", 0, end)
    return original[positions[first] : positions[last] + 1]
