"""`python -m bert_tf PROGRAM`: the programs of run_scripts/ without that folder."""

import ast
import dataclasses
import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from bert_tf import __main__ as programs
from bert_tf import cli
from bert_tf.programs.extract_features import ExtractionOptions, extract_features
from bert_tf.programs.predict import PredictionOptions, predict

RUN_SCRIPTS = Path(__file__).parents[2] / "run_scripts"


def what_a_script_calls(script):
    """(options, workflow) in its `cli.run(options, workflow)`."""
    (call,) = (
        node
        for node in ast.walk(ast.parse(script.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "cli.run"
    )
    return tuple(ast.unparse(argument) for argument in call.args)


def test_every_script_is_a_program_with_its_options_and_its_workflow():
    found = {name: (options, name) for name, (_, options) in programs.PROGRAMS.items()}
    paths = set(RUN_SCRIPTS.glob("*.py")) - {RUN_SCRIPTS / "sweep.py"}
    scripts = {script.stem: what_a_script_calls(script) for script in paths}
    assert found == scripts


@pytest.mark.parametrize("name", programs.PROGRAMS)
def test_a_program_is_called_with_the_flags_behind_its_name(name, monkeypatch):
    called = []
    monkeypatch.setattr(cli, "run", lambda *args: called.append((*args, list(sys.argv))))
    monkeypatch.setattr(sys, "argv", ["bert_tf", name, "--output_dir=o"])
    monkeypatch.setattr(sys.modules["__main__"], "__doc__", "")
    programs.main()
    ((options, workflow, argv),) = called
    assert dataclasses.is_dataclass(options) and workflow.__name__ == name
    assert workflow.__module__ == f"bert_tf.{programs.PROGRAMS[name][0]}"
    assert argv == [name, "--output_dir=o"]
    assert import_module(workflow.__module__).__doc__ == sys.modules["__main__"].__doc__


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_help_names_all_programs(arguments, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["bert_tf", *arguments])
    programs.main()
    listed = capsys.readouterr().out.splitlines()[-len(programs.PROGRAMS) :]
    assert [re.match(r"  (\w+): \S", line)[1] for line in listed] == [*programs.PROGRAMS]


def test_the_list_of_programs_needs_no_tensorflow():
    code = "import sys; from bert_tf.__main__ import main; main(); sys.exit('tensorflow' in sys.modules)"
    paths = {"PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run([sys.executable, "-c", code], env=os.environ | paths, timeout=60)
    assert ended.returncode == 0


def test_a_name_that_is_none_is_answered_with_the_one_that_may_be_meant(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["bert_tf", "run_clasifier", "--do_train"])
    with pytest.raises(SystemExit) as exit_code:
        programs.main()
    assert exit_code.value.code == 1
    error = capsys.readouterr().err
    assert "Unknown program 'run_clasifier'. Did you mean run_classifier? Usage:" in error


def test_predict_does_not_overwrite_its_input(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("in.json", "docs.txt"):
        (tmp_path / name).write_text("mine\n")
    with pytest.raises(ValueError, match=r"output_file=.*in\.json "):
        predict(
            PredictionOptions(
                model_dir="m",
                input_file="in.json,docs.txt",
                input_format="text",
                output_file=f"{tmp_path}/in.json",
            )
        )
    assert (tmp_path / "in.json").read_text() == "mine\n"


def test_extract_features_does_not_overwrite_its_input(tmp_path):
    (tmp_path / "in.txt").write_text("mine\n")
    files = dict.fromkeys(("input_file", "output_file"), f"{tmp_path}/in.txt")
    with pytest.raises(ValueError, match=r"output_file=.*in\.txt "):
        extract_features(ExtractionOptions(init_checkpoint="c", **files))


def test_a_folder_as_output_file_is_an_error_before_the_work(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.txt").write_text("mine\n")
    with pytest.raises(ValueError, match=r"output_file=\. "):
        predict(PredictionOptions(model_dir="m", output_file="."))
