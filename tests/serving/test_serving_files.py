"""What export_saved_model writes: signatures that were chosen, precisions, metadata, other formats."""

import dataclasses
import hashlib
import json
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tiny_text_models as tiny
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel
from tiny_runs import script_command

import bert_tf
from bert_tf.data.packing import pack_texts
from bert_tf.model_folder import load_model
from bert_tf.modeling.bert import BertModel
from bert_tf.options import OptionError
from bert_tf.programs.export_saved_model import ExportOptions, export_saved_model
from bert_tf.serving.encoder import ServedEncoder
from bert_tf.serving.formats import write_lite
from bert_tf.serving.saved_model import metadata, write_saved_model
from bert_tf.serving.token_classification import ServedTagger
from bert_tf.tasks.token_classification import TokenClassificationTask
from bert_tf.training.checkpoints import latest_checkpoint

TEXTS = ("the happy cat in the barn", "sad dog", "the rude pig is in the lake and angry")
NAMES = ("input_ids", "input_mask", "segment_ids")


def export(model_dir, folder, **options):
    """The metadata of an export."""
    export_saved_model(ExportOptions(model_dir=str(model_dir), export_dir=str(folder), **options))
    path = folder / "assets.extra" / "export.json"
    return json.loads((path if path.exists() else folder / "export.json").read_text())


@pytest.fixture(scope="module")
def ids(sentence_model):
    """The ids of TEXTS, padded to the longest, as a client of another runtime makes them."""
    trained = load_model(str(sentence_model))
    rows = [pack_texts(trained.tokenizer, text, None, 19) for text in TEXTS]
    longest = max(sum(row.input_mask) for row in rows)
    return {n: np.array([getattr(row, n)[:longest] for row in rows], np.int32) for n in NAMES}


@pytest.fixture(scope="module")
def logits(sentence_model, ids):
    return load_model(str(sentence_model)).model(ids)["logits"].numpy()


def test_the_metadata_say_what_the_file_is(sentence_model, exported):
    values = json.loads((exported.single / "assets.extra" / "export.json").read_text())
    vocabulary = (sentence_model / "vocab.txt").read_bytes()
    assert values["vocab_sha256"] == hashlib.sha256(vocabulary).hexdigest()
    assert values["vocab_size"] == len(vocabulary.splitlines())
    assert values["config"] == json.loads((sentence_model / "bert_config.json").read_text())
    assert values["task"] == json.loads((sentence_model / "task.json").read_text())
    expected = {"format": "saved_model", "kind": "classifier", "labels": ["bad", "good"]}
    expected |= {"max_seq_length": 19, "do_lower_case": True, "precision": "float32"}
    expected |= {"bert_tf_version": bert_tf.__version__, "tensorflow_version": tf.__version__}
    assert {name: values[name] for name in expected} == expected
    assert values["custom_ops"] == ["FastWordpieceTokenizeWithOffsets"]
    loaded = tf.saved_model.load(str(exported.single))
    assert sorted(values["signatures"]) == sorted(loaded.signatures)
    for name, function in loaded.signatures.items():
        described = values["signatures"][name]
        inputs, outputs = function.structured_input_signature[1], function.structured_outputs
        for side, specs in (("inputs", inputs), ("outputs", outputs)):
            assert described[side] == {
                key: {"dtype": spec.dtype.name, "shape": spec.shape.as_list()}
                for key, spec in specs.items()
            }


def check_source(source, model_dir, flags):
    """The facts name the files of a checkpoint and the command."""
    prefix = latest_checkpoint(str(model_dir))
    files = [f"{prefix}.data-00000-of-00001", f"{prefix}.index"]
    step = int(prefix.rpartition("-")[2])
    assert source["step"] == step
    assert source["checkpoint"] == f"model.ckpt-{step}" and source["flags"] == flags
    for path in files:
        content = Path(path).read_bytes()
        expected = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        assert source["files"].pop(Path(path).name) == expected
    assert not source["files"]
    age = datetime.now(timezone.utc) - datetime.fromisoformat(source["exported"])
    assert 0 <= age.total_seconds() < 600


def test_an_export_names_its_checkpoint_and_its_command(pretrained, tmp_path):
    values = export(pretrained, tmp_path / "2", head="masked_lm", format="tflite")
    flags = [f"--model_dir={pretrained.name}", "--export_dir=2", "--head=masked_lm"]
    check_source(values["source"], pretrained, [*flags, "--format=tflite"])


