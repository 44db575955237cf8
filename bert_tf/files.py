"""Files: written completely or not at all, named by globs, read line by line.

Text files are UTF-8, with or without a byte order mark, or UTF-16 with one. Lines end with "\\n" or
"\\r\\n". Files may be plain or gzip, local or remote (`tf.io.gfile`). "-" is standard input, whose lines
are read as they arrive, with U+FFFD for bytes that are not UTF-8.
"""

from __future__ import annotations

import codecs
import gzip
import hashlib
import io
import itertools
import json
import logging
import os
import shutil
import stat
import sys
import zlib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any, TextIO

import tensorflow as tf

from bert_tf.limits import DataError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

logger = logging.getLogger(__name__)

TEMPORARY_SUFFIX = ".tmp"


def file_identity(file: str) -> dict[str, Any]:
    """Return the name, size and time of a file, to detect changes, as a manifest has them."""
    found = tf.io.gfile.stat(file)
    # TensorFlow rounds the time to seconds.
    modified = os.stat(file).st_mtime_ns if os.path.exists(file) else found.mtime_nsec
    return {"file": file, "bytes": found.length, "mtime_nsec": modified}


def file_facts(path: str) -> dict[str, Any]:
    """Return the size in bytes and the SHA-256 of a file."""
    digest = hashlib.sha256()
    with tf.io.gfile.GFile(path, "rb") as file:
        while part := file.read(1 << 20):
            digest.update(part)
    return {"bytes": tf.io.gfile.stat(path).length, "sha256": digest.hexdigest()}


def has_locks(path: str) -> bool:
    """Return False for remote folders (gs://) and on Windows, where `open_locked` is impossible."""
    return fcntl is not None and "://" not in path


def open_locked(path: str, *, is_folder: bool = False, wait: bool = False) -> int:
    """Open a file or folder, made if missing, with a lock that other processes cannot take.

    The lock ends when the descriptor is closed, or with the process, even after a kill. File systems
    without locks lock nothing.

    Args:
        wait: True to wait while another process holds the lock.

    Returns:
        A descriptor.

    Raises:
        BlockingIOError: another process holds the lock.
    """
    flags = os.O_RDONLY if is_folder else os.O_RDWR | os.O_CREAT
    while True:
        if is_folder:
            os.makedirs(path, exist_ok=True)
        descriptor = os.open(path, flags, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            os.close(descriptor)
            raise
        except OSError:  # a file system without locks
            return descriptor
        # The previous holder may have removed or renamed it between our opening and our locking it.
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(descriptor), os.stat(path)):
                return descriptor
        os.close(descriptor)


@contextmanager
def run_lock(path: str, in_use: str) -> Iterator[None]:
    """Hold a lock on a file that other processes cannot take, and remove the file at the end.

    The operating system releases it when the process ends, even after a kill. Remote paths (gs://) and
    Windows have no such locks; nothing is locked there.

    Args:
        path: of the file, in an existing folder. It contains the number of the process.
        in_use: message if another process holds the lock, with "{process}" for its number.

    Raises:
        ValueError: another process holds the lock.
    """
    if not has_locks(path):
        yield
        return
    try:
        descriptor = open_locked(path)
    except BlockingIOError:
        process = "?"  # it has just ended
        with suppress(OSError), open(path, encoding="ascii") as file:
            process = file.read(20).strip() or "?"
        raise ValueError(in_use.replace("{process}", process)) from None
    with open(descriptor, "w", encoding="ascii") as file:
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        try:
            yield
        finally:
            with suppress(OSError):
                os.remove(path)


@contextmanager
def _only_writer(
    path: str, target: str, *, is_folder: bool = False, wait: bool = False
) -> Iterator[None]:
    """Hold the lock of a temporary path within the block; see `open_locked`."""
    if not has_locks(path):
        yield
        return
    try:
        descriptor = open_locked(path, is_folder=is_folder)
    except BlockingIOError:
        if not wait:
            raise ValueError(
                f"{target} is being written by another process. Wait for it, or use another path."
            ) from None
        logger.info("Waiting for another process, which writes %s", target)
        descriptor = open_locked(path, is_folder=is_folder, wait=True)
    try:
        yield
    finally:
        os.close(descriptor)


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
    with _only_writer(temporary, target, wait=wait):
        try:
            yield temporary
            if os.path.isfile(target):
                shutil.copymode(target, temporary)
            tf.io.gfile.rename(temporary, target, overwrite=True)
        finally:
            if tf.io.gfile.exists(temporary):
                tf.io.gfile.remove(temporary)


