"""Older versions of TensorFlow that load our SavedModels: their answers next to those of the writer.

    python -m venv env216; env216/bin/pip install tensorflow==2.16.* tensorflow-text==2.16.*
    python benchmarks/server_versions.py --work_dir=versions --environment=env216/bin/python

Writes SavedModels with the TensorFlow of this Python: a tiny model of random weights for every type of
task, and each --model_dir, in every form of `FORMS`. A client (server_versions_client.py) asks every
signature in export.json, first in this Python, then in each --environment. The client imports neither
bert_tf nor Keras. The C client of tests/serving, linked with the libraries of each environment, asks the
same. Prints the largest difference of each version, model and signature. The limit is 1e-6 in float32,
and strings and integers must be equal (exit status 1).

--work_dir is kept. A further run with another environment, or in another Python, writes and asks only
what is missing. The table has all that is in --work_dir.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "serving"))

import c_client
import keras
import numpy as np
import tensorflow as tf
from server_versions_client import ERROR, load, save
from server_versions_requests import make_requests

from bert_tf.checkpoints.tf1 import write_tf1
from bert_tf.checkpoints.write import model_files, write_files
from bert_tf.config import BertConfig
from bert_tf.files import atomic_folder
from bert_tf.modeling.bert import BertModel
from bert_tf.options import make_options
from bert_tf.pretraining.task import PretrainingTask
from bert_tf.serving.export_saved_model import ExportOptions, export_saved_model
from bert_tf.tasks.base import Task
from bert_tf.tasks.classification import ClassificationTask
from bert_tf.tasks.multiple_choice import MultipleChoiceTask
from bert_tf.tasks.question_answering import QuestionAnsweringTask
from bert_tf.tasks.token_classification import TokenClassificationTask

ROOT = Path(__file__).resolve().parent.parent
LIMITS = {"float32": 1e-6, "bfloat16": 0.1}
Key = tuple[str, str, str, str]  # model, signature, reader, precision
MASKED = 1e6  # logits of masked positions are -1e9 and less

REQUESTS = "requests.npz"

# Prints the version of TensorFlow in an environment, and the folders of two packages.
FIND = """
import importlib.metadata, importlib.util, json
names = {"tensorflow", "tensorflow-cpu", "tensorflow_cpu"}
found = {"version": next(
    each.version for each in importlib.metadata.distributions() if each.metadata["Name"] in names
)}
for key, package in (("tensorflow", "tensorflow"), ("text", "tensorflow_text")):
    found[key] = importlib.util.find_spec(package).submodule_search_locations[0]
