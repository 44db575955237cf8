"""README.md next to a checkpoint: the model, its data and flags, its metrics, how to load it.

The card follows from the files of the folder alone:

    model_card_facts.json      facts of the training or the conversion, written here
    bert_config.json           sizes (config.json in a folder for transformers)
    tokenizer_config.json      lower-cased or not
    *_results.txt              metrics of the step in model_card_facts.json
    runs/best.json             the runs whose best this model is

`write_card` replaces the text between two markers. All other text is the user's and stays: YAML above
the first marker, Markdown below the second. A README.md without markers is never written.
Paths are cut to their last part, because folders are private to a machine.
"""

from __future__ import annotations

import json
import logging
import os
import platform
import re
from collections.abc import Iterable, Mapping
from typing import Any

import keras
import tensorflow as tf

from bert_tf import __version__
from bert_tf.data.files import write_text
from bert_tf.interop.checkpoint import read_json, typed
from bert_tf.interop.hub import NO_LICENSE, SCHEME
from bert_tf.registry import TYPES
from bert_tf.report.command_line import as_flags, changed_flags, shown_value, without_folders
from bert_tf.report.markdown import code, number, table
from bert_tf.report.model_use import use_of_others, use_of_ours
from bert_tf.tasks.base import Task
from bert_tf.tasks.embeddings import OF_THE_VECTORS
from bert_tf.training.unfinished import DATA, EARLIER, FLAGS, STEP, USED, check_values, read_note

logger = logging.getLogger(__name__)

CARD_FILE = "README.md"
FACTS_FILE = "model_card_facts.json"
# The first marker is inside the YAML that Hugging Face's hub reads, and so is a comment there too.
_BEGIN = (
    "# <!-- bert_tf: begin. Written again after each evaluation. Own YAML goes above this line. -->"
)
_END = "<!-- bert_tf: end. Own text goes below this line. -->"

_MOST_LABELS = 40
# Flags that name the data of an evaluation. Pre-training without eval_file evaluates input_file.
_EVALUATED_FLAGS = ("task_name", "data_dir", "eval_file")
# Keys of the facts, of version 1.0 and later, and the types of their values.
_NEEDED = {"license": str, "kind": str, "arguments": dict, "num_parameters": int}
_OPTIONAL = {
    **dict.fromkeys(("base_model", "architecture", "figures"), str),
    **dict.fromkeys(("training", "evaluated", "conversion"), dict),
    DATA: list,
}
_OF_A_RUN = {"flags": list, "versions": str}
# Flags of the machine and of this page.
_LEFT_OUT = (
    *("output_dir", "feature_cache_dir", "license", "tpu_name", "tpu", "tpu_zone", "master"),
    *("gcp_project", "num_tpu_cores", "num_threads", "num_workers"),
)


def write_training_card(options: Any, task: Task, num_parameters: int, step: int) -> None:
    """Write the facts and the card of a model that was trained, as `training.json` notes it.

    Args:
        options: `TrainingOptions` of the program.
        step: optimizer steps taken.
    """
    note = read_note(options.output_dir)
    flags = note.get(FLAGS, {})
    start = flags.get("init_checkpoint")
    facts = _facts(start, options.license, task.name, task, num_parameters) | {
        "data": note.get(DATA, []),
        "training": {
            "program": getattr(options, "program", None),
            "step": int(step),
            "flags": as_flags(flags, _LEFT_OUT, without_folders),
            "used": note.get(USED, {}),
            "earlier": [_earlier(part, note) for part in note.get(EARLIER, ())],
            "versions": _versions(),
        },
    }
    _write_facts(options.output_dir, facts)


def note_evaluation(folder: str, options: Any) -> None:
    """Note the data of the next metrics for the card, if the folder has facts.

    Args:
        options: of the program that evaluates or predicts now.
    """
    facts = _read_facts(folder)
    if not facts:
        return
    known = dict(facts.get("evaluated", {}))
    asked: dict[str, Any] = {}
    if getattr(options, "do_predict", False) or not hasattr(options, "eval_file"):
        asked["predict_file"] = getattr(options, "predict_file", None)
    if options.do_eval:
        asked |= {name: getattr(options, name, None) for name in _EVALUATED_FLAGS}
        asked["input_file"] = None if asked["eval_file"] else getattr(options, "input_file", None)
    for name, value in asked.items():
        known.pop(name, None)
        if value:
            known[name] = without_folders(name, value)
    write_text(
        os.path.join(folder, FACTS_FILE), json.dumps({**facts, "evaluated": known}, indent=2) + "\n"
    )


def _earlier(part: Mapping[str, Any], note: Mapping[str, Any]) -> dict[str, Any]:
    """Return the last step of an earlier part of the training, its settings, and its other data."""
    changed = {
        f"`--{name}`": code(without_folders(name, shown_value(value)))
        for name, value in part.items()
        if name not in (USED, DATA, STEP) and value != note.get(name)
    }
    data = part.get(DATA)
    return {
        "step": part[STEP],
        "used": {**part.get(USED, {}), **changed},
        "data": data if data != note.get(DATA) else None,
    }


