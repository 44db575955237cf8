"""Words of raw text, split as the words of the training data were.

    rule                 "Yahoo! left Baden-Baden."
    whitespace           Yahoo!  left  Baden-Baden.
    outer_punctuation    Yahoo  !  left  Baden-Baden  .      or Yahoo! of the training data
    basic                Yahoo  !  left  Baden  -  Baden  .  as BERT's tokenizer; also each ideograph
    characters           Y  a  h  o  o  !  l  e  f  t ...

`serving.text_tokenizer.graph_split_words` does the same in a graph.
"""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from itertools import chain, islice, pairwise
from typing import NamedTuple

from bert_tf.characters import is_chinese_char, is_punctuation, is_whitespace

logger = logging.getLogger(__name__)

RULES = ("basic", "outer_punctuation", "whitespace", "characters")
_SAMPLED_SENTENCES = 10_000
_CLOSING = re.compile(r"[.,:;!?)\]}%»”’…،؛؟।]+|['’][^\W\d]{1,2}|n['’]t")
_OPENING = re.compile(r"[(\[{«“‘„¿¡]+")
# a single letter or digit; or Thai, Lao, Burmese, Khmer, kana
_WITHOUT_SPACES = re.compile(r"\w\Z|[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff]")


class WordSpan(NamedTuple):
    """Characters `start` to `end` - 1 of a text."""

    start: int
    end: int


def split_words(
    text: str, rule: str = "basic", whole_words: Collection[str] = ()
) -> list[WordSpan]:
    """Return the words of a text, in order.

    Args:
        rule: one of `RULES`.
        whole_words: words that keep a punctuation mark at an end, for outer_punctuation.

    >>> [text[start:end] for text in ["In New York, 東京."] for start, end in split_words(text)]
    ['In', 'New', 'York', ',', '東', '京', '.']
    """
    spans: list[WordSpan] = []
    spaces = [-1, *(i for i, char in enumerate(text) if is_whitespace(char)), len(text)]
    for start, end in ((before + 1, after) for before, after in pairwise(spaces)):
        first, last = start, end
        if rule == "outer_punctuation":
            first, last = _without_outer_marks(text, start, end, whole_words)
        is_open = False  # whether the next character continues the last word
        for index in range(start, end):
            is_alone = not first <= index < last or rule == "characters"
            if rule == "basic":
                is_alone = is_punctuation(text[index]) or is_chinese_char(ord(text[index]))
            if is_open and not is_alone:
                spans[-1] = WordSpan(spans[-1].start, index + 1)
            else:
                spans.append(WordSpan(index, index + 1))
            is_open = not is_alone
    return spans


def _without_outer_marks(
    text: str, start: int, end: int, whole_words: Collection[str] = ()
) -> tuple[int, int]:
    """Return the bounds of what lies between the outer punctuation; (start, start) for nothing."""
    first, last = start, end
    while last > start and is_punctuation(text[last - 1]):
        last -= 1
    while first < last and is_punctuation(text[first]):
        first += 1
    if first == last:
        return start, start
    if text[first : last + 1] in whole_words:
        last += last < end
    if first > start and text[first - 1 : last] in whole_words:
        first -= 1
    return first, last


def join_words(words: Sequence[str], with_spaces: bool = True) -> tuple[str, list[WordSpan]]:
    """Return words as a text, with punctuation as people write it, and where each word is in it.

    >>> join_words(["In", "New", "York", "(", "NY", ")", "."])[0]
    'In New York (NY).'
    """
    text, spans = "", []
    for before, word in pairwise(["(", *words]):
        is_close = _OPENING.fullmatch(before) or _CLOSING.fullmatch(word)
        text += "" if is_close or not with_spaces else " "
        spans.append(WordSpan(len(text), len(text) + len(word)))
        text += word
    return text, spans


def are_spaced(sentences: Iterable[Sequence[str]]) -> bool:
    """Return False if most words are single characters, or of a script without spaces."""
    words = list(chain.from_iterable(sentences))
    unspaced = (is_chinese_char(ord(word[0])) or _WITHOUT_SPACES.match(word) for word in words)
    return 2 * sum(map(bool, unspaced)) <= len(words)


def choose_rule(sentences: Iterable[Sequence[str]]) -> tuple[str, list[str]]:
    """Return the rule that finds most of the words in their joined text, and its `whole_words`.

    Among equals the first of `RULES` is chosen. A whole word has one mark at an end, and occurs more
    often with it than without.
    """
    sampled = list(islice(sentences, _SAMPLED_SENTENCES))
    with_spaces = are_spaced(sampled)
    texts = [join_words(words, with_spaces) for words in sampled]
    total = sum(map(len, sampled))

    def fraction(rule: str, whole_words: Collection[str] = ()) -> float:
        rows = ((set(split_words(text, rule, whole_words)), spans) for text, spans in texts)
        return sum(span in split for split, spans in rows for span in spans) / total

    rule = max(RULES, key=fraction)
    whole_words: list[str] = []
    if rule == "outer_punctuation":
        counts = Counter(chain.from_iterable(sampled))
        for word, count in counts.items():
            first, last = _without_outer_marks(word, 0, len(word))
            if last and len(word) == last - first + 1 and 1 < count > counts[word[first:last]]:
                whole_words.append(word)
    logger.info(
        "Raw text will be split by the rule %s, which finds %.1f%% of the training words.",
        *(rule, 100 * fraction(rule, frozenset(whole_words))),
    )
    return rule, sorted(whole_words)
