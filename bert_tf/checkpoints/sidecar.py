"""Files next to a checkpoint: architecture, vocabulary and case, unless flags name others."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import tensorflow as tf

from bert_tf.characters import lower_and_strip_accents
from bert_tf.checkpoints.checkpoint import MOST_REPLACED, PretrainedCheckpoint, file_beside
from bert_tf.checkpoints.hub import check_exists, local_path
from bert_tf.checkpoints.tf2 import read_saved_model
from bert_tf.checkpoints.tokenizer_files import (
    check_one_vocabulary,
    check_tokenization,
    stated_cases,
    stated_lower_case,
    vocab_of_tokenizer,
)
from bert_tf.config import BertConfig
from bert_tf.limits import DataError, check_inside, read_json
from bert_tf.options import OptionError
from bert_tf.tokenization import FullTokenizer, load_vocab

logger = logging.getLogger(__name__)

MODULES_FILE = "modules.json"  # of sentence-transformers
_MOST_PADDING = 128  # rows; tables are padded to a multiple of 8, 64 or 128


def find_config(
    bert_config_file: str | None, checkpoint: PretrainedCheckpoint | None
) -> BertConfig:
    """Return the architecture from the flag, or from the file next to the checkpoint.

    Raises:
        ValueError: neither exists.
    """
    if bert_config_file:
        return BertConfig.from_json_file(bert_config_file)
    if checkpoint is None or checkpoint.config is None:
        remedy = (
            "give init_checkpoint, or bert_config_file for random weights"
            if checkpoint is None
            else f"there is no bert_config.json next to {checkpoint.source}, so give bert_config_file"
        )
        raise ValueError(f"The sizes of the model are unknown: {remedy}.")
    return checkpoint.config


def load_tokenizer(
    vocab_file: str | None,
    do_lower_case: bool | None,
    checkpoint: PretrainedCheckpoint | None,
    config: BertConfig,
) -> FullTokenizer:
    """Return the tokenizer of a run, after checking that it fits the checkpoint and the model.

    Args:
        vocab_file: from the flag; None means the one next to the checkpoint.
        do_lower_case: from the flag. None: the setting of the checkpoint, else of the files next to
            `vocab_file`, else whether the vocabulary is lower-case, else True.
        checkpoint: initial weights, or None.
        config: architecture; its `vocab_size` must exceed every id.

    Raises:
        ValueError: the vocabulary is missing, too large, of another case, or has other ids for
            more than `MOST_REPLACED` of the checkpoint's tokens; or `check_tokenization` raises.
    """
    tokens = find_vocabulary(vocab_file, checkpoint)
    if tokens is None:
        beside = "" if checkpoint is None else f" next to {checkpoint.source}"
        raise ValueError(f"There is no vocab.txt{beside}: give vocab_file, or copy it there.")
    do_lower_case = find_case(do_lower_case, checkpoint, tokens, vocab_file)
    do_lower_case = True if do_lower_case is None else do_lower_case
    tokenizer = FullTokenizer(tokens, do_lower_case=do_lower_case)
    if checkpoint is not None:
        validate_case_matches_checkpoint(do_lower_case, checkpoint.source, tokenizer.vocab)
    path = vocab_file or (checkpoint.source if checkpoint is not None else "")
    check_tokenization(path if tf.io.gfile.isdir(path) else os.path.dirname(path), tokenizer)
    check_vocabulary(tokenizer.vocab, config, vocab_file or f"next to {path}")
    compare_vocabularies(vocab_file, checkpoint)
    return tokenizer


def read_tokenizer(
    path: str | os.PathLike,
    tokenizer_class: type[FullTokenizer] = FullTokenizer,
    do_lower_case: bool | None = None,
    **kwargs,
) -> FullTokenizer:
    """Return the tokenizer of a folder or checkpoint; see `FullTokenizer.from_pretrained`."""
    folder = local_path(path)
    if not tf.io.gfile.isdir(folder):
        if not file_beside(os.path.dirname(folder), "vocab.txt"):
            check_exists(folder)
        folder = os.path.dirname(folder)
    folder = transformer_folder(folder)
    check_one_vocabulary(folder)
    vocab_file, stated = file_beside(folder, "vocab.txt"), stated_lower_case(folder)
    tokens: Sequence[str] | None
    tokens = list(load_vocab(vocab_file)) if vocab_file else vocab_of_tokenizer(folder)
    if tokens is None and file_beside(folder, "saved_model.pb"):
        saved = read_saved_model(folder)
        tokens, stated = saved.vocab, saved.do_lower_case
    if tokens is None:
        raise ValueError(
            f"{folder or '.'} has no vocab.txt, and no tokenizer.json of type WordPiece: copy it there."
        )
    if do_lower_case is None:
        do_lower_case = stated
    if do_lower_case is None:
        do_lower_case = vocab_is_cased(tokens) is not True
    validate_case_matches_checkpoint(do_lower_case, folder, dict.fromkeys(tokens, 0))
    tokenizer = tokenizer_class(tokens, do_lower_case, **kwargs)
    check_tokenization(folder, tokenizer)
    config = file_beside(folder, "bert_config.json") or file_beside(folder, "config.json")
    size = read_json(config).get("vocab_size") if config else None
    if problem := missing_tokens(len(tokens), size or 0, f"in {folder or '.'}"):
        logger.warning(problem)
    return tokenizer


def check_vocabulary(vocab: Mapping[str, int], config: BertConfig, source: str) -> None:
    """Raise if the vocabulary has ids beyond the model's table of embeddings; warn if it is too small.

    A small vocabulary does not raise, because some models use only a part of their table.
    """
    largest = max(vocab.values())
    if largest >= config.vocab_size:
        raise ValueError(
            f"The vocabulary {source} has ids up to {largest}, but the model's `vocab_size` is "
            f"{config.vocab_size}: give its own vocab_file."
        )
    if problem := missing_tokens(largest + 1, config.vocab_size, source):
        logger.warning(problem)


def missing_tokens(num_tokens: int, vocab_size: int, source: str) -> str:
    """Return the problem of a vocabulary that lacks tokens of the model; "" for padding at most."""
    if num_tokens >= vocab_size - _MOST_PADDING:
        return ""
    return (
        f"The vocabulary {source} has {num_tokens} tokens, but the model's `vocab_size` is {vocab_size}"
        ": is it of another model?"
    )


def find_vocabulary(
    vocab_file: str | None, checkpoint: PretrainedCheckpoint | None
) -> Sequence[str] | None:
    """Return the tokens in the order of their ids, from the flag or the checkpoint; else None."""
    if vocab_file is None:
        return None if checkpoint is None else checkpoint.vocab
    return list(load_vocab(vocab_file, required=("[UNK]",)))


def find_case(
    do_lower_case: bool | None,
    checkpoint: PretrainedCheckpoint | None,
    tokens: Sequence[str] | None,
    vocab_file: str | None = None,
) -> bool | None:
    """Return True if text is lower-cased, None if unknown.

    The first known setting counts: the flag, the checkpoint, files next to `vocab_file`, the tokens.
    """
    if do_lower_case is None and checkpoint is not None:
        do_lower_case = checkpoint.do_lower_case
    if do_lower_case is None and vocab_file:
        do_lower_case = stated_lower_case(os.path.dirname(vocab_file))
    if do_lower_case is None and tokens is not None:
        cased = vocab_is_cased(tokens)
        do_lower_case = None if cased is None else not cased
    return do_lower_case


def compare_vocabularies(vocab_file: str | None, checkpoint: PretrainedCheckpoint | None) -> None:
    """Warn of tokens with another id than in the checkpoint's vocabulary.

    Raises:
        ValueError: more than `MOST_REPLACED` of the checkpoint's tokens have another id or none.
    """
    if checkpoint is None or vocab_file in (None, checkpoint.vocab_file):
        return
    theirs = checkpoint.vocab_file or f"the tokenizer.json next to {checkpoint.source}"
    tokens = checkpoint.vocab or ()
    vocab = load_vocab(vocab_file)
    differing = [(token, index) for index, token in enumerate(tokens) if vocab.get(token) != index]
    if not differing:
        return
    fraction = len(differing) / len(tokens)
    counted = f"{len(differing)} of the {len(tokens)} tokens ({100 * fraction:.3g} %) in {theirs}"
    examples = ", ".join(repr(token) for token, _ in differing[:3])
    problem = f"{counted} have another id or none in it, such as {examples}: omit vocab_file."
    if fraction > MOST_REPLACED:
        raise DataError(vocab_file, problem)
    logger.warning("%s: %s", vocab_file, problem)


# Folders of the reference's published models, with its own names.
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
    """Raise if `do_lower_case` contradicts the training of the checkpoint.

    The first evidence found decides:

    1. the folder of `bert_model.ckpt` has one of the reference's seven published names;
    2. the tokenizer's files next to the checkpoint (`stated_lower_case`);
    3. the vocabulary (`vocab_is_cased`);
    4. "cased" or "uncased" in the path.

    Args:
        do_lower_case: the setting of the tokenizer.
        init_checkpoint: path of the checkpoint (directory, prefix or file), or None.
        vocab: token -> id, if available.

    Raises:
        ValueError: the two contradict each other, or a tokenizer's file is not JSON.

    Source: google-research/bert, tokenization.py, which checks the seven names only.
    """
    path = os.fspath(init_checkpoint) if init_checkpoint else ""
    lower_cased, evidence = next(_case_evidence(path, vocab), (do_lower_case, ""))
    if lower_cased != do_lower_case:
        problem = f"is {do_lower_case}, but {evidence}: give {lower_cased}."
        raise OptionError("do_lower_case", problem)


def vocab_is_cased(vocab: Iterable[str]) -> bool | None:
    """Return True if a vocabulary was learned from text with upper-case letters and accents.

    Returns:
        True if at least 1 in 100 tokens with letters has an upper-case letter. False if lower-casing
        and stripping accents changes no token. Otherwise None, and also if fewer than 100 tokens have
        a letter that exists in two cases. [...] and <...> are not counted.
    """
    tokens = [t for t in vocab if not (len(t) > 2 and t[0] + t[-1] in ("[]", "<>"))]
    num_letters = sum(token.lower() != token.upper() for token in tokens)
    num_upper = sum(token.lower() != token for token in tokens)
    if num_letters < 100:
        return None
    if num_upper * 100 >= num_letters:
        return True
    return False if all(lower_and_strip_accents(token) == token for token in tokens) else None


def _case_evidence(path: str, vocab: Mapping[str, int] | None) -> Iterator[tuple[bool, str]]:
    """Yield (lower-cased?, the evidence) for the checkpoint at `path`, the most reliable first."""
    match = re.match(r"^.*?([A-Za-z0-9_-]+)/bert_model.ckpt", path)
    if match and match[1] in _LOWER_CASED_MODELS + _CASED_MODELS:
        yield match[1] in _LOWER_CASED_MODELS, f"`{match[1]}` is one of the published models"
    if path:
        for value, file in stated_cases(path if tf.io.gfile.isdir(path) else os.path.dirname(path)):
            yield value, f"{file} sets {'lower-case' if value else 'cased'} text"
    cased = None if vocab is None else vocab_is_cased(vocab)
    if vocab is not None and cased is not None:
        found = "upper-case letters" if cased else "neither upper case nor accents"
        yield not cased, f"the vocabulary of {len(vocab)} tokens has {found}"
    for name in reversed(re.split(r"[/\\]", path)):
        if "uncased" in name.lower():
            yield True, f'the name `{name}` contains "uncased"'
        elif re.search(r"(?<![a-z])cased(?![a-z])", name.lower()):
            yield False, f'the name `{name}` contains "cased"'


def transformer_folder(folder: str) -> str:
    """Return `folder`, or the folder of the transformer if it is a sentence-transformers model."""
    if not os.path.isfile(os.path.join(folder, MODULES_FILE)):
        return folder
    kinds = {kind.rpartition(".")[2]: path.rstrip(os.sep) for kind, path in read_modules(folder)}
    return kinds.get("Transformer", folder)


def read_modules(folder: str) -> list[tuple[str, str]]:
    """Return the class and the folder of each module of a sentence-transformers model.

    Raises:
        ValueError: modules.json names a folder outside of its own.
    """
    source = os.path.join(folder, MODULES_FILE)
    # [{"type": "sentence_transformers.models.Transformer", "path": "", ...}]
    modules = read_json(source, kind=list)
    for module in modules:
        check_inside(module["path"], "folder", source)
    return [(module["type"], os.path.join(folder, module["path"])) for module in modules]
