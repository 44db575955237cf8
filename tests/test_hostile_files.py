"""Files of strangers: rejected by name, with little memory; nothing outside their folder changes."""

import gzip
import json
import os
import pickle
import re
import struct
import subprocess
import sys
import tracemalloc
import zipfile
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import h5py
import numpy as np
import pytest
import tensorflow as tf
from fuzz_seeds import EXPORT, MODULES, POOLING, VOCAB
from fuzz_targets import TARGETS
from tensorflow.core.framework.tensor_slice_pb2 import TensorSliceProto
from tiny_checkpoints import (
    HUGGINGFACE_CONFIG,
    arrays_of,
    huggingface_tensors,
    write_huggingface,
    write_json,
    write_tf1,
)
from tiny_indexes import entry_of, snappy, write_index, write_strings

from bert_tf.checkpoint_task import known_task
from bert_tf.config import BertConfig
from bert_tf.data.files import new_folder
from bert_tf.data.lines import read_lines, read_text
from bert_tf.data.question_answering import read_squad
from bert_tf.data.record_checks import count_records, feature_sizes
from bert_tf.data.tables import read_csv, read_table, read_tsv
from bert_tf.data.token_classification import read_conll
from bert_tf.interop.checkpoint import Bundle, read_json
from bert_tf.interop.read import read_checkpoint
from bert_tf.interop.sentence_transformers import embedding_settings
from bert_tf.interop.tensor_files import open_tensors
from bert_tf.interop.tf1 import read_tf1
from bert_tf.interop.tf2_graph import ObjectGraph
from bert_tf.interop.torch_pickle import check_tensors
from bert_tf.limits import MAX_LINE, MAX_TOKENS, MAX_WHOLE_FILE, MEBIBYTE
from bert_tf.model_files import read_task
from bert_tf.model_folder import load_model
from bert_tf.prediction.exports import find_exports
from bert_tf.pretraining.groups import plan_groups
from bert_tf.pretraining.make_group import GroupJob
from bert_tf.pretraining.manifest import Counts, DoneGroup, Manifest, Shard
from bert_tf.pretraining.runners import replace_records, start_or_resume
from bert_tf.training.checkpoints import latest_checkpoint
from bert_tf.vocabulary import load_vocab

TENSORS = huggingface_tensors(arrays_of("classifier"))


def rejected(read, path, message, most=None):
    """`read(path)` raises a ValueError with the path and a message, in at most so many megabytes."""
    if most is not None:
        tracemalloc.start()
    try:
        with pytest.raises(ValueError, match=message) as caught:
            list(read(str(path)))
        assert most is None or tracemalloc.get_traced_memory()[1] < most * MEBIBYTE
    finally:
        tracemalloc.stop()
    assert str(path) in str(caught.value)


def sparse(path, size, start=b""):
    """A file of zeros that takes no space on the disk."""
    path.write_bytes(start)
    os.truncate(path, size)
    return path


def corpus(path):
    return plan_groups([path], 10_000)


