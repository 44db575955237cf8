"""Signatures under the names of other libraries: the same numbers as under ours."""

import numpy as np
import pytest
import tensorflow as tf
import tiny_text_models as tiny

from bert_tf.programs.export_saved_model import ExportOptions
from bert_tf.serving.classification import ServedClassifier
from bert_tf.serving.embeddings import ServedEmbedder
from bert_tf.serving.encoder import ServedEncoder
from bert_tf.serving.masked_lm import ServedMaskFiller
from bert_tf.serving.multiple_choice import ServedChooser
from bert_tf.serving.question_answering import ServedAnswerer
from bert_tf.serving.saved_model import write_saved_model
from bert_tf.serving.served import INPUT_NAMES
from bert_tf.serving.token_classification import ServedTagger
from bert_tf.tasks.answer_decoding import AnswerSettings
from bert_tf.tasks.classification import ClassificationTask
from bert_tf.tasks.embeddings import EmbeddingTask
from bert_tf.tasks.token_classification import TokenClassificationTask

LENGTH = tiny.MAX_SEQ_LENGTH
NAMES = ("serving_default", "tokens", "tf_example", "hugging_face")
TEXTS = ["the cat sat on a mat .", "", "owls", "who ? 京"]
OTHERS = TEXTS[::-1]


def trained(task):
    return tiny.trained(task)


def classifier(**options):
    labels = () if "problem_type" in options else ("bad", "fair", "good")
    return trained(ClassificationTask(labels, LENGTH, **options))


def encoder(**options):
    model = trained(None)
    return ServedEncoder(model.model, model.tokenizer, LENGTH, **options)


def mask_filler():
    model = tiny.pretrained()
    return ServedMaskFiller(model.model, model.tokenizer, LENGTH)


KINDS = {
    "classifier": lambda: ServedClassifier(classifier(), LENGTH),
    "pairs": lambda: ServedClassifier(classifier(is_pair=True), LENGTH),
    "regression": lambda: ServedClassifier(classifier(problem_type="regression"), LENGTH),
    "answerer": lambda: ServedAnswerer(tiny.answerer(), AnswerSettings(5, 4, False, 0.0)),
    "tagger": lambda: ServedTagger(
        trained(TokenClassificationTask(("O", "B-A", "I-A"), LENGTH)), LENGTH
    ),
    "chooser": lambda: ServedChooser(tiny.chooser(), LENGTH),
    "encoder": encoder,
    "masked_lm": mask_filler,
}
TEXT_INPUTS = {
    "classifier": {"text_a": TEXTS},
    "pairs": {"text_a": TEXTS, "text_b": OTHERS},
    "regression": {"text_a": TEXTS},
    "answerer": {"question": OTHERS, "context": TEXTS},
    "tagger": {"text": TEXTS},
    "chooser": {
        "text_a": TEXTS,
        "choices": [["a log", "owls"], ["京", ""], ["a", "the"], ["on", ""]],
    },
    "encoder": {"text_a": TEXTS},
    "masked_lm": {"text": ["a [MASK] .", "[MASK] [MASK]", "", "the cat"]},
}


FAST = {"classifier", "encoder"}  # every type takes about two seconds


def slow(kind):
    return pytest.param(kind, marks=pytest.mark.night)


@pytest.fixture(scope="module")
def signatures():
    """Function (kind) -> the signatures of a model, made once."""
    made = {}

    def of(kind):
        if kind not in made:
            served = KINDS[kind]()
            made[kind] = served, served.signatures(NAMES)
        return made[kind][1]

    return of


def some_ids(shape=(3, 9)):
    """Ids, mask and segments of rows of different lengths."""
    rng = np.random.default_rng(3)
    lengths = np.resize([shape[-1], 4, 1], shape[:-1])
    mask = (np.arange(shape[-1]) < lengths[..., None]).astype(np.int32)
    ids = rng.integers(5, len(tiny.TOKENS), shape).astype(np.int32) * mask
    segments = rng.integers(0, 2, shape).astype(np.int32) * mask
    return [tf.constant(values) for values in (ids, mask, segments)]


def ask(function, names, ids):
    return function(**dict(zip(names, ids, strict=True)))


def example(row):
    """A serialized tf.train.Example of texts, numbers or lists of texts by name."""
    features = {}
    for name, value in row.items():
        if isinstance(value, int):
            features[name] = tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))
        else:
            texts = [value] if isinstance(value, str) else value
            values = tf.train.BytesList(value=[text.encode() for text in texts])
            features[name] = tf.train.Feature(bytes_list=values)
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()


def equal(found, expected):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, err_msg=name)


# ------------------------------------------------------------------------------- the same numbers

HF_NAMES = ("input_ids", "attention_mask", "token_type_ids")


@pytest.mark.night
@pytest.mark.weekly_cases("chooser", "regression", "answerer", "tagger")
@pytest.mark.parametrize(
    "kind", ["classifier", *map(slow, ("regression", "answerer", "tagger", "chooser"))]
)
def test_hugging_faces_names_give_the_logits_of_tokens_bit_for_bit(signatures, kind):
    ids = some_ids((2, 3, 9)) if kind == "chooser" else some_ids()
    expected = ask(signatures(kind)["tokens"], INPUT_NAMES, ids)
    found = ask(signatures(kind)["hugging_face"], HF_NAMES, ids)
    outputs = ["start_logits", "end_logits"] if kind == "answerer" else ["logits"]
    assert sorted(found) == sorted(outputs)
    equal(found, {name: expected[name] for name in outputs})


