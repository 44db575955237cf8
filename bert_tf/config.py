"""BertConfig: the architecture of one BERT model, stored in `bert_config.json`."""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import Any

from bert_tf.limits import DataError, read_json, suggestion

# Keys of the published files that this architecture does not use. Kept and written back, as in the
# reference.
_REFERENCE_EXTRAS = frozenset(
    {
        "directionality",
        "pooler_fc_size",
        "pooler_num_attention_heads",
        "pooler_num_fc_layers",
        "pooler_size_per_head",
        "pooler_type",
    }
)

ACTIVATIONS = ("gelu", "gelu_erf", "relu", "tanh", "linear")
ATTENTION_DIRECTIONS = ("bidirectional", "left_to_right")

# name -> (num_hidden_layers, hidden_size); heads = hidden_size / 64, intermediate = 4 * hidden_size.
# Source: the reference's README, "24 smaller models", and Devlin et al. 2019, section 3.
_SIZES = {
    "tiny": (2, 128),
    "mini": (4, 256),
    "small": (4, 512),
    "medium": (8, 512),
    "base": (12, 768),
    "large": (24, 1024),
}


@dataclass(frozen=True)
class BertConfig:
    """Architecture of a BERT model.

    Args:
        vocab_size: V, number of WordPiece ids.
        hidden_size: H, width of the encoder.
        num_hidden_layers: number of transformer blocks.
        num_attention_heads: N; must divide `hidden_size`.
        intermediate_size: I, width of the feed-forward layer.
        hidden_act: "gelu" (tanh approximation, as in the reference), "gelu_erf" (exact, as in
            Hugging Face's models), "relu", "tanh" or "linear".
        hidden_dropout_prob: fraction in [0, 1) of hidden values dropped in training.
        attention_probs_dropout_prob: fraction in [0, 1) of attention probabilities dropped.
        max_position_embeddings: longest sequence, in tokens.
        type_vocab_size: number of segments. The reference's default is 16. Published models have 2.
        initializer_range: standard deviation of the truncated normal initializer.
        layer_norm_eps: added to the variance in LayerNorm; 1e-12 in the reference.
        attention_direction: "bidirectional", or "left_to_right" for the paper's ablation (section
            5.1). A token then attends to itself and those before it.
        num_bilstm_layers: BiLSTM layers on top of the encoder, H / 2 units in each direction: the
            paper's ablation "+ BiLSTM" (section 5.1). 0 in the reference.
        extra: other keys of public files (`directionality`, `pooler_*`, Hugging Face's). Kept, and
            not compared.

    Raises:
        ValueError: a value is out of its range.

    >>> BertConfig.from_name("base", vocab_size=30522).num_attention_heads
    12

    Source: google-research/bert, modeling.py, `BertConfig`.
    """

    vocab_size: int
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str = "gelu"
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    max_position_embeddings: int = 512
    type_vocab_size: int = 16
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-12
    attention_direction: str = "bidirectional"
    num_bilstm_layers: int = 0
    extra: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        for name, (kind, minimum, limit, valid) in _NUMBERS.items():
            value = getattr(self, name)
            is_number = isinstance(value, kind) and not isinstance(value, bool)
            if not is_number or not minimum <= value < limit:
                raise ValueError(f"`{name}` is {value!r:.60}, but must be {valid}.")
            if kind is Integral:
                object.__setattr__(self, name, int(value))  # JSON cannot store NumPy's
        for name, choices in _CHOICES.items():
            if (value := getattr(self, name)) not in choices:
                raise ValueError(f"`{name}` is {value!r}, but must be one of {', '.join(choices)}.")
        if self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"`hidden_size` is {self.hidden_size}, but must be a multiple of "
                f"`num_attention_heads` = {self.num_attention_heads}."
            )

    @property
    def size_per_head(self) -> int:
        """D = H / N."""
        return self.hidden_size // self.num_attention_heads

    @classmethod
    def from_name(cls, name: str, vocab_size: int, **changes: Any) -> BertConfig:
        """Return a size of the reference: tiny, mini, small, medium, base or large.

        Args:
            **changes: fields that differ from that size.
        """
        num_hidden_layers, hidden_size = _SIZES[name]
        fields = dict(
            vocab_size=vocab_size,
            hidden_size=hidden_size,
            num_hidden_layers=num_hidden_layers,
            num_attention_heads=hidden_size // 64,
            intermediate_size=4 * hidden_size,
            type_vocab_size=2,
        )
        return cls(**{**fields, **changes})

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> BertConfig:
        """Return the configuration in a `bert_config.json` or Hugging Face's `config.json`.

        Unknown keys of a Hugging Face file are kept in `extra`.

        Raises:
            ValueError: a key is unknown, `vocab_size` is missing, a value is out of range, the
                architecture is not BERT, or the weights are quantized.
        """
        known = {f.name for f in dataclasses.fields(cls)} - {"extra"}
        fields = {key: value for key, value in values.items() if key in known}
        extra = {key: value for key, value in values.items() if key not in known}
        if HUGGINGFACE_KEYS.intersection(extra):
            fields = translate_huggingface(fields, extra)
        elif unknown := [key for key in extra if key not in _REFERENCE_EXTRAS]:
            raise ValueError(
                f"Unknown key {unknown[0]!r} in the BERT configuration"
                f"{suggestion(unknown[0], known)}"
            )
        return cls(**{"vocab_size": None, **fields}, extra=extra)

    @classmethod
    def from_json_file(cls, json_file: str | os.PathLike) -> BertConfig:
        """Read `bert_config.json` (or Hugging Face's `config.json`). Errors name the file."""
        values = read_json(json_file)
        try:
            return cls.from_dict(values)
        except ValueError as error:
            raise DataError(os.fspath(json_file), f"{error}") from error

    def check_sequence_length(self, max_seq_length: int, min_length: int = 1) -> None:
        """Raise unless the model has a position for every token of a sequence.

        Args:
            max_seq_length: tokens with [CLS] and [SEP].
            min_length: fewest tokens of an input.

        Raises:
            ValueError: the length is out of range.
        """
        limit = self.max_position_embeddings
        if not min_length <= max_seq_length <= limit:
            raise ValueError(
                f"max_seq_length is {max_seq_length}, but must be from {min_length} to {limit}, the "
                "model's `max_position_embeddings`."
            )

    def to_dict(self) -> dict[str, Any]:
        """Return the contents of `bert_config.json`: all fields and the reference's extra keys.

        `layer_norm_eps`, `attention_direction` and `num_bilstm_layers` are omitted at the
        reference's values, so that the reference can read the file. Hugging Face's keys are omitted
        because the values are in the reference's dialect.
        """
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        extra = values.pop("extra")
        if self.layer_norm_eps == 1e-12:
            del values["layer_norm_eps"]
        if self.attention_direction == "bidirectional":
            del values["attention_direction"]
        if not self.num_bilstm_layers:
            del values["num_bilstm_layers"]
        return values | {k: v for k, v in extra.items() if k in _REFERENCE_EXTRAS}

    def to_json_string(self) -> str:
        return json.dumps(self.to_dict(), indent=2, sort_keys=True) + "\n"

    def to_json_file(self, json_file: str | os.PathLike) -> None:
        """Write `bert_config.json`."""
        from bert_tf.files import write_text  # imports TensorFlow

        write_text(json_file, self.to_json_string())


