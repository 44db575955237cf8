"""README.md beside a checkpoint: what the model is, of what data and flags, how good, how to load it.

    training.train             writes it when a training ends
    training.write_results     brings its figures up to date
    convert_checkpoint         writes it into the new folder, with what the source's card says of the
                               data, the training and the figures

It begins with YAML that Hugging Face's hub reads, and that with a comment that holds a hash of all
below. Where that no longer fits, a person has changed the page, and it is never written again.
Of paths only the last part is told: folders are those of somebody's machine.
"""

from __future__ import annotations

import hashlib
import logging
import os
import platform
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import keras
import tensorflow as tf

from bert_tf import __version__
from bert_tf.config import BertConfig
from bert_tf.data.files import write_text
from bert_tf.data.records import count_records
from bert_tf.interop.checkpoint import read_json
from bert_tf.interop.hub import SCHEME
from bert_tf.options import NO_LICENSE
from bert_tf.pretraining.manifest import manifests_of
from bert_tf.report.best_run import best_of_runs
from bert_tf.report.command_line import changed_flags
from bert_tf.tasks.base import Task

logger = logging.getLogger(__name__)

CARD_FILE = "README.md"
_MARK = "# Written by bert_tf, and written anew unless it was changed: sha256 "

_MOST_LABELS = 40
_MOST_FILES = 10
_MOST_COUNTED = 1 << 30  # bytes of records that are read to count them, where no manifest says it
_DATA_FLAGS = ("task_name", "data_dir", "input_file", "train_file", "eval_file", "predict_file")
# Flags of the machine and of this page.
_LEFT_OUT = (
    *("output_dir", "feature_cache_dir", "license", "tpu_name", "tpu", "tpu_zone", "master"),
    *("gcp_project", "num_tpu_cores", "num_threads", "num_workers"),
)


class _Kind(NamedTuple):
    """The hub's name for what a model does, what makes one, and what a Predictor is asked."""

    pipeline: str | None
    program: str | None
    example: str | None


_CHOICE = 'predict([("He opens the door.", ["He goes in.", "He eats it."])])'
_FILL = 'fill_mask("The dog [MASK] at the cat.")'
_WORDS = 'predict(["John Smith lives in New York."])'
_KINDS = {
    "classification": _Kind("text-classification", "run_classifier", 'predict(["A text."])'),
    "token_classification": _Kind("token-classification", "run_ner", _WORDS),
    "question_answering": _Kind(
        "question-answering", "run_squad", 'predict([("Who won?", "Denver beat Carolina.")])'
    ),
    "multiple_choice": _Kind("multiple-choice", "run_swag", _CHOICE),
    "pretraining": _Kind("fill-mask", "run_pretraining", _FILL),
    "masked_lm": _Kind("fill-mask", None, _FILL),
    "encoder": _Kind("feature-extraction", None, 'embed(["A dog barked."])'),
}
_KINDS["next_sentence"] = _KINDS["encoder"]
_OWN_KIND = _Kind(None, None, None)  # of a task that is none of ours


def write_training_card(
    options: Any,
    task: Task,
    config: BertConfig,
    num_parameters: int,
    step: int,
    files: Sequence[str],
) -> None:
    """Writes the card of a model that was trained.

    Args:
        options: `TrainingOptions` of the program.
        step: optimizer steps taken.
        files: records that it was trained on.
    """
    folder, kind = options.output_dir, _KINDS.get(task.name, _OWN_KIND)
    by = f"`{kind.program}`: " if kind.program else ""
    parts = {
        "Model": _table(_model_rows(task.name, task, config, num_parameters, folder)),
        "Data": _table(_data_rows(options, files)),
        "Training": (
            f"{by}{step:,} steps of {options.train_batch_size:,} examples. The flags that differ from "
            f"their defaults:\n\n```\n{_flags(options)}\n```\n\n{_versions()}"
        ),
        "Figures": _figures(folder, step),
        "Use": _use_of_ours(kind, task),
    }
    _write(folder, task.name, parts, options.license, options.init_checkpoint)


def write_conversion_card(
    folder: str,
    options: Any,
    source_folder: str,
    kind: str,
    task: Task | None,
    config: BertConfig,
    num_parameters: int,
    architecture: str | None,
) -> None:
    """Writes the card of a checkpoint that was converted.

    Args:
        folder: where it goes; the converted files are there already.
        options: `ConvertOptions`.
        source_folder: of the checkpoint that was converted; its card, if it has one, says the licence
            and, unless somebody has changed it, what is said of data, training and figures.
        kind: name of the head.
        architecture: class of `transformers` that opens the folder; None if it is not for that.
    """
    there = _read(os.path.join(source_folder, CARD_FILE)) or ""
    sections = _sections(_unchanged(there) or "")
    license = options.license or _license_in(there) or NO_LICENSE
    parts: dict[str, str] = {
        "Model": _table(_model_rows(kind, task, config, num_parameters, folder)),
        **{name: sections[name] for name in ("Data", "Training", "Figures") if name in sections},
        "Conversion": f"`convert_checkpoint`:\n\n```\n{_flags(options)}\n```\n\n{_versions()}",
        "Use": _use_of_ours(_KINDS[kind], task),
    }
    if architecture is not None:
        parts["Use"] = f"{_use_of_transformers(architecture)}\n\n{parts['Use']}"
    _write(folder, kind, parts, license, options.init_checkpoint, architecture is not None)


