"""extract_features: contextual vectors of text, layer by layer, as JSON lines.

Source: google-research/bert, extract_features.py.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.data.files import open_whole
from bert_tf.data.packing import PackedSequence, pack_texts
from bert_tf.data.readers import read_lines
from bert_tf.interop.initial import initialize, read_checkpoint
from bert_tf.modeling.bert import BertModel
from bert_tf.tokenization import FullTokenizer
from bert_tf.training.progress import Progress
from bert_tf.workflows import lookup
from bert_tf.workflows.options import DeviceOptions, option

logger = logging.getLogger(__name__)

_PAIR = re.compile(r"^(.*) \|\|\| (.*)$")


@dataclass(frozen=True, kw_only=True)
class ExtractionOptions(DeviceOptions):
    """The flags of extract_features."""

    input_file: str = option("Text; one example per line, the sentences of a pair around ' ||| '.")
    output_file: str = option("JSON lines with the vectors.")
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
    """Writes `output_file`; the number of examples.

    Each line is {"linex_index": i, "features": [{"token": t, "layers": [{"index": -1, "values":
    [...]}, ...]}, ...]} ("linex_index" is how the reference spells it), values to six decimals.
    """
    checkpoint = read_checkpoint(options.init_checkpoint)
    config = lookup.find_config(options.bert_config_file, checkpoint)
    lookup.check_sequence_length(options.max_seq_length, config)
    layers = options.layer_indexes(config.num_hidden_layers)
    tokenizer = lookup.load_tokenizer(options.vocab_file, options.do_lower_case, checkpoint, config)
    examples = [
        pack_line(line, tokenizer, options.max_seq_length)
        for line in read_lines(options.input_file)
    ]
    if not examples:
        raise ValueError(f"{options.input_file} is empty.")
    with options.make_strategy().scope():
        model = BertModel(config, dtype=options.precision)
    initialize(model, checkpoint)

    progress = Progress("extract", len(examples), unit="examples")
    with open_whole(options.output_file) as file:
        for index, vectors in enumerate(layer_vectors(model, examples, layers, options.batch_size)):
            tokens = tokenizer.convert_ids_to_tokens(real_ids(examples[index]))
            file.write(json.dumps(feature_line(index, tokens, layers, vectors)) + "\n")
            progress.update(index + 1)
    logger.info("Wrote %d examples to %s", len(examples), options.output_file)
    return len(examples)


def pack_line(line: str, tokenizer: FullTokenizer, max_seq_length: int) -> PackedSequence:
    """A line of the input, which may hold a pair around " ||| "."""
    line = line.strip()
    pair = _PAIR.match(line)
    text_a, text_b = (pair[1], pair[2]) if pair else (line, None)
    return pack_texts(tokenizer, text_a, text_b, max_seq_length)


def real_ids(example: PackedSequence) -> list[int]:
    """The ids before the padding."""
    return example.input_ids[: sum(example.input_mask)]


def layer_vectors(
    model: BertModel, examples: Sequence[PackedSequence], layers: Sequence[int], batch_size: int
) -> Iterator[np.ndarray]:
    """The vectors of each example, float32 [number of layers, its tokens, H], in order.

    A batch is as long as its longest example, since padding cannot be seen.
    """

    @tf.function(reduce_retracing=True)
    def forward(inputs):
        all_layers = model(inputs, training=False)["all_encoder_layers"]
        return tf.cast(tf.stack([all_layers[index] for index in layers], axis=1), tf.float32)

    for start in range(0, len(examples), batch_size):
        batch = examples[start : start + batch_size]
        lengths = [sum(example.input_mask) for example in batch]
        inputs = {
            name: tf.constant([getattr(example, name)[: max(lengths)] for example in batch])
            for name in PackedSequence._fields
        }
        for vectors, length in zip(forward(inputs).numpy(), lengths, strict=True):
            yield vectors[:, :length]


def feature_line(
    index: int, tokens: Sequence[str], layers: Sequence[int], vectors: np.ndarray
) -> dict[str, Any]:
    """One line of the output, with the reference's keys in the reference's order."""
    return {
        "linex_index": index,
        "features": [
            {
                "token": token,
                "layers": [
                    {
                        "index": layer,
                        "values": [round(float(value), 6) for value in vectors[row, position]],
                    }
                    for row, layer in enumerate(layers)
                ],
            }
            for position, token in enumerate(tokens)
        ],
    }
