"""ONNX files: the operations that runtimes fuse, 8-bit weights, and text inside the file."""

import json

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from bert_tf.programs.export_saved_model import ExportOptions, export_saved_model
from bert_tf.tokenization import FullTokenizer

pytest.importorskip("tf2onnx")
ort = pytest.importorskip("onnxruntime")
onnx = pytest.importorskip("onnx")

TEXTS = [
    "the happy cat in the barn",
    "",
    "Sad DOG\x00!",
    "the rude pig is in the lake and angry " * 3,
]


def export(model_dir, folder, **options):
    """The metadata of an ONNX file."""
    options = {"format": "onnx", "model_dir": str(model_dir), "export_dir": str(folder)} | options
    export_saved_model(ExportOptions(**options))
    return json.loads((folder / "export.json").read_text())


def session(path):
    extensions = pytest.importorskip("onnxruntime_extensions")
    options = ort.SessionOptions()
    options.register_custom_ops_library(extensions.get_library_path())
    return ort.InferenceSession(str(path) if not isinstance(path, bytes) else path, options)


def strings(texts):
    return np.array(texts, object)


IDS = {
    "input_ids": np.array([[2, 20, 30, 40, 3], [2, 21, 3, 0, 0]], np.int32),
    "input_mask": np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], np.int32),
    "segment_ids": np.zeros((2, 5), np.int32),
}


@pytest.fixture(scope="module")
def files(sentence_model, tmp_path_factory):
    """Precision -> the ONNX file on ids."""
    folder = tmp_path_factory.mktemp("onnx")
    for precision in ("float32", "int8"):
        export(sentence_model, folder / precision, precision=precision)
    return {name: str(folder / name / "model.onnx") for name in ("float32", "int8")}


def test_files_on_ids_have_operations_of_onnx_only_and_whole_layer_norms(files):
    for path in files.values():
        model = onnx.load(path)
        assert {node.domain for node in model.graph.node} == {""}
        operations = [node.op_type for node in model.graph.node]
        assert operations.count("LayerNormalization") == 1 + 2 * 2


def test_weights_are_8_bits_with_a_scale_for_each_column_or_row(files):
    arrays = {
        array.name: onnx.numpy_helper.to_array(array)
        for array in onnx.load(files["int8"]).graph.initializer
    }
    floats = {
        array.name: onnx.numpy_helper.to_array(array)
        for array in onnx.load(files["float32"]).graph.initializer
    }
    values = [name for name, array in arrays.items() if array.dtype == np.int8]
    assert len(values) == 2 * 4 + 1  # query, key and value are one product
    for name in values:
        weights, scale = floats[name.removesuffix("/int8")], arrays[name.replace("/int8", "/scale")]
        assert scale.size == weights.shape["word_embeddings" not in name]
        rows = arrays.get(name.replace("/int8", "/rows"), np.ones(len(weights)))[:, np.newaxis]
        rounded = arrays[name] * scale * rows
        assert (abs(rounded - weights) <= scale * rows * 0.501 + 1e-9).all()


def test_int8_answers_differ_by_the_rounding_of_weights_only(files):
    """Two parts of the inputs leave no visible rounding of their own."""
    arrays = {
        array.name: onnx.numpy_helper.to_array(array)
        for array in onnx.load(files["int8"]).graph.initializer
    }
    model = onnx.load(files["float32"])
    for array in model.graph.initializer:
        if f"{array.name}/int8" in arrays:
            scale = arrays[f"{array.name}/scale"]
            weights = arrays[f"{array.name}/int8"] * scale
            if f"{array.name}/rows" in arrays:
                weights = weights * arrays[f"{array.name}/rows"][:, np.newaxis]
            array.CopyFrom(onnx.numpy_helper.from_array(weights.astype(np.float32), array.name))
    rounded = ort.InferenceSession(model.SerializeToString()).run(["logits"], IDS)[0]
    found = ort.InferenceSession(files["int8"]).run(["logits"], IDS)[0]
    np.testing.assert_allclose(found, rounded, rtol=0, atol=1e-3)


@pytest.mark.parametrize("precision, atol", [("float32", 1e-5), ("int8", 0.02)])
def test_openvino_answers_as_onnx_runtime(files, precision, atol):
    openvino = pytest.importorskip("openvino")
    hints = {"INFERENCE_PRECISION_HINT": "f32"}
    model = openvino.Core().compile_model(files[precision], "CPU", hints)
    expected = ort.InferenceSession(files[precision]).run(["logits"], IDS)[0]
    np.testing.assert_allclose(model(IDS)["logits"], expected, rtol=0, atol=atol)


# ------------------------------------------------------------------------------------------- text


def test_a_classifier_of_texts_answers_as_the_saved_model(sentence_model, exported, tmp_path):
    values = export(sentence_model, tmp_path / "1", signature="serving_default")
    assert values["signatures"]["serving_default"]["inputs"] == {
        "text_a": {"dtype": "string", "shape": [None]}
    }
    assert "WordpieceTokenizer" in values["custom_ops"]
    loaded = tf.saved_model.load(str(exported.single))
    serve = loaded.signatures["serving_default"]
    model = session(tmp_path / "1" / "model.onnx")
    for texts in (TEXTS, TEXTS[:1], TEXTS[1:2]):
        (found,) = model.run(["logits"], {"text_a": strings(texts)})
        np.testing.assert_allclose(found, serve(tf.constant(texts))["logits"], rtol=0, atol=1e-5)
    (none,) = model.run(["logits"], {"text_a": strings([])})
    assert none.shape == (0, 2)


