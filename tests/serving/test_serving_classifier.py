"""SavedModels on raw text: they answer as the Keras model does on its ids, in a new process too."""

import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from packed_windows import pack_windows

from bert_tf.data.packing import pack
from bert_tf.model_folder import load_model
from bert_tf.programs.export_saved_model import ExportOptions, export_saved_model
from bert_tf.text_ops.packing import graph_document_windows

TEXTS = (
    "the happy cat in the barn",
    "",
    "The HÄPPY cât",
    "猫hen京 owl",
    "sad 😀 dog 👩‍👩‍👧",
    "calm dog " * 1200,
    "\x00\ufffd\u200b \t angry\r\n",
    "[MASK] [SEP] the rude pig",
)
PAIRS = tuple(zip(TEXTS, TEXTS[3:] + TEXTS[:3], strict=True))

# Runs in a process of its own: reads the names of SavedModels and their inputs, writes what they say.
SERVE = """
import json, sys
import tensorflow as tf
import tensorflow_text

imported = set(sys.modules)  # TensorFlow brings Keras with it
answers, models = [], {}
for folder, signature, inputs in json.load(sys.stdin):
    if folder not in models:
        models[folder] = tf.saved_model.load(folder)
    function = models[folder].signatures[signature]
    dtype = tf.int32 if signature == "tokens" else tf.string
    outputs = function(**{name: tf.constant(values, dtype) for name, values in inputs.items()})
    label = [value.decode() for value in outputs.pop("label").numpy()]
    answers.append({"label": label, **{k: v.numpy().tolist() for k, v in outputs.items()}})
packages = {name.split(".")[0] for name in set(sys.modules) - imported}
json.dump({"answers": answers, "more": sorted(packages & {"bert_tf", "keras"})}, sys.stdout)
"""


def export(model_dir, export_dir, **options):
    export_saved_model(
        ExportOptions(model_dir=str(model_dir), export_dir=str(export_dir), **options)
    )


def packed(trained, texts):
    """The ids of (text_a, text_b), one list per input, as training makes them."""
    tokenizer = trained.tokenizer
    cls_id, sep_id = tokenizer.convert_tokens_to_ids(["[CLS]", "[SEP]"])
    rows = [
        pack(
            tokenizer.encode(text_a),
            None if text_b is None else tokenizer.encode(text_b),
            max_seq_length=trained.max_seq_length,
            cls_id=cls_id,
            sep_id=sep_id,
        )
        for text_a, text_b in texts
    ]
    return {name: [getattr(row, name) for row in rows] for name in rows[0]._fields}


def keras_logits(trained, texts):
    return trained.model(packed_arrays(trained, texts))["logits"].numpy()


def packed_arrays(trained, texts):
    return {name: np.array(rows, "int32") for name, rows in packed(trained, texts).items()}


@pytest.fixture(scope="module")
def single(sentence_model):
    return load_model(str(sentence_model))


@pytest.fixture(scope="module")
def pair(pair_model):
    return load_model(str(pair_model))


@pytest.fixture(scope="module")
def calls(exported, single):
    """Text and ids to the model of sentences, text to that of pairs."""
    firsts, seconds = zip(*PAIRS, strict=True)
    return [
        (str(exported.single), "serving_default", {"text_a": TEXTS}),
        (str(exported.single), "tokens", packed(single, [(text, None) for text in TEXTS])),
        (str(exported.pair), "serving_default", {"text_a": firsts, "text_b": seconds}),
    ]


@pytest.fixture(scope="module")
def loaded(exported):
    """The SavedModels, by their folders."""
    folders = (str(exported.single), str(exported.pair))
    return {folder: tf.saved_model.load(folder) for folder in folders}


