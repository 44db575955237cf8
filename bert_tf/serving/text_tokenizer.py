"""FullTokenizer as TensorFlow operations, for tf.data and for SavedModels that take raw text.

tensorflow-text's own BERT tokenizers split differently from the checkpoints' tokenizer: they case-fold,
and their Unicode tables are not Python's. Here a text becomes a vector of code points. Tables made from
Python's `unicodedata` give their properties. Only the longest match is tensorflow-text's, on bytes.

Shapes: B texts, C code points, L letters (parts of words), W words.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tensorflow as tf
import tensorflow_text

from bert_tf.serving import text_characters as characters
from bert_tf.serving.text_characters import (
    CAPITAL_SIGMA,
    CASED,
    FINAL_SIGMA,
    IGNORABLE,
    MARK,
    MORE,
    ORDER_SHIFT,
    CodePointTable,
    Rules,
)
from bert_tf.serving.text_words import GraphWords, split_letters
from bert_tf.tokenization import MAX_INPUT_CHARS_PER_WORD, FullTokenizer

_MAX_WORD_BYTES = 4 * MAX_INPUT_CHARS_PER_WORD
_MAX_TRIE_BYTES = 256  # of a token without "##": tensorflow-text, fast_wordpiece_tokenizer_utils.h
_TOO_LONG = "x" * (_MAX_WORD_BYTES + 1)  # the trie returns [UNK] in any vocabulary


class GraphTokenizer(tf.Module):
    """Tokenizer of texts to ids, equal to `FullTokenizer.encode` on every valid UTF-8 text.

    Bytes that are not UTF-8 are dropped. Special tokens in the text are always split, and string
    tensors cannot contain lone surrogates. Unicode tables are frozen when the object is created, and
    saved with it.

    A SavedModel with this object loads in any process that has imported `tensorflow_text`, which
    registers one operation (`FastWordpieceTokenizeWithOffsets`). bert_tf is not needed.

    Args:
        vocab: the tokens in the order of their ids. Must contain [UNK].
        do_lower_case: lower-case and strip accents, as for the uncased models.

    Raises:
        ValueError: `vocab` has no [UNK], or a token twice.

    >>> tokenizer = GraphTokenizer(["[UNK]", "un", "##aff", "##able", "!"], do_lower_case=True)
    >>> tokenizer(tf.constant(["Unaffable!", "aff"])).to_list()
    [[1, 2, 3, 4], [0]]
    """

    def __init__(
        self,
        vocab: Sequence[str],
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
        """Return the ids of each text, without [CLS] and [SEP]: string [B] -> int32 ragged [B, None]."""
        with tf.device("/CPU:0"):  # like the string operations
            _, words = self._words(texts)
            pieces = self._trie.tokenize(_as_strings(words.letters))  # int32 ragged [W, None]
            return _by_text(pieces.values, pieces.row_splits, words)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="texts")], autograph=False)
    def with_offsets(
        self, texts: tf.Tensor
    ) -> tuple[tf.RaggedTensor, tf.RaggedTensor, tf.RaggedTensor]:
        """Return the ids of each text and the offsets of its pieces (`windows.piece_offsets`).

        Returns:
            ids int32, starts and ends int64 (in characters), each ragged [B, None].
        """
        with tf.device("/CPU:0"):
            decoded, words = self._words(texts)
            pieces, starts, ends = self._trie.tokenize_with_offsets(_as_strings(words.letters))
            first, last = _find_letters(
                words.letters, pieces.row_splits, starts.values, ends.values
            )
            start, end = tf.gather(words.source, first), tf.gather(words.source, last) + 1
            if self.do_lower_case:  # stripped accents belong to the letter before them
                unmarked = tf.where(characters.accents().look_up(decoded.values) == 0)[:, 0]
                end = tf.gather(unmarked, tf.searchsorted(unmarked, end, out_type=tf.int64))
            ids = _by_text(pieces.values, pieces.row_splits, words)
            text_start = tf.gather(decoded.row_splits, ids.value_rowids())
            return ids, ids.with_values(start - text_start), ids.with_values(end - text_start)

    def _words(self, texts: tf.Tensor) -> tuple[tf.RaggedTensor, GraphWords]:
        """Return the code points of the texts, each with a space after it, and their words."""
        # Bytes that are not UTF-8 become U+FFFD, which is dropped. The texts become one vector, so a
        # space ends the last word of each.
        decoded = tf.strings.unicode_decode(tf.strings.join([texts, " "]), "UTF-8")
        chars, ends = decoded.values, decoded.row_splits[1:] - 1  # int32 [C], int64 [B]
        chars, ends, source = _normalize(chars, ends, characters.rules(self.do_lower_case))
        return decoded, split_letters(chars, ends, source)


def _by_text(values: tf.Tensor, row_splits: tf.Tensor, words: GraphWords) -> tf.RaggedTensor:
    """Regroup values of pieces from rows of words to rows of texts."""
    splits = tf.gather(row_splits, words.splits)
    return tf.RaggedTensor.from_row_splits(values, splits, validate=False)


def _find_letters(
    letters: tf.RaggedTensor, row_splits: tf.Tensor, starts: tf.Tensor, ends: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the first and the last letter of each piece, int64, from its bytes in its word."""
    sizes = 1 + tf.add_n(
        [tf.cast(letters.values >= bound, tf.int64) for bound in (0x80, 0x800, 0x10000)]
    )
    bytes_before = tf.concat([[0], tf.cumsum(sizes)], axis=0)  # [L + 1]
    word_starts = tf.gather(bytes_before, letters.row_splits)  # [W + 1]
    word = tf.RaggedTensor.from_row_splits(starts, row_splits, validate=False).value_rowids()
    start = tf.gather(word_starts, word) + starts
    # The trie saw a placeholder for a word that is too long.
    end = tf.minimum(tf.gather(word_starts, word) + ends, tf.gather(word_starts, word + 1))
    first = tf.searchsorted(bytes_before, start, out_type=tf.int64)
    last = tf.searchsorted(bytes_before, end, out_type=tf.int64) - 1
    return first, last


