"""BERT in plain NumPy: the answer that bert_tf must give, written so that one can see it is right.

Independent of bert_tf on purpose: stated from Devlin et al. 2019 and the behaviour of
google-research/bert (modeling.py, run_pretraining.py, run_classifier.py, run_squad.py), in float64,
one example and one head at a time, without dropout. Obvious comes before fast.

`config` is any object with the fields of BertConfig. `variables` maps the names of a TF1 checkpoint
to arrays; kernels are stored [in, out], the weights of the heads [out, in].

Shapes: B batch, S sequence (F from, T to), N heads, D size per head, H = N*D, I intermediate,
V vocabulary, P masked-LM predictions, K choices, L labels.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

Variables = Mapping[str, np.ndarray]


# ---- Small parts -------------------------------------------------------------------------------


def gelu_tanh(x: np.ndarray) -> np.ndarray:
    """x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3))): what the reference calls "gelu"."""
    return 0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))


def gelu_erf(x: np.ndarray) -> np.ndarray:
    """x times the standard normal's distribution function at x, exactly."""
    return 0.5 * x * (1.0 + np.vectorize(math.erf, otypes=[np.float64])(x / math.sqrt(2.0)))


ACTIVATIONS = {
    "gelu": gelu_tanh,
    "gelu_erf": gelu_erf,
    "relu": lambda x: np.maximum(x, 0.0),
    "tanh": np.tanh,
    "linear": lambda x: x,
}


