"""Reader and writer of Hugging Face folders of a BERT, with any of the `Bert*` heads.

Hugging Face stores linear layers as [out, in]. The reference's kernels are [in, out]; only the weights
of its heads are [out, in].

`transformers` loads written folders without a warning about missing or extra tensors. The decoder of
the masked-LM head is not stored, because it equals the word embeddings. A pooler that the class lacks
has its own file (`POOLER_FILE`), which `read_huggingface` reads.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from bert_tf.checkpoints.checkpoint import (
    LazyArrays,
    PretrainedCheckpoint,
    rename_arrays,
    sibling_file,
)
from bert_tf.checkpoints.heads import BY_ARCHITECTURE, Head
from bert_tf.checkpoints.sentence_transformers import (
    CROSS_ENCODER_KEY,
    cross_encoder_settings,
    read_projection,
    transformer_folder,
)
from bert_tf.checkpoints.tensor_files import WEIGHTS_FILES, open_tensors, weights_file
from bert_tf.config import HUGGINGFACE_PROBLEM_TYPES, BertConfig, huggingface_activation
from bert_tf.limits import DataError, join_names, read_json

# Written next to model.safetensors: the pooler of a model whose class there lacks one (spans, tokens,
# masked words). The reference's checkpoints have one for every head.
POOLER_FILE = "pooler.safetensors"

# peft writes it next to the weights of an adapter.
ADAPTER_FILE = "adapter_config.json"
_ADAPTER = (
    "adapters are not read: merge them with peft, `merge_and_unload()`, and save the tokenizer too."
)


# ------------------------------------------------------------------------------------------- names

# Not weights: numbers 0, 1, 2, ... and zeros that older versions stored with the model.
_BUFFERS = frozenset({"embeddings.position_ids", "embeddings.token_type_ids"})

# Second name of a tensor that the masked-LM head shares -> its first name.
ALIASES = {
    "cls.predictions.decoder.weight": "embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}


class TensorName(NamedTuple):
    """Hugging Face's name without "bert.", the reference's, and whether to transpose."""

    huggingface: str
    reference: str
    transposed: bool = False


# Suffixes of the names in a module: Hugging Face's, the reference's, and whether to transpose.
_DENSE = (("weight", "kernel", True), ("bias", "bias", False))
_NORM = (("weight", "gamma", False), ("bias", "beta", False))
_HEAD = (("weight", "output_weights", False), ("bias", "output_bias", False))
_TABLE = (("weight", "", False),)
# Prefixes, with "{}" for the number of a layer.
_MODULES = (
    ("embeddings.word_embeddings", "bert/embeddings/word_embeddings", _TABLE),
    ("embeddings.position_embeddings", "bert/embeddings/position_embeddings", _TABLE),
    ("embeddings.token_type_embeddings", "bert/embeddings/token_type_embeddings", _TABLE),
    ("embeddings.LayerNorm", "bert/embeddings/LayerNorm", _NORM),
    *(
        (f"encoder.layer.{{}}.{part}", f"bert/encoder/layer_{{}}/{part.replace('.', '/')}", ends)
        for part, ends in (
            ("attention.self.query", _DENSE),
            ("attention.self.key", _DENSE),
            ("attention.self.value", _DENSE),
            ("attention.output.dense", _DENSE),
            ("attention.output.LayerNorm", _NORM),
            ("intermediate.dense", _DENSE),
            ("output.dense", _DENSE),
            ("output.LayerNorm", _NORM),
        )
    ),
    ("pooler.dense", "bert/pooler/dense", _DENSE),
    ("cls.predictions.transform.dense", "cls/predictions/transform/dense", _DENSE),
    ("cls.predictions.transform.LayerNorm", "cls/predictions/transform/LayerNorm", _NORM),
    ("cls.predictions", "cls/predictions", (("bias", "output_bias", False),)),
    ("cls.seq_relationship", "cls/seq_relationship", _HEAD),
    ("qa_outputs", "cls/squad", _HEAD),
    # Sentences, tokens or choices, depending on the configuration's `architectures`.
    ("classifier", "", _HEAD),
)


def name_table(num_hidden_layers: int) -> tuple[TensorName, ...]:
    """Return the names of all tensors of a BERT and its heads, for reading and for writing."""
    return tuple(
        TensorName(
            f"{module}.{end}".format(layer), f"{start}/{name}".format(layer).strip("/"), transposed
        )
        for module, start, ends in _MODULES
        for layer in (range(num_hidden_layers) if "{}" in module else (0,))
        for end, name, transposed in ends
    )


def _modern_name(name: str) -> str:
    """Return a tensor's name as in a new file of an encoder without a head, "weight" for "gamma"."""
    name = name.removeprefix("bert.")
    for old, new in ((".gamma", ".weight"), (".beta", ".bias")):
        if name.endswith(old):
            return name.removesuffix(old) + new
    return name


