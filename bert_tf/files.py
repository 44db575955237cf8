"""Files: written completely or not at all, named by globs, read line by line.

Text files are UTF-8, with or without a byte order mark. Lines end with "\\n" or "\\r\\n". Files
may be plain or gzip, local or remote (`tf.io.gfile`). "-" is standard input, whose lines are read as
they arrive, with U+FFFD for bytes that are not UTF-8.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import shutil
import sys
import uuid
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO

import tensorflow as tf

from bert_tf.limits import DataError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

TEMPORARY_SUFFIX = ".tmp"


def file_identity(file: str) -> dict[str, Any]:
    """Return the name, size and time of a file, by which a manifest detects changes."""
    status = tf.io.gfile.stat(file)
    # TensorFlow rounds the time to seconds.
    modified = os.stat(file).st_mtime_ns if os.path.exists(file) else status.mtime_nsec
    return {"file": file, "bytes": status.length, "mtime_nsec": modified}


def file_facts(path: str) -> dict[str, Any]:
    """Return the size in bytes and the SHA-256 of a file."""
    digest = hashlib.sha256()
    with tf.io.gfile.GFile(path, "rb") as file:
        while part := file.read(1 << 20):
            digest.update(part)
    return {"bytes": tf.io.gfile.stat(path).length, "sha256": digest.hexdigest()}


@contextmanager
def hold_lock(path: str, in_use: str) -> Iterator[None]:
    """Hold a lock on a file that other processes cannot take; it is removed at the end.

    The operating system releases the lock when the process ends, even after a kill. Remote paths (gs://),
    Windows and file systems without locks lock nothing.
    """
    if fcntl is None or "://" in path:
        yield
        return
    with open(path, "a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ValueError(in_use) from None
        except OSError:  # a file system without locks
            pass
        try:
            yield
        finally:
            with suppress(FileNotFoundError):
                os.remove(path)


def _temporary_name(target: str) -> str:
    """Return a name next to `target` that no other process takes."""
    return f"{target}.{uuid.uuid4().hex[:8]}{TEMPORARY_SUFFIX}"


@contextmanager
def atomic_path(path: str | os.PathLike) -> Iterator[str]:
    """Yield a temporary name for a file, and rename it to `path` if the block succeeds.

    That name is in the same folder, which is made if missing, and ends with ".tmp". The target of a
    symbolic link is replaced. A replaced file passes its permissions on. A device or a pipe is written
    directly, so `path` itself is yielded. Remote paths go through `tf.io.gfile`.
    """
    path = os.fspath(path)
    if is_stream(path):
        yield path
        return
    target = os.path.realpath(path) if os.path.islink(path) else path
    temporary = _temporary_name(target)
    tf.io.gfile.makedirs(os.path.dirname(target) or ".")
    try:
        yield temporary
        if os.path.isfile(target):
            shutil.copymode(target, temporary)
        tf.io.gfile.rename(temporary, target, overwrite=True)
    finally:
        if tf.io.gfile.exists(temporary):  # of a block that failed
            tf.io.gfile.remove(temporary)


def is_stream(path: str) -> bool:
    """Return True if `path` is a device, a pipe, or an open file such as /dev/stdout."""
    if path.startswith(("/dev/std", "/dev/fd/", "/proc/")):
        return True
    return os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path))


@contextmanager
def atomic_write(path: str | os.PathLike) -> Iterator[TextIO]:
    """Open a UTF-8 text file for writing through `atomic_path`."""
    with atomic_path(path) as name:
        # Appending keeps the contents of a file that is /dev/stdout.
        mode = "a" if name == os.fspath(path) else "w"
        with tf.io.gfile.GFile(name, mode) as file:
            file.write("")  # makes the file even if nothing else is written
            yield file


def write_text(path: str | os.PathLike, text: str) -> None:
    with atomic_write(path) as file:
        file.write(text)


def json_line(values: Any) -> str:
    """Return a line of JSON. Halves of surrogate pairs, which UTF-8 cannot contain, are escaped."""
    text = json.dumps(values, ensure_ascii=False)
    return text.encode("utf-8", "backslashreplace").decode("utf-8") + "\n"


@contextmanager
def atomic_folder(folder: str, name: str) -> Iterator[str]:
    """Yield an empty temporary folder, ".tmp", and rename it to `folder` if the block succeeds.

    The target of a symbolic link is replaced.
    """
    check_new_folder(folder, name)
    target = os.path.realpath(folder) if os.path.islink(folder) else folder.rstrip("/")
    temporary = _temporary_name(target)
    tf.io.gfile.makedirs(temporary)
    try:
        yield temporary
        check_new_folder(target, name)  # again: another process may just have made it
        if tf.io.gfile.isdir(target):
            tf.io.gfile.rmtree(target)
        tf.io.gfile.rename(temporary, target)
    finally:
        if tf.io.gfile.exists(temporary):  # of a block that failed
            tf.io.gfile.rmtree(temporary)


def check_new_folder(folder: str, name: str) -> None:
    """Raise ValueError if `folder`, a flag's value, is a file or not empty."""
    is_folder = tf.io.gfile.isdir(folder)
    if tf.io.gfile.listdir(folder) if is_folder else tf.io.gfile.exists(folder):
        problem = "not empty" if is_folder else "a file"
        raise ValueError(f"{name}={folder} is {problem}. Name a new folder.")


def expand_files(pattern_list: str, *, folders: bool = False) -> list[str]:
    """Return the files of a flag such as `--input_file`, in the order of its globs, sorted within each.

    With `folders`, as for a corpus, a folder is all files in and below it, but hidden ones (".name") and
    unfinished ones (".tmp").
    """
    files = []
    for pattern in list(filter(None, map(str.strip, pattern_list.split(",")))) or [pattern_list]:
        # The name of an existing file may have brackets.
        matches = [pattern] if tf.io.gfile.exists(pattern) else tf.io.gfile.glob(pattern)
        if folders:
            pairs = [(name, _walk(name) if tf.io.gfile.isdir(name) else [name]) for name in matches]
            matches = [file for _, inside in pairs for file in inside]
        matches = [name for name in matches if name == pattern or not _is_hidden(name)]
        if not matches:
            raise ValueError(f"No file matches {pattern!r} (in the folder {os.getcwd()}).")
        files += sorted(matches)
    return files


def _is_hidden(name: str) -> bool:
    return os.path.basename(name).startswith(".") or name.endswith(TEMPORARY_SUFFIX)


def _walk(folder: str) -> list[str]:
    """Return the files in and below a folder, without hidden ones."""
    files = []
    for parent, subfolders, names in tf.io.gfile.walk(folder):
        subfolders[:] = [name for name in subfolders if not name.startswith(".")]  # not walked
        files += [os.path.join(parent, name) for name in names if not name.startswith(".")]
    return files


def check_not_an_input(
    outputs: Iterable[str], inputs: Iterable[str], name: str = "output_file"
) -> None:
    """Raise ValueError if an output, other than a device or pipe, is a folder or one of the inputs."""
    input_paths = {os.path.realpath(file) for file in inputs}
    for output in outputs:
        is_folder = os.path.isdir(output) or not os.path.basename(output)
        if is_folder or (os.path.realpath(output) in input_paths and not is_stream(output)):
            problem = "a folder" if is_folder else "also an input"
            raise ValueError(f"{name}={output} is {problem}. Name another file.")


def list_checkpoint_files(path: str) -> list[str]:
    """Return the files of weights: a file, an index of several, a prefix of files, or a folder."""
    if tf.io.gfile.isdir(path):
        return sorted(_walk(path))
    if path.endswith(".index.json"):  # of model-00001-of-00002.safetensors and so on
        stem, ending = os.path.splitext(path.removesuffix(".index.json"))
        return [*sorted(tf.io.gfile.glob(f"{stem}-*{ending}")), path]
    return [path] if tf.io.gfile.exists(path) else sorted(tf.io.gfile.glob(f"{path}.*"))


# ----------------------------------------------------------------------------------------- lines

GZIP_MAGIC = b"\x1f\x8b\x08"
STANDARD_INPUT = "-"
BLOCK = 1 << 20  # bytes that are read at once


@contextmanager
def open_binary(file: str) -> Iterator[io.BufferedReader]:
    """Open a file as a buffered binary stream, decompressed if its content is gzip."""
    remote = "://" in file
    try:
        if file == STANDARD_INPUT:
            yield _decompress(sys.stdin.buffer)
            return
        with tf.io.gfile.GFile(file, "rb") if remote else open(file, "rb", 0) as opened:
            yield _decompress(io.BufferedReader(_RemoteFile(opened) if remote else opened, BLOCK))
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(format_location(file), f"corrupt gzip data: {error}.") from error


def detect_compression(file: str) -> str:
    """Return "GZIP" or "", `tf.data`'s names of a file's compression, by the first bytes."""
    with tf.io.gfile.GFile(file, "rb") as stream:
        return "GZIP" if stream.read(len(GZIP_MAGIC)) == GZIP_MAGIC else ""


def _decompress(stream: Any) -> io.BufferedReader:
    if not stream.peek(len(GZIP_MAGIC)).startswith(GZIP_MAGIC):
        return stream
    return io.BufferedReader(gzip.GzipFile(fileobj=stream, mode="rb"), BLOCK)


class _RemoteFile(io.RawIOBase):
    """Adapter of a GFile for Python's buffered reader. (GFile's own lines lose every "\\r".)"""

    def __init__(self, opened: tf.io.gfile.GFile) -> None:
        self._opened = opened

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._opened.seek(offset, whence)
        return self._opened.tell()

    def tell(self) -> int:
        return self._opened.tell()

    def readinto(self, buffer) -> int:
        data = self._opened.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


def format_location(file: str, line: int | None = None) -> str:
    """Return "file:line" or "file" for error messages."""
    name = "standard input" if file == STANDARD_INPUT else file
    return name if line is None else f"{name}:{line}"


def read_lines(path: str | os.PathLike, *, start: int = 0, end: int | None = None) -> Iterator[str]:
    """Yield the lines of a text file, or of a range in (uncompressed) bytes, without their ends."""
    file = os.fspath(path)
    errors = "replace" if file == STANDARD_INPUT else "strict"
    offset = start
    with open_binary(file) as stream:
        if start:
            stream.seek(start)
        for line in stream:
            try:
                text = line.decode("utf-8", errors)
            except UnicodeDecodeError as error:
                byte = f"byte 0x{line[error.start]:02x} at offset {offset + error.start}"
                stream.seek(0)
                number = 1
                while stream.tell() < offset:
                    stream.readline()
                    number += 1
                raise DataError(f"{file}:{number}", f"{byte} is not UTF-8. Use iconv.") from error
            if offset == 0:
                text = text.removeprefix("\ufeff")
            offset += len(line)
            yield text.removesuffix("\n").removesuffix("\r")
            if offset == end:
                return


def count_lines(files: Iterable[str]) -> int:
    """Count the lines that `read_lines` yields for all files."""
    total = 0
    for file in files:
        last = b"\n"
        with open_binary(file) as stream:
            while block := stream.read(BLOCK):
                total += block.count(b"\n")
                last = block
        total += not last.endswith(b"\n")
    return total