def noted_step(folder: str) -> int | None:
    """Return the step of the training that the facts in `folder` describe, if any."""
    return _read_facts(folder).get("training", {}).get("step")


def write_conversion_card(
    folder: str,
    options: Any,
    source_folder: str,
    head: str,
    task: Task | None,
    num_parameters: int,
    architecture: str | None,
) -> None:
    """Write the facts and the card of a checkpoint that was converted.

    Args:
        folder: has the converted files already.
        options: `ConvertOptions`.
        source_folder: of the original checkpoint. Its facts on data, training and metrics are copied,
            and the licence in its README.md.
        head: name of the head, or of the type of task.
        architecture: class of `transformers` that opens the folder; None for another format.
    """
    there = _read_facts(source_folder)
    stated = _license_in(_read(os.path.join(source_folder, CARD_FILE)) or "")
    license = options.license or stated or there.get("license", NO_LICENSE)
    facts = _facts(options.init_checkpoint, license, head, task, num_parameters) | {
        "architecture": architecture,
        "conversion": {
            "flags": changed_flags(options, _LEFT_OUT, shown=without_folders),
            "versions": _versions(),
        },
    }
    if there:
        facts |= {name: there[name] for name in ("data", "training", "evaluated") if name in there}
        facts["figures"] = _metrics(source_folder, there)
    _write_facts(folder, facts)


def write_card(folder: str) -> None:
    """Write the part between the markers of README.md, if the folder has facts.

    A README.md without markers stays as it is.
    """
    facts, path = _read_facts(folder), os.path.join(folder, CARD_FILE)
    if not facts:
        return
    text = _read(path)
    text = f"---\n{_BEGIN}\n{_END}\n" if text is None else text
    before, begin, rest = text.partition(_BEGIN)
    _, end, after = rest.rpartition(_END)
    if not (begin and end):
        logger.info("%s stays as it is, because it does not have both markers of bert_tf", path)
        return
    write_text(path, f"{before}{_BEGIN}\n{_card(folder, facts, before)}{_END}{after}")
    logger.info("Wrote %s, the model card", CARD_FILE)


# ---- Facts and files ----------------------------------------------------------------------------


def _facts(
    start: str | None, license: str, head: str, task: Task | None, num_parameters: int
) -> dict[str, Any]:
    start = start or ""
    is_hub = start.startswith(SCHEME)
    return {
        "license": license,
        "base_model": start.removeprefix(SCHEME).partition("@")[0].rstrip("/") if is_hub else None,
        "kind": head,
        "arguments": {} if task is None else task.arguments(),
        "num_parameters": num_parameters,
    }


def _write_facts(folder: str, facts: Mapping[str, Any]) -> None:
    write_text(os.path.join(folder, FACTS_FILE), json.dumps(facts, indent=2) + "\n")
    write_card(folder)


def _read_facts(folder: str) -> dict[str, Any]:
    """Return the facts, {} without the file. Raise ValueError for facts of another program."""
    path = os.path.join(folder, FACTS_FILE)
    if not tf.io.gfile.exists(path):
        return {}
    try:
        facts = read_json(path)
        _check_facts(facts, _NEEDED, _OPTIONAL, path)
        typed(facts["arguments"], "labels", list, path)
        if "training" in facts:
            training = facts["training"]
            _check_facts(training, {STEP: int, **_OF_A_RUN}, {USED: dict, EARLIER: list}, path)
            for part in training.get(EARLIER, ()):
                _check_facts(part, {STEP: int, USED: dict}, {DATA: list}, path)
        if "conversion" in facts:
            _check_facts(facts["conversion"], _OF_A_RUN, {}, path)
    except ValueError as error:
        raise ValueError(
            f"{error} Remove {FACTS_FILE}, from which README.md is written, if bert_tf did not write it."
        ) from error
    return facts


def _check_facts(
    values: Any, needed: Mapping[str, type], optional: Mapping[str, type], path: str
) -> None:
    """Raise ValueError unless `values` are an object with these keys, of these types."""
    if not isinstance(values, dict):
        raise ValueError(f"{path} contains {values!r:.60} instead of a JSON object.")
    check_values(values, {**needed, **optional}, path)
    for key in needed:
        if key not in values:
            raise ValueError(f"{path} has no `{key}`.")


def _read(path: str) -> str | None:
    if not tf.io.gfile.exists(path):
        return None
    with tf.io.gfile.GFile(path, "rb") as file:
        return file.read().decode("utf-8", errors="replace")


def _license_in(text: str) -> str | None:
    """Return the licence in the YAML of a card, or of its part above the first marker."""
    front = re.match(r"---\n(.*?)(\n---|\Z)", text.replace("\r\n", "\n"), re.S)
    found = re.search(r"^license: *([A-Za-z][\w.+-]*) *$", front[1], re.M) if front else None
    return found[1] if found else None


# ---- The card -----------------------------------------------------------------------------------


