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

from bert_tf.config import BertConfig
from bert_tf.data.files import write_text
from bert_tf.interop.checkpoint import LazyArrays, read_json, typed
from bert_tf.interop.sidecar import MODULES_FILE, read_modules
from bert_tf.interop.tensor_files import open_tensors, weights_file, write_safetensors

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
        ValueError: there is a module that this package does not have, or modules.json is missing.
    """
    root = _root(folder)
    if root is None:
        if (file := _file_of_modules(folder)) is not None:
            raise ValueError(
                f"{folder} has {file}, but no {MODULES_FILE}, so the pooling and the prefixes of texts "
                f"are unknown. Copy {MODULES_FILE} too."
            )
        return None
    kinds, modules = [kind for kind, _ in _modules(root)], dict(_modules(root))
    file = os.path.join(root, _PROMPTS_FILE)
    values = _optional(file)
    if kinds == ["Transformer"] and values.get("model_type") != "SentenceTransformer":
        return None  # a CrossEncoder
    if kinds != [kind for kind in _KINDS if kind in modules] or "Pooling" not in modules:
        raise ValueError(
            f"{root}: the modules {', '.join(kinds)} are not supported. "
            "They must be Transformer and Pooling, then perhaps Dense and Normalize."
        )
    found: dict[str, Any] = {"normalize": "Normalize" in modules}
    found["pooling"] = _pooling(os.path.join(modules["Pooling"], "config.json"))
    if "Dense" in modules:
        found["projection_size"] = _dense_size(modules["Dense"])
    prompts = typed(values, "prompts", dict, file) or {}
    for name, prompt in _PREFIXES:
        if (text := typed(prompts, prompt, str, file)) is not None:
            found.setdefault(name, text)
    if default := typed(prompts, typed(values, "default_prompt_name", str, file) or "", str, file):
        found = {"query_prefix": default, "document_prefix": default} | found
    if values.get("truncate_dim"):
        raise ValueError(
            f"{file}: `truncate_dim` is {values['truncate_dim']}, but vectors are not cut here. Set it "
            "to null, and use the first numbers of each vector."
        )
    return found


def lost_prompts(folder: str) -> list[str]:
    """Return the prompts that `embedding_settings` does not contain, in the words of a message."""
    root = _root(folder)
    values = {} if root is None else _optional(os.path.join(root, _PROMPTS_FILE))
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
        ValueError: it puts a prompt before its texts, or a file is damaged.
    """
    file = os.path.join(folder, _PROMPTS_FILE)
    beside = _optional(file)
    has_file = beside.get("model_type") == "CrossEncoder"
    prompts, name = beside.get("prompts") or {}, beside.get("default_prompt_name")
    if has_file and prompts.get(name):
        raise ValueError(
            f"{file}: the CrossEncoder puts the prompt {prompts[name]!r} before its texts, which is not "
            "supported. Set `default_prompt_name` to null, and put it before your texts."
        )
    older = typed(values, CROSS_ENCODER_KEY, dict, os.path.join(folder, "config.json")) or {}
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
            f"pooling is {pooling}, but sentence-transformers has {', '.join(_POOLINGS)} only. Train "
            "with one of these, or export a SavedModel."
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
    path = os.path.join(folder, _PROMPTS_FILE)
    if os.path.isfile(path) and read_json(path).get("model_type") != "CrossEncoder":
        return _PROMPTS_FILE
    return _POOLING_FILE if os.path.isfile(os.path.join(folder, _POOLING_FILE)) else None


def _modules(root: str) -> list[tuple[str, str]]:
    """Return the class without its package, and the folder of each module."""
    return [(kind.rpartition(".")[2], path) for kind, path in read_modules(root)]


def _pooling(file: str) -> str:
    values = _optional(file)
    if not values:
        raise ValueError(f"{file} is missing, so the pooling is unknown. Copy the whole folder.")
    if values.get("include_prompt") is False:
        raise ValueError(f"{file}: `include_prompt` is false, but prompts are always pooled here.")
    if isinstance(values.get("pooling_mode"), list):  # several at once
        values["pooling_mode"] = "+".join(map(str, values["pooling_mode"]))
    found = typed(values, "pooling_mode", str, file)
    if found is None:
        used = [n for n, used in values.items() if n.startswith("pooling_mode_") and used]
        names = [name.removeprefix("pooling_mode_") for name in used]
        found = "+".join(_OLD_NAMES.get(name, name) for name in names)
    if found not in _POOLINGS:
        raise ValueError(
            f"{file}: the pooling {found!r} is not supported; it must be one of "
            f"{', '.join(_POOLINGS)}."
        )
    return found


def _dense_size(path: str) -> int:
    file = os.path.join(path, "config.json")
    values = read_json(file)
    activation = str(values.get("activation_function", ""))
    if activation.rpartition(".")[2] != "Identity":
        raise ValueError(
            f"{file}: `activation_function` is {activation}, but only a linear layer (Identity) is "
            "supported."
        )
    size = typed(values, "out_features", int, file)
    if size is None:
        raise ValueError(f"{file} has no `out_features`. Copy the whole folder.")
    return size


def _optional(file: str) -> dict[str, Any]:
    return read_json(file) if os.path.isfile(file) else {}
