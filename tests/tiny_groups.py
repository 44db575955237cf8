"""A small corpus in several groups, and the records that create_pretraining_data makes of it."""

import contextlib
import json
import os
from pathlib import Path
from unittest import mock

from helpers import python, write_vocab

from bert_tf.options import make_options
from bert_tf.pretraining import create_pretraining_data as program
from bert_tf.pretraining.manifest import Manifest

GOLDEN = json.loads((Path(__file__).parent / "golden" / "pretraining_data.json").read_text("utf-8"))


VOCAB = {token: i for i, token in enumerate(GOLDEN["vocab"])}


def write_inputs(folder, texts=GOLDEN["input"], vocab=GOLDEN["vocab"]):
    """Files as in the golden run; returns the options that name them."""
    for name, text in texts.items():
        data = text if isinstance(text, bytes) else text.encode()
        if not (folder / name).exists() or (folder / name).read_bytes() != data:
            (folder / name).write_bytes(data)  # a manifest notes the time of the last change
    write_vocab(folder / "vocab.txt", vocab)
    return {
        "input_file": ",".join(str(folder / name) for name in texts),
        "output_file": str(folder / "out" / "data.tf_record"),
        "vocab_file": str(folder / "vocab.txt"),
    }


def corpus_of(num_documents):
    """Documents of a few sentences each, every one with words of its own order."""
    words = ["the", "dogs", "barked", "along", "a", "rainy", "river", "sailors"]
    words += ["far", "walked", "home"]
    sentences = [
        " ".join(words[(i * k) % len(words)] for k in range(1, 9)) for i in range(num_documents * 3)
    ]
    return "\n\n".join("\n".join(sentences[i : i + 3]) for i in range(0, len(sentences), 3)) + "\n"


def run_groups(folder, name, max_group_bytes=1500, **changes):
    """Records of a corpus of several groups in folder/name; the corpus is written once."""
    if not (folder / "vocab.txt").exists():
        write_inputs(folder, {"a.txt": corpus_of(40), "b.txt": corpus_of(25)})
    options = {
        "input_file": f"{folder}/a.txt,{folder}/b.txt",
        "vocab_file": f"{folder}/vocab.txt",
        "output_file": f"{folder}/{name}/x,{folder}/{name}/y",
        "max_seq_length": 24,
        "dupe_factor": 2,
        **changes,
    }
    with mock.patch.object(program, "MAX_GROUP_BYTES", max_group_bytes):
        return program.create_pretraining_data(
            make_options(program.PretrainingDataOptions, **options)
        )


@contextlib.contextmanager
def ends_in_group(summary, number):
    """Within the block a byte of a group's text is not UTF-8; yields the file. No trace is left."""
    part = Manifest.read(summary.manifest_file).groups[number].input[0]
    path = Path(part["file"])
    data, time = path.read_bytes(), path.stat().st_mtime_ns
    for text in (data[: part["start"]] + b"\xff" + data[part["start"] + 1 :], data):
        path.write_bytes(text)
        os.utime(path, ns=(time, time))
        if text is not data:
            yield path


def contents(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def command_with_small_groups(max_group_bytes, **flags):
    """Arguments of `subprocess.run` for create_pretraining_data whose groups are small."""
    code = f"""from bert_tf import cli
from bert_tf.pretraining import create_pretraining_data as program
program.MAX_GROUP_BYTES = {max_group_bytes}
cli.run(program.PretrainingDataOptions, program.create_pretraining_data)"""
    return python("-c", code, *(f"--{key}={value}" for key, value in flags.items()))
