"""Folders of sentence-transformers: the modules after the transformer.

    modules.json                        the modules in order: Transformer, Pooling, Dense, Normalize
    1_Pooling/config.json               pooling
    2_Dense/                            projection
    config_sentence_transformers.json   prompts, the prefixes of texts; whether it is a CrossEncoder
    sentence_bert_config.json           {"max_seq_length": 256}, read by `tokenizer_files.stated_length`

Source: the files that sentence-transformers 2.0 to 6.0 save.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from bert_tf.checkpoints.checkpoint import LazyArrays, read_beside
from bert_tf.checkpoints.sidecar import MODULES_FILE, read_modules
from bert_tf.checkpoints.tensor_files import open_tensors, weights_file, write_safetensors
from bert_tf.config import BertConfig
from bert_tf.files import write_text
from bert_tf.limits import DataError, read_json

_PROMPTS_FILE = "config_sentence_transformers.json"
_POOLING_FILE = "1_Pooling/config.json"
_POOLINGS = ("mean", "cls", "max")  # names of both
_OLD_NAMES = {"mean_tokens": "mean", "cls_token": "cls", "max_tokens": "max"}
_PROJECTION = {
    "cls/embedding/output_weights": "linear.weight",
    "cls/embedding/output_bias": "linear.bias",
}
_KINDS = ("Transformer", "Pooling", "Dense", "Normalize")  # in their order
# Setting, and a prompt for it; the first that exists is taken, even if it is empty, as in
# `encode_document`.
_PREFIXES = (
    ("query_prefix", "query"),
    ("document_prefix", "document"),
    ("document_prefix", "passage"),
    ("document_prefix", "corpus"),
)
_IDENTITY = "torch.nn.modules.linear.Identity"
CROSS_ENCODER_KEY = "sentence_transformers"  # of config.json
RAW_SCORES = {"activation_fn": _IDENTITY}  # for this key: `CrossEncoder.predict` returns the logits


def is_of_sentence_transformers(folder: str) -> bool:
    """Return True if sentence-transformers has saved the folder, also where modules.json is missing."""
    return _root(folder) is not None or _file_of_modules(folder) is not None


def embedding_settings(folder: str) -> dict[str, Any] | None:
    """Return the settings of an embedding model, as arguments of `EmbeddingTask`; None for others.

    Args:
        folder: of the transformer, or of the whole model.

    Raises:
        DataError: a module or setting is not supported, or modules.json is missing.
    """
    root = _root(folder)
    if root is None:
        if (file := _file_of_modules(folder)) is not None:
            problem = f"{file}, but no {MODULES_FILE} with the pooling: copy it too."
            raise DataError(folder, problem)
        return None
    modules = _modules(root)
    kinds, folders = [kind for kind, _ in modules], dict(modules)
    file = os.path.join(root, _PROMPTS_FILE)
    values = read_beside(root, _PROMPTS_FILE)
    if kinds == ["Transformer"] and values.get("model_type") != "SentenceTransformer":
        return None  # a CrossEncoder
    if kinds != [kind for kind in _KINDS if kind in folders] or "Pooling" not in folders:
        raise _unsupported(
            root, f"the modules {', '.join(kinds)}", "Transformer, Pooling, Dense, ..."
        )
    found: dict[str, Any] = {"normalize": "Normalize" in folders}
    found["pooling"] = _pooling(os.path.join(folders["Pooling"], "config.json"))
    if "Dense" in folders:
        found["projection_size"] = _dense_size(os.path.join(folders["Dense"], "config.json"))
    prompts = values.get("prompts") or {}
    for name, prompt in _PREFIXES:
        if (text := prompts.get(prompt)) is not None:
            found.setdefault(name, text)
    if default := prompts.get(values.get("default_prompt_name")):
        found = {"query_prefix": default, "document_prefix": default} | found
    if dim := values.get("truncate_dim"):
        raise _unsupported(file, f"`truncate_dim` {dim}", "null")
    return found


def lost_prompts(folder: str) -> list[str]:
    """Return the prompts that `embedding_settings` does not contain, in the words of a message."""
    root = _root(folder)
    values = {} if root is None else read_beside(root, _PROMPTS_FILE)
    prompts, default = values.get("prompts") or {}, values.get("default_prompt_name")
    kept = {prompt for _, prompt in _PREFIXES}
    lost = [f"the prompt {name!r}" for name in prompts if name not in kept]
    return [*lost, f"the default prompt {default!r} of `encode`"] if prompts.get(default) else lost


def cross_encoder_settings(folder: str, values: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what config.json states about a CrossEncoder, which takes pairs; None for other models.

    Args:
        folder: of its weights.
        values: of its config.json, where earlier versions than 5.0 write keys of their own.

    Returns:
        `activation_fn`: path of the class in Python, None for the default of the class.

    Raises:
        DataError: it puts a prompt before its texts.
    """
    file = os.path.join(folder, _PROMPTS_FILE)
    beside = read_beside(folder, _PROMPTS_FILE)
    has_file = beside.get("model_type") == "CrossEncoder"
    prompts, name = beside.get("prompts") or {}, beside.get("default_prompt_name")
    if has_file and prompts.get(name):
        raise _unsupported(file, f"`default_prompt_name` {name} of a CrossEncoder", "null")
    older = values.get(CROSS_ENCODER_KEY) or {}
    oldest = "sbert_ce_default_activation_function"
    if not (has_file or CROSS_ENCODER_KEY in values or oldest in values):
        return None
    activation = beside.get("activation_fn") if has_file else None
    return {"activation_fn": activation or older.get("activation_fn") or values.get(oldest)}


