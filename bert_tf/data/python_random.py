"""`random.Random`, draw for draw, several times as fast.

Python's generator makes 32-bit words, and each of its methods is a rule for what to do with the next
few of them. Here the words are taken in bulk, and the rules are applied in place:

    random()        two words: 27 bits of the first and 26 of the second make 53 bits
    randrange(n)    the upper bits of a word, as many as n has, until they are below n
    shuffle(x)      for i from the end to 1: swap x[i] with x[randrange(i + 1)]

So one seed gives what `random.Random(seed)` gives, which is what the reference draws from.

Source: the Python library's `random.py` (3.2 and later) and `_randommodule.c`.
"""

from __future__ import annotations

import functools
import math
import random
import sys
from array import array
from collections.abc import MutableSequence, Sequence
from typing import Any, NamedTuple

import numpy as np

_WORDS_AT_ONCE = 1 << 14


class RandomWords:
    """The methods of `random.Random(seed)` that data generation needs, with its results.

    Args:
        seed: any whole number.

    Attributes:
        words: some words of the generator, in order.
        at: the next of them to be used. A loop that has no time for method calls takes words itself:
            it calls `reserve` first, and moves `at` behind what it took.

    >>> RandomWords(5).randrange(100) == random.Random(5).randrange(100)
    True
    """

    def __init__(self, seed: int):
        self._rng = random.Random(seed)
        self.words = array("I")
        self.at = 0
        self._digits: dict[int, Sequence[int]] = {}  # number of bits -> that many of each word
        self.reserve(1)

    def reserve(self, number: int) -> None:
        """Makes sure that `number` words lie in `words` from `at` on."""
        if len(self.words) - self.at < number:
            bits = self._rng.getrandbits(32 * (number + _WORDS_AT_ONCE))
            new = bits.to_bytes(4 * (number + _WORDS_AT_ONCE), sys.byteorder)
            # As one large number, the first word is the lowest.
            drawn = array("I", new)
            if sys.byteorder == "big":
                drawn.reverse()
            self.words = self.words[self.at :] + drawn
            self.at = 0
            self._digits = {}

    def random(self) -> float:
        """From 0 to 1, 1 excluded."""
        at = self.at
        if at + 2 > len(self.words):
            self.reserve(2)
            at = self.at
        first, second = self.words[at], self.words[at + 1]
        self.at = at + 2
        return (first >> 5 << 26 | second >> 6) / 9007199254740992.0

    def randrange(self, n: int) -> int:
        """From 0 to n - 1; n is at most 2^32 - 1."""
        shift = 32 - n.bit_length()
        while True:
            if self.at == len(self.words):
                self.reserve(1)
            number = self.words[self.at] >> shift
            self.at += 1
            if number < n:
                return number

    def randint(self, first: int, last: int) -> int:
        """From `first` to `last`, both included."""
        return first + self.randrange(last - first + 1)

    def coins(self, number: int) -> array:
        """As many draws of `random()`: each is below 2^31 where `random()` is below 0.5."""
        self.reserve(2 * number)
        start, self.at = self.at, self.at + 2 * number
        return self.words[start : self.at : 2]

    def shuffle(self, items: MutableSequence, keep: int | None = None) -> None:
        """Shuffles in place.

        Args:
            items: fewer than 2^32.
            keep: how many of the first items are wanted; the rest is left in disorder, which is
                quicker, though the same words are drawn. None means all.
        """
        keep = len(items) if keep is None else max(keep, 1)
        last = len(items) - 1  # items behind it are done
        while last > 0:
            bits, end = _same_bits(last)
            if last >= keep:
                end = max(end, keep)
            # The words cut to so many bits: small numbers, which Python need not make.
            digits = self._digits.get(bits) or self._cut(bits)
            others: Any = iter(digits)
            others.__setstate__(self.at)
            if last >= keep:
                for other in others:
                    if other <= last:
                        items[other] = items[last]  # what goes to `last` is not wanted
                        last -= 1
                        if last < end:
                            break
            else:
                for other in others:
                    if other <= last:
                        items[last], items[other] = items[other], items[last]
                        last -= 1
                        if last < end:
                            break
            self.at = len(digits) - others.__length_hint__()
            if self.at == len(digits):
                self.reserve(1)

    def _cut(self, bits: int) -> Sequence[int]:
        """The upper `bits` of every word."""
        cut = np.frombuffer(self.words, np.uint32) >> np.uint32(32 - bits)
        digits = cut.astype(np.uint8).tobytes() if bits <= 8 else cut.tolist()
        self._digits[bits] = digits
        return digits


class Threshold(NamedTuple):
    """`random() < probability`, said of the two words of the draw.

    It holds where first < low, or first < high and second < rest.
    """

    low: int
    high: int
    rest: int

    @classmethod
    def of(cls, probability: float) -> Threshold:
        """Args: probability: from 0 to 1."""
        upper, lower = divmod(math.ceil(probability * 9007199254740992.0), 1 << 26)
        return cls(upper << 5, upper + 1 << 5, lower << 6)


@functools.cache
def _same_bits(last: int) -> tuple[int, int]:
    """The bits of `randrange(last + 1)`, and down to which `last` they are as many."""
    bits = (last + 1).bit_length()
    return bits, max((1 << (bits - 1)) - 1, 1)
