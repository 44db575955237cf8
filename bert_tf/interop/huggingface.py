"""Hugging Face folders of a BERT: `config.json` and the weights, with any of the `Bert*` heads.

Linear layers are stored [out, in] there; the reference's kernels are [in, out], and only the weights
of its heads are [out, in].
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from bert_tf.config import BertConfig, parse_json
from bert_tf.interop.checkpoint import (
    MOST_REPLACED,
    LazyArrays,
    PretrainedCheckpoint,
    config_from_values,
    file_beside,
    read_json,
)
from bert_tf.interop.huggingface_names import (
    ALIASES,
    BUFFERS,
    POOLER_FILE,
    modern_name,
    name_pairs,
)
from bert_tf.interop.letter_case import stated_lower_case
from bert_tf.interop.tensor_files import open_tensors, weights_file
from bert_tf.tokenization import load_vocab

# The heads whose outputs are the labels that `config.json` names.
_LABELED = ("BertForSequenceClassification", "BertForTokenClassification")


def read_huggingface(path: str | os.PathLike) -> PretrainedCheckpoint:
    """Reads a Hugging Face folder of a BERT, or the folder of a sentence-transformers model.

    Args:
        path: a folder with `config.json` and one of `model.safetensors`, `pytorch_model.bin` or
            their sharded forms (`*.index.json`); or one such weights file. With a `modules.json`, the
            part of it that is the transformer is read.

    Returns:
        The checkpoint under the reference's names, in the reference's layout and dialect
        (`hidden_act: "gelu"` there is "gelu_erf" here). Tensors with no name in the reference keep
        their own. bfloat16 and float16 become float32.

    Raises:
        FileNotFoundError: there are no weights, or no `config.json` beside them.
        ImportError: the library that reads this kind of file is not installed.
        ValueError: the model is no BERT, or a file is damaged.
    """
    path = os.fspath(path)
    if os.path.isdir(path):
        folder = transformer_folder(path)
        file = weights_file(folder)
        if file is None:
            raise FileNotFoundError(
                f"{folder} has no model.safetensors and no pytorch_model.bin{_other_formats(folder)}."
            )
    elif os.path.isfile(path):
        folder, file = os.path.dirname(path), path
    else:
        raise FileNotFoundError(f"There is no file and no folder {path}.")
    config_file = file_beside(folder, "config.json")
    if config_file is None:
        raise FileNotFoundError(
            f"There is no config.json beside {file}; it says how many layers and heads the model has."
        )
    values = read_json(config_file)
    config = _config(values, config_file)
    architecture = next(iter(values.get("architectures") or ()), None)
    tensors = open_tensors(file)
    pooler_file = file_beside(folder, POOLER_FILE)
    if pooler_file:
        tensors = _joined(tensors, open_tensors(pooler_file))
    arrays, notes = _in_reference_terms(tensors, config)
    labels = None
    if architecture is None or architecture in _LABELED:
        labels = _labels(values, arrays, config_file)
    vocab_file = file_beside(folder, "vocab.txt")
    check_one_vocabulary(folder)
    return PretrainedCheckpoint(
        source=file,
        arrays=arrays,
        config=config,
        vocab_file=vocab_file,
        vocab=None if vocab_file else vocab_of_tokenizer(folder),
        do_lower_case=stated_lower_case(folder),
        architecture=architecture,
        labels=labels,
        notes=notes,
    )


def transformer_folder(folder: str) -> str:
    """`folder`, or the part of a sentence-transformers model in it that is the transformer.

    Raises:
        ValueError: modules.json names no transformer, or one in a place where none may be.
    """
    modules_file = os.path.join(folder, "modules.json")
    if not os.path.isfile(modules_file):
        return folder
    with open(modules_file, encoding="utf-8") as file:
        # [{"type": "sentence_transformers.models.Transformer", ...}]
        modules = parse_json(file.read())
    for module in modules:
        if module.get("type", "").endswith(".Transformer"):
            part = module.get("path", "")
            if os.path.isabs(part) or ".." in part.split("/"):
                raise ValueError(
                    f"{modules_file} names the folder {part!r}, but the parts of a model lie in its own "
                    "folder. It is damaged or not to be trusted; get it again."
                )
            return os.path.join(folder, part).rstrip(os.sep)
    raise ValueError(
        f"{modules_file} names no module of type Transformer, but only "
        f"{', '.join(module.get('type', '?') for module in modules)}; there is no BERT to read."
    )


def _config(values: Mapping[str, Any], config_file: str) -> BertConfig:
    if any((values.get("pruned_heads") or {}).values()):
        raise ValueError(
            f"{config_file}: `pruned_heads` is {values['pruned_heads']}, but every layer must have "
            "all its attention heads. Use the model before pruning."
        )
    if values.get("model_type", "bert") == "bert":
        # A file without any key that is Hugging Face's alone (as of 2019) would pass for the
        # reference's, in which "gelu" is the other formula.
        return config_from_values({"model_type": "bert", **values}, config_file)
    # Let BertConfig say what it wants to read: the other keys of a foreign model are no typos.
    relevant = {"vocab_size": values.get("vocab_size", 1), "model_type": values["model_type"]}
    return config_from_values(relevant, config_file)


def _joined(first: LazyArrays, second: LazyArrays) -> LazyArrays:
    """Both, the first where they have one name."""
    shapes = {name: part.shape(name) for part in (second, first) for name in part}
    return LazyArrays(shapes, lambda name: (first if name in first else second)[name])


def _in_reference_terms(
    tensors: LazyArrays, config: BertConfig
) -> tuple[LazyArrays, tuple[str, ...]]:
    """The same tensors under the reference's names and in its layout, and notes on what is odd."""
    pairs = name_pairs(config.num_hidden_layers)
    sources: dict[str, tuple[str, bool]] = {}  # name here -> (name in the file, transposed)
    aliases: dict[str, str] = {}
    for own_name in tensors:
        modern = modern_name(own_name)
        if modern in BUFFERS:
            continue
        if modern in ALIASES:
            aliases[modern] = own_name
            continue
        name, transposed = pairs.get(modern, (own_name, False))
        if name in sources:  # both with and without "bert."; the second is nobody's
            name, transposed = own_name, False
        sources[name] = (own_name, transposed)

    notes = []
    for alias, own_name in aliases.items():
        name, transposed = pairs[ALIASES[alias]]
        if name not in sources:
            sources[name] = (own_name, transposed)
        elif not np.array_equal(tensors[own_name], tensors[sources[name][0]]):
            sources[own_name] = (own_name, False)
            notes.append(
                f"{own_name} differs from {sources[name][0]}, but here the two are one variable; the "
                "masked-LM head computes with the latter."
            )

    def shape(own_name: str, transposed: bool) -> tuple[int, ...]:
        return tensors.shape(own_name)[::-1] if transposed else tensors.shape(own_name)

    def read(name: str) -> np.ndarray:
        own_name, transposed = sources[name]
        return tensors[own_name].T if transposed else tensors[own_name]

    shapes = {name: shape(*source) for name, source in sources.items()}
    return LazyArrays(shapes, read), tuple(notes)


