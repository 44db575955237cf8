"""The text of an answer, from the word pieces that the model chose, as the reference finds it.

The word pieces are lower-cased and taken apart, and the words of the passage that they are of may hold
more than the answer: "steve smith" in "Steve Smith's". So both are put side by side character by
character, which works where cleaning has changed their number by spaces alone.

Source: google-research/bert, run_squad.py, `get_final_text`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bert_tf.tokenization import BasicTokenizer


def join_pieces(pieces: Sequence[str]) -> str:
    """Word pieces as text.

    >>> join_pieces(["un", "##aff", "##able", "!"])
    'unaffable !'
    """
    text = " ".join(pieces).replace(" ##", "").replace("##", "")
    return " ".join(text.split())


def get_final_text(
    predicted: str,
    original: str,
    tokenizer: BasicTokenizer,
    report: Callable[[str], None] | None = None,
) -> str:
    """The part of `original` that `predicted` stands for; all of it where the two do not fit.

    Args:
        predicted: of `join_pieces`.
        original: the words of the passage that the pieces are of, with one space between them.
        report: takes a sentence where the two do not fit.

    >>> get_final_text("steve smith", "Steve Smith's", BasicTokenizer())
    'Steve Smith'
    """
    report = report or (lambda sentence: None)
    normalized = " ".join(tokenizer.tokenize(original))
    start = normalized.find(predicted)
    if start == -1:
        report(f"Unable to find text: {predicted!r} in {original!r}")
        return original
    end = start + len(predicted) - 1
    if predicted.startswith(" ") or predicted.endswith(" ") or not predicted:
        report(f"No character of {original!r} is {predicted!r}")
        return original
    places = [index for index, char in enumerate(original) if char != " "]
    if len(places) != len(normalized) - normalized.count(" "):
        report(f"Length not equal after stripping spaces: {original!r} vs {normalized!r}")
        return original
    first = start - normalized.count(" ", 0, start)
    last = end - normalized.count(" ", 0, end)
    return original[places[first] : places[last] + 1]
