"""Sections of the page of visualize: tokens that count for an answer, scores, attention heads.

Shapes: S sequence, N heads, L layers.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence

import numpy as np

from bert_tf.prediction.explanation import Attributions
from bert_tf.report.page import Section

_SPECIAL = ("[CLS]", "[SEP]", "[PAD]")


def attribution_section(tokens: Sequence[str], found: Attributions, output: str) -> Section:
    """Return the tokens of the input in the color of their value for an output.

    Args:
        output: name, such as "log-odds of good".
    """
    largest = np.argsort(-np.abs(found.values), kind="stable")[:12]
    order = [int(i) for i in largest if found.values[i]]
    rows = [[tokens[i], i, float(found.values[i])] for i in order]
    note = (
        f"Integrated gradients of the {output}. Blue tokens support it, orange tokens oppose it. The "
        f"values add up to {found.values.sum():+.3f}, from {found.baseline:.3f} with [MASK] instead of "
        f"every word to {found.output:.3f} (error of the sum: {found.gap:+.4f}). Point at a token for "
        "its value."
    )
    parts = [
        {"kind": "tokens", "tokens": list(tokens), "values": found.values.tolist()},
        {"kind": "signed_bars", "label": "Contribution of the strongest tokens", "rows": rows},
    ]
    return Section("Contribution of each token", parts, note, wide=True)


def span_section(
    tokens: Sequence[str],
    start: np.ndarray,
    end: np.ndarray,
    chosen: tuple[int, int] | None,
) -> Section:
    """Return the probabilities of each token to be the first or the last of the answer.

    Args:
        start, end: float [S], of this window; each adds up to 1.
        chosen: first and last position of the answer; None if this window has no answer.
    """
    note = (
        "Probability of each token to be the first (blue) and the last (orange) of the answer, in this "
        "window. The shaded tokens are the answer."
    )
    part = {
        "kind": "span",
        "tokens": list(tokens),
        "start": start.tolist()[: len(tokens)],
        "end": end.tolist()[: len(tokens)],
        "chosen": chosen,
    }
    return Section("Start and end of the answer", [part], note, wide=True)


def opening_head(tokens: Sequence[str], probabilities: np.ndarray) -> list[int]:
    """Return layer and head whose words point most clearly at different words that are not next to them.

    Other heads often point at one token, such as [CLS], or at the word before.

    Args:
        probabilities: float [L, N, S, S].
    """
    is_word = np.array([t not in _SPECIAL and any(map(str.isalnum, t)) for t in tokens])
    positions = np.arange(len(tokens))
    apart = np.outer(is_word, is_word) & (np.abs(positions[:, None] - positions) > 1)
    beyond_mean = probabilities - probabilities.mean(axis=2, keepdims=True)
    found = (beyond_mean * apart).max(axis=3).sum(axis=2)
    return [int(index) for index in np.unravel_index(found.argmax(), found.shape)]


def attention_section(tokens: Sequence[str], probabilities: np.ndarray) -> Section:
    """Return all heads of all layers as small pictures, with the chosen head large.

    Args:
        probabilities: float [L, N, S, S]. The page has them in 255 steps.
    """
    num_layers, num_heads = probabilities.shape[:2]
    levels = np.round(np.clip(probabilities, 0, 1) * 255).astype(np.uint8)
    part = {
        "kind": "attention",
        "tokens": list(tokens),
        "layers": num_layers,
        "heads": num_heads,
        "opening": opening_head(tokens, probabilities),
        "levels": base64.b64encode(levels.tobytes()).decode("ascii"),
    }
    note = (
        "Each small picture is a head. A row shows the attention of one token to the tokens of the "
        "columns. Choose a head to enlarge it: lines connect a token on the left with the tokens on the "
        "right that it attends to. Point at a token to see only its lines, click to keep them. The "
        "arrow keys move between heads. The page opens on the head whose words point most clearly at "
        "different words that are not next to them."
    )
    return Section("Attention", [part], note, wide=True)
