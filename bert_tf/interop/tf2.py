"""TensorFlow 2 encoders of tf-models-official: object-based checkpoints, and SavedModels of TF Hub.

Both have the weights in an object-based checkpoint; tf2_graph.py finds them in its graph.

Shapes: H hidden, N heads, D = H / N. Query, key and value kernels are [H, N, D]. The kernel after
attention is [N, D, H]. The reference's are [H, H].

Source: tensorflow/models, official/nlp (`BertEncoder`, `TransformerEncoderBlock`, `BertPretrainerV2`,
tools/tf1_bert_checkpoint_converter_lib.py, tools/export_tfhub_lib.py).
"""

from __future__ import annotations

import os
import re

import numpy as np
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.interop.checkpoint import (
    Bundle,
    LazyArrays,
    PretrainedCheckpoint,
    file_beside,
)
from bert_tf.interop.tf2_graph import OBJECT_GRAPH, VALUE, ObjectGraph, find_weights
from bert_tf.interop.tokenizer_files import stated_lower_case


def read_tf2(prefix: str) -> PretrainedCheckpoint:
    """Read an object-based checkpoint with a BERT encoder of tf-models-official.

    Args:
        prefix: such as `folder/bert_model.ckpt-1`. `bert_config.json` and `vocab.txt` are read from
            the same folder. Without the former, the sizes are inferred from the shapes.

    Returns:
        The checkpoint with the encoder and the heads of tf-models-official. Other variables are named
        by their keys; the optimizer's are omitted.

    Raises:
        ValueError: such an encoder is not found, or the files are damaged.
    """
    folder = os.path.dirname(prefix)
    arrays, config, architecture, notes = _read_variables(Bundle(prefix), prefix)
    config_file = file_beside(folder, "bert_config.json")
    if config_file:
        stated = BertConfig.from_json_file(config_file)
        if stated.num_attention_heads != config.num_attention_heads:
            raise ValueError(
                f"{config_file}: `num_attention_heads` is {stated.num_attention_heads}, but the kernels "
                f"have {config.num_attention_heads} heads."
            )
        config, notes = stated, notes[:-1]
    return PretrainedCheckpoint(
        source=prefix,
        arrays=arrays,
        config=config,
        vocab_file=file_beside(folder, "vocab.txt"),
        do_lower_case=stated_lower_case(folder),
        architecture=architecture,
        notes=notes,
    )


def read_saved_model(folder: str) -> PretrainedCheckpoint:
    """Read the weights of an encoder from TF Hub (BERT, versions 3 and 4).

    No code of the SavedModel is run. The vocabulary is one of its assets, and its variable
    `do_lower_case` sets the case.

    Raises:
        ValueError: an encoder of tf-models-official is not found, or the files are damaged.
    """
    prefix = tf.io.gfile.join(folder, "variables", "variables")
    bundle = Bundle(prefix)
    arrays, config, architecture, notes = _read_variables(bundle, prefix)
    key = f"do_lower_case{VALUE}"
    lower = bool(bundle.read(key)) if key in bundle.shapes else None
    vocab_files = tf.io.gfile.glob(tf.io.gfile.join(folder, "assets", "*vocab*"))
    return PretrainedCheckpoint(
        source=folder,
        arrays=arrays,
        config=config,
        vocab_file=vocab_files[0] if len(vocab_files) == 1 else None,
        do_lower_case=lower,
        architecture=architecture,
        notes=notes,
    )


def is_object_based(prefix: str) -> bool:
    """Return True if a checkpoint is object-based; False if it cannot be read."""
    try:
        return OBJECT_GRAPH in Bundle(prefix).shapes
    except ValueError:
        return False


def _read_variables(
    bundle: Bundle, prefix: str
) -> tuple[LazyArrays, BertConfig, str | None, tuple[str, ...]]:
    """Return weights in the reference's names and layout, sizes, Hugging Face's class, and notes.

    The sizes are inferred from the shapes. The class is that of the head, or None.
    """
    graph = ObjectGraph(bundle.read(OBJECT_GRAPH))
    keys, architecture, notes = find_weights(graph, prefix)
    stored = bundle.shapes
    config = _config_of({name: stored[key] for name, key in keys.items()}, prefix)
    shapes = {name: _reference_shape(name, stored[key]) for name, key in keys.items()}

    def read(name: str) -> np.ndarray:
        array = bundle.read(keys[name])
        return (array.T if _is_projection(name) else array).reshape(shapes[name])

    sizes = (
        "there is no configuration next to the weights: sizes were inferred from the shapes, and "
        f"`hidden_act` is assumed to be {config.hidden_act!r}, as in the published models",
    )
    return LazyArrays(shapes, read), config, architecture, notes + sizes


def _is_projection(name: str) -> bool:
    """Return True if the reference stores this kernel as [out, in]."""
    return name.endswith("output_weights")


def _reference_shape(name: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    if _is_projection(name):
        return shape[::-1]
    if "/attention/self/" in name:
        return (*shape[:-2], shape[-2] * shape[-1]) if name.endswith("bias") else _fold(shape, 1)
    if name.endswith("/attention/output/dense/kernel"):
        return _fold(shape[::-1], 1)[::-1]
    return shape


def _fold(shape: tuple[int, ...], kept: int) -> tuple[int, ...]:
    """Merge all but the first `kept` dimensions."""
    return (*shape[:kept], int(np.prod(shape[kept:])))


def _config_of(shapes: dict[str, tuple[int, ...]], prefix: str) -> BertConfig:
    """Infer the sizes from the stored shapes."""
    layers = {int(m[1]) for name in shapes if (m := re.match(r"bert/encoder/layer_(\d+)/", name))}
    vocab_size, width = shapes["bert/embeddings/word_embeddings"]
    query = shapes.get("bert/encoder/layer_0/attention/self/query/kernel", ())
    if len(query) != 3 or width != query[0]:
        raise ValueError(
            f"{prefix}: the word embeddings are {width} wide, and the kernel of the first query is "
            f"{list(query)}: not a whole BERT, but perhaps an ALBERT or ELECTRA."
        )
    return BertConfig(
        vocab_size=vocab_size,
        hidden_size=query[0],
        num_hidden_layers=max(layers) + 1,
        num_attention_heads=query[1],
        intermediate_size=shapes["bert/encoder/layer_0/intermediate/dense/kernel"][1],
        max_position_embeddings=shapes["bert/embeddings/position_embeddings"][0],
        type_vocab_size=shapes["bert/embeddings/token_type_embeddings"][0],
    )