def update_figures(folder: str, step: int | None) -> None:
    """Brings the figures of the card in `folder` up to date, if there is a card of ours.

    Args:
        step: of the model that was evaluated; None where several were.
    """
    path = os.path.join(folder, CARD_FILE)
    text = None if step is None else _read(path)
    if text is None:
        return
    page = _unchanged(text)
    if page is None:
        logger.info("%s is not brought up to date, since somebody has written in it", path)
        return
    before, _, rest = page.partition("\n## Figures\n")
    _, found, after = rest.partition("\n## ")
    if found:
        write_text(
            path, _stamped(f"{before}\n## Figures\n\n{_figures(folder, step)}\n{found}{after}")
        )


def may_be_written(path: str) -> bool:
    """Whether there is no card at `path`, or one of ours that nobody has changed."""
    text = _read(path)
    return text is None or _unchanged(text) is not None


# ---- The page ------------------------------------------------------------------------------------


def _write(
    folder: str,
    kind: str,
    parts: Mapping[str, str],
    license: str,
    start: str | None,
    for_transformers: bool = False,
) -> None:
    path = os.path.join(folder, CARD_FILE)
    if not may_be_written(path):
        logger.info("%s stays as it is, since somebody has written in it", path)
        return
    pipeline = _KINDS.get(kind, _OWN_KIND).pipeline
    library = "transformers" if for_transformers else "bert_tf"
    values = {"license": license, "library_name": library}
    if pipeline is not None:
        values["pipeline_tag"] = pipeline
    if start is not None and start.startswith(SCHEME):
        values["base_model"] = start.removeprefix(SCHEME).partition("@")[0].rstrip("/")
    front = "".join(f"{name}: {value}\n" for name, value in values.items())
    title = f"BERT, {kind.replace('_', ' ')}"
    stated = (
        f"`{license}`, as whoever made it has stated."
        if license != NO_LICENSE
        else "Nobody has stated one. It depends on the weights that the model started from and on its "
        "data as well."
    )
    body = "".join(
        f"\n## {name}\n\n{text}\n" for name, text in {**parts, "Licence": stated}.items()
    )
    what = "A BERT model (Devlin et al. 2019)."
    write_text(path, _stamped(f"{front}tags:\n- bert\n---\n\n# {title}\n\n{what}\n{body}"))
    logger.info("Wrote %s, the model card", path)


def _stamped(page: str) -> str:
    digest = hashlib.sha256(page.encode()).hexdigest()[:16]
    return f"---\n{_MARK}{digest}\n{page}"


def _unchanged(text: str) -> str | None:
    """What stands below the first comment, if it is as we wrote it; else None."""
    page = text.partition(_MARK)[2].partition("\n")[2]
    return page if text == _stamped(page) else None


def _read(path: str) -> str | None:
    if not tf.io.gfile.exists(path):
        return None
    with tf.io.gfile.GFile(path, "rb") as file:
        return file.read().decode("utf-8", errors="replace")


def _sections(page: str) -> dict[str, str]:
    """Title of a section -> its text."""
    found = (part.partition("\n") for part in page.split("\n## ")[1:])
    return {title: text.strip("\n") for title, _, text in found}


def _license_in(text: str) -> str | None:
    """Of the YAML at the beginning of a card, whoever wrote it."""
    front = re.match(r"---\n(.*?)\n---", text, re.S)
    found = re.search(r"^license: *([A-Za-z][\w.+-]*) *$", front[1], re.M) if front else None
    return found[1] if found else None


# ---- Its parts -----------------------------------------------------------------------------------


def _model_rows(
    kind: str, task: Task | None, config: BertConfig, num_parameters: int, folder: str
) -> Iterable[tuple[str, str]]:
    arguments = {} if task is None else task.arguments()
    yield "task", f"`{kind}`"
    labels = arguments.pop("labels", ())
    if labels:
        more = f" and {len(labels) - _MOST_LABELS:,} more" if len(labels) > _MOST_LABELS else ""
        yield f"{len(labels):,} labels", ", ".join(map(_code, labels[:_MOST_LABELS])) + more
    for name, value in arguments.items():
        if value is not None:
            values = value if isinstance(value, list) else [value]
            yield f"`{name}`", ", ".join(map(_code, values))
    yield (
        "layers, hidden size, heads",
        (f"{config.num_hidden_layers}, {config.hidden_size}, {config.num_attention_heads}"),
    )
    yield "parameters", f"{num_parameters:,}"
    case = ""
    path = os.path.join(folder, "tokenizer_config.json")
    if tf.io.gfile.exists(path):
        case = ", lower-cased" if read_json(path).get("do_lower_case") else ", not lower-cased"
    yield "vocabulary", f"{config.vocab_size:,} WordPieces{case}"
    yield "positions", f"{config.max_position_embeddings:,}"


