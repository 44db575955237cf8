"""README.md next to a checkpoint: the model, its data and flags, its metrics, how to load it.

The card follows from the files of the folder alone: model_card_facts.json with the facts of the
training or the conversion, bert_config.json (config.json in a folder for transformers),
tokenizer_config.json, and the metrics in *_results.txt of the step in the facts.

`write_card` replaces the text between two markers. All other text is the user's and stays: YAML above
the first marker, Markdown below the second. A README.md without markers is never written.
Paths are cut to their last part, because folders are private to a machine.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from bert_tf import __version__
from bert_tf.checkpoints.hub import SCHEME
from bert_tf.checkpoints.sentence_transformers import MODULES_FILE
from bert_tf.files import write_text
from bert_tf.limits import read_json
from bert_tf.options import flag_values, flags_of
from bert_tf.registry import find_task_type

CARD_FILE = "README.md"
FACTS_FILE = "model_card_facts.json"
# The first marker is inside the YAML that Hugging Face's hub reads, and so is a comment there too.
_BEGIN = (
    "# <!-- bert_tf: begin. Written again after each evaluation. Own YAML goes above this line. -->"
)
_END = "<!-- bert_tf: end. Own text goes below this line. -->"
_MAX_LABELS = 40


def model_facts(
    start: str | None, kind: str, arguments: Mapping[str, Any], num_parameters: int
) -> dict[str, Any]:
    """Return the facts of a model of a type of task or head, which began with the weights `start`."""
    base_model = None
    if start is not None and start.startswith(SCHEME):
        base_model = start.removeprefix(SCHEME).partition("@")[0].rstrip("/")
    return {
        "base_model": base_model,
        "kind": kind,
        "arguments": dict(arguments),
        "num_parameters": num_parameters,
    }


def write_training_card(
    folder: str, model: Mapping[str, Any], data: Sequence[Any], training: Mapping[str, Any]
) -> None:
    """Write the facts and the card of a model that was trained.

    Args:
        training: `program`, its name if others train such tasks too; `step`; `flags` by name; `used`,
            name -> text of resolved values; `resumed`, texts about changes of a run that resumed.
    """
    flags = {name: value for name, value in training["flags"].items() if name != "output_dir"}
    versions = (
        f"bert_tf {__version__}, TensorFlow {tf.__version__}, Keras {keras.__version__}, Python "
        f"{platform.python_version()}."
    )
    own = {**training, "flags": as_flags(without_folders(flags)), "versions": versions}
    _write_facts(folder, {**model, "data": data, "training": own})


def described_step(folder: str) -> int | None:
    """Return the step of the training that the facts in `folder` describe, if any."""
    return _read_facts(folder).get("training", {}).get("step")


def write_conversion_card(
    folder: str, model: Mapping[str, Any], source_folder: str, architecture: str | None
) -> None:
    """Write the facts and the card of a checkpoint that was converted into `folder`.

    Facts on data, training and metrics in `source_folder` are copied, and the licence in its README.md.
    `architecture` is the class of `transformers` that opens the folder; None for another format.
    """
    source_facts = _read_facts(source_folder)
    license = re.search(r"^license: *(\S+)", _read(os.path.join(source_folder, CARD_FILE)), re.M)
    facts = {
        **model,
        "license": license[1] if license else "other",
        "architecture": architecture,
        "figures": _metrics(source_folder, source_facts),
    }
    facts |= {name: source_facts[name] for name in ("data", "training") if name in source_facts}
    _write_facts(folder, facts)


def write_card(folder: str) -> None:
    """Write the part between the markers of README.md, if there are facts and the markers."""
    facts, path = _read_facts(folder), os.path.join(folder, CARD_FILE)
    if not facts:
        return
    text = _read(path) or f"---\n{_BEGIN}\n{_END}\n"
    before, begin, rest = text.partition(_BEGIN)
    _, end, after = rest.rpartition(_END)
    if begin and end:
        write_text(path, f"{before}{_BEGIN}\n{_card(folder, facts, before)}{_END}{after}")


def _write_facts(folder: str, facts: Mapping[str, Any]) -> None:
    write_text(os.path.join(folder, FACTS_FILE), json.dumps(facts, indent=2) + "\n")
    write_card(folder)


def _read_facts(folder: str) -> dict[str, Any]:
    path = os.path.join(folder, FACTS_FILE)
    return read_json(path) if tf.io.gfile.exists(path) else {}


def _read(path: str) -> str:
    if not tf.io.gfile.exists(path):
        return ""
    with tf.io.gfile.GFile(path, "rb") as file:
        return file.read().decode("utf-8", errors="replace")


def _card(folder: str, facts: Mapping[str, Any], before: str) -> str:
    """Return the text between the markers. The user's YAML in `before` has precedence over ours."""
    entry = find_task_type(facts["kind"])  # None for a user's own task
    library, use = _use(folder, facts)
    values = {
        "license": facts.get("license", "other"),
        "library_name": library,
        "pipeline_tag": entry.pipeline if entry else None,
        "base_model": facts.get("base_model"),
        "tags": "[bert]",
    }
    own = set(re.findall(r"^([\w-]+):", before, re.M))
    lines = [f"{name}: {value}" for name, value in values.items() if value and name not in own]
    parts = {
        "Model": _table(_model_rows(folder, facts)),
        "Data": _table(facts["data"]) if "data" in facts else None,
        "Training": _training(facts["training"]) if "training" in facts else None,
        "Metrics": _metrics(folder, facts),
        "Use": use,
    }
    body = "".join(f"\n## {name}\n\n{text}\n" for name, text in parts.items() if text)
    title = f"# BERT, {facts['kind'].replace('_', ' ')}"
    front = "\n".join(lines)
    return f"{front}\n---\n\n{title}\n\nA BERT model (Devlin et al. 2019).\n{body}\n"


