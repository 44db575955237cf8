"""Character classes of the reference's tokenizer, and text translated by them.

Source: google-research/bert, tokenization.py.
"""

from __future__ import annotations

import unicodedata


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


class _CleaningTable(dict):
    """Table for `str.translate` that cleans text before words are split. Filled on demand."""

    def __missing__(self, code_point: int) -> str | int | None:
        char = chr(code_point)
        result: str | int | None
        if is_dropped(char):
            result = None
        elif is_whitespace(char):
            result = " "
        elif is_chinese_char(code_point):
            result = f" {char} "
        else:
            result = code_point
        self[code_point] = result
        return result


class _PunctuationTable(dict):
    """Table for `str.translate` that puts spaces around punctuation."""

    def __missing__(self, code_point: int) -> str | int:
        char = chr(code_point)
        result = self[code_point] = f" {char} " if is_punctuation(char) else code_point
        return result


class _AccentTable(dict):
    """Table for `str.translate` after NFD that drops non-spacing marks (Mn)."""

    def __missing__(self, code_point: int) -> int | None:
        is_mark = unicodedata.category(chr(code_point)) == "Mn"
        result = self[code_point] = None if is_mark else code_point
        return result


CLEANED = _CleaningTable()


SPACED_PUNCTUATION = _PunctuationTable()


_WITHOUT_ACCENTS = _AccentTable()


def lower_and_strip_accents(word: str) -> str:
    """Return `word` as in an uncased vocabulary: "Élan" -> "elan"."""
    word = word.lower()
    if word.isascii():
        return word
    return unicodedata.normalize("NFD", word).translate(_WITHOUT_ACCENTS)
