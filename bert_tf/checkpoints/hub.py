"""hf://org/name: models of the Hugging Face Hub, downloaded with `huggingface_hub`."""

from __future__ import annotations

import functools
import os

import tensorflow as tf

from bert_tf.checkpoints.tensor_files import H5_FILE, weights_file

SCHEME = "hf://"

# Other formats of the same weights (onnx, flax, ...) are not downloaded.
_FILES = (
    *("*.json", "vocab.txt", "*/vocab.txt", "*.safetensors"),
    "*_Dense/pytorch_model.bin",  # of sentence-transformers, next to a model.safetensors too
    "README.md",  # with the licence
)
_TRANSFORMER = ("", "0_Transformer")  # folders of the transformer
_PICKLES = tuple(os.path.join(folder, "pytorch_model*.bin") for folder in _TRANSFORMER)


def local_path(path: str | os.PathLike) -> str:
    """Return `path`, or for hf://org/name[@revision] the folder that it was downloaded to.

    Files in huggingface_hub's cache are not downloaded again. pytorch_model.bin is fetched only if the
    model has no model.safetensors, and tf_model.h5 only if it has neither.
    """
    path = os.fspath(path)
    return _download(path.rstrip("/")) if path.startswith(SCHEME) else path


def check_exists(path: str) -> None:
    if not (tf.io.gfile.exists(path) or tf.io.gfile.glob(f"{path}.*")):
        raise FileNotFoundError(
            f"There is no checkpoint {path}. A model of the Hugging Face hub is {SCHEME}org/name, such "
            f"as {SCHEME}google-bert/bert-base-uncased."
        )


@functools.cache
def _download(path: str) -> str:
    import huggingface_hub  # the extra [hf]

    name, _, revision = path.removeprefix(SCHEME).partition("@")
    for patterns, ending in (((), ".safetensors"), (_PICKLES, ".bin"), ((H5_FILE,), "")):
        folder = huggingface_hub.snapshot_download(
            name, revision=revision or None, allow_patterns=[*_FILES, *patterns]
        )
        files = (weights_file(os.path.join(folder, part)) or "" for part in _TRANSFORMER)
        if any(ending in os.path.basename(file) for file in files):
            break
    return folder
