"""What a client should not send is answered all the same, by the models of every task."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.programs.export_saved_model import ExportOptions, export_saved_model

pytestmark = pytest.mark.night

BAD = {
    "empty": b"",
    "one long word": b"x" * 100_000,
    "a long text": b"a cat. " * 14_286,  # 100,002 characters
    "not UTF-8": b"\xff\xfe the \xe7\x8c cat \x80 is \xc3 in\xf0\x9f the \xed\xa0\x80 lake",
    "nothing but controls": "\x00\u200b\ufffd\x1f".encode(),
}
# Name of the model's fixture, options, and the texts that each signature takes.
MODELS = {
    "single": ("sentence_model", {}, {"serving_default": ("text_a",)}),
    "pair": ("pair_model", {}, {"serving_default": ("text_a", "text_b")}),
    "squad": ("squad_model", {}, {"serving_default": ("question", "context")}),
    "squad2": ("squad2_model", {}, {"serving_default": ("question", "context")}),
    "ner": ("ner_model", {}, {"serving_default": ("text",), "words": ("words",)}),
    "swag": ("swag_model", {}, {"serving_default": ("text_a", "choices")}),
    "encoder": (
        "pretrained",
        {"head": "encoder"},
        {"serving_default": ("text_a",), "pair": ("text_a", "text_b")},
    ),
    "masked_lm": ("pretrained", {"head": "masked_lm"}, {"serving_default": ("text",)}),
}
TABLES = ("words", "choices")  # inputs with a second dimension


# One model of one or two texts, and one of places in a text. The others are long.
NOT_LONG = ("pair", "squad")


@pytest.fixture(scope="module")
def served(request, tmp_path_factory):
    """Function (name in MODELS) -> the SavedModel, made once."""

    @functools.cache
    def of(name):
        fixture, options, _ = MODELS[name]
        folder = str(tmp_path_factory.mktemp("served") / name)
        model_dir = str(request.getfixturevalue(fixture))
        export_saved_model(ExportOptions(model_dir=model_dir, export_dir=folder, **options))
        return tf.saved_model.load(folder)

    return of


@pytest.fixture(
    scope="module",
    params=[pytest.param(n, marks=() if n in NOT_LONG else pytest.mark.weekly) for n in MODELS],
)
def model(request, served):
    """Signatures on text, what each takes, and the SavedModel."""
    return served(request.param), MODELS[request.param][2]


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


@pytest.mark.parametrize("kind", BAD)
def test_bad_texts_are_answered(model, kind):
    loaded, signatures = model
    for signature, names in signatures.items():
        for bad in names:  # the bad text in one place, an ordinary one in the others
            inputs = {
                name: column(name, [BAD[kind] if name == bad else b"the cat", b"a dog"])
                for name in names
            }
            check(loaded.signatures[signature](**inputs), rows=2)
        inputs = {name: column(name, [BAD[kind]]) for name in names}
        check(loaded.signatures[signature](**inputs), rows=1)


def test_inputs_of_two_sizes_are_refused_with_their_names_and_sizes(model):
    loaded, signatures = model
    for signature, names in signatures.items():
        for few, many in ((1, 2), (2, 1), (2, 0)):
            texts = {n: column(n, [b"a cat"] * (few if n == names[0] else many)) for n in names}
            if len(names) > 1:
                expected = rf"`{names[0]}`[^0-9]*\[?{few}\b.*`{names[1]}`[^0-9]*\[?{many}\b"
                with pytest.raises(tf.errors.InvalidArgumentError, match=expected):
                    loaded.signatures[signature](**texts)


def test_inputs_of_another_rank_are_refused_with_their_name_and_rank(model):
    loaded, signatures = model
    for signature, names in signatures.items():
        right = {name: column(name, [b"a cat", b"a dog"]) for name in names}
        for name in names:
            rank = right[name].shape.rank
            for bad in (right[name][:1, None], right[name][..., None], right[name][0]):
                expected = (
                    rf"`{name}` has this many dimensions:[^0-9]*{bad.shape.rank}.*have {rank}"
                )
                with pytest.raises(tf.errors.InvalidArgumentError, match=expected):
                    loaded.signatures[signature](**{**right, name: bad})


def test_ids_outside_of_the_tables_are_refused_with_their_limits(model):
    loaded, _ = model
    tokens = loaded.signatures["tokens"]
    _, specs = tokens.structured_input_signature
    rank = specs["input_ids"].shape.rank
    ids = {
        name: tf.ones([1] * (spec.shape.rank - 1) + [3], tf.int32) for name, spec in specs.items()
    }
    assert tokens(**ids)
    for name, bad in (("input_ids", -5), ("input_ids", 99999), ("segment_ids", 7)):
        values = tf.reshape([1, bad, 1], [1] * (rank - 1) + [3])
        expected = rf"`{name}` must be from 0 to \d+ .* but is from.*{bad}"
        with pytest.raises(tf.errors.InvalidArgumentError, match=expected):
            tokens(**{**ids, name: values})


def test_an_empty_batch_has_an_empty_answer(model):
    loaded, signatures = model
    for signature, names in signatures.items():
        shapes = {name: [0, 3] if name in TABLES else [0] for name in names}
        inputs = {name: tf.zeros(shape, tf.string) for name, shape in shapes.items()}
        check(loaded.signatures[signature](**inputs), rows=0)
    _, inputs = loaded.signatures["tokens"].structured_input_signature
    ids = {n: tf.zeros([0, *[3] * (spec.shape.rank - 1)], tf.int32) for n, spec in inputs.items()}
    check(loaded.signatures["tokens"](**ids), rows=0)


def test_a_bad_text_does_not_change_the_answer_to_another(model):
    loaded, signatures = model
    for signature, names in signatures.items():
        good = [b"the happy cat in the [MASK]"]
        alone = loaded.signatures[signature](**{name: column(name, good) for name in names})
        texts = [*good, BAD["not UTF-8"], BAD["one long word"], b""]
        together = loaded.signatures[signature](**{name: column(name, texts) for name in names})
        for name, value in alone.items():
            first = together[name].numpy()[:1]
            if first.ndim > 1:  # the others may have more entities than this one
                first = first[:, : value.shape[1]]
            if value.dtype == tf.string:
                assert first.tolist() == value.numpy().tolist()
            else:
                np.testing.assert_allclose(first, value.numpy(), rtol=1e-4, atol=1e-5)


def test_places_are_counted_in_characters_where_bytes_are_not_utf8(served):
    """Each byte sequence that is no character counts as one, as `bytes.decode` replaces it."""
    context = b"\xff The \xe7 cat is in the barn.\x80 The owl is in the lake. \xfe"
    outputs = served("squad").signatures["serving_default"](
        question=tf.constant([b"the cat in the"]), context=tf.constant([context])
    )
    start, end = int(outputs["start"][0]), int(outputs["end"][0])
    text = context.decode("utf-8", errors="replace")
    assert text[start:end] == outputs["answer"].numpy()[0].decode() != ""
