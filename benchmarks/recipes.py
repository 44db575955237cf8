"""Recipes of pre-training, flag by flag: processor time until a held-out loss, and fine-tuning.

    python benchmarks/recipes.py --output_dir=recipes
    python benchmarks/recipes.py --output_dir=recipes --rows=published,2026 --seeds=1,2,3 --tasks=
    python benchmarks/recipes.py --output_dir=recipes --num_train_steps=1500
    python benchmarks/recipes.py --output_dir=recipes --num_train_steps=1500 --rows=

Pre-trains the mini size (4 layers, hidden size 256) on 64 tokens of English Wikipedia in
../shared/data; every twentieth article is held out. `published` is the run of docs/pretraining.md.
`base` has the paper's AdamW, dropout and masks, with fewer steps and a higher rate. Most other rows
(ROWS in recipe_rows.py) change one thing of the row that they name.

`--num_train_steps` makes all rows shorter. Warm-up and decay keep their fractions of the steps. Run
again with the same --output_dir to resume: finished runs are only read. The last command above trains
nothing. The tables have all runs of the folder with that number of steps:

    loss         steps and processor minutes until --loss, by straight lines between evaluations.
                 Default: the worst last loss of `published` over its seeds, or 4.97 if it was not run.
                 Minutes are those of training steps, without start-up, compilation and evaluations.
    plateau      first step below --plateau_loss, held out and in training (means of 50 steps)
    fine-tuning  dev metrics in percent over all seeds of the pre-training and of the fine-tuning

The row `phases` is evaluated on 32 tokens in its first half, so these losses are not comparable.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise, product
from pathlib import Path
from statistics import mean, median

from fine_tuning_runs import execute, read_results
from pretraining_runs import (
    DATA_DIR,
    TASKS,
    TEXT,
    Times,
    check_arguments,
    digest,
    fine_tune,
    fine_tuned_folder,
    is_finished,
    make_data,
    parse_size,
    read_times,
    spread,
    table,
    write_config,
)
from recipe_rows import (
    COMPARED,
    FIRST_TOKENS,
    ROWS,
    TOKENS,
    change_of,
    flags_of,
    initializer_of,
)

PUBLISHED_LOSS = 4.97  # of docs/results_details.md at step 8,000
SMOOTHED_STEPS = 50


def pretrain(row: str, seed: int, args: argparse.Namespace, vocab_file: Path) -> bool:
    """Train a run unless it is finished. Return False if it failed, as with an infinite loss."""
    folder = Path(args.output_dir)
    flags = flags_of(row, args.num_train_steps)
    num_train_steps = flags["num_train_steps"]
    last_step = min(num_train_steps, args.stop_step or num_train_steps)
    config = write_config(folder, parse_size(args.size), vocab_file, initializer_of(row))
    run = folder / f"{row}_{num_train_steps}_{seed}"
    noted = {"row": row, "seed": seed, "flags": flags, "config": config.name}
    check_arguments(run, {**noted, "evaluate_steps": args.evaluate_steps})
    if is_finished(run, last_step):
        return True
    length = "{length}" if "phases" in flags else TOKENS
    given: dict[str, object] = {
        "input_file": folder / f"mlm_nsp_train-{length}.tf_record",
        "eval_file": folder / f"mlm_nsp_held-{length}.tf_record",
        "do_train": True,
        "do_eval": True,
        "evaluate_steps": args.evaluate_steps,
        "save_checkpoints_steps": args.evaluate_steps,
        "max_eval_steps": 60,
        "keep_checkpoint_max": 1,
        "bert_config_file": config,
        "vocab_file": vocab_file,
        "output_dir": run,
        "max_seq_length": TOKENS,
        "train_batch_size": 64,
        "eval_batch_size": 64,
        "precision": args.precision,
        "seed": seed,
    }
    if args.stop_step is not None:
        given["stop_step"] = last_step
    try:
        execute("run_pretraining", {**given, **flags}, is_timed=True)
    except subprocess.CalledProcessError as error:
        if error.returncode != 1:  # terminated
            raise
        print(f"{run} failed: {error}", file=sys.stderr, flush=True)
        return False
    return True


@dataclass(frozen=True)
class Run:
    """A run that has begun."""

    folder: Path
    seed: int
    times: Times
    last: Mapping[str, float] = field(repr=False)  # results at the end; {} before it

    @cached_property
    def held(self) -> list[tuple[float, float]]:
        """Steps and held-out losses."""
        lines = {line["step"]: line for line in self.times.lines if line["kind"] == "eval"}
        points = {step: line["masked_lm_loss"] for step, line in lines.items()}
        if self.last:
            points[int(self.last["global_step"])] = self.last["masked_lm_loss"]
        return sorted(points.items())

    @cached_property
    def training(self) -> list[tuple[float, float]]:
        """Steps and losses of training, means of at least SMOOTHED_STEPS steps."""
        each: dict[int, float] = {}
        previous = 0
        for line in self.times.lines:
            if line["kind"] == "train":
                first = previous if previous < line["step"] else line["step"] - 1  # resumed
                each |= dict.fromkeys(range(int(first), int(line["step"])), line["masked_lm_loss"])
                previous = line["step"]
        losses = [each[step] for step in sorted(each)]
        ends = range(SMOOTHED_STEPS, len(losses) + 1, SMOOTHED_STEPS)
        return [(end, mean(losses[end - SMOOTHED_STEPS : end])) for end in ends]

    def tokens_per_second(self) -> float:
        """Return the median of the run's log, by wall-clock time."""
        return median(x["tokens_per_second"] for x in self.times.lines if x["kind"] == "train")


