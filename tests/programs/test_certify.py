"""certify: right exports pass, each injected fault is found, and the program writes what it promises."""

import dataclasses
import io
import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from faulty_exports import FAULTS, INPUTS, KINDS, InMemory, served, trained
from pages import data_of, figures_of
from tiny_runs import script_command

from bert_tf.prediction import exports, runtimes
from bert_tf.prediction.exports import find_exports
from bert_tf.prediction.runtime_process import Process
from bert_tf.predictor import Predictor
from bert_tf.programs.certificate import Comparison, Expected, Tally, compare
from bert_tf.programs.certificate_answers import variants
from bert_tf.programs.certificate_faults import LIMITS, describe
from bert_tf.programs.certify import (
    CertificateError,
    _check_input,
    _check_used,
    _remedy,
    _text_model,
    certify,
)
from bert_tf.programs.certify_options import CertifyOptions
from bert_tf.programs.convert_checkpoint import convert
from bert_tf.programs.export_saved_model import export
from bert_tf.report.certificate import _files
from bert_tf.serving.lite import write_lite
from bert_tf.serving.preprocessing import preprocessing_dir
from bert_tf.serving.saved_model import metadata, write_beside, write_saved_model

TEXTS = ("the happy cat in the barn", "a sad owl", "the rude pig is in the lake and angry")


def expectation(kind):
    model = trained(kind)
    predictor = Predictor(model)
    text_model = predictor.encoder() if kind == "encoder" else predictor.text_model
    items = INPUTS[kind]
    more = variants(text_model, items[:2], model.max_seq_length)
    return Expected(model, text_model, [*items, *more], len(items))


@pytest.fixture(scope="module")
def right(tmp_path_factory):
    """Function kind -> (its export, a runtime that answers rightly, what Python answers), made once."""
    made = {}

    def of(kind):
        if kind not in made:
            folder = tmp_path_factory.mktemp(kind)
            model = served(kind)
            facts = metadata(model, "float32") | {"format": "saved_model"}
            write_beside(model, str(folder / "assets.extra"), facts)
            (folder / "saved_model.pb").touch()
            made[kind] = (*find_exports(str(folder)), InMemory(model), expectation(kind))
        return made[kind]

    return of


def faults_in(runtime, export, expected):
    found = compare(runtime, export, expected, batch_size=4)
    return describe(export, expected, found, LIMITS[export.precision])


# ---- right exports and faults --------------------------------------------------------------------


def test_a_right_export_passes_and_spoiled_weights_do_not(right):
    export, runtime, expected = right("single")
    result = faults_in(runtime, export, expected)
    assert result["faults"] == []
    assert 0 < result["largest_difference"] < 1e-5
    assert {found["equal"] for found in result["ids"].values()} == {len(expected.texts)}
    assert result["signatures"]["serving_default"]["decisions"] == len(INPUTS["single"])
    assert set(result["signatures"]) == {"serving_default", "tokens"}
    for variable in runtime.served.parameters[::9]:
        kept = variable.numpy()
        variable.assign(kept * 1.01 + 0.001)
        assert faults_in(runtime, export, expected)["faults"], variable.path
        variable.assign(kept)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_type_of_task_passes(tmp_path, kind):
    write_saved_model(served(kind), str(tmp_path / "1"), warm_up=False)
    (export,) = find_exports(str(tmp_path))
    runtime = runtimes.load("saved_model", export.path)
    result = faults_in(runtime, export, expectation(kind))
    assert result["faults"] == []
    for tally in result["signatures"].values():
        assert tally["outputs"] or kind in ("questions", "entities", "crf")
        assert tally["decisions"] or kind in ("regression", "encoder", "embedder")
        assert tally["milliseconds"] > 0


def test_texts_without_words_pass_with_a_crf(right):
    export, runtime, expected = right("crf")
    result = faults_in(runtime, export, expected)
    assert result["faults"] == []
    assert result["signatures"]["tokens"]["decisions"] > 10


@pytest.mark.parametrize("as_query", [False, True])
def test_an_embedder_passes_with_its_prefixes(right, as_query):
    export, runtime, _ = right("embedder")
    model = trained("embedder")
    text_model = Predictor(model).encoder(as_query=as_query)
    found = compare(runtime, export, Expected(model, text_model, INPUTS["embedder"]), batch_size=4)
    asked, other = ("query", "serving_default") if as_query else ("serving_default", "query")
    assert set(found.tallies) == {asked, "tokens"} and found.not_asked == [other]
    for tally in found.tallies.values():
        assert tally.outputs["embedding"][0] < 1e-5