def test_only_the_signatures_that_were_asked_for_are_written(ner_model, tmp_path):
    values = export(ner_model, tmp_path / "1", signature="words,tokens")
    loaded = tf.saved_model.load(str(tmp_path / "1"))
    assert sorted(values["signatures"]) == sorted(loaded.signatures) == ["tokens", "words"]
    assert values["differences"].keys() == values["signatures"].keys()


@pytest.mark.night
def test_a_file_for_ids_has_no_custom_operation_and_loads_with_tensorflow_alone(
    sentence_model, tmp_path, ids, logits
):
    values = export(sentence_model, tmp_path / "1", signature="tokens")
    assert values["custom_ops"] == []
    code = """
import json, sys
import tensorflow as tf
model = tf.saved_model.load(sys.argv[1])
ids = {name: tf.constant(value, tf.int32) for name, value in json.load(sys.stdin).items()}
print(json.dumps(model.signatures["tokens"](**ids)["logits"].numpy().tolist()))
print("tensorflow_text" in sys.modules, "bert_tf" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "1")],
        input=json.dumps({name: value.tolist() for name, value in ids.items()}),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found, imported = done.stdout.splitlines()
    assert imported == "False False"
    np.testing.assert_allclose(json.loads(found), logits, rtol=0, atol=1e-5)


def test_bfloat16_weights_give_float32_outputs_that_are_near_and_name_their_checkpoint(
    sentence_model, tmp_path, logits
):
    options = {"precision": "bfloat16", "signature": "serving_default"}
    values = export(sentence_model, tmp_path / "1", **options)
    flags = [f"--model_dir={sentence_model.name}", "--export_dir=1"]
    flags += ["--signature=serving_default", "--precision=bfloat16"]
    check_source(values["source"], sentence_model, flags)
    assert values["precision"] == "bfloat16"
    serve = tf.saved_model.load(str(tmp_path / "1")).signatures["serving_default"]
    outputs = serve(text_a=tf.constant(TEXTS))
    assert outputs["logits"].dtype == outputs["probabilities"].dtype == tf.float32
    np.testing.assert_allclose(outputs["logits"], logits, rtol=0.05, atol=0.1)
    reader = tf.train.load_checkpoint(str(tmp_path / "1" / "variables" / "variables"))
    dtypes = {d for n, d in reader.get_variable_to_dtype_map().items() if n.startswith("weights")}
    assert dtypes == {tf.bfloat16}


def test_servers_restore_the_variables_that_the_functions_read(exported):
    """TensorFlow Serving and the C API load as a session does."""
    v1 = tf.compat.v1
    with v1.Session(graph=tf.Graph()) as session:
        graph = v1.saved_model.load(session, ["serve"], str(exported.single))
        handles = {n.name for n in graph.graph_def.node if n.op == "VarHandleOp"}
        # No copies: of the model's 41 variables six in each of two layers have become two.
        assert len(handles) == 41 - 2 * 4
        signature = graph.signature_def["tokens"]
        ones = {spec.name: [[1, 1, 1]] for spec in signature.inputs.values()}
        logits = session.run(signature.outputs["logits"].name, ones)
    tokens = tf.saved_model.load(str(exported.single)).signatures["tokens"]
    expected = tokens(**{name: tf.constant([[1, 1, 1]]) for name in NAMES})["logits"]
    np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("gpus", [[], ["a GPU"]])
def test_in_bfloat16_the_layout_is_for_cpus_unless_there_is_a_gpu(tmp_path, monkeypatch, gpus):
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: gpus)
    model = BertModel(tiny.CONFIG, dtype="bfloat16")
    served = ServedEncoder(model, tiny.trained(None).tokenizer, 11, with_text=False)
    write_saved_model(served, str(tmp_path / "1"), ["tokens"], precision="bfloat16")
    proto = SavedModel.FromString((tmp_path / "1" / "saved_model.pb").read_bytes())
    library = proto.meta_graphs[0].graph_def.library.function
    operations = {node.op for function in library for node in function.node_def}
    assert ("FusedBatchNormV3" in operations) == (not gpus)


@pytest.mark.parametrize(
    "options, option",
    [
        ({"signature": "tokens,pair"}, "signature"),
        ({"precision": "float16"}, "precision"),
        ({"format": "tflite", "precision": "bfloat16"}, "precision"),
        ({"format": "onnx", "precision": "int8"}, "precision"),
        ({"format": "tflite", "signature": "serving_default"}, "signature"),
        ({"precision": "int8"}, "calibration_file"),
    ],
)
def test_what_does_not_go_together_is_refused(sentence_model, tmp_path, options, option):
    with pytest.raises(OptionError) as caught:
        export(sentence_model, tmp_path / "1", **options)
    assert caught.value.option == option
    assert not (tmp_path / "1").exists()


@pytest.mark.parametrize(
    "options, missing",
    [
        ({"format": "onnx"}, "tf2onnx"),
        ({"format": "openvino"}, "openvino"),
        ({"format": "openvino", "precision": "int8", "calibration_file": "texts"}, "nncf"),
    ],
)
def test_a_missing_package_is_named_before_the_model_is_read(
    tmp_path, monkeypatch, options, missing
):
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(OptionError, match=rf"{missing}.*\[{options['format']}\]"):
        export(tmp_path / "absent", tmp_path / "1", **options)


# --------------------------------------------------------------------------------------- other formats


def test_the_source_of_an_export_is_not_wrapped_by_tensorflow():
    task = TokenClassificationTask(("O", "B-X"), 11)
    served = ServedTagger(tiny.trained(task, tiny.CONFIG), 11, with_text=False)
    source = {"checkpoint": "a", "files": {"a": {"bytes": 1}}}
    served.note_source(source)
    # Python's encoder in C takes plain dicts only. From Python 3.13 it is used with an indent too.
    assert json.loads(json.dumps(metadata(served, "float32")))["source"] == source


@pytest.mark.parametrize("of_encoder", [False, True])
def test_a_model_with_a_bilstm_is_no_lite_model(tmp_path, monkeypatch, of_encoder):
    config = dataclasses.replace(tiny.CONFIG, num_bilstm_layers=int(of_encoder))
    layers = None if of_encoder else "last_hidden"
    task = TokenClassificationTask(("O", "B-X"), 11, feature_layers=layers, bilstm_units=4)
    served = ServedTagger(tiny.trained(task, config), 11, with_text=False)
    monkeypatch.delattr(ServedTagger, "tokens")  # nothing is traced
    with pytest.raises(OptionError, match="format"):
        write_lite(served, str(tmp_path / "lite"))
    assert not (tmp_path / "lite").exists()


@pytest.mark.weekly_cases("float16")
@pytest.mark.parametrize("precision, atol", [("float16", 0.05), ("int8", 0.5)])
def test_a_lite_model_answers_batches_of_any_shape(
    sentence_model, tmp_path, ids, logits, precision, atol
):
    values = export(sentence_model, tmp_path / "1", format="tflite", precision=precision)
    assert (values["format"], values["precision"]) == ("tflite", precision)
    interpreter = tf.lite.Interpreter(str(tmp_path / "1" / "model.tflite"))
    assert interpreter.get_signature_list()["tokens"] == {
        "inputs": list(values["signatures"]["tokens"]["inputs"]),
        "outputs": sorted(values["signatures"]["tokens"]["outputs"]),
    }
    run = interpreter.get_signature_runner("tokens")
    np.testing.assert_allclose(run(**ids)["logits"], logits, rtol=0, atol=atol)
    length = ids["input_mask"][0].sum()
    alone = run(**{name: value[:1, :length] for name, value in ids.items()})["logits"]
    np.testing.assert_allclose(alone, logits[:1], rtol=0, atol=atol)
    assert sorted(path.name for path in (tmp_path / "1").iterdir()) == sorted(
        ["model.tflite", "export.json", "task.json", "bert_config.json", "vocab.txt", "labels.txt"]
    )


@pytest.mark.night
def test_the_script_exports_and_says_how_the_model_is_asked(sentence_model, tmp_path):
    flags = {"model_dir": sentence_model, "export_dir": tmp_path / "1", "signature": "tokens"}
    done = subprocess.run(
        **script_command("export_saved_model", **flags), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "tokens: input_ids int32 [None, None]" in done.stderr + done.stdout
    assert "largest difference" in done.stderr + done.stdout
