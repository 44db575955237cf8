"""Hugging Face folders of a BERT, read and written, with any of the `Bert*` heads.

Linear layers are stored [out, in] there; the reference's kernels are [in, out], and only the weights
of its heads are [out, in].

`transformers` opens what is written without a warning: no tensor is missing and none is too much. The
decoder of the masked-LM head is not stored, since it is the word embeddings; a pooler that the class
has no place for is kept in a file of its own (`POOLER_FILE`), which `read_huggingface` reads.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bert_tf.config import BertConfig, huggingface_activation
from bert_tf.interop.checkpoint import (
    LazyArrays,
    PretrainedCheckpoint,
    config_from_values,
    file_beside,
    read_json,
)
from bert_tf.interop.sidecar import (
    check_one_vocabulary,
    stated_lower_case,
    transformer_folder,
    vocab_of_tokenizer,
)
from bert_tf.interop.tensor_files import open_tensors, weights_file
from bert_tf.registry import BY_ARCHITECTURE, TaskType


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
    head = BY_ARCHITECTURE.get(architecture or "")
    is_labeled = architecture is None or (head is not None and head.has_labels)
    labels = _labels(values, arrays, config_file) if is_labeled else None
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
    table = {row.theirs: row for row in name_table(config.num_hidden_layers)}
    sources: dict[str, tuple[str, bool]] = {}  # name here -> (name in the file, transposed)
    notes = []
    for own_name in sorted(tensors, key=lambda name: modern_name(name) in ALIASES):
        modern = modern_name(own_name)
        if modern in BUFFERS:
            continue
        row = table.get(ALIASES.get(modern, modern), TensorName(modern, own_name))
        if row.ours not in sources:
            sources[row.ours] = (own_name, row.transposed)
        elif modern not in ALIASES:  # both with and without "bert."; the second is unused
            sources[own_name] = (own_name, False)
        elif not np.array_equal(tensors[own_name], tensors[sources[row.ours][0]]):
            sources[own_name] = (own_name, False)
            notes.append(
                f"{own_name} differs from {sources[row.ours][0]}, but here the two are one variable; "
                "the masked-LM head computes with the latter."
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


# Not weights: numbers 0, 1, 2, ... and zeros that older versions stored with the model.
BUFFERS = frozenset({"embeddings.position_ids", "embeddings.token_type_ids"})

# The same tensor under a second name, because the masked-LM head shares it -> its first name.
ALIASES = {
    "cls.predictions.decoder.weight": "embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}

# Beside model.safetensors in what we write: the pooler of a model whose class there has none (spans,
# tokens, masked words). The reference's checkpoints have one for every head.
POOLER_FILE = "pooler.safetensors"


class TensorName(NamedTuple):
    """Hugging Face's name without "bert.", the reference's, and whether the arrays are transposes."""

    theirs: str
    ours: str
    transposed: bool = False


# The ends of the names in a module: Hugging Face's, the reference's, and whether to transpose.
_DENSE = (("weight", "kernel", True), ("bias", "bias", False))
_NORM = (("weight", "gamma", False), ("bias", "beta", False))
_HEAD = (("weight", "output_weights", False), ("bias", "output_bias", False))
_TABLE = (("weight", "", False),)
# The beginnings, with "{}" for the number of a layer.
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
    # Sentences, tokens or choices: the configuration's `architectures` say which.
    ("classifier", "", _HEAD),
)


def name_table(num_hidden_layers: int) -> tuple[TensorName, ...]:
    """Return the names of all tensors of a BERT and its heads, for reading and for writing.

    >>> name_table(2)[-1]
    TensorName(theirs='classifier.bias', ours='output_bias', transposed=False)
    """
    return tuple(
        TensorName(
            f"{theirs}.{end}".format(layer), f"{ours}/{our_end}".format(layer).strip("/"), flip
        )
        for theirs, ours, ends in _MODULES
        for layer in (range(num_hidden_layers) if "{}" in theirs else (0,))
        for end, our_end, flip in ends
    )


def modern_name(name: str) -> str:
    """A tensor's name as an encoder without a head is stored today.

    >>> modern_name("bert.embeddings.LayerNorm.gamma")
    'embeddings.LayerNorm.weight'
    """
    name = name.removeprefix("bert.")
    for old, new in ((".gamma", ".weight"), (".beta", ".bias")):
        if name.endswith(old):
            return name.removesuffix(old) + new
    return name


_SPECIAL_TOKENS = {
    "unk_token": "[UNK]",
    "sep_token": "[SEP]",
    "pad_token": "[PAD]",
    "cls_token": "[CLS]",
    "mask_token": "[MASK]",
}
# Of Hugging Face's own keys, those that say something about the model and that we do not set.
_CARRIED = ("classifier_dropout", "pad_token_id", "language", "finetuning_task")
_CLASSIFIER_DROPOUT = 0.1  # of our heads and the reference's, whatever the configuration says


def huggingface_tensors(
    arrays: Mapping[str, np.ndarray], config: BertConfig, head: TaskType
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The tensors of the class, and those of a pooler that it does not have.

    Args:
        arrays: of the encoder and of `head` (`heads.select`), under the reference's names.
    """
    names = {row.ours: row for row in name_table(config.num_hidden_layers)}
    tensors: dict[str, np.ndarray] = {}
    beside: dict[str, np.ndarray] = {}
    for name, array in arrays.items():
        theirs, _, transposed = names[name]
        if name.startswith("bert/") and head.variables:
            theirs = f"bert.{theirs}"
        is_kept_aside = name.startswith("bert/pooler/") and not head.uses_pooler
        target = beside if is_kept_aside else tensors
        target[theirs] = np.ascontiguousarray(array.T if transposed else array)
    return tensors, beside


def config_values(
    config: BertConfig,
    head: TaskType,
    labels: Sequence[str] | None = None,
    vocab: Sequence[str] | None = None,
    problem_type: str | None = None,
) -> dict[str, Any]:
    """What `config.json` holds.

    Args:
        labels: names of the outputs, in order; only for a head that has any.
        vocab: WordPieces in the order of their ids, if they are known.
        problem_type: what a classifier of sentences learns, in Hugging Face's words.

    Raises:
        ValueError: Hugging Face's BERT cannot express this configuration.
    """
    if config.attention_direction != "bidirectional":
        raise ValueError(
            f"`attention_direction` is {config.attention_direction!r}, which Hugging Face's BERT "
            "encoder cannot express; only bidirectional models can be written in its format."
        )
    if config.num_bilstm_layers:
        raise ValueError(
            f"`num_bilstm_layers` is {config.num_bilstm_layers}, but Hugging Face's BERT has no BiLSTM "
            "on top of the encoder; only models without one can be written in its format."
        )
    values = config.to_dict()
    carried = {key: config.extra[key] for key in _CARRIED if config.extra.get(key) is not None}
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


def tokenizer_values(
    vocab: Sequence[str], do_lower_case: bool, max_seq_length: int
) -> dict[str, dict[str, Any]]:
    """What lies beside vocab.txt for `AutoTokenizer`: name of the file -> what it holds.

    There is no tokenizer.json: `transformers` makes it from these by itself.
    """
    present = {role: token for role, token in _SPECIAL_TOKENS.items() if token in vocab}
    values = {
        "tokenizer_class": "BertTokenizer",
        "do_lower_case": do_lower_case,
        "strip_accents": None,  # as do_lower_case
        "tokenize_chinese_chars": True,
        "model_max_length": max_seq_length,
        **present,
    }
    return {"tokenizer_config.json": values, "special_tokens_map.json": present}
