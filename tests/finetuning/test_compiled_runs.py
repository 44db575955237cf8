"""The programs with --jit_compile=auto. Other tests switch compilation off, because it takes longer."""

import json

import pytest
from tiny_runs import pretraining_options, sentence_options

from bert_tf.finetuning.classification import run_classifier
from bert_tf.programs.run_pretraining import run_pretraining


def pretraining(fixture, folder, **changes):
    """Two steps, as each of the functions below."""
    changes |= {"do_eval": False, "evaluate_steps": 0}
    changes |= {"num_train_steps": 2, "num_warmup_steps": 1}
    run_pretraining(pretraining_options(fixture("records"), fixture("toy_text"), folder, **changes))


def classifier(fixture, folder, **changes):
    changes |= {"do_eval": False, "do_predict": False, "num_train_epochs": 2 * 16 / 90}
    run_classifier(
        sentence_options(fixture("pretrained"), fixture("mood_tables"), folder, **changes)
    )


@pytest.mark.parametrize("program", [classifier, pytest.param(pretraining, marks=pytest.mark.slow)])
def test_a_compiled_run_has_the_losses_of_an_uncompiled_one(program, request, tmp_path):
    losses = []
    for jit_compile in ("auto", "false"):
        folder = tmp_path / jit_compile
        program(request.getfixturevalue, folder, jit_compile=jit_compile)
        lines = (folder / "metrics.jsonl").read_text().splitlines()
        losses.append([json.loads(line)["loss"] for line in lines])
    assert len(losses[0]) == 2
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
