"""Words of a text that are [UNK] because the vocabulary does not fit it."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from bert_tf.pretraining.wordpieces import count_words, measure_coverage
from bert_tf.tokenization import FullTokenizer

logger = logging.getLogger(__name__)

# Fraction of all words. With their usual vocabularies SST-2 and English Wikipedia have at most 0.5 %,
# the tweets of WNUT 2017 at most 0.9 %, Korean and Chinese Wikipedia 0.5 %.
_WORTH_A_WARNING = 0.05
_FEWEST = 10  # unknown words, counted with repetitions


def warn_of_unknown_words(lines: Iterable[str], tokenizer: FullTokenizer) -> None:
    """Warn if 5 % or more of the words of a text are [UNK].

    Args:
        lines: a sample of the text.
    """
    coverage = measure_coverage(tokenizer.vocab, count_words(lines, tokenizer.do_lower_case))
    unknown = coverage.unknown_share
    if unknown >= _WORTH_A_WARNING and unknown * coverage.num_words >= _FEWEST:
        logger.warning(
            "%.0f%% of the words are [UNK] with this vocabulary and do_lower_case=%s; below 5%% is "
            "usual. Do the language and the case fit?",
            100 * unknown,
            tokenizer.do_lower_case,
        )
