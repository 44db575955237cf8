"""Shared by recipes.py, ablations.py, distillation.py and int8_accuracy.py.

Arguments of a folder, records, timed pre-training, fine-tuning of the encoders.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from fine_tuning_runs import ROOT, execute, read_results
from squad import read_paragraphs

TEXT = ROOT.parent / "shared/data/text/enwiki_30mb.txt"
DATA_DIR = ROOT.parent / "shared/data"
HELD_OUT_EVERY = 20  # articles
SQUAD_QUESTIONS = {"train-subset-44articles": 3000, "dev-v1.1": 2000}
# Task -> program, metric, flags for files below the data folder, other flags.
TASKS: Mapping[str, tuple[str, str, Mapping[str, str], Mapping[str, object]]] = {
    "mrpc": ("run_classifier", "eval_accuracy", {"data_dir": "glue/MRPC"}, {"task_name": "mrpc"}),
    "sst-2": (
        "run_classifier",
        "eval_accuracy",
        {"data_dir": "glue/SST-2"},
        {"task_name": "sst-2", "num_train_epochs": 1},
    ),
    "sts-b": ("run_classifier", "eval_pearson", {"data_dir": "glue/STS-B"}, {"task_name": "sts-b"}),
    "ner": ("run_ner", "eval_f1", {"data_dir": "ner/wnut17"}, {}),
    "squad": ("run_squad", "f1", {}, {"num_train_epochs": 2}),
}


def check_arguments(folder: Path, arguments: Mapping[str, object]) -> None:
    """Write the arguments into a new folder. Raise if an old folder has others.

    Raises:
        ValueError: the folder was made with other arguments, or contains files but no arguments.
    """
    file = folder / "arguments.json"
    arguments = json.loads(json.dumps(arguments))
    if not file.exists():
        if folder.is_dir() and any(folder.iterdir()):
            raise ValueError(
                f"{folder} contains files but no {file.name}: another version of this script made it. "
                "Give another --output_dir."
            )
        folder.mkdir(parents=True, exist_ok=True)
        write_changed(file, json.dumps(arguments, indent=1))
    noted = json.loads(file.read_text(encoding="utf-8"))
    names = sorted({*noted, *arguments})
    differ = [name for name in names if noted.get(name) != arguments.get(name)]
    if differ:
        pairs = [f"{name}: {noted.get(name)} and now {arguments.get(name)}" for name in differ]
        raise ValueError(
            f"{folder} was made with other arguments ({'; '.join(pairs)}). Give them again, or another "
            "--output_dir."
        )


def digest(file: str) -> str:
    """Return the beginning of a hash of the bytes of a file."""
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()[:16]


def make_data(
    text: str,
    folder: Path,
    lengths: Sequence[int],
    objectives: Sequence[str] = ("mlm_nsp",),
    megabytes: float | None = None,
    vocab_size: int | None = None,
) -> Path:
    """Write records without masks, missing ones only. Return the vocabulary.

    `<objective>_held-<length>.tf_record` has every twentieth article. The others are in
    `<objective>_train-<length>.tf_record`.

    Args:
        text: file with an empty line between articles.
        folder: exists.
        lengths: tokens of a record.
        objectives: of create_pretraining_data.
        megabytes: million characters of the text to read. Default: all.
        vocab_size: size of a vocabulary that is made of the training articles. Default: the
            vocabulary in vocab/.
    """
    whole = Path(text).read_text(encoding="utf-8")
    used = whole if megabytes is None else whole[: int(megabytes * 1e6)]
    articles = [article for article in used.split("\n\n") if article.strip()]
    if len(used) < len(whole):
        del articles[-1]  # it is truncated
    parts = {
        "train": [article for i, article in enumerate(articles) if i % HELD_OUT_EVERY],
        "held": articles[::HELD_OUT_EVERY],
    }
    for name, part in parts.items():
        write_changed(folder / f"{name}.txt", "\n\n".join(part) + "\n")
    vocab_file = ROOT / "vocab" / "uncased_30522" / "vocab.txt"
    if vocab_size is not None:
        vocab_file = folder / "vocab.txt"
        if not vocab_file.exists():
            flags = {"input_file": folder / "train.txt", "output_dir": folder}
            execute("create_vocab", {**flags, "vocab_size": vocab_size})
    for objective in objectives:
        for name in parts:
            for length in lengths:
                output_file = folder / f"{objective}_{name}-{length}.tf_record"
                if output_file.exists():
                    continue
                given: dict[str, object] = {
                    "input_file": folder / f"{name}.txt",
                    "output_file": output_file,
                    "vocab_file": vocab_file,
                    "objective": objective,
                    "masking": "none",
                    "dupe_factor": 1,
                    "max_seq_length": length,
                }
                execute("create_pretraining_data", given)
    return vocab_file


def write_config(
    folder: Path,
    size: tuple[int, int, int],
    vocab_file: Path,
    changes: Mapping[str, object] | None = None,
) -> Path:
    """Write the bert_config.json of a model with (layers, hidden size, heads)."""
    layers, hidden, heads = size
    changes = changes or {}
    names = [f"L{layers}", f"H{hidden}", f"A{heads}"]
    names += [f"{name}={value}" for name, value in changes.items()]
    config = {
        "vocab_size": len(vocab_file.read_text(encoding="utf-8").splitlines()),
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": 4 * hidden,
        "type_vocab_size": 2,
        **changes,
    }
    file = folder / f"{'_'.join(names)}.json"
    write_changed(file, json.dumps(config, indent=1))
    return file


def parse_size(text: str) -> tuple[int, int, int]:
    """Parse layers, hidden size and heads.

    >>> parse_size("4,256,4")
    (4, 256, 4)
    """
    layers, hidden, heads = map(int, text.split(","))
    return layers, hidden, heads


def is_finished(folder: Path, step: float) -> bool:
    """Return True if a run has been evaluated at this step or a later one."""
    return read_results(folder).get("global_step", -1) >= step


@dataclass(frozen=True)
class Times:
    """Processor time of a run, from its metrics.jsonl.

    Args:
        lines: those of metrics.jsonl, in the order in which they were written.
        steps: seconds of each training step from the first one, without start-up, compilation and
            evaluations. A step that was repeated after a kill has its mean.
        total: seconds of all processes until their last lines.
        tokens_per_second: of a processor, while training.
    """

    lines: Sequence[Mapping[str, Any]]
    steps: Sequence[float]
    total: float
    tokens_per_second: float

    def seconds_until(self, step: float) -> float:
        """Return the seconds of training until a step, which may be a fraction."""
        whole = int(step)
        part = self.steps[whole] * (step - whole) if whole < len(self.steps) else 0.0
        return sum(self.steps[:whole]) + part

    @property
    def per_step(self) -> float:
        """Mean seconds of a training step."""
        return mean(self.steps)


def read_times(folder: Path) -> Times | None:
    """Read the processor time of a run of timed_script.py. None without two lines of training.

    The seconds between two lines belong to the steps of the second line if that is of training. The
    first line of each training loop contains start-up and compilation, so its steps get the seconds of
    their neighbours. Processes that were killed count until their last lines.
    """
    lines = read_lines(folder)
    seconds: dict[int, list[float]] = {}
    ends: dict[float, float] = {}  # start of a process -> its seconds
    tokens = spent = 0.0
    last: Mapping[str, Any] = {}
    for line in lines:
        ends[line["process"]] = line["processor_seconds"]
        follows = all(line[key] == last.get(key) for key in ("process", "loop"))
        num_steps = int(line["step"] - last["step"]) if follows else 0
        if line["kind"] == "train" and num_steps > 0:
            interval = line["processor_seconds"] - last["processor_seconds"]
            for step in range(int(last["step"]), int(line["step"])):
                seconds.setdefault(step, []).append(interval / num_steps)
            tokens, spent = tokens + num_steps * line["tokens"], spent + interval
        last = line
    if not seconds:
        return None
    known = {step: mean(values) for step, values in seconds.items()}
    steps, each = [], known[min(known)]
    for step in range(max(int(line["step"]) for line in lines)):
        each = known.get(step, each)
        steps.append(each)
    return Times(lines, steps, sum(ends.values()), tokens / spent)


def read_lines(folder: Path) -> list[dict]:
    """Read the lines of metrics.jsonl. Lines that a kill has damaged are left out."""
    path, lines = folder / "metrics.jsonl", []
    for text in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        try:
            lines.append(json.loads(text))
        except json.JSONDecodeError:
            print(f"{path}: a damaged line is ignored", file=sys.stderr)
    return lines


def fine_tuned_folder(
    model_dir: Path, task: str, seed: int, flags: Mapping[str, object] | None = None
) -> Path:
    """Return the folder in which `fine_tune` writes its results."""
    return model_dir / "_".join([task, *map(str, (flags or {}).values()), f"seed_{seed}"])


def fine_tune(
    model_dir: Path,
    task: str,
    seed: int,
    *,
    data_dir: str,
    max_seq_length: int,
    precision: str,
    flags: Mapping[str, object] | None = None,
) -> float:
    """Return the metric of a task on its dev set, in percent. Weights and records are deleted."""
    flags = flags or {}
    output_dir = fine_tuned_folder(model_dir, task, seed, flags)
    program, metric, files, others = TASKS[task]
    if metric not in read_results(output_dir):
        data: dict[str, object] = {name: Path(data_dir) / path for name, path in files.items()}
        if task == "squad":
            data |= squad_files(Path(data_dir), model_dir.parent)
            # Short sequences leave room for the passage if questions are short.
            data |= dict.fromkeys(("doc_stride", "max_query_length"), max_seq_length * 3 // 8)
        given = {
            "init_checkpoint": model_dir,
            "output_dir": output_dir,
            "do_train": True,
            "do_eval": True,
            "max_seq_length": max_seq_length,
            "train_batch_size": 32,
            "learning_rate": 3e-4,
            "num_train_epochs": 3,
            "seed": seed,
            "precision": precision,
            "report": False,
        }
        execute(program, {**given, **data, **others, **flags})
    for pattern in ("model.ckpt-*", "*.tf_record"):
        for file in output_dir.glob(pattern):
            file.unlink()
    return read_results(output_dir)[metric] * (1 if task == "squad" else 100)


def write_changed(file: Path, text: str) -> None:
    """Write a file unless it has this text. Records are made again if the time of their file changes."""
    if file.exists() and file.read_text(encoding="utf-8") == text:
        return
    temporary = file.with_name(f"{file.name}.tmp")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(file)


def squad_files(data_dir: Path, folder: Path) -> dict[str, Path]:
    """Write the first questions of SQuAD. Return the flags of run_squad."""
    for name, most in SQUAD_QUESTIONS.items():
        paragraphs = read_paragraphs(str(data_dir / "squad" / f"{name}.json"), most)
        text = json.dumps({"version": "1.1", "data": [{"title": name, "paragraphs": paragraphs}]})
        write_changed(folder / f"{name}.json", text)
    train, dev = (folder / f"{name}.json" for name in SQUAD_QUESTIONS)
    return {"train_file": train, "predict_file": dev}


def spread(values: Sequence[float], digits: int) -> str:
    """Return mean and standard deviation.

    >>> spread([1, 2, 3], 1), spread([2], 2), spread([], 1)
    ('2.0 ± 1.0', '2.00', '')
    """
    if not values:
        return ""
    deviation = f" ± {stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{mean(values):.{digits}f}{deviation}"


def table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """Yield the lines of a table in Markdown."""
    yield f"| {' | '.join(header)} |"
    yield "|---" * len(header) + "|"
    for row in rows:
        yield f"| {' | '.join(map(str, row))} |"
