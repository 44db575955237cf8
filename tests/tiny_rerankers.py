"""Rows for run_reranker, and a run on them, made once per run of pytest and shared by the tests.

    ranking_files    name -> JSON-lines file
    reranker         run_reranker from `pretrained` on `train`

No test may change what is in these files.
"""

import pytest
from tiny_embeddings import pairs, scored
from tiny_runs import moods
from tiny_words_and_choices import write_json_lines


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


@pytest.fixture(scope="session")
def ranking_files(once):
    def make(folder):
        write_json_lines(folder / "train.jsonl", with_moods(64, seed=1))
        write_json_lines(folder / "dev.jsonl", with_moods(24, seed=2))
        write_json_lines(folder / "plain.jsonl", pairs(24, seed=1))
        write_json_lines(folder / "scores.jsonl", scored(64, seed=3))

    folder = once("ranking_files", make)
    return {path.stem: str(path) for path in folder.iterdir()}


@pytest.fixture(scope="session")
def reranker(pretrained, ranking_files, once):
    from bert_tf.finetuning.reranking import run_reranker

    files = {"train_file": ranking_files["train"]}
    files |= dict.fromkeys(("eval_file", "predict_file"), ranking_files["dev"])
    actions = {"do_train": True, "do_eval": True, "do_predict": True, "num_train_epochs": 4.0}
    settings = {"init_checkpoint": str(pretrained), "num_negatives": 1}
    return once(
        "reranker",
        lambda folder: run_reranker(options(folder, **settings, **files, **actions)),
    )
