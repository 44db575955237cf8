"""Questions with the tokens of their answers, and the passages' word pieces, computed once."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from itertools import chain

from bert_tf.data.parallel import map_in_order
from bert_tf.data.question_answering import (
    Findings,
    Passage,
    SquadAnswer,
    SquadExample,
    TrainingExample,
)
from bert_tf.data.record_makers import pieces_of_texts
from bert_tf.data.records import chunks_of
from bert_tf.data.span_windows import TokenizedPassage, TokenSpan, tokenize_passage
from bert_tf.tokenization import FullTokenizer

_WIDER = (
    "are learned with more text than their answer, although word pieces match it exactly; "
    "--answer_spans=characters learns the exact pieces"
)
_PASSAGES_AT_ONCE = 200  # per call of a tokenizing process


class TokenizedPassages(dict):
    """Passage -> its word pieces, computed once for all its questions."""

    def __init__(self, tokenizer: FullTokenizer):
        super().__init__()
        self._tokenizer = tokenizer

    def __missing__(self, passage: Passage) -> TokenizedPassage:
        result = self[passage] = tokenize_passage(passage, self._tokenizer)
        return result

    def add(self, passages: Iterable[Passage], num_workers: int) -> None:
        """Tokenize passages in several processes. With 1, each is tokenized on first use."""
        new = [passage for passage in dict.fromkeys(passages) if passage not in self]
        if num_workers == 1 or not new:
            return
        parts = ([passage.words for passage in part] for part in chunks_of(new, _PASSAGES_AT_ONCE))
        tokenize = functools.partial(pieces_of_texts, self._tokenizer)
        found = chain.from_iterable(map_in_order(tokenize, parts, num_workers))
        for passage, pieces in zip(new, found, strict=True):
            self[passage] = TokenizedPassage(passage, *pieces)


LabeledQuestion = tuple[SquadExample, TokenizedPassage, TokenSpan | None]


def label(
    examples: Sequence[TrainingExample],
    tokenizer: FullTokenizer,
    findings: Findings,
    num_workers: int = 1,
    answer_spans: str = "words",
) -> list[LabeledQuestion]:
    """Return questions with the tokens of their answers, or None without an answer.

    Args:
        findings: receives the skipped questions, whose answer has no tokens, and the questions whose
            tokens cover more than their answer.
        num_workers: processes that tokenize the passages.
        answer_spans: one of `ANSWER_SPANS`.
    """
    passages, labeled = TokenizedPassages(tokenizer), []
    passages.add((example.passage for example, _ in examples), num_workers)
    for example, answer in examples:
        passage = passages[example.passage]
        span = None
        if answer is not None:
            span = _answer_tokens(example, passage, answer, tokenizer, findings, answer_spans)
            if span is None:
                matter = "are left out, because their answer has no tokens"
                findings.add(matter, example.qas_id)
                continue
        labeled.append((example, passage, span))
    return labeled


def _answer_tokens(
    example: SquadExample,
    passage: TokenizedPassage,
    answer: SquadAnswer,
    tokenizer: FullTokenizer,
    findings: Findings,
    answer_spans: str,
) -> TokenSpan | None:
    located = passage.passage.located(answer)
    if answer_spans == "characters":
        return passage.span_at(located, tokenizer)
    answer_ids = tokenizer.encode(answer.text)
    span = passage.span_of(answer, answer_ids)
    if span is None or passage.ids[span.start : span.end + 1] == answer_ids:
        return span
    fitting = passage.span_at(located, tokenizer)
    if fitting is not None and fitting != span:
        start, end = passage.characters(fitting, tokenizer)
        if located.start <= start and end <= located.start + len(located.text):
            findings.add(_WIDER, example.qas_id)
    return span
