"""hf://org/name: models of the Hugging Face Hub, downloaded with `huggingface_hub`."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Sequence

from bert_tf.interop.tensor_files import weights_file
from bert_tf.interop.tf_classes import H5_FILE

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

    Raises:
        ImportError: `huggingface_hub` is not installed.
        ValueError: the name has another form, or the model cannot be downloaded.
    """
    path = path_of_model(path)
    return _download(path) if path.startswith(SCHEME) else path


def path_of_model(model: str | os.PathLike) -> str:
    """Return the path of a model as a string.

    Raises:
        TypeError: `model` is not a path, but for example the model itself.
    """
    if not isinstance(model, (str, os.PathLike)):
        raise TypeError(
            f"The model is of type {type(model).__name__}, but must be the path of a folder or "
            "checkpoint. Save a model first: model.save_pretrained(folder, tokenizer)."
        )
    return os.fspath(model)


@functools.cache
def _download(path: str) -> str:
    match = re.fullmatch(r"hf://([\w.-]+/[\w.-]+|[\w.-]+)(?:@([\w./-]+))?", path.rstrip("/"))
    if match is None:
        raise ValueError(
            f"{path} does not name a model. The form is hf://org/name, as in hf://google-bert/bert-base-"
            "uncased, or hf://org/name@revision for a certain version."
        )
    try:
        import huggingface_hub
    except ImportError as error:
        raise ImportError(
            f"Downloading {path} needs huggingface_hub: pip install -e '.[hf]' in the checkout "
            "of bert_tf. Or download the model by other means, and give its folder."
        ) from error
    name, revision = match.groups()
    try:
        for others, endings in (
            ((), (".safetensors",)),
            (_PICKLES, (".safetensors", ".bin")),
            ((H5_FILE,), ()),
        ):
            folder = huggingface_hub.snapshot_download(
                name, revision=revision, allow_patterns=[*_FILES, *others]
            )
            if _has_weights(folder, endings):
                break
    except (OSError, ValueError) as error:  # base classes of huggingface_hub's errors
        raise ValueError(
            f"{path} cannot be downloaded: {error}\nCheck the name and whether the Hub is reachable. If "
            "the model is not public, log in (hf auth login)."
        ) from error
    return folder


def _has_weights(folder: str, endings: Sequence[str]) -> bool:
    """Return True if the transformer has such a file; other modules may have another format."""
    files = (weights_file(os.path.join(folder, name)) for name in _TRANSFORMER)
    names = [os.path.basename(file) for file in files if file]
    return any(ending in name for name in names for ending in endings)
