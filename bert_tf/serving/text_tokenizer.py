"""FullTokenizer and the words of NER as TensorFlow operations, for tf.data and SavedModels.

tensorflow-text's own BERT tokenizers split differently from the checkpoints' tokenizer: they case-fold,
and their Unicode tables are not Python's. Here a text becomes a vector of code points. Tables made from
Python's `unicodedata` give their properties. Only the longest match is tensorflow-text's, on bytes.

Shapes: B texts, C code points, L letters (parts of words), W words.
"""

from __future__ import annotations

import functools
import itertools
import unicodedata
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_text

from bert_tf.characters import (
    CHINESE_BLOCKS,
    is_chinese_char,
    is_dropped,
    is_punctuation,
    is_whitespace,
)
from bert_tf.tokenization import MAX_INPUT_CHARS_PER_WORD, FullTokenizer

# In the graph the bits above a code point's value are its properties. After the first look-up the
# value is the cleaned (and lower-cased, decomposed) character, or 0 if it was dropped.
CODE_POINT = (1 << 21) - 1
SEPARATOR = 1 << 21  # whitespace
PUNCTUATION, IDEOGRAPH = 1 << 22, 1 << 23  # words of their own
MARK = 1 << 24  # Mn of combining class 0: dropped late because it limits the reordering of NFD
MORE = 1 << 25  # the same character yields more characters
ORDER_SHIFT = 26  # 0, or the rank of its combining class

CAPITAL_SIGMA, FINAL_SIGMA = 0x3A3, 0x3C2
NEITHER, CASED, IGNORABLE = 0, 1, 2  # role of a capital sigma's neighbour


class CodePointTable:
    """int32 for each of the 0x110000 code points, in pages of 256, few of which are distinct."""

    def __init__(self, values: np.ndarray):
        first_values: dict[bytes, int] = {}  # of each distinct page
        pages = [page.tobytes() for page in values.astype(np.int32).reshape(-1, 256)]
        numbers = [first_values.setdefault(page, 256 * len(first_values)) for page in pages]
        self._page = np.array(numbers, np.int32)  # [4352]
        self._values = np.frombuffer(b"".join(first_values), np.int32)  # [distinct pages * 256]

    def look_up(self, code_points: tf.Tensor) -> tf.Tensor:
        page = tf.gather(self._page, tf.bitwise.right_shift(code_points, 8))
        return tf.gather(self._values, page + tf.bitwise.bitwise_and(code_points, 255))


class Rules(NamedTuple):
    first_offset: CodePointTable  # difference to the first resulting character, with its bits
    further: tuple[CodePointTable, ...]  # the other resulting characters with their bits, or 0
    sigma_context: CodePointTable | None  # NEITHER, CASED or IGNORABLE; None without lower-casing


@functools.cache
def _characters() -> list[str]:
    """Return the assigned characters and all ideographs; no rule applies to other code points."""
    chars = map(chr, range(0x110000))
    assigned = [char for char in chars if unicodedata.category(char) not in ("Cn", "Co", "Cs")]
    blocks = (range(first, last + 1) for first, last in CHINESE_BLOCKS)
    return sorted({*assigned, *map(chr, itertools.chain(*blocks))})


@functools.cache
def accents() -> CodePointTable:
    """Return 1 for characters that are stripped as accents."""
    marks = np.zeros(0x110000, np.int32)
    marks[[ord(char) for char in _characters() if unicodedata.category(char) == "Mn"]] = 1
    return CodePointTable(marks)


@functools.cache
def rules(do_lower_case: bool) -> Rules:
    code_points = np.arange(0x110000, dtype=np.int32)
    images = {}  # of the code points that change
    sigma_context = np.full_like(code_points, NEITHER)
    # Of characters that are not dropped as accents; their ranks have 3 bits.
    others = [char for char in _characters() if unicodedata.category(char) != "Mn"]
    classes = sorted(set(map(unicodedata.combining, others)))
    for char in _characters():
        image = _image(char, do_lower_case, classes)
        if image != [ord(char)]:
            images[ord(char)] = image
        if do_lower_case:
            sigma_context[ord(char)] = _sigma_context(char)

    num_columns = max(map(len, images.values()))
    columns = np.zeros((num_columns, len(code_points)), np.int32)
    columns[0] = code_points
    for code_point, image in images.items():
        columns[:, code_point] = image + [0] * (num_columns - len(image))
    first, *further = columns
    return Rules(
        first_offset=CodePointTable(first - code_points),
        further=tuple(map(CodePointTable, further)),
        sigma_context=CodePointTable(sigma_context) if do_lower_case else None,
    )


