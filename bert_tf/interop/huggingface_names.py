"""Names of a BERT's tensors in Hugging Face's files and in the reference's checkpoints."""

from __future__ import annotations

# Not weights: numbers 0, 1, 2, ... and zeros that older versions stored with the model.
BUFFERS = frozenset({"embeddings.position_ids", "embeddings.token_type_ids"})

# The same tensor under a second name, because the masked-LM head shares it -> its first name.
ALIASES = {
    "cls.predictions.decoder.weight": "embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}

# Beside model.safetensors in what we write: the pooler of a model whose class there has none (spans,
# tokens, masked words). The reference's checkpoints have one for every head.
POOLER_FILE = "pooler.safetensors"

_LAYER_DENSES = (
    "attention.self.query",
    "attention.self.key",
    "attention.self.value",
    "attention.output.dense",
    "intermediate.dense",
    "output.dense",
)
_LAYER_NORMS = ("attention.output.LayerNorm", "output.LayerNorm")

# Linear layers that the reference stores as they are, [out, in].
_PROJECTIONS = {
    "cls.seq_relationship": "cls/seq_relationship/",
    "qa_outputs": "cls/squad/",
    # Of sentences, of tokens, and of choices: which of them, the configuration's `architectures` say.
    "classifier": "",
}


def name_pairs(num_hidden_layers: int) -> dict[str, tuple[str, bool]]:
    """Hugging Face's name, without "bert." -> (the reference's name, whether to transpose).

    >>> name_pairs(1)["encoder.layer.0.output.dense.weight"]
    ('bert/encoder/layer_0/output/dense/kernel', True)
    """
    pairs: dict[str, tuple[str, bool]] = {}

    def dense(theirs: str, ours: str) -> None:
        pairs[f"{theirs}.weight"] = (f"{ours}/kernel", True)
        pairs[f"{theirs}.bias"] = (f"{ours}/bias", False)

    def norm(theirs: str, ours: str) -> None:
        pairs[f"{theirs}.weight"] = (f"{ours}/gamma", False)
        pairs[f"{theirs}.bias"] = (f"{ours}/beta", False)

    for table in ("word_embeddings", "position_embeddings", "token_type_embeddings"):
        pairs[f"embeddings.{table}.weight"] = (f"bert/embeddings/{table}", False)
    norm("embeddings.LayerNorm", "bert/embeddings/LayerNorm")
    for index in range(num_hidden_layers):
        theirs, ours = f"encoder.layer.{index}.", f"bert/encoder/layer_{index}/"
        for part in _LAYER_DENSES:
            dense(theirs + part, ours + part.replace(".", "/"))
        for part in _LAYER_NORMS:
            norm(theirs + part, ours + part.replace(".", "/"))
    dense("pooler.dense", "bert/pooler/dense")

    dense("cls.predictions.transform.dense", "cls/predictions/transform/dense")
    norm("cls.predictions.transform.LayerNorm", "cls/predictions/transform/LayerNorm")
    pairs["cls.predictions.bias"] = ("cls/predictions/output_bias", False)
    for theirs, ours in _PROJECTIONS.items():
        pairs[f"{theirs}.weight"] = (f"{ours}output_weights", False)
        pairs[f"{theirs}.bias"] = (f"{ours}output_bias", False)
    return pairs


def modern_name(name: str) -> str:
    """A tensor's name as an encoder without a head is stored today.

    >>> modern_name("bert.embeddings.LayerNorm.gamma")
    'embeddings.LayerNorm.weight'
    """
    name = name.removeprefix("bert.")
    for old, new in ((".gamma", ".weight"), (".beta", ".bias")):
        if name.endswith(old):
            return name.removesuffix(old) + new
    return name