def run_python(script, *arguments):
    """Run a script in a process of its own."""
    return subprocess.run(
        [sys.executable, "-c", script, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=300,
    )


# ------------------------------------------------------------------------------------- compression


@pytest.mark.parametrize(
    ("read", "unit"),
    [
        (read_lines, b"a"),
        (read_lines, b"a\n"),
        (read_csv, b'"a",b\n'),
        (read_conll, b"a O\n"),
        (read_squad, b"["),
        (corpus, b"a\n"),
    ],
)
def test_a_gzip_bomb_is_rejected_before_it_is_unpacked(tmp_path, monkeypatch, read, unit):
    monkeypatch.setattr("bert_tf.data.streams.GZIP_ALLOWANCE", MEBIBYTE // 4)
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(unit * (32 * MEBIBYTE // len(unit)), mtime=0))
    memory = 8 if len(unit) == 1 else None  # rows are kept
    rejected(read, path, r"compressed more than 200 times, .* unpack it with gunzip", memory)


def test_a_bomb_on_standard_input_is_rejected_too(monkeypatch, tmp_path):
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(bytes(16 * MEBIBYTE), mtime=0))
    with open(path) as stream:
        monkeypatch.setattr("sys.stdin", stream)
        with pytest.raises(ValueError, match="standard input is compressed more than 200 times"):
            list(read_lines("-"))


def test_what_compresses_like_text_is_read_whole(tmp_path):
    words = np.random.default_rng(1).integers(0, 1000, 2 * MEBIBYTE // 8 * 8)
    lines = [" ".join(map(str, line)) for line in words.reshape(-1, 8)]
    (tmp_path / "a.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    assert list(read_lines(tmp_path / "a.gz")) == lines
    assert len(plan_groups([str(tmp_path / "a.gz")], 1 << 30)) == 1


# ---------------------------------------------------------------------------------- lines and rows


@pytest.mark.parametrize("start", [b"", b"\xff\xfe"])
def test_a_line_without_end_is_rejected(tmp_path, start):
    path = sparse(tmp_path / "a.txt", 8 * MAX_LINE, start)
    rejected(read_lines, path, r"a.txt:1: a line has more than 67,108,864 bytes", most=400)


FILLED = """
import sys
from bert_tf import limits
from bert_tf.tasks.tables import TableLayout, read_examples

read = lambda: read_examples(sys.argv[1], TableLayout("text", label="label"), labelled=True)
most = limits._used_bytes() + 100 * limits.MEBIBYTE
limits.MAX_LINE = 1 << 16
limits.host_bytes = lambda: most / limits.MAX_MEMORY
print(sum(1 for _ in read()))
list(read())
"""


def test_tables_that_fill_the_memory_are_rejected_and_streams_are_not(tmp_path):
    path = tmp_path / "train.tsv"
    path.write_text("text\tlabel\n" + "a text of some words\tyes\n" * 400_000)
    done = run_python(FILLED, path)  # which has no memory of earlier tests to use again
    assert done.stdout == "400000\n"
    rule = r"train.tsv:\d+: with what was read so far, the process has [\d.]+ of the machine's "
    assert re.search(f"ValueError: .*{rule}", done.stderr), done.stderr[-2000:]


def test_a_row_of_very_many_columns_is_rejected(tmp_path):
    for name, content, read in (
        ("a.tsv", b"aa\t" * 2_000_000, read_tsv),
        ("a.csv", b'"\n' + b'","\n' * 2_000_000, read_csv),
        ("a.conll", b"aa " * 2_000_000, read_conll),
    ):
        (tmp_path / name).write_bytes(content)
        rejected(read, tmp_path / name, r":1: found [12],0\d\d,... columns, but at most 1,000,000")


def test_a_header_of_many_columns_takes_no_quadratic_time(tmp_path):
    (tmp_path / "a.csv").write_text(",".join(map(str, range(200_000))) + "\n")
    assert list(read_table(tmp_path / "a.csv")) == []


def test_messages_about_a_header_of_many_columns_are_short(tmp_path):
    names = ["x" * 1000, *(f"column {number}" for number in range(200_000))]
    (tmp_path / "a.csv").write_text(",".join(names) + "\n" + "," * 200_000 + "\n1,2\n")
    rows = read_table(tmp_path / "a.csv")
    for read in (lambda: next(rows)["colum 5"], lambda: list(rows)):
        with pytest.raises(ValueError, match=r"column 18, \.\.\. \(200,001 in all\)") as caught:
            read()
        assert len(str(caught.value)) < 600 and "column 19" not in str(caught.value)


def test_an_open_quotation_mark_does_not_swallow_a_large_file(tmp_path, monkeypatch):
    monkeypatch.setattr("bert_tf.data.tables.MAX_LINE", 1000)
    (tmp_path / "a.csv").write_text('a,b\n"open,' + "line\n" * 1000)
    rejected(read_csv, tmp_path / "a.csv", r"a.csv:2: a row has more than 1,000 characters")


# -------------------------------------------------------------------------------------- JSON files


@pytest.mark.parametrize("read", [read_json, BertConfig.from_json_file, load_vocab, read_text])
def test_a_large_file_is_rejected_where_files_are_read_whole(tmp_path, read):
    path = sparse(tmp_path / "config.json", 8 * MAX_WHOLE_FILE)
    rejected(read, path, "has more than 67,108,864 bytes", most=300)


@pytest.mark.parametrize("text", ["[" * 1_000_000, '{"a":' * 1_000_000])
@pytest.mark.parametrize("read", [read_json, BertConfig.from_json_file, read_squad])
def test_a_million_nested_lists_are_rejected(tmp_path, read, text):
    (tmp_path / "a.json").write_text(text)
    rejected(read, tmp_path / "a.json", "nested too deeply")


def test_very_many_lists_are_rejected(tmp_path):
    (tmp_path / "a.json").write_text('{"a": [' + "[]," * 2_000_000 + "[]]}")
    rejected(
        read_json, tmp_path / "a.json", "found 2,000,003 lists or objects, but at most 1,000,000"
    )


@pytest.mark.parametrize("read", [read_json, read_squad])
def test_a_list_of_very_many_numbers_is_rejected(tmp_path, read):
    (tmp_path / "a.json").write_bytes(b"[" + b"0," * 20_000_001 + b"0]")
    rejected(read, tmp_path / "a.json", "found 20,000,001 commas, but at most 20,000,000", most=400)


def test_a_large_file_of_questions_is_rejected(tmp_path):
    path = sparse(tmp_path / "a.json", 2 << 30)
    rejected(read_squad, path, "has more than 1,073,741,824 bytes", most=2200)


@pytest.mark.parametrize("name", ["a.jsonl", "a.json"])
def test_a_number_of_very_many_digits_is_invalid_json(tmp_path, name):
    (tmp_path / name).write_text('{"a": ' + "9" * 10_000 + "}\n")
    read = read_table if name == "a.jsonl" else read_json
    rejected(read, tmp_path / name, r"JSON.*digits")


def test_an_unknown_key_of_a_million_letters_is_shortened(tmp_path):
    (tmp_path / "a.json").write_text('{"vocab_size": 1, "' + "v" * 1_000_000 + '": 1}')
    with pytest.raises(ValueError, match="Unknown key") as caught:
        BertConfig.from_json_file(tmp_path / "a.json")
    assert len(str(caught.value)) < 1000


# ------------------------------------------------------------------------------------ vocabularies


def test_a_vocabulary_of_very_many_lines_is_rejected(tmp_path):
    (tmp_path / "vocab.txt").write_bytes(b"a\n" * (MAX_TOKENS + 1))
    rejected(load_vocab, tmp_path / "vocab.txt", "has 4,000,001 lines, but .* at most 4,000,000")


def test_a_vocabulary_of_half_a_million_lines_is_read(tmp_path):
    (tmp_path / "vocab.txt").write_text("".join(f"w{number}\n" for number in range(500_000)))
    assert len(load_vocab(tmp_path / "vocab.txt")) == 500_000


@pytest.mark.parametrize(
    ("vocab", "message"),
    [
        ({"a": 0}, r"tokenizer.json: the vocabulary of 1 tokens has no \[UNK\]"),
        ({"[UNK]": "0"}, r"tokenizer.json: `\[UNK\]` is '0', but must be a whole number"),
        (["[UNK]"], r"tokenizer.json: `vocab` is .* but must be a JSON object"),
    ],
)
def test_a_vocabulary_of_another_type_is_named(tmp_path, vocab, message):
    folder = write_huggingface(tmp_path, TENSORS)
    write_json(tmp_path / "tokenizer.json", {"model": {"type": "WordPiece", "vocab": vocab}})
    with pytest.raises(ValueError, match=message):
        read_checkpoint(folder)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "tokenizer.json",
            {"model": {"type": "WordPiece", "vocab": {"[UNK]": 0, "a\ud800": 1}}},
            r"the token 'a\\ud800' contains half of a surrogate pair",
        ),
        (
            "config.json",
            {**HUGGINGFACE_CONFIG, "architectures": ["BertForSequenceClassification"]}
            | {"id2label": {str(number): f"label {number} \udfff" for number in range(5)}},
            r"the label 'label 0 \\udfff' contains half",
        ),
    ],
)
def test_half_of_a_surrogate_pair_is_rejected(tmp_path, name, content, message):
    write_huggingface(tmp_path, TENSORS)
    write_json(tmp_path / name, content)
    with pytest.raises(ValueError, match=f"{tmp_path}/{name}: {message}"):
        read_checkpoint(str(tmp_path))


# ----------------------------------------------------------------------------------------- weights


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("../../outside/model.ckpt-7", "checkpoint names 'model.ckpt-7' as the newest checkpoint"),
        ("{outside}/model.ckpt-7", "checkpoint names 'model.ckpt-7' as the newest checkpoint"),
        ("../..", "checkpoint names '..' as the newest checkpoint"),
        ("../../outside/\nmodel.ckpt-7", "checkpoint has no line `model_checkpoint_path"),
        ("model.ckpt-3\n../../outside/model.ckpt-7", "checkpoint has no line `model_checkpoint"),
    ],
)
def test_a_path_out_of_the_folder_of_a_model_is_not_followed(tmp_path, name, message):
    folder, outside = tmp_path / "runs" / "model", tmp_path / "outside"
    for each, step in ((folder, 3), (outside, 7)):
        each.mkdir(parents=True)
        write_tf1(each, arrays_of("classifier"), name=f"model.ckpt-{step}")
    path = name.format(outside=outside)
    (folder / "checkpoint").write_text(f'model_checkpoint_path: "{path}"\n')
    for read in (read_tf1, read_checkpoint):
        with pytest.raises((FileNotFoundError, ValueError), match=f"{folder}/{message}"):
            read(str(folder))
    assert latest_checkpoint(str(folder)) is None


