"""Files of the tokenizer next to a checkpoint: vocabulary, letter case, longest input, settings.

    vocab.txt                    one WordPiece a line
    tokenizer.json               the vocabulary and the settings of the fast tokenizer
    tokenizer_config.json        {"do_lower_case": true, "model_max_length": 512, ...}
    sentence_bert_config.json    {"max_seq_length": 256}

Source: the files that transformers 4 and 5 and sentence-transformers save.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf

from bert_tf.checkpoints.checkpoint import (
    PretrainedCheckpoint,
    TokenizerFiles,
    read_sibling,
    sibling_file,
)
from bert_tf.checkpoints.hub import check_exists, local_path
from bert_tf.checkpoints.sentence_transformers import transformer_folder
from bert_tf.checkpoints.tf2 import read_saved_tokenizer
from bert_tf.config import BertConfig
from bert_tf.limits import DataError, join_names
from bert_tf.options import OptionError
from bert_tf.vocabulary import SPECIAL_TOKENS, load_vocab, vocab_is_cased

logger = logging.getLogger(__name__)

# Fraction of a checkpoint's tokens that --vocab_file may replace. The published vocabularies have up to
# 994 free places, [unused0] to [unused993]: 3.3 % of 30,522. Unrelated vocabularies differ in nearly all
# ids.
MAX_REPLACED = 0.05
_MAX_PADDING = 128  # rows; tables are padded to a multiple of 8, 64 or 128

_CONFIG, _FAST = "tokenizer_config.json", "tokenizer.json"
_SENTENCES = "sentence_bert_config.json"
# The files with tokens that WordPiece must not split, and their keys; () for the whole file.
_ADDED_TOKENS: dict[str, tuple[str, ...]] = {
    _FAST: ("added_tokens",),
    "added_tokens.json": (),
    _CONFIG: ("added_tokens_decoder", "additional_special_tokens", "extra_special_tokens"),
    "special_tokens_map.json": ("additional_special_tokens", "extra_special_tokens"),
}
_NUM_SPECIAL = 2  # [CLS] and [SEP]; an input has a token besides
_NO_LIMIT = 1e29  # `transformers` writes 1e30
# Classes for which `transformers` takes only the vocabulary of tokenizer.json.
_VOCABULARY_ONLY = {
    f"{name}Tokenizer{end}" for name in ("Bert", "DistilBert", "Electra") for end in ("", "Fast")
}
_PRE_TOKENIZER = {"type": "BertPreTokenizer"}


# ----------------------------------------------------------------------------------------- reading


def read_tokenizer_files(path: str) -> TokenizerFiles:
    """Read the files of a tokenizer in a folder, or next to a vocabulary, which replaces theirs."""
    is_folder = not path or tf.io.gfile.isdir(path)
    folder, vocab_file = (path, None) if is_folder else (os.path.dirname(path), path)
    files = {name: read_sibling(folder, name) for name in (*_ADDED_TOKENS, _SENTENCES)}
    paths = {name: os.path.join(folder, name) for name in files}
    config, fast, sentences = files[_CONFIG], files[_FAST], files[_SENTENCES]
    vocab = case = None
    if vocab_file is not None:
        vocab = tuple(load_vocab(vocab_file, required=("[UNK]",)))
    else:
        vocab, vocab_file = _fast_vocab(fast, paths[_FAST]), sibling_file(folder, "vocab.txt")
        if vocab_file is not None:
            stripped = [token.strip() for token in vocab or ()]  # as in vocab.txt
            vocab = tuple(load_vocab(vocab_file))
            _check_ids(vocab, stripped, vocab_file, paths[_FAST])
    if vocab is None and sibling_file(folder, "saved_model.pb"):
        vocab_file, case = read_saved_tokenizer(folder)
        vocab = tuple(load_vocab(vocab_file)) if vocab_file else None
    cases = [
        (paths[_CONFIG], config.get("do_lower_case")),
        (paths[_FAST], (fast.get("normalizer") or {}).get("lowercase")),
    ]
    known = [(value, file) for file, value in [(folder, case), *cases] if isinstance(value, bool)]
    if len({value for value, _ in known}) > 1:
        raise DataError(paths[_CONFIG], "`do_lower_case` contradicts tokenizer.json: correct one.")
    lengths: list[Any] = [sentences.get("max_seq_length"), config.get("model_max_length")]
    lengths = [n for n in lengths if isinstance(n, int | float) and _NUM_SPECIAL < n < _NO_LIMIT]
    return TokenizerFiles(
        folder=folder,
        vocab_file=vocab_file,
        vocab=vocab,
        cases=tuple(known),
        max_seq_length=int(lengths[0]) if lengths else None,
        settings=tuple(_settings(files, paths)),
        added_tokens={
            paths[name]: tuple(
                token
                for part in ([files[name].get(key) for key in keys] or [files[name]])
                for token in _contents(part)
                if token not in SPECIAL_TOKENS
            )
            for name, keys in _ADDED_TOKENS.items()
        },
    )


def _fast_vocab(fast: Mapping[str, Any], path: str) -> tuple[str, ...] | None:
    """Return the WordPieces in tokenizer.json, in the order of their ids; None if it has none."""
    model = fast.get("model") or {}
    if model.get("type") != "WordPiece":
        return None
    ids = model["vocab"]
    if sorted(ids.values()) != list(range(len(ids))):
        raise DataError(path, f"the ids of the vocabulary are not 0 to {len(ids) - 1}.")
    return tuple(sorted(ids, key=ids.__getitem__))


def _settings(
    files: Mapping[str, Mapping[str, Any]], paths: Mapping[str, str]
) -> Iterator[tuple[str, str, bool | None]]:
    """Yield the settings of `TokenizerFiles`; some classes take them from tokenizer.json."""
    config, fast = files[_CONFIG], files[_FAST]
    normalizer = fast.get("normalizer") or {}
    follows_fast = (config.get("tokenizer_class") or "BertTokenizer") not in _VOCABULARY_ONLY

    def stated(name: str, in_normalizer: str) -> tuple[str, Any]:
        if name in config and not (follows_fast and in_normalizer in normalizer):
            return _CONFIG, config[name]
        return _FAST, normalizer.get(in_normalizer)

    kind, basic = str(config.get("tokenizer_class")), config.get("do_basic_tokenize")
    splitter = fast.get("pre_tokenizer", _PRE_TOKENIZER)
    prefix = (fast.get("model") or {}).get("continuing_subword_prefix", "##")
    is_foreign = "normalizer" in fast and normalizer.get("type") != "BertNormalizer"
    chinese_file, chinese = stated("tokenize_chinese_chars", "handle_chinese_chars")
    accents_file, accents = stated("strip_accents", "strip_accents")
    for file, name, value, is_followed in (
        (_CONFIG, "tokenizer_class", kind, "Japanese" not in kind),
        (_CONFIG, "do_basic_tokenize", basic, basic is not False),
        (_FAST, "normalizer", normalizer, not is_foreign),
        (_FAST, "pre_tokenizer", splitter, splitter == _PRE_TOKENIZER),
        (_FAST, "continuing_subword_prefix", prefix, prefix == "##"),
        (chinese_file, "tokenize_chinese_chars", chinese, chinese is not False),
    ):
        if not is_followed:
            yield paths[file], f"bert_tf does not follow `{name}` {value!r:.60}", None
    if isinstance(accents, bool):
        yield paths[accents_file], f"`strip_accents` {accents} is not do_lower_case", accents
    if files[_SENTENCES].get("do_lower_case") is True:
        yield paths[_SENTENCES], "`do_lower_case` is true, but the tokenizer is cased", True


def _contents(added: Any) -> Iterator[str]:
    """Yield the tokens in a list or object, each a string or an object with `content`.

    The keys of {"covidvax": 30522} are tokens, those of {"30522": {"content": "covidvax"}} are not.
    """
    if isinstance(added, Mapping):
        added = [key if isinstance(value, int) else value for key, value in added.items()]
    for token in added if isinstance(added, list) else ():
        token = token.get("content") if isinstance(token, Mapping) else token
        if isinstance(token, str):
            yield token


# ------------------------------------------------------------------------- the tokenizer of a model


def find_tokenizer(
    vocab_file: str | None,
    do_lower_case: bool | None,
    checkpoint: PretrainedCheckpoint | None,
    config: BertConfig | None,
) -> tuple[TokenizerFiles, bool]:
    """Return files with a vocabulary, and the case, after checking them with checkpoint and model."""
    files = TokenizerFiles() if checkpoint is None else checkpoint.tokenizer
    if vocab_file is not None:
        files = read_tokenizer_files(vocab_file)
    if files.vocab is None:
        next_to = "" if checkpoint is None else f" next to {checkpoint.source}"
        raise ValueError(
            f"There is no vocab.txt or tokenizer.json of type WordPiece{next_to}: give vocab_file."
        )
    do_lower_case = find_case(do_lower_case, checkpoint, files) is not False
    if checkpoint is not None:
        check_case(do_lower_case, checkpoint.tokenizer.cases, files.vocab)
    if config is not None:
        source = files.vocab_file or f"next to {files.folder}"
        check_vocabulary(len(files.vocab), config.vocab_size, source)
    compare_vocabularies(vocab_file, files.vocab, checkpoint)
    return files, do_lower_case


def read_tokenizer(
    path: str | os.PathLike, do_lower_case: bool | None = None
) -> tuple[TokenizerFiles, bool]:
    """Return `find_tokenizer` for a folder or checkpoint, whose weights are not read."""
    folder = local_path(path)
    if not tf.io.gfile.isdir(folder):
        if not sibling_file(os.path.dirname(folder), "vocab.txt"):
            check_exists(folder)
        folder = os.path.dirname(folder)
    folder = transformer_folder(folder)
    files = read_tokenizer_files(folder)
    checkpoint = PretrainedCheckpoint(folder, {}, tokenizer=files)
    _, do_lower_case = find_tokenizer(None, do_lower_case, checkpoint, None)
    return files, do_lower_case


def check_vocabulary(num_tokens: int, vocab_size: int, source: str) -> None:
    """Raise if a vocabulary has ids beyond the model's table of embeddings; warn if it is too small.

    A small vocabulary does not raise, because some models use only a part of their table.
    """
    if num_tokens > vocab_size:
        raise ValueError(
            f"The vocabulary {source} has ids up to {num_tokens - 1}, but the model's `vocab_size` is "
            f"{vocab_size}: give its own vocab_file."
        )
    if num_tokens < vocab_size - _MAX_PADDING:
        logger.warning(
            "The vocabulary %s has %d tokens, but the model's `vocab_size` is %d: is it of another "
            "model?",
            *(source, num_tokens, vocab_size),
        )


def find_case(
    do_lower_case: bool | None, checkpoint: PretrainedCheckpoint | None, files: TokenizerFiles
) -> bool | None:
    """Return the first that is known: the flag, the checkpoint's files, `files`, their vocabulary."""
    stated = None if checkpoint is None else checkpoint.tokenizer.do_lower_case
    for case in (do_lower_case, stated, files.do_lower_case):
        if case is not None:
            return case
    is_cased = None if files.vocab is None else vocab_is_cased(files.vocab)
    return None if is_cased is None else not is_cased


