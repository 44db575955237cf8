"""The commands and the Python of README.md and docs/, taken out of the text and run as they stand.

A document is walked from its top to its end in one folder, as a reader would: each command finds what
those before it made. What lies there at first, checkpoints and data, is tiny but real
(`document_files.py`). A command that stands twice is run once, and what it made is copied.
"""

import ast
import importlib.util
import itertools
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from document_files import write_files

ROOT = Path(__file__).parents[1]
WRITTEN_BY_SCRIPTS = ("api.md", "flags.md")  # test_documents.py holds them to the code
GUIDES = {
    path.name: path
    for path in sorted((ROOT / "docs").glob("*.md"))
    if path.name not in WRITTEN_BY_SCRIPTS
}
DOCUMENTS = {**GUIDES, "README.md": ROOT / "README.md"}

# What would take too long as it stands. Nothing else of a command is changed.
SHORTER = {
    "--do_train": "--do_train --jit_compile=false",
    "--num_train_steps=1000000": "--num_train_steps=4 --num_warmup_steps=1",
    "--stop_step=900000": "--stop_step=3",
    "--stop_step=800000": "--stop_step=3",
    "--num_train_steps=100000": "--num_train_steps=2 --num_warmup_steps=1",
    "--num_train_steps=10000": "--num_train_steps=2",
    "--num_train_steps=8000": "--num_train_steps=2",
    "--num_train_steps=4500": "--num_train_steps=2",
    "--num_warmup_steps=1000": "--num_warmup_steps=1",
    "--num_warmup_steps=800": "--num_warmup_steps=1",
    "--num_warmup_steps=200": "--num_warmup_steps=1",
    "--train_batch_size=256": "--train_batch_size=8",
    "--vocab_size=30522": "--vocab_size=150",
    "--init_layers=0,2,4,6,8,10": "--init_layers=0",  # checkpoints of one layer
    "--layers=-1,-2,-3,-4": "--layers=-1",  # so that checkpoints of one layer will do
    "--direct_num_workers=4": "--direct_num_workers=2",
    'BertConfig.from_name("mini",': 'BertConfig.from_name("tiny", num_hidden_layers=1,',
}


@dataclass(frozen=True)
class NotRun:
    """Commands that are left out: those with the pattern, unless there is the module that they need."""

    pattern: str
    reason: str
    module: str = ""

    def matches(self, code: str) -> bool:
        return re.search(self.pattern, code) is not None

    def leaves_out(self, code: str) -> bool:
        there = bool(self.module) and importlib.util.find_spec(self.module) is not None
        return self.matches(code) and not there


# Flags without the rest of their command. test_commands.py looks them up.
FRAGMENTS = (
    NotRun(r"^python .* \.\.\.$", "the form of a command, and none"),
    NotRun(r"^\w+ (\.\.\. )?--", "flags of a program, which test_commands.py looks up"),
)
NOT_RUN = (
    NotRun(r"^make ", "minutes to hours; `make test` is what runs this file"),
    NotRun(r"^pip install ", "changes the environment that the tests run in"),
    NotRun(r"^python examples/", "test_examples.py runs them"),
    NotRun(r"run_scripts/sweep\.py", "trains six models; test_sweep.py runs a short one"),
    NotRun(r"^python benchmarks/", "minutes to hours, with data and peers that need not be there"),
    NotRun(r"^python docs/make_", "writes into docs/; test_documents.py compares the pages"),
    NotRun(r"gs://", "no bucket can be reached"),
    NotRun(r"^export TF_CONFIG=", "addresses of other machines"),
    NotRun(r"^TF_CONFIG=", "waits for a second process; tests/training starts two"),
    NotRun(r"--runner=DirectRunner", "needs the extra [beam]", module="apache_beam"),
    NotRun(r"--format=onnx", "needs the extra [onnx]", module="tf2onnx"),
    NotRun(r"--format=openvino|--model_dir=openvino/", "needs the extra [openvino]", module="nncf"),
    NotRun(r"^import .*onnxruntime", "needs onnxruntime", module="onnxruntime_extensions"),
    NotRun(r"^import openvino", "needs openvino, and ids"),
    NotRun(r"^docker run |^curl |^import grpc", "no TensorFlow Serving is there"),
    *FRAGMENTS,
)