def test_a_header_of_ten_gigabytes_is_rejected(tmp_path):
    start = (10 << 30).to_bytes(8, "little")
    path = sparse(tmp_path / "model.safetensors", (10 << 30) + 8, start)
    rejected(open_tensors, path, "header would have 10,737,418,240 bytes", most=1)


def test_a_tensor_without_values_is_rejected(tmp_path):
    """Its size would be the number of labels."""
    header = json.dumps({"x": {"dtype": "F32", "shape": [10**12, 0], "data_offsets": [0, 0]}})
    path = tmp_path / "model.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header.encode())
    rejected(open_tensors, path, r"x has the shape \[1000000000000, 0\], so it has no values", 1)


def test_weights_of_pytorch_that_are_larger_than_their_file_are_rejected(tmp_path):
    torch = pytest.importorskip("torch")
    path = tmp_path / "pytorch_model.bin"
    torch.save({"x": torch.zeros(1, 1).expand(10**9, 8)}, path)
    rejected(open_tensors, path, r"x has the shape .* but values for only 4 bytes", most=10)
    torch.save([torch.zeros(1)], path)
    rejected(open_tensors, path, "contains list, but must contain tensors by name", most=10)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", bytes(8 * MEBIBYTE))
    rejected(open_tensors, path, "'archive/data.pkl' is compressed, 8,388,608 bytes", most=10)


