"""Comparison of an export with the Python classes, input by input.

Every input is asked alone, and in batches with padding, as text and as ids.

Shapes: B batch, S sequence, K choices, P masked positions.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.data.packing import pack_texts
from bert_tf.data.word_windows import split_words, word_pieces
from bert_tf.metrics.basic import sigmoid, softmax
from bert_tf.model_folder import TrainedModel, with_special_tokens
from bert_tf.prediction.classification import LabelModel
from bert_tf.prediction.encoder import EmbeddingModel, SentenceEncoder
from bert_tf.prediction.exports import (
    POSITIONS,
    Export,
    ask_ids,
    ids_signatures,
    largest_difference,
)
from bert_tf.prediction.masked_lm import MaskModel
from bert_tf.prediction.multiple_choice import ChoiceModel
from bert_tf.prediction.question_answering import QuestionAnswerer
from bert_tf.prediction.runtimes import QUERY, TEXT, Runtime
from bert_tf.prediction.saved_models import load_saved_model
from bert_tf.prediction.text_model import TextModel, trimmed
from bert_tf.prediction.token_classification import EntityModel
from bert_tf.programs.certificate_answers import (
    Decisions,
    Numbers,
    decisions_of,
    numbers_of,
    texts_of,
)
from bert_tf.serving.served import INPUT_NAMES
from bert_tf.tasks.token_classification import decoded_sentences
from bert_tf.training.progress import Progress

_MOST_TIMED = 50  # inputs
_MASKS, _WORDS = POSITIONS


@dataclass
class Tally:
    """Differences of one signature.

    Args:
        outputs: name -> [largest difference, largest magnitude].
        flipped: (number of the input, place in its answer) -> whether the decision differs.
        milliseconds: median time of one input.
    """

    outputs: dict[str, list[float]] = field(default_factory=dict)
    flipped: dict[tuple[int, Any], bool] = field(default_factory=dict)
    milliseconds: float = 0.0

    def add_numbers(self, ours: Numbers, theirs: Numbers) -> None:
        """Compare the outputs that both sides have."""
        for name in sorted(ours.keys() & theirs.keys()):
            one, other = ({name: np.asarray(side[name])} for side in (ours, theirs))
            if not np.issubdtype(one[name].dtype, np.floating):
                continue
            found = (np.inf, 0.0)
            if one[name].shape == other[name].shape:
                found = largest_difference(one, other)
            most = self.outputs.setdefault(name, [0.0, 0.0])
            most[:] = map(max, most, found)

    def add_decisions(self, number: int, ours: Decisions, theirs: Decisions) -> None:
        for place in {**ours, **theirs}:
            is_flipped = ours.get(place) != theirs.get(place)
            self.flipped[number, place] = is_flipped or self.flipped.get((number, place), False)

    def first_flipped(self) -> int | None:
        """Return the number of the first input with another decision."""
        return min(
            (number for (number, _), flipped in self.flipped.items() if flipped), default=None
        )


@dataclass
class Comparison:
    """All differences of one export in one runtime.

    Args:
        tallies: signature -> its differences.
        ids: source of the ids -> numbers of the texts with other ids.
        not_asked: signatures without a counterpart in Python.
    """

    tallies: dict[str, Tally] = field(default_factory=dict)
    ids: dict[str, list[int]] = field(default_factory=dict)
    not_asked: list[str] = field(default_factory=list)


class Expected:
    """Answers of the Python classes in float32, which an export must repeat.

    Args:
        trained: the model and its tokenizer. Its `max_seq_length` is that of the export.
        model: the same for text.
        items: inputs, as `TextModel.prepare` takes them.
        num_own: number of the first items, whose decisions count. The others are variants.
        omit: outputs that are not compared.

    Raises:
        ValueError: an item is invalid.
    """

    def __init__(
        self,
        trained: TrainedModel,
        model: TextModel,
        items: Sequence[Any],
        num_own: int | None = None,
        omit: Sequence[str] = (),
    ):
        self.model, self.items = model, list(items)
        self.num_own = len(self.items) if num_own is None else num_own
        self.labels = tuple(getattr(trained.task, "labels", ()))
        self.texts = list(dict.fromkeys(text for item in self.items for text in texts_of(item)))
        self._tokenizer, self.max_seq_length = trained.tokenizer, trained.max_seq_length
        is_masked = isinstance(model, MaskModel)  # a [MASK] in a text is a token
        self._has_crf = getattr(trained.task, "crf", None) is not None
        self._packed_by = with_special_tokens(self._tokenizer) if is_masked else self._tokenizer
        self._num_tokens = len(self._tokenizer.vocab)
        self.as_query = isinstance(model, SentenceEncoder) and model.as_query
        self._omit = {*omit, "all_encoder_layers", "embedding_output"}
        self._outputs: dict[tuple[int, bool], dict[str, np.ndarray]] = {}
        network = trained.model
        if isinstance(model, EmbeddingModel):
            network = getattr(network, "bert", network)
        self._run = tf.function(
            lambda ids: network(ids, training=False), reduce_retracing=True, autograph=False
        )
        prepared = [model.prepare(item) for item in self.items]
        self.answers = model.answer(prepared)
        if isinstance(model, QuestionAnswerer):
            self.answers = list(map(_with_score, [model] * len(prepared), prepared, self.answers))

    def token_ids(self, preserve_special_tokens: bool = False) -> list[list[int]]:
        """Return the ids of each of `texts`."""
        tokenizer = self._tokenizer
        if preserve_special_tokens:
            tokenizer = with_special_tokens(tokenizer)
        return [tokenizer.encode(text) for text in self.texts]

    def ids(self, number: int, every_position: bool) -> dict[str, np.ndarray]:
        """Return the ids of an item: int32 [S] or [K, S], and positions of an additional input.

        Args:
            every_position: True for a signature without such an input. A masked LM then predicts every
                position.
        """
        item = self.items[number]
        tokenizer = self._packed_by
        if isinstance(self.model, ChoiceModel):
            pairs = [(item[0], choice) for choice in item[1]]
        else:
            pairs = [(item, None) if isinstance(item, str) else tuple(item)]
        if isinstance(self.model, EmbeddingModel):
            rows = [self.model.prepare(item)]  # with the prefix
        else:
            rows = [trimmed(pack_texts(tokenizer, a, b, self.max_seq_length)) for a, b in pairs]
        inputs = _stacked([{name: getattr(row, name) for name in INPUT_NAMES} for row in rows])
        if not isinstance(self.model, ChoiceModel):
            inputs = {name: value[0] for name, value in inputs.items()}
        if isinstance(self.model, MaskModel):
            is_mask = inputs["input_ids"] == tokenizer.vocab["[MASK]"]
            positions = np.arange(len(is_mask)) if every_position else np.flatnonzero(is_mask)
            inputs[_MASKS] = positions.astype(np.int32)
        if self._has_crf and not every_position:
            words = [item[start:end] for start, end in split_words(item)]
            found = np.unique(word_pieces(tokenizer, words).first_piece) + 1  # after [CLS]
            positions = found[found < len(inputs["input_ids"]) - 1]
            inputs[_WORDS] = positions.astype(np.int32)
        return inputs

    def outputs(self, number: int, every_position: bool) -> dict[str, np.ndarray]:
        """Return the outputs for the ids of an item, asked alone."""
        key = (number, every_position)
        if key not in self._outputs:
            self._outputs[key] = self._outputs_for(*key)
        return self._outputs[key]

    def _outputs_for(self, number: int, every_position: bool) -> dict[str, np.ndarray]:
        inputs = self.ids(number, every_position)
        words = inputs.pop(_WORDS, None)
        found = self._run({name: tf.constant(value[None]) for name, value in inputs.items()})
        outputs = {n: value.numpy()[0] for n, value in found.items() if n not in self._omit}
        if isinstance(self.model, EmbeddingModel):
            outputs["embedding"] = np.float32(self.answers[number]["embedding"])
        if isinstance(self.model, LabelModel) and self.model.problem_type != "regression":
            shown = softmax if self.model.problem_type == "single_label" else sigmoid
            outputs["probabilities"] = shown(outputs["logits"])
        if "masked_lm_logits" in outputs and not every_position:
            known = softmax(outputs["masked_lm_logits"][:, : self._num_tokens])
            outputs["token_id"] = np.argsort(-known, axis=-1, kind="stable")
            outputs["probability"] = np.take_along_axis(known, outputs["token_id"], axis=-1)
        if words is not None:
            sentence = outputs["logits"][words], np.zeros(len(words), np.int32)
            decoded = decoded_sentences([sentence], outputs["transitions"])
            outputs["label_id"] = decoded["predictions"]
            outputs["probability"] = decoded["probabilities"]
        return outputs

    def chosen(self, outputs: Numbers, labels: Sequence[str]) -> dict[Any, Any]:
        """Return the decisions that follow from outputs for ids."""

        def named(index: int) -> Any:
            return labels[index] if index < len(labels) else index

        if "token_id" in outputs:
            return dict(enumerate(outputs["token_id"][:, 0].tolist()))
        if "label_id" in outputs:
            return dict(enumerate(map(named, outputs["label_id"].tolist())))
        if "masked_lm_logits" in outputs:
            known = outputs["masked_lm_logits"][:, : self._num_tokens]
            return dict(enumerate(known.argmax(axis=-1).tolist()))
        if "start_logits" in outputs:
            return {n: int(outputs[n].argmax()) for n in ("start_logits", "end_logits")}
        if "label" in outputs:
            return {"label": np.asarray(outputs["label"]).item().decode()}
        logits = outputs.get("logits")
        if logits is None or getattr(self.model, "problem_type", "") == "regression":
            return {}
        if isinstance(self.model, LabelModel) and self.model.problem_type == "multi_label":
            return {named(index): bool(value > 0) for index, value in enumerate(logits)}
        best = logits.argmax(axis=-1)
        if isinstance(self.model, EntityModel):
            return dict(enumerate(map(named, best.tolist())))
        return {"label": int(best) if isinstance(self.model, ChoiceModel) else named(int(best))}


def compare(
    runtime: Runtime, export: Export, expected: Expected, batch_size: int = 8
) -> Comparison:
    """Ask an export, and return its differences from the Python classes.

    Args:
        batch_size: inputs of a batch with padding.

    Raises:
        ValueError: the export has no signature with a counterpart in Python.
    """
    found = Comparison()
    theirs = runtime.token_ids(expected.texts)
    if theirs is not None:
        source = "its own tokenizer"
        preserve = export.tokenizer is None  # Hugging Face's keeps [MASK] in a text
        found.ids[source] = _differing(expected.token_ids(preserve), theirs)
    if export.tokenizer is not None:
        beside = list(map(export.tokenizer.encode, expected.texts))
        found.ids["vocab.txt and export.json"] = _differing(expected.token_ids(), beside)
    by_ids = ids_signatures(runtime)
    by_text = QUERY if expected.as_query and QUERY in runtime.signatures else TEXT
    for name in runtime.signatures:
        if name == by_text and name not in by_ids:
            found.tallies[name] = _compare_texts(runtime, name, export, expected, batch_size)
        elif name in by_ids:
            found.tallies[name] = _compare_ids(runtime, name, export, expected, batch_size)
        else:
            found.not_asked.append(name)
    if not found.tallies:
        raise ValueError(
            f"{export.folder} has no signature that takes text or ids, so nothing can be compared (it "
            f"has {', '.join(found.not_asked) or 'none'}). Export it again with signature=tokens."
        )
    return found


def _differing(ours: Sequence[Sequence[int]], theirs: Sequence[Sequence[int]]) -> list[int]:
    pairs = enumerate(zip(ours, theirs, strict=True))
    return [number for number, (one, other) in pairs if list(one) != list(other)]


def _progress(export: Export, signature: str, expected: Expected) -> Progress:
    """Return the progress of the inputs that are asked alone, which take most of the time."""
    return Progress(f"{export.folder} {signature}", len(expected.items), unit="inputs")


def _compare_texts(
    runtime: Runtime, name: str, export: Export, expected: Expected, batch_size: int
) -> Tally:
    saved = load_saved_model(export.folder, batch_size, runtime)
    if isinstance(saved, EmbeddingModel) and expected.as_query:
        saved = saved.for_queries()
    tally = Tally()
    try:
        prepared = [saved.prepare(item) for item in expected.items]
    except ValueError as error:
        raise ValueError(
            f"{export.folder} {name}: {error} Remove the column of the second texts, or export the "
            "model with is_pair."
        ) from error

    def add(number: int, answer: Mapping[str, Any]) -> None:
        ours = expected.answers[number]
        tally.add_numbers(*numbers_of(expected.model, ours, answer))
        if number < expected.num_own:
            decisions = (decisions_of(expected.model, side) for side in (ours, answer))
            tally.add_decisions(number, *decisions)

    progress = _progress(export, name, expected)
    for number, item in enumerate(prepared):
        add(number, saved.answer([item])[0])
        progress.update(number + 1)
    for number, answer in enumerate(saved.answer(prepared)):
        add(number, answer)
    tally.milliseconds = _median(runtime, [[item] for item in prepared], saved.answer)
    return tally


def _compare_ids(
    runtime: Runtime, name: str, export: Export, expected: Expected, batch_size: int
) -> Tally:
    every = not runtime.signatures[name]["inputs"].keys() & set(POSITIONS)
    tally = Tally()
    inputs = [expected.ids(number, every) for number in range(len(expected.items))]
    single = [{name: value[None] for name, value in row.items()} for row in inputs]

    def ask(batch: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return ask_ids(runtime, name, export.head, batch)

    def add(number: int, outputs: Numbers) -> None:
        ours = expected.outputs(number, every)
        if "token_id" in outputs:
            best = outputs["token_id"].shape[-1]
            ours = {**ours, **{n: ours[n][:, :best] for n in ("token_id", "probability")}}
        tally.add_numbers(ours, outputs)
        if number < expected.num_own:
            theirs = expected.chosen(outputs, export.labels)
            tally.add_decisions(number, expected.chosen(ours, expected.labels), theirs)

    progress = _progress(export, name, expected)
    for number, batch in enumerate(single):
        add(number, {key: value[0] for key, value in ask(batch).items()})
        progress.update(number + 1)
    for first in range(0, len(inputs), batch_size):
        outputs = ask(_stacked(inputs[first : first + batch_size]))
        for row in range(min(batch_size, len(inputs) - first)):
            add(first + row, _without_padding(outputs, row, expected.outputs(first + row, every)))
    tally.milliseconds = _median(runtime, single, ask)
    if not tally.outputs:
        raise ValueError(
            f"{export.folder}: the signature {name} has no output of the model, which has "
            f"{', '.join(expected.outputs(0, every))}. It is an export of another model."
        )
    return tally


def _without_padding(outputs: Numbers, row: int, ours: Numbers) -> dict[str, np.ndarray]:
    """Return one row, cut to the shapes that it has alone."""
    cut = {}
    for name, value in outputs.items():
        cut[name] = alone = np.asarray(value[row])
        if name in ours and alone.ndim == ours[name].ndim:
            cut[name] = alone[tuple(map(slice, ours[name].shape))]
    return cut


def _median(runtime: Runtime, batches: Sequence[Any], ask: Callable[[Any], Any]) -> float:
    """Return the median milliseconds of calls that were made before."""
    seconds = []
    for batch in batches[:_MOST_TIMED]:
        ask(batch)
        seconds.append(runtime.seconds)
    return 1000 * statistics.median(seconds)


def _stacked(rows: Sequence[Mapping[str, Any]]) -> dict[str, np.ndarray]:
    """Return a batch of ids, int32, padded with zeros."""
    batch = {}
    for name in rows[0]:
        values = [np.asarray(row[name], np.int32) for row in rows]
        shape = np.max([value.shape for value in values], axis=0)
        batch[name] = np.zeros((len(values), *shape), np.int32)
        for place, value in zip(batch[name], values, strict=True):
            place[tuple(map(slice, value.shape))] = value
    return batch


def _with_score(model: QuestionAnswerer, prepared: Any, answer: dict[str, Any]) -> dict[str, Any]:
    """Return an answer with the sum of the logits that a SavedModel gives."""
    _, windows = prepared
    found = model.choose(windows, model.logits(windows)) if windows else None
    best = next((c for c in found.nbest if c.text == found.best_answer), None) if found else None
    return answer if best is None else {**answer, "score": best.score}