@dataclass(frozen=True)
class Command:
    """A command line, whole and in its shorter form; or lines of Python."""

    code: str
    is_python: bool = False

    @property
    def reason_not_to_run(self) -> str:
        """Empty for what is run."""
        return next((entry.reason for entry in NOT_RUN if entry.leaves_out(self.code)), "")

    @property
    def is_a_fragment(self) -> bool:
        return any(entry.matches(self.code) for entry in FRAGMENTS)

    @property
    def outputs(self) -> list[str]:
        """The files and folders that it is told to make."""
        if self.is_python:
            return []
        flags = re.findall(r"--(?:output_dir|output_file|export_dir)='?([^\s']+)", self.code)
        return flags + re.findall(r'to_json_file\("(.+?)"\)', self.code)


# ----- out of the text

PROGRAMS = [path.stem for path in (ROOT / "run_scripts").glob("*.py") if path.stem != "sweep"]
FIRST_WORDS = {"curl", "docker", "echo", "export", "make", "pip", "printf", "python", *PROGRAMS}

_CODE = re.compile(
    r"^```\w*\n(?P<fenced>[\s\S]*?)^```$"
    r"|(?<=\n\n)(?P<indented>(?:(?: {4}.*)?\n)+)"
    r"|`(?P<span>[^`]+)`",
    re.M,
)


def is_command_line(line: str) -> bool:
    first = re.match(r"(?:\w+='[^']*' +)?([\w.]+) +\S", line)
    return first is not None and (first[1] in FIRST_WORDS or first[1] == "...")


def is_python(code: str) -> bool:
    """Statements that call something; JSON and flags are none."""
    try:
        return any(isinstance(node, ast.Call) for node in ast.walk(ast.parse(code)))
    except SyntaxError:
        return False


def pieces_of(text: str) -> Iterator[Command]:
    """Command lines as they stand, joined where they go over several, and blocks of Python."""
    for found in _CODE.finditer(text):
        if found["span"]:
            line = re.sub(r"\s+", " ", found["span"]).replace("\\|", "|")
            lines, block = [line], ""
        else:
            block = "\n".join(
                line.removeprefix("    ") if found["indented"] else line
                for line in found[0].strip("`\n").splitlines()
            )
            block = block.removeprefix("python\n")
            lines = re.sub(r"\\\n\s*|(?<=\|)\n\s*", " ", block).splitlines()
        commands = [Command(line.rstrip()) for line in lines if is_command_line(line)]
        yield from commands or ([Command(block, is_python=True)] if is_python(block) else [])


def whole_commands_of(text: str) -> Iterator[Command]:
    """Yield every command of a document. `... --flag` repeats the command before it with a flag."""
    before = ""
    for piece in pieces_of(text):
        code = piece.code
        if code.startswith("... "):
            code = before + code.removeprefix("...")
        elif not piece.is_python:
            before = code
        yield Command(code, piece.is_python)


def commands_of(text: str) -> list[Command]:
    """Return the commands of a document in their shorter form."""
    return [Command(shorter(one.code), one.is_python) for one in whole_commands_of(text)]


def program_calls(code: str) -> Iterator[tuple[str, list[str]]]:
    """Yield (program, arguments) of each program of ours that a command line starts."""
    words = shlex.split(code.replace("$", ""), comments=True)
    for is_end, call in itertools.groupby(words, lambda word: word in ("|", "&&", "&", ";")):
        call = list(call)
        paths = {f"run_scripts/{name}.py": name for name in PROGRAMS} | {n: n for n in PROGRAMS}
        place = next((number for number, word in enumerate(call) if word in paths), None)
        if not is_end and place is not None and "run_scripts/sweep.py" not in call:
            arguments = itertools.takewhile(lambda word: word not in (">", "<"), call[place + 1 :])
            yield paths[call[place]], list(arguments)


def shorter(code: str) -> str:
    for long, short in SHORTER.items():
        code = re.sub(rf"(?<!\S){re.escape(long)}(?!\S)", short, code)
    return code


def all_commands() -> list[Command]:
    return [
        command
        for path in DOCUMENTS.values()
        for command in commands_of(path.read_text(encoding="utf-8"))
    ]


# ----- run

