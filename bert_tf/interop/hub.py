"""hf://org/name: a model on the Hugging Face Hub, downloaded through `huggingface_hub`."""

from __future__ import annotations

import functools
import os
import re

from bert_tf.interop.tensor_files import weights_file

SCHEME = "hf://"

# The other forms of the same weights (onnx, flax, h5, ...) stay where they are.
_FILES = ("*.json", "vocab.txt", "*.safetensors", "*.index.json")
_PICKLES = ("pytorch_model*.bin", "0_Transformer/pytorch_model*.bin")


def local_path(path: str | os.PathLike) -> str:
    """`path`, or for hf://org/name[@revision] the folder that it was downloaded to.

    Files that are there already (huggingface_hub's cache) are not downloaded again. pytorch_model.bin
    is fetched only where there is no model.safetensors.

    Raises:
        ImportError: `huggingface_hub` is not installed.
        ValueError: the name is not of that form, or the model cannot be downloaded.
    """
    path = os.fspath(path)
    return _download(path) if path.startswith(SCHEME) else path


@functools.cache
def _download(path: str) -> str:
    match = re.fullmatch(r"hf://([\w.-]+/[\w.-]+|[\w.-]+)(?:@([\w./-]+))?", path.rstrip("/"))
    if match is None:
        raise ValueError(
            f"{path} does not name a model. The form is hf://org/name, as hf://google-bert/bert-base-"
            "uncased, and hf://org/name@revision for a certain version."
        )
    try:
        import huggingface_hub
    except ImportError as error:
        raise ImportError(
            f"Downloading {path} needs huggingface_hub: pip install -e '.[hf]' in the checkout "
            "of bert_tf. Or download the model by other means, and name the folder it lies in."
        ) from error
    name, revision = match.groups()
    try:
        folder = huggingface_hub.snapshot_download(
            name, revision=revision, allow_patterns=list(_FILES)
        )
        if not _has_weights(folder):
            folder = huggingface_hub.snapshot_download(
                name, revision=revision, allow_patterns=[*_FILES, *_PICKLES]
            )
    except (OSError, ValueError) as error:  # theirs are subclasses of these
        raise ValueError(
            f"{path} cannot be downloaded: {error}\nIs the name right, is the Hub reachable, and if "
            "the model is not public, are you logged in (hf auth login)?"
        ) from error
    return folder


def _has_weights(folder: str) -> bool:
    return any(weights_file(parent) for parent, _, _ in os.walk(folder))
