"""From the logits of a question's windows to its answers: n-best, text, characters, odds of none.

An answer is worth the logit of its first token and that of its last. Both must be among the
`n_best_size` best of their window; the first must have its max context there.

Shapes: W windows of the question, S sequence.

Source: google-research/bert, run_squad.py, `write_predictions`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from bert_tf.data.span_windows import TokenSpan, Window
from bert_tf.tasks.answer_text import get_final_text, join_pieces
from bert_tf.tokenization import FullTokenizer

# How an answer becomes word pieces to learn, and predicted pieces a text: through whole words, as in the
# reference, or by the characters of each piece.
ANSWER_SPANS = ("words", "characters")

# `null_odds` of a question that has no answer to choose from, so that no threshold asks for one.
CERTAINLY_NULL = 1e6


@dataclass(frozen=True)
class AnswerSettings:
    """How answers are chosen.

    Args:
        n_best_size: answers to name, and tokens of each window that may be their first or last.
        max_answer_length: tokens.
        version_2_with_negative: whether there may be no answer.
        null_score_diff_threshold: no answer is given where its odds are above this.
        answer_spans: one of `ANSWER_SPANS`.
    """

    n_best_size: int = 20
    max_answer_length: int = 30
    version_2_with_negative: bool = False
    null_score_diff_threshold: float = 0.0
    answer_spans: str = "words"


class Candidate(NamedTuple):
    """A possible answer; with the text "" none.

    `window` and `positions` say where it is in the model's input: the number of the window among
    those of the question, first and last position in it. They are None where there is no such place.
    """

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
        """An entry of nbest_predictions.json."""
        return {
            "text": self.text,
            "probability": self.probability,
            "start_logit": self.start_logit,
            "end_logit": self.end_logit,
        }


@dataclass(frozen=True)
class Prediction:
    """What is answered to a question.

    Args:
        text: the answer; "" is none.
        nbest: from the best down, each text once.
        best_answer: the best that is not ""; "" where there is none.
        null_odds: by how much no answer beats the best one; None in SQuAD 1.1.
    """

    text: str
    nbest: tuple[Candidate, ...]
    best_answer: str
    null_odds: float | None = None


def predict_answer(
    windows: Sequence[Window],
    start_logits: Sequence[np.ndarray],
    end_logits: Sequence[np.ndarray],
    tokenizer: FullTokenizer,
    settings: AnswerSettings,
    report: Callable[[str], None] | None = None,
) -> Prediction:
    """The answer to one question.

    Args:
        windows: of the question, in their order; none for an empty passage.
        start_logits, end_logits: W arrays, float32 [S].
        report: of `get_final_text`.
    """
    spans = _best_spans(windows, start_logits, end_logits, settings)
    null = None
    if settings.version_2_with_negative:
        null = _null_candidate(start_logits, end_logits)
    nbest = _with_texts(spans, null, windows, tokenizer, settings, report)
    best = next((candidate for candidate in nbest if candidate.text), None)
    if not nbest:  # the reference's word where nothing can be an answer
        nbest = [Candidate("empty", 0.0, 0.0, 1.0)]
    ranked = _with_probabilities(nbest)
    if null is None:
        return Prediction(ranked[0].text, ranked, ranked[0].text)
    # The reference fails where "no answer" is all there is to choose from.
    null_odds = CERTAINLY_NULL if best is None else _null_odds(null, best)
    best_answer = best.text if best else ""
    is_null = null_odds > settings.null_score_diff_threshold
    return Prediction("" if is_null else best_answer, ranked, best_answer, null_odds)


def _null_odds(null: Candidate, best: Candidate) -> float:
    return null.score - best.start_logit - best.end_logit  # the reference's order of subtraction


def _null_candidate(
    start_logits: Sequence[np.ndarray], end_logits: Sequence[np.ndarray]
) -> Candidate:
    """No answer: [CLS] of the window that thinks least of it."""
    pairs = [
        (float(start[0]), float(end[0]))
        for start, end in zip(start_logits, end_logits, strict=True)
    ]
    start, end = min(pairs, key=sum, default=(0.0, 0.0))
    return Candidate("", start, end, 0.0)


class _Spans(NamedTuple):
    """Possible answers, in the reference's order; arrays of one length."""

    window: np.ndarray
    first: np.ndarray  # position of the first token
    last: np.ndarray
    start_logit: np.ndarray  # float64
    end_logit: np.ndarray


