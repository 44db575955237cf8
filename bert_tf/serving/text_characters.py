"""Tokenization rules of each code point, as tables for a TensorFlow graph.

Made from Python's `unicodedata`, which `bert_tf.tokenization` uses too.
"""

from __future__ import annotations

import functools
import itertools
import unicodedata
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.characters import (
    CHINESE_BLOCKS,
    is_chinese_char,
    is_dropped,
    is_punctuation,
    is_whitespace,
)

# In the graph the bits above a code point's value are its properties. After the first look-up the
# value is the cleaned (and lower-cased, decomposed) character, or 0 if it was dropped.
CODE_POINT = (1 << 21) - 1
SEPARATOR = 1 << 21  # whitespace
ALONE = 1 << 22  # a separate word: punctuation, an ideograph
MARK = 1 << 23  # Mn of combining class 0: dropped late because it limits the reordering of NFD
MORE = 1 << 24  # the same character yields more characters
ORDER_SHIFT = 25  # 0, or the rank of its combining class

CAPITAL_SIGMA, FINAL_SIGMA = 0x3A3, 0x3C2
NEITHER, CASED, IGNORABLE = 0, 1, 2  # role of a capital sigma's neighbour


class CodePointTable:
    """int32 for each of the 0x110000 code points, in pages of 256, few of which are distinct."""

    def __init__(self, values: np.ndarray):
        first_values: dict[bytes, int] = {}  # of each distinct page
        pages = [page.tobytes() for page in values.astype(np.int32).reshape(-1, 256)]
        numbers = [first_values.setdefault(page, 256 * len(first_values)) for page in pages]
        self._page = np.array(numbers, np.int32)  # [4352]
        self._values = np.frombuffer(b"".join(first_values), np.int32)  # [distinct pages * 256]

    def look_up(self, code_points: tf.Tensor) -> tf.Tensor:
        page = tf.gather(self._page, tf.bitwise.right_shift(code_points, 8))
        return tf.gather(self._values, page + tf.bitwise.bitwise_and(code_points, 255))


class Rules(NamedTuple):
    """Tokenization rules of each code point."""

    first_offset: CodePointTable  # difference to the first resulting character, with its bits
    further: tuple[CodePointTable, ...]  # the other resulting characters with their bits, or 0
    sigma_context: CodePointTable | None  # NEITHER, CASED or IGNORABLE; None without lower-casing


@functools.cache
def _characters() -> list[str]:
    """Return the assigned characters and all ideographs; no rule applies to other code points."""
    chars = map(chr, range(0x110000))
    assigned = [char for char in chars if unicodedata.category(char) not in ("Cn", "Co", "Cs")]
    blocks = (range(first, last + 1) for first, last in CHINESE_BLOCKS)
    return sorted({*assigned, *map(chr, itertools.chain(*blocks))})


@functools.cache
def word_breaks(ideographs: bool = True) -> CodePointTable:
    """Return `SEPARATOR` for whitespace, `ALONE` for punctuation and perhaps ideographs, else 0."""
    kinds = np.zeros(0x110000, np.int32)
    for char in _characters():
        if is_whitespace(char):
            kinds[ord(char)] = SEPARATOR
        elif is_punctuation(char) or (ideographs and is_chinese_char(ord(char))):
            kinds[ord(char)] = ALONE
    return CodePointTable(kinds)


@functools.cache
def accents() -> CodePointTable:
    """Return 1 for characters that are stripped as accents."""
    marks = np.zeros(0x110000, np.int32)
    marks[[ord(char) for char in _characters() if unicodedata.category(char) == "Mn"]] = 1
    return CodePointTable(marks)


@functools.cache
def rules(do_lower_case: bool) -> Rules:
    code_points = np.arange(0x110000, dtype=np.int32)
    images = {}  # of the code points that change
    sigma_context = np.full_like(code_points, NEITHER)
    rank = _rank_combining_classes()
    for char in _characters():
        image = _image(char, do_lower_case, rank)
        if image != [ord(char)]:
            images[ord(char)] = image
        if do_lower_case:
            sigma_context[ord(char)] = _sigma_context(char)

    num_columns = max(map(len, images.values()))
    columns = np.zeros((num_columns, len(code_points)), np.int32)
    columns[0] = code_points
    for code_point, image in images.items():
        columns[:, code_point] = image + [0] * (num_columns - len(image))
    first, *further = columns
    return Rules(
        first_offset=CodePointTable(first - code_points),
        further=tuple(map(CodePointTable, further)),
        sigma_context=CodePointTable(sigma_context) if do_lower_case else None,
    )


def _rank_combining_classes() -> dict[int, int]:
    """Rank the combining classes of characters that are not dropped as accents, from 0 (3 bits)."""
    chars = [char for char in _characters() if unicodedata.category(char) != "Mn"]
    classes = set(map(unicodedata.combining, chars))
    return {combining_class: rank for rank, combining_class in enumerate(sorted(classes))}


def _image(char: str, do_lower_case: bool, rank: Mapping[int, int]) -> list[int]:
    """Return the characters that result from one, with the bits."""
    if is_dropped(char):
        return []
    if is_whitespace(char):
        return [ord(" ") | SEPARATOR]
    is_ideograph = is_chinese_char(ord(char))
    image = []
    for result in unicodedata.normalize("NFD", char.lower()) if do_lower_case else char:
        bits = ALONE if is_ideograph or is_punctuation(result) else 0
        if do_lower_case:
            combining_class = unicodedata.combining(result)
            if unicodedata.category(result) == "Mn":
                if combining_class:
                    continue
                bits |= MARK
            bits |= rank[combining_class] << ORDER_SHIFT
        image.append(ord(result) | bits)
    assert len(image) <= 1 or not is_ideograph, "an ideograph is one word"  # noqa: S101
    if len(image) > 1:
        image[0] |= MORE
    return image


def _sigma_context(char: str) -> int:
    """Return the role of `char` next to a sigma, found by calling `str.lower`."""
    if is_dropped(char):
        return IGNORABLE  # it was removed before
    if is_whitespace(char) or is_chinese_char(ord(char)):
        return NEITHER  # the word ends here
    if not f"A{char}Σ".lower().endswith("ς"):
        return NEITHER
    return CASED if f"{char}Σ".lower().endswith("ς") else IGNORABLE