# ----------------------------------------------------------------------------------------- reading


def read_huggingface(path: str | os.PathLike) -> PretrainedCheckpoint:
    """Read a Hugging Face folder of a BERT, or transformer and projection of sentence-transformers."""
    path = os.fspath(path)
    folder = transformer_folder(path) if os.path.isdir(path) else os.path.dirname(path)
    file = weights_file(folder) if os.path.isdir(path) else path
    if file is None:
        raise FileNotFoundError(f"{folder} has none of {', '.join(WEIGHTS_FILES)}.")
    config_file = os.path.join(folder, "config.json")
    values = read_json(config_file)
    try:  # the key marks Hugging Face's dialect, in which "gelu" is another formula
        config = BertConfig.from_dict({"model_type": "bert", **values})
    except ValueError as error:
        raise DataError(config_file, str(error)) from error
    architecture = next(iter(values.get("architectures") or ()), None)
    cross_encoder = cross_encoder_settings(folder, values)
    tensors = open_tensors(file)
    if sibling_file(folder, ADAPTER_FILE) or any(".base_layer." in name for name in tensors):
        raise DataError(folder, _ADAPTER)
    pooler_file = sibling_file(folder, POOLER_FILE)
    if pooler_file:
        tensors = _join(tensors, open_tensors(pooler_file))
    arrays, notes = _in_reference_terms(tensors, config)
    arrays = _join(arrays, read_projection(folder))
    head = BY_ARCHITECTURE.get(architecture or "")
    is_labeled = architecture is None or (head is not None and head.has_labels)
    labels = _labels(values, arrays, config_file) if is_labeled else None
    outputs = arrays.shape("output_weights")[0] if "output_weights" in arrays else None
    if cross_encoder is not None:
        extra = {**config.extra, CROSS_ENCODER_KEY: cross_encoder}
        is_sigmoid = str(cross_encoder["activation_fn"]).rpartition(".")[2] == "Sigmoid"
        if outputs not in (None, 1) and is_sigmoid and extra.get("problem_type") is None:
            extra["problem_type"] = HUGGINGFACE_PROBLEM_TYPES["multi_label"]
        config = replace(config, extra=extra)
    return PretrainedCheckpoint(
        source=file,
        arrays=arrays,
        config=config,
        is_pair=None if cross_encoder is None else True,
        architecture=architecture,
        labels=labels,
        notes=notes,
    )


def _join(first: LazyArrays, second: LazyArrays) -> LazyArrays:
    """Return both; the first wins for equal names."""
    shapes = {name: part.shape(name) for part in (second, first) for name in part}
    return LazyArrays(shapes, lambda name: (first if name in first else second)[name])


