"""Examples of embeddings about animals, and the options of a run on them."""

import random

from tiny_runs import ANIMALS, PLACES, moods


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


def write(path, text):
    path.write_text(text)
    return str(path)