def write_safetensors_header(path, header, values):
    header = json.dumps(header).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + values)
    return path


@pytest.mark.parametrize("dtype", ["F8_E4M3", "F8_E5M2"])
def test_a_type_that_numpy_lacks_is_rejected_by_name(tmp_path, dtype):
    header = {"x": {"dtype": dtype, "shape": [2], "data_offsets": [0, 2]}}
    path = write_safetensors_header(tmp_path / "model.safetensors", header, bytes(2))
    read = lambda path: open_tensors(path)["x"]  # noqa: E731
    rejected(read, path, f"x has the type {dtype}, which NumPy lacks. .* in float32")


def test_the_header_of_bfloat16_tensors_is_parsed_once(tmp_path, monkeypatch):
    names = [str(number) for number in range(9)]
    values = np.arange(18, dtype=np.float32)
    header = {
        name: {"dtype": "BF16", "shape": [1, 2], "data_offsets": [4 * place, 4 * place + 4]}
        for place, name in enumerate(names)
    }
    content = (values.view(np.uint32) >> 16).astype("<u2").tobytes()
    metadata = {"__metadata__": {"format": "pt"}}
    path = write_safetensors_header(tmp_path / "model.safetensors", metadata | header, content)
    tensors = open_tensors(str(path))
    monkeypatch.setattr("json.loads", None)
    for number, name in enumerate(names):
        assert tensors[name].tolist() == [[2 * number, 2 * number + 1]]


