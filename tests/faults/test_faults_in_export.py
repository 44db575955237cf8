"""Export and prediction are killed, or have no room: nothing half written takes the place of a whole."""

import random

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text  # noqa: F401  (operations of the exported model)
from fault_runs import (
    assert_clear_error,
    kill_after,
    run,
    run_whole,
    under_fault,
)
from tiny_runs import script_command

pytestmark = pytest.mark.night

TEXTS = ["the happy cat in the barn", "", "a sad owl"]


def answers(export_dir):
    model = tf.saved_model.load(str(export_dir))
    return model.signatures["serving_default"](tf.constant(TEXTS))["probabilities"].numpy()


@pytest.fixture(scope="module")
def command(sentence_model):
    return lambda folder: script_command(
        "export_saved_model", model_dir=sentence_model, export_dir=folder
    )


@pytest.mark.weekly
def test_no_room_for_an_export(command, exported, tmp_path, fault_seed):
    folder = tmp_path / "1"
    limit = random.Random(fault_seed).randint(2_000, 30_000)
    assert_clear_error(run(under_fault(command(folder), "file_size_limit", limit)), str(folder))
    assert not any(tmp_path.iterdir())
    run_whole(command(folder))
    np.testing.assert_allclose(answers(folder), answers(exported.single), rtol=0, atol=1e-6)


@pytest.fixture(scope="module")
def prediction(sentence_model, tmp_path_factory):
    """Output file -> the command, on lines that take seconds."""
    lines = tmp_path_factory.mktemp("lines") / "lines.txt"
    lines.write_text("".join(f"the happy cat in barn {i}\n" for i in range(30_000)))
    return lambda file: script_command(
        "predict", model_dir=sentence_model, input_file=lines, output_file=file
    )


@pytest.fixture(scope="module")
def predicted(prediction, tmp_path_factory):
    file = tmp_path_factory.mktemp("predicted") / "whole.jsonl"
    run_whole(prediction(file))
    return file.read_bytes()


@pytest.mark.weekly
def test_prediction_killed_at_a_random_moment(prediction, predicted, tmp_path, fault_seed):
    rng, file = random.Random(fault_seed), tmp_path / "answers.jsonl"
    kill_after(prediction(file), lambda: any(tmp_path.iterdir()), rng.random())
    if file.exists():  # it is whole, for it has its name
        assert file.read_bytes() == predicted
    run_whole(prediction(file))
    assert file.read_bytes() == predicted
    assert [path.name for path in tmp_path.iterdir()] == ["answers.jsonl"]
