"""Everything that parses files of others, as targets of fuzzing: seeds, and how the file is read.

`tests/test_fuzz_targets.py` runs each target over its seeds and some spoilt ones, the slow tier
(`tests/fuzzing/test_fuzzed_readers.py`) over more, and `tests/fuzzing/fuzz.py` with atheris.
"""

import gzip
import os
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import fuzz_seeds as seeds
import tensorflow as tf
from tiny_indexes import masked_crc32c, write_block

from bert_tf.checkpoint_task import known_task
from bert_tf.config import BertConfig
from bert_tf.data.lines import count_lines, read_lines
from bert_tf.data.multiple_choice import read_questions
from bert_tf.data.question_answering import Findings, examples_to_train, read_squad
from bert_tf.data.record_cache import make_once
from bert_tf.data.record_checks import (
    check_records,
    count_records,
    feature_sizes,
    naming_damaged_file,
)
from bert_tf.data.records import read_records
from bert_tf.data.tables import read_csv, read_table, read_tsv
from bert_tf.data.token_classification import read_conll
from bert_tf.finetuning.best_checkpoint import BestCheckpoint
from bert_tf.interop.checkpoint import Bundle
from bert_tf.interop.read import read_checkpoint
from bert_tf.interop.sentence_transformers import embedding_settings, read_projection
from bert_tf.interop.tensor_files import open_tensors
from bert_tf.interop.tf2_graph import OBJECT_GRAPH
from bert_tf.model_files import read_task
from bert_tf.prediction.exports import find_exports
from bert_tf.pretraining.groups import group_lines, plan_groups
from bert_tf.pretraining.make_group import GroupJob
from bert_tf.pretraining.manifest import SUFFIX, check_record_sets, read_manifest
from bert_tf.pretraining.runners import run
from bert_tf.pretraining.wikipedia import read_paragraphs
from bert_tf.report.page import learning_curve
from bert_tf.tasks.answer_ensemble import read_nbest
from bert_tf.tokenization import FullTokenizer


class Target(NamedTuple):
    """How one type of file is read.

    Attributes:
        name: of the file, in a folder of its own.
        seeds: contents that are read without an error.
        read: gets the path; may raise a ValueError or an OSError that names the file, or its folder.
        beside: other files of the folder, by name.
    """

    name: str
    seeds: tuple[bytes, ...]
    read: Callable[[str], object]
    beside: Mapping[str, bytes] = {}

    @property
    def is_json(self) -> bool:
        return self.name.endswith(".json") or self.name == "high/race.txt"

    def prepare(self, folder: Path) -> Path:
        """Write the other files, and return the path of the one that is fuzzed."""
        for name in (self.name, *self.beside):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(self.beside.get(name, b""))
        return folder / self.name

    def accepts(self, path: Path, content: bytes) -> bool:
        """Return True if a content is read, False for an error that names the file or its folder."""
        path.write_bytes(content)
        try:
            self.read(str(path))
        except (ValueError, OSError) as error:
            folder = path.parents[self.name.count("/")]
            assert str(folder) in str(error), f"the file is not named: {error!r}"
            return False
        return True


def corpus_folder(kind: str) -> Path:
    """Inputs that fuzzing found, for a key of `TARGETS`."""
    return Path(__file__).parent / "fuzzing" / "corpus" / kind.replace(" ", "_")


def consumed(reader):
    return lambda path: list(reader(path))


def in_folder(reader):
    return lambda path: reader(os.path.dirname(path))


def read_corpus(path):
    lines = list(read_lines(path))
    count_lines([path])
    for group in plan_groups([path], 8):
        list(group_lines(group))
    return lines


def read_squad_to_train(path):
    examples_to_train(read_squad(path), version_2_with_negative=True, findings=Findings())


def read_record_set(path):
    """As run_pretraining does; there are no records, and a whole manifest says so."""
    read_manifest(path)
    records = path.removesuffix(SUFFIX)
    Path(records).write_bytes(bytes(9))
    limits = {"max_seq_length": ("--max_seq_length", 128), "vocab_size": ("the model", 9)}
    check_record_sets([records], limits)


def read_all_records(path):
    count_records([path])
    feature_sizes(path)
    check_records([path], seeds.SPECS, {"input_ids": 7})
    settings = {"shuffle": False, "repeat": False, "drop_remainder": False}
    with naming_damaged_file([path]):
        for batch in read_records([path], seeds.SPECS, batch_size=2, **settings):
            assert batch["input_ids"].shape[1:] == (4,)


