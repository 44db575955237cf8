"""visualize: one page on the attention of a model and the reasons for its answer to one input."""

from __future__ import annotations

import base64
import logging
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.files import write_text
from bert_tf.modeling.bert import BertModel
from bert_tf.options import option
from bert_tf.packing import PackedSequence
from bert_tf.prediction.classification import ClassificationPredictor
from bert_tf.prediction.encoder import EmbeddingPredictor
from bert_tf.prediction.loading import TrainedModel, load_model, with_settings
from bert_tf.prediction.multiple_choice import MultipleChoicePredictor
from bert_tf.prediction.predictor import Predictor
from bert_tf.prediction.text_model import without_padding
from bert_tf.report.page import Section, page
from bert_tf.tasks.base import MIN_SEQ_LENGTH
from bert_tf.tokenization import FullTokenizer, pack_texts

logger = logging.getLogger(__name__)

_SEPARATOR = " ||| "
_NUM_POINTS, _POINTS_AT_ONCE = 64, 16  # of integrated gradients

Values = dict[str, str]  # the answer in a few words
View = tuple[PackedSequence, Values, list[Section]]  # the input without padding, and its answer


@dataclass(frozen=True, kw_only=True)
class VisualizationOptions:
    model_dir: str = option(
        "The --output_dir of run_classifier, run_squad, run_ner, run_swag or run_pretraining, or any "
        "checkpoint, of which there is attention alone.",
        group="Model",
    )
    text: str = option(
        "The input; ' ||| ' separates the sentences of a pair, a question and the text with its answer, "
        "and a text and its choices.",
        group="Data",
    )
    output_file: str = option("The page.", group="Data", default="visualization.html")
    label: str | None = option(
        "Of a classifier: the label that the tokens shall count for. Default: the one it predicts.",
        default=None,
    )
    max_seq_length: int = option(
        "Cut the input to so many tokens, if the model would read more. The page grows with the square.",
        group="Model",
        default=128,
        min=MIN_SEQ_LENGTH,
    )


def visualize(options: VisualizationOptions, trained: TrainedModel | None = None) -> None:
    """Write the page of `trained`, by default the model in `model_dir`."""
    trained = trained or load_model(options.model_dir)
    length = min(options.max_seq_length, trained.max_seq_length)
    trained = with_settings(trained, length)
    sequence, values, sections = view(trained, options.text, options.label)
    values["tokens"] = f"{len(sequence.input_ids)}, at most {length}"
    tokens = trained.tokenizer.convert_ids_to_tokens(sequence.input_ids)
    bert = getattr(trained.model, "bert", trained.model)
    sections.append(_attention_section(tokens, attention(bert, sequence)))
    title = textwrap.shorten(options.text.replace(_SEPARATOR, " | "), 120, placeholder="…")
    write_text(options.output_file, page(title, values, sections))
    logger.info("Wrote %s: open it in a browser", options.output_file)


def view(trained: TrainedModel, text: str, label: str | None = None) -> View:
    """Return the input as the model reads it, its answer, and the sections before the attention."""
    text_a, *others = text.split(_SEPARATOR)
    if isinstance(trained.model, BertModel):
        return _pack(trained, trained.tokenizer, text_a, *others[:1]), {}, []
    model: Any = Predictor(trained).text_model
    item = model.parse_line(text.replace(_SEPARATOR, "\t"))
    if isinstance(model, EmbeddingPredictor):
        return model.prepare(item), {}, []
    (answer,) = model.predict([item])
    values, sections = {"answer": model.short(answer) or "none"}, []
    if isinstance(model, MultipleChoicePredictor):
        others = [answer["choice"]]
    sequence = _pack(trained, model.tokenizer, text_a, *others[:1])
    if isinstance(model, ClassificationPredictor):
        values |= {name: f"{p:.1%}" for name, p in answer.get("probabilities", {}).items()}
        sections = [_label_section(model, trained, sequence, answer, label)]
    return sequence, values, sections


def _pack(
    trained: TrainedModel, tokenizer: FullTokenizer, text_a: str, text_b: str | None = None
) -> PackedSequence:
    return without_padding(pack_texts(tokenizer, text_a, text_b, trained.max_seq_length))


def _label_section(
    model: ClassificationPredictor,
    trained: TrainedModel,
    sequence: PackedSequence,
    answer: dict[str, Any],
    label: str | None,
) -> Section:
    """Return the tokens of the input in the color of their value for a label, or for the number."""
    index, name = 0, "score"
    if labels := model.task.labels:
        label = label or max(answer["probabilities"], key=answer["probabilities"].get)
        index, name = list(labels).index(label), f"log-odds of {label}"

    def output_of(inputs):
        logits = trained.model(inputs, training=False)["logits"]
        if model.task.kind.name != "single_label":
            return logits[:, index]
        rest = tf.concat([logits[:, :index], logits[:, index + 1 :]], axis=1)
        return logits[:, index] - tf.reduce_logsumexp(rest, axis=1)

    result = attributions(trained.model.bert, sequence, trained.tokenizer, output_of)
    tokens = trained.tokenizer.convert_ids_to_tokens(sequence.input_ids)
    largest = np.argsort(-np.abs(result.values), kind="stable")[:12]
    rows = [[tokens[i], int(i), float(result.values[i])] for i in largest if result.values[i]]
    note = (
        f"Integrated gradients of the {name}. Blue tokens support it, orange tokens oppose it. The "
        f"values add up to {result.values.sum():+.3f}, from {result.baseline:.3f} with [MASK] instead "
        f"of every word to {result.output:.3f}. Point at a token for its value."
    )
    parts = [
        {"kind": "tokens", "tokens": tokens, "values": result.values.tolist()},
        {"kind": "signed_bars", "label": "Contribution of the strongest tokens", "rows": rows},
    ]
    return Section("Contribution of each token", parts, note, wide=True)


