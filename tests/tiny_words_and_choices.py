"""Runs of run_ner and run_swag on a few dozen sentences, made once per run of pytest and shared
by the tests.

    conll_folder    train.txt, valid.txt, test.txt in CoNLL columns
    ner_model       run_ner from `pretrained` on them
    crf_model       the same with --crf
    choice_files    flag -> JSON-lines file with questions
    swag_model      run_swag from `pretrained` on them

Fixtures return folders; no test may change what is in them.
"""

import json
import random
from pathlib import Path

from tiny_runs import ANIMALS, BAD, GOOD, PLACES


def conll(num_sentences: int, seed: int) -> str:
    """Sentences in which the animals are of type A and "the" with its place is of type B (IOB2)."""
    rng = random.Random(seed)
    blocks = []
    for _ in range(num_sentences):
        rows = [("a", "O"), (rng.choice(ANIMALS), "B-A"), ("is", "O"), ("in", "O")]
        rows += [("the", "B-B"), (rng.choice(PLACES), "I-B")]
        blocks.append("".join(f"{word} x {label}\n" for word, label in rows))
    return "\n".join(blocks)


def ner_options(output_dir, **changes):
    """`NerOptions` of the toy runs, with `changes`."""
    from bert_tf.finetuning.token_classification import NerOptions

    values = {
        "output_dir": str(output_dir),
        "max_seq_length": 19,
        "train_batch_size": 16,
        "learning_rate": 5e-3,
        "jit_compile": "false",
    }
    return NerOptions(**{**values, **changes})


def ner_training(pretrained, data_dir, output_dir, **changes):
    """Options of the run that makes `ner_model`, with `changes`."""
    values = {"data_dir": str(data_dir), "init_checkpoint": str(pretrained), "do_train": True}
    return ner_options(output_dir, **{**values, "num_train_epochs": 8.0, **changes})


def questions(num_rows: int, seed: int) -> list[dict]:
    """The kind animal is the right one; two to four choices."""
    rng = random.Random(seed)
    rows = []
    for number in range(num_rows):
        num_choices = rng.randint(2, 4)
        right = rng.randrange(num_choices)
        choices = [
            f"the {rng.choice(GOOD if index == right else BAD)} {rng.choice(ANIMALS)}"
            for index in range(num_choices)
        ]
        rows.append({"id": number, "text_a": "in the barn", "choices": choices, "label": right})
    return rows


def write_json_lines(path: Path, rows) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def read_json_lines(path) -> list:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def swag_options(output_dir, **changes):
    """`SwagOptions` of the toy runs, with `changes`."""
    from bert_tf.finetuning.multiple_choice import SwagOptions

    values = {
        "output_dir": str(output_dir),
        "max_seq_length": 19,
        "train_batch_size": 16,
        "learning_rate": 5e-3,
        "jit_compile": "false",
    }
    return SwagOptions(**{**values, **changes})
