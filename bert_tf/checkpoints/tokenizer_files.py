"""Hugging Face's tokenizer files: case, longest input, vocabulary, and unsupported settings.

    tokenizer_config.json        {"do_lower_case": true, "model_max_length": 512, ...}
    tokenizer.json               the vocabulary and the settings of the fast tokenizer
    sentence_bert_config.json    {"max_seq_length": 256}

Source: the files that transformers 4 and 5 and sentence-transformers save.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bert_tf.checkpoints.checkpoint import MOST_REPLACED, file_beside, read_beside
from bert_tf.limits import DataError, join_names
from bert_tf.tokenization import SPECIAL_TOKENS, FullTokenizer, load_vocab

logger = logging.getLogger(__name__)

_CASES = ("tokenizer_config.json", "tokenizer.json")
# The files that state the longest input, and their keys.
_NUM_SPECIAL = 2  # [CLS] and [SEP]; an input has a token besides
_NO_LIMIT = 1e29  # `transformers` writes 1e30
_LENGTHS = (
    ("sentence_bert_config.json", "max_seq_length"),
    ("tokenizer_config.json", "model_max_length"),
)
# The files with tokens that WordPiece must not split, and their keys; () for the whole file.
_ADDED_TOKENS: dict[str, tuple[str, ...]] = {
    "tokenizer.json": ("added_tokens",),
    "added_tokens.json": (),
    "tokenizer_config.json": (
        *("added_tokens_decoder", "additional_special_tokens", "extra_special_tokens"),
    ),
    "special_tokens_map.json": ("additional_special_tokens", "extra_special_tokens"),
}
# Classes for which `transformers` 5 takes only the vocabulary of tokenizer.json; None is the default.
_VOCABULARY_ONLY = (None, "BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer")
_PRE_TOKENIZER = {"type": "BertPreTokenizer"}
_SPECIAL_TOKENS = {
    "unk_token": "[UNK]",
    "sep_token": "[SEP]",
    "pad_token": "[PAD]",
    "cls_token": "[CLS]",
    "mask_token": "[MASK]",
}


def stated_lower_case(folder: str) -> bool | None:
    """Return the lowercasing that the tokenizer's files in `folder` set; None if unset.

    `tokenizer_config.json` takes precedence over the normalizer in `tokenizer.json`, except if its
    `tokenizer_class` follows the latter.
    """
    return next((value for value, _ in stated_cases(folder)), None)


def stated_cases(folder: str) -> Iterator[tuple[bool, str]]:
    """Yield (lower-cased?, the file that sets it), in order of precedence."""
    config, fast = (read_beside(folder, name) for name in _CASES)
    file, path = (os.path.join(folder, name) for name in _CASES)
    stated = config.get("do_lower_case")
    if isinstance(stated, bool) and not _follows_file(config):
        yield stated, file
    if isinstance(value := (fast.get("normalizer") or {}).get("lowercase"), bool):
        yield value, path
    if isinstance(stated, bool) and _follows_file(config):
        yield stated, file


def stated_length(folder: str) -> int | None:
    """Return the most tokens of an input by the tokenizer's files in `folder`; None if unset or below 3.

    The file of sentence-transformers takes precedence over that of `transformers`.
    """
    for name, key in _LENGTHS:
        value = read_beside(folder, name).get(key)
        if isinstance(value, int | float) and _NUM_SPECIAL < value < _NO_LIMIT:
            return int(value)
    return None


def vocab_of_tokenizer(folder: str) -> tuple[str, ...] | None:
    """Return the WordPieces in `tokenizer.json`, in the order of their ids; None if it has none."""
    model = read_beside(folder, "tokenizer.json").get("model") or {}
    if model.get("type") != "WordPiece":
        return None
    ids = model["vocab"]
    if sorted(ids.values()) != list(range(len(ids))):
        path = os.path.join(folder, "tokenizer.json")
        raise DataError(path, f"the ids of the vocabulary are not 0 to {len(ids) - 1}.")
    return tuple(sorted(ids, key=ids.__getitem__))


def check_one_vocabulary(folder: str) -> None:
    """Warn of tokens of tokenizer.json with another id in vocab.txt.

    Raises:
        ValueError: they are more than `MOST_REPLACED` of its tokens.
    """
    vocab_file, tokens = file_beside(folder, "vocab.txt"), vocab_of_tokenizer(folder)
    if vocab_file is None or tokens is None:
        return
    vocab = load_vocab(vocab_file)  # strips its tokens
    differing = [token for index, token in enumerate(tokens) if vocab.get(token.strip()) != index]
    error = DataError(
        vocab_file,
        f"{len(differing)} of {len(tokens)} tokens, such as {join_names(differing, 3)}, have another "
        "id in tokenizer.json: remove the wrong file.",
    )
    if len(differing) > MOST_REPLACED * len(tokens):
        raise error
    if differing:
        logger.warning("%s bert_tf takes vocab.txt, transformers tokenizer.json.", error)


def check_tokenization(folder: str, tokenizer: FullTokenizer) -> None:
    """Raise if the tokenizer's files in `folder` have a setting that `tokenizer` does not follow."""
    for file, setting, rule in unsupported_tokenization(folder, tokenizer):
        remedy = "convert_checkpoint omits the setting; texts that need it then have other tokens."
        raise DataError(file, f"{setting:.200}, but {rule}. {remedy}")


