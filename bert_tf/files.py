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
    """Return the name, size and time of a file, to detect changes, as a manifest has them."""
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
def hold_lock(
    path: str, in_use: str, *, is_folder: bool = False, wait: bool = False
) -> Iterator[None]:
    """Hold a lock on a file or folder, made if missing, that other processes cannot take.

    A file that is still there at the end is removed. The operating system releases the lock when the
    process ends, even after a kill. Remote paths (gs://), Windows and file systems without locks lock
    nothing.

    Args:
        in_use: message if another process holds the lock.
        wait: True to wait for that process instead.

    Raises:
        ValueError: another process holds the lock.
    """
    if fcntl is None or "://" in path:
        yield
        return
    while True:
        if is_folder:
            os.makedirs(path, exist_ok=True)
        descriptor = os.open(path, os.O_RDONLY if is_folder else os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            os.close(descriptor)
            raise ValueError(in_use) from None
        except OSError:  # a file system without locks
            break
        # The previous holder may have removed or renamed it between our opening and our locking it.
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                break
        os.close(descriptor)
    try:
        yield
    finally:
        with suppress(FileNotFoundError):
            if not is_folder and os.path.samestat(os.fstat(descriptor), os.stat(path)):
                os.remove(path)
        os.close(descriptor)


_IN_USE = "{} is being written by another process. Wait for it, or use another path."


@contextmanager
def atomic_path(path: str | os.PathLike, *, wait: bool = False) -> Iterator[str]:
    """Yield a temporary name for a file, and rename it to `path` if the block succeeds.

    That name is `path` + ".tmp" in the same folder, which is made if missing. The target of a symbolic
    link is replaced. A replaced file passes its permissions on. A device or a pipe is written directly,
    so `path` itself is yielded. Remote paths go through `tf.io.gfile`.

    Args:
        wait: True to wait while another process writes the file.

    Raises:
        ValueError: another process writes the file.
    """
    path = os.fspath(path)
    if is_stream(path):
        yield path
        return
    target = os.path.realpath(path) if os.path.islink(path) else path
    temporary = target + TEMPORARY_SUFFIX
    tf.io.gfile.makedirs(os.path.dirname(target) or ".")
    with hold_lock(temporary, _IN_USE.format(target), wait=wait):
        try:
            yield temporary
            if os.path.isfile(target):
                shutil.copymode(target, temporary)
            tf.io.gfile.rename(temporary, target, overwrite=True)
        except BaseException:
            if tf.io.gfile.exists(temporary):
                tf.io.gfile.remove(temporary)
            raise


def is_stream(path: str) -> bool:
    """Return True if `path` is a device, a pipe, or an open file such as /dev/stdout."""
    if path.startswith(("/dev/std", "/dev/fd/", "/proc/")):
        return True
    return os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path))


@contextmanager
def atomic_write(path: str | os.PathLike, *, wait: bool = False) -> Iterator[TextIO]:
    """Open a UTF-8 text file for writing through `atomic_path`."""
    with atomic_path(path, wait=wait) as name:
        # Appending keeps the contents of a file that is /dev/stdout.
        mode = "a" if name == os.fspath(path) else "w"
        with tf.io.gfile.GFile(name, mode) as file:
            file.write("")  # makes the file even if nothing else is written
            yield file


def write_text(path: str | os.PathLike, text: str) -> None:
    with atomic_write(path, wait=True) as file:
        file.write(text)


