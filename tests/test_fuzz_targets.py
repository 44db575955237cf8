"""Any content of a file is read, or rejected with an error that names the file or its folder.

FUZZ_SCALE multiplies the number of cases; `make fuzz` sets it.
"""

import copy
import gzip
import io
import json
import os
import tempfile
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import h5py
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save
from tiny_checkpoints import HUGGINGFACE_CONFIG, arrays_of, huggingface_tensors, write_tf1

from bert_tf.checkpoints.read import read_checkpoint
from bert_tf.checkpoints.sentence_transformers import embedding_settings, read_projection
from bert_tf.checkpoints.tensor_files import open_tensors
from bert_tf.config import BertConfig
from bert_tf.data.features import FeatureSpec
from bert_tf.data.multiple_choice import read_questions
from bert_tf.data.question_answering import read_squad
from bert_tf.data.records import (
    RecordWriter,
    check_records,
    count_records,
    explain_read_errors,
    read_records,
)
from bert_tf.data.tables import read_table
from bert_tf.data.token_classification import read_conll
from bert_tf.files import count_lines, read_lines
from bert_tf.pretraining.groups import group_lines, plan_groups
from bert_tf.tasks.load import load_task
from bert_tf.tokenization import FullTokenizer

SCALE = int(os.environ.get("FUZZ_SCALE", "1"))

# ------------------------------------------------------------------------------------------ readers


class Target(NamedTuple):
    """How one type of file is read.

    Attributes:
        name: of the file, in a folder of its own.
        read: gets the path.
        seeds: contents that are read without an error.
        beside: other files of the folder, by name.
    """

    name: str
    read: Callable[[str], object]
    seeds: tuple[bytes, ...]
    beside: Mapping[str, bytes] = {}


def in_folder(reader):
    return lambda path: reader(os.path.dirname(path))


def read_corpus(path):
    list(read_lines(path))
    count_lines([path])
    for group in plan_groups([path], 8):
        list(group_lines(group))


def read_rows(path):
    return list(read_table(path))


def read_all_records(path):
    count_records([path])
    check_records([path], SPECS)
    with explain_read_errors([path]):
        for batch in read_records([path], SPECS, 2):
            assert batch["input_ids"].shape[1:] == (4,)


def read_weights(path):
    checkpoint = read_checkpoint(path)
    load_task(checkpoint)
    return [checkpoint.arrays[name] for name in checkpoint.arrays]


def read_tensors(path):
    tensors = open_tensors(path)
    return [tensors[name] for name in tensors]


def read_embeddings(folder):
    embedding_settings(folder)
    return dict(read_projection(folder))


# -------------------------------------------------------------------------------------------- seeds


def as_json(value) -> bytes:
    return json.dumps(value).encode()


def written(write) -> dict[str, bytes]:
    """The files that `write(folder)` makes, by name."""
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder))
        return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def write_records(folder):
    with RecordWriter(folder / "x", SPECS) as writer:
        for _ in range(3):
            writer.write({"input_ids": [1, 2, 3, 4], "weight": 0.5})


def write_h5(folder):
    """A layer with a kernel, as Keras 2 writes it."""
    with h5py.File(folder / "x", "w") as file:
        file.attrs["layer_names"] = np.array([b"bert"])
        file.create_group("bert").attrs["weight_names"] = np.array([b"bert/dense/kernel:0"])
        file["bert"]["bert/dense/kernel:0"] = np.ones((2, 3), np.float32)


def torch_weights() -> bytes:
    import torch

    file = io.BytesIO()
    torch.save({"a": torch.ones(2, 3)}, file)
    return file.getvalue()


