"""Model inputs from sentences: truncate, add [CLS] and [SEP], pad. The only place that does so.

    tokens       [CLS] the dog barked [SEP] it was loud [SEP] [PAD]
    input_mask     1    1   1    1      1    1  1   1     1     0
    segment_ids    0    0   0    0      0    1  1   1     1     0

Tokens are integers in bulk work; most functions accept strings too. S is `max_seq_length`.

Source: google-research/bert, run_classifier.py, `convert_single_example` and `_truncate_seq_pair`.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

if TYPE_CHECKING:
    import numpy as np

Token = TypeVar("Token")
Tokens = TypeVar("Tokens", list, array)
# Ids of the first and the second sentence. The second is empty for a single sentence.
Pair = tuple[Sequence[int], Sequence[int]]


class PackedSequence(NamedTuple):
    """One model input; each field is a list of S integers."""

    input_ids: list[int]
    input_mask: list[int]  # 1 = real, 0 = padding
    segment_ids: list[int]  # 0 = [CLS] A [SEP] and padding, 1 = B [SEP]


def pack(
    ids_a: Sequence[int],
    ids_b: Sequence[int] | None = None,
    *,
    max_seq_length: int,
    cls_id: int,
    sep_id: int,
) -> PackedSequence:
    """Truncate a sentence or a pair, add [CLS] and [SEP], and pad."""
    ids_a, ids_b = _truncate(ids_a, ids_b or (), max_seq_length)
    input_ids = add_special_tokens([*ids_a], [*ids_b], cls=[cls_id], sep=[sep_id])
    segment_ids = [0] * (len(ids_a) + 2) + [1] * (len(input_ids) - len(ids_a) - 2)
    return PackedSequence(
        input_ids=pad(input_ids, max_seq_length),
        input_mask=pad([1] * len(input_ids), max_seq_length),
        segment_ids=pad(segment_ids, max_seq_length),
    )


def pack_all(
    pairs: Sequence[Pair], *, max_seq_length: int, cls_id: int, sep_id: int
) -> dict[str, np.ndarray]:
    """Return the fields of `pack` for all pairs, each int32 [pairs, S], many times as fast."""
    import numpy as np  # the tokenizer works without it

    flat: list[int] = []
    lengths, starts_of_b = [], []
    for ids_a, ids_b in pairs:
        begin = len(flat)
        ids_a, ids_b = _truncate(ids_a, ids_b, max_seq_length)
        flat += add_special_tokens([*ids_a], [*ids_b], cls=[cls_id], sep=[sep_id])
        starts_of_b.append(len(ids_a) + 2)
        lengths.append(len(flat) - begin)
    positions = np.arange(max_seq_length)
    is_real = positions < np.array(lengths)[:, None]
    input_ids = np.zeros(is_real.shape, np.int32)
    input_ids[is_real] = flat
    is_second = is_real & (positions >= np.array(starts_of_b)[:, None])
    columns = (input_ids, is_real.astype(np.int32), is_second.astype(np.int32))
    return dict(zip(PackedSequence._fields, columns, strict=True))


def _truncate(ids_a: Sequence[int], ids_b: Sequence[int], max_seq_length: int) -> Pair:
    """Truncate a pair so that it fits with its special tokens."""
    num_special = 3 if ids_b else 2
    max_tokens = max_seq_length - num_special
    if max_tokens < 0:
        raise ValueError(
            f"`max_seq_length` is {max_seq_length}, but must be {num_special} or more for [CLS], [SEP]."
        )
    return truncate_pair(ids_a, ids_b, max_tokens)


def window_pairs(
    ids_a: Sequence[int], ids_b: Sequence[int], max_seq_length: int, doc_stride: int
) -> list[Pair]:
    """Split a long sentence or pair into overlapping ones that fit, without truncation.

    The longer sentence of a pair slides. Every window contains the shorter one, truncated to half of
    the room if needed. Inputs that fit stay unchanged.

    Args:
        doc_stride: tokens from the start of one window to the start of the next.
    """
    room = max_seq_length - (3 if ids_b else 2)
    if room <= 0 or len(ids_a) + len(ids_b) <= room:
        return [(ids_a, ids_b)]
    a_slides = len(ids_a) >= len(ids_b)
    long, short = (ids_a, ids_b) if a_slides else (ids_b, ids_a)
    short = short[: room // 2]
    parts = [long[i:j] for i, j in sliding_windows(len(long), room - len(short), doc_stride)]
    return [(part, short) if a_slides else (short, part) for part in parts]


def sliding_windows(num_tokens: int, size: int, stride: int) -> list[tuple[int, int]]:
    """Return (start, end) of windows of at most `size` tokens that cover all, one every `stride`.

    A stride above `size` counts as `size`, so no token is left out. Without tokens there is one empty
    window.

    Source: google-research/bert, run_squad.py, `_DocSpan`.
    """
    assert size >= 1 and stride >= 1, (size, stride)  # noqa: S101
    windows = [(0, min(size, num_tokens))]
    while windows[-1][1] < num_tokens:
        start = windows[-1][0] + min(stride, size)
        windows.append((start, min(start + size, num_tokens)))
    return windows


def truncate_pair(
    tokens_a: Sequence[Token], tokens_b: Sequence[Token], max_tokens: int
) -> tuple[Sequence[Token], Sequence[Token]]:
    """Truncate a pair to `max_tokens` in all. The longer one loses its last token first, B if equal.

    >>> truncate_pair(["a", "b", "c"], ["x"], max_tokens=3)
    (['a', 'b'], ['x'])
    """
    # Token by token this ends with both at half (B the smaller half). A shorter one stays whole, and
    # the other gets the rest.
    length_b = min(len(tokens_b), max(max_tokens // 2, max_tokens - len(tokens_a)))
    return tokens_a[: max_tokens - length_b], tokens_b[:length_b]


def add_special_tokens(
    tokens_a: Tokens, tokens_b: Tokens | None, *, cls: Tokens, sep: Tokens
) -> Tokens:
    """Return [CLS] A [SEP], then B [SEP] unless B is empty; lists, or arrays of integers."""
    if not tokens_b:
        return cls + tokens_a + sep
    return cls + tokens_a + sep + tokens_b + sep


def pad(values: Sequence[Any], length: int) -> list[Any]:
    return [*values, *[0] * (length - len(values))]
