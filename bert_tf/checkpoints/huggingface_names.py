"""Names of the tensors of a BERT and its heads: Hugging Face's and the reference's."""

from __future__ import annotations

from typing import NamedTuple

# Not weights: numbers 0, 1, 2, ... and zeros that older versions stored with the model.
BUFFERS = frozenset({"embeddings.position_ids", "embeddings.token_type_ids"})

# Second name of a tensor that the masked-LM head shares -> its first name.
ALIASES = {
    "cls.predictions.decoder.weight": "embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}


class TensorName(NamedTuple):
    """Hugging Face's name without "bert.", the reference's, and whether to transpose."""

    theirs: str
    ours: str
    transposed: bool = False


# Suffixes of the names in a module: Hugging Face's, the reference's, and whether to transpose.
_DENSE = (("weight", "kernel", True), ("bias", "bias", False))
_NORM = (("weight", "gamma", False), ("bias", "beta", False))
_HEAD = (("weight", "output_weights", False), ("bias", "output_bias", False))
_TABLE = (("weight", "", False),)
# Prefixes, with "{}" for the number of a layer.
_MODULES = (
    ("embeddings.word_embeddings", "bert/embeddings/word_embeddings", _TABLE),
    ("embeddings.position_embeddings", "bert/embeddings/position_embeddings", _TABLE),
    ("embeddings.token_type_embeddings", "bert/embeddings/token_type_embeddings", _TABLE),
    ("embeddings.LayerNorm", "bert/embeddings/LayerNorm", _NORM),
    *(
        (f"encoder.layer.{{}}.{part}", f"bert/encoder/layer_{{}}/{part.replace('.', '/')}", ends)
        for part, ends in (
            ("attention.self.query", _DENSE),
            ("attention.self.key", _DENSE),
            ("attention.self.value", _DENSE),
            ("attention.output.dense", _DENSE),
            ("attention.output.LayerNorm", _NORM),
            ("intermediate.dense", _DENSE),
            ("output.dense", _DENSE),
            ("output.LayerNorm", _NORM),
        )
    ),
    ("pooler.dense", "bert/pooler/dense", _DENSE),
    ("cls.predictions.transform.dense", "cls/predictions/transform/dense", _DENSE),
    ("cls.predictions.transform.LayerNorm", "cls/predictions/transform/LayerNorm", _NORM),
    ("cls.predictions", "cls/predictions", (("bias", "output_bias", False),)),
    ("cls.seq_relationship", "cls/seq_relationship", _HEAD),
    ("qa_outputs", "cls/squad", _HEAD),
    # Sentences, tokens or choices, depending on the configuration's `architectures`.
    ("classifier", "", _HEAD),
)


def name_table(num_hidden_layers: int) -> tuple[TensorName, ...]:
    """Return the names of all tensors of a BERT and its heads, for reading and for writing.

    >>> name_table(2)[-1]
    TensorName(theirs='classifier.bias', ours='output_bias', transposed=False)
    """
    return tuple(
        TensorName(
            f"{theirs}.{end}".format(layer), f"{ours}/{our_end}".format(layer).strip("/"), flip
        )
        for theirs, ours, ends in _MODULES
        for layer in (range(num_hidden_layers) if "{}" in theirs else (0,))
        for end, our_end, flip in ends
    )


def modern_name(name: str) -> str:
    """Return a tensor's name as in a new file of an encoder without a head.

    >>> modern_name("bert.embeddings.LayerNorm.gamma")
    'embeddings.LayerNorm.weight'
    """
    name = name.removeprefix("bert.")
    for old, new in ((".gamma", ".weight"), (".beta", ".bias")):
        if name.endswith(old):
            return name.removesuffix(old) + new
    return name
