"""Whatever stands in a file, it is read or refused with a message that names it."""

import json
import os
from pathlib import Path

import pytest
from fuzz_cases import cases, read_or_refuse, spoilt, spoilt_json
from hypothesis import given
from hypothesis import strategies as st

from bert_tf.config import BertConfig
from bert_tf.data.multiple_choice import read_questions
from bert_tf.data.question_answering import Findings, examples_to_train, read_squad
from bert_tf.data.readers import read_csv, read_lines, read_table, read_tsv
from bert_tf.data.token_classification import read_conll
from bert_tf.interop.tensor_files import open_tensors
from bert_tf.model_folder import read_task
from bert_tf.pretraining.manifest import SUFFIX, check_record_sets, read_manifest
from bert_tf.tokenization import FullTokenizer

SQUAD = {
    "version": "1.1",
    "data": [
        {
            "title": "Owls",
            "paragraphs": [
                {
                    "context": "The owl is in the barn. It sleeps.",
                    "qas": [
                        {
                            "id": "1",
                            "question": "Where is the owl?",
                            "answers": [{"text": "in the barn", "answer_start": 11}],
                        },
                        {"id": "2", "question": "Who?", "answers": [], "is_impossible": True},
                    ],
                }
            ],
        }
    ],
}
CONFIG = {
    "vocab_size": 30522,
    "hidden_size": 768,
    "num_attention_heads": 12,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "layer_norm_eps": 1e-12,
    "pooler_type": "first_token_transform",
}
MANIFEST = {
    "format": 1,
    "version": "1.0.0",
    "flags": {"max_seq_length": 128, "max_predictions_per_seq": 20},
    "input": [{"file": "a.txt", "size": 3, "mtime": 1.0}],
    "vocabulary": {"file": "vocab.txt", "sha256": "0" * 64, "size": 9},
    "num_groups": 1,
    "groups": [
        {
            "number": 0,
            "seed": 1,
            "input": [{"file": "a.txt", "start": 0, "end": 3}],
            "shards": [{"file": "x.tf_record", "records": 1, "bytes": 9}],
            "counts": {"documents": 1},
        }
    ],
}
TASK = {"task": "classification", "labels": ["0", "1"], "max_seq_length": 128}
RACE = {"article": "Owls sleep.", "questions": ["What?"], "options": [["a", "b"]], "answers": ["A"]}


def json_bytes(values):
    return json.dumps(values).encode()


def consume(reader):
    return lambda path: list(reader(path))


def read_squad_to_train(path):
    examples_to_train(read_squad(path), version_2_with_negative=True, findings=Findings())


def read_record_set(path):
    """As run_pretraining does; there are no records, and a whole manifest says so."""
    read_manifest(path)
    records = path.removesuffix(SUFFIX)
    Path(records).write_bytes(bytes(9))
    check_record_sets(
        [records],
        {"max_seq_length": ("--max_seq_length", 128), "vocab_size": ("the model", 9)},
    )


# kind -> name of the file, what stands in it, how it is read
TEXTS = {
    "lines": ("a.txt", "one\ntwo\nthré\n".encode(), consume(read_lines)),
    "tsv": ("a.tsv", b"a\tb\n1\t2\n", consume(read_tsv)),
    "quoted tsv": ("b.tsv", b'a\tb\n"1"\t2\n', lambda path: list(read_tsv(path, quoted=True))),
    "csv": ("a.csv", b'a,b\n"1, ""x""",2\n', consume(read_csv)),
    "table tsv": ("t.tsv", b"text\tlabel\nan owl\t1\n", consume(read_table)),
    "table csv": ("t.csv", b'text,label\n"an, owl",1\n', consume(read_table)),
    "table jsonl": (
        "t.jsonl",
        b'{"text": "owl", "label": 1}\n{"text": "x"}\n',
        consume(read_table),
    ),
    "conll": ("a.conll", b"EU NNP B-ORG\nrejects VBZ O\n\nPeter NNP B-PER\n", read_conll),
    "vocabulary": ("v.txt", b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nowl\n##s\n", FullTokenizer),
    "swag": (
        "s.csv",
        b",video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3,label\n"
        b"0,v,1,An owl,An owl,It,gold,flies,eats,sleeps,sings,2\n",
        read_questions,
    ),
    "choices csv": ("c.csv", b"question,choice0,choice1,label\nWhat?,a,b,1\n", read_questions),
    "race in a line": ("race.jsonl", json_bytes(RACE), read_questions),
}
DOCUMENTS = {
    "squad": ("q.json", SQUAD, read_squad_to_train),
    "configuration": ("bert_config.json", CONFIG, BertConfig.from_json_file),
    "manifest": ("x.tf_record.manifest.json", MANIFEST, read_record_set),
    "task": ("task.json", TASK, lambda path: read_task(os.path.dirname(path))),
    "race": ("high/race.txt", RACE, lambda path: read_questions(os.path.dirname(path))),
    "choices": (
        "arc.jsonl",
        {
            "question": "What?",
            "choices": {"text": ["a", "b"], "label": ["A", "B"]},
            "answerKey": "B",
        },
        read_questions,
    ),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fuzzed")
    (folder / "high").mkdir()
    return folder


@pytest.mark.parametrize("kind", [*TEXTS, *DOCUMENTS])
def test_what_is_not_spoilt_is_read(folder, kind):
    name, content, read = (TEXTS | DOCUMENTS)[kind]
    content = content if isinstance(content, bytes) else json_bytes(content)
    (folder / name).write_bytes(content)
    assert read_or_refuse(f"{kind}: as it was", lambda: read(str(folder / name)), name)


@pytest.mark.parametrize("kind", [*TEXTS, *DOCUMENTS])
@given(data=st.data())
@cases(100)
def test_bytes_in_disorder(folder, kind, data):
    name, content, read = (TEXTS | DOCUMENTS)[kind]
    path = folder / name
    path.write_bytes(
        data.draw(spoilt(content if isinstance(content, bytes) else json_bytes(content)))
    )
    read_or_refuse(f"{kind}: bytes", lambda: read(str(path)), named(path))


def named(path):
    """What a message must name: of RACE, which is a folder, at least that."""
    return path.parent if path.parent.name == "high" else path


@pytest.mark.parametrize("kind", DOCUMENTS)
@given(data=st.data())
@cases(100)
def test_json_with_other_parts(folder, kind, data):
    name, content, read = DOCUMENTS[kind]
    path = folder / name
    path.write_bytes(data.draw(spoilt_json(content)))
    read_or_refuse(f"{kind}: JSON", lambda: read(str(path)), named(path))


@pytest.fixture(scope="module")
def safetensors_file(folder):
    """Two tensors and a header, as Hugging Face writes them."""
    header = json.dumps(
        {
            "a": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]},
            "b": {"dtype": "I64", "shape": [1], "data_offsets": [16, 24]},
            "__metadata__": {"format": "pt"},
        }
    ).encode()
    made = folder / "hf"
    made.mkdir()
    return made / "model.safetensors", len(header).to_bytes(8, "little") + header + bytes(24)


@given(data=st.data())
@cases(100)
def test_safetensors_in_disorder(safetensors_file, data):
    path, content = safetensors_file
    path.write_bytes(data.draw(spoilt(content)))

    def read():
        tensors = open_tensors(str(path))
        return [tensors[name] for name in tensors]

    read_or_refuse("safetensors: bytes", read, path)
