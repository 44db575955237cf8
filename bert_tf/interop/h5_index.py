"""Index of a `tf_model.h5`, as a program: HDF5's parser runs in a process of its own.

    python h5_index.py tf_model.h5    # prints [[name, shape, dtype, offset], ...] as JSON

HDF5 1.14 reads some damaged files without end, and the process that needs the index stops this one. Its
memory is limited too, because a file may claim to have an index of any size. The values are then read
without HDF5. This file imports nothing of bert_tf.
"""

from __future__ import annotations

import contextlib
import json
import sys

import h5py

_MOST_MEMORY = 2 * 2**30  # bytes; with h5py and its threads, BERT-Large needs far less


def index(path: str) -> list[tuple[str, tuple[int, ...], str, int | None]]:
    """Return name, shape, dtype and offset of every weight that Keras 2 wrote.

    The offset is None if the file does not contain the values in one uncompressed piece.
    """
    with h5py.File(path, "r") as file:
        return [
            (name, *_place(file[layer][name], path))
            for layer in map(_text, file.attrs["layer_names"])
            for name in map(_text, file[layer].attrs["weight_names"])
        ]


def _place(dataset: object, path: str) -> tuple[tuple[int, ...], str, int | None]:
    if not isinstance(dataset, h5py.Dataset) or dataset.shape is None:
        return (), "", None
    # None as well for values that were never written, or that are in the header.
    is_inside = dataset.file.filename == path and not (dataset.is_virtual or dataset.external)
    return dataset.shape, dataset.dtype.str, dataset.id.get_offset() if is_inside else None


def _text(name: bytes | str) -> str:
    return name.decode() if isinstance(name, bytes) else name


def _limit_memory() -> None:
    # Windows has no such limit. A lower limit of the user stays.
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
        if soft == resource.RLIM_INFINITY or soft > _MOST_MEMORY:
            resource.setrlimit(resource.RLIMIT_DATA, (_MOST_MEMORY, hard))


if __name__ == "__main__":
    _limit_memory()
    try:
        found = index(sys.argv[1])
    except MemoryError:
        sys.exit(
            f"its index needs more than {_MOST_MEMORY / 2**30:g} GiB of memory, the limit of bert_tf"
        )
    json.dump(found, sys.stdout)