@pytest.fixture(scope="module")
def served(calls, loaded):
    """The answers of the SavedModels to the calls."""
    answers = []
    for folder, signature, inputs in calls:
        function = loaded[folder].signatures[signature]
        dtype = tf.int32 if signature == "tokens" else tf.string
        outputs = function(**{name: tf.constant(values, dtype) for name, values in inputs.items()})
        answers.append({name: value.numpy() for name, value in outputs.items()})
        answers[-1]["label"] = [label.decode() for label in answers[-1]["label"]]
    return answers


def ask(calls, **environment):
    """The answers of a new process to (folder, signature, inputs), and the packages it imported."""
    process = subprocess.run(
        [sys.executable, "-c", SERVE],
        env=os.environ | environment,
        input=json.dumps(calls),
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


@pytest.mark.night
def test_a_new_process_needs_nothing_but_tensorflow_and_tensorflow_text(calls, served):
    found = ask(calls)
    assert found["more"] == []
    for answer, expected in zip(found["answers"], served, strict=True):
        assert answer["label"] == expected["label"]
        for name in ("logits", "probabilities"):
            np.testing.assert_allclose(answer[name], expected[name], rtol=0, atol=1e-5)


def assert_answers(answers, logits, labels):
    np.testing.assert_allclose(answers["logits"], logits, rtol=0, atol=1e-5)
    exponentials = np.exp(logits.astype(np.float64))
    probabilities = exponentials / exponentials.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(answers["probabilities"], probabilities, rtol=0, atol=1e-5)
    assert answers["label"] == [labels[index] for index in logits.argmax(axis=1)]


def test_sentences_of_every_kind_are_answered_as_by_the_keras_model(served, single):
    logits = keras_logits(single, [(text, None) for text in TEXTS])
    assert_answers(served[0], logits, ("bad", "good"))
    assert served[0]["label"][0] == "good"


@pytest.mark.night
def test_kernels_that_are_packed_once_answer_every_request_as_before(exported, served):
    # Requests of several sizes, the same words at other places, and two models in one process.
    firsts, seconds = zip(*PAIRS, strict=True)
    texts, pairs = served[0]["logits"], served[2]["logits"]
    requests = [slice(1), slice(None), slice(None, None, -1), slice(3, 7), slice(4, 5), slice(None)]
    single = [(str(exported.single), "serving_default", {"text_a": TEXTS[r]}) for r in requests]
    pair = (str(exported.pair), "serving_default", {"text_a": firsts, "text_b": seconds})
    answers = ask([*single, pair, single[1]], TF_ONEDNN_ASSUME_FROZEN_WEIGHTS="1")["answers"]
    expected = [*(texts[r] for r in requests), pairs, texts]
    for answer, logits in zip(answers, expected, strict=True):
        np.testing.assert_allclose(answer["logits"], logits, rtol=0, atol=1e-5)


def test_pairs_of_every_kind_are_answered_as_by_the_keras_model(served, pair):
    assert ("", "calm dog " * 1200)[1] in PAIRS[2]
    assert_answers(served[2], keras_logits(pair, PAIRS), ("0", "1"))


def test_the_other_texts_of_a_batch_cannot_be_seen(exported, loaded, served):
    function = loaded[str(exported.single)].signatures["serving_default"]
    for index, text in enumerate(TEXTS):
        alone = function(text_a=tf.constant([text]))["logits"].numpy()[0]
        together = served[0]["logits"][index]
        np.testing.assert_allclose(alone, together, rtol=0, atol=1e-5)


def test_labels_vocabulary_and_configuration_lie_beside_it_for_people(exported, pair_model):
    folder = exported.pair / "assets.extra"
    same = ["bert_config.json", "labels.txt", "task.json", "vocab.txt"]
    for name in same:
        assert (folder / name).read_bytes() == (pair_model / name).read_bytes()
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        [*same, "export.json", "tf_serving_warmup_requests"]
    )


# ------------------------------------------------------------------------------------------ its folder