def _data_rows(options: Any, files: Sequence[str]) -> Iterable[tuple[str, str]]:
    for name in _DATA_FLAGS:
        value = getattr(options, name, None)
        if value:
            yield f"`--{name}`", _code(_shown(name, value))
    manifests = manifests_of(files)
    records = {
        os.path.normpath(os.path.join(os.path.dirname(path), shard.file)): shard.records
        for path, manifest in manifests.items()
        for shard in manifest.shards
    }
    names = [os.path.normpath(file) for file in files]
    if all(name in records for name in names):
        yield "records to train on", f"{sum(records[name] for name in names):,}"
    elif sum(tf.io.gfile.stat(file).length for file in files) <= _MOST_COUNTED:
        yield "records to train on", f"{count_records(files):,}"
    for path, manifest in manifests.items():
        names = [os.path.basename(entry["file"]) for entry in manifest.input]
        more = f" and {len(names) - _MOST_FILES:,} more" if len(names) > _MOST_FILES else ""
        counts = manifest.counts
        yield (
            f"text of {_code(os.path.basename(path))}",
            (
                f"{', '.join(map(_code, names[:_MOST_FILES]))}{more}: {counts.documents:,} documents, "
                f"{counts.sentences:,} sentences, {counts.tokens:,} tokens"
            ),
        )


def _figures(folder: str, step: int | None) -> str:
    """The `*_results.txt` that are of this step, as tables."""
    tables = []
    for path in sorted(tf.io.gfile.glob(os.path.join(folder, "*_results.txt"))):
        lines = (_read(path) or "").splitlines()
        values = dict(line.split(" = ", 1) for line in lines if " = " in line)
        if values.get("global_step") == str(step):
            rows = [(f"`{name}`", _number(value)) for name, value in values.items()]
            tables.append(f"`{os.path.basename(path)}`:\n\n{_table(rows)}")
    if tables and step is not None:
        tables.append(best_of_runs(folder, step))
    return "\n\n".join(filter(None, tables)) or "It has not been evaluated."


def _use_of_ours(kind: _Kind, task: Task | None) -> str:
    if kind.example is None:
        return (
            "With bert_tf and the class of its task, where `FOLDER` is this folder:\n\n```python\n"
            "from bert_tf.interop.initial import initialize\n\n"
            'model = task.build_model(config)\ninitialize(model, "FOLDER")\n```'
        )
    is_pair = task is not None and task.arguments().get("is_pair")
    example = 'predict([("A text.", "Another text.")])' if is_pair else kind.example
    text = (
        "With bert_tf, where `FOLDER` is this folder:\n\n"
        "```python\nimport bert_tf\n\n"
        f'model = bert_tf.load("FOLDER")\nprint(model.{example})\n```'
    )
    if kind.program is None:
        return text
    return (
        f"{text}\n\n`{kind.program} --do_eval --init_checkpoint=FOLDER` evaluates it on other data, "
        f"`{kind.program} --do_train --init_checkpoint=FOLDER` trains on from its weights, and "
        "`export_saved_model --model_dir=FOLDER` makes a SavedModel."
    )


def _use_of_transformers(architecture: str) -> str:
    return (
        "With transformers, where `FOLDER` is this folder:\n\n```python\n"
        f"from transformers import AutoTokenizer, {architecture}\n\n"
        'tokenizer = AutoTokenizer.from_pretrained("FOLDER")\n'
        f'model = {architecture}.from_pretrained("FOLDER")\n```'
    )


def _flags(options: Any) -> str:
    """The flags that differ from their defaults, one a line."""
    return "\n".join(changed_flags(options, _LEFT_OUT, _shown))


def _shown(flag: str, value: Any) -> str:
    """The value of a flag, of paths the last part."""
    if not flag.endswith(("_file", "_dir", "_checkpoint")) or value.startswith(SCHEME):
        return str(value)
    return ",".join(os.path.basename(part.strip().rstrip("/")) for part in value.split(","))


def _versions() -> str:
    return (
        f"bert_tf {__version__}, TensorFlow {tf.__version__}, Keras {keras.__version__}, "
        f"Python {platform.python_version()}."
    )


def _table(rows: Iterable[tuple[str, str]]) -> str:
    lines = [f"| {name} | {value} |" for name, value in rows]
    return "\n".join(["| | |", "|---|---|", *lines])


def _code(value: Any) -> str:
    """Any text inside a cell of a table, on one line, as code."""
    text = re.sub(r"\s", " ", str(value)).replace("|", "\\|")
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def _number(text: str) -> str:
    try:
        return text if text.isdigit() else f"{float(text):.6g}"
    except ValueError:
        return _code(text)