def _image(char: str, do_lower_case: bool, classes: Sequence[int]) -> list[int]:
    """Return the characters that result from one, with the bits."""
    if is_dropped(char):
        return []
    if is_whitespace(char):
        return [ord(" ") | SEPARATOR]
    if is_chinese_char(ord(char)):
        compatible = unicodedata.normalize("NFD", char) if do_lower_case else char
        return [ord(compatible) | IDEOGRAPH]  # always one character
    image = []
    for result in unicodedata.normalize("NFD", char.lower()) if do_lower_case else char:
        bits = PUNCTUATION if is_punctuation(result) else 0
        if do_lower_case:
            combining_class = unicodedata.combining(result)
            if unicodedata.category(result) == "Mn":
                if combining_class:
                    continue
                bits |= MARK
            bits |= classes.index(combining_class) << ORDER_SHIFT
        image.append(ord(result) | bits)
    if len(image) > 1:
        image[0] |= MORE
    return image


def _sigma_context(char: str) -> int:
    """Return the role of `char` next to a sigma, found by calling `str.lower`."""
    if is_dropped(char):
        return IGNORABLE  # it was removed before
    if is_whitespace(char) or is_chinese_char(ord(char)):
        return NEITHER  # the word ends here
    if not f"A{char}Σ".lower().endswith("ς"):
        return NEITHER
    return CASED if f"{char}Σ".lower().endswith("ς") else IGNORABLE


_MAX_WORD_BYTES = 4 * MAX_INPUT_CHARS_PER_WORD
_TOO_LONG = "x" * (_MAX_WORD_BYTES + 1)  # the trie returns [UNK] in any vocabulary


class Words(NamedTuple):
    letters: tf.RaggedTensor  # int32 [W, None], code points
    source: tf.Tensor  # int64 [L], index of each letter's code point in the texts
    splits: tf.Tensor  # int64 [B + 1], number of words before each text


def split_letters(chars: tf.Tensor, ends: tf.Tensor, source: tf.Tensor) -> Words:
    """Split code points into words.

    Args:
        chars: int32 [C], code points with bits.
        ends: int64 [B], indexes in `chars` of the separator after each text.
        source: int64 [C], index of each code point in the texts.
    """
    is_separator = _has_bits(chars, SEPARATOR)
    breaks = _has_bits(chars, SEPARATOR | PUNCTUATION | IDEOGRAPH)
    behind_break = tf.concat([[True], breaks[:-1]], axis=0)[: tf.size(breaks)]
    where = tf.where(~is_separator)[:, 0]
    word_start = tf.where(tf.gather(breaks | behind_break, where))[:, 0]  # int64 [W], in `where`
    letters = tf.RaggedTensor.from_row_starts(
        tf.gather(tf.bitwise.bitwise_and(chars, CODE_POINT), where), word_start, validate=False
    )
    num_words = tf.searchsorted(tf.gather(where, word_start), ends, out_type=tf.int64)
    return Words(letters, tf.gather(source, where), tf.concat([[0], num_words], axis=0))