def _best_spans(
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
        of = np.full(len(first), number)
        parts.append((of, first, last, starts[first], ends[last]))
    if not parts:
        return _Spans(*(np.zeros(0, int) for _ in range(5)))
    of, first, last, start, end = map(np.concatenate, zip(*parts, strict=True))
    return _Spans(of, first, last, start.astype(np.float64), end.astype(np.float64))


def _with_texts(
    spans: _Spans,
    null: Candidate | None,
    windows: Sequence[Window],
    tokenizer: FullTokenizer,
    settings: AnswerSettings,
    report: Callable[[str], None] | None,
) -> list[Candidate]:
    """The best spans whose texts differ, and no answer among them (or, where it is not, behind)."""
    nbest: list[Candidate] = []
    seen: set[str] = set()
    for candidate in _by_score(spans, null):
        if len(nbest) >= settings.n_best_size:
            break
        if candidate.window is None or candidate.positions is None:
            seen.add("")
        else:
            window = windows[candidate.window]
            if settings.answer_spans == "characters":
                start, end = _characters(window, candidate.positions, tokenizer)
                text = window.passage.passage.text[start:end]
            else:
                text = _reference_text(window, candidate.positions, tokenizer, report)
            if text in seen:
                continue
            seen.add(text)
            candidate = candidate._replace(text=text)
        nbest.append(candidate)
    if null is not None and "" not in seen:
        nbest.append(null)
    return nbest


def _by_score(spans: _Spans, null: Candidate | None) -> Iterator[Candidate]:
    """All spans and `null`, from the best down; of equals the first, and `null` last."""
    scores = spans.start_logit + spans.end_logit
    for index in np.argsort(-scores, kind="stable"):
        if null is not None and null.score > scores[index]:
            yield null
            null = None
        window, first, last, start, end = (array[index].item() for array in spans)
        yield Candidate("", start, end, 0.0, window, (first, last))
    if null is not None:
        yield null


def _reference_text(
    window: Window,
    positions: tuple[int, int],
    tokenizer: FullTokenizer,
    report: Callable[[str], None] | None,
) -> str:
    first, last = map(window.passage_token, positions)
    passage = window.passage
    pieces = tokenizer.convert_ids_to_tokens(passage.ids[first : last + 1])
    words = passage.passage.words[passage.word_of[first] : passage.word_of[last] + 1]
    return get_final_text(join_pieces(pieces), " ".join(words), tokenizer.basic_tokenizer, report)


def _with_probabilities(nbest: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """A softmax over the scores, summed in the reference's order, so that the last digit is its too."""
    best = max(candidate.score for candidate in nbest)
    shares = [math.exp(candidate.score - best) for candidate in nbest]
    total = 0.0
    for share in shares:
        total += share
    return tuple(c._replace(probability=s / total) for c, s in zip(nbest, shares, strict=True))


def characters_of(
    candidate: Candidate, windows: Sequence[Window], tokenizer: FullTokenizer
) -> tuple[int, int] | None:
    """Where an answer stands in the passage: `text[start:end]`; None for no answer.

    Found by the tokens alone, so that it is right also where `get_final_text` had to give all the words.
    """
    if candidate.window is None or candidate.positions is None:
        return None
    return _characters(windows[candidate.window], candidate.positions, tokenizer)


def _characters(
    window: Window, positions: tuple[int, int], tokenizer: FullTokenizer
) -> tuple[int, int]:
    span = TokenSpan(*map(window.passage_token, positions))
    return window.passage.characters(span, tokenizer)
