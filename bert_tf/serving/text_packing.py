"""Packing and windows of long texts as TensorFlow operations, and answer spans from logits.

The same as `packing.py` and `data/windows.py`. Uses only operations of TF Serving: slicing,
masks and ragged concatenation.

Shapes: B batch or questions, S longest sequence or window of the batch, W windows in all, T tokens of
all passages, K `max_answer_length`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import tensorflow as tf

_ROWS_AT_ONCE = 32  # windows of long texts that the model computes together
_NEVER = -1e30  # score of impossible answers


def pack_ragged(
    ids_a: tf.RaggedTensor,
    ids_b: tf.RaggedTensor | None,
    *,
    max_seq_length: int,
    cls_id: int,
    sep_id: int,
    pad_id: int = 0,
    length_step: int = 1,
) -> dict[str, tf.Tensor]:
    """Do `pack`, and pad to the longest of the batch.

    Args:
        ids_a, ids_b: int32 [B, None]. `ids_b` is None, or a row is empty, for single sentences.

    Returns:
        `input_ids`, `input_mask`, `segment_ids`, int32 [B, S].
    """
    batch = ids_a.nrows(out_type=tf.int64)
    cls = tf.fill([batch, 1], tf.cast(cls_id, tf.int32))
    sep = tf.fill([batch, 1], tf.cast(sep_id, tf.int32))
    if ids_b is None:
        first = tf.concat([cls, first_values(ids_a, max_seq_length - 2), sep], axis=1)
        second = tf.RaggedTensor.from_tensor(tf.zeros([batch, 0], tf.int32))
    else:
        has_b = tf.cast(ids_b.row_lengths() > 0, tf.int64)
        room = max_seq_length - 2 - has_b
        # Half of the room each. One sentence gets what the other does not need (truncate_pair).
        keep_b = tf.minimum(ids_b.row_lengths(), tf.maximum(room // 2, room - ids_a.row_lengths()))
        first = tf.concat([cls, first_values(ids_a, room - keep_b), sep], axis=1)
        # A second sentence that lost all its tokens gets no [SEP].
        closing = tf.RaggedTensor.from_tensor(sep, lengths=tf.cast(keep_b > 0, tf.int64))
        second = tf.concat([first_values(ids_b, keep_b), closing], axis=1)
    rows = tf.concat([first, second], axis=1)
    segments = tf.concat([tf.zeros_like(first), tf.ones_like(second)], axis=1)
    # A batch without rows still has a position, because layers read the first one.
    longest = tf.maximum(rows.bounding_shape(axis=1, out_type=tf.int64), 1)
    shape = [-1, tf.minimum(-(-longest // length_step) * length_step, max_seq_length)]
    return {
        "input_ids": rows.to_tensor(pad_id, shape=shape),
        "input_mask": tf.ones_like(rows).to_tensor(shape=shape),
        "segment_ids": segments.to_tensor(shape=shape),
    }


def first_values(ids: tf.RaggedTensor, length) -> tf.RaggedTensor:
    """Return the first `length` (a number, or int64 [B]) values of each row."""
    lengths = tf.minimum(ids.row_lengths(), tf.cast(length, tf.int64))
    position = tf.ragged.range(ids.row_lengths()).flat_values
    is_first = position < tf.gather(lengths, ids.value_rowids())
    return tf.RaggedTensor.from_row_lengths(tf.boolean_mask(ids.flat_values, is_first), lengths)


def map_in_parts(
    function: Callable[..., dict[str, tf.Tensor]], inputs: Mapping[str, tf.Tensor]
) -> dict[str, tf.Tensor]:
    """Call `function` on int32 [W, S], few rows at a time, so that long texts need little memory."""
    rows, length = tf.unstack(tf.shape(inputs["input_ids"]))
    size = tf.clip_by_value(rows, 1, _ROWS_AT_ONCE)
    padding = tf.maximum(-rows % size, 1 - rows)  # at least one part
    parts = {
        name: tf.reshape(tf.pad(value, [[0, padding], [0, 0]]), [-1, size, length])
        for name, value in inputs.items()
    }
    spec = tf.TensorSpec([None, None], tf.int32)
    traced = tf.function(function, autograph=False).get_concrete_function(
        **dict.fromkeys(inputs, spec)
    )
    outputs = tf.map_fn(
        lambda part: function(**part),
        parts,
        fn_output_signature={
            name: tf.TensorSpec(output.shape, output.dtype)
            for name, output in traced.structured_outputs.items()
        },
        parallel_iterations=1,
    )
    return {
        name: tf.reshape(value, tf.concat([[-1], tf.shape(value)[2:]], axis=0))[:rows]
        for name, value in outputs.items()
    }


def graph_document_windows(
    ids_a: tf.RaggedTensor,
    ids_b: tf.RaggedTensor | None,
    *,
    max_seq_length: int,
    doc_stride: int,
    **special_ids: int,
) -> tuple[dict[str, tf.Tensor], tf.Tensor]:
    """Make the windows of `packing.window_pairs` for int32 ragged [B, None] ids, and pack them.

    Returns:
        `input_ids`, `input_mask`, `segment_ids`, int32 [W, S]; and int64 [B], windows per text.
    """
    lengths_a = ids_a.row_lengths()
    lengths_b = tf.zeros_like(lengths_a) if ids_b is None else ids_b.row_lengths()
    room = max_seq_length - 2 - tf.cast(lengths_b > 0, tf.int64)
    a_slides = lengths_a >= lengths_b
    long, short = tf.maximum(lengths_a, lengths_b), tf.minimum(lengths_a, lengths_b)
    short = tf.where(long + short > room, tf.minimum(short, room // 2), short)
    counts, owner, start, length = _slide(long, room - short, doc_stride)

    def part(ids: tf.RaggedTensor, slides: tf.Tensor) -> tf.RaggedTensor:
        slides = tf.gather(slides, owner)
        first = tf.gather(ids.row_starts(), owner) + tf.where(slides, start, 0)
        indexes = tf.ragged.range(first, first + tf.where(slides, length, tf.gather(short, owner)))
        return indexes.with_values(tf.gather(ids.flat_values, indexes.flat_values))

    inputs = pack_ragged(
        part(ids_a, a_slides),
        None if ids_b is None else part(ids_b, ~a_slides),
        max_seq_length=max_seq_length,
        **special_ids,
    )
    return inputs, counts


def _slide(
    num_tokens: tf.Tensor, size: tf.Tensor, stride: int
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor, tf.Tensor]:
    """Lay windows of at most `size` tokens over texts of `num_tokens`, int64 [B] each, one or more.

    Returns windows of each text, int64 [B]; text, start and length of each window, int64 [W].
    """
    step = tf.minimum(size, stride)
    counts = 1 - tf.minimum(size - num_tokens, 0) // step
    owner = tf.repeat(tf.range(tf.size(counts, tf.int64)), counts)
    start = tf.ragged.range(counts).flat_values * tf.gather(step, owner)
    length = tf.minimum(tf.gather(size, owner), tf.gather(num_tokens, owner) - start)
    return counts, owner, start, length


class GraphWindows(NamedTuple):
    inputs: dict[str, tf.Tensor]  # `input_ids`, `input_mask`, `segment_ids`, int32 [W, S]
    counts: tf.Tensor  # int64 [B], windows per question
    offset: tf.Tensor  # int64 [W], position of a window's first passage token
    first_token: tf.Tensor  # int64 [W], index of that token in all passages
    is_max_context: tf.Tensor  # bool [W, S], positions where an answer may begin
    is_passage: tf.Tensor  # bool [W, S]


def graph_windows(
    query_ids: tf.RaggedTensor,
    passage_ids: tf.RaggedTensor,
    *,
    max_seq_length: int,
    doc_stride: int,
    max_query_length: int,
    **special_ids: int,
) -> GraphWindows:
    """Make the windows of `windows.make_windows`, one of an empty passage, for ids as above."""
    query_ids = first_values(query_ids, max_query_length)
    num_tokens = passage_ids.row_lengths()
    room = max_seq_length - 3 - query_ids.row_lengths()
    counts, owner, start, length = _slide(num_tokens, room, doc_stride)
    first_token = tf.gather(passage_ids.row_starts(), owner) + start
    tokens = tf.ragged.range(first_token, first_token + length)
    inputs = pack_ragged(
        tf.gather(query_ids, owner),
        tokens.with_values(tf.gather(passage_ids.flat_values, tokens.flat_values)),
        max_seq_length=max_seq_length,
        **special_ids,
    )
    offset = tf.gather(query_ids.row_lengths(), owner) + 2
    width = tf.shape(inputs["input_ids"], tf.int64)[1]
    # [W, S], in the window's part of the passage
    position = tf.range(width)[None, :] - offset[:, None]
    is_passage = (position >= 0) & (position < length[:, None])
    context = tf.minimum(position, length[:, None] - 1 - position)
    # The first of equal windows wins. Other scores differ by more.
    score = tf.cast(context, tf.float64) + 0.01 * tf.cast(length, tf.float64)[:, None]
    score -= 1e-9 * tf.cast(tf.range(tf.size(owner)), tf.float64)[:, None]
    where = tf.where(is_passage)
    token = tf.gather_nd(first_token[:, None] + position, where)
    scores = tf.gather_nd(score, where)
    best = tf.math.unsorted_segment_max(scores, token, tf.size(passage_ids.flat_values, tf.int64))
    is_best = tf.equal(scores, tf.gather(best, token))
    is_max_context = tf.scatter_nd(where, tf.cast(is_best, tf.int32), tf.shape(position, tf.int64))
    return GraphWindows(inputs, counts, offset, first_token, is_max_context > 0, is_passage)


class GraphSpans(NamedTuple):
    """Best answer to each question. `start` and `end` are undefined without a possible answer."""

    start: tf.Tensor  # int64 [B], first token, in all passages
    end: tf.Tensor  # int64 [B], last token
    score: tf.Tensor  # float32 [B], sum of both logits; -1e30 or less without a possible answer
    null_score: tf.Tensor  # float32 [B], score of "no answer"


def best_spans(
    windows: GraphWindows,
    start_logits: tf.Tensor,
    end_logits: tf.Tensor,
    *,
    n_best_size: int,
    max_answer_length: int,
) -> GraphSpans:
    """Return the answers of `answer_decoding.predict_answer`, from float32 logits [W, S]."""
    is_real = windows.inputs["input_mask"] > 0
    starts = _among_best(start_logits, is_real, n_best_size, windows.is_max_context)
    ends = _among_best(end_logits, is_real, n_best_size, windows.is_passage)
    padded = tf.pad(ends, [[0, 0], [0, max_answer_length - 1]], constant_values=_NEVER)
    ahead = tf.signal.frame(padded, max_answer_length, 1)  # [W, S, K], ends at or after each start
    length = tf.argmax(ahead, axis=-1)
    scores = starts + tf.reduce_max(ahead, axis=-1)  # [W, S]
    position = tf.argmax(scores, axis=-1)  # [W]
    score = tf.reduce_max(scores, axis=-1)
    start = windows.first_token + position - windows.offset
    end = start + tf.gather(length, position, batch_dims=1)

    by_question = tf.RaggedTensor.from_row_lengths(score, windows.counts, validate=False)
    max_windows = tf.maximum(by_question.bounding_shape(axis=1, out_type=tf.int64), 1)
    window = tf.argmax(by_question.to_tensor(4 * _NEVER, shape=[-1, max_windows]), axis=-1)
    window += by_question.row_starts()
    null = by_question.with_values(start_logits[:, 0] + end_logits[:, 0])
    return GraphSpans(
        tf.gather(start, window),
        tf.gather(end, window),
        tf.gather(score, window),
        tf.reduce_min(null, axis=-1),
    )


def _among_best(
    logits: tf.Tensor, is_real: tf.Tensor, n_best_size: int, allowed: tf.Tensor
) -> tf.Tensor:
    """Set all logits to `_NEVER` unless allowed and among the best of their window."""
    logits = tf.where(is_real, tf.cast(logits, tf.float32), _NEVER)
    count = tf.minimum(n_best_size, tf.shape(logits)[1])
    threshold = tf.math.top_k(logits, count).values[:, -1:]
    return tf.where(allowed & (logits >= threshold), logits, _NEVER)


class WordWindows(NamedTuple):
    pieces: tf.RaggedTensor  # int32 [W, None]
    window: tf.Tensor  # int64 [N], window in which each word is predicted
    position: tf.Tensor  # int64 [N], index of the word's first piece in that window


def graph_word_windows(
    pieces: tf.RaggedTensor, splits: tf.Tensor, max_tokens: int, stride: int | None = None
) -> WordWindows:
    """Make the windows of `windows.word_windows`. A text without words has none.

    Args:
        pieces: int32 ragged [N, None], 1 to `max_tokens` for each word.
        splits: int64 [B + 1], number of words before each text.
    """
    stride = max(1, max_tokens // 2) if stride is None else stride
    offsets = pieces.row_splits  # pieces before each word, and the total
    counts = splits[1:] - splits[:-1]
    text = tf.repeat(tf.range(tf.size(counts)), counts)  # int32 [N]
    last_word, piece = tf.gather(splits[1:], text), offsets[:-1]
    total = tf.gather(offsets, last_word)

    # The window that would begin at each word: the last one of a text begins as far left as fits.
    is_last = total - piece <= max_tokens
    number = tf.range(tf.size(piece, tf.int64))
    leftmost = tf.maximum(tf.gather(splits, text), _first_at_least(offsets, total - max_tokens))
    start = tf.where(is_last, leftmost, number)
    end = tf.where(is_last, last_word, _first_at_least(offsets, piece + max_tokens + 1) - 1)
    following = tf.minimum(end, tf.maximum(number + 1, _first_at_least(offsets, piece + stride)))

    def step(words, is_start):
        is_start = tf.tensor_scatter_nd_update(is_start, words[:, None], tf.ones_like(words))
        words = tf.boolean_mask(words, ~tf.gather(is_last, words))
        return tf.gather(following, words), is_start

    state = tf.boolean_mask(splits[:-1], counts > 0), tf.zeros_like(number)
    shapes = tf.TensorShape([None]), tf.TensorShape([None])
    _, is_start = tf.while_loop(lambda words, _: tf.size(words) > 0, step, state, shapes)
    first = tf.where(is_start > 0)[:, 0]  # int64 [W]
    owner, start, end = (tf.gather(values, first) for values in (text, start, end))

    # Two windows share their overlap equally. The first and the last get the rest.
    both = tf.gather(offsets, start[1:]) + tf.gather(offsets, end[:-1])
    middle = _first_at_least(2 * offsets, both)
    border = tf.where(tf.equal(owner[1:], owner[:-1]), middle, end[:-1])
    border = tf.concat([[0], border, end[-1:]], axis=0)
    predicted = border[1:] - border[:-1]  # words of each window
    window = tf.repeat(tf.range(tf.size(owner, tf.int64)), predicted)
    position = piece - tf.gather(offsets, tf.gather(start, window))
    indexes = tf.ragged.range(tf.gather(offsets, start), tf.gather(offsets, end))
    values = tf.gather(pieces.values, indexes.values)
    return WordWindows(indexes.with_values(values), window, position)


def _first_at_least(values: tf.Tensor, bounds: tf.Tensor) -> tf.Tensor:
    """Return `bisect_left` of each bound."""
    return tf.searchsorted(values, bounds, out_type=tf.int64)
