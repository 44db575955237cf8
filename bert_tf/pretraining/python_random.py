"""Equivalent of `random.Random`, draw for draw, several times as fast.

Python's generator makes 32-bit words, and each of its methods consumes the next few. Here the words
are generated in bulk, and the methods' rules are applied in place:

    random()        two words: 27 bits of the first and 26 of the second make 53 bits
    randrange(n)    the upper `n.bit_length()` bits of a word, repeated until they are below n
    shuffle(x)      for i from the end to 1: swap x[i] with x[randrange(i + 1)]

A seed gives the draws of `random.Random(seed)`, as in the reference.

Source: the Python library's `random.py` (3.2 and later) and `_randommodule.c`.
"""

from __future__ import annotations

import functools
import random
from array import array
from collections.abc import MutableSequence, Sequence
from typing import Any

import numpy as np

_WORDS_AT_ONCE = 1 << 14


class RandomWords:
    """Methods of `random.Random(seed)` for data generation, with equal results.

    Args:
        seed: any whole number.

    Attributes:
        words: some words of the generator, in order.
        at: index of the next word.

    >>> RandomWords(5).randrange(100) == random.Random(5).randrange(100)
    True
    """

    def __init__(self, seed: int):
        self._rng = random.Random(seed)
        self.words = array("I")
        self.at = 0
        self._digits: dict[int, Sequence[int]] = {}  # number of bits -> upper bits of each word
        self.reserve(1)

    def reserve(self, number: int) -> None:
        """Generate words until `words` has at least `number` from `at`."""
        if len(self.words) - self.at < number:
            # As one large number, the first word is the lowest.
            bits = self._rng.getrandbits(32 * (number + _WORDS_AT_ONCE))
            drawn = bits.to_bytes(4 * (number + _WORDS_AT_ONCE), "little")
            self.words = self.words[self.at :] + array("I", drawn)
            self.at = 0
            self._digits = {}

    def random(self) -> float:
        """Draw a float from 0 to 1, 1 excluded."""
        at = self.at
        if at + 2 > len(self.words):
            self.reserve(2)
            at = self.at
        first, second = self.words[at], self.words[at + 1]
        self.at = at + 2
        return (first >> 5 << 26 | second >> 6) / 9007199254740992.0

    def randrange(self, n: int) -> int:
        """Draw an integer from 0 to n - 1; n is at most 2^32 - 1."""
        shift = 32 - n.bit_length()
        while True:
            if self.at == len(self.words):
                self.reserve(1)
            number = self.words[self.at] >> shift
            self.at += 1
            if number < n:
                return number

    def randint(self, first: int, last: int) -> int:
        """Draw an integer from `first` to `last`, both included."""
        return first + self.randrange(last - first + 1)

    def coins(self, number: int) -> array:
        """Draw `random()` `number` times. Values below 2^31 correspond to results below 0.5."""
        self.reserve(2 * number)
        start, self.at = self.at, self.at + 2 * number
        return self.words[start : self.at : 2]

    def shuffle(self, items: MutableSequence) -> None:
        """Shuffle fewer than 2^32 items in place."""
        last = len(items) - 1  # items after it are done
        while last > 0:
            bits, end = _same_bits(last)
            # The upper `bits` of the words: small numbers, which Python need not allocate.
            digits = self._digits.get(bits) or self._upper_bits(bits)
            draws: Any = iter(digits)
            draws.__setstate__(self.at)
            for index in draws:
                if index <= last:
                    items[last], items[index] = items[index], items[last]
                    last -= 1
                    if last < end:
                        break
            self.at = len(digits) - draws.__length_hint__()
            if self.at == len(digits):
                self.reserve(1)

    def _upper_bits(self, bits: int) -> Sequence[int]:
        """Return the upper `bits` of every word."""
        upper = np.frombuffer(self.words, np.uint32) >> np.uint32(32 - bits)
        digits = upper.astype(np.uint8).tobytes() if bits <= 8 else upper.tolist()
        self._digits[bits] = digits
        return digits


@functools.cache
def _same_bits(last: int) -> tuple[int, int]:
    """Return the number of bits of `randrange(last + 1)`, and the lowest `last` with the same."""
    bits = (last + 1).bit_length()
    return bits, max((1 << (bits - 1)) - 1, 1)