def test_the_encoder_of_an_embedder_passes_without_its_prefixes(tmp_path, lines):
    model = trained("embedder")
    bare = served("encoder", dataclasses.replace(model, model=model.model.bert, task=None))
    facts = metadata(bare, "float32") | {"format": "saved_model"}
    write_beside(bare, str(tmp_path / "assets.extra"), facts)
    (tmp_path / "saved_model.pb").touch()
    (export,) = find_exports(str(tmp_path))
    text_model = _text_model(model, export.head.name, options("", "", lines, tmp_path))
    expected = Expected(model, text_model, INPUTS["embedder"])
    assert faults_in(InMemory(bare), export, expected)["faults"] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(fault, marks=[] if number % 2 else [pytest.mark.long])
        for number, fault in enumerate(FAULTS)
    ],
)
def test_a_fault_of_an_exporter_is_found(right, fault):
    kind, spoil = FAULTS[fault]
    export, _, expected = right(kind)
    model = served(kind)
    spoil(model)
    assert faults_in(InMemory(model), export, expected)["faults"]


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"labels": ("good", "fair", "bad")}, "labels are good, fair, bad, but must be bad, fair"),
        (
            {"listed_labels": ("fair", "bad", "good")},
            "labels of labels.txt are fair, bad, good, but",
        ),
        ({"max_seq_length": 9}, "max_seq_length is 9, but must be 11"),
    ],
)
def test_files_next_to_an_export_that_are_wrong_are_found(right, changes, message):
    export, runtime, expected = right("single")
    result = faults_in(runtime, dataclasses.replace(export, **changes), expected)
    assert any(message in fault for fault in result["faults"])


@pytest.mark.slow
@pytest.mark.parametrize("saturated", [False, True])
def test_an_int8_range_that_is_saturated_is_found(right, tmp_path, saturated):
    _, _, expected = right("single")
    model = served("single")
    if saturated:
        for variable in model.model.weights:
            if "kernel" in variable.path:
                value = variable.numpy()
                most = np.abs(value).max() / 4
                variable.assign(value.clip(-most, most))
    write_lite(model, str(tmp_path / "1"), "int8")
    (export,) = find_exports(str(tmp_path / "1"))
    runtime = runtimes.load("tflite", export.path)
    assert bool(faults_in(runtime, export, expected)["faults"]) == saturated


# ---- the files of exports, and processes ---------------------------------------------------------


def test_messages_keep_arrays_and_texts():
    stream = io.BytesIO()
    arrays = {
        "numbers": np.arange(6, dtype=np.float32).reshape(2, 3),
        "flags": np.array([True, False]),
        "texts": [["ä\0", "b"], ["", "😀"]],
        "bytes": np.array([b"\xff\xfe", b"x"], object),
        "none": np.zeros((0, 2), np.int32),
    }
    runtimes.send(stream, {"signature": "s"}, arrays)
    stream.seek(0)
    head, found = runtimes.receive(stream)
    assert head == {"signature": "s"}
    assert found["texts"].tolist() == [["ä\0".encode(), b"b"], [b"", "😀".encode()]]
    for name in ("numbers", "flags", "bytes", "none"):
        np.testing.assert_array_equal(found[name], arrays[name])
        assert found[name].dtype == arrays[name].dtype
    with pytest.raises(EOFError, match="0 of 8 bytes"):
        runtimes.receive(stream)


def test_runtimes_import_nothing_of_bert_tf():
    with open(runtimes.__file__, encoding="utf-8") as file:
        assert "import bert_tf" not in (text := file.read()) and "from bert_tf" not in text


def test_a_folder_without_an_export_is_an_error(tmp_path):
    (tmp_path / "notes").mkdir()
    with pytest.raises(ValueError, match=r"contains no export.*model\.tflite.*export_saved_model"):
        find_exports(str(tmp_path))
    (tmp_path / "notes" / "model.onnx").write_bytes(b"")
    with pytest.raises(ValueError, match=r"notes has no export\.json.*Export it again"):
        find_exports(str(tmp_path))
    (tmp_path / "notes" / "export.json").write_text('{"kind": "other"}')
    with pytest.raises(ValueError, match=r"export\.json .*'other'.*Export the model again"):
        find_exports(str(tmp_path))


