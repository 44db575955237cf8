"""Files by their names, and files that appear whole or not at all."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

import tensorflow as tf

TEMPORARY_SUFFIX = ".tmp"


class MissingFileError(ValueError):
    """No file matches a glob.

    Args:
        glob: as it is written in the flag.
    """

    def __init__(self, glob: str) -> None:
        super().__init__(f"No file matches {glob!r} (in the folder {os.getcwd()}).")
        self.filename = glob


def expand_files(pattern_list: str, *, folders: bool = False) -> list[str]:
    """The files that a flag such as `--input_file` names.

    Args:
        pattern_list: comma-separated globs, as in the reference.
        folders: whether a folder stands for all files in it and below, as for a corpus.

    Returns:
        Paths: the globs in their order, sorted within each. Unfinished files (".tmp") are left out,
        and in folders hidden ones (".name").

    Raises:
        ValueError: a glob matches no file, or names a folder where that is not allowed.
    """
    files = []
    for pattern in filter(None, (part.strip() for part in pattern_list.split(","))):
        if tf.io.gfile.isdir(pattern):
            if not folders:
                raise ValueError(f"{pattern!r} is a folder; name its files, e.g. '{pattern}/*'.")
            matches = _files_below(pattern)
        else:
            matches = tf.io.gfile.glob(pattern)
        matches = [file for file in matches if not file.endswith(TEMPORARY_SUFFIX)]
        if not matches:
            raise MissingFileError(pattern)
        files.extend(sorted(matches))
    if not files:
        raise ValueError(f"No file is named in {pattern_list!r}: give a comma list of globs.")
    return files


def _files_below(folder: str) -> list[str]:
    return [
        os.path.join(parent, name)
        for parent, _, names in tf.io.gfile.walk(folder)
        for name in names
        if not name.startswith(".")
    ]


@contextmanager
def whole_file(path: str | os.PathLike) -> Iterator[str]:
    """Yield the name under which to write a file, which gets its own name if the block ends well.

    That name is `path` + ".tmp" in the same folder, which is made if missing. A symbolic link is
    followed: its target is replaced. A replaced file passes its permissions on. A device or a pipe
    is written directly, so `path` itself is yielded. Remote paths go through `tf.io.gfile`.
    """
    path = os.fspath(path)
    if _is_stream(path):
        yield path
        return
    target = os.path.realpath(path) if os.path.islink(path) else path
    temporary = target + TEMPORARY_SUFFIX
    tf.io.gfile.makedirs(os.path.dirname(target) or ".")
    complete = False
    try:
        yield temporary
        if os.path.isfile(target):
            shutil.copymode(target, temporary)
        tf.io.gfile.rename(temporary, target, overwrite=True)
        complete = True
    finally:
        if not complete and tf.io.gfile.exists(temporary):
            tf.io.gfile.remove(temporary)


def _is_stream(path: str) -> bool:
    """Return whether `path` is a device, a pipe, or a file that is open, such as /dev/stdout."""
    if not os.path.exists(path) or os.path.isdir(path):
        return False
    if not stat.S_ISREG(os.stat(path).st_mode):
        return True
    while os.path.islink(path):  # /dev/stdout -> /proc/self/fd/1 -> the file
        folder = os.path.realpath(os.path.dirname(path))
        if folder.startswith("/proc/"):
            return True
        path = os.path.join(folder, os.readlink(path))
    return False


def remove_file(path: str) -> None:
    """Remove a file, unless it is a device, a pipe or a link: those are written into again."""
    if not os.path.islink(path) and not _is_stream(path):
        tf.io.gfile.remove(path)


@contextmanager
def open_whole(path: str | os.PathLike) -> Iterator[TextIO]:
    """Opens a UTF-8 text file for writing; it gets its name as `whole_file` says."""
    with whole_file(path) as name:
        # Appending keeps what others wrote into the file behind /dev/stdout.
        mode = "a" if name == os.fspath(path) else "w"
        with tf.io.gfile.GFile(name, mode) as file:
            file.write("")  # otherwise no file is made where nothing is written
            yield file


def write_text(path: str | os.PathLike, text: str) -> None:
    """Writes a whole text file."""
    with open_whole(path) as file:
        file.write(text)


def check_writable(output_dir: str) -> None:
    """Makes the folder. What cannot be written in the end is found out before the long work.

    Raises:
        ValueError: no file can be written there.
    """
    probe = os.path.join(output_dir, f".writable{TEMPORARY_SUFFIX}")
    try:
        write_text(probe, "")
        tf.io.gfile.remove(probe)
    except (OSError, tf.errors.OpError) as error:
        raise ValueError(
            f"Nothing can be written into output_dir={output_dir} ({error}). Use a folder that may be "
            "written, on a disk that is not full."
        ) from error


@contextmanager
def new_folder(folder: str, name: str) -> Iterator[str]:
    """Yield an empty folder under a temporary name, which gets its own name if the block ends well.

    That name is `folder` + ".tmp". If the block ends with an exception, that folder is removed. If
    `folder` is a symbolic link, its target is replaced.

    Args:
        folder: must not exist, or be empty.
        name: of the parameter or flag, for messages.

    Raises:
        ValueError: as `check_new_folder`.
    """
    check_new_folder(folder, name)
    target = os.path.realpath(folder) if os.path.islink(folder) else folder.rstrip("/")
    temporary = target + TEMPORARY_SUFFIX
    if tf.io.gfile.exists(temporary):  # of a run that was killed
        tf.io.gfile.rmtree(temporary)
    tf.io.gfile.makedirs(temporary)
    complete = False
    try:
        yield temporary
        if tf.io.gfile.isdir(target):
            tf.io.gfile.rmtree(target)
        tf.io.gfile.rename(temporary, target)
        complete = True
    finally:
        if not complete and tf.io.gfile.exists(temporary):
            tf.io.gfile.rmtree(temporary)


def check_new_folder(folder: str, name: str) -> None:
    """Raise unless a folder can be made there, so that nothing is overwritten.

    Args:
        name: of the parameter or flag, for the message.

    Raises:
        ValueError: `folder` is a file, or a folder that is not empty.
    """
    if not tf.io.gfile.exists(folder):
        return
    if not tf.io.gfile.isdir(folder):
        raise ValueError(f"{name}={folder} is a file. Name a new folder.")
    if tf.io.gfile.listdir(folder):
        raise ValueError(
            f"{name}={folder} is not empty. Name a new folder, so that nothing is overwritten."
        )