def read_one_record(path):
    """The content as the second record of a file, with fitting checksums."""
    data, records = Path(path).read_bytes(), f"{path}.tf_record"
    with tf.io.TFRecordWriter(records) as writer:
        writer.write(seeds.example())
        writer.write(data)
    read_all_records(records)


def read_framed_records(path):
    """The content as a record file, with the checksums of its lengths and records repaired."""
    data, place, repaired = Path(path).read_bytes(), 0, b""
    while place < len(data):
        length = data[place : place + 8]
        end = place + 12 + int.from_bytes(length, "little")
        record = data[place + 12 : end]
        repaired += length + masked_crc32c(length) + record + masked_crc32c(record)
        place = end + 4
    Path(f"{path}.repaired").write_bytes(repaired)
    read_all_records(f"{path}.repaired")


def read_index_block(path):
    """The content as the block of an index with a right checksum, and some values."""
    prefix = write_block(f"{path}.ckpt", Path(path).read_bytes())
    Path(f"{prefix}.data-00000-of-00001").write_bytes(seeds.BLOCK_VALUES)
    bundle = Bundle(prefix)
    return [bundle.read(name) for name in bundle.shapes]


def read_weights(path):
    checkpoint = read_checkpoint(path)
    known_task(checkpoint)
    return [checkpoint.arrays[name] for name in checkpoint.arrays]


def read_graph(path):
    """The content as the object graph of a checkpoint of TensorFlow 2."""
    values = {**seeds.TF2, OBJECT_GRAPH: Path(path).read_bytes()}
    tf.raw_ops.SaveV2(
        prefix=f"{path}.ckpt",
        tensor_names=list(values),
        shape_and_slices=[""] * len(values),
        tensors=list(values.values()),
    )
    return read_weights(f"{path}.ckpt")


def read_tensors(path):
    tensors = open_tensors(path)
    return [tensors[name] for name in tensors]


def read_embeddings(folder):
    embedding_settings(folder)
    return dict(read_projection(folder))


def read_record_note(path):
    """As the run that resumes does; it makes the records of a damaged note again."""
    make_once(path.removesuffix(".json"), "key", lambda _: 3)


def read_group_note(path):
    """As the run that resumes does; it makes the group of a damaged note again."""
    job = GroupJob(0, 1, (), (), path.removesuffix(".group-00000"), 0)
    return list(run([job], None, lambda jobs, *_: (), lambda *_: None))


def read_best(path):
    return BestCheckpoint(os.path.dirname(os.path.dirname(path)), "eval_accuracy", 9)