def first_step_below(points: list[tuple[float, float]], loss: float) -> float | None:
    """Return the step at which straight lines between the points reach the loss, if they do.

    >>> first_step_below([(100, 7.0), (200, 6.0)], 6.5), first_step_below([(100, 7.0)], 6.5)
    (150.0, None)
    """
    if points and points[0][1] <= loss:
        return points[0][0]
    for (step, above), (next_step, below) in pairwise(points):
        if above > loss >= below:
            return step + (next_step - step) * (above - loss) / (above - below)
    return None


def read_runs(args: argparse.Namespace) -> dict[str, list[Run]]:
    """Return the runs of all rows with the number of steps of the flags."""
    runs: dict[str, list[Run]] = {}
    for row in ROWS:
        steps = flags_of(row, args.num_train_steps)["num_train_steps"]
        for folder in sorted(Path(args.output_dir).glob(f"{row}_{steps}_*")):
            if times := read_times(folder):
                seed = int(folder.name.rsplit("_", 1)[1])
                last_step = max(line["step"] for line in times.lines)
                last = read_results(folder) if is_finished(folder, last_step) else {}
                runs.setdefault(row, []).append(Run(folder, seed, times, last))
    return runs


def is_complete(run: Run, row: str, args: argparse.Namespace) -> bool:
    """Return True if a run has ended with its last step."""
    return is_finished(run.folder, flags_of(row, args.num_train_steps)["num_train_steps"])


def find_loss(args: argparse.Namespace, runs: Mapping[str, list[Run]]) -> float:
    """Return the loss to reach."""
    if args.loss is not None:
        return args.loss
    published = [run for run in runs.get("published", ()) if is_complete(run, "published", args)]
    return max((run.held[-1][1] for run in published), default=PUBLISHED_LOSS)


def loss_table(
    runs: Mapping[str, list[Run]], loss: float, num_train_steps: int | None
) -> Iterator[str]:
    """Yield the table of steps and processor minutes until the loss."""

    def minutes_of(run: Run) -> float | None:
        step = first_step_below(run.held, loss)
        return None if step is None else run.times.seconds_until(step) / 60

    def reached(values: list[float | None], digits: int) -> str:
        found = [value for value in values if value is not None]
        missing = f" ({len(found)} of {len(values)} runs)" if 0 < len(found) < len(values) else ""
        return f"{spread(found, digits) or '-'}{missing}"

    published = [m for run in runs.get("published", ()) if (m := minutes_of(run)) is not None]
    header = ["row", "changes", "seeds", "last step", "last loss", "less than its base by"]
    header += [f"steps to {loss:.3f}", "processor minutes to it", "fraction of published"]
    header += ["ms per step", "times its base's", "tokens per processor second"]
    header += ["tokens per second", "processor minutes in all"]
    rows = []
    for row, found in runs.items():
        base = runs.get(ROWS[row].base or COMPARED.get(row, ""), [])
        of_seed = {run.seed: run for run in base}
        gains, ratios = [], []
        for run in found:
            other = of_seed.get(run.seed)
            if other is not None:
                ratios.append(run.times.per_step / other.times.per_step)
                if run.held and other.held and run.held[-1][0] == other.held[-1][0]:
                    gains.append(other.held[-1][1] - run.held[-1][1])
        minutes = [minutes_of(run) for run in found]
        part = [m / mean(published) for m in minutes if published and m is not None]
        seeds = ", ".join(str(run.seed) for run in found)
        last_steps = {int(run.held[-1][0]) if run.held else 0 for run in found}
        cells = [
            row,
            change_of(row, num_train_steps),
            seeds,
            ", ".join(map(str, sorted(last_steps))),
        ]
        cells += [spread([run.held[-1][1] for run in found if run.held], 3), spread(gains, 3)]
        cells += [reached([first_step_below(run.held, loss) for run in found], 0)]
        cells += [reached(minutes, 1), spread(part, 2)]
        cells += [spread([1000 * run.times.per_step for run in found], 0), spread(ratios, 2)]
        cells += [spread([run.times.tokens_per_second for run in found], 0)]
        cells += [spread([run.tokens_per_second() for run in found], 0)]
        rows.append([*cells, spread([run.times.total / 60 for run in found], 1)])
    yield from table(header, rows)


