"""Folders of sentence-transformers: the modules after the transformer.

    modules.json                        the modules in order: Transformer, Pooling, Dense, Normalize
    1_Pooling/config.json               pooling
    2_Dense/                            projection
    config_sentence_transformers.json   prompts, the prefixes of texts; whether it is a CrossEncoder
    sentence_bert_config.json           {"max_seq_length": 256}, read by `tokenizer_files`

Source: the files that sentence-transformers 2.0 to 6.0 save.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from bert_tf.checkpoints.checkpoint import LazyArrays, read_sibling
from bert_tf.checkpoints.tensor_files import open_tensors, weights_file, write_safetensors
from bert_tf.config import BertConfig
from bert_tf.files import write_text
from bert_tf.limits import DataError, check_inside, read_json

MODULES_FILE = "modules.json"
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
    """Return the settings of an embedding model, as arguments of `EmbeddingTask`; None for others."""
    root = _root(folder)
    if root is None:
        if (file := _file_of_modules(folder)) is not None:
            problem = f"{file}, but no {MODULES_FILE} with the pooling: copy it too."
            raise DataError(folder, problem)
        return None
    modules, values = _modules(root), read_sibling(root, _PROMPTS_FILE)
    kinds, folders = [kind for kind, _ in modules], dict(modules)
    if kinds == ["Transformer"] and values.get("model_type") != "SentenceTransformer":
        return None  # a CrossEncoder
    if kinds != [kind for kind in _KINDS if kind in folders] or "Pooling" not in folders:
        raise _unsupported(root, f"the modules {', '.join(kinds)}", ", ".join(_KINDS))
    if dim := values.get("truncate_dim"):
        raise _unsupported(os.path.join(root, _PROMPTS_FILE), f"`truncate_dim` {dim}", "null")
    pooling = _pooling(os.path.join(folders["Pooling"], "config.json"))
    settings: dict[str, Any] = {"normalize": "Normalize" in folders, "pooling": pooling}
    if "Dense" in folders:
        settings["projection_size"] = _dense_size(os.path.join(folders["Dense"], "config.json"))
    prompts = values.get("prompts") or {}
    for name, prompt in _PREFIXES:
        if (text := prompts.get(prompt)) is not None:
            settings.setdefault(name, text)
    if default := prompts.get(values.get("default_prompt_name")):
        settings = {"query_prefix": default, "document_prefix": default} | settings
    return settings


def cross_encoder_settings(folder: str, values: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return {"activation_fn": class in Python or None} of a CrossEncoder; None for other models."""
    newest, oldest = read_sibling(folder, _PROMPTS_FILE), "sbert_ce_default_activation_function"
    if newest.get("model_type") == "CrossEncoder":
        if (newest.get("prompts") or {}).get(name := newest.get("default_prompt_name")):
            file = os.path.join(folder, _PROMPTS_FILE)
            raise _unsupported(file, f"`default_prompt_name` {name} of a CrossEncoder", "null")
        return {"activation_fn": newest.get("activation_fn")}
    if CROSS_ENCODER_KEY in values:
        return {"activation_fn": values[CROSS_ENCODER_KEY].get("activation_fn")}
    return {"activation_fn": values[oldest]} if oldest in values else None


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
        tensor = _PROJECTION[name]
        return tensors[tensor] if tensor in tensors else np.zeros(size, np.float32)

    weights, bias = _PROJECTION
    return LazyArrays({weights: tensors.shape("linear.weight"), bias: (size,)}, read)


def write_modules(
    folder: str, settings: Mapping[str, Any], config: BertConfig, arrays: Mapping[str, np.ndarray]
) -> None:
    """Write the modules after the transformer; `settings`: arguments of `EmbeddingTask`."""
    settings = {"pooling": "mean", "normalize": True, **settings}
    pooling = settings["pooling"]
    if pooling not in _POOLINGS:
        raise ValueError(f"pooling is {pooling}, but must be one of {', '.join(_POOLINGS)}.")
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
                "query": settings.get("query_prefix", ""),
                "document": settings.get("document_prefix", ""),
            },
            "default_prompt_name": None,
            "similarity_fn_name": "cosine",
        },
    }
    kinds = ["Transformer", "Pooling"]
    projection = {tensor: arrays[name] for name, tensor in _PROJECTION.items() if name in arrays}
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


def transformer_folder(folder: str) -> str:
    """Return `folder`, or the folder of the transformer if it is a sentence-transformers model."""
    if not os.path.isfile(os.path.join(folder, MODULES_FILE)):
        return folder
    return dict(_modules(folder)).get("Transformer", folder)


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
    values = read_sibling(folder, _PROMPTS_FILE)
    if values and values.get("model_type") != "CrossEncoder":
        return _PROMPTS_FILE
    return _POOLING_FILE if os.path.isfile(os.path.join(folder, _POOLING_FILE)) else None


def _modules(root: str) -> list[tuple[str, str]]:
    """Return the class, without its package, and the folder of each module."""
    source = os.path.join(root, MODULES_FILE)
    # [{"type": "sentence_transformers.models.Transformer", "path": "", ...}]
    modules = read_json(source, kind=list)
    for module in modules:
        check_inside(module["path"], "folder", source)
    folders = [os.path.join(root, module["path"]).rstrip(os.sep) for module in modules]
    return [(m["type"].rpartition(".")[2], f) for m, f in zip(modules, folders, strict=True)]


def _pooling(file: str) -> str:
    values = read_json(file)
    if "pooling_mode" in values:
        pooling = values["pooling_mode"]
    else:
        used = [name for name, is_used in values.items() if is_used and name.startswith("pooling_")]
        pooling = "+".join(
            _OLD_NAMES.get(name.removeprefix("pooling_mode_"), name) for name in used
        )
    if values.get("include_prompt") is False:
        pooling += " without prompts"
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