_COUNT = (Integral, 1, math.inf, "a whole number of 1 or more")
_FRACTION = (Real, 0.0, 1.0, "a number of 0 or more and below 1")
_POSITIVE = (Real, 1e-30, 1e300, "a finite number above 0")
# Type, minimum, limit, and the three in words.
_NUMBERS: dict[str, tuple[type, float, float, str]] = {
    "vocab_size": _COUNT,
    "hidden_size": _COUNT,
    "num_hidden_layers": _COUNT,
    "num_attention_heads": _COUNT,
    "intermediate_size": _COUNT,
    "max_position_embeddings": _COUNT,
    "type_vocab_size": _COUNT,
    "num_bilstm_layers": (Integral, 0, math.inf, "a whole number of 0 or more"),
    "hidden_dropout_prob": _FRACTION,
    "attention_probs_dropout_prob": _FRACTION,
    "initializer_range": _POSITIVE,
    "layer_norm_eps": _POSITIVE,
}
_CHOICES = {"hidden_act": ACTIVATIONS, "attention_direction": ATTENTION_DIRECTIONS}

# ------------------------------------------------- Hugging Face's dialect, config.json

# Any of these keys marks Hugging Face's dialect, where `hidden_act: "gelu"` is the exact (erf) form; a
# file with one may have other unknown keys. Its first versions (2019) had neither of the first three.
HUGGINGFACE_KEYS = frozenset(
    {
        "architectures",
        "model_type",
        "transformers_version",
        "id2label",
        "num_labels",
        "output_attentions",
        "pad_token_id",
        "torchscript",
    }
)

# `problem_type` of a classification here -> there: one label, any number of labels, a number.
HUGGINGFACE_PROBLEM_TYPES = {
    "single_label": "single_label_classification",
    "multi_label": "multi_label_classification",
    "regression": "regression",
}

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
    """Return Hugging Face's values in the reference's dialect."""
    values = {**extra, **fields}
    for key, supported in _SUPPORTED.items():
        if (value := values.get(key, supported[0])) not in supported:
            raise ValueError(
                f"`{key}` is {value!r:.40}, but must be {' or '.join(map(str, supported))}."
            )
    activation = _HUGGINGFACE_ACTIVATIONS[fields.get("hidden_act", "gelu")]
    return {"type_vocab_size": 2, **fields, "hidden_act": activation}


def huggingface_activation(hidden_act: str) -> str:
    """Return Hugging Face's name of one of our activations: "gelu" is "gelu_new"."""
    return next(name for name, own in _HUGGINGFACE_ACTIVATIONS.items() if own == hidden_act)
