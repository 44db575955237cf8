"""The best weights of a run, separate from the newest ones.

output_dir/best/
  model.ckpt-N, checkpoint      weights without the optimizer's moments
  best.json                     {"metric": "masked_lm_loss", "value": 2.1, "step": 3000, "since": 0,
                                "seen": 3000}
  bert_config.json, ...         the files of checkpoints/write.py; the folder works alone
"""

from __future__ import annotations

import json
import logging
import math
import os
from collections.abc import Collection, Mapping

import numpy as np
import tensorflow as tf

from bert_tf.checkpoints.write import CONFIG_FILES
from bert_tf.files import atomic_path, write_text
from bert_tf.limits import read_json, suggestion
from bert_tf.options import OptionError
from bert_tf.training import checkpoints
from bert_tf.training.loop import TrainLoop

logger = logging.getLogger(__name__)

FOLDER = "best"
_STATE_FILE = "best.json"


def check_best_metric(metric: str | None, known: Collection[str] | None) -> None:
    """Raise ValueError unless a metric is among those of an evaluation; None for either passes."""
    if metric is None or known is None or metric in known:
        return
    end = ", ".join(known) + suggestion(metric, known)
    raise OptionError("best_metric", f"{metric}, but must be one of {end}")


class BestCheckpoint:
    """The weights of the best evaluation so far. An interrupted run resumes with its record.

    Args:
        lower_is_better: True if lower values are better. NaN is the worst value.
        is_new_run: True before the first checkpoint of a run; an earlier run's record does not count.
        patience: evaluations without a better value that end the training; 0: any number.
    """

    def __init__(
        self,
        output_dir: str,
        metric: str,
        lower_is_better: bool = False,
        is_new_run: bool = False,
        patience: int = 0,
    ):
        self.metric, self.patience = metric, patience
        self._sign = -1 if lower_is_better else 1
        self.folder = os.path.join(output_dir, FOLDER)
        self._output_dir = output_dir
        self._state: dict = {}
        self.is_new_run = is_new_run
        path = os.path.join(self.folder, _STATE_FILE)
        if tf.io.gfile.exists(path) and not is_new_run:
            self._state = read_json(path)
            if self._state.get("metric") != metric:
                raise OptionError(
                    "best_metric", f"{metric}, but {path} is for {self._state.get('metric')}."
                )

    @property
    def evaluations_since(self) -> int:
        """Evaluations in a row without a better value."""
        return self._state.get("since", 0)

    @property
    def is_over(self) -> bool:
        """True after `patience` evaluations without a better value, earlier processes included."""
        return 0 < self.patience <= self.evaluations_since

    def has_seen(self, step: int) -> bool:
        """Return True if an evaluation of this step, or of a later one, was offered."""
        return step <= self._state.get("seen", -1)

    def offer(self, results: Mapping[str, float], trainer: TrainLoop) -> None:
        """Keep the trainer's weights if `results`, an evaluation of them, are the best so far."""
        check_best_metric(self.metric, [name for name in results if name != "global_step"])
        value, step = float(results[self.metric]), trainer.step
        if self.has_seen(step):
            return  # evaluated again after an interruption
        best = self._state.get("value")
        if best is None or self._score(value) > self._score(best):
            self._state = {"metric": self.metric, "value": value, "step": step, "since": 0}
            if trainer.is_chief:
                self._write_weights(trainer)
            best = "lowest" if self._sign < 0 else "highest"
            text = "step %d: the %s %s so far, %.4g; kept in %s"
            logger.info(text, step, best, self.metric, value, self.folder)
        else:
            self._state["since"] += 1
        self._state["seen"] = step
        if trainer.is_chief:
            write_text(os.path.join(self.folder, _STATE_FILE), json.dumps(self._state) + "\n")

    def _score(self, value: float) -> float:
        return -math.inf if math.isnan(value) else self._sign * value

    def _write_weights(self, trainer: TrainLoop) -> None:
        variables = checkpoints.training_variables(trainer.model)
        variables[checkpoints.GLOBAL_STEP] = np.int64(trainer.step)
        checkpoints.save_checkpoint(self.folder, variables, trainer.step, keep_max=1)
        for name in CONFIG_FILES:
            source = os.path.join(self._output_dir, name)
            if tf.io.gfile.exists(source):
                with atomic_path(os.path.join(self.folder, name)) as target:
                    tf.io.gfile.copy(source, target, overwrite=True)
