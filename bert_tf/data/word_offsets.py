"""Raw text -> words and where they stand, for models that label words.

A word ends at whitespace; punctuation and ideographs are words of their own. BERT's tokenizer splits at
the same places, so the pieces are those of the whole text.
"""

from __future__ import annotations

from typing import NamedTuple

from bert_tf.tokenization import is_chinese_char, is_punctuation, is_whitespace


class WordSpan(NamedTuple):
    """The characters from `start` to `end` - 1 of a text."""

    start: int
    end: int


def split_words(text: str) -> list[WordSpan]:
    """The words of a text, in order.

    >>> [text[start:end] for text in ["In New York, 東京."] for start, end in split_words(text)]
    ['In', 'New', 'York', ',', '東', '京', '.']
    """
    spans, start = [], None
    for index, char in enumerate(text):
        is_alone = is_punctuation(char) or is_chinese_char(ord(char))
        if start is not None and (is_alone or is_whitespace(char)):
            spans.append(WordSpan(start, index))
            start = None
        if is_alone:
            spans.append(WordSpan(index, index + 1))
        elif start is None and not is_whitespace(char):
            start = index
    if start is not None:
        spans.append(WordSpan(start, len(text)))
    return spans