def test_a_classifier_of_pairs_answers_as_the_saved_model(pair_model, exported, tmp_path):
    export(pair_model, tmp_path / "1", signature="serving_default")
    serve = tf.saved_model.load(str(exported.pair)).signatures["serving_default"]
    model = session(tmp_path / "1" / "model.onnx")
    first, second = TEXTS, TEXTS[::-1]
    (found,) = model.run(["logits"], {"text_a": strings(first), "text_b": strings(second)})
    expected = serve(text_a=tf.constant(first), text_b=tf.constant(second))["logits"]
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
    with pytest.raises(Exception, match="Reshape node"):
        model.run(["logits"], {"text_a": strings(first), "text_b": strings(second[:1])})


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_an_encoder_takes_texts_and_pairs(sentence_model, tmp_path, precision):
    atol = 1e-5 if precision == "float32" else 0.1
    options = {"model_dir": str(sentence_model), "head": "encoder"}
    folder = str(tmp_path / "saved")
    export_saved_model(ExportOptions(export_dir=folder, **options))
    loaded = tf.saved_model.load(folder)
    for name, names in (("serving_default", ["text_a"]), ("pair", ["text_a", "text_b"])):
        export(sentence_model, tmp_path / name, head="encoder", signature=name, precision=precision)
        texts = dict(zip(names, (TEXTS, TEXTS[::-1]), strict=False))
        model = session(tmp_path / name / "model.onnx")
        (found,) = model.run(["embedding"], {n: strings(each) for n, each in texts.items()})
        expected = loaded.signatures[name](**{n: tf.constant(each) for n, each in texts.items()})
        np.testing.assert_allclose(found, expected["embedding"], rtol=0, atol=atol)


@pytest.mark.parametrize(
    "fixture, signature, message",
    [
        ("ner_model", "serving_default", "only tokens"),
        ("squad_model", "serving_default", "only tokens"),
        ("sentence_model", "pair", "'pair'.* only tokens or serving_default"),
        ("sentence_model", "tokens,serving_default", "tokens.*serving_default.* one signature"),
    ],
)
def test_signatures_that_an_onnx_file_cannot_have_are_refused(
    request, tmp_path, fixture, signature, message
):
    with pytest.raises(ValueError, match=message):
        export(request.getfixturevalue(fixture), tmp_path / "1", signature=signature)
    assert not (tmp_path / "1").exists()


# -------------------------------------------------------------------------------------- tokenizer

SURROUNDINGS = ("%", "a%b", "AΣ%", "AΣ%A", "%Σ", "A.%Σ%.x", "1%\u302e\u1b44%\u0301?x")
WORDS = ("una", "##ffa", "##ble", "hello", "ing", "##ing", "caf", "a\u0301", "##bé")


@pytest.fixture(scope="module", params=[True, False], ids=["uncased", "cased"])
def tokenizers(request):
    """FullTokenizer, and the texts -> ids of the ONNX tokenizer, with a vocabulary of many letters."""
    onnx_text = pytest.importorskip("bert_tf.serving.onnx_text")
    letters = [chr(code) for code in range(32, 0x3100) if chr(code).isprintable()]
    letters = [letter for letter in letters if letter not in " é"]
    tokens = ["[UNK]", "", "##", *letters, *(f"##{letter}" for letter in letters), *WORDS]
    python = FullTokenizer(tokens, request.param)
    model = session(onnx_text.tokenizer_model(python.vocab, request.param).SerializeToString())

    def ids(texts):
        pieces, splits = model.run(None, {"text_a": strings(texts)})
        return [row.tolist() for row in np.split(pieces, splits[1:-1])] if len(texts) else []

    return python, ids


def test_code_points_and_their_surroundings_are_tokenized_as_in_python(tokenizers):
    python, ids = tokenizers
    codes = [*range(0x3100), *range(0x3100, 0x110000, 61)]
    chars = [chr(code) for code in codes if not 0xD800 <= code < 0xE000]
    texts = [shape.replace("%", char) for shape in SURROUNDINGS for char in chars[::7]] + chars
    found = ids(texts)
    wrong = [text for text, row in zip(texts, found, strict=True) if row != python.encode(text)]
    assert wrong == []


def test_words_that_are_partly_unknown_or_too_long_are_unknown(tokenizers):
    python, ids = tokenizers
    texts = [
        "café cafx",
        "a" * 200 + " " + "a" * 201,
        "unaffable hello-ing",
        "",
        " ",
        "[UNK] ##ing",
    ]
    assert ids(texts) == [python.encode(text) for text in texts]
    assert ids(["caf\U0010fffd caf"]) == [python.convert_tokens_to_ids(["[UNK]", "caf"])]


@given(texts=st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=40), max_size=30))
def test_any_texts_are_tokenized_as_in_python(tokenizers, texts):
    python, ids = tokenizers
    assert ids(texts) == [python.encode(text) for text in texts]
