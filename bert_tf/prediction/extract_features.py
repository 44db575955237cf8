"""extract_features: contextual vectors of text, layer by layer, as JSON lines.

    {"linex_index": i, "features": [{"token": t, "layers": [{"index": -1, "values": [...]}, ...]}, ...]}

Values have six decimals ("linex_index" is the spelling of the reference).

Shapes: T tokens of an example, L layers, H hidden.

Source: google-research/bert, extract_features.py.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.files import atomic_write, check_not_an_input, count_lines, expand_files, read_lines
from bert_tf.options import ModelOptions, changes, option
from bert_tf.packing import PackedSequence
from bert_tf.prediction.loading import load_model
from bert_tf.prediction.text_model import SequenceRunner, without_padding
from bert_tf.tokenization import FullTokenizer, pack_texts
from bert_tf.training.options import DeviceOptions, parse_layers
from bert_tf.training.progress import Progress

logger = logging.getLogger(__name__)

_BATCHES_AT_ONCE = 4  # read together, to batch texts of similar length


@dataclass(frozen=True, kw_only=True)
class ExtractionOptions:
    devices: DeviceOptions
    model: ModelOptions = changes(
        max_seq_length={"help": "Longer inputs are truncated.", "default": 128, "min": 2}
    )
    input_file: str = option(
        "Text, a comma list of files or globs. One example per line; ' ||| ' separates the sentences of "
        "a pair.",
        group="Data",
    )
    output_file: str = option("File for the vectors.", group="Data")
    init_checkpoint: str = option(
        "Weights: a TF1 checkpoint, a folder of a bert_tf run, or a Hugging Face folder.",
        group="Model",
    )
    layers: str = option(
        "Layers to write, comma-separated: -1 is the last, 0 the first.",
        group="Model",
        default="-1,-2,-3,-4",
    )
    batch_size: int = option("Examples per batch.", group="Machine", default=32, min=1)
    use_one_hot_embeddings: bool = option(
        "Ignored: the lookup is fast on every device.", default=False
    )

    def __post_init__(self) -> None:
        parse_layers(self.layers)


def extract_features(options: ExtractionOptions) -> int:
    """Write `output_file`. Return the number of examples."""
    files = expand_files(options.input_file)
    check_not_an_input([options.output_file], files)
    total = count_lines(files)
    with options.devices.make_strategy().scope():
        trained = load_model(
            options.init_checkpoint,
            head="encoder",
            dtype=options.devices.policy,
            bert_config_file=options.model.bert_config_file,
            vocab_file=options.model.vocab_file,
            do_lower_case=options.model.do_lower_case,
        )
    model, tokenizer, config = trained.model, trained.tokenizer, trained.model.config
    length = options.model.max_seq_length or trained.max_seq_length
    config.check_sequence_length(length)
    layers = parse_layers(options.layers, config.num_hidden_layers)

    lines = chain.from_iterable(map(read_lines, files))
    examples = (pack_line(line, tokenizer, length) for line in lines)
    progress = Progress("extract", total, unit="examples")

    def forward(inputs):
        outputs = model(inputs, training=False)["all_encoder_layers"]
        return {"vectors": tf.stack([outputs[index] for index in layers], axis=1)}

    run, number = SequenceRunner(forward, config.max_position_embeddings, options.batch_size), 0
    with atomic_write(options.output_file) as file:
        while chunk := list(islice(examples, options.batch_size * _BATCHES_AT_ONCE)):
            for example, outputs in zip(chunk, run(chunk), strict=True):
                tokens = tokenizer.convert_ids_to_tokens(example.input_ids)
                vectors = outputs["vectors"][:, : len(tokens)]
                features = list_features(tokens, vectors, layers)
                file.write(json.dumps({"linex_index": number, "features": features}) + "\n")
                number += 1
            progress.update(number)
    logger.info("Wrote %d examples to %s", total, options.output_file)
    return total


def pack_line(line: str, tokenizer: FullTokenizer, max_seq_length: int) -> PackedSequence:
    """Encode a line of the input. " ||| " separates the sentences of a pair."""
    text_a, bars, text_b = line.strip().rpartition(" ||| ")
    texts = (text_a, text_b) if bars else (text_b, None)
    return without_padding(pack_texts(tokenizer, texts[0], texts[1], max_seq_length))


def list_features(
    tokens: Sequence[str], vectors: np.ndarray, layers: Sequence[int]
) -> list[dict[str, Any]]:
    """Return the features of T tokens with vectors [L, T, H], with the keys of the reference."""
    features = []
    for token, token_vectors in zip(tokens, vectors.transpose(1, 0, 2), strict=True):
        values = [[round(float(value), 6) for value in row] for row in token_vectors]
        pairs = zip(layers, values, strict=True)
        entries = [{"index": layer, "values": value} for layer, value in pairs]
        features.append({"token": token, "layers": entries})
    return features