print(json.dumps(found))
"""

LABELS = ("bad", "fair", "good")
ENTITIES = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
# Name of a model -> its task (None for an encoder), options of its export.
MODELS: dict[str, tuple[Task | None, dict]] = {
    "classifier": (ClassificationTask(LABELS, 32), {}),
    "classifier of pairs": (ClassificationTask(LABELS, 32, is_pair=True), {}),
    "classifier, several labels": (
        ClassificationTask(LABELS, 32, problem_type="multi_label"),
        {},
    ),
    "classifier, windows": (ClassificationTask(LABELS, 32, doc_stride=16), {}),
    "regression": (ClassificationTask((), 32, problem_type="regression"), {}),
    "questions, SQuAD 1.1": (QuestionAnsweringTask(40, 12, 10), {}),
    "questions, SQuAD 2.0": (QuestionAnsweringTask(40, 12, 10, True), {}),
    "entities": (TokenClassificationTask(ENTITIES, 32), {}),
    "entities, BiLSTM": (
        TokenClassificationTask(ENTITIES, 32, feature_layers="last_hidden", bilstm_units=8),
        {},
    ),
    "labels of words": (TokenClassificationTask(("NOUN", "VERB", "DET"), 32), {}),
    "multiple choice": (MultipleChoiceTask(3, 32), {}),
    "encoder": (None, {"head": "encoder", "layers": "-1,-2"}),
    "masked words": (PretrainingTask(32, 5), {"head": "masked_lm"}),
}
# Name of a form -> options of its export, unless its model has others.
FORMS = {
    "float32": {},
    "bfloat16": {"precision": "bfloat16"},
}


# ---- Exports -------------------------------------------------------------------------------------


def make_model(folder: Path, task: Task | None) -> None:
    """Write a tiny model with random weights as a model folder."""
    vocab = (ROOT / "vocab" / "uncased_30522" / "vocab.txt").read_text(encoding="utf-8").split()
    config = BertConfig(
        vocab_size=len(vocab),
        hidden_size=24,
        num_hidden_layers=4,
        num_attention_heads=3,
        intermediate_size=40,
        max_position_embeddings=64,
        initializer_range=0.3,
    )
    keras.utils.set_random_seed(5)
    model = BertModel(config) if task is None else task.build_model(config)
    with atomic_folder(str(folder), "work_dir") as temporary:
        arrays = {variable.path: variable.numpy() for variable in model.weights}
        write_tf1(os.path.join(temporary, "bert_model.ckpt"), arrays)
        write_files(temporary, model_files(config, task.values(), vocab, True))


def write_exports(args: argparse.Namespace) -> list[Path]:
    """Write the missing exports of this TensorFlow with requests; return the folders of all."""
    models, work_dir = {}, args.work_dir
    for name, (task, options) in MODELS.items():
        if name in (args.model or MODELS):
            models[name] = (work_dir / "models" / name, options)
            if not models[name][0].exists():
                make_model(models[name][0], task)
    models |= {Path(folder).name: (Path(folder), {}) for folder in args.model_dir}
    folders = []
    for form in args.form or FORMS:
        for name, (model_dir, options) in models.items():
            folders.append(work_dir / tf.__version__ / form / name)
            export_dir = folders[-1] / "1"
            if not export_dir.exists():
                given = {"model_dir": str(model_dir), "export_dir": str(export_dir)}
                export_saved_model(make_options(ExportOptions, **given, **FORMS[form] | options))
            if not (folders[-1] / REQUESTS).exists():
                values = json.loads((export_dir / "assets.extra" / "export.json").read_text())
                save(str(folders[-1] / REQUESTS), make_requests(values))
    return folders


# ---- Answers of each version ---------------------------------------------------------------------


def ask_all(python: str, work_dir: Path, folders: Sequence[Path]) -> str:
    """Ask for the missing answers of an environment, in Python and in C; return its TensorFlow."""
    found = json.loads(subprocess.check_output([python, "-c", FIND], env=_environment()))
    version, library = found["version"], Path(found["text"]) / c_client.LIBRARY
    jobs = [
        [str(folder / "1"), str(folder / REQUESTS), str(answers)]
        for folder in folders
        if not (answers := folder / f"{version}-python.npz").exists()
    ]
    if jobs:
        (work_dir / "jobs.json").write_text(json.dumps(jobs))
        client = Path(__file__).with_name("server_versions_client.py")
        command = [python, client, work_dir / "jobs.json", library]
        subprocess.run(command, check=True, env=_environment())
    binary = work_dir / f"serve-{version}"
    if not binary.exists():
        c_client.build(Path(found["tensorflow"]), binary)
    for folder in folders:
        answers = folder / f"{version}-c.npz"
        if not answers.exists():
            save(str(answers), ask_in_c(binary, folder, library))
    return version


def _environment() -> dict[str, str]:
    """Return this process' environment, without what makes bert_tf importable."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def ask_in_c(binary: Path, folder: Path, library: Path) -> dict[str, np.ndarray]:
    """Return the answers to the larger request of each signature, like the client in Python."""
    calls: dict[str, dict[str, np.ndarray]] = {}
    for key, value in load(str(folder / REQUESTS)).items():
        signature, number, name = key.split("/")
        if number == "1":
            calls.setdefault(signature, {})[name] = value
    try:
        found = c_client.ask(binary, folder / "1", library, calls.items())
    except RuntimeError as error:
        return {ERROR: np.array([str(error).encode()], object)}
    return {
        f"{signature}/1/{name}": value
        for signature, outputs in zip(calls, found, strict=True)
        for name, value in outputs.items()
    }


# ---- Table ---------------------------------------------------------------------------------------