def _normalize(
    chars: tf.Tensor, ends: tf.Tensor, rules: Rules
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Clean the text. Under uncased rules, also lower-case, decompose and strip accents.

    Args:
        chars: int32 [C], original code points.
        ends: int64 [B], indexes in `chars` of the space after each text.

    Returns:
        int32 [C'], code points with bits; int64 [B], the new `ends`; int64 [C'], indexes in the old
        `chars`.
    """
    context = rules.sigma_context
    if context is not None:
        is_sigma = chars == CAPITAL_SIGMA
        chars = _if_any(is_sigma, lambda c: _lower_final_sigmas(c, context), chars)

    first = chars + rules.first_offset.look_up(chars)

    def drop() -> tuple[tf.Tensor, tf.Tensor]:
        where = tf.where(first != 0)[:, 0]
        return tf.gather(first, where), where

    def expand() -> tuple[tf.Tensor, tf.Tensor]:
        columns = [first, *(column.look_up(chars) for column in rules.further)]
        table = tf.stack(columns, axis=1)  # [C, 3]
        where = tf.where(table != 0)
        return tf.gather_nd(table, where), where[:, 0]

    chars, source = tf.cond(_has_bit(first, MORE), expand, drop)
    ends = tf.searchsorted(source, ends, out_type=tf.int64)
    if rules.sigma_context is None:
        return chars, ends, source  # cased text is not decomposed

    order = tf.bitwise.right_shift(chars, ORDER_SHIFT)
    # `source` is not reordered because characters that change places are neighbours.
    chars = _if_any((order[:-1] > order[1:]) & (order[1:] > 0), _reorder, chars)

    def drop_marks() -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        where = tf.where(tf.bitwise.bitwise_and(chars, MARK) == 0)[:, 0]
        new_ends = tf.searchsorted(where, ends, out_type=tf.int64)
        return tf.gather(chars, where), new_ends, tf.gather(source, where)

    return tf.cond(_has_bit(chars, MARK), drop_marks, lambda: (chars, ends, source))


def _lower_final_sigmas(chars: tf.Tensor, sigma_context: CodePointTable) -> tf.Tensor:
    """Replace Σ by ς at the end of a word. The look-up turns every other Σ into σ.

    The end is that of `str.lower` (Unicode, Final_Sigma): the character before is cased, and the one
    after is not. Case-ignorable characters are skipped.
    """
    context = sigma_context.look_up(chars)
    position = tf.where(context != IGNORABLE)[:, 0]
    is_cased = tf.pad(tf.gather(context, position) == CASED, [[1, 1]])
    is_sigma = tf.gather(chars, position) == CAPITAL_SIGMA
    position = tf.boolean_mask(position, is_sigma & is_cased[:-2] & ~is_cased[2:])
    final = tf.fill(tf.shape(position), FINAL_SIGMA)
    return tf.tensor_scatter_nd_update(chars, position[:, tf.newaxis], final)


def _if_any(
    condition: tf.Tensor, function: Callable[[tf.Tensor], tf.Tensor], value: tf.Tensor
) -> tf.Tensor:
    """Return `function(value)` if any element of `condition` is true, else `value`."""
    return tf.cond(tf.reduce_any(condition), lambda: function(value), lambda: value)


def _has_bit(chars: tf.Tensor, bit: int) -> tf.Tensor:
    return tf.reduce_any(tf.bitwise.bitwise_and(chars, bit) != 0)


def _reorder(chars: tf.Tensor) -> tf.Tensor:
    """Sort each run of combining characters by class, stably (NFD)."""
    order = tf.cast(tf.bitwise.right_shift(chars, ORDER_SHIFT), tf.int64)
    run = tf.cumsum(tf.cast(order == 0, tf.int64))  # each character of class 0 begins one
    key = run * (1 << (31 - ORDER_SHIFT)) + order
    return tf.gather(chars, tf.argsort(key, stable=True))


def _as_strings(letters: tf.RaggedTensor) -> tf.Tensor:
    """Return words [W] as input of the trie."""
    return tf.where(
        letters.row_lengths() > MAX_INPUT_CHARS_PER_WORD,
        _TOO_LONG,
        tf.strings.unicode_encode(letters, "UTF-8"),
    )


def _trie_tokens(vocab: Sequence[str]) -> list[str]:
    """Return the tokens, with placeholders for those that match no word.

    The trie rejects or misreads "" and "##" (both in the published Chinese vocabulary), U+0000 and
    overlong tokens. Placeholders contain spaces, which words do not.
    """
    tokens = []
    for index, token in enumerate(FullTokenizer(vocab).vocab):
        letters = token.removeprefix("##")
        if not letters or "\0" in letters or len(letters) > MAX_INPUT_CHARS_PER_WORD:
            token = f" no token {index} "
        elif len(letters.encode()) > _MAX_TRIE_BYTES:
            raise ValueError(
                f"The token {token!r} has {len(letters.encode())} bytes in UTF-8, but tensorflow-text "
                f"accepts at most {_MAX_TRIE_BYTES}. Only `FullTokenizer` can use this vocabulary."
            )
        tokens.append(token)
    return tokens
