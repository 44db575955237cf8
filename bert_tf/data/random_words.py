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
from array import array
from collections.abc import Iterator, MutableSequence
from itertools import chain

_WORDS_AT_ONCE = 1 << 13


class RandomWords:
    """The methods of `random.Random(seed)` that data generation needs, with its results.

    Args:
        seed: any whole number.

    Attributes:
        words: the stream itself, for loops that have no time for a method call. Every item taken
            from it is one 32-bit word of the generator.

    >>> RandomWords(5).randrange(100) == random.Random(5).randrange(100)
    True
    """

    def __init__(self, seed: int):
        self.words: Iterator[int] = chain.from_iterable(_chunks(random.Random(seed)))

    def random(self) -> float:
        """From 0 to 1, 1 excluded."""
        high, low = next(self.words) >> 5, next(self.words) >> 6
        return (high << 26 | low) / 9007199254740992.0

    def randrange(self, n: int) -> int:
        """From 0 to n - 1; n is at most 2^32 - 1."""
        shift = 32 - n.bit_length()
        while (number := next(self.words) >> shift) >= n:
            pass
        return number

    def randint(self, first: int, last: int) -> int:
        """From `first` to `last`, both included."""
        return first + self.randrange(last - first + 1)

    def shuffle(self, items: MutableSequence, keep: int | None = None) -> None:
        """Shuffles in place.

        Args:
            items: fewer than 2^32.
            keep: how many of the first items are wanted; the rest is left in disorder, which is
                quicker, though the same words are drawn. None means all.
        """
        words = self.words
        keep = len(items) if keep is None else max(keep, 1)
        last = len(items) - 1  # items behind it are done
        while last >= keep:
            shift, end = _same_shift(last)
            if end < keep:
                end = keep
            for word in words:
                if (other := word >> shift) <= last:
                    items[other] = items[last]  # what goes to `last` is not wanted
                    last -= 1
                    if last < end:
                        break
        while last > 0:
            shift, end = _same_shift(last)
            for word in words:
                if (other := word >> shift) <= last:
                    items[last], items[other] = items[other], items[last]
                    last -= 1
                    if last < end:
                        break


def threshold(probability: float) -> int:
    """`random() < probability` as a comparison of whole numbers.

    Returns:
        T such that `(first >> 5) << 26 | second >> 6 < T` says the same of the two words.
    """
    return math.ceil(probability * 9007199254740992.0)


@functools.cache
def _same_shift(last: int) -> tuple[int, int]:
    """How far words are shifted for `randrange(last + 1)`, and down to which `last` that holds."""
    bits = (last + 1).bit_length()
    return 32 - bits, max((1 << (bits - 1)) - 1, 1)


def _chunks(rng: random.Random) -> Iterator[list[int]]:
    while True:
        bits = rng.getrandbits(32 * _WORDS_AT_ONCE)
        words = array("I", bits.to_bytes(4 * _WORDS_AT_ONCE, "little"))
        if array("I", [1]).tobytes()[0] != 1:
            words.byteswap()
        yield words.tolist()