@dataclass
class Difference:
    """Answers of one version to one signature, compared with those of the writer.

    Attributes:
        precision: of the export.
        largest: of the floats, divided by the largest value of an output if that is above 1.
        unequal: outputs that are not floats, or of another shape, and differ.
        errors: messages.
    """

    precision: str
    largest: float = 0.0
    unequal: set[str] = field(default_factory=set)
    errors: set[str] = field(default_factory=set)

    def add(self, name: str, expected: np.ndarray, found: np.ndarray) -> None:
        if expected.dtype != found.dtype:
            self.errors.add(f"{name} is {found.dtype} instead of {expected.dtype}")
        elif expected.shape != found.shape:
            self.unequal.add(name)
        elif expected.dtype.kind != "f":
            if not np.array_equal(expected, found):
                self.unequal.add(name)
        elif not np.array_equal(np.isfinite(expected), np.isfinite(found)):
            self.errors.add(f"{name} is not finite in one version only")
        else:
            known, other = expected[np.isfinite(expected)], found[np.isfinite(found)]
            sizes = np.abs(known)
            scale = np.maximum(sizes, max([1.0, *sizes[sizes < MASKED]]))
            self.largest = max([self.largest, *map(float, np.abs(known - other) / scale)])

    @property
    def is_wrong(self) -> bool:
        # In bfloat16 a rounding can change a label of random weights, in the writer's version as well.
        is_unequal = self.precision == "float32" and bool(self.unequal)
        return bool(self.errors) or is_unequal or self.largest > LIMITS[self.precision]

    def __str__(self) -> str:
        if self.errors:
            return "**error**"
        shown = f"{self.largest:.0e}" if self.largest else "0"
        shown += "\\*" if self.unequal else ""
        return f"**{shown}**" if self.is_wrong else shown


def differences(work_dir: Path) -> dict[Key, Difference]:
    """Return the difference of each `Key`, over all writers, layouts and clients."""
    found: dict[Key, Difference] = {}
    for requests in sorted(work_dir.glob(f"*/*/*/{REQUESTS}")):
        folder = requests.parent
        writer, form, model = folder.relative_to(work_dir).parts
        expected = load(str(folder / f"{writer}-python.npz"))
        if ERROR in expected:
            raise SystemExit(f"{folder}: {expected[ERROR][0].decode(errors='replace')}")
        for path in sorted(folder.glob("*-*.npz")):
            answers, (reader, client) = load(str(path)), path.stem.split("-")
            for name, value in expected.items():
                signature, number, output = name.split("/")
                if client == "c" and number == "0":
                    continue
                precision = form.split(",")[0]
                key = (model, signature, reader, precision)
                cell = found.setdefault(key, Difference(precision))
                if ERROR in answers:
                    cell.errors.add(answers[ERROR][0].decode(errors="replace"))
                else:
                    cell.add(output, value, answers[name])
    return found


def table(found: Mapping[Key, Difference], writers: Sequence[str]) -> str:
    """Return the table in Markdown: a row for each model and signature, a column for each version."""
    rows = list(dict.fromkeys((model, signature) for model, signature, *_ in found))
    order = [*MODELS, *sorted({model for model, _ in rows} - MODELS.keys())]
    rows.sort(key=lambda row: order.index(row[0]))
    readers = sorted({key[2] for key in found}, key=_numbers, reverse=True)
    lines = [
        "Largest difference of any output, in Python and in C, from the answers of the TensorFlow that",
        f"wrote the file: {', '.join(writers)}. float32 / bfloat16; \\*: a label differs as well.",
        "",
        f"| model | signature | {' | '.join(readers)} |",
        f"|---|---|{'---|' * len(readers)}",
    ]
    for model, signature in rows:
        cells = []
        for reader in readers:
            keys = [(model, signature, reader, precision) for precision in LIMITS]
            cells.append(" / ".join(str(found[key]) for key in keys if key in found))
        lines.append(f"| {model} | `{signature}` | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".")[:3]]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--work_dir", required=True, type=Path)
    parser.add_argument("--environment", action="append", default=[], help="path of a Python")
    parser.add_argument("--model_dir", action="append", default=[], help="exported as well")
    parser.add_argument("--model", action="append", choices=MODELS, help="only this tiny model")
    parser.add_argument("--form", action="append", choices=FORMS, help="only this form")
    args = parser.parse_args()

    folders = write_exports(args)
    for python in (sys.executable, *args.environment):
        print("asked", ask_all(python, args.work_dir, folders), flush=True)
    found = differences(args.work_dir)
    writers = {path.parts[-4] for path in args.work_dir.glob(f"*/*/*/{REQUESTS}")}
    text = table(found, sorted(writers))
    print(text)
    for (model, signature, reader, precision), cell in found.items():
        for error in cell.errors:
            print(f"{reader}, {precision}, {model}, {signature}: {error.splitlines()[0]}")
    wrong = sum(cell.is_wrong for cell in found.values())
    if wrong:
        sys.exit(f"{wrong} of {len(found)} cells are errors or differ by more than {LIMITS}.")


if __name__ == "__main__":
    main()
