"""Files of safetensors: our reader and writer against the library, and headers that lie."""

import json
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
from helpers import cause_of

from bert_tf.checkpoints.tensor_files import open_tensors, write_safetensors

library = pytest.importorskip("safetensors.numpy")

FLOATS = ("float16", "bfloat16", "float32", "float64")
INTEGERS = [f"{kind}int{bits}" for kind in ("", "u") for bits in (8, 16, 32, 64)]


def tensors(dtype):
    values = np.arange(6).reshape(2, 3).astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    return {"ä.weight": values, "scalar": values[1, 2], "empty": values[:0], "turned": values.T}


def contiguous(values):
    return {name: np.array(array, order="C") for name, array in values.items()}


@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS, "bool"])
def test_a_file_of_the_library_is_read_and_written_byte_for_byte(tmp_path, dtype):
    theirs, ours = tmp_path / "theirs.safetensors", tmp_path / "ours.safetensors"
    expected = contiguous(tensors(dtype))
    library.save_file(expected, theirs, metadata={"format": "pt"})
    found = open_tensors(str(theirs))
    assert sorted(found) == sorted(expected)
    for name, array in expected.items():
        assert found.shape(name) == found[name].shape == array.shape
        assert found[name].dtype == (np.float32 if dtype in FLOATS else array.dtype)
        np.testing.assert_array_equal(found[name], array.astype(found[name].dtype))
    write_safetensors(str(ours), tensors(dtype))
    assert ours.read_bytes() == theirs.read_bytes()


def test_a_file_of_several_types_is_read_by_the_library(tmp_path):
    path = tmp_path / "mixed.safetensors"
    mixed = {dtype: tensors(dtype)["turned"] for dtype in (*FLOATS, *INTEGERS, "bool")}
    write_safetensors(str(path), mixed)
    found = library.load_file(path)
    assert {name: array.tolist() for name, array in found.items()} == {
        name: array.tolist() for name, array in mixed.items()
    }
    assert [file.name for file in tmp_path.iterdir()] == ["mixed.safetensors"]


def file_of(header, data, length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def entry(begin, end, shape=(2,), dtype="F32"):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}


def test_headers_that_lie_are_refused_by_name(tmp_path):
    path = tmp_path / "model.safetensors"
    good = {"a": entry(0, 8), "b": entry(8, 16)}
    path.write_bytes(file_of(good, bytes(16)))
    assert open_tensors(str(path))["b"].tolist() == [0, 0]
    for content in (
        b"",
        b"version https://git-lfs.github.com/spec/v1",
        file_of(good, bytes(16), length=2**63),  # longer than the file
        file_of(good, bytes(16), length=10),
        file_of(b"{", b""),
        file_of(b"[" * 100_000, b""),
        file_of(b"[1]", b""),
        file_of(b"\xff", b""),
        file_of(good, bytes(15)),
        file_of(good, bytes(17)),
        file_of({**good, "b": entry(4, 12)}, bytes(12)),  # overlaps
        file_of({**good, "b": entry(12, 20)}, bytes(20)),  # a hole
        file_of({"a": entry(0, 8 * 10**18, (2 * 10**18,))}, bytes(8)),
        file_of({"a": entry(-8, 0)}, bytes(8)),
        file_of({"a": entry(0, 8, (-1, -2))}, bytes(8)),
        file_of({"a": entry(0, 8, (2.0,))}, bytes(8)),
        file_of({"a": entry(0, 8, (0, 10**30))}, bytes(8)),
        file_of({"a": entry(0, 8, (3,))}, bytes(8)),
        file_of({"a": entry(0, 8, dtype="F8_E5M2")}, bytes(8)),
        file_of({"a": entry("0", 8)}, bytes(8)),
        file_of({"a": {"dtype": "F32", "shape": [2]}}, bytes(8)),
        file_of({"a": None}, b""),
    ):
        path.write_bytes(content)
        assert cause_of(open_tensors, str(path)) == str(path), content[:80]


def test_a_plain_install_reads_and_writes_without_the_library(tmp_path):
    code = """
import sys
sys.modules["safetensors"] = sys.modules["huggingface_hub"] = sys.modules["torch"] = None
import bert_tf
config = bert_tf.BertConfig(11, 8, 1, 2, 16)
bert_tf.BertModel(config).save_pretrained("saved")
print(bert_tf.BertModel.from_pretrained("saved").load_report.missing)
"""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "()\n"