class GraphTokenizer(tf.Module):
    """Tokenizer of texts to ids, equal to `FullTokenizer.encode` on every valid UTF-8 text.

    Bytes that are not UTF-8 are dropped. Special tokens in the text are always split. Unicode tables are
    frozen when the object is created, and saved with it. A SavedModel with this object loads in any
    process that has imported `tensorflow_text`, for one operation. bert_tf is not needed.
    """

    def __init__(self, vocab: Sequence[str], do_lower_case: bool = True):
        super().__init__()
        self.do_lower_case = do_lower_case
        sizes = [0 if piece == "[UNK]" else len(piece.removeprefix("##")) for piece in vocab]
        self._sizes = np.array(sizes, np.int64)  # in letters
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
        """Return the ids of each text, without [CLS] and [SEP]: string [B] -> int32 ragged [B, None]."""
        with tf.device("/CPU:0"):  # like the string operations
            _, words = self._words(texts)
            return _by_text(self._pieces(words), words)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="texts")], autograph=False)
    def with_offsets(
        self, texts: tf.Tensor
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """Return the ids of each text, int32, and `windows.piece_offsets`, int64, ragged [B, None]."""
        with tf.device("/CPU:0"):
            decoded, words = self._words(texts)
            pieces = self._pieces(words)
            # The pieces are all letters in order. [UNK] is a whole word.
            whole = tf.gather(words.letters.row_lengths(), pieces.value_rowids())
            sizes = tf.gather(self._sizes, pieces.values)
            sizes = tf.where(sizes == 0, whole, sizes)
            behind = tf.cumsum(sizes)
            start = tf.gather(words.source, behind - sizes)
            end = tf.gather(words.source, behind - 1) + 1
            if self.do_lower_case:  # stripped accents belong to the letter before them
                unmarked = tf.where(accents().look_up(decoded.values) == 0)[:, 0]
                end = tf.gather(unmarked, tf.searchsorted(unmarked, end, out_type=tf.int64))
            ids = _by_text(pieces, words)
            text_start = tf.gather(decoded.row_splits, ids.value_rowids())
            return ids, ids.with_values(start - text_start), ids.with_values(end - text_start)

    def _pieces(self, words: Words) -> tf.RaggedTensor:
        """Return the ids of each word, int32 [W, None]."""
        strings = tf.strings.unicode_encode(words.letters, "UTF-8")
        is_too_long = words.letters.row_lengths() > MAX_INPUT_CHARS_PER_WORD
        return self._trie.tokenize(tf.where(is_too_long, _TOO_LONG, strings))

    def _words(self, texts: tf.Tensor) -> tuple[tf.RaggedTensor, Words]:
        """Return the code points of the texts, each with a space after it, and their words."""
        # Bytes that are not UTF-8 become U+FFFD, which is dropped. The texts become one vector, so a
        # space ends the last word of each.
        decoded = tf.strings.unicode_decode(tf.strings.join([texts, " "]), "UTF-8")
        chars, ends = decoded.values, decoded.row_splits[1:] - 1  # int32 [C], int64 [B]
        chars, ends, source = _normalize(chars, ends, rules(self.do_lower_case))
        return decoded, split_letters(chars, ends, source)


def _by_text(pieces: tf.RaggedTensor, words: Words) -> tf.RaggedTensor:
    """Regroup pieces from rows of words to rows of texts."""
    splits = tf.gather(pieces.row_splits, words.splits)
    return tf.RaggedTensor.from_row_splits(pieces.values, splits, validate=False)


def _normalize(
    chars: tf.Tensor, ends: tf.Tensor, rules: Rules
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Clean the text. Under uncased rules, also lower-case, decompose and strip accents.

    Args:
        chars: int32 [C], original code points.
        ends: int64 [B], indexes in `chars` of the space after each text.
    """
    context = rules.sigma_context
    if context is not None:
        is_sigma = chars == CAPITAL_SIGMA
        chars = _if_any(is_sigma, lambda: _lower_final_sigmas(chars, context), chars)
    first = chars + rules.first_offset.look_up(chars)

    def expand() -> tf.Tensor:
        return tf.stack([first, *(column.look_up(chars) for column in rules.further)], axis=1)

    table = _if_any(_has_bits(first, MORE), expand, first[:, tf.newaxis])
    where = tf.where(table != 0)
    chars, source = tf.gather_nd(table, where), where[:, 0]
    if context is not None:
        order = tf.bitwise.right_shift(chars, ORDER_SHIFT)
        # `source` is not reordered because characters that change places are neighbours.
        is_wrong = (order[:-1] > order[1:]) & (order[1:] > 0)
        chars = _if_any(is_wrong, lambda: _reorder(chars, order), chars)
        where = tf.where(~_has_bits(chars, MARK))[:, 0]
        chars, source = tf.gather(chars, where), tf.gather(source, where)
    return chars, tf.searchsorted(source, ends, out_type=tf.int64), source


def _lower_final_sigmas(chars: tf.Tensor, sigma_context: CodePointTable) -> tf.Tensor:
    """Replace Σ by ς at the end of a word. The look-up turns every other Σ into σ.

    As in `str.lower`, the character before is cased, and the one after is not, without ignorable ones.
    """
    context = sigma_context.look_up(chars)
    position = tf.where(context != IGNORABLE)[:, 0]
    is_cased = tf.pad(tf.gather(context, position) == CASED, [[1, 1]])
    is_sigma = tf.gather(chars, position) == CAPITAL_SIGMA
    position = tf.boolean_mask(position, is_sigma & is_cased[:-2] & ~is_cased[2:])
    final = tf.fill(tf.shape(position), FINAL_SIGMA)
    return tf.tensor_scatter_nd_update(chars, position[:, tf.newaxis], final)


def _if_any(
    condition: tf.Tensor, function: Callable[[], tf.Tensor], default: tf.Tensor
) -> tf.Tensor:
    return tf.cond(tf.reduce_any(condition), function, lambda: default)


def _has_bits(chars: tf.Tensor, bits: int) -> tf.Tensor:
    return tf.bitwise.bitwise_and(chars, bits) != 0


def _reorder(chars: tf.Tensor, order: tf.Tensor) -> tf.Tensor:
    """Sort each run of combining characters by class, stably (NFD)."""
    run = tf.cumsum(tf.cast(order == 0, tf.int64))  # each character of class 0 begins one
    key = run * (1 << (31 - ORDER_SHIFT)) + tf.cast(order, tf.int64)
    return tf.gather(chars, tf.argsort(key, stable=True))


def _trie_tokens(vocab: Sequence[str]) -> list[str]:
    """Return the tokens, with placeholders with spaces for those that match no word.

    The trie rejects or misreads "" and "##" (both in the published Chinese vocabulary), U+0000 and
    overlong tokens.
    """
    tokens = []
    for index, token in enumerate(FullTokenizer(vocab).vocab):
        letters = token.removeprefix("##")
        is_valid = letters and "\0" not in letters and len(letters) <= MAX_INPUT_CHARS_PER_WORD
        tokens.append(token if is_valid else f" no token {index} ")
    return tokens


def replace_invalid_utf8(texts: tf.Tensor) -> tf.Tensor:
    """Replace bytes that are not UTF-8 by U+FFFD, one character each, as in the offsets."""
    return tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8")


class LocatedWords(NamedTuple):
    words: tf.RaggedTensor  # string [B, None]
    starts: tf.Tensor  # int64 [N], in characters of the word's text
    ends: tf.Tensor


def graph_split_words(
    texts: tf.Tensor, rule: str = "basic", whole_words: Sequence[str] = ()
) -> LocatedWords:
    """Split texts, string [B], as `token_classification.split_words`. Invalid UTF-8 counts as U+FFFD."""
    with tf.device("/CPU:0"):
        decoded = tf.strings.unicode_decode(tf.strings.join([texts, " "]), "UTF-8")
        bits = decoded.values + rules(do_lower_case=False).first_offset.look_up(decoded.values)
        bits -= tf.bitwise.bitwise_and(bits, CODE_POINT)
        separators = tf.bitwise.bitwise_and(bits, SEPARATOR)
        indexes, ends = tf.range(tf.size(bits, tf.int64)), decoded.row_splits[1:] - 1
        if rule == "characters":
            bits = tf.where(separators == 0, PUNCTUATION, SEPARATOR)
        elif rule == "whitespace":
            bits = separators
        elif rule == "outer_punctuation":
            chunks = split_letters(tf.bitwise.bitwise_or(decoded.values, separators), ends, indexes)
            marks = tf.gather(tf.bitwise.bitwise_and(bits, PUNCTUATION), chunks.source)
            marks = tf.where(
                _is_outer_mark(chunks.letters, marks != 0, whole_words), PUNCTUATION, 0
            )
            bits = tf.tensor_scatter_nd_update(separators, chunks.source[:, None], marks)
        split = split_letters(tf.bitwise.bitwise_or(decoded.values, bits), ends, indexes)
        words = tf.strings.unicode_encode(split.letters, "UTF-8")
        words = tf.RaggedTensor.from_row_splits(words, split.splits, validate=False)
        text_starts = tf.gather(decoded.row_starts(), words.value_rowids())
        starts = tf.gather(split.source, split.letters.row_starts())
        ends = tf.gather(split.source, split.letters.row_limits() - 1) + 1
        return LocatedWords(words, starts - text_starts, ends - text_starts)


def _is_outer_mark(
    letters: tf.RaggedTensor, is_mark: tf.Tensor, whole_words: Sequence[str]
) -> tf.Tensor:
    """Return which letters are outer punctuation, bool [L], of chunks between whitespace [N, None]."""
    chunk, number = letters.value_rowids(), letters.nrows()
    index = tf.ragged.range(letters.row_lengths()).values
    last = tf.math.unsorted_segment_max(
        tf.where(is_mark, tf.zeros_like(index), index + 1), chunk, number
    )
    first = tf.math.unsorted_segment_min(tf.where(is_mark, index.dtype.max, index), chunk, number)
    first = tf.minimum(first, last)  # 0, 0 without a letter
    if whole_words:
        texts = tf.strings.unicode_encode(letters, "UTF-8")
        known = tf.sort(_hashes(whole_words))

        def is_whole(start, end):
            hashes = _hashes(tf.strings.substr(texts, start, end - start, unit="UTF8_CHAR"))
            index = tf.minimum(tf.searchsorted(known, hashes), len(whole_words) - 1)
            return tf.cast(tf.gather(known, index) == hashes, tf.int64)

        last += is_whole(first, last + 1)
        first -= is_whole(tf.maximum(first - 1, 0), last) * tf.sign(first)
    return (index < tf.gather(first, chunk)) | (index >= tf.gather(last, chunk))


def _hashes(words) -> tf.Tensor:
    return tf.strings.to_hash_bucket_fast(words, 2**63 - 1)
