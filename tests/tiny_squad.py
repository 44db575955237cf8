"""Runs of run_squad on made-up sentences, made once per run of pytest and shared by the tests.

squad_sets     files of both versions
squad_model    run_squad from `pretrained`, on SQuAD 1.1
squad2_model   the same on SQuAD 2.0
"""

import json
import random
from pathlib import Path

import pytest
from tiny_runs import ANIMALS, PLACES

from bert_tf.finetuning.question_answering import SquadOptions, run_squad


def write_squad(path, num_questions, seed, impossible=0.0, labeled=True):
    """Two animals in two places, and where one of them is; or where one is that is not named."""
    rng = random.Random(seed)
    paragraphs = []
    for number in range(num_questions):
        first, second, third = rng.sample(ANIMALS, 3)
        here, there = rng.sample(PLACES, 2)
        context = f"The {first} is in the {here}. The {second} is in the {there}."
        qa = {"id": f"q{number}", "question": f"the {first} in the"}
        qa["answers"] = [{"text": here, "answer_start": context.index(f" {here}.") + 1}]
        if impossible:
            qa["is_impossible"] = rng.random() < impossible
            if qa["is_impossible"]:
                qa |= {"question": f"the {third} in the", "answers": []}
        if not labeled:
            qa = {"id": qa["id"], "question": qa["question"]}
        paragraphs.append({"context": context, "qas": [qa]})
    Path(path).write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}))
    return str(path)


def squad_options(output_dir, **changes):
    values = {
        "output_dir": str(output_dir),
        "max_seq_length": 31,
        "max_query_length": 8,
        "doc_stride": 8,
        "train_batch_size": 16,
        "learning_rate": 5e-3,
        "jit_compile": "false",
    }
    return SquadOptions(**{**values, **changes})


@pytest.fixture(scope="session")
def squad_sets(once):
    """Folder with SQuAD files of both versions."""

    def make(folder):
        write_squad(folder / "train.json", 160, seed=1)
        write_squad(folder / "dev.json", 30, seed=2)
        write_squad(folder / "test.json", 9, seed=3, labeled=False)
        write_squad(folder / "train2.json", 160, seed=4, impossible=0.4)
        write_squad(folder / "dev2.json", 30, seed=5, impossible=0.4)

    return once("squad", make)


@pytest.fixture(scope="session")
def squad_model(pretrained, squad_sets, once):
    """--output_dir of a run of SQuAD 1.1 that trained, was evaluated while it did, and answered."""

    def make(folder):
        run_squad(
            squad_options(
                folder,
                init_checkpoint=str(pretrained),
                do_train=True,
                do_predict=True,
                train_file=str(squad_sets / "train.json"),
                predict_file=str(squad_sets / "dev.json"),
                num_train_epochs=10.0,
                evaluate_steps=60,
            )
        )

    return once("squad_model", make)


@pytest.fixture(scope="session")
def squad2_model(pretrained, squad_sets, once):
    """The same of SQuAD 2.0."""

    def make(folder):
        run_squad(
            squad_options(
                folder,
                init_checkpoint=str(pretrained),
                do_train=True,
                do_predict=True,
                train_file=str(squad_sets / "train2.json"),
                predict_file=str(squad_sets / "dev2.json"),
                num_train_epochs=10.0,
                version_2_with_negative=True,
            )
        )

    return once("squad2_model", make)
