"""Checkpoints of a few hundred numbers in every format that is read, written without bert_tf."""

import json
import re
from pathlib import Path

import numpy as np
import tensorflow as tf
from helpers import assert_bit_equal
from tiny_config import tiny_config

from bert_tf.config import BertConfig
from reference import numpy_bert

CONFIG = tiny_config(vocab_size=13, num_hidden_layers=2, intermediate_size=12, type_vocab_size=3)

HUGGINGFACE_CONFIG = {**CONFIG.to_dict(), "model_type": "bert", "hidden_act": "gelu"}


def arrays_of(*heads: str, num_labels: int = 5, seed: int = 3) -> dict[str, np.ndarray]:
    """Random values for the encoder and `heads` of numpy_bert.HEADS, under the reference's names."""
    return numpy_bert.random_variables(CONFIG, seed=seed, heads=heads, num_labels=num_labels)


def write_tf1(folder: Path, arrays, name="bert_model.ckpt", config: BertConfig | None = CONFIG):
    """Writes a name-based checkpoint and returns its prefix."""
    folder.mkdir(parents=True, exist_ok=True)
    if config:
        config.to_json_file(folder / "bert_config.json")
    tf.raw_ops.SaveV2(
        prefix=str(folder / name),
        tensor_names=list(arrays),
        shape_and_slices=[""] * len(arrays),
        tensors=list(arrays.values()),
    )
    return str(folder / name)


def with_adam(arrays, step=17):
    """`arrays` and what the reference's optimizer stores beside them."""
    slots = {
        f"{name}/{slot}": np.zeros_like(array)
        for name, array in arrays.items()
        for slot in ("adam_m", "adam_v")
    }
    return {**arrays, **slots, "global_step": np.int64(step)}


def huggingface_tensors(arrays, prefix="bert."):
    """The same values under Hugging Face's names and in its layout (Linear weights are [out, in])."""
    return dict(_huggingface_tensor(name, array, prefix) for name, array in arrays.items())


def _huggingface_tensor(name, array, prefix):
    heads = {
        "output_weights": "classifier.weight",
        "output_bias": "classifier.bias",
        "cls/squad/output_weights": "qa_outputs.weight",
        "cls/squad/output_bias": "qa_outputs.bias",
        "cls/seq_relationship/output_weights": "cls.seq_relationship.weight",
        "cls/seq_relationship/output_bias": "cls.seq_relationship.bias",
        "cls/predictions/output_bias": "cls.predictions.bias",
    }
    if name in heads:
        return heads[name], array
    theirs = re.sub(r"layer_(\d+)", r"layer.\1", name).replace("/", ".")
    theirs = re.sub("^bert[.]", prefix, theirs)
    if theirs.endswith("kernel"):
        return theirs.replace("kernel", "weight"), np.ascontiguousarray(array.T)
    if theirs.endswith("embeddings"):
        return f"{theirs}.weight", array
    return theirs.replace("gamma", "weight").replace("beta", "bias"), array


def write_json(path: Path, values) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(values), encoding="utf-8")
    return path


def write_huggingface(folder: Path, tensors, **config) -> str:
    """Writes `config.json` and `model.safetensors` and returns the folder."""
    from safetensors.numpy import save_file

    write_json(folder / "config.json", {**HUGGINGFACE_CONFIG, **config})
    save_file(tensors, folder / "model.safetensors")
    return str(folder)


def assert_same(found, expected):
    assert {array.dtype for array in found.values()} <= {np.dtype("float32")}
    assert_bit_equal(found, expected)
