"""What a reader of the documents has before the first command: checkpoints and data, tiny but real."""

import csv
import importlib.util
from pathlib import Path

from tiny_checkpoints import huggingface_tensors, write_huggingface, write_tf1
from tiny_runs import documents, moods, pairs, write_mrpc, write_records
from tiny_squad import write_squad
from tiny_words_and_choices import conll, questions

from bert_tf.config import BertConfig
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
    write_conll(folder / "conll2003")
    write_parts_of_speech(folder / "universal_dependencies")
    splits = {"train": pairs(40, seed=1), "dev": pairs(9, seed=2), "test": pairs(5, seed=3)}
    write_mrpc(folder / "glue" / "MRPC", splits)
    write_squad(folder / "train-v1.1.json", 40, seed=1)
    write_squad(folder / "dev-v1.1.json", 7, seed=2)


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


def write_texts(folder: Path) -> None:
    """Lines, corpora, and records."""
    for name in (
        "lines.txt",
        "input.txt",
        "texts-1.txt",
        "texts-2.txt",
        "part-1.txt",
        "part-2.txt",
    ):
        (folder / name).write_text("The cat is in the barn.\nA dog sleeps.\nWho won?\n")
    for name, number in (("train.txt", 60), ("held.txt", 12), ("held_out.txt", 12)):
        (folder / name).write_text(documents(number, seed=len(name)))
    (folder / "pairs.txt").write_text("".join(f"{a}\t{b}\n" for a, b, _ in pairs(5, seed=4)))
    labelled = [("text_a", "text_b", "label"), *pairs(12, seed=4)]
    (folder / "labelled.tsv").write_text("".join("\t".join(map(str, r)) + "\n" for r in labelled))
    (folder / "more_pairs.tsv").write_text(
        "".join(f"{a}\t{b}\n" for a, b, _ in [("text_a", "text_b", ""), *pairs(9, seed=6)])
    )
    (folder / "corpus").mkdir()
    for name, seed in (("corpus/wiki.txt", 1), ("own.txt", 2)):
        (folder / name).write_text(documents(40, seed=seed))
    (folder / "records").mkdir()
    for length, predictions in ((128, 20), (512, 77)):
        write_records(
            folder / "train.txt",
            folder / "records" / f"{length}.tf_record",
            max_seq_length=length,
            max_predictions_per_seq=predictions,
        )


def write_tables(folder: Path) -> None:
    """One table for all: a text with a label, and a question and an answer with a grade."""
    for name, rows, seed in (("train", 40, 1), ("dev", 9, 2), ("new", 5, 3)):
        with open(folder / f"{name}.csv", "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(("text", "label", "question", "answer", "grade"))
            writer.writerows(
                (*m, *p) for m, p in zip(moods(rows, seed), pairs(rows, seed), strict=True)
            )
    for name, rows, seed in (("questions", 40, 1), ("questions_dev", 9, 2)):
        lines = [f"{first}\t{second}" for first, second, _ in pairs(rows, seed)]
        (folder / f"{name}.tsv").write_text("\n".join(["question\tanswer", *lines]) + "\n")
    texts = [text for text, _ in moods(40, 5)]
    (folder / "texts.tsv").write_text("\n".join(["text", *texts]) + "\n")
    lines = ["id\ttext", *(f"{number}\t{text}" for number, (text, _) in enumerate(moods(5, 4)))]
    (folder / "reviews.tsv").write_text("\n".join(lines) + "\n")


def write_choices(folder: Path) -> None:
    """SWAG's columns, as far as they are read; four endings."""
    folder.mkdir()
    for name, rows, seed in (("train", 40, 1), ("val", 9, 2), ("test", 5, 3)):
        with open(folder / f"{name}.csv", "w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(("sent1", "sent2", *(f"ending{n}" for n in range(4)), "label"))
            for row in questions(rows, seed):
                endings = (row["choices"] * 2)[:4]
                writer.writerow((row["text_a"], "It is", *endings, row["label"]))


def write_parts_of_speech(folder: Path) -> None:
    """Words with their parts of speech, which are in the second of three columns."""
    folder.mkdir()
    sentence = "the DET x\ndog NOUN x\nbarks VERB x\n\na DET x\ncat NOUN x\nsleeps VERB x\n\n"
    for name, count in (("train", 20), ("dev", 4)):
        (folder / f"{name}.txt").write_text(sentence * count)


def write_conll(folder: Path) -> None:
    folder.mkdir()
    for name, sentences in (("train", 40), ("valid", 9), ("test", 5)):
        each = ["-DOCSTART- -X- O\n\n" + conll(1, seed) for seed in range(sentences)]
        (folder / f"{name}.txt").write_text("\n".join(each))
