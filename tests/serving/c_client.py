"""serve.c from Python: compile it with the libraries of a TensorFlow wheel, and ask a SavedModel."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

LIBRARY = "python/ops/_fast_wordpiece_tokenizer.so"  # in the package tensorflow_text


def compiler() -> str | None:
    return shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


def build(tensorflow: Path, binary: Path) -> None:
    """Compile the client with the headers and libraries in a folder of the package tensorflow."""
    libraries = ["-l:libtensorflow_cc.so.2", "-l:libtensorflow_framework.so.2"]
    command = [compiler(), "-o", binary, Path(__file__).with_name("serve.c")]
    command += [f"-I{tensorflow}/include", f"-L{tensorflow}", *libraries]
    subprocess.run([*command, f"-Wl,-rpath,{tensorflow}"], check=True)


def ask(
    program: Path,
    folder: Path,
    library: Path | None,
    requests: Iterable[tuple[str, Mapping[str, np.ndarray]]],
) -> list[dict[str, np.ndarray]]:
    """Return the outputs of each request, a signature and its inputs.

    Args:
        library: of the custom operations, or None.
        requests: inputs are int32, or bytes as objects; so are outputs that are strings.

    Raises:
        RuntimeError: the client ended with an error, which is the message.
    """
    content = (Path(folder) / "saved_model.pb").read_bytes()
    known = SavedModel.FromString(content).meta_graphs[0].signature_def
    lines, expected = [], []
    for signature, inputs in requests:
        outputs = {name: spec.name.split(":") for name, spec in known[signature].outputs.items()}
        (operation,) = {parts[0] for parts in outputs.values()}
        expected.append({int(parts[1]): name for name, parts in outputs.items()})
        lines.append(f"{operation} {len(outputs)} {len(inputs)}".encode())
        for name, value in inputs.items():
            node = known[signature].inputs[name].name.split(":")[0]
            lines.append(f"{node} ".encode() + _written(value))
    done = subprocess.run(
        [program, folder, library or ""], input=b"\n".join(lines) + b"\n", capture_output=True
    )
    if done.returncode:
        raise RuntimeError(done.stderr.decode(errors="replace").strip())
    place, answers = 0, []
    for names in expected:
        answer = {}
        for index in range(len(names)):
            answer[names[index]], place = _read(done.stdout, place)
        answers.append(answer)
    return answers


def _written(value: np.ndarray) -> bytes:
    is_text = value.dtype == object
    parts = [b"string" if is_text else b"int32", b"%d" % value.ndim]
    parts += [b"%d" % size for size in value.shape]
    parts += [b"%d %b" % (len(v), v) if is_text else b"%d" % v for v in value.ravel()]
    return b" ".join(parts)


def _read(text: bytes, place: int) -> tuple[np.ndarray, int]:
    """Return the tensor at a place of `text`, and the place after it."""

    def word() -> bytes:
        nonlocal place
        found = re.compile(rb"\s*(\S+)").match(text, place)
        place = found.end()
        return found[1]

    dtype = word().decode()
    shape = [int(word()) for _ in range(int(word()))]
    if dtype != "string":
        end = text.index(b"\n", place)
        numbers = np.array(text[place:end].split(), np.float64)  # holds every float32
        return numbers.astype(dtype).reshape(shape), end
    strings = np.empty(int(np.prod(shape)), object)
    for number in range(len(strings)):
        length = int(word())
        strings[number] = text[place + 1 : place + 1 + length]
        place += 1 + length
    return strings.reshape(shape), place