def resident_size():
    """Bytes; what TensorFlow and PyTorch take is not traced."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


class Calls:
    """Calls a function with arguments when it is unpickled."""

    def __init__(self, *call):
        self.call = call

    def __reduce__(self):
        return self.call[0], self.call[1:]


@pytest.mark.parametrize("zipped", [True, False])
def test_a_pickle_of_pytorch_that_names_more_than_tensors_is_rejected(tmp_path, zipped):
    torch = pytest.importorskip("torch")
    path = tmp_path / "pytorch_model.bin"
    for call, name in (
        ((bytearray, 400 * MEBIBYTE), "builtin"),
        ((torch.Tensor, 10**8), "torch._tensor Tensor|torch Tensor"),
        ((os.getcwd,), "posix getcwd"),
        ((torch.save,), "torch.serialization save"),
    ):
        torch.save({"x": Calls(*call)}, path, _use_new_zipfile_serialization=zipped)
        before = resident_size()
        rejected(open_tensors, path, f"is rejected: it names .*({name})", most=10)
        assert resident_size() - before < 100 * MEBIBYTE
    path.write_bytes(b"PK\3\4" + path.read_bytes())
    rejected(open_tensors, path, "cannot be read as PyTorch weights")


def test_pickles_of_pytorch_that_make_no_sense_are_rejected(tmp_path):
    pytest.importorskip("torch")
    path = tmp_path / "pytorch_model.bin"
    header = b"".join(pickle.dumps(each, 2) for each in (0x1950A86A20F9469CFC6C, 1001, {}))
    for content in (b"h\x07.", b"(l.", b"K\x01Q.", b"K\x01K\x02R.", b"K\x01}b.", b"0.", b"\x85."):
        path.write_bytes(header + b"\x80\x02" + content + pickle.dumps([], 2))
        rejected(open_tensors, path, "is rejected|cannot be read as PyTorch weights")


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_tensors_of_pytorch_without_plain_values_are_rejected(tmp_path):
    torch = pytest.importorskip("torch")
    path = tmp_path / "pytorch_model.bin"
    for value in (
        torch.zeros(3, device="meta"),
        torch.eye(3).to_sparse(),
        torch.eye(3).to_sparse_csr(),
        torch.quantize_per_tensor(torch.zeros(3), 1.0, 0, torch.qint8),
    ):
        torch.save({"x": value}, path)
        rejected(open_tensors, path, "is rejected: it names 'torch._utils _rebuild_")
        with pytest.raises(ValueError, match=f"{path}: x has the layout .* only plain tensors"):
            check_tensors(str(path), {"x": value}, torch)


def test_tensors_of_pytorch_that_share_their_values_many_times_are_rejected(tmp_path):
    torch = pytest.importorskip("torch")
    path, values = tmp_path / "pytorch_model.bin", torch.ones(1000, 100)
    torch.save({str(number): values for number in range(3)}, path)
    assert [array.sum() for array in open_tensors(str(path)).values()] == [100_000] * 3
    torch.save({str(number): values for number in range(40)}, path)
    rejected(
        open_tensors, path, "its 40 tensors state 16,000,000 bytes, but the file has 4..,...", 10
    )


@pytest.mark.parametrize("zipped", [True, False])
def test_tensors_of_pytorch_of_all_types_are_read(tmp_path, zipped):
    torch = pytest.importorskip("torch")
    path, number = tmp_path / "pytorch_model.bin", torch.tensor([0, 1])
    names = ["float16", "bfloat16", "float32", "float64", "int8", "uint8", "int32", "int64", "bool"]
    names += ["uint16", "float8_e4m3fn"] if zipped else []  # PyTorch reads neither from old files
    tensors = {name: number.to(getattr(torch, name)) for name in names}
    tensors["parameter"] = torch.nn.Parameter(number.float())
    torch.save(tensors, path, _use_new_zipfile_serialization=zipped)
    read = open_tensors(str(path))
    assert {name: read[name].tolist() for name in read} == {name: [0, 1] for name in tensors}


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"num_hidden_layers": 10**9}, r"1000000000 \+ 0 layers"),
        ({"vocab_size": 10**12}, r"but at most 1,000 and 20,000,000,000 are allowed"),
        ({"vocab_size": 2 * 10**7, "hidden_size": 768}, "describes 2 layers and 15,3.* parameters"),
        ({"num_hidden_layers": 900}, "describes 900 layers .* the weights are 41 tensors"),
    ],
)
def test_a_configuration_of_a_far_larger_model_than_the_weights_is_rejected(
    tmp_path, sizes, message
):
    folder = write_huggingface(tmp_path, TENSORS, **sizes)
    rejected(load_model, folder, message, most=10)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"architectures": True}, "`architectures` is 'True', but must be a list"),
        ({"hidden_act": ["gelu"]}, "`hidden_act` is"),
        ({"pruned_heads": [1]}, "`pruned_heads` is .* must be a JSON object"),
        ({"id2label": [1]}, "`id2label` is .* must be a JSON object"),
    ],
)
def test_a_value_of_another_type_in_config_json_is_named(tmp_path, values, message):
    rejected(read_checkpoint, write_huggingface(tmp_path, TENSORS, **values), message)


def test_labels_of_equal_names_are_rejected(tmp_path):
    values = {"architectures": ["BertForSequenceClassification"]}
    values["id2label"] = {str(number): f"label {number % 4}" for number in range(5)}
    checkpoint = read_checkpoint(write_huggingface(tmp_path, TENSORS, **values))
    with pytest.raises(ValueError, match=r"model.safetensors: `labels` are .* all different"):
        known_task(checkpoint)


def test_an_object_graph_whose_edges_lead_nowhere_is_rejected():
    for graph in (b"", b"\n\x04\n\x02\x08\x07", b"?"):
        with pytest.raises(ValueError, match="x: the object graph is damaged"):
            ObjectGraph(graph, "x")


def test_an_object_graph_that_names_absent_values_is_rejected(tmp_path):
    target = TARGETS["tf2 graph"]
    path = target.prepare(tmp_path)
    path.write_bytes(
        target.seeds[0].replace(b"_query_dense/bias/.ATTR", b"_query_dense/bias/?ATTR")
    )
    rejected(target.read, path, "the object graph names .* has no values for it")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"task": "multiple_choice", "num_choices": 4, "max_seq_length": 10**9}, "is 10{9}, but m"),
        ({"task": "token_classification", "labels": ["O", "X"], "max_seq_length": 9}
         | {"bilstm_units": 60_000}, "`bilstm_units` is 60000, but must be from 1 to 4,096"),
        ({"task": "classification", "labels": ["a", "b\ud800"], "max_seq_length": 9},
         "task.json: the label .* half of a surrogate pair"),
        ({"task": "classification", "labels": ["a", "b"], "max_seq_length": float("nan")}, "is nan,"),
    ],
)  # fmt: skip
def test_large_numbers_in_a_task_are_rejected(tmp_path, values, message):
    write_json(tmp_path / "task.json", values)
    rejected(read_task, tmp_path, message)


def test_a_task_that_is_longer_than_its_model_is_rejected(tmp_path):
    write_huggingface(tmp_path, TENSORS)
    (tmp_path / "vocab.txt").write_bytes(VOCAB)
    task = {"task": "classification", "labels": list("abcde"), "max_seq_length": 60_000}
    write_json(tmp_path / "task.json", task)
    rejected(load_model, tmp_path, "task.json: max_seq_length is 60000, but must be from 1 to 9")


# ------------------------------------------------------------------------- checkpoints of TensorFlow


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (b"\x0f" + entry_of()[1:], "Error parsing message"),
        (entry_of(shape=[-2]), r"'x' has the invalid shape \[-2\]"),
        (
            entry_of(shape=[2**40, 2**40, 0], size=0),
            "'x' has the shape .* which no memory can hold",
        ),
        (entry_of(shape=[1] * 300, size=4), "'x' has the invalid shape"),
        (entry_of(size=-8), "'x' has the offset 0 and -8 bytes"),
        (entry_of(offset=-8), "'x' has the offset -8 and 8 bytes"),
        (entry_of(size=12), r"'x' has the shape \[2\] of float32, but 12 bytes"),
        (entry_of(dtype=77), "'x' has the unknown type 77"),
        (entry_of(dtype=101), "'x' has the unknown type 101"),
        (entry_of(shard_id=1), "'x' is in the file 1, but there are 1"),
        (
            entry_of(slices=[TensorSliceProto(extent=[{"start": 1, "length": 2}])]),
            "has parts outside",
        ),
    ],
)
def test_an_index_that_ends_tensorflow_or_contradicts_itself_is_rejected(tmp_path, entry, message):
    prefix = write_index(tmp_path / "bert_model.ckpt", {b"x": entry})
    rejected(read_tf1, prefix, rf"bert_model.ckpt.index cannot be read .*{message}", most=10)
    rejected(read_checkpoint, prefix, message)  # asks first for the type of checkpoint


def test_a_name_in_an_index_that_is_not_utf8_is_rejected(tmp_path):
    prefix = write_index(tmp_path / "bert_model.ckpt", {b"\xff": entry_of()})
    rejected(read_tf1, prefix, "cannot be read as a TensorFlow checkpoint .* 0xff in position 0")


def test_strings_longer_than_their_file_are_rejected(tmp_path):
    size = (1 << 30) + 5 + 4  # as the lengths state
    path = tmp_path / "bert_model.ckpt"
    write_strings(path, b"global_step", [], [1 << 30], b"abc", size=size)
    rejected(read_tf1, path, "would have 1,073,741,824 bytes, .* and the file 12", most=10)


@pytest.mark.parametrize(
    ("dtype", "part", "message"),
    [
        (3, b"\0x\0\1?", "a part of another type, or of no variable"),
        (1, b"\0y\0\1?", "a part of another type, or of no variable"),
        (1, b"\0x", "the name .* is invalid"),
        (7, b"\0x\0\1?", "a part of a variable that is not of numbers"),
    ],
)
def test_parts_that_do_not_fit_their_variable_are_rejected(tmp_path, dtype, part, message):
    """Two types end the process in TensorFlow."""
    whole = TensorSliceProto(extent=[{"start": 0, "length": 2}])
    entries = {b"x": entry_of(7 if dtype == 7 else 1, slices=[whole]), part: entry_of(dtype)}
    rejected(read_tf1, write_index(tmp_path / "bert_model.ckpt", entries), message)


def test_strings_after_the_end_of_their_file_are_rejected(tmp_path):
    prefix = write_strings(tmp_path / "bert_model.ckpt", b"global_step", [], [3], b"abc", offset=99)
    rejected(read_tf1, prefix, "the lengths of the strings of 'global_step' cannot be read")
    Path(f"{prefix}.data-00000-of-00001").unlink()
    rejected(lambda path: Bundle(path).read("global_step"), prefix, "the lengths of the strings")


def test_an_index_without_header_or_with_many_names_is_rejected(tmp_path, monkeypatch):
    prefix = write_index(tmp_path / "bert_model.ckpt", {}, header=b"")
    rejected(read_tf1, prefix, "it states 0 files of values")
    monkeypatch.setattr("bert_tf.interop.bundle_index.MAX_WHOLE_FILE", 1000)
    prefix = write_index(tmp_path / "bert_model.ckpt", {b"x" * 1000: entry_of()})
    rejected(read_tf1, prefix, "it has more than 1,000 bytes, a limit of")
    prefix = write_index(tmp_path / "bert_model.ckpt", {b"x" * 1000: entry_of()}, compress=snappy)
    rejected(read_tf1, prefix, "it has more than 1,000 bytes, a limit of")


def test_every_changed_byte_of_an_index_is_survived(tmp_path):
    """TensorFlow's checksum does not help: it is made again."""
    prefix = str(tmp_path / "bert_model.ckpt")
    entry = entry_of(slices=[TensorSliceProto(extent=[{"start": 0, "length": 2}])])
    for place in range(len(entry)):
        for value in (0, 15, 255):
            changed = entry[:place] + bytes([value]) + entry[place + 1 :]
            write_index(prefix, {b"x": changed, b"y": entry_of(size=0, shape=[0])})
            with suppress(ValueError):
                read_tf1(prefix)


