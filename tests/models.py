"""Small models for the tests: trained ones from tests/golden, and the options that trained them.

    golden("ner")                  folder of a finished run, read-only
    copy_of("ner", tmp_path)       a copy to write into
    options("ner", folder, ...)    the options of that run, with another folder and other changes
    train("ner", folder, ...)      runs the program with them

tests/golden/make.py writes the runs and their data.
"""

import dataclasses
import importlib
import shutil
from pathlib import Path
from typing import Any

from bert_tf.options import flag_values, make_options

ANIMALS = ("cat", "dog", "owl", "hen", "pig")
PLACES = ("barn", "wood", "lake", "yard", "cave")
GOOD, BAD = ("happy", "calm", "kind"), ("angry", "sad", "rude")

GOLDEN = Path(__file__).parent / "golden"
DATA, RUNS = GOLDEN / "data", GOLDEN / "runs"


@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind of run: its program, its files in golden/data, and its flags."""

    program: str  # module:options class:function
    files: dict[str, str]
    flags: dict[str, Any]


ALL_STEPS = {"do_train": True, "do_eval": True, "do_predict": True}
CLASSIFIER = "tasks.run_classifier:ClassifierOptions:run_classifier"
NER = "tasks.run_ner:NerOptions:run_ner"
SQUAD = "tasks.run_squad:SquadOptions:run_squad"
SWAG = "tasks.run_swag:SwagOptions:run_swag"
EMBEDDER = "embeddings.run_embeddings:EmbeddingOptions:run_embeddings"
RERANKER = "embeddings.run_reranker:RerankerOptions:run_reranker"


def files(folder: str, ending: str, predict: str = "test") -> dict[str, str]:
    names = {"train_file": "train", "eval_file": "dev", "predict_file": predict}
    return {flag: f"{folder}/{name}{ending}" for flag, name in names.items()}


COLUMNS = {"text_a_column": "sentence", "label_column": "mood"}
SCENES = {"text_a_column": "text", "num_train_epochs": 20.0, "learning_rate": 2e-3}
SPANS = {
    "max_seq_length": 31,
    "max_query_length": 8,
    "doc_stride": 8,
    "n_best_size": 5,
    "do_eval": False,
}
CONLL = files("conll", ".txt") | {"eval_file": "conll/valid.txt"}
ONE_LAYER = {"init_layers": "0"}  # its graph is traced in 3/4 of the time of two
KINDS = {
    "pretrained": Kind(
        "pretraining.run_pretraining:PretrainingOptions:run_pretraining",
        {"input_file": "text/train.tf_record", "eval_file": "text/held_out.tf_record"},
        {"max_seq_length": 23, "max_predictions_per_seq": 4, "num_train_steps": 150}
        | {"num_warmup_steps": 10, "keep_checkpoint_max": 1},
    ),
    "classifier": Kind(CLASSIFIER, files("moods", ".tsv"), COLUMNS | {"num_train_epochs": 12.0}),
    "pair": Kind(
        CLASSIFIER,
        {"data_dir": "MRPC"},
        ONE_LAYER | {"task_name": "MRPC", "num_train_epochs": 12.0},
    ),
    "multi_label": Kind(
        CLASSIFIER,
        files("multi_label", ".jsonl"),
        SCENES | {"problem_type": "multi_label"},
    ),
    "regression": Kind(
        CLASSIFIER,
        files("regression", ".jsonl"),
        ONE_LAYER | SCENES | {"problem_type": "regression"},
    ),
    "ner": Kind(NER, CONLL, ONE_LAYER | {"num_train_epochs": 8.0}),
    "crf": Kind(NER, CONLL, ONE_LAYER | {"num_train_epochs": 8.0, "crf": True}),
    "squad": Kind(
        SQUAD,
        {"train_file": "squad/train.json", "predict_file": "squad/dev.json"},
        SPANS | {"num_train_epochs": 10.0},
    ),
    "squad2": Kind(
        SQUAD,
        {"train_file": "squad/train2.json", "predict_file": "squad/dev2.json"},
        SPANS | {"num_train_epochs": 10.0, "version_2_with_negative": True},
    ),
    "swag": Kind(SWAG, files("choices", ".jsonl"), ONE_LAYER | {"num_train_epochs": 10.0}),
    "embedder": Kind(
        EMBEDDER,
        files("pairs", ".jsonl", "dev"),
        ONE_LAYER
        | {"max_seq_length": 15, "seed": 3, "num_train_epochs": 6.0}
        | {"gradient_accumulation_steps": 2, "matryoshka_dims": "4"}
        | {"query_prefix": "the ", "document_prefix": "a "},
    ),
    "reranker": Kind(
        RERANKER,
        files("ranked", ".jsonl", "dev"),
        {"max_seq_length": 23, "num_negatives": 1, "num_train_epochs": 4.0},
    ),
}


def golden(kind: str) -> Path:
    return RUNS / kind


def copy_of(kind: str, folder: Path) -> Path:
    """Copy a golden run to `folder`, which must not exist."""
    shutil.copytree(golden(kind), folder)
    return folder


def options(kind: str, output_dir, **changes) -> Any:
    """The options of the golden run, for `output_dir`, with `changes`; files only for what is done."""
    module, class_name, _ = KINDS[kind].program.split(":")
    values = ALL_STEPS | {"max_seq_length": 19, "train_batch_size": 16, "learning_rate": 5e-3}
    values |= {"jit_compile": "false", "output_dir": str(output_dir)}
    values |= {flag: str(DATA / name) for flag, name in KINDS[kind].files.items()}
    if kind == "pretrained":
        values |= {"bert_config_file": f"{DATA}/text/bert_config.json", "do_predict": None}
    else:
        values |= {"init_checkpoint": str(golden("pretrained"))}
    values |= KINDS[kind].flags | changes
    for step in ("train", "eval", "predict"):
        file = f"{step}_file"
        if not values.get(f"do_{step}") and file in KINDS[kind].files and file not in changes:
            del values[file]
    values = {name: value for name, value in values.items() if value is not None}
    options_class = getattr(importlib.import_module(f"bert_tf.{module}"), class_name)
    return make_options(options_class, **values)


def with_values(options, **changes) -> Any:
    """The options with other values of flags."""
    return make_options(type(options), **flag_values(options) | changes)


def train(kind: str, output_dir, **changes):
    """Run the program of a kind; what it returns, its metrics."""
    module, _, function = KINDS[kind].program.split(":")
    program = getattr(importlib.import_module(f"bert_tf.{module}"), function)
    return program(options(kind, output_dir, **changes))
