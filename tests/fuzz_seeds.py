"""Contents of files that are read without an error, from which `fuzz_targets.py` begins."""

import io
import json
import tempfile
from importlib.util import find_spec
from pathlib import Path

import h5py
import numpy as np
import tensorflow as tf
from safetensors.numpy import save
from tiny_checkpoints import (
    CONFIG,
    HUGGINGFACE_CONFIG,
    arrays_of,
    huggingface_tensors,
    write_tf1,
)
from tiny_indexes import block_of
from tiny_tf2 import Encoder

from bert_tf.data.features import FeatureSpec
from bert_tf.interop.bundle_index import _items


def as_json(*values) -> tuple[bytes, ...]:
    return tuple(json.dumps(value).encode() for value in values)


VOCAB = b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nowl\n##s\n"
SPECS = (FeatureSpec("input_ids", (4,), "int32"), FeatureSpec("weight", (), "float32"))
SQUAD = {
    "version": "1.1",
    "data": [
        {
            "title": "Owls",
            "paragraphs": [
                {
                    "context": "The owl is in the barn. It sleeps.",
                    "qas": [
                        {
                            "id": "1",
                            "question": "Where is the owl?",
                            "answers": [{"text": "in the barn", "answer_start": 11}],
                        },
                        {"id": "2", "question": "Who?", "answers": [], "is_impossible": True},
                    ],
                }
            ],
        }
    ],
}
REFERENCE_CONFIG = {
    "vocab_size": 30522,
    "hidden_size": 768,
    "num_attention_heads": 12,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "layer_norm_eps": 1e-12,
    "pooler_type": "first_token_transform",
}
MANIFEST = {
    "format": 1,
    "version": "1.0.0",
    "flags": {"max_seq_length": 128, "max_predictions_per_seq": 20},
    "input": [{"file": "a.txt", "size": 3, "mtime": 1.0}],
    "vocabulary": {"file": "vocab.txt", "sha256": "0" * 64, "size": 9},
    "num_groups": 1,
    "groups": [
        {
            "number": 0,
            "seed": 1,
            "input": [{"file": "a.txt", "start": 0, "end": 3}],
            "shards": [{"file": "x.tf_record", "records": 1, "bytes": 9}],
            "counts": {"documents": 1},
        }
    ],
}
RACE = {"article": "Owls sleep.", "questions": ["What?"], "options": [["a", "b"]], "answers": ["A"]}
ARC = {
    "question": "What?",
    "choices": {"text": ["a", "b"], "label": ["A", "B"]},
    "answerKey": "B",
}
TASKS = (
    {"task": "classification", "labels": ["0", "1"], "max_seq_length": 128},
    {"task": "token_classification", "labels": ["O", "B-X"], "max_seq_length": 16, "crf": "iob2"},
    {"task": "question_answering", "max_seq_length": 128, "doc_stride": 64},
    {"task": "multiple_choice", "num_choices": 4, "max_seq_length": 16},
    {"task": "embeddings", "max_seq_length": 16, "pooling": "cls", "projection_size": 3},
    {"task": "pretraining", "max_seq_length": 16, "max_predictions_per_seq": 3},
)
TOKENIZER = {
    "version": "1.0",
    "normalizer": {"type": "BertNormalizer", "lowercase": True},
    "model": {
        "type": "WordPiece",
        "unk_token": "[UNK]",
        "vocab": {token: id for id, token in enumerate(VOCAB.decode().split())},
    },
}
MODULES = [
    {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
    {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    {"idx": 2, "name": "2", "path": "2_Dense", "type": "sentence_transformers.models.Dense"},
]
POOLING = {"word_embedding_dimension": 8, "pooling_mode_mean_tokens": True, "include_prompt": True}
DENSE = {"in_features": 8, "out_features": 3, "activation_function": "torch.nn.Identity"}
PROMPTS = {"prompts": {"query": "q: ", "document": ""}, "default_prompt_name": None}
EXPORT = {
    "kind": "classifier",
    "config": CONFIG.to_dict(),
    "precision": "float32",
    "labels": ["0", "1"],
    "max_seq_length": 9,
    "do_lower_case": True,
    "signatures": {},
}
NBEST = {"1": [{"text": "a", "probability": 0.75}, {"text": "", "probability": 0.25}]}
GROUP_NOTE = {"done": MANIFEST["groups"][0], "logged": []}
BEST = {
    "metric": "eval_accuracy",
    "max_seq_length": 9,
    "value": 0.5,
    "step": 3,
    "since": 1,
    "seen": 4,
}
METRICS = b'{"kind": "train", "step": 1, "loss": 0.5, "learning_rates": {"0": 0.1}}\n'
STATE = b'model_checkpoint_path: "bert_model.ckpt"\nall_model_checkpoint_paths: "bert_model.ckpt"\n'


def example() -> bytes:
    feature = {
        "input_ids": tf.train.Feature(int64_list=tf.train.Int64List(value=[1, 2, 3, 4])),
        "weight": tf.train.Feature(float_list=tf.train.FloatList(value=[0.5])),
    }
    return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString(
        deterministic=True
    )


def record_file(compression: str = "") -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        with tf.io.TFRecordWriter(f"{folder}/x", compression) as writer:
            for _ in range(3):
                writer.write(example())
        return Path(folder, "x").read_bytes()


def tf1_files() -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as folder:
        write_tf1(Path(folder), arrays_of())
        return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def tf2_values() -> dict[str, object]:
    """Values of a checkpoint of tf-models-official by key, with its object graph."""
    with tempfile.TemporaryDirectory() as folder:
        encoder = Encoder(CONFIG, arrays_of())
        reader = tf.train.load_checkpoint(tf.train.Checkpoint(encoder=encoder).write(f"{folder}/x"))
        return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


def safetensors_seeds() -> tuple[bytes, ...]:
    """Two tensors and a header, as Hugging Face writes them, and one in bfloat16."""
    first = {"a": np.eye(2, dtype=np.float32), "b": np.arange(1)}
    header = b'{"a":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]}}'
    return save(first, {"format": "pt"}), len(header).to_bytes(8, "little") + header + bytes(4)


def index_block() -> tuple[bytes, bytes]:
    """The block of an index with a part of a variable and a string, and the values."""
    with tempfile.TemporaryDirectory() as folder:
        parts = [np.ones(1, np.float32), np.zeros(2, np.float32), np.array(b"owl", object)]
        tf.raw_ops.SaveV2(
            prefix=f"{folder}/x",
            tensor_names=["x", "x", "y"],
            shape_and_slices=["3 0,1", "3 1,2", ""],
            tensors=parts,
        )
        entries = _items(Path(folder, "x.index").read_bytes())
        return block_of(entries), Path(folder, "x.data-00000-of-00001").read_bytes()


INDEX_BLOCK, BLOCK_VALUES = index_block()


def h5_weights() -> bytes:
    """A layer with a kernel, as Keras 2 writes it with h5py 2.

    Names of variable length, as of h5py 3, are in a heap. HDF5 is stopped after 20 seconds if a damage
    there makes it loop forever, which would be most of the time of the fuzzing.
    """
    content = io.BytesIO()
    with h5py.File(content, "w") as file:
        file.attrs["layer_names"] = np.array([b"bert"])
        file.create_group("bert").attrs["weight_names"] = np.array([b"bert/dense/kernel:0"])
        file["bert"]["bert/dense/kernel:0"] = np.ones((2, 3), np.float32)
    return content.getvalue()


def torch_weights() -> tuple[bytes, ...]:
    """Weights in PyTorch's current format, and in the one before 1.6; empty without PyTorch."""
    if find_spec("torch") is None:
        return ()
    import torch

    files = io.BytesIO(), io.BytesIO()
    for file, zipped in zip(files, (True, False), strict=True):
        torch.save({"a": torch.ones(2, 3)}, file, _use_new_zipfile_serialization=zipped)
    return tuple(file.getvalue() for file in files)


TF1 = tf1_files()
TF2 = tf2_values()
INDEX, VALUES = "bert_model.ckpt.index", "bert_model.ckpt.data-00000-of-00001"
WEIGHTS = save(huggingface_tensors(arrays_of("classifier")))
HUGGINGFACE = {
    "config.json": as_json(HUGGINGFACE_CONFIG)[0],
    "model.safetensors": WEIGHTS,
    "vocab.txt": VOCAB,
}
LABELLED_CONFIG = {
    **HUGGINGFACE_CONFIG,
    "architectures": ["BertForSequenceClassification"],
    "id2label": {str(index): f"label {index}" for index in range(5)},
}
SENTENCES = {
    "modules.json": as_json(MODULES)[0],
    "1_Pooling/config.json": as_json(POOLING)[0],
    "2_Dense/config.json": as_json(DENSE)[0],
    "2_Dense/model.safetensors": save({"linear.weight": np.ones((3, 8), np.float32)}),
    "config_sentence_transformers.json": as_json(PROMPTS)[0],
}