@pytest.mark.parametrize("compress", [None, snappy])
def test_valid_indexes_are_read(tmp_path, compress):
    """A plain one; one in Snappy, which TensorFlow reads but does not write."""
    entries = {b"x" * 90: entry_of(), b"y": entry_of(shape=[], size=4, offset=8)}
    prefix = write_index(tmp_path / "bert_model.ckpt", entries, compress=compress)
    values = np.arange(3, dtype=np.float32)
    Path(f"{prefix}.data-00000-of-00001").write_bytes(values.tobytes())
    assert read_tf1(prefix).arrays.shape("x" * 90) == (2,)


@pytest.mark.parametrize("name", [b"global_step", b"_CHECKPOINTABLE_OBJECT_GRAPH", b"x"])
@pytest.mark.parametrize(
    ("shape", "lengths", "message"),
    [
        (
            [],
            [3 << 30],
            r"would have 3,221,225,472 bytes, but their part has 12 for them",
        ),
        ([2], [1 << 63, 1 << 63], r"would have 18,446,744,073,709,551,616 bytes"),
        (
            [1 << 40],
            [3],
            "has 1,099,511,627,776 values of the type string, but .* at most 4,000,000",
        ),
        ([4_000_000], [3], r"the lengths of the strings .* cannot be read"),
        ([], [2], "would have 2 bytes, but their part has 8"),
    ],
)
def test_strings_of_gigabytes_are_rejected(tmp_path, name, shape, lengths, message):
    prefix = write_strings(tmp_path / "bert_model.ckpt", name, shape, lengths, b"abc")
    bundle = Bundle(str(prefix)) if name == b"x" else None
    read = read_checkpoint if bundle is None else lambda _: bundle.read("x")
    rejected(read, f"{prefix}", rf"bert_model.ckpt.data-00000-of-00001: .*{message}", most=40)


