"""Parts of an encoder by the paths of their variables: smaller rates for lower layers, and freezing."""

from __future__ import annotations

import re

import keras

from bert_tf.options import OptionError


def layer_learning_rate_factors(num_hidden_layers: int, decay: float) -> dict[str, float]:
    """Return smaller rates for layers nearer to the input: part of a path -> fraction of the rate.

    Layer i of L gets decay^(L - i) and the embeddings get decay^(L + 1). Pooler and heads keep the
    full rate.

    These are the powers of BEiT (microsoft/unilm, beit/run_class_finetuning.py). ELECTRA has one more
    below its heads: decay^2 for the last layer, decay^(L + 2) for the embeddings.

    Source: google-research/electra, model/optimization.py, `_get_layer_lrs`.

    >>> layer_learning_rate_factors(num_hidden_layers=2, decay=0.5)
    {'/embeddings/': 0.125, '/layer_0/': 0.25, '/layer_1/': 0.5}
    """
    factors = {_part_of_path("embeddings"): decay ** (num_hidden_layers + 1)}
    for layer in range(num_hidden_layers):
        factors[_part_of_path(layer)] = decay ** (num_hidden_layers - layer)
    return factors


def parse_frozen(text: str) -> tuple[str | tuple[int, int], ...]:
    """Parse a list of frozen parts; the number of layers is checked later, by `freeze`.

    >>> parse_frozen("embeddings, 0-5, 7")
    ('embeddings', (0, 5), (7, 7))

    Raises:
        OptionError: a part is not "embeddings", "encoder", "pooler", a layer, or a range of layers.
    """
    parts: list[str | tuple[int, int]] = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        layers = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
        if layers and int(layers[1]) <= int(layers[2] or layers[1]):
            parts.append((int(layers[1]), int(layers[2] or layers[1])))
        elif part in ("embeddings", "encoder", "pooler"):
            parts.append(part)
        else:
            text = f"{part!r} is none of embeddings, encoder, pooler, and layers such as 7 or 0-5."
            raise OptionError("freeze", text)
    return tuple(parts)


def freeze(model: keras.Model, text: str, num_hidden_layers: int) -> list[str]:
    """Exclude parts of the encoder from training. Checkpoints contain them, without moments.

    Args:
        model: with a `BertModel` in it.
        text: list for `parse_frozen`, such as "embeddings,0-5"; layers are counted from 0.

    Returns:
        Paths of the frozen variables.

    Raises:
        OptionError: a part or layer does not exist.
    """
    wanted: list[str] = []
    for part in parse_frozen(text):
        if isinstance(part, tuple):
            first, last = part
            if last >= num_hidden_layers:
                text = f"layer {last} does not exist: the last one is {num_hidden_layers - 1}."
                raise OptionError("freeze", text)
            wanted += [_part_of_path(layer) for layer in range(first, last + 1)]
        else:
            wanted.append(_part_of_path(part))
    frozen = [v for v in model.weights if any(part in v.path for part in wanted)]
    for variable in frozen:
        variable.trainable = False
    return [variable.path for variable in frozen]


def _part_of_path(part: str | int) -> str:
    """Return the substring that only the paths of this part of the encoder contain."""
    return f"/layer_{part}/" if isinstance(part, int) else f"/{part}/"