def softmax(x: np.ndarray) -> np.ndarray:
    """Over the last axis."""
    exponentials = np.exp(x - x.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def layer_norm(x: np.ndarray, gamma: np.ndarray, beta: np.ndarray, epsilon: float) -> np.ndarray:
    """(x - mean) / sqrt(variance + epsilon) * gamma + beta, over the last axis."""
    mean = x.mean(axis=-1, keepdims=True)
    variance = ((x - mean) ** 2).mean(axis=-1, keepdims=True)
    return (x - mean) / np.sqrt(variance + epsilon) * gamma + beta


def _variable(variables: Variables, name: str) -> np.ndarray:
    return np.asarray(variables[name], np.float64)


def _dense(variables: Variables, scope: str, x: np.ndarray) -> np.ndarray:
    return x @ _variable(variables, f"{scope}/kernel") + _variable(variables, f"{scope}/bias")


def _layer_norm(config: Any, variables: Variables, scope: str, x: np.ndarray) -> np.ndarray:
    gamma = _variable(variables, f"{scope}/gamma")
    beta = _variable(variables, f"{scope}/beta")
    return layer_norm(x, gamma, beta, config.layer_norm_eps)


# ---- Encoder -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class EncoderOutput:
    """What the encoder computes for a batch, in float64.

    Attributes:
        embedding_output: [B, S, H], after LayerNorm.
        all_encoder_layers: one [B, S, H] per transformer block, first block first.
        sequence_output: [B, S, H], the last of them.
        pooled_output: [B, H].
        attention_probs: one [B, N, F, T] per transformer block; rows sum to 1.
    """

    embedding_output: np.ndarray
    all_encoder_layers: list[np.ndarray]
    sequence_output: np.ndarray
    pooled_output: np.ndarray
    attention_probs: list[np.ndarray]


def encode(
    config: Any,
    variables: Variables,
    input_ids: np.ndarray,
    input_mask: np.ndarray | None = None,
    segment_ids: np.ndarray | None = None,
) -> EncoderOutput:
    """Runs the encoder and the pooler.

    Args:
        input_ids: int [B, S].
        input_mask: int [B, S], 1 = real, 0 = padding; default all real, as in the reference.
        segment_ids: int [B, S]; default all 0, as in the reference.

    If `config.attention_direction` is "left_to_right", a token attends to itself and those before it,
    and the pooler stands on the last real token.
    """
    input_ids = np.asarray(input_ids)
    input_mask = np.ones_like(input_ids) if input_mask is None else np.asarray(input_mask)
    segment_ids = np.zeros_like(input_ids) if segment_ids is None else np.asarray(segment_ids)
    examples = [
        _encode_example(config, variables, *example)
        for example in zip(input_ids, input_mask, segment_ids, strict=True)
    ]
    embeddings, layers, probs, pooled = zip(*examples, strict=True)
    all_encoder_layers = [np.stack(layer) for layer in zip(*layers, strict=True)]
    return EncoderOutput(
        embedding_output=np.stack(embeddings),
        all_encoder_layers=all_encoder_layers,
        sequence_output=all_encoder_layers[-1],
        pooled_output=np.stack(pooled),
        attention_probs=[np.stack(layer) for layer in zip(*probs, strict=True)],
    )


def _encode_example(
    config: Any,
    variables: Variables,
    input_ids: np.ndarray,
    input_mask: np.ndarray,
    segment_ids: np.ndarray,
) -> tuple[np.ndarray, list[np.ndarray], list[np.ndarray], np.ndarray]:
    """One example: embeddings [S, H], layers of [S, H], probabilities [N, F, T], pooled [H]."""
    words = _variable(variables, "bert/embeddings/word_embeddings")  # [V, H]
    segments = _variable(variables, "bert/embeddings/token_type_embeddings")
    positions = _variable(variables, "bert/embeddings/position_embeddings")
    rows = [
        words[input_ids[s]] + segments[segment_ids[s]] + positions[s] for s in range(len(input_ids))
    ]
    embedding_output = _layer_norm(config, variables, "bert/embeddings/LayerNorm", np.stack(rows))

    hidden, layers, probs = embedding_output, [], []
    for i in range(config.num_hidden_layers):
        hidden, layer_probs = _transformer_block(
            config, variables, f"bert/encoder/layer_{i}", hidden, input_mask
        )
        layers.append(hidden)
        probs.append(layer_probs)
    summary = 0  # where [CLS] stands
    if _is_left_to_right(config):
        summary = max((s for s in range(len(input_ids)) if input_mask[s]), default=0)
    pooled_output = np.tanh(_dense(variables, "bert/pooler/dense", hidden[summary]))
    return embedding_output, layers, probs, pooled_output


def _is_left_to_right(config: Any) -> bool:
    return getattr(config, "attention_direction", "bidirectional") == "left_to_right"


def _transformer_block(
    config: Any, variables: Variables, scope: str, hidden: np.ndarray, input_mask: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Self-attention and feed-forward, each added to its input and normalized after (post-LN)."""
    query = _dense(variables, f"{scope}/attention/self/query", hidden)  # [F, H]
    key = _dense(variables, f"{scope}/attention/self/key", hidden)  # [T, H]
    value = _dense(variables, f"{scope}/attention/self/value", hidden)  # [T, H]
    # -10000 is added where the key is padding: not minus infinity, so that a row without any real
    # token is still an ordinary softmax of its scores.
    adder = np.tile((1.0 - input_mask) * -10000.0, (len(hidden), 1))  # [F, T]
    if _is_left_to_right(config):
        for f in range(len(hidden)):
            adder[f, f + 1 :] = -10000.0
    size_per_head = config.hidden_size // config.num_attention_heads
    contexts, probs = [], []
    for n in range(config.num_attention_heads):
        head = slice(n * size_per_head, (n + 1) * size_per_head)
        scores = query[:, head] @ key[:, head].T / math.sqrt(size_per_head) + adder  # [F, T]
        probs.append(softmax(scores))
        contexts.append(probs[-1] @ value[:, head])  # [F, D]
    context = np.concatenate(contexts, axis=-1)  # [F, H]

    attention_output = _layer_norm(
        config,
        variables,
        f"{scope}/attention/output/LayerNorm",
        _dense(variables, f"{scope}/attention/output/dense", context) + hidden,
    )
    activation = ACTIVATIONS[config.hidden_act]
    intermediate = activation(_dense(variables, f"{scope}/intermediate/dense", attention_output))
    layer_output = _layer_norm(
        config,
        variables,
        f"{scope}/output/LayerNorm",
        _dense(variables, f"{scope}/output/dense", intermediate) + attention_output,
    )
    return layer_output, np.stack(probs)


# ---- Heads -------------------------------------------------------------------------------------


def masked_lm_logits(
    config: Any, variables: Variables, sequence_output: np.ndarray, masked_lm_positions: np.ndarray
) -> np.ndarray:
    """Scores of every vocabulary entry at the masked positions, float64 [B, P, V].

    Args:
        sequence_output: [B, S, H].
        masked_lm_positions: int [B, P]; unused slots point at position 0.
    """
    words = _variable(variables, "bert/embeddings/word_embeddings")
    bias = _variable(variables, "cls/predictions/output_bias")
    scope = "cls/predictions/transform"
    logits = []
    for hidden, positions in zip(sequence_output, masked_lm_positions, strict=True):
        activation = ACTIVATIONS[config.hidden_act]
        transformed = activation(_dense(variables, f"{scope}/dense", hidden[positions]))  # [P, H]
        transformed = _layer_norm(config, variables, f"{scope}/LayerNorm", transformed)
        logits.append(transformed @ words.T + bias)  # [P, V]; the embeddings are tied
    return np.stack(logits)


def next_sentence_logits(variables: Variables, pooled_output: np.ndarray) -> np.ndarray:
    """[B, 2]; index 0 = is the next sentence, 1 = a random one."""
    return _output_layer(variables, "cls/seq_relationship/", pooled_output)


def classifier_logits(variables: Variables, pooled_output: np.ndarray) -> np.ndarray:
    """[B, L]."""
    return _output_layer(variables, "", pooled_output)


def token_classifier_logits(variables: Variables, sequence_output: np.ndarray) -> np.ndarray:
    """[B, S, L]."""
    return _output_layer(variables, "", sequence_output)


def span_logits(variables: Variables, sequence_output: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(start_logits [B, S], end_logits [B, S]); padding is not masked, as in the reference."""
    logits = _output_layer(variables, "cls/squad/", sequence_output)  # [B, S, 2]
    return logits[..., 0], logits[..., 1]


def multiple_choice_logits(
    config: Any,
    variables: Variables,
    input_ids: np.ndarray,
    input_mask: np.ndarray,
    segment_ids: np.ndarray,
) -> np.ndarray:
    """Score of each choice, [B, K]: one vector times each choice's pooled output (paper, SWAG).

    Args:
        input_ids, input_mask, segment_ids: int [B, K, S].
    """
    rows = []
    for example in zip(input_ids, input_mask, segment_ids, strict=True):
        pooled_output = encode(config, variables, *example).pooled_output  # [K, H]
        rows.append(_output_layer(variables, "", pooled_output)[:, 0])
    return np.stack(rows)


def _output_layer(variables: Variables, scope: str, x: np.ndarray) -> np.ndarray:
    """x @ output_weights^T + output_bias; a head without a bias variable has none."""
    logits = x @ _variable(variables, f"{scope}output_weights").T
    bias_name = f"{scope}output_bias"
    return logits + _variable(variables, bias_name) if bias_name in variables else logits


# ---- Variables ---------------------------------------------------------------------------------


def variable_shapes(
    config: Any, heads: Iterable[str] = (), num_labels: int = 3
) -> dict[str, tuple[int, ...]]:
    """Every TF1 variable name with its shape, in the order in which the graph creates them."""
    hidden, inner = config.hidden_size, config.intermediate_size
    shapes = {
        "bert/embeddings/word_embeddings": (config.vocab_size, hidden),
        "bert/embeddings/token_type_embeddings": (config.type_vocab_size, hidden),
        "bert/embeddings/position_embeddings": (config.max_position_embeddings, hidden),
        **_norm_shapes("bert/embeddings/LayerNorm", hidden),
    }
    for i in range(config.num_hidden_layers):
        scope = f"bert/encoder/layer_{i}"
        for name in ("query", "key", "value"):
            shapes |= _dense_shapes(f"{scope}/attention/self/{name}", hidden, hidden)
        shapes |= _dense_shapes(f"{scope}/attention/output/dense", hidden, hidden)
        shapes |= _norm_shapes(f"{scope}/attention/output/LayerNorm", hidden)
        shapes |= _dense_shapes(f"{scope}/intermediate/dense", hidden, inner)
        shapes |= _dense_shapes(f"{scope}/output/dense", inner, hidden)
        shapes |= _norm_shapes(f"{scope}/output/LayerNorm", hidden)
    shapes |= _dense_shapes("bert/pooler/dense", hidden, hidden)
    head_shapes = {
        "masked_lm": {
            "cls/predictions/output_bias": (config.vocab_size,),
            **_dense_shapes("cls/predictions/transform/dense", hidden, hidden),
            **_norm_shapes("cls/predictions/transform/LayerNorm", hidden),
        },
        "next_sentence": _output_shapes("cls/seq_relationship/", 2, hidden),
        "classifier": _output_shapes("", num_labels, hidden),
        "token_classifier": _output_shapes("", num_labels, hidden),
        "span": _output_shapes("cls/squad/", 2, hidden),
        "multiple_choice": {"output_weights": (1, hidden)},
    }
    for head in heads:
        clash = shapes.keys() & head_shapes[head].keys()
        assert not clash, f"two of the heads {list(heads)} own {sorted(clash)}"
        shapes |= head_shapes[head]
    return shapes


def random_variables(
    config: Any, seed: int, heads: Iterable[str] = (), num_labels: int = 3
) -> dict[str, np.ndarray]:
    """float32 arrays under the TF1 names, far enough from 0 and 1 that a mistake shows.

    Kernels have a standard deviation of 1/sqrt(fan in), embeddings 0.5, biases and beta 0.3; gamma
    is 1 +- 0.3. So attention is neither uniform nor one-hot, and no bias can be forgotten unseen.

    Args:
        heads: names in `variable_shapes`; of "classifier", "token_classifier" and "multiple_choice"
            at most one, because their variables have the same names.
        num_labels: L of the classifiers.
    """
    rng = np.random.default_rng(seed)
    arrays = {}
    for name, shape in variable_shapes(config, heads, num_labels).items():
        noise = rng.standard_normal(shape)
        if name.endswith("/kernel"):
            array = noise / math.sqrt(shape[0])
        elif name.endswith("output_weights"):
            array = noise / math.sqrt(shape[1])
        elif name.endswith("_embeddings"):
            array = 0.5 * noise
        elif name.endswith("/gamma"):
            array = 1.0 + 0.3 * noise
        else:
            array = 0.3 * noise
        arrays[name] = array.astype(np.float32)
    return arrays


def _dense_shapes(scope: str, fan_in: int, fan_out: int) -> dict[str, tuple[int, ...]]:
    return {f"{scope}/kernel": (fan_in, fan_out), f"{scope}/bias": (fan_out,)}


def _norm_shapes(scope: str, size: int) -> dict[str, tuple[int, ...]]:
    return {f"{scope}/beta": (size,), f"{scope}/gamma": (size,)}


def _output_shapes(scope: str, num_outputs: int, hidden: int) -> dict[str, tuple[int, ...]]:
    return {
        f"{scope}output_weights": (num_outputs, hidden),
        f"{scope}output_bias": (num_outputs,),
    }
