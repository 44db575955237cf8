r"""Run a command with each combination of values of flags, and print mean and deviation of its metrics.

    python run_scripts/sweep.py --output_dir=runs --seed=1,2,3 --learning_rate=5e-5,3e-5 -- \
        python run_scripts/run_classifier.py --task_name=MRPC --data_dir=glue/MRPC \
        --init_checkpoint=uncased_L-12_H-768_A-12 --do_train --do_eval

Flags before `--` have comma lists of values. Each run has a folder of its own, such as
runs/seed=1,learning_rate=5e-5. A folder with eval_results.txt is not run again, so the same command
resumes an interrupted sweep, and more values extend one. A row of the table is a setting; its mean and
standard deviation are over the seeds. The best of several runs is an optimistic estimate.
"""

import itertools
import shlex
import statistics
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

RESULTS = "eval_results.txt"


def parse(arguments: list[str]) -> tuple[Path, dict[str, list[str]], list[str]]:
    """Return the output folder, flag -> values, and the command."""
    if "--" not in arguments:
        sys.exit(__doc__)
    place = arguments.index("--")
    values = {}
    for argument in arguments[:place]:
        name, equals, text = argument.removeprefix("--").partition("=")
        if not (argument.startswith("--") and equals):
            sys.exit(f"error: {argument!r} is not of the form --flag=value,value")
        values[name] = text.split(",")
    output_dir = values.pop("output_dir", None)
    if not output_dir or not values:
        sys.exit("error: give --output_dir and at least one flag with values before --")
    return Path(output_dir[0]), values, arguments[place + 1 :]


def read_metrics(path: Path) -> dict[str, float]:
    """Return the metrics of eval_results.txt, lines of `name = value`."""
    rows = (line.split(" = ") for line in path.read_text(encoding="utf-8").splitlines())
    return {name: float(value) for name, value in rows if name != "global_step"}


def run_all(output_dir: Path, values: dict[str, list[str]], command: list[str]) -> dict:
    """Run what has no results yet. Return setting without seed -> metrics of each seed."""
    metrics = defaultdict(list)
    combinations = list(itertools.product(*values.values()))
    for number, combination in enumerate(combinations, 1):
        settings = dict(zip(values, combination, strict=True))
        name = ",".join(f"{flag}={value}" for flag, value in settings.items())
        results = output_dir / name / RESULTS
        print(f"=== {number} of {len(combinations)}: {name}", flush=True)
        made_by = results.parent / "command.txt"
        if made_by.exists() and made_by.read_text(encoding="utf-8") != shlex.join(command):
            sys.exit(f"error: {made_by} has another command: use another --output_dir")
        results.parent.mkdir(parents=True, exist_ok=True)
        made_by.write_text(shlex.join(command), encoding="utf-8")
        if not results.exists():
            flags = [f"--{flag}={value}" for flag, value in settings.items()]
            done = subprocess.run([*command, *flags, f"--output_dir={results.parent}"])  # noqa: S603
            if done.returncode or not results.exists():
                sys.exit(f"error: {name} failed with code {done.returncode}")
        settings.pop("seed", None)
        setting = ",".join(f"{flag}={value}" for flag, value in settings.items())
        metrics[setting].append(read_metrics(results))
    return metrics


def main() -> None:
    for setting, rows in run_all(*parse(sys.argv[1:])).items():
        print(f"\n{setting or 'all'} ({len(rows)} runs)")
        for name in rows[0]:
            numbers = [row[name] for row in rows]
            deviation = statistics.stdev(numbers) if len(numbers) > 1 else 0.0
            print(f"  {name} = {statistics.mean(numbers):.4f} ± {deviation:.4f}")


if __name__ == "__main__":
    main()
