"""What a reader of the documents has before the first command: checkpoints and data, tiny but real."""

import csv
import importlib.util
import json
import shutil
from pathlib import Path

from models import DATA
from tiny_checkpoints import huggingface_tensors, write_huggingface, write_tf1

from bert_tf.config import BertConfig
from bert_tf.options import make_options
from bert_tf.pretraining.create_pretraining_data import (
    PretrainingDataOptions,
    create_pretraining_data,
)
from reference import numpy_bert

ROOT = Path(__file__).parents[1]
SIZES = {
    "hidden_size": 16,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
}


def write_files(folder: Path) -> None:
    """All of it, under the names that the documents use."""
    for name in ("run_scripts", "vocab"):
        (folder / name).symlink_to(ROOT / name)
    write_checkpoints(folder)
    write_texts(folder)
    write_tables(folder)
    write_choices(folder / "swag")
    shutil.copytree(DATA / "conll", folder / "conll2003")
    shutil.copytree(DATA / "MRPC", folder / "glue" / "MRPC")
    for name in ("train", "dev"):
        shutil.copy(DATA / "squad" / f"{name}.json", folder / f"{name}-v1.1.json")
    # Words with their parts of speech, which are in the second of three columns.
    (folder / "universal_dependencies").mkdir()
    words = "the DET x\ndog NOUN x\nbarks VERB x\n\na DET x\ncat NOUN x\nsleeps VERB x\n\n"
    for name, count in (("train", 20), ("dev", 4)):
        (folder / "universal_dependencies" / f"{name}.txt").write_text(words * count)


def write_checkpoints(folder: Path) -> None:
    """Random weights with both heads, with our vocabularies; and the encoder as Hugging Face has it."""
    (folder / "tiny").mkdir()
    BertConfig(150, num_hidden_layers=1, **SIZES).to_json_file(folder / "tiny/bert_config.json")
    for name, vocabulary, layers in (
        ("BERT", "uncased_30522", 1),
        ("uncased_L-12_H-768_A-12", "uncased_30522", 1),
        ("cased_L-12_H-768_A-12", "cased_28996", 4),  # --feature_layers=concat_last_four_hidden
    ):
        text = (ROOT / "vocab" / vocabulary / "vocab.txt").read_text(encoding="utf-8")
        config = BertConfig(len(text.splitlines()), num_hidden_layers=layers, **SIZES)
        heads = ("masked_lm", "next_sentence")
        write_tf1(folder / name, numpy_bert.random_variables(config, 5, heads), config=config)
        (folder / name / "vocab.txt").write_text(text, encoding="utf-8")
        if name == "BERT":
            config.to_json_file(folder / "bert_config.json")
            (folder / "vocab.txt").write_text(text, encoding="utf-8")
            encoder = numpy_bert.random_variables(config, seed=5)
            if importlib.util.find_spec("safetensors"):
                minilm = folder / "all-MiniLM-L6-v2"
                tensors = huggingface_tensors(encoder, prefix="")
                write_huggingface(minilm, tensors, **config.to_dict())
                (minilm / "vocab.txt").write_text(text, encoding="utf-8")


def rows_of(name: str) -> list[list[str]]:
    """The rows of a golden table, without its header."""
    with open(DATA / name, newline="", encoding="utf-8") as file:
        return list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))[1:]


def write_table(path: Path, *rows: list[str]) -> None:
    """CSV, or TSV as the name has it."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        delimiter = "," if path.suffix == ".csv" else "\t"
        csv.writer(file, delimiter=delimiter, lineterminator="\n").writerows(rows)


def write_texts(folder: Path) -> None:
    """Lines, corpora, and records."""
    for name in ("lines", "input", "texts-1", "texts-2", "part-1", "part-2"):
        (folder / f"{name}.txt").write_text("The cat is in the barn.\nA dog sleeps.\nWho won?\n")
    for name in ("train", "own", "corpus/wiki", "held", "held_out"):
        (folder / name).parent.mkdir(exist_ok=True)
        text = DATA / "text" / ("held_out.txt" if "held" in name else "train.txt")
        shutil.copy(text, folder / f"{name}.txt")
    for length, predictions in ((128, 20), (512, 77)):
        options = make_options(
            PretrainingDataOptions,
            input_file=f"{folder}/train.txt",
            output_file=f"{folder}/records/{length}.tf_record",
            vocab_file=f"{folder}/vocab.txt",
            max_seq_length=length,
            max_predictions_per_seq=predictions,
            dupe_factor=3,
        )
        create_pretraining_data(options)


def write_tables(folder: Path) -> None:
    """One table for all: a text with a label, and a question and an answer with a grade."""
    moods = rows_of("moods/train.tsv")
    pairs = [(row[3], row[4], row[0]) for row in rows_of("MRPC/train.tsv")]
    header = ["text", "label", "question", "answer", "grade"]
    for name, rows in (("train", slice(40)), ("dev", slice(40, 49)), ("new", slice(50, 55))):
        table = [[*mood, *pair] for mood, pair in zip(moods[rows], pairs[rows], strict=True)]
        write_table(folder / f"{name}.csv", header, *table)
    for name, rows in (("questions", slice(40)), ("questions_dev", slice(40, 49))):
        write_table(
            folder / f"{name}.tsv", ["anchor", "positive"], *(pair[:2] for pair in pairs[rows])
        )
    write_table(folder / "texts.tsv", ["text"], *(mood[:1] for mood in moods[:40]))
    reviews = [[str(number), mood[0]] for number, mood in enumerate(moods[:5])]
    write_table(folder / "reviews.tsv", ["id", "text"], *reviews)
    write_table(folder / "pairs.txt", *(pair[:2] for pair in pairs[:5]))
    write_table(folder / "labelled.tsv", ["text_a", "text_b", "label"], *pairs[:12])
    write_table(
        folder / "more_pairs.tsv", ["text_a", "text_b"], *(pair[:2] for pair in pairs[12:21])
    )


def write_choices(folder: Path) -> None:
    """SWAG's columns, as far as they are read; four endings."""
    folder.mkdir()
    header = ["sent1", "sent2", *(f"ending{number}" for number in range(4)), "label"]
    for name, golden in (("train", "train"), ("val", "dev"), ("test", "test")):
        lines = (DATA / "choices" / f"{golden}.jsonl").read_text().splitlines()[:40]
        rows = [
            [row["text_a"], "It is", *(row["choices"] * 2)[:4], row.get("label", 0)]
            for row in map(json.loads, lines)
        ]
        write_table(folder / f"{name}.csv", header, *rows)
