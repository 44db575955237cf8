"""Exports for servers with an older TensorFlow: the flag, and one version where one is installed."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bert_tf.programs.export_saved_model import ExportOptions
from bert_tf.serving.server_versions import PROVEN

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "server_versions.py"
# A Python with tensorflow and tensorflow-text of an older version, for one test.
OLDER = os.environ.get("BERT_TF_OLDER_PYTHON", "")


def options(**changes):
    if changes.get("precision") == "int8":
        changes["calibration_file"] = "texts.txt"
    return ExportOptions(model_dir="model", export_dir="export", **changes)


@pytest.mark.parametrize("precision", PROVEN)
def test_a_server_that_is_proven_is_accepted(precision, caplog):
    oldest = PROVEN[precision][0]
    for version in (oldest, f"{oldest}.2", *PROVEN[precision]):
        assert options(precision=precision, server_version=version).server_version == version
    assert caplog.messages == []


@pytest.mark.parametrize(
    "precision, version",
    [("bfloat16", "2.19"), ("int8", "2.19.1"), ("float32", "2.100.0rc1"), ("float32", "3.0")],
)
def test_a_newer_server_that_was_not_tried_has_a_warning(precision, version, caplog):
    options(precision=precision, server_version=version)
    (message,) = caplog.messages
    assert f"is {version}, but SavedModels in {precision} are proven on TensorFlow 2.1" in message
    assert f"certify --environment={version}:" in message


@pytest.mark.parametrize("precision", PROVEN)
@pytest.mark.parametrize("version", ["2.9.3", "1.15", "2.0"])
def test_an_older_server_is_rejected_with_the_oldest_and_the_remedy(precision, version):
    oldest = PROVEN[precision][0].replace(".", r"\.")
    message = (
        rf"server_version is {version}, .*{precision}.* {oldest} and later .*serving\.md.*onnx"
    )
    with pytest.raises(ValueError, match=message):
        options(precision=precision, server_version=version)


@pytest.mark.parametrize("version", ["", "2", "latest", "v2.19", "2.19.", "2,19"])
def test_what_is_not_a_version_is_rejected(version):
    with pytest.raises(ValueError, match=f"server_version is '{version}', .* such as 2.19"):
        options(server_version=version)


@pytest.mark.parametrize("format", ["tflite", "onnx"])
def test_other_formats_have_no_server_of_tensorflow(format):
    with pytest.raises(ValueError, match=f"server_version is 2.19, .*{format}.* Omit it"):
        options(format=format, server_version="2.19")


def run_script(folder, **flags):
    command = [sys.executable, str(SCRIPT), f"--work_dir={folder}"]
    command += ["--model=questions, SQuAD 1.1", "--form=float32"]
    command += [f"--{name}={value}" for name, value in flags.items()]
    return subprocess.run(command, capture_output=True, text=True)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(
    "python",
    [
        sys.executable,
        pytest.param(
            OLDER,
            marks=pytest.mark.skipif(
                not OLDER, reason="BERT_TF_OLDER_PYTHON names no Python with an older TensorFlow"
            ),
        ),
    ],
    ids=["this", "older"],
)
def test_answers_are_those_of_the_writer_and_other_answers_are_found(tmp_path, python):
    done = run_script(tmp_path, environment=python)
    assert done.returncode == 0, done.stdout + done.stderr
    for signature in ("serving_default", "tokens"):
        assert f"| questions, SQuAD 1.1 | `{signature}` |" in done.stdout
    answers = sorted(tmp_path.glob("2.*/float32/*/2.*-*.npz"))  # in Python and in C
    assert len(answers) == 2 * len({python, sys.executable})

    arrays = dict(np.load(answers[0]))
    arrays["tokens/1/start_logits"] += 1e-4
    np.savez(answers[0], **arrays)
    done = run_script(tmp_path)
    assert done.returncode == 1 and "1 of" in done.stderr, done.stdout + done.stderr