def test_an_encoder_gives_its_vectors(signatures):
    ids = some_ids()
    found = ask(signatures("encoder")["hugging_face"], HF_NAMES, ids)
    outputs = encoder().model(dict(zip(INPUT_NAMES, ids, strict=True)))
    assert sorted(found) == ["last_hidden_state", "pooler_output"]
    for name, own in (("last_hidden_state", "sequence_output"), ("pooler_output", "pooled_output")):
        np.testing.assert_allclose(found[name], outputs[own], rtol=0, atol=1e-5)


@pytest.mark.night
def test_a_masked_lm_gives_the_logits_of_every_position(signatures):
    ids = some_ids()
    logits = ask(signatures("masked_lm")["hugging_face"], HF_NAMES, ids)["logits"]
    assert logits.shape == (3, 9, tiny.CONFIG.vocab_size)
    positions = tf.constant([[1, 3], [2, 0], [0, 0]])
    tokens = signatures("masked_lm")["tokens"]
    expected = ask(tokens, (*INPUT_NAMES, "masked_lm_positions"), [*ids, positions])
    chosen = tf.gather(logits, positions, batch_dims=1)[:, :, : len(tiny.TOKENS)]
    best, indexes = tf.math.top_k(tf.nn.softmax(chosen), 5)
    np.testing.assert_array_equal(indexes, expected["token_id"])
    np.testing.assert_allclose(best, expected["probability"], rtol=1e-5)


@pytest.mark.weekly_cases("answerer", "pairs", "regression", "tagger")
@pytest.mark.parametrize("kind", ["classifier", "encoder", *map(slow, sorted(KINDS.keys() - FAST))])
def test_examples_are_answered_as_their_texts_are_bit_for_bit(signatures, kind):
    columns = TEXT_INPUTS[kind]
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    if kind == "chooser":
        rows[1]["choices"] = ["京"]  # fewer than the others
    more = [row | {"label": 1, "another": "text"} for row in rows]
    inputs = {name: tf.constant(values) for name, values in columns.items()}
    expected = signatures(kind)["serving_default"](**inputs)
    equal(signatures(kind)["tf_example"](tf.constant([example(row) for row in more])), expected)
    none = signatures(kind)["tf_example"](tf.zeros([0], tf.string))
    assert {value.shape[0] for value in none.values()} == {0}


# -------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    "rows, message",
    [
        ([{"text_a": "a"}, {"text_b": "b"}], r"`text_a` with one string.*1.*0.*reads text_a"),
        ([{"text_a": ["a", "b"]}], r"`text_a` with one string.*0.*2"),
        ([{"text_a": 5}], "text_a.*Data types don't match.*: string.*: int64"),
    ],
)
def test_an_example_with_another_number_of_texts_is_an_error(signatures, rows, message):
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"(?s){message}"):
        signatures("classifier")["tf_example"](tf.constant([example(row) for row in rows]))


@pytest.mark.parametrize("name, names", [("tokens", INPUT_NAMES), ("hugging_face", HF_NAMES)])
def test_ids_of_a_wrong_length_or_dtype_are_errors_that_name_the_input(signatures, name, names):
    function = signatures("classifier")[name]
    ids = some_ids()
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=r"`input_ids`.*24.* 23 positions.*Truncate"
    ):
        ask(function, names, [tf.ones([2, 24], tf.int32)] * 3)
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=rf"(?s)\[3 9\].*`{names[2]}`.*\[3 8\]"
    ):
        ask(function, names, [*ids[:2], ids[2][:, :8]])
    with pytest.raises((TypeError, tf.errors.InvalidArgumentError), match=r"(?s)int32.*int64"):
        ask(function, names, [tf.cast(value, tf.int64) for value in ids])


def test_positions_outside_of_their_row_are_errors():
    """They would be answered from another row of the batch."""
    function = mask_filler().signatures(["tokens"])["tokens"]
    names = (*INPUT_NAMES, "masked_lm_positions")
    for positions, message in (
        ([[9], [2], [0]], r"`masked_lm_positions` is from.*0.*9.*`input_ids` has this length.*9"),
        ([[2], [-1], [0]], r"`masked_lm_positions` is from.*-1"),
        ([[2], [1]], r"`input_ids` has this many rows.*3.*`masked_lm_positions` .*2"),
    ):
        with pytest.raises(tf.errors.InvalidArgumentError, match=f"(?s){message}"):
            ask(function, names, [*some_ids(), tf.constant(positions)])


@pytest.mark.parametrize("name", ["hugging_face", "hub"])
def test_signatures_that_a_type_lacks_are_refused(name):
    served = ServedEmbedder(trained(EmbeddingTask(LENGTH)), LENGTH)
    with pytest.raises(ValueError, match="signature"):
        served.check_signatures(["tokens", name])


@pytest.mark.parametrize(
    "signature, takes_text",
    [(None, True), ("tokens,hugging_face", False), ("tokens,tf_example", True)],
)
def test_only_signatures_on_text_need_the_tokenizer(signature, takes_text):
    options = ExportOptions(model_dir="", export_dir="", signature=signature)
    assert options.takes_text == takes_text


# ------------------------------------------------------------------------------ what lies in a file


def test_without_serving_default_the_first_of_these_names_is_the_default(tmp_path):
    served = ServedClassifier(classifier(), LENGTH, with_text=False)
    values = write_saved_model(served, str(tmp_path / "1"), ["tokens", "hugging_face"])
    assert values["custom_ops"] == []
    default, named = (values["signatures"][name] for name in ("serving_default", "hugging_face"))
    assert default == named
    assert sorted(named["inputs"]) == sorted(HF_NAMES)
