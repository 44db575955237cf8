"""SavedModels of encoders and of masked LMs: embeddings, vectors of layers, tokens for [MASK]."""

import numpy as np
import pytest
import tensorflow as tf
from tiny_checkpoints import arrays_of, write_tf1
from tiny_served import SENTENCES, served, trained

from bert_tf.data.packing import pack_texts
from bert_tf.interop.initial import initialize
from bert_tf.interop.read import read_checkpoint
from bert_tf.modeling.bert import BertModel
from bert_tf.predictor import MaskFiller, Predictor
from bert_tf.programs.export_saved_model import ExportOptions, export_saved_model
from bert_tf.tokenization import FullTokenizer

TEXTS = ["the happy cat in the barn", "", "The HÄPPY cât 猫", "calm dog " * 300]


def export(model_dir, folder, **options):
    """The signatures of an export."""
    export_saved_model(ExportOptions(model_dir=str(model_dir), export_dir=str(folder), **options))
    model = tf.saved_model.load(str(folder))
    return {name: _Kept(model, function) for name, function in model.signatures.items()}


class _Kept:
    """A signature that keeps the model, which owns the weights."""

    def __init__(self, model, function):
        self.model, self.function = model, function

    def __call__(self, **inputs):
        outputs = self.function(**{name: tf.constant(value) for name, value in inputs.items()})
        return {name: value.numpy() for name, value in outputs.items()}


@pytest.fixture(scope="module")
def encoder(pretrained):
    """(text_a, text_b) -> (tokens, outputs of the encoder without the batch), one text at a time."""
    checkpoint = read_checkpoint(str(pretrained))
    model = BertModel(checkpoint.config)
    initialize(model, checkpoint)
    tokenizer = FullTokenizer(checkpoint.vocab_file)

    def encode(text_a, text_b=None, max_seq_length=31):
        packed = pack_texts(tokenizer, text_a, text_b, max_seq_length)
        length = sum(packed.input_mask)
        inputs = {n: np.array([v[:length]], "int32") for n, v in packed._asdict().items()}
        outputs = model(inputs)
        layers = [layer.numpy()[0] for layer in outputs["all_encoder_layers"]]
        tokens = tokenizer.convert_ids_to_tokens(packed.input_ids[:length])
        return tokens, layers, outputs["pooled_output"].numpy()[0]

    return encode


@pytest.mark.weekly_cases("max", "pooled")
@pytest.mark.parametrize("pooling", ["mean", "max", "cls", "pooled"])
def test_embeddings_are_pooled_from_the_real_tokens_alone(pretrained, encoder, tmp_path, pooling):
    """They have the length 1 unless that is switched off; here, for all poolings but the default."""
    is_default = pooling == "mean"
    options = {} if is_default else {"pooling": pooling, "normalize": False}
    found = export(pretrained, tmp_path / "1", signature="serving_default,pair", **options)
    embeddings = found["serving_default"](text_a=TEXTS)["embedding"]
    paired = found["pair"](text_a=TEXTS, text_b=TEXTS[::-1])["embedding"]
    for row, (text_a, text_b) in enumerate(zip(TEXTS, TEXTS[::-1], strict=True)):
        for vector, texts in ((embeddings[row], (text_a,)), (paired[row], (text_a, text_b))):
            _, layers, pooled = encoder(*texts)
            last = layers[-1]
            expected = {"mean": last.mean(axis=0), "max": last.max(axis=0)}
            expected |= {"cls": last[0], "pooled": pooled}
            length = np.linalg.norm(expected[pooling]) if is_default else 1
            np.testing.assert_allclose(vector, expected[pooling] / length, rtol=0, atol=1e-5)
    if is_default:
        np.testing.assert_allclose(np.linalg.norm(embeddings, axis=1), 1.0, atol=1e-6)