def plateau_table(runs: Mapping[str, list[Run]], loss: float) -> Iterator[str]:
    """Yield the table of the first steps below a loss."""
    header = [
        "row",
        "seeds",
        f"held out: first step below {loss}",
        "processor minutes",
        "in training",
    ]
    rows = []
    for row, found in runs.items():
        steps = [first_step_below(run.held, loss) for run in found]
        trained = [first_step_below(run.training, loss) for run in found]
        minutes = [
            run.times.seconds_until(step) / 60
            for run, step in zip(found, steps, strict=True)
            if step is not None
        ]
        cells = [row, ", ".join(str(run.seed) for run in found), listed(steps)]
        rows.append([*cells, spread(minutes, 1) or "-", listed(trained)])
    yield from table(header, rows)


def listed(steps: list[float | None]) -> str:
    """Return the steps with commas between them."""
    return ", ".join("-" if step is None else f"{step:.0f}" for step in steps)


def fine_tuning_table(
    runs: Mapping[str, list[Run]], tasks: list[str], seeds: list[int], args: argparse.Namespace
) -> Iterator[str]:
    """Yield the table of fine-tuned encoders, of runs whose fine-tuning is finished."""
    rows = []
    for row, found in runs.items():
        cells = [row, ", ".join(str(run.seed) for run in found)]
        for task in tasks:
            metric = TASKS[task][1]
            values = [
                tune(run, task, seed, args)
                for run in found
                for seed in seeds
                if metric in read_results(fine_tuned_folder(run.folder, task, seed))
            ]
            cells.append(f"{spread(values, 1)} ({len(values)})" if values else "-")
        rows.append(cells)
    yield from table(["row", "seeds", *(f"{task} (runs)" for task in tasks)], rows)


def tune(run: Run, task: str, seed: int, args: argparse.Namespace) -> float:
    """Fine-tune the encoder of a run, unless that is finished. Return the metric in percent."""
    return fine_tune(
        run.folder,
        task,
        seed,
        data_dir=args.data_dir,
        max_seq_length=TOKENS,
        precision=args.precision,
    )


def names(text: str, known: Mapping[str, object]) -> list[str]:
    """Split a comma list, and raise unless all parts are known."""
    parts = [part for part in text.split(",") if part]
    if unknown := [part for part in parts if part not in known]:
        raise ValueError(f"Unknown {', '.join(unknown)}. Known are {', '.join(known)}.")
    return parts


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output_dir", required=True)
    parser.add_argument("--text", default=str(TEXT))
    parser.add_argument("--data_dir", default=str(DATA_DIR), help="of the fine-tuning")
    parser.add_argument("--size", default="4,256,4", help="layers, hidden size, heads")
    parser.add_argument("--precision", default="mixed_bfloat16")
    parser.add_argument(
        "--rows", default=",".join(ROWS), help="comma list of ROWS; none: tables only"
    )
    parser.add_argument("--seeds", default="1", help="of the pre-training, comma list")
    parser.add_argument("--num_train_steps", type=int, help="of all rows; default: those of ROWS")
    parser.add_argument("--stop_step", type=int, help="of each run, to compare beginnings")
    parser.add_argument("--evaluate_steps", type=int, default=250)
    parser.add_argument(
        "--tasks", default="sst-2,mrpc,squad", help="comma list; none: not fine-tuned"
    )
    parser.add_argument("--fine_tuning_seeds", default="1,2,3", help="comma list")
    parser.add_argument("--loss", type=float, help="to reach; default: see above")
    parser.add_argument("--plateau_loss", type=float, default=6.5)
    args = parser.parse_args()
    folder, rows, tasks = Path(args.output_dir), names(args.rows, ROWS), names(args.tasks, TASKS)
    seeds = [int(seed) for seed in args.fine_tuning_seeds.split(",") if seed]
    check_arguments(
        folder,
        {
            "text": digest(args.text),
            "size": args.size,
            "precision": args.precision,
            "data_dir": str(Path(args.data_dir).resolve()),
        },
    )
    if rows:
        has_phases = any("phases" in flags_of(row, None) for row in rows)
        lengths = [FIRST_TOKENS, TOKENS] if has_phases else [TOKENS]
        vocab_file = make_data(args.text, folder, lengths)
    failed = [
        f"{row} with seed {seed}"
        for seed in map(int, args.seeds.split(","))
        for row in rows
        if not pretrain(row, seed, args, vocab_file)
    ]
    runs = read_runs(args)
    lines = loss_table(runs, find_loss(args, runs), args.num_train_steps)
    print("\nloss\n", *lines, sep="\n")
    print("\nplateau\n", *plateau_table(runs, args.plateau_loss), sep="\n", flush=True)
    for row in rows:
        for run in runs.get(row, ()):
            for task, seed in product(tasks if is_complete(run, row, args) else (), seeds):
                about = {"row": row, "seed": run.seed, "task": task, "fine-tuning seed": seed}
                value = round(tune(run, task, seed, args), 2)
                print(json.dumps({**about, "value": value}), file=sys.stderr, flush=True)
    if tasks:
        print("\nfine-tuning\n", *fine_tuning_table(runs, tasks, seeds, args), sep="\n")
    if failed:
        sys.exit(f"These runs failed: {', '.join(failed)}.")


if __name__ == "__main__":
    main()
