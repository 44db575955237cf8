"""`python -m bert_tf PROGRAM`: the programs of run_scripts/ without that folder."""

import ast
import re
import subprocess
from pathlib import Path

from helpers import python

from bert_tf.__main__ import PROGRAMS

RUN_SCRIPTS = Path(__file__).parents[1] / "run_scripts"


def what_a_script_calls(script):
    """(options, workflow) in its `cli.run(options, workflow)`."""
    (call,) = (
        node
        for node in ast.walk(ast.parse(script.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "cli.run"
    )
    return tuple(ast.unparse(argument) for argument in call.args)


def test_every_script_is_a_program_with_its_options_and_its_workflow():
    found = {name: (options, name) for name, (_, options) in PROGRAMS.items()}
    paths = set(RUN_SCRIPTS.glob("*.py")) - {RUN_SCRIPTS / "sweep.py"}
    assert found == {script.stem: what_a_script_calls(script) for script in paths}


def ended_python(*arguments):
    return subprocess.run(**python(*arguments), timeout=60, capture_output=True)


def test_the_list_of_programs_needs_no_tensorflow():
    code = "import sys; from bert_tf.__main__ import main; main(); sys.exit('tensorflow' in sys.modules)"
    for arguments in ([], ["--help"]):
        ended = ended_python("-c", code, *arguments)
        assert ended.returncode == 0
        listed = ended.stdout.splitlines()[-len(PROGRAMS) :]
        assert [re.match(r"  (\w+): \S", line)[1] for line in listed] == [*PROGRAMS]
