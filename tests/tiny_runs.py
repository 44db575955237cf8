"""Runs of the programs on a few hundred words, made once per run of pytest and shared by the tests.

    toy_text           a corpus, and the vocabulary that create_vocab learned from it
    pretrained         run_pretraining on its records, with --eval_file
    sentence_model     run_classifier from `pretrained`, on a TSV table of single sentences
    pair_model         run_classifier from `pretrained`, on pairs in the layout of MRPC
    exported           the SavedModels of the last two

Fixtures return folders; no test may change what is in them.
"""

import functools
import json
import os
import random
import socket
import sys
from pathlib import Path

import pytest

ANIMALS = ("cat", "dog", "owl", "hen", "pig")
PLACES = ("barn", "wood", "lake", "yard", "cave")
GOOD, BAD = ("happy", "calm", "kind"), ("angry", "sad", "rude")
MAX_SEQ_LENGTH, MAX_PREDICTIONS = 23, 4

CONFIG = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 31,
    "type_vocab_size": 2,
    "initializer_range": 0.15,
    "hidden_dropout_prob": 0.05,
    "attention_probs_dropout_prob": 0.05,
}


def documents(num_documents: int, seed: int) -> str:
    """Each document has one animal and one place, so that a masked word can be guessed."""
    rng = random.Random(seed)
    text = []
    for _ in range(num_documents):
        animal, place = rng.choice(ANIMALS), rng.choice(PLACES)
        for _ in range(rng.randint(4, 7)):
            mood = rng.choice(GOOD + BAD)
            text.append(f"The {mood} {animal} is in the {place}.")
        text.append("")
    return "\n".join(text)


def moods(num_rows: int, seed: int) -> list[tuple[str, str]]:
    """Sentences, and whether their mood is "bad" or "good"."""
    rng = random.Random(seed)
    rows = []
    for _ in range(num_rows):
        label = rng.choice(("bad", "good"))
        mood = rng.choice(GOOD if label == "good" else BAD)
        rows.append((f"the {mood} {rng.choice(ANIMALS)} in the {rng.choice(PLACES)}", label))
    return rows


def pairs(num_rows: int, seed: int) -> list[tuple[str, str, str]]:
    """Pairs of sentences, and "1" where both are about the barn (else "0")."""
    rng = random.Random(seed)
    rows = []
    for _ in range(num_rows):
        label = rng.choice("01")
        place = "barn" if label == "1" else rng.choice(PLACES[1:])
        first, second = rng.choices(ANIMALS, k=2)
        rows.append((f"the {first} in the {place}", f"a {second} in the {place}", label))
    return rows


