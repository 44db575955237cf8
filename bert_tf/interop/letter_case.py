"""Whether a checkpoint is cased or uncased, by all that lies beside it.

Lower-casing text for a cased model (or the other way round) gives no error, only a bad model.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping

import tensorflow as tf

from bert_tf.interop.checkpoint import file_beside, read_json
from bert_tf.tokenization import lower_and_strip_accents

# The folders of the models that the reference published, as it knows them.
_LOWER_CASED_MODELS = (
    "uncased_L-24_H-1024_A-16",
    "uncased_L-12_H-768_A-12",
    "multilingual_L-12_H-768_A-12",
    "chinese_L-12_H-768_A-12",
)
_CASED_MODELS = (
    "cased_L-12_H-768_A-12",
    "cased_L-24_H-1024_A-16",
    "multi_cased_L-12_H-768_A-12",
)


def validate_case_matches_checkpoint(
    do_lower_case: bool,
    init_checkpoint: str | os.PathLike | None,
    vocab: Mapping[str, int] | None = None,
) -> None:
    """Refuses a `do_lower_case` that contradicts how the checkpoint was trained.

    The first of these that says anything decides: the folder of `bert_model.ckpt` has one of the
    seven names that the reference knows; the tokenizer's files beside the checkpoint
    (`stated_lower_case`); the vocabulary (`vocab_is_cased`); "cased" or "uncased" in the path.

    Args:
        do_lower_case: what the tokenizer is about to do.
        init_checkpoint: path of the checkpoint (directory, prefix or file), or None.
        vocab: token -> id, if it is at hand.

    Raises:
        ValueError: the two contradict each other, or a tokenizer's file is not JSON.

    Source: google-research/bert, tokenization.py, which knows the seven names only.
    """
    path = os.fspath(init_checkpoint) if init_checkpoint else ""
    lower_cased, evidence = next(_case_evidence(path, vocab), (do_lower_case, ""))
    if lower_cased != do_lower_case:
        with_checkpoint = f" with `--init_checkpoint={path}`" if path else ""
        raise ValueError(
            f"You passed in `--do_lower_case={do_lower_case}`{with_checkpoint}. However, {evidence}, "
            f"so the model is {'lowercased' if lower_cased else 'cased'}. Pass in "
            f"`--do_lower_case={lower_cased}`, so that the text is split as it was in pre-training."
        )


def vocab_is_cased(vocab: Iterable[str]) -> bool | None:
    """Whether a vocabulary was learned from text with upper-case letters and accents.

    Returns:
        True if at least 1 in 100 of its tokens with letters has an upper-case one, False if
        lower-casing and stripping accents changes no token, None where neither holds or fewer than
        100 tokens have a letter that exists in two cases. [...] and <...> are not counted.
    """
    tokens = [t for t in vocab if not (len(t) > 2 and t[0] + t[-1] in ("[]", "<>"))]
    num_letters = sum(token.lower() != token.upper() for token in tokens)
    num_upper = sum(token.lower() != token for token in tokens)
    if num_letters < 100:
        return None
    if num_upper * 100 >= num_letters:
        return True
    return False if all(lower_and_strip_accents(token) == token for token in tokens) else None


def stated_lower_case(folder: str) -> bool | None:
    """What the tokenizer's files in `folder` say about lowercasing; None where they say nothing.

    `tokenizer_config.json` is believed first, then the normalizer in `tokenizer.json`.
    """
    return next((value for value, _ in _statements(folder)), None)


def _statements(folder: str) -> Iterator[tuple[bool, str]]:
    """(lower-cased?, the file that says so), the most believable first."""
    path = file_beside(folder, "tokenizer_config.json")
    if path and isinstance(value := read_json(path).get("do_lower_case"), bool):
        yield value, path
    path = file_beside(folder, "tokenizer.json")
    normalizer = (read_json(path).get("normalizer") or {}) if path else {}
    if path and isinstance(value := normalizer.get("lowercase"), bool):
        yield value, path


def _case_evidence(path: str, vocab: Mapping[str, int] | None) -> Iterator[tuple[bool, str]]:
    """What is known about the checkpoint at `path`: (lower-cased?, how we know), the best first."""
    match = re.match(r"^.*?([A-Za-z0-9_-]+)/bert_model.ckpt", path)
    if match and match[1] in _LOWER_CASED_MODELS + _CASED_MODELS:
        yield match[1] in _LOWER_CASED_MODELS, f"`{match[1]}` is one of the published models"
    if path:
        for value, file in _statements(path if tf.io.gfile.isdir(path) else os.path.dirname(path)):
            yield value, f"{file} says {'lower-case' if value else 'keep the case'}"
    cased = None if vocab is None else vocab_is_cased(vocab)
    if vocab is not None and cased is not None:
        found = "tokens with upper-case letters" if cased else "none with upper case or accents"
        yield not cased, f"of the {len(vocab)} tokens in the vocabulary there are {found}"
    for name in reversed(re.split(r"[/\\]", path)):
        if "uncased" in name.lower():
            yield True, f'the name `{name}` says "uncased"'
        elif re.search(r"(?<![a-z])cased(?![a-z])", name.lower()):
            yield False, f'the name `{name}` says "cased"'
