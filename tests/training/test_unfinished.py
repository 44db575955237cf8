"""Warnings about a folder whose training runs or was interrupted."""

import json
import os

import numpy as np
import pytest

from bert_tf.training import unfinished
from bert_tf.training.checkpoints import save_checkpoint
from bert_tf.training.unfinished import (
    LAST_STEP,
    TRAINING_FILE,
    warn_if_unfinished,
)


@pytest.fixture
def folder(tmp_path):
    save_checkpoint(str(tmp_path), {"kernel": np.zeros(2)}, 60)
    return tmp_path


def plan(folder, **values):
    (folder / TRAINING_FILE).write_text(json.dumps({"optimizer": "adam", **values}))


def test_an_interrupted_training_is_named_with_its_steps(folder, caplog):
    plan(folder, **{LAST_STEP: 750})
    warn_if_unfinished(str(folder))
    assert caplog.messages == [
        f"{folder}: training has reached step 60 of 750. The same training command continues it."
    ]


def test_a_complete_training_or_an_unknown_end_has_no_warning(folder, caplog):
    warn_if_unfinished(str(folder))  # such as best/
    for values in ({LAST_STEP: 60}, {LAST_STEP: None}, {}):
        plan(folder, **values)
        warn_if_unfinished(str(folder))
    warn_if_unfinished("hf://org/name")
    warn_if_unfinished(str(folder / "missing"))
    assert caplog.messages == []


@pytest.mark.parametrize("last, reached", [(60, "step 60."), (750, "step 60 of 750.")])
def test_a_running_training_is_named_with_its_process(folder, caplog, monkeypatch, last, reached):
    plan(folder, **{LAST_STEP: last})
    monkeypatch.setattr(
        unfinished, "lock_holder", {os.path.join(folder, ".training.lock"): "4711"}.get
    )
    warn_if_unfinished(str(folder))
    (message,) = caplog.messages
    assert f"process 4711 is training in this folder; training has reached {reached}" in message