def write_mrpc(folder: Path, splits) -> Path:
    """Rows of `pairs` as MRPC's files; `splits` is name -> rows."""
    folder.mkdir(parents=True)
    for name, rows in splits.items():
        first = "index" if name == "test" else "Quality"
        lines = [f"{first}\t#1 ID\t#2 ID\t#1 String\t#2 String"]
        for number, (text_a, text_b, label) in enumerate(rows):
            head = number if name == "test" else label
            lines.append(f"{head}\t{2 * number}\t{2 * number + 1}\t{text_a}\t{text_b}")
        (folder / f"{name}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def write_table(path: Path, rows) -> str:
    """Rows of `moods` as a TSV table with the columns `sentence` and `mood`."""
    lines = ["sentence\tmood", *("\t".join(row) for row in rows)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def read_results(folder: Path) -> dict[str, float]:
    """`eval_results.txt`, in the order of its lines."""
    lines = (folder / "eval_results.txt").read_text().splitlines()
    return {key: float(value) for key, value in (line.split(" = ") for line in lines)}


def checkpoint_arrays(prefix) -> dict:
    """Every tensor of a checkpoint by name."""
    import tensorflow as tf

    reader = tf.train.load_checkpoint(str(prefix))
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


def assert_bit_equal(found: dict, expected: dict) -> None:
    import numpy as np

    assert sorted(found) == sorted(expected)
    for name, array in expected.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)


def script_command(name: str, **flags) -> dict:
    """Arguments of `subprocess.run` and `Popen` for a script with flags.

    Without what importing TensorFlow has put into this process' environment: a shell has none of it.
    """
    environment = {n: v for n, v in os.environ.items() if n != "TF_CPP_MIN_LOG_LEVEL"}
    script = Path(__file__).parents[1] / "run_scripts" / f"{name}.py"
    return {
        "args": [
            sys.executable,
            str(script),
            *(f"--{key}={value}" for key, value in flags.items()),
        ],
        "env": environment | {"PYTHONPATH": os.pathsep.join(sys.path)},
    }


def free_addresses(count: int) -> list[str]:
    """Of this machine, for processes that are to find one another."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    addresses = [f"127.0.0.1:{opened.getsockname()[1]}" for opened in sockets]
    for opened in sockets:
        opened.close()
    return addresses


class Interruption(Exception):
    """What the tests interrupt a training run with."""


def interrupt_at(monkeypatch, step: int) -> None:
    """From here on, training is interrupted after `step`, before its checkpoint is written."""
    from bert_tf.training.progress import MetricsLog

    write = MetricsLog.write

    def interrupting_write(self, kind, now, values, *more):
        write(self, kind, now, values, *more)
        if now >= step:
            raise Interruption(f"at step {now}")

    monkeypatch.setattr(MetricsLog, "write", interrupting_write)


@pytest.fixture
def steps_without_training(monkeypatch):
    """Steps read their batches and are counted, but change no weight: without a graph to trace.

    For tests of files and messages, whose time would go into tracing.
    """
    from bert_tf.training.batch_trainer import BatchTrainer

    def take_steps(trainer, iterator, steps, is_terminated=False):
        for _ in range(steps):
            next(iterator)
        trainer.optimizer.iterations.assign_add(steps)
        return dict.fromkeys(trainer._step.reported, 1.0), None, is_terminated

    monkeypatch.setattr(BatchTrainer, "take_steps", take_steps)


@pytest.fixture(scope="module")
def models_loaded_once():
    """predict and search load a model once for all tests of a module that give the same settings."""
    from bert_tf.predictor import Predictor

    cached = functools.cache(Predictor)
    with pytest.MonkeyPatch.context() as patch:
        for program in ("predict", "search"):
            patch.setattr(f"bert_tf.programs.{program}.Predictor", cached)
        yield


def write_toy_text(folder):
    from bert_tf.programs.create_vocab import VocabularyOptions, create_vocab

    (folder / "train.txt").write_text(documents(40, seed=1), encoding="utf-8")
    (folder / "held_out.txt").write_text(documents(12, seed=2), encoding="utf-8")
    create_vocab(
        VocabularyOptions(input_file=f"{folder}/train.txt", output_dir=str(folder), vocab_size=190)
    )
    config = json.loads((folder / "bert_config.json").read_text()) | CONFIG
    (folder / "bert_config.json").write_text(json.dumps(config))
    (folder / "one_layer.json").write_text(json.dumps(config | {"num_hidden_layers": 1}))


def write_records(text_file: Path, output_file: Path, **changes) -> str:
    """create_pretraining_data with the toy vocabulary; the path of the records."""
    from bert_tf.programs.create_pretraining_data import (
        PretrainingDataOptions,
        create_pretraining_data,
    )

    values = {
        "vocab_file": str(text_file.parent / "vocab.txt"),
        "max_seq_length": MAX_SEQ_LENGTH,
        "max_predictions_per_seq": MAX_PREDICTIONS,
        "dupe_factor": 3,
    }
    create_pretraining_data(
        PretrainingDataOptions(
            input_file=str(text_file), output_file=str(output_file), **{**values, **changes}
        )
    )
    return str(output_file)


def pretraining_options(records, toy_text, output_dir, **changes):
    """`PretrainingOptions` of the run that makes `pretrained`, with `changes`."""
    from bert_tf.programs.run_pretraining import PretrainingOptions

    values = {
        "input_file": records.train,
        "eval_file": records.held_out,
        "bert_config_file": str(toy_text / "bert_config.json"),
        "output_dir": str(output_dir),
        "do_train": True,
        "do_eval": True,
        "max_seq_length": MAX_SEQ_LENGTH,
        "max_predictions_per_seq": MAX_PREDICTIONS,
        "train_batch_size": 16,
        "num_train_steps": 150,
        "num_warmup_steps": 10,
        "learning_rate": 5e-3,
        "jit_compile": "false",
        "save_checkpoints_steps": 60,
        "evaluate_steps": 70,
    } | changes
    if not values["do_eval"]:
        values["eval_file"] = None
    return PretrainingOptions(**values)


def classifier_options(output_dir, **changes):
    """`ClassifierOptions` of the toy runs, with `changes`."""
    from bert_tf.finetuning.classification import ClassifierOptions

    values = {
        "output_dir": str(output_dir),
        "max_seq_length": 19,
        "train_batch_size": 16,
        "learning_rate": 5e-3,
        "jit_compile": "false",
    } | changes
    for action, file in (("do_eval", "eval_file"), ("do_predict", "predict_file")):
        if not values.get(action):
            values[file] = None
    return ClassifierOptions(**values)


def sentence_options(pretrained, mood_tables, output_dir, **changes):
    """`ClassifierOptions` of the run that makes `sentence_model`, with `changes`."""
    values = {
        "train_file": mood_tables.train,
        "eval_file": mood_tables.dev,
        "predict_file": mood_tables.test,
        "text_a_column": "sentence",
        "label_column": "mood",
        "init_checkpoint": str(pretrained),
        "do_train": True,
        "do_eval": True,
        "do_predict": True,
        "num_train_epochs": 12.0,
    }
    return classifier_options(output_dir, **{**values, **changes})