def is_stream(path: str) -> bool:
    """Return True if `path` is a device, a pipe, or an open file such as /dev/stdout."""
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


def escaped(text: str) -> str:
    """Return a text with halves of surrogate pairs, which UTF-8 cannot contain, as in "\\ud800"."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def json_line(values: Any) -> str:
    """Return a line of JSON. Only halves of surrogate pairs are escaped, not other characters."""
    return escaped(json.dumps(values, ensure_ascii=False)) + "\n"


def check_writable(output_dir: str) -> None:
    """Make the folder, and raise ValueError before the long work if no file can be written there."""
    probe = os.path.join(output_dir, f".writable{TEMPORARY_SUFFIX}")
    try:
        tf.io.gfile.makedirs(output_dir)
        with _only_writer(probe, output_dir, wait=True):  # two runs may check the folder at once
            with tf.io.gfile.GFile(probe, "w") as file:
                file.write("")
            with suppress(tf.errors.NotFoundError):  # gs:// has no locks
                tf.io.gfile.remove(probe)
    except (OSError, tf.errors.OpError) as error:
        raise ValueError(f"Cannot write into output_dir={output_dir} ({error}).") from error


@contextmanager
def removing_new_parents(folder: str) -> Iterator[None]:
    """Remove the folders above `folder` that the block has made, if they are empty at its end."""
    above, new = os.path.dirname(os.path.abspath(folder)), []
    while not os.path.exists(above):
        new.append(above)
        above = os.path.dirname(above)
    try:
        yield
    finally:
        for each in new:
            with suppress(OSError):  # not empty
                os.rmdir(each)


@contextmanager
def atomic_folder(folder: str, name: str) -> Iterator[str]:
    """Yield an empty temporary folder, and rename it to `folder` if the block succeeds.

    The temporary name is `folder` + ".tmp". An exception removes it, and new folders above it. The
    target of a symbolic link is replaced.

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
    with removing_new_parents(target), _only_writer(temporary, folder, is_folder=True):
        try:
            check_new_folder(folder, name)  # again: another process may just have made it
            tf.io.gfile.makedirs(temporary)
            for name in tf.io.gfile.listdir(temporary):  # of a killed run
                path = os.path.join(temporary, name)
                (remove_tree if tf.io.gfile.isdir(path) else tf.io.gfile.remove)(path)
            yield temporary
            if tf.io.gfile.isdir(target):
                remove_tree(target)
            tf.io.gfile.rename(temporary, target)
        finally:
            if tf.io.gfile.exists(temporary):
                remove_tree(temporary)


def remove_tree(folder: str) -> None:
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


_REQUESTS = 32  # at once


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
    for pattern in filter(None, map(str.strip, pattern_list.split(","))):
        if tf.io.gfile.isdir(pattern) and not folders:
            raise ValueError(f"{pattern!r} is a folder. Name its files, e.g. '{pattern}/*'.")
        # A file of this name may have brackets.
        matches = [pattern] if tf.io.gfile.exists(pattern) else tf.io.gfile.glob(pattern)
        if matches != [pattern] and not os.path.basename(pattern).startswith("."):
            matches = [file for file in matches if not os.path.basename(file).startswith(".")]
        subfolders = []
        if folders:
            with ThreadPoolExecutor(_REQUESTS) as pool:  # a request each if remote (gs://)
                subfolders = list(itertools.compress(matches, pool.map(tf.io.gfile.isdir, matches)))
        matches = [file for file in matches if file not in subfolders]
        matches += [file for folder in subfolders for file in _files_below(folder)]
        matches = [file for file in matches if not file.endswith(TEMPORARY_SUFFIX)]
        if subfolders:
            endings = ", ".join(sorted({os.path.splitext(file)[1] or "none" for file in matches}))
            logger.info("Found %d files in %s, endings: %s", len(matches), pattern, endings)
        if not matches:
            break
        files.extend(sorted(matches))
    else:
        if files:
            return files
        pattern = pattern_list
    raise ValueError(f"No file matches {pattern!r} (in the folder {os.getcwd()}).")


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
        is_folder = os.path.isdir(output) or not os.path.basename(output)
        is_input = not is_stream(output) and any(is_same_file(file, output) for file in inputs)
        if is_folder or is_input:
            problem = "a folder" if is_folder else "also an input"
            raise ValueError(f"{name}={output} is {problem}. Name another file.")


