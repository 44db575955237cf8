"""Read any checkpoint that --init_checkpoint accepts."""

from __future__ import annotations

import os
from dataclasses import replace

import tensorflow as tf

from bert_tf.checkpoints.checkpoint import PretrainedCheckpoint, read_sibling, sibling_file
from bert_tf.checkpoints.hub import SCHEME, check_exists, local_path
from bert_tf.checkpoints.huggingface import ADAPTER_FILE, read_huggingface
from bert_tf.checkpoints.sentence_transformers import embedding_settings
from bert_tf.checkpoints.tensor_files import is_weights_file, weights_file
from bert_tf.checkpoints.tf1 import checkpoint_prefix, prefixes_in, read_tf1
from bert_tf.checkpoints.tf2 import is_object_based, read_saved_model, read_tf2
from bert_tf.checkpoints.tokenizer_files import read_tokenizer_files
from bert_tf.registry import TASK_FILE


def read_checkpoint(path: str | os.PathLike) -> PretrainedCheckpoint:
    """Read any supported checkpoint.

    A folder with TensorFlow and Hugging Face weights is read as Hugging Face's. If it has the file
    `checkpoint`, which training writes, it is read as TensorFlow's. hf://org/name is downloaded first.

    Raises:
        FileNotFoundError: nothing is found at the path.
        ImportError: a library for this format is not installed.
        ValueError: the file or folder is not supported, or corrupt.
    """
    checkpoint = _read(os.fspath(path))
    folder = checkpoint.folder
    embeddings, problem = None, ""
    try:
        embeddings = embedding_settings(folder)
    except (OSError, ValueError) as error:
        problem = str(error)
    return replace(
        checkpoint,
        embeddings=embeddings,
        problem=problem,
        tokenizer=read_tokenizer_files(folder),
        task=read_sibling(folder, TASK_FILE) if sibling_file(folder, TASK_FILE) else None,
    )


def _read(path: str) -> PretrainedCheckpoint:
    if path.startswith(SCHEME):
        return read_huggingface(local_path(path))
    check_exists(path)
    if tf.io.gfile.isdir(path):
        return _read_folder(path)
    return read_huggingface(path) if is_weights_file(path) else _read_tensorflow(path)


def _read_folder(folder: str) -> PretrainedCheckpoint:
    names = [name.rstrip("/") for name in tf.io.gfile.listdir(folder)]
    trained = "checkpoint" in names and not tf.io.gfile.isdir(os.path.join(folder, "checkpoint"))
    has_weights = "config.json" in names and weights_file(folder) is not None
    if not trained and (has_weights or "modules.json" in names or ADAPTER_FILE in names):
        return read_huggingface(folder)
    if "saved_model.pb" in names and not (trained or prefixes_in(folder)):
        return read_saved_model(folder)
    return _read_tensorflow(folder)


def _read_tensorflow(path: str) -> PretrainedCheckpoint:
    prefix = checkpoint_prefix(path)
    return read_tf2(prefix) if is_object_based(prefix) else read_tf1(prefix)
