"""Write folders of models, in the reference's format and in Hugging Face's.

    output_dir/
      model.ckpt-N.*, checkpoint    weights (training/checkpoints.py)
      bert_config.json              architecture
      vocab.txt                     vocabulary
      tokenizer_config.json         {"do_lower_case": true}
      task.json                     {"task": "classification", "max_seq_length": 128, "labels": [...]}
      README.md                     model card (report/model_card.py)
      model_card_facts.json         facts in the model card

A run writes bert_config.json to task.json before training, and the card after it. The folder is enough
for `--init_checkpoint=output_dir`, `export_saved_model` and `predict`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

from bert_tf.checkpoints.checkpoint import PretrainedCheckpoint
from bert_tf.checkpoints.heads import HEADS, Head, find_problem_type
from bert_tf.checkpoints.huggingface import POOLER_FILE, config_values, huggingface_tensors
from bert_tf.checkpoints.sentence_transformers import (
    CROSS_ENCODER_KEY,
    RAW_SCORES,
    write_modules,
)
from bert_tf.checkpoints.tensor_files import write_safetensors
from bert_tf.checkpoints.tf1 import write_tf1
from bert_tf.checkpoints.tokenizer_files import tokenizer_values
from bert_tf.config import HUGGINGFACE_PROBLEM_TYPES, BertConfig
from bert_tf.files import write_text
from bert_tf.registry import TASK_FILE

FORMATS = ("tf1", "huggingface")
CONFIG_FILES = ("bert_config.json", "vocab.txt", "tokenizer_config.json", TASK_FILE)


def model_files(
    config: BertConfig | None = None,
    task: Mapping[str, Any] | None = None,
    vocab: Sequence[str] | None = None,
    do_lower_case: bool | None = None,
) -> dict[str, str]:
    """Return name -> text of the files next to the weights, without those of None."""
    files = {}
    if config is not None:
        files["bert_config.json"] = config.to_json_string()
    if task is not None:
        files[TASK_FILE] = json.dumps(task, indent=2) + "\n"
    if vocab is not None:
        files["vocab.txt"] = "".join(f"{token}\n" for token in vocab)
    if do_lower_case is not None:
        files["tokenizer_config.json"] = json.dumps({"do_lower_case": do_lower_case}) + "\n"
    return files


def write_files(folder: str, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        write_text(os.path.join(folder, name), text)


def write_folder(
    folder: str,
    checkpoint: PretrainedCheckpoint,
    config: BertConfig,
    head: Head,
    task: Mapping[str, Any] | None,
    vocab: Sequence[str] | None,
    do_lower_case: bool | None,
    format: str,
) -> None:
    """Write a checkpoint and the files next to it into an empty folder."""
    if format not in FORMATS:
        raise ValueError(f"`format` is {format!r}, but must be one of {', '.join(FORMATS)}.")
    if format == "tf1":
        write_tf1(os.path.join(folder, "bert_model.ckpt"), checkpoint.arrays)
        write_files(folder, model_files(config, task, vocab, do_lower_case))
        return
    arrays, settings = checkpoint.arrays, task or {}
    if settings.get("task") == "embeddings":
        write_modules(folder, settings, config, arrays)
        arrays = {name: arrays[name] for name in arrays if not head.owns(name)}
        head = HEADS["encoder"]
    problem_type = None
    if head.name == "classification":
        stated = settings.get("problem_type") or find_problem_type(config, checkpoint.labels)
        problem_type = HUGGINGFACE_PROBLEM_TYPES[stated]
    values = config_values(config, head, checkpoint.labels, vocab, problem_type)
    if problem_type == HUGGINGFACE_PROBLEM_TYPES["regression"] and settings.get("is_pair"):
        values.setdefault(CROSS_ENCODER_KEY, RAW_SCORES)
    files = {"config.json": values}
    tensors, pooler = huggingface_tensors(arrays, config, head)
    write_safetensors(os.path.join(folder, "model.safetensors"), tensors)
    if pooler:
        write_safetensors(os.path.join(folder, POOLER_FILE), pooler)
    if vocab is not None and do_lower_case is not None:
        length = config.max_position_embeddings
        if settings.get("task") in ("classification", "embeddings"):  # they truncate longer inputs
            length = settings["max_seq_length"]
        files |= tokenizer_values(do_lower_case, length)
    texts = {name: json.dumps(v, indent=2, ensure_ascii=False) + "\n" for name, v in files.items()}
    write_files(folder, texts | model_files(task=task, vocab=vocab))