@pytest.mark.parametrize("content", ["folder", "file"])
def test_an_export_does_not_replace_what_is_there(sentence_model, tmp_path, content):
    export_dir = tmp_path / "1"
    if content == "folder":
        export_dir.mkdir()
        (export_dir / "saved_model.pb").write_text("an earlier one")
    else:
        export_dir.write_text("a file")
    message = {"folder": "1 is not empty. Name a new folder", "file": "1 is a file"}[content]
    with pytest.raises(ValueError, match=message):
        export_saved_model(ExportOptions(model_dir=str(sentence_model), export_dir=str(export_dir)))
    assert sorted(tmp_path.iterdir()) == [export_dir]


@pytest.mark.night
def test_an_export_that_is_killed_leaves_no_folder_and_the_next_one_succeeds(
    sentence_model, tmp_path, monkeypatch
):
    export_dir = tmp_path / "served" / "2"

    def killed(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("bert_tf.serving.saved_model.write_beside", killed)
        export(sentence_model, export_dir)
    assert not export_dir.parent.exists()
    export_dir.mkdir(parents=True)  # empty, as by a program that prepares folders
    export(sentence_model, f"{export_dir}/", max_seq_length=5)
    assert (export_dir / "assets.extra" / "labels.txt").exists()
    assert sorted(export_dir.parent.iterdir()) == [export_dir]
    function = tf.saved_model.load(str(export_dir)).signatures["serving_default"]
    long, short = (
        function(text_a=tf.constant([text]))["logits"].numpy()
        for text in ("the cat is sad and rude", "the cat is")
    )
    np.testing.assert_array_equal(long, short)  # of both, three tokens are left


@pytest.mark.parametrize("length", [1, 32])
def test_a_length_that_the_model_cannot_take_is_refused(sentence_model, tmp_path, length):
    message = f"max_seq_length is {length}, but must be from 2 to 31"
    with pytest.raises(ValueError, match=message):
        export(sentence_model, tmp_path / "1", max_seq_length=length)


def test_what_has_no_task_is_refused_where_a_task_is_asked_for(pretrained, tmp_path):
    with pytest.raises(ValueError, match="head: "):
        export(pretrained, tmp_path / "1", head="task")
    with pytest.raises(ValueError, match="no checkpoint"):
        export(tmp_path, tmp_path / "1")
    assert not Path(tmp_path / "1").exists()


# ------------------------------------------------------------------------------------------ long texts


@pytest.fixture(scope="module")
def windowed(sentence_model, tmp_path_factory):
    """`sentence_model`, as if trained on windows of long texts."""
    folder = shutil.copytree(sentence_model, tmp_path_factory.mktemp("windowed") / "model")
    path = folder / "task.json"
    windows = {"doc_stride": 3, "max_seq_length": 9}
    path.write_text(json.dumps(json.loads(path.read_text()) | windows))
    return folder


@pytest.mark.weekly_cases("9")
@pytest.mark.parametrize("length", [3, 9])
def test_a_classifier_with_windows_reads_the_whole_text(windowed, tmp_path, length):
    export(windowed, tmp_path / "1", max_seq_length=length, signature="serving_default")
    function = tf.saved_model.load(str(tmp_path / "1")).signatures["serving_default"]
    trained = load_model(str(windowed))
    tokenizer = trained.tokenizer
    cls_id, sep_id = tokenizer.convert_tokens_to_ids(["[CLS]", "[SEP]"])
    texts = [*TEXTS, "sad cat " * 10 + "happy owl " * 10]
    found = function(text_a=tf.constant(texts))["logits"].numpy()
    for text, logits in zip(texts, found, strict=True):
        windows = pack_windows(
            tokenizer.encode(text),
            max_seq_length=length,
            doc_stride=3,
            cls_id=cls_id,
            sep_id=sep_id,
        )
        inputs = {
            name: np.array([getattr(window, name) for window in windows], "int32")
            for name in windows[0]._fields
        }
        expected = trained.model(inputs)["logits"].numpy().mean(axis=0)
        np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-5)


def test_windows_of_pairs_are_those_of_training():
    rng = random.Random(1)
    for _ in range(40):
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
