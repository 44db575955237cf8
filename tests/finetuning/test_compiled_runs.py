"""The programs with --jit_compile=auto. Other tests switch compilation off, because it takes longer."""

import json

import pytest
from tiny_runs import pretraining_options, sentence_options
from tiny_squad import squad_options
from tiny_words_and_choices import ner_training, swag_options

from bert_tf.finetuning.classification import run_classifier
from bert_tf.finetuning.multiple_choice import run_swag
from bert_tf.finetuning.question_answering import run_squad
from bert_tf.finetuning.token_classification import run_ner
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


def squad(fixture, folder, **changes):
    changes |= {"do_train": True, "train_file": str(fixture("squad_sets") / "train.json")}
    changes |= {"init_checkpoint": str(fixture("pretrained")), "num_train_epochs": 2 * 16 / 160}
    run_squad(squad_options(folder, **changes))


def ner(fixture, folder, **changes):
    changes["num_train_epochs"] = 2 * 16 / 90
    run_ner(ner_training(fixture("pretrained"), fixture("conll_folder"), folder, **changes))


def swag(fixture, folder, **changes):
    changes |= {"do_train": True, "train_file": fixture("choice_files")["train_file"]}
    changes |= {"init_checkpoint": str(fixture("pretrained")), "num_train_epochs": 2 * 16 / 90}
    run_swag(swag_options(folder, **changes))


SLOW = [
    pytest.param(pretraining, marks=pytest.mark.slow),
    *(pytest.param(program, marks=pytest.mark.long) for program in (squad, ner, swag)),
]


@pytest.mark.parametrize("program", [classifier, *SLOW])
def test_a_compiled_run_has_the_losses_of_an_uncompiled_one(program, request, tmp_path):
    losses = []
    for jit_compile in ("auto", "false"):
        folder = tmp_path / jit_compile
        program(request.getfixturevalue, folder, jit_compile=jit_compile)
        lines = (folder / "metrics.jsonl").read_text().splitlines()
        losses.append([json.loads(line)["loss"] for line in lines])
    assert len(losses[0]) == 2
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