# What a document begins with that a command of another one makes: its name -> the name of that output
FROM_OTHERS = {
    "formats.md": {"mrpc_output": "mrpc_output"},
    "int8.md": {"mrpc_output": "mrpc_output", "lite": "lite"},
    "migration.md": {"mrpc_output": "mrpc_output", "old_mrpc": "mrpc_output"},
    "multi_host.md": {"mrpc_output": "mrpc_output"},
    "prediction.md": {name: name for name in ("my_output", "squad_output", "swag_output")},
    "serving.md": {"mrpc_output": "mrpc_output"},
    "squad.md": {f"run_{number}": "squad_output" for number in (1, 2, 3)},
}


class Walks:
    """Walks through documents, each in a folder of its own that begins with `document_files`."""

    def __init__(self, folder: Path):
        self.folder, self.files = folder, folder / "files"
        self.files.mkdir()
        write_files(self.files)
        self.ran: dict[str, Path] = {}  # code -> the folder in which it was run
        self.environment = self.make_environment()

    def make_environment(self) -> dict[str, str]:
        """The environment of a shell in which `python` is this one, and folders are named."""
        inherited = {
            n: v for n, v in os.environ.items() if n not in ("TF_CPP_MIN_LOG_LEVEL", "TF_CONFIG")
        }
        folders = {"BERT_BASE_DIR": "uncased_L-12_H-768_A-12", "SQUAD_DIR": "."}
        programs = self.folder / "bin"
        programs.mkdir()
        # A few steps each: tracing would take twice as long.
        eagerly = "import tensorflow\ntensorflow.config.run_functions_eagerly(True)\n"
        (programs / "sitecustomize.py").write_text(eagerly)
        paths = {
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": f"{programs}{os.pathsep}{ROOT}",
        }
        return inherited | folders | paths

    def walk(self, document: str) -> list[Command]:
        """Runs what can be run; the commands that were."""
        folder = self.new_folder(document)
        for name, output in FROM_OTHERS.get(document, {}).items():
            shutil.copytree(self.made(output), folder / name)
        text = DOCUMENTS[document].read_text(encoding="utf-8")
        commands = [one for one in commands_of(text) if not one.reason_not_to_run]
        for command in commands:
            self.run(command, folder)
        return commands

    def new_folder(self, name: str) -> Path:
        return Path(shutil.copytree(self.files, self.folder / name, symlinks=True))

    def made(self, output: str) -> Path:
        """What the first command of any document makes that makes it."""
        command = next(one for one in all_commands() if output in one.outputs)
        if command.code not in self.ran:
            self.run(command, self.new_folder(f"for_{output}"))
        return self.ran[command.code] / output

    def run(self, command: Command, folder: Path) -> None:
        if command.code in self.ran and command.outputs:
            for output in command.outputs:
                for path in written(self.ran[command.code], output):
                    target = folder / path.relative_to(self.ran[command.code])
                    target.parent.mkdir(parents=True, exist_ok=True)
                    copy = shutil.copytree if path.is_dir() else shutil.copy
                    copy(path, target)
            return
        before = set(folder.iterdir())
        code = ["python", "-c", command.code] if command.is_python else command.code
        where = {"shell": not command.is_python, "cwd": folder, "env": self.environment}
        done = subprocess.run(code, **where, capture_output=True, text=True, timeout=900)
        said = f"{command.code}\n{done.stdout[-1000:]}\n{done.stderr[-3000:]}"
        assert done.returncode == 0, f"ended with {done.returncode}: {said}"
        for output in command.outputs:
            assert written(folder, output), f"made no {output}: {said}"
        # It prints, or makes what it calls itself.
        is_silent = command.is_python or command.outputs or set(folder.iterdir()) - before
        assert is_silent or done.stdout.strip(), f"did nothing: {said}"
        self.ran.setdefault(command.code, folder)


def written(folder: Path, output: str) -> list[Path]:
    """The output, where something is in it; or the parts of a file in several, or of each length."""
    path = folder / output
    if path.is_dir():
        return [path] if any(path.iterdir()) else []
    name = path.name.replace("{length}", "*")
    if name == path.name and not path.exists():
        name = f"{path.stem}-*-of-*{path.suffix}"
    return [one for one in path.parent.glob(name) if one.stat().st_size]
