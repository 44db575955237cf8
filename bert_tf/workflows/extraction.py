"""extract_features: contextual vectors of text, layer by layer.

Texts are read as they are needed and vectors written as they are made, so that memory does not grow
with the number of texts. Of several files (`--examples_per_shard`) each appears when it is whole, and
the same command after an interruption goes on behind the last that is.

Source: google-research/bert, extract_features.py.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice

import numpy as np
import tensorflow as tf

from bert_tf.data.files import expand_files
from bert_tf.data.packing import PackedSequence, pack_texts
from bert_tf.data.readers import count_lines, read_lines
from bert_tf.finetuning import setup
from bert_tf.interop.initial import initialize, read_checkpoint
from bert_tf.interop.sidecar import find_config, load_tokenizer
from bert_tf.modeling.bert import BertModel
from bert_tf.options import DeviceOptions, option
from bert_tf.prediction.text_model import SequenceRunner, trimmed
from bert_tf.tokenization import FullTokenizer
from bert_tf.training.progress import Progress
from bert_tf.workflows.extraction_output import (
    EXAMPLES_IN_MEMORY,
    EXTRACTION_FORMATS,
    Features,
    Shards,
    open_features,
)

logger = logging.getLogger(__name__)

_BATCHES_AT_ONCE = 4  # read together, so that texts of one length can be put together
_PAIR = re.compile(r"^(.*) \|\|\| (.*)$")


@dataclass(frozen=True, kw_only=True)
class ExtractionOptions(DeviceOptions):
    """The flags of extract_features."""

    input_file: str = option(
        "Text, a comma list of files or globs; one example per line, the sentences of a pair around "
        "' ||| '."
    )
    output_file: str = option("The vectors.")
    output_format: str = option(
        "jsonl: the reference's JSON lines. npz: NumPy arrays. tfrecord: tf.train.Examples.",
        default="jsonl",
        choices=EXTRACTION_FORMATS,
    )
    examples_per_shard: int | None = option(
        "Write files of so many examples, OUTPUT-00000-of-00010. Default: one file; of npz, which is "
        f"in memory until it is written, {EXAMPLES_IN_MEMORY} examples.",
        default=None,
    )
    init_checkpoint: str = option(
        "Weights: a TF1 checkpoint, a folder that a run of ours wrote, or a Hugging Face folder."
    )
    bert_config_file: str | None = option(
        "Architecture. Default: the one beside --init_checkpoint.", default=None
    )
    vocab_file: str | None = option(
        "Vocabulary. Default: the one beside --init_checkpoint.", default=None
    )
    do_lower_case: bool | None = option(
        "Lower-case the text. Default: as the checkpoint says, else true.", default=None
    )
    layers: str = option(
        "Layers to write, comma-separated: -1 is the last, 0 the first.", default="-1,-2,-3,-4"
    )
    max_seq_length: int = option("Longer inputs are cut.", default=128)
    batch_size: int = option("Examples per batch.", default=32)
    use_one_hot_embeddings: bool = option(
        "Ignored: the look-up is fast on every device.", default=False
    )

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise ValueError(f"--batch_size is {self.batch_size}, but must be 1 or more.")
        if self.examples_per_shard is not None and self.examples_per_shard < 1:
            raise ValueError(
                f"--examples_per_shard is {self.examples_per_shard}, but must be 1 or more."
            )
        self.layer_indexes(None)

    def layer_indexes(self, num_layers: int | None) -> list[int]:
        """`layers` as numbers.

        Raises:
            ValueError: one is no number, or not a layer of a model with `num_layers`.
        """
        try:
            indexes = [int(part) for part in self.layers.split(",")]
        except ValueError as error:
            raise ValueError(
                f"--layers is {self.layers!r}, but must be whole numbers with commas, as in -1,-2."
            ) from error
        for index in indexes:
            if num_layers is not None and not -num_layers <= index < num_layers:
                raise ValueError(
                    f"--layers is {self.layers} and has {index}, but the model's {num_layers} "
                    f"layers are {-num_layers} to {num_layers - 1}. Use --layers=-1 for the last."
                )
        return indexes


def extract_features(options: ExtractionOptions) -> int:
    """Writes `output_file`, or its parts; the number of examples.

    What stands in the files says `extraction_output`.
    """
    files = expand_files(options.input_file)
    checkpoint = read_checkpoint(options.init_checkpoint)
    config = find_config(options.bert_config_file, checkpoint)
    setup.check_sequence_length(options.max_seq_length, config)
    layers = options.layer_indexes(config.num_hidden_layers)
    tokenizer = load_tokenizer(options.vocab_file, options.do_lower_case, checkpoint, config)
    pack_line("", tokenizer, options.max_seq_length)  # refuses a length that is too small
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
    }
    shards = Shards(options.output_file, options.output_format, total, options.examples_per_shard)
    num_done = shards.resume(settings, files)
    if num_done == total:
        logger.info("All %d examples are in %s already", total, options.output_file)
        return total
    with devices.scope():
        model = BertModel(config, dtype=options.policy)
    initialize(model, checkpoint)

    lines = islice(chain.from_iterable(map(read_lines, files)), num_done, None)
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
    """A line of the input, which may hold a pair around " ||| "."""
    line = line.strip()
    pair = _PAIR.match(line)
    text_a, text_b = (pair[1], pair[2]) if pair else (line, None)
    return pack_texts(tokenizer, text_a, text_b, max_seq_length)


def layer_vectors(
    model: BertModel, examples: Iterable[PackedSequence], layers: Sequence[int], batch_size: int
) -> Iterator[tuple[list[int], np.ndarray]]:
    """The ids of each example and its vectors, float32 [number of layers, its tokens, H], in order.

    A batch is as long as its longest example, since padding cannot be seen.
    """

    def forward(inputs):
        all_layers = model(inputs, training=False)["all_encoder_layers"]
        return {"vectors": tf.stack([all_layers[index] for index in layers], axis=1)}

    run = SequenceRunner(forward, model.config.max_position_embeddings, batch_size)
    examples = iter(examples)
    while some := [trimmed(e) for e in islice(examples, batch_size * _BATCHES_AT_ONCE)]:
        for example, outputs in zip(some, run(some), strict=True):
            yield example.input_ids, outputs["vectors"][:, : len(example.input_ids)]