def test_an_object_graph_that_is_a_number_is_rejected(tmp_path):
    prefix = write_tf1(tmp_path, {"_CHECKPOINTABLE_OBJECT_GRAPH": np.int64(1 << 40)})
    rejected(read_checkpoint, prefix, "must be a string, but has the type int64", most=10)


def test_values_that_are_no_numbers_are_rejected(tmp_path):
    prefix = write_index(tmp_path / "bert_model.ckpt", {b"global_step": entry_of(21, [], size=0)})
    rejected(read_tf1, prefix, "'global_step' has 1 values of the type variant, but only numbers")


def test_strings_are_read(tmp_path):
    prefix = str(tmp_path / "bert_model.ckpt")
    strings = [[b"", b"a" * 300], [b"b", b"c" * 70_000]]
    write_tf1(tmp_path, {"x": np.array(strings, object), "y": np.array(b"d" * 99, object)})
    assert Bundle(prefix).read("x").tolist() == strings
    assert bytes(Bundle(prefix).read("y")) == b"d" * 99


def test_parts_of_a_variable_are_read_as_one(tmp_path):
    prefix, values = (
        str(tmp_path / "bert_model.ckpt"),
        np.arange(12, dtype=np.float32).reshape(4, 3),
    )
    parts = ["4 3 0,1:0,3", "4 3 1,3:0,3"]
    tf.raw_ops.SaveV2(
        prefix=prefix,
        tensor_names=["x", "x"],
        shape_and_slices=parts,
        tensors=[values[:1], values[1:]],
    )
    np.testing.assert_array_equal(read_tf1(prefix).arrays["x"], values)


# ----------------------------------------------------------------------------------------- records


def test_a_record_of_two_gigabytes_is_rejected(tmp_path):
    header = struct.pack("<Q", 2**31) + bytes(4)
    (tmp_path / "a").write_bytes(header)
    (tmp_path / "b.gz").write_bytes(gzip.compress(header + bytes(9)))
    for name in ("a", "b.gz"):
        path = str(tmp_path / name)
        for read in (count_records, lambda files: feature_sizes(files[0])):
            with pytest.raises(
                ValueError,
                match=r"record 1, at byte 0 of the records, would have 2,147,483,648 bytes",
            ) as caught:
                read([path])
            assert path in str(caught.value)


# ------------------------------------------------------------------------------------ names of files


@pytest.mark.parametrize("part", ["../1_Pooling", "/etc", "a\\..\\b"])
def test_modules_outside_of_their_folder_are_rejected(tmp_path, part):
    write_json(tmp_path / "1_Pooling" / "config.json", POOLING)
    modules = [MODULES[0], {**MODULES[1], "path": part}]
    write_json(tmp_path / "model" / "modules.json", modules)
    rejected(embedding_settings, tmp_path / "model", "names the folder .* in its own folder")


@pytest.mark.parametrize("modules", [1, [1], [{"type": "x.Transformer"}], {"a": 1}])
def test_a_list_of_modules_of_another_type_is_rejected(tmp_path, modules):
    write_json(tmp_path / "modules.json", modules)
    rejected(embedding_settings, tmp_path, "modules.json is damaged: it must be a list of objects")


def test_overwriting_removes_no_file_that_only_a_strangers_manifest_names(tmp_path):
    folder = tmp_path / "out"
    folder.mkdir()
    old = ("x.tf_record-00000-of-00002", "x.tf_record-00001-of-00002")
    kept = ("../victim", "notes.txt", "x.tf_record.gz", "y.tf_record")
    for name in (*old, *kept):
        (folder / name).write_text("precious")
    shards = [Shard(name, 1, 8) for name in (*old, *kept, str(tmp_path / "victim"))]
    values = {"flags": {"max_seq_length": 9}, "input": [], "vocabulary": {"sha256": "", "size": 1}}
    path = str(folder / "x.tf_record.manifest.json")
    manifest = Manifest(**values, num_groups=1, groups={0: DoneGroup(0, 1, [], shards, Counts())})
    manifest.write(path)
    job = GroupJob(0, 1, (), (str(folder / "x.tf_record"),), path, 0)
    _, jobs = start_or_resume(manifest, [job], overwrite=True)
    Path(jobs[0].output_files[0]).parent.mkdir()
    Path(jobs[0].output_files[0]).write_text("new")
    group = DoneGroup(0, 1, [], [Shard("x.tf_record", 1, 3)], Counts())
    replace_records([job], jobs, Manifest(**values, num_groups=1, groups={0: group}))
    assert (folder / "x.tf_record").read_text() == "new"
    assert [name for name in (*old, *kept) if (folder / name).exists()] == list(kept)


