"""Letters that an uncased vocabulary changes beyond lower-casing them."""

from __future__ import annotations

import logging
import unicodedata
from collections import Counter
from collections.abc import Iterable
from itertools import chain
from typing import NamedTuple

from bert_tf.characters import lower_and_strip_accents

logger = logging.getLogger(__name__)

_LONGEST_WORD = 20
_WORTH_A_WARNING = 0.01  # of all letters; a sample of English Wikipedia has less, of Korean 93 %


class LostLetters(NamedTuple):
    """Letters that change when accents are stripped."""

    fraction: float  # of all letters and marks (0-1)
    script: str  # the most frequent one among them, with its Unicode name: "Hangul", "Latin"
    word: str  # the most frequent word with one, lower-cased; only a part of a long word
    stripped: str  # the word without accents; letters are spaced if there are more than before

    def __str__(self) -> str:
        return (
            f"{self.fraction:.0%} of its letters ({self.script}) are changed: "
            f"{self.word!r} becomes {self.stripped!r}"
        )


def find_lost_letters(lines: Iterable[str]) -> LostLetters | None:
    """Return the letters that an uncased vocabulary changes beyond their case, if any.

    Args:
        lines: a sample of the text.

    >>> print(find_lost_letters(["Ça va", "été ou hiver"]))
    21% of its letters (Latin) are changed: 'ça' becomes 'ca'
    >>> find_lost_letters(["ÉTÉ"]).fraction
    0.6666666666666666
    >>> find_lost_letters(["How are you?"]) is None
    True
    """
    words = Counter(chain.from_iterable(line.lower().split() for line in lines))
    letters: Counter[str] = Counter()
    for word, count in words.items():
        for char in word:
            letters[char] += count
    num_letters = sum(n for char, n in letters.items() if unicodedata.category(char)[0] in "LM")
    changed = {char: n for char, n in letters.items() if lower_and_strip_accents(char) != char}
    if not changed:
        return None
    scripts: Counter[str] = Counter()
    for char, count in changed.items():
        scripts[unicodedata.name(char, "unnamed").split()[0].capitalize()] += count
    word = next(word for word, _ in words.most_common() if not changed.keys().isdisjoint(word))
    if len(word) > _LONGEST_WORD:  # Japanese has no spaces
        first = next(i for i, char in enumerate(word) if char in changed)
        word = word[max(0, first - 2) : first + 2]
    stripped = lower_and_strip_accents(word)
    return LostLetters(
        fraction=sum(changed.values()) / max(num_letters, 1),
        script=scripts.most_common(1)[0][0],
        word=word,
        stripped=" ".join(stripped) if len(stripped) > len(word) else stripped,
    )


def warn_of_lost_letters(lines: Iterable[str]) -> None:
    """Warn if an uncased vocabulary would change more of a text than its case.

    Args:
        lines: as of `find_lost_letters`.
    """
    lost = find_lost_letters(lines)
    if lost and lost.fraction >= _WORTH_A_WARNING:
        logger.warning(
            "--do_lower_case does more than lower-case this text: it strips accents (Unicode NFD), and "
            "%s. Words that differ only in accents become one word, and answers contain the changed "
            "letters. To keep the letters, learn the vocabulary with --do_lower_case=False. The folder "
            "of the vocabulary stores this choice.",
            lost,
        )