def _labels(
    values: Mapping[str, Any], arrays: LazyArrays, config_file: str
) -> tuple[str, ...] | None:
    """The names in `id2label`, in the order of the classifier's outputs."""
    id2label = values.get("id2label")
    if not id2label or "output_weights" not in arrays:
        return None
    num_labels = arrays.shape("output_weights")[0]
    if sorted(id2label, key=str) != sorted(map(str, range(num_labels)), key=str):
        raise ValueError(
            f"{config_file}: `id2label` names the outputs {', '.join(map(str, id2label))}, but the "
            f"classifier in the weights has the {num_labels} outputs 0 to {num_labels - 1}."
        )
    return tuple(str(id2label[str(index)]) for index in range(num_labels))


def vocab_of_tokenizer(folder: str) -> tuple[str, ...] | None:
    """Return the WordPieces in `tokenizer.json`, in the order of their ids; None if it has none."""
    path = file_beside(folder, "tokenizer.json")
    model = read_json(path).get("model", {}) if path else {}
    if model.get("type") != "WordPiece":
        return None
    ids = model["vocab"]
    if sorted(ids.values()) != list(range(len(ids))):
        raise ValueError(f"{path}: the ids of the vocabulary are not 0 to {len(ids) - 1}.")
    return tuple(sorted(ids, key=ids.__getitem__))


def check_one_vocabulary(folder: str) -> None:
    """Raise if `vocab.txt` and `tokenizer.json` of a folder are vocabularies of different models.

    Raises:
        ValueError: more than `MOST_REPLACED` of the tokens have another id in vocab.txt.
    """
    vocab_file, tokens = file_beside(folder, "vocab.txt"), vocab_of_tokenizer(folder)
    if vocab_file is None or tokens is None:
        return
    vocab = load_vocab(vocab_file)
    differing = [token for index, token in enumerate(tokens) if vocab.get(token) != index]
    if len(differing) > MOST_REPLACED * len(tokens):
        raise ValueError(
            f"{vocab_file} and the tokenizer.json next to it are of different models: "
            f"{len(differing)} of {len(tokens)} tokens, such as {differing[0]!r}, have another id or "
            "none. Remove the one that is not of these weights."
        )


def _other_formats(folder: str) -> str:
    others = [
        name
        for name in ("tf_model.h5", "flax_model.msgpack", "model.onnx")
        if os.path.exists(os.path.join(folder, name))
    ]
    if not others:
        return ""
    return (
        f" (only {', '.join(others)}, which is not read; in Python, `save_pretrained` of a PyTorch "
        "model writes model.safetensors)"
    )
