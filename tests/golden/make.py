"""Makes tests/golden again: the texts in data/ and the trained folders in runs/ (two minutes).

    python tests/golden/make.py

All of it is committed. Tests read the folders of runs/ and train only where training is what they test;
tests/contracts trains each kind again at night and compares its metrics with those of the committed run.
"""

import json
import os
import random
import shutil
import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2])]

import models
from models import ANIMALS, BAD, GOOD, PLACES

from bert_tf.options import flag_values

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


def documents(rng: random.Random, num_documents: int):
    """Each document has one animal and one place, so that a masked word can be guessed."""
    for _ in range(num_documents):
        animal, place = rng.choice(ANIMALS), rng.choice(PLACES)
        for _ in range(rng.randint(4, 7)):
            yield f"The {rng.choice(GOOD + BAD)} {animal} is in the {place}."
        yield ""


def moods(rng: random.Random, num_rows: int):
    """Sentences, and whether their mood is "bad" or "good"."""
    for _ in range(num_rows):
        label = rng.choice(("bad", "good"))
        mood = rng.choice(GOOD if label == "good" else BAD)
        yield f"the {mood} {rng.choice(ANIMALS)} in the {rng.choice(PLACES)}", label


def pairs(rng: random.Random, num_rows: int):
    """Pairs of sentences, and "1" where both are about the barn (else "0")."""
    for _ in range(num_rows):
        label = rng.choice("01")
        place = "barn" if label == "1" else rng.choice(PLACES[1:])
        first, second = rng.choices(ANIMALS, k=2)
        yield f"the {first} in the {place}", f"a {second} in the {place}", label


def mrpc(rng: random.Random, num_rows: int, *, has_labels=True):
    yield ("Quality" if has_labels else "index") + "\t#1 ID\t#2 ID\t#1 String\t#2 String"
    for number, (text_a, text_b, label) in enumerate(pairs(rng, num_rows)):
        head = label if has_labels else number
        yield f"{head}\t{2 * number}\t{2 * number + 1}\t{text_a}\t{text_b}"


def scenes(rng: random.Random, num_rows: int, kind: str):
    """Texts with labels ("good" or "bad", and "barn" where that is the place), or with a number."""
    for _ in range(num_rows):
        word, place = rng.choice(GOOD + BAD), rng.choice(PLACES[:1] * 2 + PLACES)
        labels = ["good" if word in GOOD else "bad"] + ["barn"] * (place == PLACES[0])
        number = 3.0 if word in GOOD else -1.0
        label = labels if kind == "multi_label" else number
        yield {"text": f"the {word} dog in the {place}", "label": label}


def conll(rng: random.Random, num_sentences: int):
    """Animals are of type A, "the" with its place is of type B (IOB2)."""
    yield "-DOCSTART- -X- O\n"
    for _ in range(num_sentences):
        rows = [("a", "O"), (rng.choice(ANIMALS), "B-A"), ("is", "O"), ("in", "O")]
        rows += [("the", "B-B"), (rng.choice(PLACES), "I-B")]
        yield "".join(f"{word} x {label}\n" for word, label in rows)


def squad(rng: random.Random, num_questions: int, *, impossible=0.0, has_answers=True):
    """Two animals in two places, and where one of them is; or where one is that is not named."""
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
        if not has_answers:
            qa = {"id": qa["id"], "question": qa["question"]}
        yield {"context": context, "qas": [qa]}


def questions(rng: random.Random, num_rows: int, *, has_labels=True):
    """The kind animal is the right one; two to four choices."""
    for number in range(num_rows):
        num_choices = rng.randint(2, 4)
        right = rng.randrange(num_choices)
        choices = [
            f"the {rng.choice(GOOD if index == right else BAD)} {rng.choice(ANIMALS)}"
            for index in range(num_choices)
        ]
        row = {"id": number, "text_a": "in the barn", "choices": choices}
        yield row | {"label": right} if has_labels else row


def anchors(rng: random.Random, num_rows: int):
    """Anchors with an animal, and a positive with the same one."""
    for _ in range(num_rows):
        animal = rng.choice(ANIMALS)
        yield {
            "anchor": f"a {animal}",
            "positive": f"the {animal} is in the {rng.choice(PLACES)}",
        }


def scored(rng: random.Random, num_rows: int):
    for _ in range(num_rows):
        first, second = rng.choices(ANIMALS, k=2)
        score = 0.9 if first == second else 0.1
        yield {"text_a": f"a {first}", "text_b": f"the {second}", "score": score}


def ranked(rng: random.Random, num_rows: int):
    """Anchors with a positive in a good mood and a negative in a bad one."""
    texts: dict[str, list] = {"good": [], "bad": []}
    for text, label in moods(rng, 4 * num_rows):
        texts[label].append(text)
    rows = zip(anchors(rng, num_rows), texts["good"], texts["bad"], strict=False)
    for row, positive, negative in rows:
        yield {"anchor": row["anchor"], "positive": positive, "negative": negative}