def compare_vocabularies(
    vocab_file: str | None, vocab: Sequence[str] | None, checkpoint: PretrainedCheckpoint | None
) -> None:
    """Warn of tokens of `vocab_file` with another id than in the checkpoint; raise if there are many."""
    files = TokenizerFiles() if checkpoint is None else checkpoint.tokenizer
    if vocab_file not in (None, files.vocab_file):
        source = files.vocab_file or os.path.join(files.folder, _FAST)
        _check_ids(vocab or (), files.vocab or (), str(vocab_file), source)


def _check_ids(vocab: Sequence[str], tokens: Sequence[str], vocab_file: str, source: str) -> None:
    """Warn if some tokens of a source have another id in a vocabulary; raise if there are many."""
    ids = {token: index for index, token in enumerate(vocab)}
    differing = [token for index, token in enumerate(tokens) if ids.get(token) != index]
    problem = (
        f"{len(differing)} of the {len(tokens)} tokens in {source}, such as {join_names(differing, 3)}, "
        "have another id here. This file counts"
    )
    if len(differing) > MAX_REPLACED * len(tokens):
        raise DataError(vocab_file, f"{problem}, so remove it if it is the wrong one.")
    if differing:
        logger.warning("%s: %s.", vocab_file, problem)


def check_case(
    do_lower_case: bool, cases: Sequence[tuple[bool, str]], vocab: Collection[str]
) -> None:
    """Raise OptionError if `do_lower_case` contradicts a file, the first of `cases`, or the vocabulary.

    The reference compares it with the name of the checkpoint's folder.
    """
    is_cased = vocab_is_cased(vocab)
    if cases:
        known, evidence = cases[0]
    elif is_cased is not None:
        known, evidence = not is_cased, f"the vocabulary of {len(vocab)} tokens"
    else:
        return
    if known != do_lower_case:
        problem = f"is {do_lower_case}, but {evidence} is {'lower-case' if known else 'cased'}"
        raise OptionError("do_lower_case", f"{problem}: give {known}.")


# ----------------------------------------------------------------------------------------- writing


def tokenizer_values(do_lower_case: bool, max_seq_length: int) -> dict[str, dict[str, Any]]:
    """Return name -> content of the file next to vocab.txt for `AutoTokenizer`."""
    values = {
        "tokenizer_class": "BertTokenizer",
        "do_lower_case": do_lower_case,
        "strip_accents": None,  # as do_lower_case
        "tokenize_chinese_chars": True,
        "model_max_length": max_seq_length,
    }
    return {_CONFIG: values}