def test_layers_and_pieces_are_those_of_extract_features(pretrained, encoder, tmp_path):
    options = {"layers": "-1,0", "max_seq_length": 9, "signature": "serving_default"}
    found = export(pretrained, tmp_path / "1", **options)
    outputs = found["serving_default"](text_a=TEXTS)
    assert outputs["layer_features"].shape == (4, 2, 9, 16)
    for row, text in enumerate(TEXTS):
        tokens, layers, _ = encoder(text, max_seq_length=9)
        count = len(tokens)
        assert [piece.decode() for piece in outputs["token"][row][:count]] == tokens
        assert set(outputs["token"][row][count:]) <= {b""}
        for place, layer in enumerate((-1, 0)):
            vectors = outputs["layer_features"][row, place, :count]
            np.testing.assert_allclose(vectors, layers[layer], rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"layers": "-1,x"}, "layers"),
        ({"layers": "2"}, "layers"),
        ({"pooling": "concat_last_four"}, "pooling"),
        ({"max_seq_length": 32}, "max_seq_length is 32, but must be from 3 to 31"),
    ],
)
def test_what_an_encoder_cannot_give_is_refused(pretrained, tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        export(pretrained, tmp_path / "1", **options)
    assert not (tmp_path / "1").exists()


# --------------------------------------------------------------------------------------- masked words


def test_masks_are_filled_as_by_the_mask_filler(pretrained, tmp_path):
    options = {"head": "masked_lm", "top_k": 3, "signature": "serving_default"}
    fill = export(pretrained, tmp_path / "1", **options)["serving_default"]
    texts = [
        "the [MASK] cat in the [MASK]",
        "no mask at all",
        "[MASK]",
        "a\x00b[MASK]c [SEP] [mask] [MA\x00SK] d",
        "[MASK] " * 9,
    ]
    found = fill(text=texts)
    assert found["token"].shape == found["probability"].shape == (5, 9, 3)
    filler = MaskFiller(str(pretrained))
    for row, text in enumerate(texts):
        expected = filler.predict(text, top_k=3) if "[MASK]" in text else []
        for place, candidates in enumerate(expected):
            names = [token.decode() for token in found["token"][row, place]]
            assert names == [candidate.token for candidate in candidates]
            probabilities = [candidate.probability for candidate in candidates]
            np.testing.assert_allclose(
                found["probability"][row, place], probabilities, rtol=0, atol=1e-5
            )
        assert set(found["token"][row, len(expected) :].ravel()) <= {b""}
        assert not found["probability"][row, len(expected) :].any()


def test_ids_of_masked_words_are_given_for_positions(pretrained, tmp_path):
    found = export(pretrained, tmp_path / "1", head="masked_lm", signature="tokens")["tokens"]
    ones = np.ones([2, 7], np.int32)
    inputs = {"input_ids": ones, "input_mask": ones, "segment_ids": ones}
    outputs = found(**inputs, masked_lm_positions=np.array([[1, 2, 6], [0, 0, 0]], np.int32))
    tokens = (pretrained / "vocab.txt").read_text().splitlines()
    named = [tokens[index] for index in outputs["token_id"].ravel()]
    assert [token.decode() for token in outputs["token"].ravel()] == named
    assert outputs["token_id"].shape == (2, 3, 5)


def test_a_model_without_a_masked_lm_head_cannot_fill(sentence_model, tmp_path):
    with pytest.raises(ValueError, match=r"has no masked-LM head: .* Use .*head=encoder"):
        export(sentence_model, tmp_path / "1", head="masked_lm")


def test_a_vocabulary_without_a_mask_cannot_fill(tmp_path):
    write_tf1(tmp_path, arrays_of("masked_lm"))
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\nthe\ncat\n")
    with pytest.raises(ValueError, match=r"has no \[MASK\], .*vocab_file .*head=encoder"):
        export(tmp_path, tmp_path / "1", head="masked_lm")
    assert not (tmp_path / "1").exists()


# ---------------------------------------------------------------------------------- models with a task


def test_queries_and_documents_get_their_prefixes():
    functions, predictor = served("embedder").text_functions(), Predictor(trained("embedder"))
    for name, as_query in (("serving_default", False), ("query", True)):
        found = functions[name][0](tf.constant(SENTENCES))["embedding"]
        expected = predictor.embed(SENTENCES, as_query=as_query)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", ["multi_label", "regression", "windows"])
def test_classifiers_answer_texts_as_the_predictor(kind):
    model = served(kind)
    found = model.text_functions()["serving_default"][0](tf.constant(SENTENCES))
    for row, answer in enumerate(Predictor(trained(kind)).predict(SENTENCES)):
        if kind == "regression":
            assert found["score"][row].numpy() == pytest.approx(answer["score"], abs=1e-5)
            continue
        probabilities = list(answer["probabilities"].values())
        np.testing.assert_allclose(found["probabilities"][row], probabilities, rtol=0, atol=1e-5)
        if kind == "multi_label":
            flags = dict(zip(model.labels, found["has_label"][row].numpy(), strict=True))
            assert [label for label, flag in flags.items() if flag] == answer["labels"]
