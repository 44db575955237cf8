"""extract_features: contextual vectors of text, layer by layer.

Texts are streamed, so memory does not grow with their number. With several files
(`--examples_per_shard`) each appears when complete, and the same command resumes after the last one.

    jsonl      {"linex_index": i, "features": [{"token": t, "layers": [{"index": -1, "values": [...]},
               ...]}, ...]} per example, values with six decimals ("linex_index" is the spelling of
               the reference)
    npz        all examples, concatenated:
               vectors        float32 [T, L, H]; example n has vectors[row_splits[n]:row_splits[n + 1]]
               tokens         strings [T]
               row_splits     int64 [N + 1]
               example_index  int64 [N], lines of the input from 0
               layers         int64 [L], as in --layers
    tfrecord   a tf.train.Example per example:
               vectors        floats, T * L * H, the last axis fastest
               shape          T, L, H
               tokens         T byte strings
               example_index  1 integer

Shapes: N examples of a file, T tokens (of one or of all), L layers, H hidden.

Source: google-research/bert, extract_features.py.
"""

from __future__ import annotations

import json
import logging
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.data.features import FeatureSpec
from bert_tf.data.files import file_identity, open_whole, remove_file, whole_file, write_text
from bert_tf.data.globs import check_not_an_input, expand_files, files_of_checkpoint
from bert_tf.data.lines import count_lines, read_texts
from bert_tf.data.packing import PackedSequence, pack_texts
from bert_tf.data.records import RecordWriter
from bert_tf.interop.checkpoint import read_json
from bert_tf.interop.initial import initialize
from bert_tf.interop.read import read_checkpoint
from bert_tf.interop.sidecar import find_config, load_tokenizer
from bert_tf.modeling.bert import BertModel
from bert_tf.modeling.pooling import parse_layers
from bert_tf.options import EncoderFilesOptions, option
from bert_tf.prediction.text_model import SequenceRunner, trimmed
from bert_tf.tokenization import FullTokenizer
from bert_tf.training.options import DeviceOptions
from bert_tf.training.progress import Progress
from bert_tf.vocabulary import vocabulary_digest

logger = logging.getLogger(__name__)

EXTRACTION_FORMATS = ("jsonl", "npz", "tfrecord")
EXAMPLES_IN_MEMORY = 1000  # of an npz file
_BATCHES_AT_ONCE = 4  # read together, to batch texts of similar length
_PAIR = re.compile(r"^(.*) \|\|\| (.*)$")