def is_same_file(one: str, other: str) -> bool:
    """Return True if two paths lead to one file or folder, which need not exist.

    Remote paths (gs://) are compared as they are written.
    """
    if "://" in one or "://" in other:
        return one == other
    if os.path.exists(one) and os.path.exists(other):
        return os.path.samefile(one, other)
    return os.path.realpath(one) == os.path.realpath(other)


def list_checkpoint_files(path: str) -> list[str]:
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


# ----------------------------------------------------------------------------------------- lines

GZIP_MAGIC = b"\x1f\x8b\x08"
STANDARD_INPUT = "-"
BLOCK = 1 << 20  # bytes that are read at once


@contextmanager
def open_binary(file: str) -> Iterator[io.BufferedReader]:
    """Open a file as a buffered binary stream, decompressed if its content is gzip.

    Raises:
        ValueError: its gzip data are damaged.
    """
    try:
        if file == STANDARD_INPUT:
            yield _decompressed(sys.stdin.buffer)
            return
        remote = "://" in file
        with tf.io.gfile.GFile(file, "rb") if remote else open(file, "rb", 0) as opened:
            raw = _RemoteFile(opened) if remote else opened
            yield _decompressed(io.BufferedReader(raw, BLOCK))
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(
            format_location(file), f"cannot be decompressed ({error}). Copy it again."
        ) from error


def detect_compression(file: str) -> str:
    """Return "GZIP" or "", `tf.data`'s names of a file's compression, by the first bytes."""
    with tf.io.gfile.GFile(file, "rb") as stream:
        return "GZIP" if stream.read(len(GZIP_MAGIC)) == GZIP_MAGIC else ""


def _decompressed(stream: Any) -> io.BufferedReader:
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


def is_utf16(stream: Any) -> bool:
    """Return True if a binary stream begins with the byte order mark of UTF-16."""
    return stream.peek(2).startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))


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
        elif end is None and is_utf16(stream):
            yield from _utf16_lines(file, stream)
            return
        for line in stream:
            try:
                text = line.decode("utf-8", errors)
            except UnicodeDecodeError as error:
                byte = f"byte 0x{line[error.start]:02x} at offset {offset + error.start}"
                number = _line_number(file, offset)
                raise DataError(f"{file}:{number}", f"{byte} is not UTF-8. Use iconv.") from error
            if offset == 0:
                text = text.removeprefix("\ufeff")
            offset += len(line)
            yield text.removesuffix("\n").removesuffix("\r")
            if offset == end:
                return


def _utf16_lines(file: str, stream: Any) -> Iterator[str]:
    text = io.TextIOWrapper(stream, "utf-16", newline="\n")
    try:
        for line in text:
            yield line.removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError as error:
        raise DataError(file, f"begins as UTF-16, but cannot be decoded: {error}.") from error
    finally:
        text.detach()  # `text` would close standard input


def count_lines(files: Iterable[str]) -> int:
    """Count the lines that `read_lines` yields for all files."""
    total = 0
    for file in files:
        last = b"\n"
        with open_binary(file) as stream:
            if is_utf16(stream):
                total += sum(1 for _ in read_lines(file))
                continue
            while block := stream.read(BLOCK):
                total += block.count(b"\n")
                last = block
        total += not last.endswith(b"\n")
    return total


def _line_number(file: str, offset: int) -> int:
    """Return the number of the line that begins at a byte of the file, from 1."""
    number = 1
    with open_binary(file) as stream:
        while offset > 0 and (block := stream.read(min(offset, BLOCK))):
            number += block.count(b"\n")
            offset -= len(block)
    return number
