"""visualize: one page on the attention of a model and the reasons for its answer to one input.

The page needs nothing but a browser: no network, no library.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.data.files import write_text
from bert_tf.data.globs import check_not_an_input, files_of_checkpoint
from bert_tf.data.packing import PackedSequence, pack_texts
from bert_tf.metrics.basic import softmax
from bert_tf.model_folder import TrainedModel, load_model, with_settings
from bert_tf.modeling.bert import BertModel
from bert_tf.options import Options, option
from bert_tf.prediction.explanation import attention, attributions
from bert_tf.prediction.text_model import trimmed
from bert_tf.predictor import (
    ChoicePredictor,
    EntityRecognizer,
    MaskFiller,
    Predictor,
    QuestionAnswerer,
    SentenceEncoder,
    TextClassifier,
    TextModel,
    is_saved_model,
)
from bert_tf.report.attention_page import attention_section, attribution_section, span_section
from bert_tf.report.charts import table
from bert_tf.report.page import Section, page
from bert_tf.tasks.base import MIN_SEQ_LENGTH
from bert_tf.tasks.classification import ClassificationTask

logger = logging.getLogger(__name__)

_SEPARATOR = " ||| "


@dataclass(frozen=True, kw_only=True)
class VisualizationOptions(Options):
    """Flags of visualize."""

    model_dir: str = option(
        "The --output_dir of run_classifier, run_squad, run_ner, run_swag or run_pretraining, or any "
        "checkpoint, of which there is attention alone."
    )
    text: str = option(
        "The input; ' ||| ' separates the sentences of a pair, a question and the text with its answer, "
        "and a text and its choices."
    )
    output_file: str = option("The page.", default="visualization.html")
    label: str | None = option(
        "Of a classifier: the label that the tokens shall count for. Default: the one it predicts.",
        default=None,
    )
    max_seq_length: int = option(
        "Cut the input to so many tokens, if the model would read more. The page grows with the square.",
        default=128,
        min=MIN_SEQ_LENGTH,
    )


@dataclass(frozen=True)
class View:
    """Content of the page for one type of model.

    Args:
        sequence: the input, without padding.
        values: the answer in a few words.
        sections: of the page, before the attention.
        is_cut: True if the input was truncated.
    """

    sequence: PackedSequence
    values: dict[str, str]
    sections: Sequence[Section] = ()
    is_cut: bool = False


def visualize(options: VisualizationOptions) -> None:
    """Write the page.

    Raises:
        ValueError: the model is a SavedModel, does not take such an input, or lacks the label.
    """
    if is_saved_model(options.model_dir):
        raise ValueError(
            f"model_dir={options.model_dir} is a SavedModel, which shows nothing of its inside. Name "
            "the folder that it was exported from."
        )
    check_not_an_input([options.output_file], _files(options.model_dir))
    trained = load_model(options.model_dir)
    length = min(options.max_seq_length, trained.max_seq_length)
    trained = with_settings(trained, length)
    view = make_view(trained, options)
    values = dict(view.values)
    if view.is_cut:
        logger.warning(
            "The input was truncated to %d tokens for this page. A larger --max_seq_length shows more, "
            "up to the longest input of the model.",
            length,
        )
        values["truncated to"] = f"{length:,} tokens"
    tokens = trained.tokenizer.convert_ids_to_tokens(view.sequence.input_ids)
    heads = attention_section(tokens, attention(trained.model, view.sequence))
    title = " | ".join(options.text.split(_SEPARATOR))
    title = title if len(title) <= 120 else title[:119] + "…"
    sections = [*view.sections, heads]
    write_text(options.output_file, page(title, values, sections))
    logger.info("Wrote %s: open it in a browser", options.output_file)


def _files(model_dir: str) -> list[str]:
    return files_of_checkpoint(model_dir) if tf.io.gfile.isdir(model_dir) else []


def make_view(trained: TrainedModel, options: VisualizationOptions) -> View:
    """Return the answer of a model and the reasons for it."""
    if options.label and not isinstance(trained.task, ClassificationTask):
        raise ValueError(f"label={options.label} is for classifiers, not for this model. Omit it.")
    if isinstance(trained.model, BertModel):
        return _encoder_view(trained, options.text)
    model = Predictor(trained).text_model
    view = _view(model, trained, options)
    return replace(view, is_cut=view.is_cut or model.num_cut > 0)


@functools.singledispatch
def _view(model: TextModel, trained: TrainedModel, options: VisualizationOptions) -> View:
    """Return the view of a type of model."""
    raise ValueError(
        f"{trained.source} is a {type(model).__name__}, which has no view. Export or predict with it."
    )


def _item(model: TextModel, text: str) -> Any:
    return model.parse_line(text.replace(_SEPARATOR, "\t"))


def _encoder_view(trained: TrainedModel, text: str) -> View:
    text_a, _, text_b = text.partition(_SEPARATOR)
    sequence, is_cut = _packed(trained, text_a, text_b or None)
    return View(sequence, {"tokens": str(len(sequence.input_ids))}, is_cut=is_cut)


def _packed(
    trained: TrainedModel, text_a: str, text_b: str | None = None
) -> tuple[PackedSequence, bool]:
    """Return the sequence of a text or a pair, and whether it was cut."""
    packed = trimmed(pack_texts(trained.tokenizer, text_a, text_b, trained.max_seq_length))
    lengths = [len(trained.tokenizer.encode(text)) + 1 for text in (text_a, text_b) if text]
    return packed, 1 + sum(lengths) > len(packed.input_ids)


@_view.register
def _classifier_view(
    model: TextClassifier, trained: TrainedModel, options: VisualizationOptions
) -> View:
    windows = model.prepare(_item(model, options.text))
    (answer,) = model.answer([windows])
    values = {"answer": model.short(answer) or "no label"}
    values |= {name: f"{p:.1%}" for name, p in answer.get("probabilities", {}).items()}
    if len(windows) > 1:
        values["shown"] = f"the first of {len(windows)} windows"
    index, name = 0, "score"
    if model.labels:
        best = max(answer["probabilities"], key=answer["probabilities"].get)
        label = best if options.label is None else options.label
        if label not in model.labels:
            raise ValueError(f"label is {label}, but the labels are {', '.join(model.labels)}.")
        index, name = list(model.labels).index(label), f"log-odds of {label}"
    output_of = _log_odds(index) if model.problem_type == "single_label" else _logit(index)
    sequence = windows[0]
    found = attributions(trained.model, sequence, trained.tokenizer, output_of)
    tokens = trained.tokenizer.convert_ids_to_tokens(sequence.input_ids)
    return View(sequence, values, [attribution_section(tokens, found, name)])


def _logit(index: int) -> Callable[[dict], tf.Tensor]:
    return lambda outputs: outputs["logits"][:, index]


def _log_odds(index: int) -> Callable[[dict], tf.Tensor]:
    """Return a function for log(p / (1 - p)) of one of several labels."""

    def log_odds(outputs):
        logits = outputs["logits"]
        others = tf.concat([logits[:, :index], logits[:, index + 1 :]], axis=1)
        return logits[:, index] - tf.reduce_logsumexp(others, axis=1)

    return log_odds


@_view.register
def _question_view(
    model: QuestionAnswerer, trained: TrainedModel, options: VisualizationOptions
) -> View:
    text, windows = model.prepare(_item(model, options.text))
    if not windows:
        raise ValueError(
            "There is no token in the text, and so nothing to show. Give another text."
        )
    logits = model.logits(windows)
    found = model.choose(windows, logits)
    answer = model.named(text, windows, found)
    best = next((c for c in found.nbest if c.text and c.positions is not None), None)
    shown = 0 if best is None else best.window
    sequence = trimmed(
        windows[shown].pack(
            trained.max_seq_length, *trained.tokenizer.convert_tokens_to_ids(["[CLS]", "[SEP]"])
        )
    )
    values = {"answer": answer["answer"] or "no answer"}
    values["probability"] = f"{answer['probability']:.1%}"
    if "null_odds" in answer:
        values["odds of no answer"] = f"{answer['null_odds']:.3g}"
    if len(windows) > 1:
        values["shown"] = f"window {shown + 1} of {len(windows)}"
    start, end = (softmax(part.astype(np.float64)) for part in logits[shown])
    tokens = trained.tokenizer.convert_ids_to_tokens(sequence.input_ids)
    chosen = best.positions if best is not None and answer["answer"] else None
    return View(sequence, values, [span_section(tokens, start, end, chosen)])


@_view.register
def _entity_view(
    model: EntityRecognizer, trained: TrainedModel, options: VisualizationOptions
) -> View:
    (found,) = model.predict([options.text])
    one, kind = ("word", "label") if model.word_labels else ("entity", "type")
    (many,) = model.columns
    rows = [(e["text"], e[kind], e["probability"], e["start"], e["end"]) for e in found]
    header = (one, kind, "probability", "from character", "to")
    sections = [Section(many.capitalize(), [table(header, rows)])] if rows else []
    sequence, is_cut = _packed(trained, options.text)
    return View(sequence, {many: str(len(rows))}, sections, is_cut)


@_view.register
def _embedding_view(
    model: SentenceEncoder, trained: TrainedModel, options: VisualizationOptions
) -> View:
    sequence = model.prepare(options.text)
    return View(sequence, {"tokens": str(len(sequence.input_ids))})


@_view.register
def _choice_view(
    model: ChoicePredictor, trained: TrainedModel, options: VisualizationOptions
) -> View:
    choices, sequences = model.prepare(_item(model, options.text))
    (answer,) = model.answer([(choices, sequences)])
    sequence = sequences[answer["prediction"]]

    class Alone(tf.Module):  # a model of one choice, for `attributions`
        bert = trained.model.bert

        def __call__(self, inputs, training=False):
            outputs = self.bert(inputs, training=training)
            score = trained.model.classifier(outputs["pooled_output"], training=training)
            return {"logits": score}

    found = attributions(Alone(), sequence, trained.tokenizer, _logit(0))
    tokens = trained.tokenizer.convert_ids_to_tokens(sequence.input_ids)
    rows = list(zip(choices, answer["probabilities"], strict=True))
    sections = [
        Section("Choices", [table(("choice", "probability"), rows)]),
        attribution_section(tokens, found, "score of the best choice"),
    ]
    return View(sequence, {"answer": answer["choice"]}, sections)


@_view.register
def _mask_view(model: MaskFiller, trained: TrainedModel, options: VisualizationOptions) -> View:
    prepared = model.prepare(options.text)
    (answer,) = model.answer([prepared])
    sections = [
        Section(
            f"[MASK] at position {position}",
            [table(("token", "probability"), [tuple(c.values()) for c in candidates])],
        )
        for position, candidates in zip(prepared.positions, answer["masks"], strict=True)
    ]
    return View(prepared.sequence, {"best": model.short(answer)}, sections)
