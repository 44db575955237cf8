"""Rows for run_reranker, and a run on them, made once per run of pytest and shared by the tests.

    ranking_files    name -> JSON-lines file
    reranker         run_reranker from `pretrained` on `train`

No test may change what is in these files.
"""

from tiny_embeddings import pairs
from tiny_runs import moods


def options(output_dir, **changes):
    from bert_tf.finetuning.reranking import RerankerOptions

    values = {
        "output_dir": str(output_dir),
        "max_seq_length": 23,
        "train_batch_size": 16,
        "learning_rate": 5e-3,
        "jit_compile": "false",
    }
    return RerankerOptions(**{**values, **changes})


def with_moods(num_rows, seed):
    """Anchors with a positive in a good mood and a negative in a bad one."""
    texts = {"good": [], "bad": []}
    for text, label in moods(4 * num_rows, seed):
        texts[label].append(text)
    rows = zip(pairs(num_rows, seed), texts["good"], texts["bad"], strict=False)
    return [{"anchor": row["anchor"], "positive": a, "negative": b} for row, a, b in rows]
