"""What export_saved_model writes: its folder, metadata, precisions, TFLite; and what it refuses."""

import dataclasses
import hashlib
import json
import subprocess
from datetime import datetime, timezone
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tiny_text_models as tiny
from export_kinds import TEXTS
from helpers import python, refused
from models import golden
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

import bert_tf
from bert_tf.checkpoints.tf1 import latest_checkpoint
from bert_tf.modeling.bert import BertModel
from bert_tf.prediction.loading import load_model
from bert_tf.serving.pretrained import ServedEncoder
from bert_tf.serving.saved_model import write_saved_model
from bert_tf.tokenization import pack_texts

NAMES = ("input_ids", "input_mask", "segment_ids")


def export(kind, folder, **options):
    """The metadata of an export."""
    bert_tf.export(golden(kind), folder, **options)
    path = folder / "assets.extra" / "export.json"
    return json.loads((path if path.exists() else folder / "export.json").read_text())


@pytest.fixture(scope="module")
def ids():
    """The ids of TEXTS, padded to the longest, as a client of another runtime makes them."""
    rows = [pack_texts(load_model(str(golden("classifier"))).tokenizer, t, None, 19) for t in TEXTS]
    return {name: np.array([getattr(row, name) for row in rows], np.int32) for name in NAMES}


@pytest.fixture(scope="module")
def logits(ids):
    return load_model(str(golden("classifier"))).model(ids)["logits"].numpy()


# ------------------------------------------------------------------------------------- the SavedModel


@pytest.mark.night
def test_metadata_say_what_the_file_is(tmp_path):
    run, folder = golden("classifier"), tmp_path / "1"
    values = export("classifier", folder)
    vocabulary = (run / "vocab.txt").read_bytes()
    expected = {"format": "saved_model", "kind": "classifier", "labels": ["bad", "good"]}
    expected |= {"max_seq_length": 19, "do_lower_case": True, "precision": "float32"}
    expected |= {"bert_tf_version": bert_tf.__version__, "tensorflow_version": tf.__version__}
    expected |= {"vocab_sha256": hashlib.sha256(vocabulary).hexdigest()}
    expected |= {"vocab_size": len(vocabulary.splitlines())}
    expected |= {"config": json.loads((run / "bert_config.json").read_text())}
    expected |= {"task": json.loads((run / "task.json").read_text())}
    expected |= {"custom_ops": ["FastWordpieceTokenizeWithOffsets"]}
    assert {name: values[name] for name in expected} == expected
    loaded = tf.saved_model.load(str(folder))
    assert {*values["signatures"]} == {*values["differences"]} == {*loaded.signatures}
    for name, function in loaded.signatures.items():
        inputs, outputs = function.structured_input_signature[1], function.structured_outputs
        for side, specs in (("inputs", inputs), ("outputs", outputs)):
            assert values["signatures"][name][side] == {
                key: {"dtype": spec.dtype.name, "shape": spec.shape.as_list()}
                for key, spec in specs.items()
            }
    same = ["bert_config.json", "labels.txt", "task.json", "vocab.txt"]
    for name in same:
        assert (folder / "assets.extra" / name).read_bytes() == (run / name).read_bytes()
    found = {path.name for path in (folder / "assets.extra").iterdir()}
    assert found == {*same, "export.json", "tf_serving_warmup_requests"}


def check_source(source, model_dir, flags):
    """The facts name the files of a checkpoint and the command."""
    prefix = latest_checkpoint(str(model_dir))
    step = int(prefix.rpartition("-")[2])
    assert source["step"] == step
    assert source["checkpoint"] == f"model.ckpt-{step}" and source["flags"] == flags
    for path in (f"{prefix}.data-00000-of-00001", f"{prefix}.index"):
        content = Path(path).read_bytes()
        expected = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        assert source["files"].pop(Path(path).name) == expected
    assert not source["files"]
    age = datetime.now(timezone.utc) - datetime.fromisoformat(source["exported"])
    assert 0 <= age.total_seconds() < 600


