"""Functions on text and on words beside `serving_default`, against Python; and what options change."""

import random

import numpy as np
import pytest
import tensorflow as tf
import tiny_text_models as tiny
from export_kinds import TEXTS, folder, served
from helpers import pack_windows

import bert_tf
from bert_tf.prediction.loading import load_model
from bert_tf.serving.text_packing import graph_document_windows
from bert_tf.serving.token_classification import ServedTokenClassification
from bert_tf.tasks.token_classification import TokenClassificationTask
from bert_tf.tokenization import pack_texts


def ask(model, name, *inputs):
    if name == "tokens":
        ids = dict(zip(model.ids_specs(), map(tf.constant, inputs), strict=True))
        outputs = model.tokens(**ids)
    else:
        outputs = model.text_functions()[name][0](*map(tf.constant, inputs))
    return {name: value.numpy() for name, value in outputs.items()}


def test_windows_of_pairs_are_those_of_training():
    rng = random.Random(1)
    for _ in range(15):
        sizes = [(rng.choice([0, 1, 2, 5, 9, 30]), rng.choice([0, 1, 3, 8, 40])) for _ in range(4)]
        pairs = [(list(range(100, 100 + a)), list(range(500, 500 + b))) for a, b in sizes]
        settings = {"max_seq_length": rng.randint(4, 17), "doc_stride": rng.randint(1, 9)}
        settings |= {"cls_id": 1, "sep_id": 2}
        inputs, counts = graph_document_windows(
            *(tf.ragged.constant(ids, tf.int32) for ids in zip(*pairs, strict=True)), **settings
        )
        expected = [pack_windows(a, b, **settings) for a, b in pairs]
        assert counts.numpy().tolist() == [len(windows) for windows in expected]
        length = inputs["input_ids"].shape[1]
        rows = [window for windows in expected for window in windows]
        for name, value in inputs.items():
            assert value.numpy().tolist() == [getattr(row, name)[:length] for row in rows]


# --------------------------------------------------------------------------------- words and labels


def label(kind, rows):
    width = max(map(len, rows))
    padded = [[*row, *[""] * (width - len(row))] for row in rows]
    outputs = ask(served(kind), "words", padded)
    return outputs["label"].astype(str).tolist(), outputs["probability"]


@pytest.mark.night
def test_words_get_the_labels_that_the_recognizer_finds():
    rows = [["a", "owl", "is", "in", "the", "barn"], ["a", "pig"]]
    labels, probabilities = label("ner", rows)
    first, second = bert_tf.load(folder("ner")).predict([" ".join(row) for row in rows])
    assert labels[0] == ["O", "B-A", "O", "O", "B-B", "I-B"]
    assert labels[1] == ["O", f"B-{second['entities'][0]['type']}", "", "", "", ""]
    for row, found in enumerate((first, second)):
        expected = found["entities"][0]["probability"]
        assert probabilities[row, 1] == pytest.approx(expected, rel=1e-4)
    assert (probabilities[1, 2:] == 0).all()


def test_words_of_which_nothing_is_left_have_a_label():
    """They move no other."""
    rest = ["owl", "is", "in", "the", "barn"]
    with_mark, unknown = label("ner", [["a", "\u200d", *rest], ["a", "qqq", *rest]])[0]
    assert with_mark == unknown and all(with_mark)


