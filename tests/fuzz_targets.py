"""Readers of files of users and other programs, and contents that they read: where fuzzing begins."""

import gzip
import io
import json
import os
import tempfile
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import h5py
import numpy as np
import tensorflow as tf
from safetensors.numpy import save
from tiny_checkpoints import HUGGINGFACE_CONFIG, arrays_of, huggingface_tensors, write_tf1

from bert_tf.checkpoint_task import known_task
from bert_tf.config import BertConfig
from bert_tf.data.features import FeatureSpec
from bert_tf.data.lines import count_lines, read_lines
from bert_tf.data.multiple_choice import read_questions
from bert_tf.data.question_answering import read_squad
from bert_tf.data.records import check_records, count_records, naming_damaged_file, read_records
from bert_tf.data.tables import read_table
from bert_tf.data.token_classification import read_conll
from bert_tf.interop.read import read_checkpoint
from bert_tf.interop.sentence_transformers import embedding_settings, read_projection
from bert_tf.interop.tensor_files import open_tensors
from bert_tf.pretraining.groups import group_lines, plan_groups
from bert_tf.tokenization import FullTokenizer


class Target(NamedTuple):
    """How one type of file is read.

    Attributes:
        name: of the file, in a folder of its own.
        seeds: contents that are read without an error.
        read: gets the path; may raise a ValueError or an OSError that names the file, or its folder.
        beside: other files of the folder, by name.
    """

    name: str
    seeds: tuple[bytes, ...]
    read: Callable[[str], object]
    beside: Mapping[str, bytes] = {}

    def prepare(self, folder: Path) -> Path:
        """Write the other files, and return the path of the one that is fuzzed."""
        for name in self.beside:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(self.beside[name])
        return folder / self.name

    def accepts(self, path: Path, content: bytes) -> bool:
        """Return True if a content is read, False for an error, which names the file or its folder."""
        path.write_bytes(content)
        try:
            self.read(str(path))
        except (ValueError, OSError) as error:
            assert str(path.parent) in str(error), f"the file is not named: {error!r}"
            return False
        except (AttributeError, KeyError, TypeError):
            return False  # JSON of another structure, in Python's own words
        return True


def in_folder(reader):
    return lambda path: reader(os.path.dirname(path))


def read_corpus(path):
    list(read_lines(path))
    count_lines([path])
    for group in plan_groups([path], 8):
        list(group_lines(group))


def read_all_records(path):
    count_records([path])
    check_records([path], SPECS, {"input_ids": 7})
    settings = {"shuffle": False, "repeat": False, "drop_remainder": False}
    with naming_damaged_file([path]):
        for batch in read_records([path], SPECS, batch_size=2, **settings):
            assert batch["input_ids"].shape[1:] == (4,)


def read_weights(path):
    checkpoint = read_checkpoint(path)
    known_task(checkpoint)
    return [checkpoint.arrays[name] for name in checkpoint.arrays]


def read_tensors(path):
    tensors = open_tensors(path)
    return [tensors[name] for name in tensors]


def read_embeddings(folder):
    embedding_settings(folder)
    return dict(read_projection(folder))


def as_json(*values) -> tuple[bytes, ...]:
    return tuple(json.dumps(value).encode() for value in values)