@pytest.mark.night
def test_export_has_the_signatures_and_length_asked_for(tmp_path):
    folder = tmp_path / "served" / "2"
    folder.mkdir(parents=True)  # empty, as by a program that prepares folders
    values = export("classifier", folder, max_seq_length=5, signature="tokens")
    assert [*values["signatures"]] == [*values["differences"]] == ["tokens"]
    assert sorted(folder.parent.iterdir()) == [folder]
    long, short = bert_tf.load(folder).predict(["the cat is sad and rude", "the cat is"])
    assert long == short  # of both, three tokens are left


@pytest.mark.night
def test_bfloat16_weights_give_float32_outputs_that_are_near(tmp_path, ids, logits):
    options = {"precision": "bfloat16", "signature": "tokens"}
    values = export("classifier", tmp_path / "1", **options)
    flags = ["--model_dir=classifier", "--export_dir=1", "--signature=tokens"]
    check_source(values["source"], golden("classifier"), [*flags, "--precision=bfloat16"])
    model = tf.saved_model.load(str(tmp_path / "1"))
    outputs = model.signatures["tokens"](**{name: tf.constant(v) for name, v in ids.items()})
    assert outputs["logits"].dtype == outputs["probabilities"].dtype == tf.float32
    np.testing.assert_allclose(outputs["logits"], logits, rtol=0.05, atol=0.1)
    assert {v.dtype for v in model.weights} == {tf.bfloat16}


def test_servers_restore_the_variables_that_the_functions_read(exported):
    """TensorFlow Serving and the C API load as a session does."""
    v1 = tf.compat.v1
    with v1.Session(graph=tf.Graph()) as session:
        graph = v1.saved_model.load(session, ["serve"], str(exported))
        handles = {n.name for n in graph.graph_def.node if n.op == "VarHandleOp"}
        # No copies: of the model's 41 variables six in each of two layers have become two.
        assert len(handles) == 41 - 2 * 4
        signature = graph.signature_def["tokens"]
        ones = {spec.name: [[1, 1, 1]] for spec in signature.inputs.values()}
        logits = session.run(signature.outputs["logits"].name, ones)
    tokens = tf.saved_model.load(str(exported)).signatures["tokens"]
    expected = tokens(**{name: tf.constant([[1, 1, 1]]) for name in NAMES})["logits"]
    np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("gpus", [[], pytest.param(["a GPU"], marks=pytest.mark.night)])
def test_bfloat16_layout_is_for_cpus_unless_there_is_a_gpu(tmp_path, monkeypatch, gpus):
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: gpus)
    net = BertModel(tiny.CONFIG, dtype="bfloat16")
    model = ServedEncoder(dataclasses.replace(tiny.trained(None), network=net, max_seq_length=11))
    write_saved_model(model, str(tmp_path / "1"), ["tokens"], precision="bfloat16")
    proto = SavedModel.FromString((tmp_path / "1" / "saved_model.pb").read_bytes())
    library = proto.meta_graphs[0].graph_def.library.function
    operations = {node.op for function in library for node in function.node_def}
    assert ("FusedBatchNormV3" in operations) == (not gpus)


# ------------------------------------------------------------------------------------- other processes

# Reads (folder, signature, inputs); writes the logits, and the packages that it imported.
SERVE = """
import json, sys
import tensorflow as tf
has_keras = "keras" in sys.modules  # TensorFlow may bring it along
requests = json.load(sys.stdin)
if any(name != "tokens" for _, name, _ in requests):
    import tensorflow_text
models = {folder: tf.saved_model.load(folder) for folder, _, _ in requests}
answers = []
for folder, name, inputs in requests:
    dtype = tf.int32 if name == "tokens" else tf.string
    tensors = {key: tf.constant(values, dtype) for key, values in inputs.items()}
    answers.append(models[folder].signatures[name](**tensors)["logits"].numpy().tolist())
more = {"bert_tf", "tensorflow_text", "keras"} & {name.split(".")[0] for name in sys.modules}
json.dump([answers, sorted(more - ({"keras"} if has_keras else set()))], sys.stdout)
"""