TARGETS = {
    "lines": Target(
        "a.txt",
        ("one\ntwo\n\nthré\n".encode(), "\ufeffa\nb".encode("utf-16")),
        consumed(read_lines),
    ),
    "corpus": Target(
        "a.txt",
        (b"one\ntwo\n\nthree\n\nfour\n", gzip.compress(b"one\n\ntwo\n", mtime=0)),
        read_corpus,
    ),
    "tsv": Target("a.tsv", (b"a\tb\n1\t2\n",), consumed(read_tsv)),
    "quoted tsv": Target(
        "b.tsv", (b'a\tb\n"1"\t2\n',), lambda path: list(read_tsv(path, quoted=True))
    ),
    "csv": Target("a.csv", (b'a,b\n"1, ""x""",2\n',), consumed(read_csv)),
    "table tsv": Target("t.tsv", (b"text\tlabel\nan owl\t1\n",), consumed(read_table)),
    "table csv": Target("t.csv", (b'text,label\n"an, owl",1\n',), consumed(read_table)),
    "table jsonl": Target(
        "t.jsonl", (b'{"text": "owl", "label": 1}\n{"text": "x"}\n',), consumed(read_table)
    ),
    "conll": Target(
        "a.conll", (b"EU NNP B-ORG\nrejects VBZ O\n\nPeter NNP B-PER\n", b"EU\tO\n"), read_conll
    ),
    "vocabulary": Target("v.txt", (seeds.VOCAB,), FullTokenizer),
    "swag": Target(
        "s.csv",
        (
            b",video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3,"
            b"label\n0,v,1,An owl,An owl,It,gold,flies,eats,sleeps,sings,2\n",
        ),
        read_questions,
    ),
    "choices csv": Target(
        "c.csv", (b"question,choice0,choice1,label\nWhat?,a,b,1\n",), read_questions
    ),
    "race in a line": Target("race.jsonl", seeds.as_json(seeds.RACE), read_questions),
    "choices": Target("arc.jsonl", seeds.as_json(seeds.ARC), read_questions),
    "race": Target(
        "high/race.txt",
        seeds.as_json(seeds.RACE),
        lambda path: read_questions(os.path.dirname(path)),
    ),
    "wikipedia": Target(
        "wiki_00",
        (
            b'<doc id="9" title="Tides">\nTides\n\nHistory.\nSun &amp; moon pull. Why?\n</doc>\n',
            b'{"title": "Tides", "text": "Tides\\nSun &amp; moon."}\n',
            b"One paragraph.\n\nAnother.\n",
        ),
        lambda path: list(read_paragraphs(read_lines(path), path)),
    ),
    "squad": Target("q.json", seeds.as_json(seeds.SQUAD), read_squad_to_train),
    "configuration": Target(
        "bert_config.json", seeds.as_json(seeds.REFERENCE_CONFIG), BertConfig.from_json_file
    ),
    "manifest": Target("x.tf_record.manifest.json", seeds.as_json(seeds.MANIFEST), read_record_set),
    "task": Target("task.json", seeds.as_json(*seeds.TASKS), in_folder(read_task)),
    "nbest": Target(
        "nbest_predictions.json",
        seeds.as_json(seeds.NBEST),
        lambda path: read_nbest(path, ["1"], True),
    ),
    "export": Target(
        "export.json",
        seeds.as_json(seeds.EXPORT),
        in_folder(find_exports),
        {"model.tflite": b"", "vocab.txt": seeds.VOCAB, "labels.txt": b"0\n1\n"},
    ),
    "safetensors": Target("model.safetensors", seeds.safetensors_seeds(), read_tensors),
    "safetensors index": Target(
        "model.safetensors.index.json",
        seeds.as_json({"weight_map": {"a": "one.safetensors", "b": "one.safetensors"}}),
        read_tensors,
        {"one.safetensors": seeds.safetensors_seeds()[0]},
    ),
    "huggingface config": Target(
        "config.json",
        seeds.as_json(seeds.HUGGINGFACE_CONFIG, seeds.LABELLED_CONFIG),
        in_folder(read_weights),
        seeds.HUGGINGFACE,
    ),
    "huggingface weights": Target(
        "model.safetensors", (seeds.WEIGHTS,), in_folder(read_weights), seeds.HUGGINGFACE
    ),
    "tokenizer": Target(
        "tokenizer.json", seeds.as_json(seeds.TOKENIZER), in_folder(FullTokenizer.from_pretrained)
    ),
    "tokenizer config": Target(
        "tokenizer_config.json",
        seeds.as_json({"do_lower_case": True}),
        in_folder(FullTokenizer.from_pretrained),
        {"vocab.txt": seeds.VOCAB},
    ),
    **{
        f"sentence-transformers {name}": Target(
            name, (content,), in_folder(read_embeddings), seeds.SENTENCES
        )
        for name, content in seeds.SENTENCES.items()
        if "/" not in name
    },
    "sentence-transformers pooling": Target(
        "1_Pooling/config.json",
        (seeds.SENTENCES["1_Pooling/config.json"],),
        lambda path: read_embeddings(os.path.dirname(os.path.dirname(path))),
        seeds.SENTENCES,
    ),
    "tf1 index": Target(seeds.INDEX, (seeds.TF1[seeds.INDEX],), in_folder(read_weights), seeds.TF1),
    "tf1 values": Target(
        seeds.VALUES, (seeds.TF1[seeds.VALUES],), in_folder(read_weights), seeds.TF1
    ),
    "tf1 state": Target("checkpoint", (seeds.STATE,), in_folder(read_weights), seeds.TF1),
    "tf1 index block": Target("block", (seeds.INDEX_BLOCK,), read_index_block),
    "tf2 graph": Target("graph", (seeds.TF2[OBJECT_GRAPH],), read_graph),
    "records": Target(
        "x.tf_record", (seeds.record_file(), seeds.record_file("GZIP")), read_all_records
    ),
    "repaired records": Target("x.tf_record", (seeds.record_file(),), read_framed_records),
    "example": Target("example", (seeds.example(),), read_one_record),
    "record note": Target(
        "x.tf_record.json",
        seeds.as_json({"key": "key", "num_records": 3, "size": 4}),
        read_record_note,
        {"x.tf_record": bytes(4)},
    ),
    "group note": Target("x.group-00000", seeds.as_json(seeds.GROUP_NOTE), read_group_note),
    "best checkpoint": Target("best/best.json", seeds.as_json(seeds.BEST), read_best),
    "metrics": Target("metrics.jsonl", (seeds.METRICS,), learning_curve),
    "tf class": Target("tf_model.h5", (seeds.h5_weights(),), read_tensors),
    **(
        {"pytorch": Target("pytorch_model.bin", seeds.torch_weights(), read_tensors)}
        if find_spec("torch")
        else {}
    ),
}