def _attention_section(tokens: Sequence[str], probabilities: np.ndarray) -> Section:
    """Return all heads of all layers as small pictures; `probabilities` is [layer, head, from, to]."""
    num_layers, num_heads = probabilities.shape[:2]
    levels = np.round(np.clip(probabilities, 0, 1) * 255).astype(np.uint8)
    part = {
        "kind": "attention",
        "tokens": list(tokens),
        "layers": num_layers,
        "heads": num_heads,
        "levels": base64.b64encode(levels.tobytes()).decode("ascii"),
    }
    note = (
        "Each small picture is a head. A row shows the attention of one token to the tokens of the "
        "columns. Choose a head to enlarge it: lines connect a token on the left with the tokens on the "
        "right that it attends to. Point at a token to see only its lines, click to keep them. The "
        "arrow keys move between heads."
    )
    return Section("Attention", [part], note, wide=True)


@dataclass(frozen=True)
class Attributions:
    """Contribution of each token [S] to an output, and that of the input and of the baseline."""

    values: np.ndarray
    output: float
    baseline: float


def attention(bert: BertModel, sequence: PackedSequence) -> np.ndarray:
    """Return the attention probabilities of one input without padding, float32 [L, N, S, S].

    `[layer, head, f, t]` is the weight of position t for position f. Each row sums to 1.
    """
    previous, bert.output_attentions = bert.output_attentions, True
    try:
        probabilities = bert(_batch_of_one(sequence), training=False)["attention_probs"]
    finally:
        bert.output_attentions = previous
    return np.stack([tf.cast(layer, tf.float32).numpy()[0] for layer in probabilities])


def attributions(
    bert: BertModel,
    sequence: PackedSequence,
    tokenizer: FullTokenizer,
    output_of: Callable[[dict], tf.Tensor],
) -> Attributions:
    """Return integrated gradients (Sundararajan et al. 2017) of one output by the tokens of one input.

        attribution_t = sum over H of (x_t - b_t) * mean over the path of d output / d x_t

    The path is the straight line in the space of the embeddings, from a baseline b to the input x. The
    baseline has [MASK] instead of every token but [CLS] and [SEP]. The path is sampled at 64
    Gauss-Legendre points. `output_of` is a function of the model's inputs [B, S], its result [B].
    """
    inputs = _batch_of_one(sequence)

    def embed(input_ids: tf.Tensor) -> tf.Tensor:
        return tf.cast(
            bert.embeddings(input_ids, inputs["segment_ids"], training=False), tf.float32
        )

    embedded = embed(inputs["input_ids"])  # [1, S, H]
    mask, *special = tokenizer.convert_tokens_to_ids(["[MASK]", "[CLS]", "[SEP]"])
    baseline = embed(tf.constant([[id if id in special else mask for id in sequence.input_ids]]))

    def outputs_at(points: tf.Tensor) -> tf.Tensor:
        repeated = {name: tf.repeat(value, len(points), axis=0) for name, value in inputs.items()}
        repeated["embedding_output"] = tf.cast(points, bert.compute_dtype)
        return tf.cast(output_of(repeated), tf.float32)  # [B]

    ends = outputs_at(tf.concat([embedded, baseline], axis=0)).numpy()
    difference = (embedded - baseline)[0].numpy().astype(np.float64)
    values = (difference * _mean_gradient(outputs_at, baseline, embedded)).sum(axis=-1)
    return Attributions(values, float(ends[0]), float(ends[1]))


def _mean_gradient(
    outputs_at: Callable[[tf.Tensor], tf.Tensor], baseline: tf.Tensor, embedded: tf.Tensor
) -> np.ndarray:
    """Return the mean gradient on the path from the baseline, float64 [S, H]."""
    nodes, weights = np.polynomial.legendre.leggauss(_NUM_POINTS)  # on [-1, 1], weights of sum 2
    nodes, weights = (nodes + 1) / 2, weights / 2
    total = np.zeros(embedded.shape[1:], np.float64)
    for first in range(0, _NUM_POINTS, _POINTS_AT_ONCE):
        fractions = tf.constant(nodes[first : first + _POINTS_AT_ONCE], tf.float32)[:, None, None]
        points = baseline + fractions * (embedded - baseline)  # [B, S, H]
        with tf.GradientTape() as tape:
            tape.watch(points)
            outputs = outputs_at(points)
        gradients = tape.gradient(outputs, points).numpy().astype(np.float64)
        total += np.tensordot(weights[first : first + _POINTS_AT_ONCE], gradients, axes=1)
    return total


def _batch_of_one(sequence: PackedSequence) -> dict[str, tf.Tensor]:
    return {name: tf.constant([values]) for name, values in sequence._asdict().items()}