def unsupported_tokenization(
    folder: str, tokenizer: FullTokenizer
) -> Iterator[tuple[str, str, str]]:
    """Yield (file, its setting, rule) for the settings that `check_tokenization` rejects.

    Settings in `tokenizer_config.json` take precedence over those in `tokenizer.json`, except if its
    `tokenizer_class` follows the latter.
    """
    config, fast = (read_beside(folder, name) for name in _CASES)
    config_file, json_file = (os.path.join(folder, name) for name in _CASES)
    normalizer = fast.get("normalizer") or {}

    if "Japanese" in str(kind := config.get("tokenizer_class")):
        yield config_file, f"`tokenizer_class` is {kind!r}", "words are split at spaces here"
    if config.get("do_basic_tokenize") is False:
        yield config_file, "`do_basic_tokenize` is False", "words are split at punctuation here"
    if (splitter := fast.get("pre_tokenizer", _PRE_TOKENIZER)) != _PRE_TOKENIZER:
        yield json_file, f"`pre_tokenizer` is {splitter!r}", "it must be BERT's"

    def stated(name: str, in_normalizer: str) -> tuple[str, Any]:
        if name in config and not (_follows_file(config) and in_normalizer in normalizer):
            return config_file, config[name]
        return json_file, normalizer.get(in_normalizer)

    file, accents = stated("strip_accents", "strip_accents")
    if isinstance(accents, bool) and accents != tokenizer.do_lower_case:
        rule = f"it must equal do_lower_case, which is {tokenizer.do_lower_case}"
        yield file, f"`strip_accents` is {accents}", rule
    file, chinese = stated("tokenize_chinese_chars", "handle_chinese_chars")
    if chinese is False:
        yield file, "`tokenize_chinese_chars` is False", "Chinese characters are split here"
    if (prefix := (fast.get("model") or {}).get("continuing_subword_prefix", "##")) != "##":
        yield json_file, f"`continuing_subword_prefix` is {prefix!r}", "it must be '##'"
    name = "sentence_bert_config.json"
    if read_beside(folder, name).get("do_lower_case") is True and not tokenizer.do_lower_case:
        yield (
            os.path.join(folder, name),
            "`do_lower_case` is true",
            "the tokenizer next to it is cased",
        )
    for file, tokens in _added_tokens(folder):
        if split := [token for token in tokens if tokenizer.tokenize(token) != [token]]:
            setting = f"the tokens {join_names(split, 5)} are added to the vocabulary"
            yield file, setting, "bert_tf cannot keep them whole"


def _follows_file(config: Mapping[str, Any]) -> bool:
    """Return True if `transformers` follows all settings of tokenizer.json for the `tokenizer_class`."""
    kind = config.get("tokenizer_class")
    return (kind.removesuffix("Fast") if isinstance(kind, str) else kind) not in _VOCABULARY_ONLY


def _added_tokens(folder: str) -> Iterator[tuple[str, Iterator[str]]]:
    """Yield (file, the tokens that it adds to the vocabulary), without the `SPECIAL_TOKENS`."""
    for name, keys in _ADDED_TOKENS.items():
        values = read_beside(folder, name)
        lists = [values.get(key) for key in keys] or [values]
        tokens = (token for some in lists for token in _contents(some))
        yield os.path.join(folder, name), (token for token in tokens if token not in SPECIAL_TOKENS)


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


def tokenizer_values(
    vocab: Sequence[str], do_lower_case: bool, max_seq_length: int
) -> dict[str, dict[str, Any]]:
    """Return name -> content of the files next to vocab.txt for `AutoTokenizer`.

    `transformers` makes tokenizer.json from these files.
    """
    present = {role: token for role, token in _SPECIAL_TOKENS.items() if token in vocab}
    values = {
        "tokenizer_class": "BertTokenizer",
        "do_lower_case": do_lower_case,
        "strip_accents": None,  # as do_lower_case
        "tokenize_chinese_chars": True,
        "model_max_length": max_seq_length,
        **present,
    }
    return {"tokenizer_config.json": values, "special_tokens_map.json": present}