def test_onnx_files_on_text_are_left_out_of_a_folder_with_others(right, tmp_path, caplog):
    export, _, _ = right("single")
    shutil.copytree(export.folder, tmp_path / "all" / "1")
    (tmp_path / "all" / "2").mkdir()
    (tmp_path / "all" / "2" / "model.onnx").write_bytes(b"")
    (tmp_path / "all" / "2" / "export.json").write_text('{"custom_ops": ["BertTokenizer"]}')
    (found,) = find_exports(str(tmp_path / "all"))
    assert found.folder == str(tmp_path / "all" / "1")
    assert "all/2 takes text by operations of onnxruntime-extensions" in caplog.text
    with pytest.raises(ValueError, match="only ONNX files on ids are supported here"):
        find_exports(str(tmp_path / "all" / "2"))


def test_the_preprocessing_next_to_an_encoder_is_left_out(right, tmp_path, caplog):
    export, _, _ = right("encoder")
    shutil.copytree(export.folder, tmp_path / "encoder" / "1")
    preprocessing = Path(preprocessing_dir(str(tmp_path / "encoder" / "1")))
    preprocessing.mkdir()
    (preprocessing / "saved_model.pb").touch()
    (found,) = find_exports(str(tmp_path / "encoder"))
    assert found.folder == str(tmp_path / "encoder" / "1")
    assert "Left out: " in caplog.text and "1_preprocess is the preprocessing of" in caplog.text
    with pytest.raises(ValueError, match=r"not a model\. Name the folder of the encoder, .*/1\."):
        find_exports(str(preprocessing))


def test_a_runtime_that_is_not_installed_is_named(right, monkeypatch):
    export = dataclasses.replace(right("single")[0], format="onnx")
    monkeypatch.setattr(exports, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match="pip install onnxruntime"):
        export.runtimes  # noqa: B018


def test_an_interpreter_that_does_not_start_is_an_error(tmp_path):
    with pytest.raises(ValueError, match=r"environment .*nowhere/python.*env/bin/python"):
        Process("saved_model", str(tmp_path), f"{tmp_path}/nowhere/python")
    with pytest.raises(ValueError, match="ended with status 0"):
        Process("saved_model", str(tmp_path), shutil.which("true"))


def test_a_process_that_ends_early_is_named_and_closed(tmp_path):
    answer = io.BytesIO()
    runtimes.send(answer, {"version": "x", "signatures": {}}, {})
    (tmp_path / "answer").write_bytes(answer.getvalue())
    program = tmp_path / "python"
    program.write_text(f"#!/bin/sh\ncat {tmp_path}/answer\necho no memory >&2\nexit 9\n")
    program.chmod(0o755)
    with (
        pytest.raises(ValueError, match="ended with status 9: no memory"),
        Process("saved_model", str(tmp_path), str(program)) as process,
    ):
        process._process.wait()
        process.ask("tokens", {"input_ids": np.zeros(99, np.int32)})
    assert process._errors.closed and process._process.stdin.closed


@pytest.mark.slow
def test_a_process_that_cannot_load_the_export_says_why(tmp_path):
    with pytest.raises(ValueError, match=f"failed: .*{tmp_path}"):
        Process("saved_model", str(tmp_path))


# ---- the program ---------------------------------------------------------------------------------