@pytest.mark.night
def test_entities_that_labels_make_are_those_of_conlleval():
    """Random weights give every sequence of labels; TokenClassificationPredictor asks conlleval."""
    labels = ("O", *(f"{prefix}-{kind}" for kind in "XY" for prefix in "BIES"))
    trained = tiny.trained(TokenClassificationTask(labels, tiny.MAX_SEQ_LENGTH))
    bias = next(v for v in trained.model.weights if v.path == "output_bias")
    bias.assign(np.random.default_rng(5).normal(0, 0.5, len(labels)))
    rng = random.Random(1)
    words = [token for token in tiny.TOKENS if token.isalnum()]
    texts = [" ".join(rng.choices(words, k=rng.randint(0, 9))) for _ in range(60)]
    outputs = ask(ServedTokenClassification(trained), "serving_default", texts)
    expected = [answer["entities"] for answer in bert_tf.Predictor(trained).predict(texts)]
    assert len({(e["type"], e["end"] - e["start"]) for each in expected for e in each}) > 6
    for row, entities in enumerate(expected):
        is_entity = outputs["start"][row] >= 0
        found = zip(*(outputs[n][row][is_entity] for n in ("type", "start", "end")), strict=True)
        wanted = [(e["type"].encode(), e["start"], e["end"]) for e in entities]
        assert list(found) == wanted, texts[row]


# ------------------------------------------------------------------------- encoders and masked words


@pytest.mark.night
def test_encoder_poolings_are_those_of_the_predictor():
    predictor = bert_tf.load(folder("encoder"), max_seq_length=23)
    for pooling in ("max", "cls", "pooled"):  # of mean the contract knows
        model = served("encoder", pooling=pooling, normalize=False)
        found = ask(model, "serving_default", TEXTS)["embedding"]
        expected = predictor.encoder(pooling, normalize=False).encode(TEXTS)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


def test_encoder_pairs_layers_and_pieces_are_those_of_the_model():
    trained = load_model(str(folder("encoder")))
    model, seconds = served("encoder", layers="-1,0", max_seq_length=9), TEXTS[::-1]
    alone, paired = ask(model, "serving_default", TEXTS), ask(model, "pair", TEXTS, seconds)
    assert alone["layer_features"].shape == (len(TEXTS), 2, 9, 16)
    for row, text in enumerate(TEXTS):
        for outputs, second in ((alone, None), (paired, seconds[row])):
            packed = pack_texts(trained.tokenizer, text, second, 9)
            count = sum(packed.input_mask)
            inputs = {n: np.array([v[:count]], "int32") for n, v in packed._asdict().items()}
            layers = trained.model.bert(inputs)["all_encoder_layers"]
            tokens = trained.tokenizer.convert_ids_to_tokens(packed.input_ids[:count])
            pieces = [piece.decode() for piece in outputs["token"][row]]
            assert pieces == [*tokens, *[""] * (len(pieces) - count)]
            for place, layer in enumerate((-1, 0)):
                vectors = outputs["layer_features"][row, place, :count]
                np.testing.assert_allclose(vectors, layers[layer][0], rtol=0, atol=1e-5)
            mean = layers[-1].numpy()[0].mean(axis=0)
            expected = mean / np.linalg.norm(mean)
            np.testing.assert_allclose(outputs["embedding"][row], expected, rtol=0, atol=1e-5)


def test_queries_get_their_prefix():
    found = ask(served("embedder"), "query", TEXTS)["embedding"]
    expected = bert_tf.load(folder("embedder")).embed(TEXTS, as_query=True)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


def test_masks_of_positions_have_ids_and_tokens():
    ones = np.ones([2, 7], np.int32)
    positions = np.array([[1, 2, 6], [0, 0, 0]], np.int32)
    outputs = ask(served("masked_lm", top_k=3), "tokens", ones, ones, ones, positions)
    tokens = (folder("masked_lm") / "vocab.txt").read_text().splitlines()
    named = [tokens[index] for index in outputs["token_id"].ravel()]
    assert [token.decode() for token in outputs["token"].ravel()] == named
    assert outputs["token_id"].shape == (2, 3, 3)


def test_texts_without_a_mask_have_empty_rows():
    found = ask(served("masked_lm", top_k=3), "serving_default", ["the cat", "[MASK] a [MASK]", ""])
    assert found["token"].shape == found["probability"].shape == (3, 2, 3)
    assert all(found["token"][1].ravel()) and not found["probability"][::2].any()
    assert {*found["token"][::2].ravel()} == {b""}
