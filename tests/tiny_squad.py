"""Runs of run_squad on made-up sentences, made once per run of pytest and shared by the tests.

squad_sets     files of both versions
squad_model    run_squad from `pretrained`, on SQuAD 1.1
squad2_model   the same on SQuAD 2.0
"""

import json
import random
from pathlib import Path

from tiny_runs import ANIMALS, PLACES

from bert_tf.finetuning.question_answering import SquadOptions


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