def escape_surrogates(text: str) -> str:
    """Return a text with halves of surrogate pairs, which UTF-8 cannot contain, as in "\\ud800"."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def json_line(values: Any) -> str:
    """Return a line of JSON. Only halves of surrogate pairs are escaped, not other characters."""
    return escape_surrogates(json.dumps(values, ensure_ascii=False)) + "\n"


def check_writable(output_dir: str) -> None:
    """Make the folder, and raise ValueError before the long work if no file can be written there."""
    probe = os.path.join(output_dir, f".writable-{os.getpid()}{TEMPORARY_SUFFIX}")
    try:
        tf.io.gfile.makedirs(output_dir)
        with tf.io.gfile.GFile(probe, "w") as file:
            file.write("")
        tf.io.gfile.remove(probe)
    except (OSError, tf.errors.OpError) as error:
        raise ValueError(f"Cannot write into output_dir={output_dir} ({error}).") from error


@contextmanager
def atomic_folder(folder: str, name: str) -> Iterator[str]:
    """Yield an empty temporary folder, and rename it to `folder` if the block succeeds.

    The temporary name is `folder` + ".tmp". An exception removes it. The target of a symbolic link is
    replaced.

    Args:
        folder: must not exist, or be empty.
        name: of the parameter or flag, for messages.

    Raises:
        ValueError: as in `check_new_folder`, or another process writes the folder.
    """
    check_new_folder(folder, name)
    target = os.path.realpath(folder) if os.path.islink(folder) else folder.rstrip("/")
    temporary = target + TEMPORARY_SUFFIX
    if os.path.islink(temporary):  # or its target would be emptied
        raise ValueError(f"{name}: {temporary} is a link. Remove it.")
    with hold_lock(temporary, _IN_USE.format(folder), is_folder=True):
        try:
            check_new_folder(folder, name)  # again: another process may just have made it
            tf.io.gfile.makedirs(temporary)
            for leftover in tf.io.gfile.listdir(temporary):  # of a killed run
                path = os.path.join(temporary, leftover)
                (_remove_tree if tf.io.gfile.isdir(path) else tf.io.gfile.remove)(path)
            yield temporary
            if tf.io.gfile.isdir(target):
                _remove_tree(target)
            tf.io.gfile.rename(temporary, target)
        except BaseException:
            if tf.io.gfile.exists(temporary):
                _remove_tree(temporary)
            raise


def _remove_tree(folder: str) -> None:
    """Remove a folder and its content. Links are removed, not what they lead to."""
    if os.path.islink(folder):
        os.unlink(folder)
    else:  # TensorFlow follows links. Remote folders (gs://) have none.
        (tf.io.gfile.rmtree if "://" in folder else shutil.rmtree)(folder)


def check_new_folder(folder: str, name: str) -> None:
    """Raise ValueError if `folder` is a file or not empty, so that nothing is overwritten.

    Args:
        name: of the parameter or flag, for the message.
    """
    is_folder = tf.io.gfile.isdir(folder)
    if tf.io.gfile.listdir(folder) if is_folder else tf.io.gfile.exists(folder):
        problem = "not empty" if is_folder else "a file"
        raise ValueError(f"{name}={folder} is {problem}. Name a new folder.")


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
    for pattern in list(filter(None, map(str.strip, pattern_list.split(",")))) or [pattern_list]:
        if tf.io.gfile.isdir(pattern) and not folders:
            raise ValueError(f"{pattern!r} is a folder. Name its files, e.g. '{pattern}/*'.")
        if tf.io.gfile.exists(pattern):  # its name may have brackets
            matches = [pattern]
        else:
            matches = tf.io.gfile.glob(pattern)
            if not os.path.basename(pattern).startswith("."):
                matches = [name for name in matches if not os.path.basename(name).startswith(".")]
        if folders:
            pairs = [(name, tf.io.gfile.isdir(name)) for name in matches]
            matches = [name for name, is_folder in pairs if not is_folder]
            matches += [file for name, is_folder in pairs if is_folder for file in _walk(name)]
        matches = [name for name in matches if not name.endswith(TEMPORARY_SUFFIX)]
        if not matches:
            raise ValueError(f"No file matches {pattern!r} (in the folder {os.getcwd()}).")
        files += sorted(matches)
    return files


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
    """Raise ValueError if an output is a folder, or would replace an input.

    Args:
        outputs: files to be written. Devices and pipes replace nothing.
        inputs: files to be read.
        name: of the output's parameter, for the message.
    """
    input_paths = {os.path.realpath(file) for file in inputs}
    for output in outputs:
        is_folder = os.path.isdir(output) or not os.path.basename(output)
        if is_folder or (os.path.realpath(output) in input_paths and not is_stream(output)):
            problem = "a folder" if is_folder else "also an input"
            raise ValueError(f"{name}={output} is {problem}. Name another file.")


def list_checkpoint_files(path: str) -> list[str]:
    """Return the files of weights.

    Args:
        path: a file, the index of several (model.safetensors.index.json), the prefix of files, or a
            folder.
    """
    if tf.io.gfile.isdir(path):
        return sorted(_walk(path))
    folder, name = os.path.split(path)
    start, ending = f"{name}.", ""
    if name.endswith(".index.json"):  # of model-00001-of-00002.safetensors and so on
        stem, ending = os.path.splitext(name.removesuffix(".index.json"))
        start = f"{stem}-"
    elif tf.io.gfile.exists(path):
        return [path]
    names = [
        file
        for file in tf.io.gfile.listdir(folder or ".")
        if file == name or (file.startswith(start) and file.endswith(ending))
    ]
    return sorted(os.path.join(folder, file) for file in names)


# ----------------------------------------------------------------------------------------- lines

GZIP_MAGIC = b"\x1f\x8b\x08"
STANDARD_INPUT = "-"
BLOCK = 1 << 20  # bytes that are read at once


@contextmanager
def open_binary(file: str) -> Iterator[io.BufferedReader]:
    """Open a file as a buffered binary stream, decompressed if its content is gzip.

    Raises:
        ValueError: its gzip data are corrupt.
    """
    try:
        if file == STANDARD_INPUT:
            yield _decompress(sys.stdin.buffer)
            return
        remote = "://" in file
        with tf.io.gfile.GFile(file, "rb") if remote else open(file, "rb", 0) as opened:
            raw = _RemoteFile(opened) if remote else opened
            yield _decompress(io.BufferedReader(raw, BLOCK))
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(
            format_location(file), f"cannot be decompressed ({error}). Copy it again."
        ) from error


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
    """Yield the lines of a text file, without their ends.

    Args:
        start, end: byte range of the (uncompressed) file to read, at starts of lines. None means the
            end of the file.

    Raises:
        ValueError: a line is not UTF-8; the message has line and byte offset.
    """
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