def _training(training: Mapping[str, Any]) -> str:
    by = f"`{training['program']}`: " if training["program"] else ""
    flags = "\n".join(training["flags"])
    return (
        f"{by}{training['step']:,} steps. Flags that differ from their defaults:\n\n"
        f"```\n{flags}\n```\n\nThe run used:\n\n{_table(training['used'].items())}\n\n"
        f"{' '.join([*training.get('resumed', ()), ''])}"
        f"{training['versions']}"
    )


def _model_rows(folder: str, facts: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    arguments = dict(facts["arguments"])
    yield "task", f"`{facts['kind']}`"
    labels = arguments.pop("labels", ())
    if labels:
        more = f" and {len(labels) - _MAX_LABELS:,} more" if len(labels) > _MAX_LABELS else ""
        yield f"{len(labels):,} labels", ", ".join(map(code, labels[:_MAX_LABELS])) + more
    for name, value in arguments.items():
        if value is not None:
            values = value if isinstance(value, list) else [value]
            yield f"`{name}`", ", ".join(map(code, values))
    paths = (os.path.join(folder, name) for name in ("bert_config.json", "config.json"))
    config = read_json(next(filter(tf.io.gfile.exists, paths)))
    sizes = ("num_hidden_layers", "hidden_size", "num_attention_heads")
    yield "layers, hidden size, heads", ", ".join(str(config[name]) for name in sizes)
    yield "parameters", f"{facts['num_parameters']:,}"
    case = ""
    path = os.path.join(folder, "tokenizer_config.json")
    if tf.io.gfile.exists(path):
        case = ", lower-cased" if read_json(path).get("do_lower_case") else ", not lower-cased"
    yield "vocabulary", f"{config['vocab_size']:,} WordPieces{case}"
    yield "positions", f"{config['max_position_embeddings']:,}"


def _metrics(folder: str, facts: Mapping[str, Any]) -> str | None:
    """Return tables of `*_results.txt` of the step; else metrics of the converted folder."""
    step = facts.get("training", {}).get("step")
    tables = []
    for path in sorted(tf.io.gfile.glob(os.path.join(folder, "*_results.txt"))):
        values = dict(line.split(" = ", 1) for line in _read(path).splitlines() if " = " in line)
        if values.get("global_step") == str(step):
            rows = [(f"`{name}`", code(value)) for name, value in values.items()]
            tables.append(f"`{os.path.basename(path)}`:\n\n{_table(rows)}")
    if tables:
        return "\n\n".join(tables)
    return facts.get("figures", None if step is None else "Not evaluated.")


def _use(folder: str, facts: Mapping[str, Any]) -> tuple[str, str | None]:
    """Return the library that the folder is for, and how the model is used; None for a custom task."""
    entry, architecture = find_task_type(facts["kind"]), facts.get("architecture")
    if entry is None:
        return "bert_tf", None
    is_pair = facts["arguments"].get("is_pair")
    example = 'predict([("A text.", "Another text.")])' if is_pair else entry.usage
    imports = "import bert_tf\n"
    if entry.task is not None and not entry.task.__module__.startswith("bert_tf."):
        imports += f"import {entry.task.__module__}  # registers the task\n"
    text = _code("bert_tf", f'{imports}\nmodel = bert_tf.load("FOLDER")\nprint(model.{example})')
    if architecture:
        lines = (
            f"from transformers import AutoTokenizer, {architecture}\n",
            'tokenizer = AutoTokenizer.from_pretrained("FOLDER")',
            f'model = {architecture}.from_pretrained("FOLDER")',
        )
        return "transformers", _code("transformers", "\n".join(lines)) + text
    if tf.io.gfile.exists(os.path.join(folder, MODULES_FILE)):
        lines = (
            "from sentence_transformers import SentenceTransformer\n",
            'model = SentenceTransformer("FOLDER")',
            'print(model.encode(["Who won?"]) @ model.encode(["Denver beat Carolina."]).T)',
        )
        return "sentence-transformers", _code("sentence-transformers", "\n".join(lines)) + text
    return "bert_tf", text


def _code(library: str, lines: str) -> str:
    return f"With {library}, where `FOLDER` is this folder:\n\n```python\n{lines}\n```\n\n"


def _table(rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table of two columns with an empty header."""
    return "\n".join(["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows)])


_PATHS = ("_file", "_dir", "_checkpoint")  # endings of flags


def changed_options(options: Any) -> dict[str, Any]:
    """Return name -> value of the options of a program that differ from their defaults."""
    flags, values = flags_of(type(options)), flag_values(options)
    return {n: value for n, value in values.items() if value not in (flags[n].default, None)}


def as_flags(values: Mapping[str, Any]) -> list[str]:
    """Return name -> value as flags, quoted for a shell."""
    return [
        f"--{'' if value else 'no'}{name}"
        if isinstance(value, bool)
        else f"--{name}={shlex.quote(str(value))}"
        for name, value in values.items()
    ]


def without_folders(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return name -> value of flags, with the last part of a path alone."""
    return {
        name: _last_parts(value)
        if name in ("teacher", "retriever") or name.endswith(_PATHS)
        else value
        for name, value in flags.items()
    }


def _last_parts(paths: str) -> str:
    if paths.startswith(SCHEME):
        return paths
    parts = (part.strip() for part in paths.split(","))
    return ",".join(os.path.basename(os.path.abspath(part)) for part in parts if part)


def code(value: Any) -> str:
    """Return a text as Markdown code for a cell of a table: on one line, with ' for a backtick."""
    text = re.sub(r"\s", " ", str(value)).replace("|", "\\|").replace("`", "'")
    return f"`{text}`"