def ask(requests, **environment):
    command = python("-c", SERVE, **environment)
    done = subprocess.run(**command, input=json.dumps(requests), capture_output=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.night
def test_a_new_process_needs_tensorflow_text_for_text_alone(exported, tmp_path, ids, logits):
    values = export("classifier", tmp_path / "1", signature="tokens")
    assert values["custom_ops"] == []
    rows = {name: value.tolist() for name, value in ids.items()}
    answers, more = ask([(str(tmp_path / "1"), "tokens", rows)])
    assert more == []
    np.testing.assert_allclose(answers[0], logits, rtol=0, atol=1e-5)
    # Requests of several sizes, with kernels that oneDNN packs once.
    chosen = [slice(1), slice(None), slice(None, None, -1), slice(2, 5), slice(None)]
    requests = [(str(exported), "serving_default", {"text_a": TEXTS[s]}) for s in chosen]
    answers, more = ask(requests, TF_ONEDNN_ASSUME_FROZEN_WEIGHTS="1")
    assert more == ["tensorflow_text"]
    for answer, part in zip(answers, chosen, strict=True):
        np.testing.assert_allclose(answer, logits[part], rtol=0, atol=1e-5)


# ---------------------------------------------------------------------------------------------- TFLite


@pytest.mark.night
@pytest.mark.parametrize(
    "precision, atol", [pytest.param("float16", 0.05, marks=pytest.mark.night), ("int8", 0.5)]
)
def test_lite_model_answers_batches_of_any_shape(tmp_path, ids, logits, precision, atol):
    values = export("classifier", tmp_path / "1", format="tflite", precision=precision)
    assert (values["format"], values["precision"]) == ("tflite", precision)
    check_source(
        values["source"],
        golden("classifier"),
        ["--model_dir=classifier", "--export_dir=1", "--format=tflite", f"--precision={precision}"],
    )
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


# -------------------------------------------------------------------------------------------- refusals

REFUSED = [
    ("classifier", {"signature": "tokens,pair"}, "signature"),
    ("classifier", {"precision": "float16"}, "precision"),
    ("classifier", {"format": "tflite", "precision": "bfloat16"}, "precision"),
    ("classifier", {"format": "onnx", "precision": "int8"}, "precision"),
    ("classifier", {"format": "tflite", "signature": "serving_default"}, "signature"),
    ("classifier", {"precision": "int8"}, "calibration_file"),
    ("classifier", {"max_seq_length": 1}, "max_seq_length"),
    ("classifier", {"max_seq_length": 32}, "max_seq_length"),
    ("classifier", {"head": "masked_lm"}, "model.ckpt-67"),
    ("pretrained", {"head": "task"}, "head"),
    ("pretrained", {"max_seq_length": 32}, "max_seq_length"),
    ("pretrained", {"layers": "2"}, "layers"),
    ("pretrained", {"pooling": "concat_last_four"}, "pooling"),
]


def test_export_refuses_what_does_not_fit(tmp_path):
    for kind, options, option in REFUSED:
        with refused(option):
            bert_tf.export(golden(kind), tmp_path / "1", **options)
    assert not list(tmp_path.iterdir())


def test_export_does_not_replace_what_is_there(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "saved_model.pb").write_text("an earlier one")
    (tmp_path / "file").write_text("a file")
    before = sorted(tmp_path.rglob("*"))
    for name in ("folder", "file"):
        with refused("export_dir"):
            bert_tf.export(golden("classifier"), tmp_path / name)
    assert sorted(tmp_path.rglob("*")) == before
