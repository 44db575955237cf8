"""Programs that were written for other libraries, in processes without bert_tf (consumers/)."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tiny_text_models as tiny

from bert_tf.serving.classification import ServedClassifier
from bert_tf.serving.encoder import ServedEncoder
from bert_tf.serving.multiple_choice import ServedChooser
from bert_tf.serving.question_answering import ServedAnswerer
from bert_tf.serving.saved_model import write_saved_model
from bert_tf.tasks.answer_decoding import AnswerSettings

LENGTH = tiny.MAX_SEQ_LENGTH
CONSUMERS = Path(__file__).with_name("consumers")
TEXTS = [text for text in tiny.TEXTS if text]
# A Python with tensorflow_hub, tf_keras and tensorflow_text, for the test with hub.KerasLayer.
HUB_PYTHON = os.environ.get("HUB_PYTHON")
WITHOUT_BERT_TF = """
import runpy, sys
sys.modules["bert_tf"] = None  # any import of it fails
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def consume(script, *arguments, data, python=sys.executable, **environment):
    """What a consumer prints."""
    done = subprocess.run(
        [python, "-c", WITHOUT_BERT_TF, str(CONSUMERS / f"{script}.py"), *map(str, arguments)],
        input=json.dumps(data),
        env=os.environ | environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def run(model, packed):
    """The outputs for each sequence alone, without padding."""
    return [tiny.run_alone(model, sequence) for sequence in packed]


def near(found, expected, atol=1e-5):
    np.testing.assert_allclose(np.array(found), np.array(expected), rtol=0, atol=atol)


@pytest.fixture(scope="module")
def encoder():
    """The model, and the ids that it takes."""
    trained = tiny.trained(None)
    return trained, [tiny.alone(text) for text in TEXTS]


# --------------------------------------------------------------------------------------------- TFX


@pytest.mark.slow
def test_tfx_sends_serialized_examples_to_a_classifier(tmp_path):
    trained = tiny.classifier()
    served = ServedClassifier(trained, LENGTH)
    write_saved_model(served, str(tmp_path / "1"), ["tf_example", "tokens"])
    rows = [{"text_a": text} for text in TEXTS]
    expected = run(trained.model, [tiny.alone(text) for text in TEXTS])
    for names in ((), ("tf_example",)):
        found = consume("tfx_bulk_inference", tmp_path / "1", *names, data=rows)
        near(found["logits"], [outputs["logits"][0] for outputs in expected])
        labels = [trained.task.labels[int(np.argmax(row))] for row in found["logits"]]
        assert found["label"] == labels


@pytest.mark.slow
@pytest.mark.long
def test_tfx_sends_serialized_examples_with_several_features(tmp_path):
    answerer = ServedAnswerer(tiny.answerer(), AnswerSettings(5, 4, False, 0.0))
    chooser = ServedChooser(tiny.chooser(), LENGTH)
    questions = {"question": ["who ?", "a cat ?"], "context": TEXTS[:2]}
    choices = {"text_a": ["the cat", "a dog"], "choices": [["sat .", "on a mat"], ["owls", "log"]]}
    for number, (served, columns) in enumerate([(answerer, questions), (chooser, choices)]):
        folder = tmp_path / str(number)
        write_saved_model(served, str(folder), ["serving_default", "tf_example"])
        serve = tf.saved_model.load(str(folder)).signatures["serving_default"]
        expected = serve(**{name: tf.constant(values) for name, values in columns.items()})
        rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
        found = consume("tfx_bulk_inference", folder, "tf_example", data=rows)
        assert found.keys() == expected.keys()
        for name, value in expected.items():
            if value.dtype == tf.string:
                assert found[name] == [text.decode() for text in value.numpy()]
            else:
                near(found[name], value)


# ------------------------------------------------------------------------------------ Hugging Face


@pytest.mark.slow
def test_clients_of_hugging_faces_tensorflow_models_get_their_outputs(tmp_path, encoder):
    classifier, answerer = tiny.classifier(), tiny.answerer()
    packed = [tiny.alone(text) for text in TEXTS]
    ids = [sequence.input_ids for sequence in packed]

    served = ServedClassifier(classifier, LENGTH, with_text=False)
    write_saved_model(served, str(tmp_path / "classifier"), ["hugging_face"])
    found = consume("hugging_face_client", tmp_path / "classifier", data=ids)
    assert list(found) == ["logits"]
    near(found["logits"], [outputs["logits"][0] for outputs in run(classifier.model, packed)])

    served = ServedAnswerer(answerer, AnswerSettings(5, 4, False, 0.0), with_text=False)
    write_saved_model(served, str(tmp_path / "answerer"), ["hugging_face"])
    found = consume("hugging_face_client", tmp_path / "answerer", data=ids)
    assert sorted(found) == ["end_logits", "start_logits"]
    for name, rows in found.items():
        for row, outputs in zip(rows, run(answerer.model, packed), strict=True):
            near(row[: outputs[name].shape[1]], outputs[name][0])

    trained, _ = encoder
    served = ServedEncoder(trained.model, trained.tokenizer, LENGTH, with_text=False)
    write_saved_model(served, str(tmp_path / "encoder"), ["hugging_face"])
    found = consume("hugging_face_client", tmp_path / "encoder", data=ids)
    assert sorted(found) == ["last_hidden_state", "pooler_output"]
    expected = run(tiny.trained(None).model, packed)
    near(found["pooler_output"], [outputs["pooled_output"][0] for outputs in expected])
    for row, outputs in zip(found["last_hidden_state"], expected, strict=True):
        near(row[: outputs["sequence_output"].shape[1]], outputs["sequence_output"][0])


# ------------------------------------------------------------------------------------------ TF Hub


@pytest.fixture(scope="module")
def hub_folders(tmp_path_factory):
    trained = tiny.trained(None)
    folder = tmp_path_factory.mktemp("hub") / "encoder"
    served = ServedEncoder(trained.model, trained.tokenizer, LENGTH)
    write_saved_model(served, str(folder), ["tf_hub", "serving_default", "tokens", "tf_example"])
    return folder, folder.with_name("encoder_preprocess")


@pytest.fixture(scope="module")
def hub_answers(hub_folders):
    return consume("hub_encoder", *hub_folders, data=TEXTS)


@pytest.mark.slow
def test_code_for_hub_load_runs_with_the_folders_changed(hub_answers, encoder):
    found, (_, packed) = hub_answers, encoder
    model = tiny.trained(None).model
    expected = run(model, packed)
    for row, (sequence, outputs) in enumerate(zip(packed, expected, strict=True)):
        count = len(sequence.input_ids)
        ids = found["inputs"]["input_word_ids"][row]
        assert ids == sequence.input_ids + [0] * (LENGTH - count)
        assert found["inputs"]["input_mask"][row] == [1] * count + [0] * (LENGTH - count)
        near(found["single"]["pooled_output"][row], outputs["pooled_output"][0])
        near(found["single"]["sequence_output"][row][:count], outputs["sequence_output"][0])
        for layer, vectors in zip(found["layers"], outputs["all_encoder_layers"], strict=True):
            near(layer[row][:count], vectors[0])
    assert found["same"] is True
    pairs = {name: np.array(found["pairs"][name]) for name in found["pairs"]}
    inputs = {"input_ids": pairs["input_word_ids"], "input_mask": pairs["input_mask"]}
    inputs["segment_ids"] = pairs["input_type_ids"]
    near(found["paired"], model(inputs)["pooled_output"])
    assert np.array(found["shortened"]["input_word_ids"]).shape == (len(TEXTS), 9)
    assert found["special"]["end_of_segment_id"] == tiny.TOKENS.index("[SEP]")
    assert (found["vocab"], found["lower"]) == (list(tiny.TOKENS), True)


@pytest.mark.slow
def test_an_encoder_for_tf_hub_can_be_trained(hub_answers):
    assert hub_answers["variables"] > 30
    assert hub_answers["without_gradient"] == []
    assert hub_answers["dropout"] > 1e-3  # `training=True` drops values


@pytest.mark.slow
@pytest.mark.skipif(not HUB_PYTHON, reason="HUB_PYTHON is not set: a Python with tensorflow_hub")
def test_keras_layers_of_tf_hub_are_fine_tuned(hub_folders):
    data = [TEXTS, [float("cat" in text) for text in TEXTS]]
    found = consume(
        "hub_keras_layer", *hub_folders, data=data, python=HUB_PYTHON, TF_USE_LEGACY_KERAS="1"
    )
    before, after = found["losses"]
    assert after < 0.9 * before
    assert found["changed"] > 0.9 * found["weights"] > 27
    assert found["pair_shape"] == [len(TEXTS), 16]
    assert consume("hub_encoder", *hub_folders, data=TEXTS, python=HUB_PYTHON)["hub"] is True


# --------------------------------------------------------------------------------------- Spark NLP


@pytest.mark.slow
@pytest.mark.parametrize("signature", ["spark_nlp", "hugging_face"])
def test_spark_nlp_finds_the_vocabulary_the_inputs_and_both_vectors(tmp_path, encoder, signature):
    trained, packed = tiny.trained(None), encoder[1]
    served = ServedEncoder(trained.model, trained.tokenizer, LENGTH, with_text=False)
    values = write_saved_model(served, str(tmp_path / "1"), [signature])
    assert values["custom_ops"] == []
    pieces = [[tiny.TOKENS[index] for index in sequence.input_ids] for sequence in packed]
    found = consume("spark_nlp_reader", tmp_path / "1", data=pieces)
    for row, outputs in enumerate(run(tiny.trained(None).model, packed)):
        vectors = outputs["sequence_output"][0].numpy()
        near(found["words"][row][: len(vectors)], vectors)
        if signature == "hugging_face":
            sentence = outputs["pooled_output"][0]
        else:
            mean = vectors.mean(axis=0)
            sentence = mean / np.linalg.norm(mean)
        near(found["sentences"][row], sentence)
