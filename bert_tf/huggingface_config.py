"""Hugging Face's dialect of a BERT configuration, `config.json`: its keys and values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Keys that only Hugging Face's `config.json` has. Any of them marks that dialect, where
# `hidden_act: "gelu"` is the exact (erf) form.
HUGGINGFACE_EXTRAS = frozenset(
    {
        "_attn_implementation_autoset",
        "_name_or_path",
        "_num_labels",
        "add_cross_attention",
        "architectures",
        "attn_implementation",
        "bad_words_ids",
        "bos_token_id",
        "chunk_size_feed_forward",
        "classifier_dropout",
        "cross_attention_hidden_size",
        "decoder_start_token_id",
        "do_sample",
        "dtype",
        "early_stopping",
        "eos_token_id",
        "eos_token_ids",
        "finetuning_task",
        "gradient_checkpointing",
        "id2label",
        "is_decoder",
        "is_encoder_decoder",
        "label2id",
        "language",
        "length_penalty",
        "max_length",
        "min_length",
        "model_type",
        "name",
        "no_repeat_ngram_size",
        "num_beams",
        "num_labels",
        "num_return_sequences",
        "output_attentions",
        "output_hidden_states",
        "output_past",
        "pad_token_id",
        "position_embedding_type",
        "prefix",
        "problem_type",
        "pruned_heads",
        "quantization_config",
        "repetition_penalty",
        "return_dict",
        "sbert_ce_default_activation_function",
        "sentence_transformers",
        "sep_token_id",
        "task_specific_params",
        "temperature",
        "tie_encoder_decoder",
        "tie_word_embeddings",
        "tokenizer_class",
        "top_k",
        "top_p",
        "torch_dtype",
        "torchscript",
        "transformers_version",
        "use_bfloat16",
        "use_cache",
        "xla_device",
    }
)

# With one of these keys, a file may contain keys that are unknown here, such as those of a trainer.
HUGGINGFACE_MARKERS = frozenset(
    {
        "_name_or_path",
        "architectures",
        "dtype",
        "model_type",
        "torch_dtype",
        "transformers_version",
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


def translate_huggingface(fields: Mapping[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """Return Hugging Face's values in the reference's dialect."""
    fields = {"type_vocab_size": 2, **fields}
    model_type = extra.get("model_type", "bert")
    if model_type != "bert":
        raise ValueError(
            f"`model_type` is {model_type!r}, but must be 'bert'. Other architectures are not supported."
        )
    position = extra.get("position_embedding_type", "absolute")
    if position != "absolute":
        raise ValueError(
            f"`position_embedding_type` is {position!r}, but must be 'absolute'. "
            "Relative positions are not part of the paper's model."
        )
    if extra.get("quantization_config"):
        raise ValueError(
            "`quantization_config` is set, so the weights are quantized, but only floats are read. Use "
            "the model before its quantization."
        )
    if extra.get("is_decoder"):
        raise ValueError("`is_decoder` is true, but BERT is an encoder.")
    activation = fields.get("hidden_act", "gelu")
    if activation not in list(_HUGGINGFACE_ACTIVATIONS):  # a list in the file has no hash
        raise ValueError(
            f"`hidden_act` is {activation!r}, but must be one of "
            f"{', '.join(_HUGGINGFACE_ACTIVATIONS)} in a Hugging Face configuration."
        )
    return {**fields, "hidden_act": _HUGGINGFACE_ACTIVATIONS[activation]}


def huggingface_activation(hidden_act: str) -> str:
    """Return Hugging Face's name of one of our activations.

    >>> huggingface_activation("gelu")
    'gelu_new'
    """
    return next(theirs for theirs, ours in _HUGGINGFACE_ACTIVATIONS.items() if ours == hidden_act)