SPECS = (FeatureSpec("input_ids", (4,)), FeatureSpec("weight", (), "float32"))
CORPUS = b"one\ntwo\n\nthree\n\nfour\n"
CONLL = b"EU NNP B-ORG\nrejects VBZ O\n\nPeter NNP B-PER\n"
VOCAB = b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nowl\n##s\n"
CHOICES = {"text_a": "What?", "choices": ["a", "b"], "label": 1}
ANSWER = {"text": "in the barn", "answer_start": 11}
QUESTION = {"id": "1", "question": "Where is the owl?", "answers": [ANSWER]}
CONTEXT = {"context": "The owl is in the barn. It sleeps.", "qas": [QUESTION]}
SQUAD = {"version": "1.1", "data": [{"title": "Owls", "paragraphs": [CONTEXT]}]}
CONFIG = {
    "vocab_size": 30522,
    "hidden_size": 768,
    "num_attention_heads": 12,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "pooler_type": "first_token_transform",
}
WORDPIECE = {"type": "WordPiece", "vocab": {t: i for i, t in enumerate(VOCAB.decode().split())}}
TOKENIZER = {
    "version": "1.0",
    "normalizer": {"type": "BertNormalizer", "lowercase": True},
    "model": WORDPIECE,
}
MODULES = [
    {"path": "", "type": "sentence_transformers.models.Transformer"},
    {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
]
POOLING = {"word_embedding_dimension": 8, "pooling_mode_mean_tokens": True}
TF1 = written(lambda folder: write_tf1(folder, arrays_of()))
VALUES = "bert_model.ckpt.data-00000-of-00001"
STATE = b'model_checkpoint_path: "bert_model.ckpt"\nall_model_checkpoint_paths: "bert_model.ckpt"\n'
RECORDS = written(write_records)["x"]
SAFETENSORS = save({"a": np.eye(2, dtype=np.float32), "b": np.arange(1)}, {"format": "pt"})
INDEX = {"weight_map": {"a": "one.safetensors", "b": "one.safetensors"}}
HUGGINGFACE = {
    "model.safetensors": save(huggingface_tensors(arrays_of("classifier"))),
    "vocab.txt": VOCAB,
}
LABELLED = {
    **HUGGINGFACE_CONFIG,
    "architectures": ["BertForSequenceClassification"],
    "id2label": {str(index): f"label {index}" for index in range(5)},
}
HF_CONFIGS = (as_json(HUGGINGFACE_CONFIG), as_json(LABELLED))
from_pretrained = in_folder(FullTokenizer.from_pretrained)
TARGETS = [
    Target("a.txt", read_corpus, (CORPUS, gzip.compress(b"one\n\ntwo\n", mtime=0))),
    Target("t.tsv", read_rows, (b"text\tlabel\nan owl\t1\n",)),
    Target("t.csv", read_rows, (b'text,label\n"an, ""owl""",1\n',)),
    Target("t.jsonl", read_rows, (b'{"text": "owl", "label": 1}\n',)),
    Target("a.conll", read_conll, (CONLL,)),
    Target("v.txt", FullTokenizer, (VOCAB,)),
    Target("c.csv", read_questions, (b"text_a,choice0,choice1,label\nWhat?,a,b,1\n",)),
    Target("choices.jsonl", read_questions, (as_json(CHOICES),)),
    Target("q.json", read_squad, (as_json(SQUAD),)),
    Target("bert_config.json", BertConfig.from_json_file, (as_json(CONFIG),)),
    Target("model.safetensors", read_tensors, (SAFETENSORS,)),
    Target(
        "model.safetensors.index.json",
        read_tensors,
        (as_json(INDEX),),
        {"one.safetensors": SAFETENSORS},
    ),
    Target("config.json", in_folder(read_weights), HF_CONFIGS, HUGGINGFACE),
    Target("tokenizer.json", from_pretrained, (as_json(TOKENIZER),)),
    Target("tokenizer_config.json", from_pretrained, (b'{"do_lower_case": true}',), HUGGINGFACE),
    Target(
        "modules.json",
        in_folder(read_embeddings),
        (as_json(MODULES),),
        {"1_Pooling/config.json": as_json(POOLING)},
    ),
    Target(VALUES, in_folder(read_weights), (TF1[VALUES],), TF1),
    Target("checkpoint", in_folder(read_weights), (STATE,), TF1),
    Target("x.tf_record", read_all_records, (RECORDS, gzip.compress(RECORDS, mtime=0))),
    Target("tf_model.h5", read_tensors, (written(write_h5)["x"],)),
]
if find_spec("torch"):
    TARGETS.append(Target("pytorch_model.bin", read_tensors, (torch_weights(),)))

# ------------------------------------------------------------------------------------------ changes

# Bytes and texts that programs stumble over.
SNAGS = [
    *(b"\x00", b"\xff", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\xe2\x80\xa8", b"\r", b"\n", b"\n\n"),
    *(b"\t", b'"', b"'", b"\\", b",", b"{", b"]", b"null", b"NaN", b"-1", b"1e999", b"9" * 30),
    *(b"[" * 3000, b"O", b"I-", b"[CLS]", "é漢\u0301\u200d".encode()),
]


@st.composite
def spoilt(draw, content: bytes):
    """`content` with bytes replaced, put in, doubled, cut out or cut off; perhaps gzipped before."""
    data = bytearray(gzip.compress(content, mtime=0) if draw(st.integers(0, 9)) == 0 else content)
    for _ in range(draw(st.integers(1, 6))):
        first = draw(st.integers(0, len(data)))
        last = min(len(data), first + draw(st.integers(0, 12)))
        how = draw(st.sampled_from(["put in", "replace", "double", "cut out", "cut off"]))
        if how == "cut off":
            del data[first:]
        elif how == "double":
            data[first:first] = data[first:last]
        else:
            new = draw(st.one_of(st.sampled_from(SNAGS), st.binary(max_size=8)))
            data[first : first if how == "put in" else last] = b"" if how == "cut out" else new
    return bytes(data)


ODD_VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([0, -1, 10**30, float("nan"), float("inf"), "", "../../x", "a\x00b", [], {}]),
    st.text(max_size=8),
    st.lists(st.integers(), max_size=3),
    st.dictionaries(st.text(max_size=4), st.integers(), max_size=2),
)


@st.composite
def spoilt_json(draw, values):
    """JSON with a part that has been replaced or removed."""
    values = copy.deepcopy(values)
    for _ in range(draw(st.integers(1, 3))):
        place, key, part = None, None, values
        while isinstance(part, (dict, list)) and part and (place is None or draw(st.booleans())):
            place = part
            keys = list(part) if isinstance(part, dict) else range(len(part))
            key = draw(st.sampled_from(keys))
            part = part[key]
        if place is None:
            return as_json(draw(ODD_VALUES))
        if draw(st.booleans()):
            place[key] = draw(ODD_VALUES)
        else:
            del place[key]
    return as_json(values)


@pytest.mark.parametrize("target", TARGETS, ids=[target.name for target in TARGETS])
def test_a_spoilt_file_is_read_or_rejected_by_name(tmp_path, target):
    path = tmp_path / target.name
    for name, content in target.beside.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(content)
    for seed in target.seeds:
        path.write_bytes(seed)
        target.read(str(path))

    def try_content(content):
        path.write_bytes(content)
        try:
            target.read(str(path))
        except (ValueError, OSError, ImportError) as error:
            assert str(tmp_path) in str(error), f"the file is not named: {error!r}"
        except (AttributeError, KeyError, TypeError):
            pass  # JSON of another structure, in Python's own words

    @given(data=st.data())
    @settings(
        max_examples=3 * SCALE,
        derandomize=SCALE == 1,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    def try_some(data):
        seed = data.draw(st.sampled_from(target.seeds))
        try_content(data.draw(spoilt(seed)))
        if target.name.endswith(".json"):
            try_content(data.draw(spoilt_json(json.loads(seed))))

    try_some()