def write(name: str, lines) -> None:
    path = Path("data", name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_json_lines(name: str, rows) -> None:
    write(name, map(json.dumps, rows))


def make_data() -> None:
    shutil.rmtree("data", ignore_errors=True)
    r = random.Random
    write("text/train.txt", documents(r(1), 40))
    write("text/held_out.txt", documents(r(2), 12))
    for name, seed, count in (("train", 3, 90), ("dev", 4, 29)):
        write(f"moods/{name}.tsv", ["sentence\tmood", *map("\t".join, moods(r(seed), count))])
    write("moods/test.tsv", ["sentence", *(text for text, _ in moods(r(5), 7))])
    write("MRPC/train.tsv", mrpc(r(6), 80))
    write("MRPC/dev.tsv", mrpc(r(7), 21))
    write("MRPC/test.tsv", mrpc(r(8), 5, has_labels=False))
    for kind in ("multi_label", "regression"):
        for name, seed, count in (("train", 1, 120), ("dev", 2, 31), ("test", 3, 9)):
            write_json_lines(f"{kind}/{name}.jsonl", scenes(r(seed), count, kind))
    write("conll/train.txt", [block for seed in (1, 2, 3) for block in conll(r(seed), 30)])
    write("conll/valid.txt", conll(r(4), 11))
    write("conll/test.txt", conll(r(5), 5))
    for name, seed, count, settings in (
        ("train", 1, 160, {}),
        ("dev", 2, 30, {}),
        ("test", 3, 9, {"has_answers": False}),
        ("train2", 4, 160, {"impossible": 0.4}),
        ("dev2", 5, 30, {"impossible": 0.4}),
    ):
        paragraphs = list(squad(r(seed), count, **settings))
        write(f"squad/{name}.json", [json.dumps({"data": [{"paragraphs": paragraphs}]})])
    write_json_lines("choices/train.jsonl", questions(r(1), 90))
    write_json_lines("choices/dev.jsonl", questions(r(2), 31))
    write_json_lines("choices/test.jsonl", questions(r(3), 7, has_labels=False))
    for name, seed, count in (("train", 1, 64), ("dev", 2, 24)):
        write_json_lines(f"pairs/{name}.jsonl", anchors(r(seed), count))
        write_json_lines(f"scores/{name}.jsonl", scored(r(seed), count))
        write_json_lines(f"ranked/{name}.jsonl", ranked(r(seed), count))
        classes = moods(r(seed), count)
        write_json_lines(
            f"classes/{name}.jsonl", ({"text": text, "label": label} for text, label in classes)
        )


def make_vocabulary_and_records() -> None:
    from bert_tf.options import make_options
    from bert_tf.pretraining.create_pretraining_data import (
        PretrainingDataOptions,
        create_pretraining_data,
    )
    from bert_tf.pretraining.create_vocab import VocabularyOptions, create_vocab

    text = Path("data/text")
    create_vocab(
        make_options(
            VocabularyOptions, input_file=f"{text}/train.txt", output_dir=str(text), vocab_size=190
        )
    )
    config = json.loads((text / "bert_config.json").read_text()) | CONFIG
    for name, num_layers in (("bert_config", 2), ("one_layer", 1)):
        values = config | {"num_hidden_layers": num_layers}
        (text / f"{name}.json").write_text(json.dumps(values) + "\n")
    for name in ("train", "held_out"):
        create_pretraining_data(
            make_options(
                PretrainingDataOptions,
                input_file=f"{text}/{name}.txt",
                output_file=f"{text}/{name}.tf_record",
                vocab_file=f"{text}/vocab.txt",
                max_seq_length=23,
                max_predictions_per_seq=4,
                dupe_factor=3,
            )
        )


def main() -> None:
    os.chdir(models.GOLDEN)
    make_data()
    make_vocabulary_and_records()
    shutil.rmtree(models.RUNS, ignore_errors=True)
    for kind in models.KINDS:
        # Paths in the records of a run are relative to this folder, wherever the checkout is.
        values = flag_values(models.options(kind, models.golden(kind)))
        paths = {
            name: os.path.relpath(value)
            for name, value in values.items()
            if isinstance(value, str) and value.startswith(str(models.GOLDEN))
        }
        output_dir = paths.pop("output_dir")
        print(kind, models.train(kind, output_dir, **paths))
        for pattern in ("*.tf_record", "*.html"):
            for path in Path(output_dir).glob(pattern):
                path.unlink()
        record = Path(output_dir, "training.json")
        record.write_text(record.read_text().replace(f"{models.GOLDEN}/", ""))


if __name__ == "__main__":
    main()
