"""Hugging Face's dialect of a BERT configuration, `config.json`: its keys and values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Keys that only Hugging Face's `config.json` has, of any age. Any of them marks that dialect, where
# `hidden_act: "gelu"` is the exact (erf) form; a file with one may have other unknown keys.
HUGGINGFACE_KEYS = frozenset(
    {
        "_name_or_path",
        "architectures",
        "classifier_dropout",
        "dtype",
        "finetuning_task",
        "gradient_checkpointing",
        "id2label",
        "is_decoder",
        "label2id",
        "model_type",
        "num_labels",
        "output_attentions",
        "output_hidden_states",
        "pad_token_id",
        "position_embedding_type",
        "problem_type",
        "pruned_heads",
        "quantization_config",
        "torch_dtype",
        "torchscript",
        "transformers_version",
        "use_cache",
    }
)

# Values of `problem_type`: one label, any number of labels, a number.
PROBLEM_TYPES = ("single_label_classification", "multi_label_classification", "regression")

# Hugging Face's name -> ours (ours are the reference's names, and "gelu_erf" for the exact form).
_HUGGINGFACE_ACTIVATIONS = {
    "gelu": "gelu_erf",
    "gelu_new": "gelu",
    "gelu_pytorch_tanh": "gelu",
    "relu": "relu",
    "tanh": "tanh",
    "linear": "linear",
}


# Key -> the supported values; the first is the default.
_SUPPORTED: dict[str, tuple[Any, ...]] = {
    "model_type": ("bert",),
    "position_embedding_type": ("absolute",),
    "is_decoder": (False, None),
    "quantization_config": (None, {}),
    "hidden_act": tuple(_HUGGINGFACE_ACTIVATIONS),
}


def translate_huggingface(fields: Mapping[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """Return Hugging Face's values in the reference's dialect.

    Raises:
        ValueError: the architecture is not BERT, or the weights are quantized.
    """
    stated = {**extra, **fields}
    for key, supported in _SUPPORTED.items():
        if (value := stated.get(key, supported[0])) not in supported:
            raise ValueError(
                f"`{key}` is {value!r:.40}, but must be {' or '.join(map(str, supported))}."
            )
    activation = _HUGGINGFACE_ACTIVATIONS[fields.get("hidden_act", "gelu")]
    return {"type_vocab_size": 2, **fields, "hidden_act": activation}


def huggingface_activation(hidden_act: str) -> str:
    """Return Hugging Face's name of one of our activations.

    >>> huggingface_activation("gelu")
    'gelu_new'
    """
    return next(theirs for theirs, ours in _HUGGINGFACE_ACTIVATIONS.items() if ours == hidden_act)
