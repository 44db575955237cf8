"""FullTokenizer as TensorFlow operations: for tf.data and for SavedModels that take raw text.

tensorflow-text's own BERT tokenizers split differently from the one that the checkpoints were
trained with (they case-fold, and their Unicode tables are not Python's). Here a text becomes a
vector of code points, and everything that the rules say about a character is looked up in a table
made from Python's `unicodedata`, the same source that `bert_tf.tokenization` asks. Only the last
step, the longest match, is tensorflow-text's: bytes against a trie, which knows no Unicode.

Letters in the comments: B texts, C code points, L letters (what words consist of), W words.
"""

from __future__ import annotations

import collections
import functools
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_text

from bert_tf.tokenization import (
    MAX_INPUT_CHARS_PER_WORD,
    is_chinese_char,
    is_dropped,
    is_punctuation,
    is_whitespace,
)

# A code point in the graph carries what the rules say about it in the bits above its value. After
# the first look-up the value is that of the cleaned (and lower-cased, decomposed) character, and 0
# means: nothing is left of it.
_CODE_POINT = (1 << 21) - 1
_SEPARATOR = 1 << 21  # whitespace
_ALONE = 1 << 22  # a word of its own: punctuation, an ideograph
_MARK = 1 << 23  # Mn of combining class 0: dropped late, for it limits the reordering of NFD
_MORE = 1 << 24  # further characters come from the same one
_ORDER_SHIFT = 25  # 0, or the rank of its combining class

_CAPITAL_SIGMA, _FINAL_SIGMA = 0x3A3, 0x3C2
_NEITHER, _CASED, _IGNORABLE = 0, 1, 2  # what a neighbour means to a capital sigma

_MAX_WORD_BYTES = 4 * MAX_INPUT_CHARS_PER_WORD
_MAX_TRIE_BYTES = 256  # of a token without "##": tensorflow-text, fast_wordpiece_tokenizer_utils.h
_TOO_LONG = "x" * (_MAX_WORD_BYTES + 1)  # what the trie takes for [UNK] in any vocabulary


