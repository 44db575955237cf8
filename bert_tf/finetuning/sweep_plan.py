"""Runs that --seeds and --grid plan: each setting of the grid with each seed."""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass, replace
from typing import Any

from bert_tf.finetuning.classification_options import ClassifierOptions

# Devlin et al. 2019, appendix A.3.
PAPER_GRID = "train_batch_size=16,32;learning_rate=5e-5,3e-5,2e-5;num_train_epochs=2,3,4"
_GRID_FIELDS = {
    "learning_rate": float,
    "train_batch_size": int,
    "num_train_epochs": float,
    "warmup_proportion": float,
    "weight_decay_rate": float,
    "layer_lr_decay": float,
    "max_seq_length": int,
    "temperature": float,
    "hard_labels": float,
}


@dataclass(frozen=True)
class PlannedRun:
    """A run: its name, its setting, and its options."""

    name: str
    setting: dict[str, Any]  # of the grid, without the seed
    options: ClassifierOptions

    @property
    def result_file(self) -> str:
        return os.path.join(self.options.output_dir, "result.json")


def parse_grid(text: str) -> list[dict[str, Any]]:
    """Return the combinations of --grid.

    >>> parse_grid("learning_rate=5e-5,3e-5;num_train_epochs=2")[1]
    {'learning_rate': 3e-05, 'num_train_epochs': 2.0}

    Raises:
        ValueError: a part is not flag=value,value with a supported flag, or a value occurs twice.
    """
    values: dict[str, list] = {}
    for part in (PAPER_GRID if text == "paper" else text).split(";"):
        name, _, listed = (piece.strip() for piece in part.partition("="))
        if name not in _GRID_FIELDS or not listed or name in values:
            raise ValueError(
                f"`grid`: {part!r} is not flag=value,value, each flag once, of the flags "
                f"{', '.join(_GRID_FIELDS)}. Or use grid=paper: '{PAPER_GRID}'"
            )
        try:
            values[name] = [_GRID_FIELDS[name](value) for value in listed.split(",")]
        except ValueError as error:
            raise ValueError(f"`grid`: {listed!r} is not a list of numbers for {name}.") from error
        if len(set(values[name])) < len(values[name]):
            raise ValueError(
                f"`grid`: {name}={listed} has a value twice. Give each value of a flag once."
            )
    return [dict(zip(values, row, strict=True)) for row in itertools.product(*values.values())]


def plan(options: ClassifierOptions) -> list[PlannedRun]:
    """Return all runs: each setting of the grid with each seed.

    Raises:
        ValueError: the grid cannot be parsed, or a value is out of its flag's range.
    """
    runs = []
    cache = options.feature_cache_dir or os.path.join(options.output_dir, "runs", "features")
    for setting in parse_grid(options.grid) if options.grid else [{}]:
        for seed in range(options.seed, options.seed + options.seeds):
            parts = [f"{name}-{_shown(value)}" for name, value in setting.items()]
            name = "_".join([*parts, f"seed-{seed}"])
            changed = replace(
                options,
                **setting,
                seed=seed,
                seeds=1,
                grid=None,
                do_predict=False,
                predict_file=None,
                report=False,
                output_dir=os.path.join(options.output_dir, "runs", name),
                feature_cache_dir=cache,
            )
            runs.append(PlannedRun(name, setting, changed))
    return runs


def _shown(value: float) -> str:
    """Return a number in a folder's name: 6 digits, or all if it has more."""
    short = f"{value:g}"
    return short if float(short) == value else repr(value)
