"""Examples of embeddings about animals, and the options of a run on them."""

import random

import pytest
from tiny_runs import ANIMALS, PLACES, moods
from tiny_words_and_choices import write_json_lines


def pairs(num_rows, seed):
    """Anchors with an animal, and a positive with the same one."""
    rng = random.Random(seed)
    rows = []
    for _ in range(num_rows):
        animal = rng.choice(ANIMALS)
        positive = f"the {animal} is in the {rng.choice(PLACES)}"
        rows.append({"anchor": f"a {animal}", "positive": positive})
    return rows


def scored(num_rows, seed):
    rng = random.Random(seed)
    rows = []
    for _ in range(num_rows):
        first, second = rng.choices(ANIMALS, k=2)
        rows.append({"text_a": f"a {first}", "text_b": f"the {second}", "score": first == second})
    return [{**row, "score": float(row["score"]) * 0.8 + 0.1} for row in rows]


def classes(num_rows, seed):
    return [{"text": text, "label": label} for text, label in moods(num_rows, seed)]


def options(output_dir, **changes):
    from bert_tf.finetuning.embeddings_options import EmbeddingOptions

    values = {
        "output_dir": str(output_dir),
        "max_seq_length": 15,
        "train_batch_size": 16,
        "learning_rate": 5e-3,
        "jit_compile": "false",
        "seed": 3,
    }
    return EmbeddingOptions(**{**values, **changes})


@pytest.fixture(scope="session")
def embedding_files(tmp_path_factory):
    """File of each kind of examples: name -> training file, evaluation file."""
    folder = tmp_path_factory.mktemp("data")
    makers = {"pairs": pairs, "scores": scored, "classes": classes}
    return {
        name: [
            write_json_lines(folder / f"{name}{seed}.jsonl", make(rows, seed))
            for seed, rows in ((1, 64), (2, 24))
        ]
        for name, make in makers.items()
    }


def write(path, text):
    path.write_text(text)
    return str(path)
