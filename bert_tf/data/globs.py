"""Files that the globs and folders of a flag name."""

from __future__ import annotations

import itertools
import logging
import os
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

import tensorflow as tf

from bert_tf.data.files import TEMPORARY_SUFFIX, is_stream

logger = logging.getLogger(__name__)

_REQUESTS = 32  # at once


class MissingFileError(ValueError):
    """No file matches a glob."""

    def __init__(self, glob: str) -> None:
        super().__init__(f"No file matches {glob!r} (in the folder {os.getcwd()}).")
        self.filename = glob


def expand_files(pattern_list: str, *, folders: bool = False) -> list[str]:
    """Return the files of a flag such as `--input_file`.

    Args:
        pattern_list: comma-separated globs, as in the reference, or names of existing files.
        folders: accept folders, as for a corpus: all files in and below them.

    Returns:
        Paths in the order of the globs, sorted within each. Unfinished files (".tmp") and hidden
        files (".name") are left out, of folders also hidden folders. The glob ".*" matches hidden files.

    Raises:
        ValueError: a glob matches no file, or matches a folder without `folders`.
    """
    files = []
    for pattern in _patterns(pattern_list):
        if tf.io.gfile.isdir(pattern) and not folders:
            raise ValueError(f"{pattern!r} is a folder. Name its files, e.g. '{pattern}/*'.")
        matches = _matches(pattern)
        if matches != [pattern] and not os.path.basename(pattern).startswith("."):
            matches = [file for file in matches if not os.path.basename(file).startswith(".")]
        subfolders = _folders(matches) if folders else set()
        matches = [file for file in matches if file not in subfolders]
        matches += [file for folder in subfolders for file in _files_below(folder)]
        matches = [file for file in matches if not file.endswith(TEMPORARY_SUFFIX)]
        if not matches:
            raise MissingFileError(pattern)
        if subfolders:
            endings = ", ".join(sorted({os.path.splitext(file)[1] or "none" for file in matches}))
            logger.info("Found %d files in %s, endings: %s", len(matches), pattern, endings)
        files.extend(sorted(matches))
    if not files:
        raise ValueError(f"{pattern_list!r} names no file. Pass a comma-separated list of globs.")
    return files


def _patterns(pattern_list: str) -> list[str]:
    return [pattern for part in pattern_list.split(",") if (pattern := part.strip())]


def _matches(pattern: str) -> list[str]:
    """Return the file or folder of this name, which may have brackets, else what the glob matches."""
    return [pattern] if tf.io.gfile.exists(pattern) else tf.io.gfile.glob(pattern)


def _folders(paths: Sequence[str]) -> set[str]:
    """Return the paths that are folders. Each takes a request if it is remote (gs://)."""
    with ThreadPoolExecutor(_REQUESTS) as pool:
        is_folder = list(pool.map(tf.io.gfile.isdir, paths))
    return set(itertools.compress(paths, is_folder))


def _files_below(folder: str) -> list[str]:
    found = []
    for parent, subfolders, names in tf.io.gfile.walk(folder):
        subfolders[:] = [name for name in subfolders if not name.startswith(".")]  # not walked
        found += [os.path.join(parent, name) for name in names if not name.startswith(".")]
    return found


def check_not_an_input(
    outputs: Iterable[str], inputs: Iterable[str], name: str = "output_file"
) -> None:
    """Raise ValueError if an output is a folder, or would replace an input under any name.

    Args:
        outputs: files to be written. Devices and pipes replace nothing.
        inputs: files to be read.
        name: of the output's parameter, for the message.
    """
    inputs = list(inputs)
    for output in outputs:
        if os.path.isdir(output) or not os.path.basename(output):
            raise ValueError(f"{name}={output} is a folder, but must be a file. Name a file in it.")
        if not is_stream(output) and any(is_same_file(file, output) for file in inputs):
            raise ValueError(
                f"{output} would be written, but it is also an input. Choose another {name}."
            )


def is_same_file(one: str, other: str) -> bool:
    """Return True if two paths lead to one file or folder, which need not exist.

    Remote paths (gs://) are compared as they are written.
    """
    if "://" in one or "://" in other:
        return one == other
    if os.path.exists(one) and os.path.exists(other):
        return os.path.samefile(one, other)
    return os.path.realpath(one) == os.path.realpath(other)


def files_of_checkpoint(path: str) -> list[str]:
    """Return the files of weights.

    Args:
        path: a file, the index of several (model.safetensors.index.json), the prefix of files, or a
            folder.
    """
    if tf.io.gfile.isdir(path):
        return sorted(_files_below(path))
    folder, name = os.path.split(path)
    start, ending = f"{name}.", ""
    if name.endswith(".index.json"):  # of model-00001-of-00002.safetensors and so on
        stem, ending = os.path.splitext(name.removesuffix(".index.json"))
        start = f"{stem}-"
    elif tf.io.gfile.exists(path):
        return [path]
    names = tf.io.gfile.listdir(folder or ".")
    found = (each for each in names if each.startswith(start) and each.endswith(ending))
    own = [name] if name in names else []
    return sorted(os.path.join(folder, each) for each in (*own, *found))