def read_projection(folder: str) -> LazyArrays:
    """Return the projection of the model whose transformer is in a folder, by our names; or nothing."""
    root = _root(folder)
    paths = [path for kind, path in _modules(root) if kind == "Dense"] if root else []
    file = weights_file(paths[0]) if len(paths) == 1 else None
    if file is None:
        return LazyArrays({}, dict[str, np.ndarray]().__getitem__)
    tensors = open_tensors(file)
    size = tensors.shape("linear.weight")[0]

    def read(name: str) -> np.ndarray:
        theirs = _PROJECTION[name]
        return tensors[theirs] if theirs in tensors else np.zeros(size, np.float32)

    shapes = {name: (size,) for name in _PROJECTION}
    return LazyArrays({**shapes, next(iter(_PROJECTION)): tensors.shape("linear.weight")}, read)


def write_modules(
    folder: str, settings: Mapping[str, Any], config: BertConfig, arrays: Mapping[str, np.ndarray]
) -> None:
    """Write the modules after the transformer, whose files are in the folder itself.

    Args:
        settings: arguments of `EmbeddingTask`.
        arrays: variables of the model.

    Raises:
        ValueError: sentence-transformers has no such pooling.
    """
    pooling = settings["pooling"]
    if pooling not in _POOLINGS:
        raise ValueError(
            f"pooling is {pooling}, but sentence-transformers has only {', '.join(_POOLINGS)}."
        )
    size = config.hidden_size
    files: dict[str, Any] = {
        _POOLING_FILE: {
            "word_embedding_dimension": size,
            **{f"pooling_mode_{old}": name == pooling for old, name in _OLD_NAMES.items()},
            "pooling_mode_mean_sqrt_len_tokens": False,
            "include_prompt": True,
        },
        "sentence_bert_config.json": {
            "max_seq_length": settings["max_seq_length"],
            "do_lower_case": False,
        },
        _PROMPTS_FILE: {
            "prompts": {
                "query": settings["query_prefix"],
                "document": settings["document_prefix"],
            },
            "default_prompt_name": None,
            "similarity_fn_name": "cosine",
        },
    }
    kinds = ["Transformer", "Pooling"]
    projection = {theirs: arrays[ours] for ours, theirs in _PROJECTION.items() if ours in arrays}
    if projection:
        kinds.append("Dense")
        files["2_Dense/config.json"] = {
            "in_features": size,
            "out_features": settings["projection_size"],
            "bias": True,
            "activation_function": _IDENTITY,
        }
        os.makedirs(os.path.join(folder, "2_Dense"))
        write_safetensors(os.path.join(folder, "2_Dense", "model.safetensors"), projection)
    if settings["normalize"]:
        kinds.append("Normalize")
        files[f"{len(kinds) - 1}_Normalize/config.json"] = {}
    files[MODULES_FILE] = [
        {
            "idx": index,
            "name": str(index),
            "path": f"{index}_{kind}" if index else "",
            "type": f"sentence_transformers.models.{kind}",
        }
        for index, kind in enumerate(kinds)
    ]
    for name, values in files.items():
        os.makedirs(os.path.dirname(os.path.join(folder, name)), exist_ok=True)
        write_text(os.path.join(folder, name), json.dumps(values, indent=2) + "\n")


def _root(folder: str) -> str | None:
    """Return the folder of modules.json: the transformer's own, or the one above if it names it."""
    if os.path.isfile(os.path.join(folder, MODULES_FILE)):
        return folder
    above = os.path.dirname(os.path.abspath(folder))
    if os.path.isfile(os.path.join(above, MODULES_FILE)):
        paths = [path for kind, path in _modules(above) if kind == "Transformer"]
        if os.path.realpath(folder) in map(os.path.realpath, paths):
            return above
    return None


def _file_of_modules(folder: str) -> str | None:
    """Return a file that sentence-transformers writes for an embedder besides modules.json, or None."""
    values = read_beside(folder, _PROMPTS_FILE)
    if values and values.get("model_type") != "CrossEncoder":
        return _PROMPTS_FILE
    return _POOLING_FILE if os.path.isfile(os.path.join(folder, _POOLING_FILE)) else None


def _modules(root: str) -> list[tuple[str, str]]:
    """Return the class without its package, and the folder of each module."""
    return [(kind.rpartition(".")[2], path) for kind, path in read_modules(root)]


def _pooling(file: str) -> str:
    values = read_json(file)
    if values.get("include_prompt") is False:
        raise _unsupported(file, "`include_prompt` false", "true")
    if "pooling_mode" in values:
        pooling = values["pooling_mode"]
    else:
        used = [name for name, is_used in values.items() if is_used and name.startswith("pooling_")]
        pooling = "+".join(
            _OLD_NAMES.get(name.removeprefix("pooling_mode_"), name) for name in used
        )
    if pooling not in _POOLINGS:
        raise _unsupported(file, f"the pooling {pooling}", ", ".join(_POOLINGS))
    return pooling


def _dense_size(file: str) -> int:
    values = read_json(file)
    activation = values.get("activation_function", "")
    if not activation.endswith(".Identity"):
        raise _unsupported(file, f"`activation_function` {activation}", "Identity")
    return values["out_features"]


def _unsupported(source: str, setting: str, valid: str) -> DataError:
    return DataError(source, f"{setting} is not supported, but only {valid}.")
