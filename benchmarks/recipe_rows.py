"""The recipes that recipes.py compares: flags of run_pretraining, by the name of a row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

TOKENS, FIRST_TOKENS = 64, 32


@dataclass(frozen=True)
class Row:
    """A recipe.

    Args:
        base: name of the row that it changes; None if it has all flags.
        flags: of run_pretraining.
        initializer_range: in bert_config.json; default: the one of `base`.
    """

    base: str | None
    flags: Mapping[str, Any]
    initializer_range: float | None = None


SCHEDULE = {"num_train_steps": 4500, "num_warmup_steps": 200, "learning_rate": 7e-4}
PUBLISHED = {
    "num_train_steps": 8000,
    "num_warmup_steps": 800,
    "learning_rate": 7e-4,
    "optimizer": "adamw",
    "adam_beta2": 0.98,
}
NO_DROPOUT = {"hidden_dropout": 0, "attention_dropout": 0}
FALLING_MASKS = {"masked_lm_prob": 0.3, "masked_lm_prob_end": 0.15}  # for at most 0.3 x 64 tokens
STABLE = {"lr_schedule": "warmup_stable_decay", "num_decay_steps": 900}
PHASES = {"phases": f"{FIRST_TOKENS}:0.5,{TOKENS}:0.5", "scale_phase_batches": True}
FASTER = {"learning_rate": 1.5e-3}
ROWS = {
    "published": Row(None, PUBLISHED),
    "base": Row(None, {**SCHEDULE, "optimizer": "adamw"}),
    "no_dropout": Row("base", NO_DROPOUT),
    "adam_beta2": Row("base", {"adam_beta2": 0.98}),
    "muon": Row("base", {"optimizer": "muon"}),
    "stable_adamw": Row("base", {"optimizer": "stable_adamw"}),
    "faster": Row("base", FASTER),
    "falling_masks": Row("base", FALLING_MASKS),
    "warmup_stable_decay": Row("base", STABLE),
    "phases": Row("base", PHASES),
    "z_loss": Row("base", {"z_loss": 1e-4}),
    "warmup": Row("base", {"num_warmup_steps": 450}),
    "initializer": Row("base", {}, initializer_range=0.007),  # 0.02 / sqrt(2 x 4 layers)
    "muon_faster": Row("muon", FASTER),
    "muon_no_dropout": Row("muon", NO_DROPOUT),
    "2026": Row(None, {**SCHEDULE, "recipe": "2026"}),
    "2026_faster": Row("2026", FASTER),
    "2026_falling_masks": Row("2026_faster", FALLING_MASKS),
    "2026_phases": Row("2026_faster", PHASES),
}
# Rows that the losses of others are compared with, if `base` of the row is None.
COMPARED = {"2026": "muon_no_dropout", "base": "published"}


def flags_of(row: str, num_train_steps: int | None) -> dict[str, Any]:
    """Return the flags of a row. Warm-up and decay keep their fractions of the steps."""
    base = ROWS[row].base
    flags = {**(flags_of(base, None) if base else {}), **ROWS[row].flags}
    if num_train_steps is not None:
        ratio = num_train_steps / flags["num_train_steps"]
        for name in ("num_warmup_steps", "num_decay_steps"):
            if name in flags:
                flags[name] = max(1, round(flags[name] * ratio))
        flags["num_train_steps"] = num_train_steps
    return flags


def initializer_of(row: str | None) -> dict[str, object]:
    """Return the change of bert_config.json."""
    while row is not None:
        if (value := ROWS[row].initializer_range) is not None:
            return {"initializer_range": value}
        row = ROWS[row].base
    return {}


def change_of(row: str, num_train_steps: int | None) -> str:
    """Return what a row changes, or all flags of a row that changes none."""
    base = ROWS[row].base
    flags = dict(ROWS[row].flags) if base else flags_of(row, num_train_steps)
    if ROWS[row].initializer_range is not None:
        flags["initializer_range"] = ROWS[row].initializer_range
    listed = " ".join(f"{name}={value}" for name, value in flags.items())
    return f"{base}, {listed}" if base else listed