def _card(folder: str, facts: Mapping[str, Any], before: str) -> str:
    """Return the text between the markers. The user's YAML in `before` has precedence over ours."""
    entry = TYPES.get(facts["kind"])  # None for a user's own task
    license = _license_in(before) or facts["license"]
    architecture = facts.get("architecture")
    library, use_of_theirs = use_of_others(folder, architecture)
    values = {
        "license": license,
        "library_name": library,
        "pipeline_tag": entry.pipeline if entry else None,
        "base_model": facts.get("base_model"),
        "tags": "[bert]",
    }
    own = set(re.findall(r"^([\w-]+):", before, re.M))
    lines = [f"{name}: {value}" for name, value in values.items() if value and name not in own]
    stated = (
        f"`{license}`, as stated by the author."
        if license != NO_LICENSE
        else "Not stated. It depends on the initial weights and on the data."
    )
    program = facts.get("training", {}).get("program") or (entry.program if entry else "")
    use = use_of_ours(entry, facts["arguments"], program)
    parts = {
        "Model": table(_model_rows(folder, facts)),
        "Data": _data(facts) if "data" in facts else None,
        "Training": _training(program, facts["training"]) if "training" in facts else None,
        "Metrics": _metrics(folder, facts),
        "Conversion": _conversion(facts["conversion"]) if "conversion" in facts else None,
        "Use": use_of_theirs + use,
        "Licence": stated,
    }
    body = "".join(f"\n## {name}\n\n{text}\n" for name, text in parts.items() if text)
    title = f"# BERT, {facts['kind'].replace('_', ' ')}"
    front = "\n".join(lines)
    return f"{front}\n---\n\n{title}\n\nA BERT model (Devlin et al. 2019).\n{body}\n"


def _training(program: str, training: Mapping[str, Any]) -> str:
    by = f"`{program}`: " if program else ""
    flags = "\n".join(map(str, training["flags"]))
    used = training.get("used")  # missing in facts of version 1.0
    resolved = f"The run used:\n\n{table(used.items())}\n\n" if used else ""
    after = ""
    for part in training.get("earlier", ()):
        after = f" after step {part['step']:,}"
        resolved += f"Until step {part['step']:,} it used:\n\n{table(part['used'].items())}\n\n"
    return (
        f"{by}{training['step']:,} steps. Flags{after} that differ from their defaults:\n\n"
        f"```\n{flags}\n```\n\n{resolved}{training['versions']}"
    )


def _conversion(conversion: Mapping[str, Any]) -> str:
    flags = "\n".join(map(str, conversion["flags"]))
    return f"`convert_checkpoint`:\n\n```\n{flags}\n```\n\n{conversion['versions']}"


def _model_rows(folder: str, facts: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    arguments = dict(facts["arguments"])
    yield "task", f"`{facts['kind']}`"
    labels = arguments.pop("labels", ())
    if labels:
        more = f" and {len(labels) - _MOST_LABELS:,} more" if len(labels) > _MOST_LABELS else ""
        yield f"{len(labels):,} labels", ", ".join(map(code, labels[:_MOST_LABELS])) + more
    if facts["kind"] == "embeddings" and "training" not in facts:
        # Other programs state only what the vectors depend on.
        arguments = {name: arguments.get(name) for name in ("max_seq_length", *OF_THE_VECTORS)}
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


def _data(facts: Mapping[str, Any]) -> str:
    """Return a table of the data, and one of each earlier part of the training with other data."""
    text = table(_trained_on(facts))
    parts = facts.get("training", {}).get("earlier", [])
    for part, following in zip(parts, [*parts[1:], {}], strict=False):
        if part.get("data") and part["data"] != following.get("data"):
            text += f"\n\nUntil step {part['step']:,}:\n\n{table(part['data'])}"
    return text


def _trained_on(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the rows of the data. Older facts also have the files of one evaluation."""
    left_out = ("`--eval_file`", "`--predict_file`")
    return [(name, value) for name, value in facts["data"] if name not in left_out]


def _metrics(folder: str, facts: Mapping[str, Any]) -> str | None:
    """Return tables of `*_results.txt` of the step; else metrics of the converted folder."""
    step = facts.get("training", {}).get("step")
    tables = []
    for path in sorted(tf.io.gfile.glob(os.path.join(folder, "*_results.txt"))):
        lines = (_read(path) or "").splitlines()
        values = dict(line.split(" = ", 1) for line in lines if " = " in line)
        if values.get("global_step") == str(step):
            rows = [(f"`{name}`", number(value)) for name, value in values.items()]
            tables.append(f"`{os.path.basename(path)}`:\n\n{table(rows)}")
    if tables:
        named = [(f"`--{name}`", code(v)) for name, v in facts.get("evaluated", {}).items()]
        evaluated = f"Of this data:\n\n{table(named)}" if named else None
        return "\n\n".join(filter(None, [evaluated, *tables]))
    return facts.get("figures", None if step is None else "Not evaluated.")


def _versions() -> str:
    return (
        f"bert_tf {__version__}, TensorFlow {tf.__version__}, Keras {keras.__version__}, "
        f"Python {platform.python_version()}."
    )