def test_a_new_folder_removes_no_file_behind_a_strangers_links(tmp_path):
    home, left = tmp_path / "home", tmp_path / "exported.tmp"
    (home / "folder").mkdir(parents=True)
    (home / "file").write_text("precious")
    (left / "folder").mkdir(parents=True)
    for link in (left / "link", left / "folder" / "link"):
        link.symlink_to(home)
    (left / "to a file").symlink_to(home / "file")
    (left / "to nothing").symlink_to(home / "absent")
    with new_folder(str(tmp_path / "exported"), "export_dir") as folder:
        assert not os.listdir(folder)
        Path(folder, "link").symlink_to(home)
    with pytest.raises(KeyError), new_folder(str(tmp_path / "other"), "export_dir") as folder:
        Path(folder, "link").symlink_to(home)
        raise KeyError("a bug of the caller")
    left.symlink_to(home)
    (tmp_path / "exported" / "link").unlink()
    message = (
        "exported.tmp is a link to .*home', but export_dir=.*exported needs a folder of its own"
    )
    with (
        pytest.raises(ValueError, match=message),
        new_folder(str(tmp_path / "exported"), "export_dir"),
    ):
        raise AssertionError("not reached")
    assert (home / "file").read_text() == "precious"
    assert sorted(os.listdir(home)) == ["file", "folder"]


def test_a_class_of_another_library_is_no_export(tmp_path):
    write_huggingface(tmp_path, TENSORS, architectures=["AutoModelForCausalLM"])
    rejected(find_exports, tmp_path, "names 'AutoModelForCausalLM', but must name a class of BERT")


@pytest.mark.parametrize("key", ["kind", "config", "labels", "max_seq_length"])
def test_a_value_of_another_type_in_an_export_is_named(tmp_path, key):
    write_json(tmp_path / "export.json", {**EXPORT, key: ["?"] if key != "labels" else "?"})
    (tmp_path / "vocab.txt").write_bytes(VOCAB)
    Path(tmp_path, "model.tflite").touch()
    rejected(find_exports, tmp_path, "export.json")


# ----------------------------------------------------------------------------------- memory of C code

# Reads files of a folder, and prints by how many MiB the peak has grown since the first one.
PEAK = """
import sys
from pathlib import Path
from bert_tf.config import BertConfig
from bert_tf.data.lines import read_lines
from bert_tf.interop.checkpoint import Bundle
from bert_tf.interop.tensor_files import open_tensors
from bert_tf.vocabulary import load_vocab

def peak():  # getrusage counts that of the parent, too
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) // 1024 for line in lines if line.startswith("VmHWM"))

READERS = {
    "bomb.gz": lambda path: list(read_lines(path)),
    "nested.json": BertConfig.from_json_file,
    "vocab.txt": load_vocab,
    "model.safetensors": open_tensors,
    "tf_model.h5": open_tensors,
    "pytorch_model.bin": open_tensors,
    "strings.ckpt": lambda path: Bundle(path).read("x"),
}
folder, *names = sys.argv[1:]
if "pytorch_model.bin" in names:
    import torch
before = peak()
for name in names:
    path = f"{folder}/{name}"
    try:
        READERS[name](path)
    except ValueError as error:
        assert path in str(error), error
        print(name, peak() - before)
"""


def write_worst_files(folder):
    """Write files that would fill the memory, and return their names."""
    with gzip.open(folder / "bomb.gz", "wb") as file:
        for _ in range(400):
            file.write(bytes(MEBIBYTE))
    (folder / "nested.json").write_text("[" * 1_000_000)
    sparse(folder / "vocab.txt", 200_000_000)
    sparse(folder / "model.safetensors", (10 << 30) + 8, (10 << 30).to_bytes(8, "little"))
    with h5py.File(folder / "tf_model.h5", "w") as file:
        file.attrs["layer_names"] = [b"bert"]
        file.create_group("bert").attrs["weight_names"] = [b"x:0"]
        file["bert"].create_dataset("x:0", (1 << 30,), "float64", chunks=(1 << 20,))
    write_strings(folder / "strings.ckpt", b"x", [], [3 << 30], b"abc")
    names = ["bomb.gz", "nested.json", "vocab.txt", "model.safetensors", "tf_model.h5"]
    if find_spec("torch"):
        pickled = {"x": Calls(bytearray, 4 << 30)}
        header = b"".join(pickle.dumps(each, 2) for each in (0x1950A86A20F9469CFC6C, 1001, {}))
        (folder / "pytorch_model.bin").write_bytes(header + pickle.dumps(pickled, 2))
        names.append("pytorch_model.bin")
    return [*names, "strings.ckpt"]


@pytest.mark.slow
def test_the_peak_of_the_process_hardly_grows_while_the_worst_files_are_rejected(tmp_path):
    names = write_worst_files(tmp_path)
    done = run_python(PEAK, tmp_path, *names)
    grown = dict(line.split() for line in done.stdout.splitlines())
    assert list(grown) == names, done.stderr[-2000:]
    assert max(map(int, grown.values())) < 200, grown  # of which 64 for a file that is read whole
