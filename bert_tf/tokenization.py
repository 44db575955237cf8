"""WordPiece tokenization, equal to the reference token for token. Uses the standard library only.

    "Jim Henson was a puppeteer"                    text
    jim henson was a puppeteer                      BasicTokenizer: clean, lower-case, split
    jim henson was a puppet ##eer                   WordpieceTokenizer: longest match first
    3958 27227 2001 1037 13997 11510                convert_tokens_to_ids

Bulk work calls `FullTokenizer.encode`, which caches the ids of each distinct word.
`bert_tf.serving.text_tokenizer` is the same tokenization as TensorFlow operations.

Source: google-research/bert, tokenization.py. Unlike there, duplicate lines of a vocabulary and bytes
that are not UTF-8 are errors.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

from bert_tf.characters import CLEANED, SPACED_PUNCTUATION, lower_and_strip_accents
from bert_tf.packing import PackedSequence, pack, pack_all
from bert_tf.vocabulary import SPECIAL_TOKENS, load_vocab

if TYPE_CHECKING:
    from bert_tf.checkpoints.checkpoint import PretrainedCheckpoint, TokenizerFiles
    from bert_tf.config import BertConfig

MAX_INPUT_CHARS_PER_WORD = 200  # a longer word is [UNK]

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


# ------------------------------------------------------------------------------------------- text


def convert_to_unicode(text: str | bytes) -> str:
    """Return `text` as `str`. Bytes are decoded as UTF-8, without invalid bytes."""
    if isinstance(text, str):
        return text
    if isinstance(text, bytes):
        return text.decode("utf-8", "ignore")
    raise ValueError(f"`text` must be `str` or UTF-8 `bytes`, but is {type(text)}.")


def printable_text(text: str | bytes) -> str:
    """Return `text` as `str` for `print` and logs: in Python 3, `convert_to_unicode`."""
    return convert_to_unicode(text)


def whitespace_tokenize(text: str) -> list[str]:
    """Split `text` at whitespace, as `str.split` does."""
    return text.split()


# ------------------------------------------------------------------------------------- vocabulary


def convert_by_vocab(vocab: Mapping[_Key, _Value], items: Iterable[_Key]) -> list[_Value]:
    """Return `vocab[item]` for each item, tokens or ids. Raise KeyError if one is unknown."""
    return [vocab[item] for item in items]


def convert_tokens_to_ids(vocab: Mapping[str, int], tokens: Iterable[str]) -> list[int]:
    return convert_by_vocab(vocab, tokens)


def convert_ids_to_tokens(inv_vocab: Mapping[int, str], ids: Iterable[int]) -> list[str]:
    return convert_by_vocab(inv_vocab, ids)


_ASCII_TOKENS = re.compile("[A-Za-z0-9]+|[!-~]").findall


# ------------------------------------------------------------------------------------- tokenizers


class BasicTokenizer:
    """Tokenizer of text to words: clean, separate ideographs, lower-case, split punctuation."""

    def __init__(self, do_lower_case: bool = True):
        self.do_lower_case = do_lower_case

    def tokenize(self, text: str | bytes) -> list[str]:
        words = convert_to_unicode(text).translate(CLEANED).split()
        return list(chain.from_iterable(map(self._split_word, words)))

    def _split_word(self, word: str) -> list[str]:
        """Split a cleaned word without whitespace into tokens.

        Lower-casing needs the whole word: "ΟΔΟΣ" ends in "ς", while "ΟΔΟΣ.Α" has "σ".
        """
        if self.do_lower_case:
            word = lower_and_strip_accents(word)
        if word.isalnum():
            return [word]
        if word.isascii():
            return _ASCII_TOKENS(word)
        return word.translate(SPACED_PUNCTUATION).split()


class WordpieceTokenizer:
    """Tokenizer of words to word pieces, longest match first. "##" marks continuations.

    The vocabulary must not change afterwards.
    """

    def __init__(
        self,
        vocab: Mapping[str, int],
        unk_token: str = "[UNK]",
        max_input_chars_per_word: int = MAX_INPUT_CHARS_PER_WORD,
    ):
        self.vocab = vocab
        self.unk_token = unk_token
        self.max_input_chars_per_word = max_input_chars_per_word
        self._longest = max(map(len, vocab), default=0)

    def tokenize(self, text: str | bytes) -> list[str]:
        words = convert_to_unicode(text).split()
        return list(chain.from_iterable(map(self._split_word, words)))

    def _split_word(self, word: str) -> list[str]:
        length = len(word)
        if length > self.max_input_chars_per_word:
            return [self.unk_token]
        vocab = self.vocab
        if word in vocab:
            return [word]
        pieces = []
        start, prefix, longest = 0, "", self._longest
        while start < length:
            for end in range(min(length, start + longest), start, -1):
                piece = prefix + word[start:end]
                if piece in vocab:
                    break
            else:
                return [self.unk_token]
            pieces.append(piece)
            start, prefix, longest = end, "##", self._longest - 2
        return pieces


class FullTokenizer:
    """Tokenizer of text to word pieces and ids.

    Args:
        vocab_file: file with one token per line (`load_vocab`), or the tokens in the order of their
            ids. Must contain `[UNK]`.
        do_lower_case: as the checkpoint was trained (`from_pretrained` finds it).
        preserve_special_tokens: keep a literal [PAD], [UNK], [CLS], [SEP] or [MASK] in the text
            whole if the vocabulary has it, as needed to fill in a mask. The reference splits them:
            "[ mask ]".

    Attributes:
        vocab, inv_vocab: token -> id, and id -> token.

    Raises:
        ValueError: the vocabulary is invalid (`load_vocab`).

    >>> tokenizer = FullTokenizer(["[UNK]", "un", "##aff", "##able", "!"])
    >>> tokenizer.tokenize("Unaffable?!"), tokenizer.encode("Unaffable?!")
    (['un', '##aff', '##able', '[UNK]', '!'], [1, 2, 3, 0, 4])
    """

    def __init__(
        self,
        vocab_file: str | os.PathLike | Sequence[str],
        do_lower_case: bool = True,
        *,
        preserve_special_tokens: bool = False,
    ):
        if isinstance(vocab_file, (str, os.PathLike)):
            self.vocab = load_vocab(vocab_file, required=("[UNK]",))
        else:
            self.vocab = {token: index for index, token in enumerate(vocab_file)}
            if "[UNK]" not in self.vocab or len(self.vocab) != len(vocab_file):
                raise ValueError(
                    f"The vocabulary of {len(vocab_file)} tokens has no [UNK] or a duplicate token."
                )
        self.inv_vocab = {index: token for token, index in self.vocab.items()}
        self.do_lower_case = do_lower_case
        self.preserve_special_tokens = preserve_special_tokens
        self.basic_tokenizer = BasicTokenizer(do_lower_case=do_lower_case)
        self.wordpiece_tokenizer = WordpieceTokenizer(vocab=self.vocab)
        self._start_caches()

    @classmethod
    def from_pretrained(
        cls, path: str | os.PathLike, do_lower_case: bool | None = None, **kwargs
    ) -> FullTokenizer:
        """Return the tokenizer of a model folder or checkpoint.

        Args:
            path: any value of `--init_checkpoint`. The weights are not read. The vocabulary is
                vocab.txt or tokenizer.json.
            do_lower_case: overrides the case, which is taken from the files, else from the vocabulary.
            **kwargs: `preserve_special_tokens`.

        Raises:
            FileNotFoundError: the folder does not exist.
            ValueError: it contains no vocabulary, `do_lower_case` contradicts its files, or they have a
                setting that this tokenizer does not follow.
        """
        from bert_tf.checkpoints.tokenizer_files import read_tokenizer  # imports TensorFlow

        return cls._from_files(*read_tokenizer(path, do_lower_case), **kwargs)

    @classmethod
    def _from_files(cls, files: TokenizerFiles, do_lower_case: bool, **kwargs) -> FullTokenizer:
        tokenizer = cls(files.vocab or (), do_lower_case, **kwargs)
        for error in files.unsupported(do_lower_case, tokenizer.tokenize):
            raise error
        return tokenizer

    def __call__(
        self,
        texts: str | Sequence[str],
        pairs: str | Sequence[str] | None = None,
        *,
        max_length: int | None = None,
        pad_to_max_length: bool = False,
    ) -> dict[str, Any]:
        """Return model inputs for texts or pairs of texts.

        Args:
            texts: B texts; a single one is a batch of one.
            pairs: the second text of each pair, or None.
            max_length: tokens of an example with [CLS] and [SEP]. Longer examples are truncated, the
                longer text of a pair first. None truncates nothing.
            pad_to_max_length: set S to `max_length`. Default: the longest example of the batch.

        Returns:
            NumPy int32 [B, S]: `input_ids`; `input_mask`, 1 = real, 0 = padding; `segment_ids`, 0 =
            first text and padding, 1 = second.

        Raises:
            TypeError: a text is not a string.
            ValueError: `pairs` and `texts` differ in number, or `max_length` has no room for [CLS]
                and [SEP].

        >>> tokenizer = FullTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "un", "##able", "dog"])
        >>> tokenizer(["Unable dog", "dog"])["input_ids"].tolist()
        [[2, 4, 5, 6, 3], [2, 6, 3, 0, 0]]
        """
        texts = _list_of_texts("texts", texts)
        seconds = [""] * len(texts) if pairs is None else _list_of_texts("pairs", pairs)
        if pad_to_max_length and max_length is None:
            raise ValueError("`pad_to_max_length` needs a `max_length`.")
        ids = [(self.encode(a), self.encode(b)) for a, b in zip(texts, seconds, strict=True)]
        length = max((len(a) + len(b) + (3 if b else 2) for a, b in ids), default=2)
        if max_length is not None and (length > max_length or pad_to_max_length):
            length = max_length
        cls_id, sep_id = self.convert_tokens_to_ids(["[CLS]", "[SEP]"])
        inputs = pack_all(ids, max_seq_length=length, cls_id=cls_id, sep_id=sep_id)
        inputs["input_ids"][inputs["input_mask"] == 0] = self.vocab.get("[PAD]", 0)
        return inputs

    def decode(self, ids: Iterable[Any], *, skip_special_tokens: bool = True) -> Any:
        """Return the text of ids, or a list of texts for a batch.

        Word pieces are joined, and words are separated by spaces. Case, accents and spacing that the
        tokenizer removed stay lost.

        Args:
            ids: int [S] or [B, S]: lists, NumPy arrays or tensors.
            skip_special_tokens: leave out [PAD], [CLS] and [SEP].

        >>> tokenizer = FullTokenizer(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "un", "##able", "dog"])
        >>> tokenizer.decode([[2, 4, 5, 6, 3], [2, 6, 3, 0, 0]])
        ['unable dog', 'dog']
        """
        rows = ids.numpy() if hasattr(ids, "numpy") else ids
        rows = rows.tolist() if hasattr(rows, "tolist") else list(rows)
        first = rows[0] if rows else None
        if isinstance(first, (list, tuple)) or len(getattr(first, "shape", ())):
            return [self.decode(row, skip_special_tokens=skip_special_tokens) for row in rows]
        left_out = ("[PAD]", "[CLS]", "[SEP]") if skip_special_tokens else ()
        tokens = [token for token in self.convert_ids_to_tokens(rows) if token not in left_out]
        return " ".join(tokens).replace(" ##", "")

    def tokenize(self, text: str | bytes) -> list[str]:
        """Return the word pieces of `text`."""
        pieces = []
        for part in self._parts(convert_to_unicode(text)):
            if self.preserve_special_tokens and self._is_special(part):
                pieces.append(part)
                continue
            for word in self.basic_tokenizer.tokenize(part):
                pieces.extend(self.wordpiece_tokenizer.tokenize(word))
        return pieces

    def encode(self, text: str | bytes) -> list[int]:
        """Return `convert_tokens_to_ids(tokenize(text))`, several times as fast.

        [CLS] and [SEP] are not added; `bert_tf.packing` adds them.
        """
        text = convert_to_unicode(text)
        if not self.preserve_special_tokens:
            return self._encode_plain(text)
        ids = []
        for part in self._parts(text):
            if self._is_special(part):
                ids.extend(self.convert_tokens_to_ids([part]))
            else:
                ids.extend(self._encode_plain(part))
        return ids

    def convert_tokens_to_ids(self, tokens: Iterable[str]) -> list[int]:
        return convert_tokens_to_ids(self.vocab, tokens)

    def convert_ids_to_tokens(self, ids: Iterable[int]) -> list[str]:
        return convert_ids_to_tokens(self.inv_vocab, ids)

    def _is_special(self, part: str) -> bool:
        return part in SPECIAL_TOKENS and part in self.vocab

    def _parts(self, text: str) -> Sequence[str]:
        if self.preserve_special_tokens and "[" in text:
            return _SPECIAL_TOKEN.split(text)
        return (text,)

    def _encode_plain(self, text: str) -> list[int]:
        # Splitting before cleaning gives the same words, except at controls that `str.split` treats
        # as whitespace. Cleaning drops these: "a\x0bb" is one word.
        if not text.isprintable() and _WHITESPACE_THAT_IS_DROPPED.search(text):
            text = _WHITESPACE_THAT_IS_DROPPED.sub("", text)
        return list(chain.from_iterable(map(self._word_ids.__getitem__, text.split())))

    def _ids_of_raw_word(self, raw_word: str) -> tuple[int, ...]:
        split_word = self.basic_tokenizer._split_word
        if raw_word.isascii() and raw_word.isprintable():  # nothing to clean
            tokens = split_word(raw_word)
        else:
            words = raw_word.translate(CLEANED).split()
            tokens = list(chain.from_iterable(map(split_word, words)))
        if len(tokens) == 1:
            return self._token_ids[tokens[0]]
        return tuple(chain.from_iterable(map(self._token_ids.__getitem__, tokens)))

    def _ids_of_token(self, token: str) -> tuple[int, ...]:
        return tuple(map(self.vocab.__getitem__, self.wordpiece_tokenizer._split_word(token)))

    def _start_caches(self) -> None:
        self._word_ids = _WordCache(self._ids_of_raw_word)  # "Henson's," -> ids
        self._token_ids = _WordCache(self._ids_of_token)  # "henson" -> ids

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in vars(self).items() if k not in ("_word_ids", "_token_ids")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._start_caches()


def load_tokenizer(
    vocab_file: str | None,
    do_lower_case: bool | None,
    checkpoint: PretrainedCheckpoint | None,
    config: BertConfig,
) -> FullTokenizer:
    """Return the tokenizer of a run, after the checks of `find_tokenizer`, with its arguments."""
    from bert_tf.checkpoints.tokenizer_files import find_tokenizer  # imports TensorFlow

    return FullTokenizer._from_files(*find_tokenizer(vocab_file, do_lower_case, checkpoint, config))


def _list_of_texts(name: str, texts: Any) -> list[str]:
    texts = [texts] if isinstance(texts, (str, bytes)) else texts
    is_table = isinstance(texts, Mapping) or hasattr(texts, "columns")  # which gives its names
    texts = list(texts)
    if is_table or not all(isinstance(text, (str, bytes)) for text in texts):
        raise TypeError(f"`{name}` must be a text or a list of texts, but is {texts!r:.60}.")
    return texts


def pack_texts(
    tokenizer: FullTokenizer, text_a: str, text_b: str | None, max_seq_length: int
) -> PackedSequence:
    cls_id, sep_id = tokenizer.convert_tokens_to_ids(["[CLS]", "[SEP]"])
    return pack(
        tokenizer.encode(text_a),
        None if text_b is None else tokenizer.encode(text_b),
        max_seq_length=max_seq_length,
        cls_id=cls_id,
        sep_id=sep_id,
    )


_SPECIAL_TOKEN = re.compile("(" + "|".join(map(re.escape, SPECIAL_TOKENS)) + ")")
_WHITESPACE_THAT_IS_DROPPED = re.compile("[\x0b\x0c\x1c-\x1f\x85]")

# 30 MB of English have 350,000 distinct words. A word and its ids take about 250 bytes.
_MAX_CACHED_WORDS = 1 << 19
_MAX_CACHED_LENGTH = 64  # characters; longer ones (addresses, unspaced scripts) seldom recur


class _WordCache(dict):
    """Cache of word -> `compute(word)` that is cleared when full."""

    def __init__(self, compute: Callable[[str], tuple[int, ...]]):
        super().__init__()
        self._compute = compute

    def __missing__(self, word: str) -> tuple[int, ...]:
        ids = self._compute(word)
        if len(word) <= _MAX_CACHED_LENGTH:
            if len(self) >= _MAX_CACHED_WORDS:
                self.clear()
            self[word] = ids
        return ids