def _in_reference_terms(
    tensors: LazyArrays, config: BertConfig
) -> tuple[LazyArrays, tuple[str, ...]]:
    """Return the tensors with the reference's names and layout, and notes on oddities."""
    table = {row.huggingface: row for row in name_table(config.num_hidden_layers)}
    sources: dict[str, tuple[str, bool]] = {}  # name here -> (name in the file, transposed)
    notes = []
    for own_name in sorted(tensors, key=lambda name: _modern_name(name) in ALIASES):
        modern = _modern_name(own_name)
        if modern in _BUFFERS:
            continue
        row = table.get(ALIASES.get(modern, modern), TensorName(modern, own_name))
        first = sources.setdefault(row.reference, (own_name, row.transposed))[0]
        if first != own_name and not np.array_equal(tensors[own_name], tensors[first]):
            sources[own_name] = (own_name, False)
            notes.append(f"{own_name} differs from {first}, but here they are one variable.")

    own_names = {name: own_name for name, (own_name, _) in sources.items()}

    def to_reference_layout(name: str, array: np.ndarray) -> np.ndarray:
        return array.T if sources[name][1] else array

    return rename_arrays(tensors, own_names, to_reference_layout), tuple(notes)


def _labels(
    values: Mapping[str, Any], arrays: LazyArrays, config_file: str
) -> tuple[str, ...] | None:
    """Return the names in `id2label`, in the order of the classifier's outputs."""
    id2label = values.get("id2label")
    if not id2label or "output_weights" not in arrays:
        return None
    num_labels = arrays.shape("output_weights")[0]
    if sorted(id2label, key=str) != sorted(map(str, range(num_labels)), key=str):
        problem = f"`id2label` names {join_names(id2label, 5)}, but the weights have {num_labels}."
        raise DataError(config_file, problem)
    return tuple(str(id2label[str(index)]) for index in range(num_labels))


# ----------------------------------------------------------------------------------------- writing

# Hugging Face's own keys that describe the model and that we do not set.
_CARRIED = ("classifier_dropout", "pad_token_id", "language", "finetuning_task")
_CLASSIFIER_DROPOUT = 0.1  # of our heads and the reference's, in every configuration


def huggingface_tensors(
    arrays: Mapping[str, np.ndarray], config: BertConfig, head: Head
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Return the tensors of the head's class, and those of a pooler that the class lacks."""
    names = {row.reference: row for row in name_table(config.num_hidden_layers)}
    tensors: dict[str, np.ndarray] = {}
    pooler: dict[str, np.ndarray] = {}
    for name, array in arrays.items():
        if name not in names:
            raise ValueError(f"Hugging Face's format has no place for {name}: use tf1.")
        own_name, _, transposed = names[name]
        if name.startswith("bert/") and head.variables:
            own_name = f"bert.{own_name}"
        is_extra = name.startswith("bert/pooler/") and not head.uses_pooler
        target = pooler if is_extra else tensors
        target[own_name] = np.ascontiguousarray(array.T if transposed else array)
    return tensors, pooler


def config_values(
    config: BertConfig,
    head: Head,
    labels: Sequence[str] | None = None,
    vocab: Sequence[str] | None = None,
    problem_type: str | None = None,
) -> dict[str, Any]:
    """Return the content of `config.json`; `problem_type` is in Hugging Face's terms."""
    if config.attention_direction != "bidirectional" or config.num_bilstm_layers:
        raise ValueError(
            "Hugging Face's format has no `attention_direction` and no BiLSTM: use tf1."
        )
    values = config.to_dict()
    names = (*_CARRIED, CROSS_ENCODER_KEY) if head.name == "classification" else _CARRIED
    carried = {key: config.extra[key] for key in names if config.extra.get(key) is not None}
    pad = vocab.index("[PAD]") if vocab is not None and "[PAD]" in vocab else 0
    values |= {
        "architectures": [head.architecture],
        "model_type": "bert",
        "hidden_act": huggingface_activation(config.hidden_act),
        "layer_norm_eps": config.layer_norm_eps,
        "pad_token_id": pad,
        "dtype": "float32",
    }
    if head.has_labels or head.name == "multiple_choice":
        values["classifier_dropout"] = _CLASSIFIER_DROPOUT
    if head.has_labels and labels is not None:
        values["id2label"] = {str(index): label for index, label in enumerate(labels)}
        values["label2id"] = {label: index for index, label in enumerate(labels)}
    if problem_type is not None:
        values["problem_type"] = problem_type
    return values | carried