@dataclass(frozen=True, kw_only=True)
class ExtractionOptions(EncoderFilesOptions, DeviceOptions):
    """The flags of extract_features."""

    input_file: str = option(
        "Text, a comma list of files or globs. One example per line; ' ||| ' separates the sentences of "
        "a pair."
    )
    output_file: str = option("File for the vectors.")
    output_format: str = option(
        "jsonl: the reference's JSON lines. npz: NumPy arrays. tfrecord: tf.train.Examples.",
        default="jsonl",
        choices=EXTRACTION_FORMATS,
    )
    examples_per_shard: int | None = option(
        "Examples per file, OUTPUT-00000-of-00010. Default: one file; for npz, built in memory, "
        f"{EXAMPLES_IN_MEMORY} examples per file.",
        default=None,
        min=1,
    )
    init_checkpoint: str = option(
        "Weights: a TF1 checkpoint, a folder of a bert_tf run, or a Hugging Face folder."
    )
    layers: str = option(
        "Layers to write, comma-separated: -1 is the last, 0 the first.", default="-1,-2,-3,-4"
    )
    max_seq_length: int = option("Longer inputs are truncated.", default=128, min=2)
    batch_size: int = option("Examples per batch.", default=32, min=1)
    use_one_hot_embeddings: bool = option(
        "Ignored: the lookup is fast on every device.", default=False
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        parse_layers(self.layers)


def extract_features(options: ExtractionOptions) -> int:
    """Write `output_file`, or its parts. Return the number of examples."""
    files = expand_files(options.input_file)
    check_not_an_input([options.output_file], files)
    checkpoint = read_checkpoint(options.init_checkpoint)
    config = find_config(options.bert_config_file, checkpoint)
    config.check_sequence_length(options.max_seq_length)
    layers = parse_layers(options.layers, config.num_hidden_layers)
    tokenizer = load_tokenizer(options.vocab_file, options.do_lower_case, checkpoint, config)
    total = count_lines(files)
    if not total:
        raise ValueError(f"{options.input_file} is empty.")
    devices = options.make_strategy()
    settings = {
        "layers": layers,
        "hidden_size": config.hidden_size,
        "max_seq_length": options.max_seq_length,
        "do_lower_case": tokenizer.do_lower_case,
        "precision": options.policy,
        "init_checkpoint": checkpoint.source,
        "weights": [file_identity(file) for file in files_of_checkpoint(checkpoint.source)],
        "config": config.to_dict(),
        "vocabulary_sha256": vocabulary_digest(tokenizer.vocab),
    }
    shards = Shards(options.output_file, options.output_format, total, options.examples_per_shard)
    num_done = shards.resume(settings, files)
    if num_done == total:
        logger.info("All %d examples are already in %s", total, options.output_file)
        return total
    with devices.scope():
        model = BertModel(config, dtype=options.policy)
    initialize(model, checkpoint)

    lines = islice(chain.from_iterable(map(read_texts, files)), num_done, None)
    examples = (pack_line(line, tokenizer, options.max_seq_length) for line in lines)
    found = enumerate(layer_vectors(model, examples, layers, options.batch_size), start=num_done)
    progress = Progress("extract", total, unit="examples")
    chunk_size = options.batch_size * _BATCHES_AT_ONCE
    for path, size in shards.missing():
        with open_features(path, options.output_format, layers) as write:
            for index, (ids, vectors) in islice(found, size):
                write(Features(index, tokenizer.convert_ids_to_tokens(ids), vectors))
                if (index + 1 - num_done) % chunk_size == 0 or index + 1 == total:
                    progress.update(index + 1)
    logger.info("Wrote %d examples to %s", total, options.output_file)
    return total


def pack_line(line: str, tokenizer: FullTokenizer, max_seq_length: int) -> PackedSequence:
    """Encode a line of the input. " ||| " separates the sentences of a pair."""
    line = line.strip()
    pair = _PAIR.match(line)
    text_a, text_b = (pair[1], pair[2]) if pair else (line, None)
    return pack_texts(tokenizer, text_a, text_b, max_seq_length)


def layer_vectors(
    model: BertModel, examples: Iterable[PackedSequence], layers: Sequence[int], batch_size: int
) -> Iterator[tuple[list[int], np.ndarray]]:
    """Yield the ids of each example and its vectors, float32 [L, T, H], in order."""

    def forward(inputs):
        all_layers = model(inputs, training=False)["all_encoder_layers"]
        return {"vectors": tf.stack([all_layers[index] for index in layers], axis=1)}

    run = SequenceRunner(forward, model.config.max_position_embeddings, batch_size)
    examples = iter(examples)
    while some := [trimmed(e) for e in islice(examples, batch_size * _BATCHES_AT_ONCE)]:
        for example, outputs in zip(some, run(some), strict=True):
            yield example.input_ids, outputs["vectors"][:, : len(example.input_ids)]


@dataclass(frozen=True)
class Features:
    """Output for the input line `index`, from 0: T tokens and vectors, float32 [L, T, H]."""

    index: int
    tokens: Sequence[str]
    vectors: np.ndarray


@dataclass(frozen=True)
class Shards:
    """The output files of a run, complete or missing.

    Args:
        output_file: name of the file, or stem of the names of several.
        total: number of examples.
        examples_per_shard: None: all, or EXAMPLES_IN_MEMORY for npz.
    """

    output_file: str
    output_format: str
    total: int
    examples_per_shard: int | None

    @property
    def size(self) -> int:
        usual = EXAMPLES_IN_MEMORY if self.output_format == "npz" else self.total
        return self.examples_per_shard or usual

    @property
    def paths(self) -> list[str]:
        count = -(-self.total // self.size)
        if count == 1:
            return [self.output_file]
        stem, suffix = os.path.splitext(self.output_file)
        return [f"{stem}-{index:05d}-of-{count:05d}{suffix}" for index in range(count)]

    @property
    def description_file(self) -> str:
        """JSON next to several files: their contents and sources."""
        return os.path.splitext(self.output_file)[0] + ".json"

    def resume(self, settings: Mapping[str, Any], files: Sequence[str]) -> int:
        """Return the number of examples already written. Remove the files of a different run.

        These are the files to write now, and those that the description of the earlier run lists.

        Args:
            settings: all settings that change the vectors, except the input `files`.

        Raises:
            ValueError: the description would overwrite a file of another program.
        """
        if len(self.paths) == 1:
            return 0
        earlier = self._description()
        described = {
            **settings,
            "output_format": self.output_format,
            "examples_per_shard": self.size,
            "num_examples": self.total,
            "files": [os.path.basename(path) for path in self.paths],
            "input_files": [file_identity(file) for file in files],
        }
        if earlier != described:
            for path in filter(tf.io.gfile.exists, {*self.paths, *self._listed(earlier)}):
                remove_file(path)
            write_text(self.description_file, json.dumps(described, indent=2) + "\n")
        return min(self.total, self.size * (len(self.paths) - len(list(self.missing()))))

    def _description(self) -> dict[str, Any] | None:
        """Return the description of an earlier run, or None if the file does not exist."""
        path = self.description_file
        if not tf.io.gfile.exists(path):
            return None
        try:
            found = read_json(path)
        except ValueError:  # not a JSON object
            found = {}
        if not {"examples_per_shard", "files"} <= found.keys():
            raise ValueError(
                f"{path} would be overwritten by the description of the files of output_file="
                f"{self.output_file}, but extract_features did not write it. Use another output_file, "
                "or move that file."
            )
        return found

    def _listed(self, description: Mapping[str, Any] | None) -> list[str]:
        """Return the paths of the files in a description; only names that `paths` can have."""
        stem, suffix = os.path.splitext(self.output_file)
        shard = re.compile(
            rf"{re.escape(os.path.basename(stem))}-\d{{5}}-of-\d{{5}}{re.escape(suffix)}"
        )
        files = description["files"] if description else []
        names = filter(shard.fullmatch, map(str, files if isinstance(files, list) else []))
        return [os.path.join(os.path.dirname(stem), name) for name in names]

    def missing(self) -> Iterator[tuple[str, int]]:
        """Yield (path, number of examples) of the first missing file and all after it."""
        exists = [len(self.paths) > 1 and tf.io.gfile.exists(path) for path in self.paths]
        first = exists.index(False) if False in exists else len(exists)
        for index, path in list(enumerate(self.paths))[first:]:
            yield path, min(self.size, self.total - index * self.size)


@contextmanager
def open_features(
    path: str, output_format: str, layers: Sequence[int]
) -> Iterator[Callable[[Features], object]]:
    """Yield a function that writes one example. The file appears if the block succeeds."""
    if output_format == "jsonl":
        with open_whole(path) as file:
            yield lambda found: file.write(json.dumps(feature_line(found, layers)) + "\n")
    elif output_format == "tfrecord":
        with RecordWriter(path, [FeatureSpec("example_index", role="id")]) as writer:
            yield lambda found: writer.write_serialized(_record(found))
    else:
        examples: list[Features] = []
        with whole_file(path) as name:  # fails before the long work
            yield examples.append
            _write_npz(name, examples, layers)


def feature_line(found: Features, layers: Sequence[int]) -> dict[str, Any]:
    """Return one JSON line, with the keys and order of the reference."""
    return {
        "linex_index": found.index,
        "features": [
            {
                "token": token,
                "layers": [
                    {
                        "index": layer,
                        "values": [
                            round(float(value), 6) for value in found.vectors[row, position]
                        ],
                    }
                    for row, layer in enumerate(layers)
                ],
            }
            for position, token in enumerate(found.tokens)
        ],
    }


def _record(found: Features) -> bytes:
    vectors = found.vectors.transpose(1, 0, 2)  # [T, L, H]
    tokens = [token.encode("utf-8") for token in found.tokens]
    feature = {
        "vectors": tf.train.Feature(float_list=tf.train.FloatList(value=vectors.reshape(-1))),
        "shape": tf.train.Feature(int64_list=tf.train.Int64List(value=vectors.shape)),
        "tokens": tf.train.Feature(bytes_list=tf.train.BytesList(value=tokens)),
        "example_index": tf.train.Feature(int64_list=tf.train.Int64List(value=[found.index])),
    }
    return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()


def _write_npz(path: str, examples: Sequence[Features], layers: Sequence[int]) -> None:
    arrays: dict[str, Any] = {
        "vectors": np.concatenate([found.vectors.transpose(1, 0, 2) for found in examples]),
        "tokens": np.array([token for found in examples for token in found.tokens]),
        "row_splits": np.cumsum([0, *(len(found.tokens) for found in examples)], dtype=np.int64),
        "example_index": np.array([found.index for found in examples], np.int64),
        "layers": np.array(layers, np.int64),
    }
    with tempfile.TemporaryDirectory() as folder:
        local = os.path.join(folder, "features.npz")
        np.savez(local, **arrays)  # needs a local file
        tf.io.gfile.copy(local, path, overwrite=True)
