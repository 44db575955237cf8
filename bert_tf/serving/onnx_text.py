"""FullTokenizer as ONNX operations, for ONNX files that take text.

Each character gets an entry of a table made from `unicodedata` (text_ops/characters.py). The entry has
the cleaned and lower-cased characters, with spaces around those that are words of their own. Joining
them and splitting at spaces gives the words. All else is in ONNX's own operations.

ONNX Runtime's Tokenizer splits strings. Two operations are those of onnxruntime-extensions: one joins
strings, and one finds the longest pieces. Its BertTokenizer is unsuitable: its Unicode tables differ
from Python's, and a word that is only partly known yields its first pieces in front of [UNK]. Its
regular expressions fail in a process that also contains tensorflow-text, which has the same symbols.

Shapes: B texts, C most characters of a text and 1, E entries, W words, P pieces, N places of letters.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bert_tf.serving.onnx_nodes import CONTRIBUTED, EXTENSIONS, ML, Nodes, int64_value
from bert_tf.serving.served import INPUT_NAMES, Served
from bert_tf.text_ops import characters
from bert_tf.text_ops.characters import (
    ALONE,
    CASED,
    CODE_POINT,
    FINAL_SIGMA,
    IGNORABLE,
    MARK,
    NEITHER,
    ORDER_SHIFT,
    SEPARATOR,
)
from bert_tf.tokenization import MAX_INPUT_CHARS_PER_WORD

_OWN, _ABSENT = -1, 0  # letters that are the character itself, and no letter
_END = np.iinfo(np.int64).max


def add_tokenizer(model: Any, names: Sequence[str], served: Served) -> list[str]:
    """Put the tokenizer in front of a model on ids, which then takes texts.

    Args:
        model: a ModelProto with inputs input_ids, input_mask, segment_ids.
        names: of the new inputs, string [B]: one, or two for pairs.
        served: the model's vocabulary, case and lengths.

    Returns:
        The operations of onnxruntime-extensions that it uses.
    """
    from onnx import TensorProto

    nodes = Nodes("tokenizer")
    batch = nodes("Shape", names[0])
    # Reshape fails unless all inputs have the same number of rows.
    others = [nodes("Reshape", name, batch) for name in names[1:]]
    texts = nodes("Concat", names[0], *others, axis=0) if others else names[0]
    pieces, splits = _tokenized(nodes, texts, served.vocabulary, served.do_lower_case)
    packed = _packed(nodes, pieces, splits, batch, len(names) == 2, served)
    for value, name in zip(packed, INPUT_NAMES, strict=True):
        nodes.add("Cast", [value], [name], to=TensorProto.INT32)
    nodes.put_before(model, names)
    return sorted({node.op_type for node in nodes.nodes if node.domain == EXTENSIONS})


def tokenizer_model(vocab: Mapping[str, int], do_lower_case: bool) -> Any:
    """Return a ModelProto: text_a, string [B] -> `pieces` int64 [P], `splits` int64 [B + 1].

    The ids of all texts, and their number before each text.
    """
    from onnx import TensorProto, helper

    outputs = ("pieces", "splits")
    values = [helper.make_tensor_value_info(name, TensorProto.INT64, [None]) for name in outputs]
    graph = helper.make_graph([], "tokenizer", [], values)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    nodes = Nodes("tokenizer")
    for value, name in zip(_tokenized(nodes, "text_a", vocab, do_lower_case), outputs, strict=True):
        nodes.add("Identity", [value], [name])
    nodes.put_before(model, ["text_a"])
    return model


class _Table(NamedTuple):
    """Entries of characters. Entry 0 is for all characters that stay as they are.

    Attributes:
        characters: of the entries from 1.
        words: [E], the letters of each entry as one string; "" in entry 0.
        letters: [E, most letters], indexes of `strings`.
        strings: of each letter, with spaces around it or empty.
        orders: of each letter, for canonical ordering.
        contexts: [E], the role next to a capital sigma.
    """

    characters: list[str]
    words: list[str]
    letters: np.ndarray
    strings: list[str]
    orders: np.ndarray
    contexts: np.ndarray


def _table(do_lower_case: bool) -> _Table:
    rules = characters.rules(do_lower_case)
    code_points = tf.range(0x110000)
    first = code_points + rules.first_offset.look_up(code_points)
    columns = [first, *(table.look_up(code_points) for table in rules.further)]
    values = tf.stack(columns, axis=1).numpy()
    contexts = np.full(len(values), NEITHER, np.int32)
    if rules.sigma_context is not None:
        contexts = rules.sigma_context.look_up(code_points).numpy()
    has_entry = (values[:, 0] != np.arange(len(values))) | values[:, 1:].any(axis=1)
    has_entry |= contexts != NEITHER
    has_entry[0xD800:0xE000] = False  # not in UTF-8
    own = np.full((1, values.shape[1]), _ABSENT)
    own[0, 0] = _OWN
    values = np.concatenate([own, values[has_entry]])
    unique, letters = np.unique(values, return_inverse=True)
    letters = letters.reshape(values.shape)
    strings = [_string_of(int(value)) for value in unique]
    return _Table(
        [chr(code_point) for code_point in np.flatnonzero(has_entry)],
        ["".join(strings[letter] for letter in row) for row in letters],
        letters,
        strings,
        np.maximum(unique, 0) >> ORDER_SHIFT,
        np.concatenate([[NEITHER], contexts[has_entry]]),
    )


def _string_of(value: int) -> str:
    """Return a letter of `characters.rules`, with spaces around it if it is a word of its own."""
    if value in (_OWN, _ABSENT) or value & MARK:
        return ""
    if value & SEPARATOR:
        return " "
    char = chr(value & CODE_POINT)
    return f" {char} " if value & ALONE else char


def _tokenized(
    nodes: Nodes, texts: str, vocab: Mapping[str, int], do_lower_case: bool
) -> tuple[str, str]:
    """Return the ids of texts, string [B], and their number before each text: [P], [B + 1]."""
    from onnx import TensorProto

    table = _table(do_lower_case)
    # Tokenizer and StringJoin fail without any characters or words, so a row is added.
    chars = _characters(nodes, nodes("Concat", texts, ["a"], axis=0))
    entries = nodes(
        "LabelEncoder",
        chars,
        domain=ML,
        keys_strings=table.characters,
        values_int64s=range(1, len(table.characters) + 1),
        default_int64=0,
    )

    def plain(inner: Nodes) -> str:
        words = inner("Gather", table.words, entries)
        return inner("Where", inner("Equal", entries, 0), chars, words)

    if do_lower_case:
        entries = _with_final_sigmas(nodes, table, entries)
        moves = (table.orders[table.letters] > 0).any(axis=1)
        cleaned = nodes.if_any(
            nodes("Gather", moves, entries),
            TensorProto.STRING,
            lambda inner: _reordered(inner, table, chars, entries),
            plain,
        )
    else:
        cleaned = plain(nodes)
    lines = nodes("StringJoin", cleaned, [""], [1], domain=EXTENSIONS)
    pieces, splits = _pieces(nodes, lines, vocab)
    splits = nodes("Slice", splits, [0], [-1])
    return nodes("Slice", pieces, [0], nodes("Slice", splits, [-1], [_END])), splits


def _characters(nodes: Nodes, texts: str) -> str:
    """Return the characters of texts, string [B, C], with at least one "" at the end of each row."""
    chars = _split(nodes, texts, "")
    shape = nodes("Concat", nodes("Shape", chars, end=1), [1], axis=0)
    ends = nodes("Gather", [""], nodes("ConstantOfShape", shape, value=int64_value(0)))
    return nodes("Concat", chars, ends, axis=1)


def _split(nodes: Nodes, texts: str, separator: str) -> str:
    """Return the parts of texts between separators, [B, most parts], or all characters for ""."""
    options = {"separators": [separator], "mark": 0, "mincharnum": 1, "pad_value": ""}
    return nodes("Tokenizer", texts, domain=CONTRIBUTED, **options)


def _with_final_sigmas(nodes: Nodes, table: _Table, entries: str) -> str:
    """Replace the entry of Σ by that of ς at the end of a word (text_ops/tokenizer.py)."""
    from onnx import TensorProto

    sigma, final = (table.characters.index(char) + 1 for char in ("Σ", chr(FINAL_SIGMA)))

    def replaced(inner: Nodes) -> str:
        flat = inner("Reshape", entries, [-1])
        context = inner("Gather", table.contexts, flat)
        position = _where(inner, inner("Not", inner("Equal", context, IGNORABLE)))
        is_cased = inner("Equal", inner("Gather", context, position), CASED)
        is_cased = inner("Cast", is_cased, to=TensorProto.INT64)
        is_cased = inner("Concat", [0], is_cased, [0], axis=0)
        before = inner("Equal", inner("Slice", is_cased, [0], [-2]), 1)
        after = inner("Equal", inner("Slice", is_cased, [2], [_END]), 1)
        is_sigma = inner("Equal", inner("Gather", flat, position), sigma)
        is_final = inner("And", inner("And", is_sigma, before), inner("Not", after))
        where = inner("Compress", position, is_final, axis=0)
        new = inner("Expand", [final], inner("Shape", where))
        return inner("Reshape", inner("ScatterElements", flat, where, new), inner("Shape", entries))

    is_sigma = nodes("Cast", nodes("Equal", entries, sigma), to=TensorProto.INT64)
    return nodes.if_any(is_sigma, TensorProto.INT64, replaced, lambda _: entries)


def _reordered(nodes: Nodes, table: _Table, chars: str, entries: str) -> str:
    """Return the letters, string [B, N], with each run of combining letters sorted by class (NFD)."""
    from onnx import TensorProto

    num_rows = nodes("Slice", nodes("Shape", entries), [0], [1])
    grid = nodes("Gather", table.letters, entries)  # [B, C, most letters]
    letters = nodes("Reshape", grid, [-1])
    absent = table.letters[0, 1]
    position = _where(nodes, nodes("Not", nodes("Equal", letters, absent)))
    present = nodes("Gather", letters, position)
    order = nodes("Gather", table.orders, present)
    starts_run = nodes("Cast", nodes("Equal", order, 0), to=TensorProto.INT64)
    run = nodes("CumSum", starts_run, 0)
    count = nodes("Size", present)
    key = nodes("Add", nodes("Mul", run, [int(table.orders.max()) + 1]), order)
    key = nodes(
        "Add", nodes("Mul", key, count), nodes("Range", 0, count, 1)
    )  # so that none are equal
    count = nodes("Unsqueeze", count, [0])
    _, ranking = nodes.several("TopK", key, count, outputs=2, largest=0, sorted=1)
    letters = nodes("ScatterElements", letters, position, nodes("Gather", present, ranking))
    grid = nodes("Reshape", letters, nodes("Shape", grid))
    is_own = nodes("Equal", grid, table.letters[0, 0])
    strings = nodes("Gather", table.strings, grid)
    strings = nodes("Where", is_own, nodes("Unsqueeze", chars, [2]), strings)
    return nodes("Reshape", strings, nodes("Concat", num_rows, [-1], axis=0))


def _pieces(nodes: Nodes, lines: str, vocab: Mapping[str, int]) -> tuple[str, str]:
    """Return the ids of the pieces of lines whose words are separated by spaces, and their splits."""
    from onnx import TensorProto

    words = _split(nodes, lines, " ")  # [B, most words]
    is_word = nodes(
        "LabelEncoder", words, domain=ML, keys_strings=[""], values_int64s=[0], default_int64=1
    )
    rows = nodes("CumSum", nodes("ReduceSum", is_word, [1], keepdims=0), 0)
    rows = nodes("Concat", [0], rows, axis=0)
    is_word = nodes("Cast", nodes("Reshape", is_word, [-1]), to=TensorProto.BOOL)
    words = nodes("Compress", words, is_word)
    tokens, splits, _, _ = nodes.several(
        "WordpieceTokenizer",
        words,
        np.zeros(0, np.int64),
        outputs=4,
        domain=EXTENSIONS,
        vocab=json.dumps(dict(vocab)),
        suffix_indicator="##",
        unknown_token="[UNK]",
        max_input_chars_per_word=MAX_INPUT_CHARS_PER_WORD,
    )
    unknown = vocab["[UNK]"]
    ids = nodes(
        "LabelEncoder",
        tokens,
        domain=ML,
        keys_strings=list(vocab),
        values_int64s=list(vocab.values()),
        default_int64=unknown,
    )
    # A word that is only partly known has pieces in front of its [UNK]. They are removed.
    zeros = nodes("ConstantOfShape", nodes("Shape", ids), value=int64_value(0))
    starts = nodes("Slice", splits, [0], [-1])
    last = nodes("Sub", nodes("Slice", splits, [1], [_END]), [1])
    ones = nodes("ConstantOfShape", nodes("Shape", starts), value=int64_value(1))
    word_of = nodes("CumSum", nodes("ScatterElements", zeros, starts, ones), 0)
    word_of = nodes("Sub", word_of, [1])
    is_last = nodes("Cast", nodes("ScatterElements", zeros, last, ones), to=TensorProto.BOOL)
    is_unknown = nodes("Equal", nodes("Gather", ids, last), unknown)
    is_kept = nodes("Or", nodes("Not", nodes("Gather", is_unknown, word_of)), is_last)
    count = nodes("CumSum", nodes("Cast", is_kept, to=TensorProto.INT64), 0)
    count = nodes("Concat", [0], count, axis=0)
    kept = nodes("Compress", ids, is_kept, axis=0)
    return kept, nodes("Gather", count, nodes("Gather", splits, rows))


def _packed(
    nodes: Nodes, pieces: str, splits: str, batch: str, is_pair: bool, served: Served
) -> list[str]:
    """Return `INPUT_NAMES`, int64 [B, S], of texts or pairs: text_ops/packing.py as ONNX operations.

    tf2onnx 1.17 converts ragged tensors wrongly where a row is empty.

    Args:
        splits: [B + 1]; of pairs [2 B + 1], the second texts after all first ones.
    """
    from onnx import TensorProto

    def column(values: str) -> str:
        return nodes("Unsqueeze", values, [1])

    def rows_of(start: Any, end: str) -> tuple[str, str]:
        """Return the start and the number of the pieces of each text, [B, 1]."""
        starts = nodes("Slice", splits, start, end)
        ends = nodes("Slice", splits, nodes("Add", start, [1]), nodes("Add", end, [1]))
        return column(starts), column(nodes("Sub", ends, starts))

    def integer(condition: str) -> str:
        return nodes("Cast", condition, to=TensorProto.INT64)

    longest = served.max_seq_length
    start, length = rows_of([0], batch)
    if is_pair:
        start_b, length_b = rows_of(batch, nodes("Mul", batch, [2]))
        room = nodes("Sub", longest - 2, integer(nodes("Greater", length_b, 0)))
        spare = nodes("Max", nodes("Div", room, 2), nodes("Sub", room, length))
        kept_b = nodes("Min", length_b, spare)
        kept = nodes("Min", length, nodes("Sub", room, kept_b))
    else:
        kept = nodes("Min", length, longest - 2)
    ends = nodes("Add", kept, 2)  # of the first text
    total = ends
    if is_pair:
        total = nodes("Add", nodes("Add", ends, kept_b), integer(nodes("Greater", kept_b, 0)))
    most = nodes("ReduceMax", nodes("Concat", total, [[1]], axis=0), keepdims=0)
    step = served.length_step
    steps = nodes("Div", nodes("Add", most, step - 1), step)
    position = nodes("Range", 0, nodes("Min", nodes("Mul", steps, step), longest), 1)
    mask = nodes("Less", position, total)
    segments = nodes("And", mask, nodes("GreaterOrEqual", position, ends))

    # Places in `values`, whose first three are not of the texts.
    values = nodes("Concat", [0, served.cls_id, served.sep_id], pieces, axis=0)
    place = nodes("Add", nodes("Add", start, position), 2)
    if is_pair:
        place_b = nodes("Add", nodes("Add", start_b, nodes("Sub", position, ends)), 3)
        place = nodes("Where", segments, place_b, place)
    is_sep = nodes("Equal", position, nodes("Sub", ends, 1))
    is_sep = nodes("Or", is_sep, nodes("Equal", position, nodes("Sub", total, 1)))
    place = nodes("Where", is_sep, 2, place)
    place = nodes("Where", nodes("Equal", position, 0), 1, place)
    ids = nodes("Gather", values, nodes("Where", mask, place, 0))
    return [ids, integer(mask), integer(segments)]


def _where(nodes: Nodes, condition: str) -> str:
    """Return the indexes at which a vector is true."""
    return nodes("Squeeze", nodes("NonZero", condition), [0])
