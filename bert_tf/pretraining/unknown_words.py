"""Words of a text that are [UNK] because the vocabulary does not fit it."""

from __future__ import annotations

import logging
import unicodedata
from collections.abc import Iterable
from itertools import islice

from bert_tf.pretraining.wordpieces import count_characters, count_words, measure_coverage
from bert_tf.tokenization import FullTokenizer

logger = logging.getLogger(__name__)

# Fraction of all words. With their usual vocabularies SST-2 and English Wikipedia have at most 0.5 %,
# the tweets of WNUT 2017 at most 0.9 %, Korean and Chinese Wikipedia 0.5 %.
_WORTH_A_WARNING = 0.05
_FEWEST = 10  # unknown words, counted with repetitions
_FEW_CHARACTERS = 10  # more are missing if the text has another alphabet


def warn_of_unknown_words(lines: Iterable[str], tokenizer: FullTokenizer) -> None:
    """Warn if many words of a text are [UNK], with the most frequent one and a remedy.

    Args:
        lines: a sample of the text.
    """
    lines, vocab, lower = list(lines), tokenizer.vocab, tokenizer.do_lower_case

    def fraction(texts: Iterable[str], do_lower_case: bool, added: Iterable[str] = ()) -> float:
        counts = count_words(texts, do_lower_case)
        return measure_coverage([*vocab, *added], counts).unknown_share if counts else 0.0

    counts = count_words(lines, lower)
    found = fraction(lines, lower)
    if found < _WORTH_A_WARNING or found * counts.total() < _FEWEST:
        return
    split = tokenizer.wordpiece_tokenizer
    unknown = {
        word: n for word, n in counts.most_common() if split.tokenize(word) == [split.unk_token]
    }
    characters = (char for char, _ in count_characters(unknown).most_common() if char not in vocab)
    missing = list(islice(characters, _FEW_CHARACTERS))
    remedy = (
        "Use a vocabulary of this language: create_vocab learns one for a new model, and a model that "
        "was trained for this language has one, such as bert-base-multilingual-cased"
    )
    if fraction(lines, not lower) < _WORTH_A_WARNING:
        remedy = f"Use --do_lower_case={not lower}, as the vocabulary was learned"
    elif fraction((unicodedata.normalize("NFC", each) for each in lines), lower) < _WORTH_A_WARNING:
        remedy = 'Bring the text to the form NFC: unicodedata.normalize("NFC", text) in Python'
    elif fraction(lines, lower, [*missing, *(f"##{c}" for c in missing)]) < _WORTH_A_WARNING:
        remedy = (
            f"The vocabulary lacks {' '.join(missing)}: learn it with create_vocab "
            "--character_coverage=1, which keeps all characters of its corpus, or replace them in the "
            "text"
        )
    logger.warning(
        "%.0f%% of the words are [UNK] with this vocabulary of %d tokens and do_lower_case=%s, such as "
        "%r. Below %.0f%% is usual, and the model cannot learn such words. %s.",
        100 * found,
        len(vocab),
        lower,
        next(iter(unknown)),
        100 * _WORTH_A_WARNING,
        remedy,
    )
