"""Named sets of flags of run_pretraining.

`paper` changes nothing: the defaults are those of the reference. A flag that is given has precedence
over the recipe's.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

logger = logging.getLogger(__name__)

RECIPES: dict[str, dict[str, Any]] = {
    "paper": {},
    "2026": {
        "optimizer": "muon",
        "adam_beta2": 0.98,
        "hidden_dropout": 0.0,
        "attention_dropout": 0.0,
    },
}


def with_recipe(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that are given, and those of their `recipe`. Log the latter as flags."""
    recipe = given.get("recipe", "paper")
    added = {name: value for name, value in RECIPES.get(recipe, {}).items() if name not in given}
    if added:
        flags = " ".join(f"--{name}={value}" for name, value in added.items())
        logger.info("--recipe=%s adds %s", recipe, flags)
    return {**added, **given}