@pytest.fixture
def lines(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text("".join(f"{text}\n" for text in TEXTS))
    return str(path)


def options(model, export_dir, lines, tmp_path, **flags):
    return CertifyOptions(
        model_dir=str(model),
        export_dir=str(export_dir),
        input_file=lines,
        output_file=str(tmp_path / "certificate.html"),
        **flags,
    )


@pytest.mark.slow
def test_the_program_writes_a_page_and_a_json(exported, sentence_model, lines, tmp_path):
    python = f"here:{sys.executable}"
    flags = {"environment": f"bad:{shutil.which('true')}"}
    with pytest.raises(CertificateError, match=r"1 of 2 exports differ .*ended with status 0"):
        certify(options(sentence_model, exported.single, lines, tmp_path, **flags))
    assert figures_of((tmp_path / "certificate.html").read_text())["result"] == "failed"
    certify(options(sentence_model, exported.single, lines, tmp_path, environment=python))
    values = json.loads((tmp_path / "certificate.json").read_text())
    assert (values["passed"], values["inputs"], values["variants"]) == (True, 3, 8)
    assert [each["environment"] for each in values["exports"]] == ["", "here"]
    for each in values["exports"]:
        assert each["faults"] == [] and each["peak_memory"] > 1e7
        assert each["files"]["saved_model.pb"]["bytes"] > 0
        assert len(each["files"]["variables/variables.index"]["sha256"]) == 64
    assert [name.split(".")[0] for name in values["model_files"]] == ["model"] * 2
    page = (tmp_path / "certificate.html").read_text()
    assert figures_of(page) == {
        "result": "passed",
        "exports": 2,
        "inputs": 3,
        "variants of them": 8,
    }
    titles = [section["title"] for section in data_of(page)["sections"]]
    assert titles == ["Exports", "Outputs", "Files", "Command"]


def test_the_page_lists_files_under_the_whole_folder_of_their_export():
    files = {"saved_model.pb": {"bytes": 1, "sha256": "0"}}
    exports = [{"export_dir": f"served/{name}/1", "files": files} for name in "ab"]
    values = {"model_dir": "out", "model_files": files, "exports": exports}
    assert [row[0] for row in _files(values)] == ["out", "served/a/1", "served/b/1"]


@pytest.mark.slow
def test_tflite_and_hugging_face_pass_and_wrong_weights_end_with_status_1(
    sentence_model, lines, tmp_path
):
    pytest.importorskip("transformers")
    export(sentence_model, tmp_path / "all" / "lite", format="tflite")
    convert(sentence_model, tmp_path / "all" / "hf")
    certify(options(sentence_model, tmp_path / "all", lines, tmp_path))
    values = json.loads((tmp_path / "certificate.json").read_text())
    assert [each["format"] for each in values["exports"]] == ["huggingface", "tflite"]
    shutil.copytree(sentence_model, tmp_path / "other")
    spoil_checkpoint(tmp_path / "other")
    flags = {"model_dir": tmp_path / "other", "export_dir": tmp_path / "all" / "lite"}
    flags |= {"input_file": lines, "output_file": tmp_path / "certificate.html"}
    done = subprocess.run(**script_command("certify", **flags), capture_output=True, text=True)
    assert done.returncode == 1
    assert "1 of 1 exports differ" in done.stderr and "Traceback" not in done.stderr
    page = (tmp_path / "certificate.html").read_text()
    assert figures_of(page)["result"] == "failed"
    assert data_of(page)["sections"][0]["title"] == "Faults"


def spoil_checkpoint(folder):
    import tensorflow as tf

    (prefix,) = {str(path).removesuffix(".index") for path in folder.glob("model.ckpt-*.index")}
    reader = tf.train.load_checkpoint(prefix)
    arrays = {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
    arrays["output_bias"] = arrays["output_bias"] + np.float32([0.01, 0])
    names = list(arrays)
    tf.raw_ops.SaveV2(
        prefix=prefix,
        tensor_names=names,
        shape_and_slices=[""] * len(names),
        tensors=[arrays[name] for name in names],
    )


@pytest.mark.parametrize(
    "flags, task",
    [
        ({"pooling": "cls"}, "encoder"),
        ({"normalize": False}, "encoder"),
        ({"as_query": True}, "embeddings"),
        ({"n_best_size": 3}, "question_answering"),
    ],
)
def test_an_option_that_changes_no_answer_of_the_exports_is_an_error(
    exported, sentence_model, lines, tmp_path, flags, task
):
    (name,) = flags
    message = rf"^{name} is .*, but only answers of an export for {task} .* are for classification"
    with pytest.raises(ValueError, match=message):
        certify(options(sentence_model, exported.single, lines, tmp_path, **flags))


def test_an_export_of_another_model_is_one_clear_error(
    exported, sentence_model, squad_model, lines, tmp_path
):
    with pytest.raises(ValueError, match=r"model: its task is classification, but .*question_"):
        certify(options(squad_model, exported.single, lines, tmp_path))
    smaller = tmp_path / "smaller"
    shutil.copytree(exported.single, smaller)
    path = smaller / "assets.extra" / "export.json"
    facts = json.loads(path.read_text())
    facts["config"]["num_hidden_layers"] = 3
    path.write_text(json.dumps(facts))
    message = "another model: its num_hidden_layers is 3, but .* is 2. Name the model"
    with pytest.raises(ValueError, match=message):
        certify(options(sentence_model, smaller, lines, tmp_path))
    assert not (tmp_path / "certificate.html").exists()


def test_an_interrupted_run_keeps_the_exports_that_passed(
    exported, sentence_model, lines, tmp_path, monkeypatch, caplog
):
    asked, stopped = [], ["second"]

    def run(export, runtime, python, expected, options):
        name = "second" if python else "first"
        asked.append(name)
        if name in stopped:
            raise KeyboardInterrupt
        about = {"runtime": runtime, "peak_memory": 0, "not_asked": ["pair"]}
        return {**describe(export, expected, Comparison(), LIMITS["float32"]), **about}

    versions = ["saved_model"]
    monkeypatch.setattr("bert_tf.programs.certify._run", run)
    monkeypatch.setattr("bert_tf.programs.certify._version", lambda *_: versions[-1])
    given = options(sentence_model, exported.single, lines, tmp_path, environment="new:python")
    with pytest.raises(KeyboardInterrupt), caplog.at_level("INFO"):
        certify(given)
    assert "Comparing 1 of 2: " in caplog.text and "Comparing 2 of 2: " in caplog.text
    assert not (tmp_path / "certificate.json").exists()
    stopped.clear()
    certify(given)
    assert asked == ["first", "second", "second"]
    values = json.loads((tmp_path / "certificate.json").read_text())
    assert [result["environment"] for result in values["exports"]] == ["", "new"]
    assert values["notes"][0].endswith(": the signature pair")
    stopped.append("second")
    asked.clear()
    for version in ("saved_model", "saved_model", "newer"):
        versions.append(version)
        with pytest.raises(KeyboardInterrupt):
            certify(given)
    assert asked == ["first", "second", "second", "first", "second"]
    with open(lines, "a") as file:
        file.write("another input\n")
    stopped.clear()
    asked.clear()
    certify(given)
    assert asked == ["first", "second"]
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == [
        *("certificate.html", "certificate.json", "texts.txt"),
    ]


def test_inputs_that_the_model_does_not_take_are_an_error(exported, pair_model, lines, tmp_path):
    with pytest.raises(ValueError, match=r"no valid input .*texts\.txt:1: .*pairs of sentences"):
        certify(options(pair_model, exported.pair, lines, tmp_path))


def test_the_page_does_not_take_the_name_of_the_json():
    with pytest.raises(ValueError, match=r"output_file is a\.json, .*the page\..* Use a\.html\."):
        CertifyOptions(model_dir="m", export_dir="e", output_file="a.json")


def test_an_environment_needs_a_name_and_an_interpreter():
    wrong = CertifyOptions(model_dir="m", export_dir="e", environment="2.19")
    with pytest.raises(ValueError, match=r"environment is '2\.19', but must be NAME:PYTHON"):
        wrong.environments  # noqa: B018


def test_faults_of_flags_are_found_before_the_model_is_loaded(right, tmp_path, monkeypatch):
    monkeypatch.setattr("bert_tf.programs.certify.load_model", lambda _: pytest.fail("loaded"))
    given = ("m", right("single")[0].folder, f"{tmp_path}/texts.txt", tmp_path)
    with pytest.raises(ValueError, match="No file matches"):
        certify(options(*given))
    (tmp_path / "texts.txt").write_text("a cat\n")
    message = "environment has the interpreter /nowhere/python, which is not an executable file"
    with pytest.raises(ValueError, match=message):
        certify(options(*given, environment="old:/nowhere/python"))
    wrong = dataclasses.replace(options(*given), output_file=f"{tmp_path}/texts.txt/page.html")
    with pytest.raises(ValueError, match="Cannot write into the folder of output_file="):
        certify(wrong)


def test_an_environment_needs_a_saved_model(right):
    lite = SimpleNamespace(runtimes=["tflite"], head=right("single")[0].head)
    given = CertifyOptions(model_dir="m", export_dir="lite", environment="2.19:python")
    with pytest.raises(ValueError, match="answer with SavedModels, and export_dir=lite has none"):
        _check_used(given, [lite])
    _check_used(given, [lite, right("single")[0]])


def test_exports_with_two_heads_cannot_share_the_standard_input(right):
    exports = [right("single")[0], right("encoder")[0]]
    given = CertifyOptions(model_dir="m", export_dir="e")
    with pytest.raises(
        ValueError, match=r"input_file=- can be read only once.*classification and en"
    ):
        _check_input(given, exports)
    _check_input(given, exports[:1])


def test_errors_that_name_the_limits(right):
    export, runtime, expected = right("single")
    found = compare(runtime, export, expected)
    tally = found.tallies["serving_default"]
    tally.outputs["logits"] = [0.5, 2.0]
    tally.flipped[0, "label"] = True
    first, second = describe(export, expected, found, LIMITS["float32"])["faults"]
    assert first == "serving_default: logits differs by 0.5, but at most 1e-05 of 2 is allowed"
    assert second.startswith("serving_default: 1 of 7 decisions differ, but at most 0.00% may")
    (only,) = describe(export, expected, found, LIMITS["int8"])["faults"]
    assert only == second.replace("0.00%", "1.00%")
    assert issubclass(CertificateError, ValueError)


def test_the_remedy_of_a_failed_runtime_is_another_copy():
    failed = [
        {"faults": ["The runtime saved_model of this Python failed: Checksum does not match"]}
    ]
    assert _remedy([], {}, failed).endswith("copy that export whole, or export it again.")


@pytest.mark.parametrize(
    ("precision", "difference", "remedy"),
    [
        ("float32", 0.03, "a file was changed after the export. Export the model again, or set"),
        ("float32", 1e-6, "precision may be too low"),  # the limit was lowered
        ("bfloat16", 0.3, "precision may be too low"),
    ],
)
def test_the_remedy_of_other_numbers_depends_on_the_precision(precision, difference, remedy):
    fault = "tokens: logits differs by ..."
    failed = [{"faults": [fault], "precision": precision, "largest_difference": difference}]
    assert remedy in _remedy([], {}, failed)


@pytest.mark.slow
def test_an_export_of_other_weights_is_named_as_such(sentence_model, lines, tmp_path):
    export(sentence_model, tmp_path / "served" / "sst" / "1", format="tflite")
    certify(options(sentence_model, tmp_path / "served", lines, tmp_path))  # NAME/VERSION
    shutil.copytree(sentence_model, tmp_path / "other")
    spoil_checkpoint(tmp_path / "other")
    with pytest.raises(
        CertificateError, match=r"sst/1 states that it is an export of other weights"
    ):
        certify(options(tmp_path / "other", tmp_path / "served", lines, tmp_path))
    flags = {"max_difference": 0.0}
    with pytest.raises(
        CertificateError, match="one that was exported, so its precision may be too"
    ):
        certify(options(sentence_model, tmp_path / "served", lines, tmp_path, **flags))
    flags = {"max_seq_length": 8}
    with pytest.raises(CertificateError, match=r"\. Give the max_seq_length of the export\. "):
        certify(options(sentence_model, tmp_path / "served", lines, tmp_path, **flags))
    listed = tmp_path / "served" / "sst" / "1" / "labels.txt"
    listed.write_text("good\nbad\n")
    with pytest.raises(CertificateError, match=r"file was changed\. Export the model again\."):
        certify(options(sentence_model, tmp_path / "served", lines, tmp_path))
    path = tmp_path / "other" / "task.json"
    path.write_text(path.read_text().replace('"good"', '"fine"'))
    with pytest.raises(
        ValueError, match=r"of another model: its list of labels is bad, good, but .* bad, fine"
    ):
        certify(options(tmp_path / "other", tmp_path / "served", lines, tmp_path))


def test_decisions_that_differ_are_shown_with_their_margin(right):
    _, _, expected = right("single")
    found = Comparison()
    found.tallies["tokens"] = tally = Tally()
    tally.add_decisions(0, {"label": "bad"}, {"label": "good"})
    export = right("single")[0]
    (fault,) = describe(export, expected, found, LIMITS["int8"])["faults"]
    values = sorted(expected.answers[0]["probabilities"].values())
    margin = values[-1] - values[-2]
    assert fault.endswith(f"the model decides these by a probability of at most {margin:.2g} more")
