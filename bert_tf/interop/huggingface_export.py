"""What a Hugging Face folder holds: tensors, config.json, and the files of the tokenizer.

`transformers` opens it without a warning: no tensor is missing and none is too much. The decoder
of the masked-LM head is not stored, since it is the word embeddings; a pooler that the class has no
place for is kept in a file of its own (`POOLER_FILE`), which `read_huggingface` reads and
`transformers` does not see, so that nothing is lost.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf.config import BertConfig, huggingface_activation
from bert_tf.interop.heads import Head
from bert_tf.interop.huggingface_names import name_pairs

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
    arrays: Mapping[str, np.ndarray], config: BertConfig, head: Head
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """The tensors of the class, and those of a pooler that it does not have.

    Args:
        arrays: of the encoder and of `head` (`heads.select`), under the reference's names.
    """
    names = {
        ours: (theirs, flipped)
        for theirs, (ours, flipped) in name_pairs(config.num_hidden_layers).items()
    }
    tensors: dict[str, np.ndarray] = {}
    beside: dict[str, np.ndarray] = {}
    for name, array in arrays.items():
        theirs, flipped = names[name]
        if name.startswith("bert/") and head.starts:
            theirs = f"bert.{theirs}"
        is_kept_aside = name.startswith("bert/pooler/") and not head.uses_pooler
        target = beside if is_kept_aside else tensors
        target[theirs] = np.ascontiguousarray(array.T if flipped else array)
    return tensors, beside


def config_values(
    config: BertConfig,
    head: Head,
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
