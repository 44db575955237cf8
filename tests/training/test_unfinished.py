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
    read_note,
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


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"earlier": [{"seed": 1}]}, r"`earlier` contains {'seed': 1}, but .* with `step`\. Corr"),
        ({"earlier": [3]}, r"`earlier` contains 3, but each part must be a JSON object"),
        ({"earlier": [{"step": "3"}]}, r"`step` is '3', but must be a whole number"),
        ({"earlier": [{"step": 3, "used": []}]}, r"`used` is '\[\]', but must be a JSON object"),
        (
            {"earlier": [{"step": 3, "data": [["a"]]}]},
            r"`data` contains \['a'\], but .*two strings",
        ),
        ({"data": [["a", 1]]}, r"`data` contains \['a', 1\], but each row must be a list of two"),
        ({"data": ["ab"]}, r"`data` contains 'ab', but"),
        ({"flags": {"init_checkpoint": 5}}, r"`init_checkpoint` is '5', but must be a string"),
        ({"steps": [1]}, r"`steps` is '\[1\]', but must be a whole number"),
    ],
)
def test_a_damaged_note_is_an_error_with_its_file_and_key(tmp_path, values, message):
    (tmp_path / TRAINING_FILE).write_text(json.dumps(values))
    with pytest.raises(ValueError, match=rf"training\.json: {message}"):
        read_note(str(tmp_path))


def test_null_in_a_note_is_the_same_as_no_key(tmp_path):
    part = {"step": 3, "used": None, "data": None}
    (tmp_path / TRAINING_FILE).write_text(json.dumps({"flags": None, "earlier": [part]}))
    assert read_note(str(tmp_path)) == {"earlier": [{"step": 3}]}