class GraphTokenizer(tf.Module):
    """Texts to ids, equal to `FullTokenizer.encode` on every text that is valid UTF-8.

    Bytes that are not UTF-8 are dropped, as `convert_to_unicode` does. Two things differ from
    `FullTokenizer`: a special token in the text is always taken apart (`preserve_special_tokens` is
    not offered), and a `str` with lone surrogates cannot reach a string tensor at all. The Unicode
    version is the one of the Python that made the object, also after saving and loading.

    A SavedModel that holds this object loads in a process that has imported `tensorflow_text`,
    which registers one operation (`FastWordpieceTokenizeWithOffsets`); bert_tf is not needed.

    Args:
        vocab: token -> id, or the tokens in the order of their ids; [UNK] is among them.
        do_lower_case: lower-case and strip accents, as for the uncased models.
        name: of the module.

    Raises:
        ValueError: `vocab` has no [UNK], or two tokens with one id.

    >>> tokenizer = GraphTokenizer(["[UNK]", "un", "##aff", "##able", "!"], do_lower_case=True)
    >>> tokenizer(tf.constant(["Unaffable!", "aff"])).to_list()
    [[1, 2, 3, 4], [0]]
    """

    def __init__(
        self,
        vocab: Mapping[str, int] | Sequence[str],
        do_lower_case: bool = True,
        name: str | None = None,
    ):
        super().__init__(name=name)
        self.do_lower_case = do_lower_case
        self._trie = tensorflow_text.FastWordpieceTokenizer(
            vocab=_trie_tokens(vocab),
            suffix_indicator="##",
            max_bytes_per_word=_MAX_WORD_BYTES,
            token_out_type=tf.int32,
            unknown_token="[UNK]",
            no_pretokenization=True,
        )

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="texts")], autograph=False)
    def __call__(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """The ids of each text, without [CLS] and [SEP].

        Args:
            texts: string [B], UTF-8.

        Returns:
            int32 ragged [B, None].
        """
        with tf.device("/CPU:0"):  # the tables are next to the string operations
            _, words = self._words(texts)
            pieces = self._trie.tokenize(_as_strings(words.letters))  # int32 ragged [W, None]
            return _by_text(pieces.values, pieces.row_splits, words)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="texts")], autograph=False)
    def with_offsets(
        self, texts: tf.Tensor
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """The ids of each text, and where each piece stands in it: `span_windows.piece_offsets`.

        Returns:
            ids int32, starts and ends int64 (in characters), each ragged [B, None].
        """
        with tf.device("/CPU:0"):
            decoded, words = self._words(texts)
            pieces, starts, ends = self._trie.tokenize_with_offsets(_as_strings(words.letters))
            first, last = _letters_of(words.letters, pieces.row_splits, starts.values, ends.values)
            start, end = tf.gather(words.source, first), tf.gather(words.source, last) + 1
            if self.do_lower_case:  # accents that are stripped belong to the letter before them
                unmarked = tf.where(_accents().look_up(decoded.values) == 0)[:, 0]
                end = tf.gather(unmarked, tf.searchsorted(unmarked, end, out_type=tf.int64))
            ids = _by_text(pieces.values, pieces.row_splits, words)
            text_start = tf.gather(decoded.row_splits, ids.value_rowids())
            return ids, ids.with_values(start - text_start), ids.with_values(end - text_start)

    def _words(self, texts: tf.Tensor) -> tuple[tf.RaggedTensor, _Words]:
        """The code points of the texts, each with a space behind it, and the words in them."""
        # Bytes that are not UTF-8 become U+FFFD, which is dropped. The space ends the last word of a
        # text, for the texts are one vector from here on.
        decoded = tf.strings.unicode_decode(tf.strings.join([texts, " "]), "UTF-8")
        chars, ends = decoded.values, decoded.row_splits[1:] - 1  # int32 [C], int64 [B]
        chars, ends, source = _normalize(chars, ends, _rules(self.do_lower_case))
        return decoded, _split_words(chars, ends, source)


class _Words(NamedTuple):
    """The words of some texts, one after the other.

    letters: int32 ragged [W, None], code points.
    source: int64 [L], which code point of the texts each letter came from.
    splits: int64 [B + 1], how many words there are before each text.
    """

    letters: tf.RaggedTensor
    source: tf.Tensor
    splits: tf.Tensor


def _by_text(values: tf.Tensor, row_splits: tf.Tensor, words: _Words) -> tf.RaggedTensor:
    """What is said of pieces, word by word, as one row for each text."""
    splits = tf.gather(row_splits, words.splits)
    return tf.RaggedTensor.from_row_splits(values, splits, validate=False)


def _letters_of(
    letters: tf.RaggedTensor, row_splits: tf.Tensor, starts: tf.Tensor, ends: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """The first and the last letter of each piece, int64, from its bytes in its word."""
    sizes = 1 + tf.add_n(
        [tf.cast(letters.values >= least, tf.int64) for least in (0x80, 0x800, 0x10000)]
    )
    bytes_before = tf.concat([[0], tf.cumsum(sizes)], axis=0)  # [L + 1]
    word_starts = tf.gather(bytes_before, letters.row_splits)  # [W + 1]
    word = tf.RaggedTensor.from_row_splits(starts, row_splits, validate=False).value_rowids()
    start = tf.gather(word_starts, word) + starts
    # A word that is too long was given to the trie as another one.
    end = tf.minimum(tf.gather(word_starts, word) + ends, tf.gather(word_starts, word + 1))
    first = tf.searchsorted(bytes_before, start, out_type=tf.int64)
    last = tf.searchsorted(bytes_before, end, out_type=tf.int64) - 1
    return first, last


def _normalize(
    chars: tf.Tensor, ends: tf.Tensor, rules: _Rules
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Clean, and lower-case, decompose and strip where the rules are the uncased ones.

    Args:
        chars: int32 [C], code points as they came.
        ends: int64 [B], where the space behind each text is in `chars`.
        rules: the tables.

    Returns:
        int32 [C'], code points with the bits above; int64 [B], where the ends are in it; and int64
        [C'], which of `chars` each came from.
    """
    if rules.sigma_context is not None:
        is_sigma = chars == _CAPITAL_SIGMA
        chars = _if_any(is_sigma, lambda c: _lower_final_sigmas(c, rules.sigma_context), chars)

    first = chars + rules.first_offset.look_up(chars)

    def kept() -> tuple[tf.Tensor, tf.Tensor]:
        where = tf.where(first != 0)[:, 0]
        return tf.gather(first, where), where

    def kept_and_expanded() -> tuple[tf.Tensor, tf.Tensor]:
        columns = [first, *(column.look_up(chars) for column in rules.further)]
        table = tf.stack(columns, axis=1)  # [C, 3]
        where = tf.where(table != 0)
        return tf.gather_nd(table, where), where[:, 0]

    chars, source = tf.cond(_has_bit(first, _MORE), kept_and_expanded, kept)
    ends = tf.searchsorted(source, ends, out_type=tf.int64)
    if rules.sigma_context is None:
        return chars, ends, source  # only what is lower-cased is decomposed

    order = tf.bitwise.right_shift(chars, _ORDER_SHIFT)
    # Where letters came from is not reordered: those that change places are next to each other.
    chars = _if_any((order[:-1] > order[1:]) & (order[1:] > 0), _reordered, chars)

    def without_marks() -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        where = tf.where(tf.bitwise.bitwise_and(chars, _MARK) == 0)[:, 0]
        new_ends = tf.searchsorted(where, ends, out_type=tf.int64)
        return tf.gather(chars, where), new_ends, tf.gather(source, where)

    return tf.cond(_has_bit(chars, _MARK), without_marks, lambda: (chars, ends, source))


def _lower_final_sigmas(chars: tf.Tensor, sigma_context: _Table) -> tf.Tensor:
    """Σ becomes ς at the end of a word; the look-up turns every other Σ into σ.

    "End" as in `str.lower` (Unicode, Final_Sigma): the next character before it, case-ignorable
    ones apart, is cased, and the next one behind it is not.
    """
    context = sigma_context.look_up(chars)
    position = tf.where(context != _IGNORABLE)[:, 0]
    is_cased = tf.pad(tf.gather(context, position) == _CASED, [[1, 1]])
    is_sigma = tf.gather(chars, position) == _CAPITAL_SIGMA
    position = tf.boolean_mask(position, is_sigma & is_cased[:-2] & ~is_cased[2:])
    final = tf.fill(tf.shape(position), _FINAL_SIGMA)
    return tf.tensor_scatter_nd_update(chars, position[:, tf.newaxis], final)


def _if_any(
    condition: tf.Tensor, function: Callable[[tf.Tensor], tf.Tensor], value: tf.Tensor
) -> tf.Tensor:
    """`function(value)` if any element of `condition` holds, else `value`: rare cases cost nothing."""
    return tf.cond(tf.reduce_any(condition), lambda: function(value), lambda: value)


def _has_bit(chars: tf.Tensor, bit: int) -> tf.Tensor:
    return tf.reduce_any(tf.bitwise.bitwise_and(chars, bit) != 0)


def _reordered(chars: tf.Tensor) -> tf.Tensor:
    """Sorts each run of combining characters by class, equal ones as they stood (NFD)."""
    order = tf.cast(tf.bitwise.right_shift(chars, _ORDER_SHIFT), tf.int64)
    run = tf.cumsum(tf.cast(order == 0, tf.int64))  # each character of class 0 begins one
    key = run * (1 << (31 - _ORDER_SHIFT)) + order
    return tf.gather(chars, tf.argsort(key, stable=True))


def _split_words(chars: tf.Tensor, ends: tf.Tensor, source: tf.Tensor) -> _Words:
    """The words in what `_normalize` gives."""
    is_separator = tf.bitwise.bitwise_and(chars, _SEPARATOR) != 0
    breaks = tf.bitwise.bitwise_and(chars, _SEPARATOR | _ALONE) != 0
    behind_break = tf.concat([[True], breaks[:-1]], axis=0)[: tf.size(breaks)]
    where = tf.where(~is_separator)[:, 0]
    word_start = tf.where(tf.gather(breaks | behind_break, where))[:, 0]  # int64 [W], in `where`
    letters = tf.RaggedTensor.from_row_starts(
        tf.gather(tf.bitwise.bitwise_and(chars, _CODE_POINT), where), word_start, validate=False
    )
    num_words = tf.searchsorted(tf.gather(where, word_start), ends, out_type=tf.int64)
    return _Words(letters, tf.gather(source, where), tf.concat([[0], num_words], axis=0))


def _as_strings(letters: tf.RaggedTensor) -> tf.Tensor:
    """Words [W] as the trie takes them."""
    return tf.where(
        letters.row_lengths() > MAX_INPUT_CHARS_PER_WORD,
        _TOO_LONG,
        tf.strings.unicode_encode(letters, "UTF-8"),
    )


def _trie_tokens(vocab: Mapping[str, int] | Sequence[str]) -> list[str]:
    """The tokens in the order of their ids, with a placeholder for what no word can match.

    The trie refuses or misreads some tokens: "" and "##" (both in the published Chinese
    vocabulary), those with U+0000, those longer than a word can be, and ids without a token. A
    placeholder has spaces in it, and words have none.
    """
    if not isinstance(vocab, Mapping):
        repeated = [token for token, count in collections.Counter(vocab).items() if count > 1]
        if repeated:
            raise ValueError(
                f"The token {repeated[0]!r} stands more than once in the vocabulary, but each token "
                "has one id. `load_vocab` names the lines."
            )
        vocab = {token: index for index, token in enumerate(vocab)}
    token_of: dict[int, str] = {}
    for token, index in vocab.items():
        if index < 0 or index in token_of:
            raise ValueError(
                f"The token {token!r} has the id {index}, but ids start at 0, and each belongs to one "
                f"token only{f' (this one to {token_of[index]!r})' if index in token_of else ''}."
            )
        token_of[index] = token
    if "[UNK]" not in vocab:
        raise ValueError(
            f"The vocabulary has {len(vocab)} tokens, but not [UNK], which the tokenizer needs for "
            "words that the others do not cover."
        )
    tokens = [token_of.get(index, "") for index in range(max(token_of) + 1)]
    for index, token in enumerate(tokens):
        letters = token.removeprefix("##")
        if not letters or "\0" in letters or len(letters) > MAX_INPUT_CHARS_PER_WORD:
            tokens[index] = f" no token {index} "
        elif len(letters.encode()) > _MAX_TRIE_BYTES:
            raise ValueError(
                f"The token {token!r} has {len(letters.encode())} bytes in UTF-8, but tensorflow-text "
                f"takes {_MAX_TRIE_BYTES} at most. Only `FullTokenizer` can use this vocabulary."
            )
    return tokens


class _Table:
    """int32 for each of the 0x110000 code points, in pages of 256 of which few are distinct."""

    def __init__(self, values: np.ndarray):
        pages, self._page = np.unique(values.reshape(-1, 256), axis=0, return_inverse=True)
        self._page = (self._page.reshape(-1) * 256).astype(np.int32)  # [4352]
        self._values = pages.reshape(-1)  # [distinct pages * 256]

    def look_up(self, code_points: tf.Tensor) -> tf.Tensor:
        page = tf.gather(self._page, tf.bitwise.right_shift(code_points, 8))
        return tf.gather(self._values, page + tf.bitwise.bitwise_and(code_points, 255))


class _Rules(NamedTuple):
    """What the tokenization rules say about each code point.

    first_offset: add it to get the first character that comes from this one, with its bits.
    further: the other characters that come from it, with their bits; 0 where there is none.
    sigma_context: `_NEITHER`, `_CASED` or `_IGNORABLE`; no table if nothing is lower-cased.
    """

    first_offset: _Table
    further: tuple[_Table, ...]
    sigma_context: _Table | None


@functools.cache
def _accents() -> _Table:
    """1 for what is stripped with the accents."""
    marks = [unicodedata.category(chr(code_point)) == "Mn" for code_point in range(0x110000)]
    return _Table(np.array(marks, np.int32))


@functools.cache
def _rules(do_lower_case: bool) -> _Rules:
    code_points = np.arange(0x110000, dtype=np.int32)
    images = {}  # of the code points that do not simply become themselves
    sigma_context = np.full_like(code_points, _NEITHER)
    rank = _ranks_of_combining_classes()
    for code_point in range(0x110000):
        char = chr(code_point)
        if unicodedata.category(char) in ("Cn", "Co", "Cs") and not is_chinese_char(code_point):
            continue  # no other rule is about unassigned and private code points
        image = _image(char, do_lower_case, rank)
        if image != [code_point]:
            images[code_point] = image
        if do_lower_case:
            sigma_context[code_point] = _sigma_context(char)

    num_columns = max(map(len, images.values()))
    columns = np.zeros((num_columns, len(code_points)), np.int32)
    columns[0] = code_points
    for code_point, image in images.items():
        columns[:, code_point] = image + [0] * (num_columns - len(image))
    first, *further = columns
    return _Rules(
        first_offset=_Table(first - code_points),
        further=tuple(map(_Table, further)),
        sigma_context=_Table(sigma_context) if do_lower_case else None,
    )


def _ranks_of_combining_classes() -> dict[int, int]:
    """Combining class of characters that are not dropped as accents -> 0, 1, 2, ... (3 bits)."""
    chars = map(chr, range(0x110000))
    classes = {unicodedata.combining(c) for c in chars if unicodedata.category(c) != "Mn"}
    return {combining_class: rank for rank, combining_class in enumerate(sorted(classes))}


def _image(char: str, do_lower_case: bool, rank: Mapping[int, int]) -> list[int]:
    """What comes from a character, with the bits."""
    if is_dropped(char):
        return []
    if is_whitespace(char):
        return [ord(" ") | _SEPARATOR]
    is_ideograph = is_chinese_char(ord(char))
    image = []
    for result in unicodedata.normalize("NFD", char.lower()) if do_lower_case else char:
        bits = _ALONE if is_ideograph or is_punctuation(result) else 0
        if do_lower_case:
            combining_class = unicodedata.combining(result)
            if unicodedata.category(result) == "Mn":
                if combining_class:
                    continue
                bits |= _MARK
            bits |= rank[combining_class] << _ORDER_SHIFT
        image.append(ord(result) | bits)
    assert len(image) <= 1 or not is_ideograph, "an ideograph is one word"
    if len(image) > 1:
        image[0] |= _MORE
    return image


def _sigma_context(char: str) -> int:
    """What `str.lower` takes `char` for, found by asking it."""
    if is_dropped(char):
        return _IGNORABLE  # it is gone by then
    if is_whitespace(char) or is_chinese_char(ord(char)):
        return _NEITHER  # the word ends here
    if not f"A{char}Σ".lower().endswith("ς"):
        return _NEITHER
    return _CASED if f"{char}Σ".lower().endswith("ς") else _IGNORABLE