VOCAB = b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nowl\n##s\n"
SPECS = (FeatureSpec("input_ids", (4,), "int32"), FeatureSpec("weight", (), "float32"))
QUESTION = {
    "id": "1",
    "question": "Where is the owl?",
    "answers": [{"text": "in the barn", "answer_start": 11}],
}
CONTEXT = {"context": "The owl is in the barn. It sleeps.", "qas": [QUESTION]}
SQUAD = {"version": "1.1", "data": [{"title": "Owls", "paragraphs": [CONTEXT]}]}
REFERENCE_CONFIG = {
    "vocab_size": 30522,
    "hidden_size": 768,
    "num_attention_heads": 12,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "pooler_type": "first_token_transform",
}
CHOICES = {"question": "What?", "choices": {"text": ["a", "b"], "label": ["A", "B"]}}
TOKENIZER = {
    "version": "1.0",
    "normalizer": {"type": "BertNormalizer", "lowercase": True},
    "model": {
        "type": "WordPiece",
        "vocab": {token: id for id, token in enumerate(VOCAB.decode().split())},
    },
}
MODULES = [
    {"path": "", "type": "sentence_transformers.models.Transformer"},
    {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
]
POOLING = {"word_embedding_dimension": 8, "pooling_mode_mean_tokens": True}
STATE = b'model_checkpoint_path: "bert_model.ckpt"\nall_model_checkpoint_paths: "bert_model.ckpt"\n'


def record_file(compression: str = "") -> bytes:
    feature = {
        "input_ids": tf.train.Feature(int64_list=tf.train.Int64List(value=[1, 2, 3, 4])),
        "weight": tf.train.Feature(float_list=tf.train.FloatList(value=[0.5])),
    }
    example = tf.train.Example(features=tf.train.Features(feature=feature))
    with tempfile.TemporaryDirectory() as folder:
        with tf.io.TFRecordWriter(f"{folder}/x", compression) as writer:
            for _ in range(3):
                writer.write(example.SerializeToString(deterministic=True))
        return Path(folder, "x").read_bytes()


def tf1_files() -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as folder:
        write_tf1(Path(folder), arrays_of())
        return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def h5_weights() -> bytes:
    """A layer with a kernel, as Keras 2 writes it."""
    content = io.BytesIO()
    with h5py.File(content, "w") as file:
        file.attrs["layer_names"] = np.array([b"bert"])
        file.create_group("bert").attrs["weight_names"] = np.array([b"bert/dense/kernel:0"])
        file["bert"]["bert/dense/kernel:0"] = np.ones((2, 3), np.float32)
    return content.getvalue()


def torch_weights() -> bytes:
    import torch

    file = io.BytesIO()
    torch.save({"a": torch.ones(2, 3)}, file)
    return file.getvalue()


TF1 = tf1_files()
VALUES = "bert_model.ckpt.data-00000-of-00001"
SAFETENSORS = save({"a": np.eye(2, dtype=np.float32), "b": np.arange(1)}, {"format": "pt"})
HUGGINGFACE = {
    "config.json": as_json(HUGGINGFACE_CONFIG)[0],
    "model.safetensors": save(huggingface_tensors(arrays_of("classifier"))),
    "vocab.txt": VOCAB,
}
LABELLED_CONFIG = {
    **HUGGINGFACE_CONFIG,
    "architectures": ["BertForSequenceClassification"],
    "id2label": {str(index): f"label {index}" for index in range(5)},
}
TARGETS = {
    "corpus": Target(
        "a.txt",
        (b"one\ntwo\n\nthree\n\nfour\n", gzip.compress(b"one\n\ntwo\n", mtime=0)),
        read_corpus,
    ),
    "tsv": Target("t.tsv", (b"text\tlabel\nan owl\t1\n",), lambda path: list(read_table(path))),
    "csv": Target(
        "t.csv", (b'text,label\n"an, ""owl""",1\n',), lambda path: list(read_table(path))
    ),
    "jsonl": Target(
        "t.jsonl", (b'{"text": "owl", "label": 1}\n',), lambda path: list(read_table(path))
    ),
    "conll": Target("a.conll", (b"EU NNP B-ORG\nrejects VBZ O\n\nPeter NNP B-PER\n",), read_conll),
    "vocabulary": Target("v.txt", (VOCAB,), FullTokenizer),
    "choices csv": Target(
        "c.csv", (b"question,choice0,choice1,label\nWhat?,a,b,1\n",), read_questions
    ),
    "choices": Target("arc.jsonl", as_json({**CHOICES, "answerKey": "B"}), read_questions),
    "squad": Target("q.json", as_json(SQUAD), read_squad),
    "configuration": Target(
        "bert_config.json", as_json(REFERENCE_CONFIG), BertConfig.from_json_file
    ),
    "safetensors": Target("model.safetensors", (SAFETENSORS,), read_tensors),
    "safetensors index": Target(
        "model.safetensors.index.json",
        as_json({"weight_map": {"a": "one.safetensors", "b": "one.safetensors"}}),
        read_tensors,
        {"one.safetensors": SAFETENSORS},
    ),
    "huggingface config": Target(
        "config.json",
        as_json(HUGGINGFACE_CONFIG, LABELLED_CONFIG),
        in_folder(read_weights),
        HUGGINGFACE,
    ),
    "tokenizer": Target(
        "tokenizer.json", as_json(TOKENIZER), in_folder(FullTokenizer.from_pretrained)
    ),
    "tokenizer config": Target(
        "tokenizer_config.json",
        as_json({"do_lower_case": True}),
        in_folder(FullTokenizer.from_pretrained),
        {"vocab.txt": VOCAB},
    ),
    "sentence-transformers": Target(
        "modules.json",
        as_json(MODULES),
        in_folder(read_embeddings),
        {"1_Pooling/config.json": as_json(POOLING)[0]},
    ),
    "tf1 values": Target(VALUES, (TF1[VALUES],), in_folder(read_weights), TF1),
    "tf1 state": Target("checkpoint", (STATE,), in_folder(read_weights), TF1),
    "records": Target("x.tf_record", (record_file(), record_file("GZIP")), read_all_records),
    "tf class": Target("tf_model.h5", (h5_weights(),), read_tensors),
}
if find_spec("torch"):
    TARGETS["pytorch"] = Target("pytorch_model.bin", (torch_weights(),), read_tensors)
