"""What a client should not send is answered all the same, or refused with the input's name."""

import functools
import tempfile

import numpy as np
import pytest
import tensorflow as tf
from export_kinds import served

from bert_tf.serving.saved_model import write_saved_model

pytestmark = pytest.mark.night

BAD = {
    "empty": b"",
    "one long word": b"x" * 100_000,
    "a long text": b"a cat. " * 14_286,  # 100,002 characters
    "not UTF-8": b"\xff\xfe the \xe7\x8c cat \x80 is \xc3 in\xf0\x9f the \xed\xa0\x80 lake",
    "nothing but controls": "\x00\u200b\ufffd\x1f".encode(),
}
TABLES = ("words", "choices")  # inputs with a second dimension
# Of two texts and places in one, of words, of choices, and of masks.
KINDS = ("squad", "ner", "swag", "masked_lm")


@functools.cache
def saved(kind):
    """The SavedModel, and signature on text -> its inputs."""
    model = served(kind)
    folder = f"{tempfile.mkdtemp()}/1"
    write_saved_model(model, folder)
    functions = model.text_functions().items()
    return tf.saved_model.load(folder), {
        name: [spec.name for spec in specs] for name, (_, specs) in functions
    }


@pytest.fixture(params=KINDS, scope="module")
def model(request):
    return saved(request.param)


def column(name, texts):
    """An input with one row for each text; of a table the text stands beside others."""
    if name not in TABLES:
        return tf.constant(texts, tf.string)
    rows = [[b"a cat", text, b"the lake"] for text in texts]
    return tf.constant(rows, tf.string, shape=[len(rows), 3])


def check(outputs, rows):
    assert outputs
    for name, value in outputs.items():
        assert value.shape[0] == rows, name
        if value.dtype.is_floating:
            assert np.isfinite(value.numpy()).all(), name


def refused(function, inputs, *parts):
    """The error has these parts."""
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        function(**inputs)
    assert all(part in str(caught.value) for part in parts)


def test_bad_texts_are_answered_and_change_no_other(model):
    loaded, signatures = model
    good = b"the happy cat in the [MASK]"
    for signature, names in signatures.items():
        function = loaded.signatures[signature]
        alone = function(**{name: column(name, [good]) for name in names})
        for bad in names:  # bad texts in one place, an ordinary one in the others
            texts = {n: [good, *(BAD.values() if n == bad else [good] * len(BAD))] for n in names}
            together = function(**{name: column(name, texts[name]) for name in names})
            check(together, rows=1 + len(BAD))
            for name, value in alone.items():
                first = together[name].numpy()[:1]
                if first.ndim > 1:  # the others may have more entities than this one
                    first = first[:, : value.shape[1]]
                if value.dtype == tf.string:
                    assert first.tolist() == value.numpy().tolist()
                else:
                    np.testing.assert_allclose(first, value.numpy(), rtol=1e-4, atol=1e-5)
        check(function(**{name: column(name, [b""]) for name in names}), rows=1)


def test_an_empty_batch_has_an_empty_answer(model):
    loaded, signatures = model
    for signature, names in signatures.items():
        inputs = {name: column(name, []) for name in names}
        check(loaded.signatures[signature](**inputs), rows=0)
    _, inputs = loaded.signatures["tokens"].structured_input_signature
    ids = {n: tf.zeros([0, *[3] * (spec.shape.rank - 1)], tf.int32) for n, spec in inputs.items()}
    check(loaded.signatures["tokens"](**ids), rows=0)


def test_texts_of_other_sizes_and_ranks_are_refused(model):
    loaded, signatures = model
    for signature, names in signatures.items():
        function = loaded.signatures[signature]
        right = {name: column(name, [b"a cat", b"a dog"]) for name in names}
        for name, value in right.items():
            for bad in (value[:1, None], value[..., None], value[0]):
                refused(function, right | {name: bad}, f"tensor {name} [")
        for few, many in ((1, 2), (2, 1), (2, 0)) if len(names) > 1 else ():
            sizes = {names[0]: few, names[1]: many}
            inputs = {n: column(n, [b"a cat"] * size) for n, size in sizes.items()}
            refused(function, inputs, *(f"`{name}`" for name in names))


def test_ids_outside_of_the_tables_are_refused(model):
    tokens = model[0].signatures["tokens"]
    _, specs = tokens.structured_input_signature
    shape = [1] * (specs["input_ids"].shape.rank - 1) + [3]
    ids = {n: tf.ones([1] * (spec.shape.rank - 1) + [3], tf.int32) for n, spec in specs.items()}
    assert tokens(**ids)
    for name, bad in (("input_ids", -5), ("input_ids", 99999), ("segment_ids", 7)):
        refused(tokens, ids | {name: tf.reshape([1, bad, 1], shape)}, f"`{name}`")


def test_places_are_counted_in_characters_where_bytes_are_not_utf8():
    """Each byte sequence that is no character counts as one, as `bytes.decode` replaces it."""
    context = b"\xff The \xe7 cat is in the barn.\x80 The owl is in the lake. \xfe"
    outputs = saved("squad")[0].signatures["serving_default"](
        question=tf.constant([b"the cat in the"]), context=tf.constant([context])
    )
    start, end = int(outputs["start"][0]), int(outputs["end"][0])
    text = context.decode("utf-8", errors="replace")
    assert text[start:end] == outputs["answer"].numpy()[0].decode() != ""
