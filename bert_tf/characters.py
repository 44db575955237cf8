"""Character classes of the reference's tokenizer, and text translated by them.

Source: google-research/bert, tokenization.py.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable


def is_dropped(char: str) -> bool:
    """Return True if cleaning removes `char`: U+0000, U+FFFD, control and format characters."""
    if char in "\t\n\r":
        return False
    return char in "\x00\ufffd" or unicodedata.category(char) in ("Cc", "Cf")


def is_whitespace(char: str) -> bool:
    """Return True if `char` separates words. U+2028 and U+2029 do, as in `str.split`."""
    return char in " \t\n\r\u2028\u2029" or unicodedata.category(char) == "Zs"


def is_blank(text: str) -> bool:
    """Return True if cleaning leaves no text: it has only whitespace and dropped characters.

    >>> is_blank(" \u200b"), is_blank(".")
    (True, False)
    """
    return all(is_whitespace(char) or is_dropped(char) for char in text)


def is_punctuation(char: str) -> bool:
    """Return True if `char` is punctuation in Unicode, or an ASCII symbol such as "$" or "^"."""
    if char.isascii():
        return char.isprintable() and not (char.isalnum() or char == " ")
    return unicodedata.category(char).startswith("P")


# Blocks of ideographs. Hangul, Hiragana and Katakana are omitted because they are letters of words.
CHINESE_BLOCKS = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)


def is_chinese_char(code_point: int) -> bool:
    """Return True if the character is an ideograph, which is always a separate word."""
    return code_point >= 0x3400 and any(
        first <= code_point <= last for first, last in CHINESE_BLOCKS
    )


class _Table(dict):
    """Table for `str.translate`, filled on demand with `image` of each character."""

    def __init__(self, image: Callable[[str], str]):
        super().__init__()
        self._image = image

    def __missing__(self, code_point: int) -> str:
        result = self[code_point] = self._image(chr(code_point))
        return result


def _clean(char: str) -> str:
    if is_dropped(char):
        return ""
    return " " if is_whitespace(char) else f" {char} " if is_chinese_char(ord(char)) else char


CLEANED = _Table(_clean)  # before words are split
SPACED_PUNCTUATION = _Table(lambda char: f" {char} " if is_punctuation(char) else char)
_WITHOUT_ACCENTS = _Table(lambda char: "" if unicodedata.category(char) == "Mn" else char)


def lower_and_strip_accents(word: str) -> str:
    """Return `word` as in an uncased vocabulary: "Élan" -> "elan"."""
    word = word.lower()
    if word.isascii():
        return word
    return unicodedata.normalize("NFD", word).translate(_WITHOUT_ACCENTS)
