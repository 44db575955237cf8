"""Predictions of SavedModels of export_saved_model: the graphs of TF Serving, run in Python."""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping, Sequence, Set
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.data.lines import read_lines
from bert_tf.interop.hub import local_path
from bert_tf.model_folder import with_special_tokens
from bert_tf.prediction.classification import LabelModel, TextPair
from bert_tf.prediction.encoder import EmbeddingModel
from bert_tf.prediction.exports import EXTRA
from bert_tf.prediction.masked_lm import Candidate, MaskModel
from bert_tf.prediction.multiple_choice import ChoiceModel
from bert_tf.prediction.question_answering import QuestionModel
from bert_tf.prediction.runtimes import QUERY, TEXT, Runtime
from bert_tf.prediction.saved_text_model import SavedTextModel, load_runtime, plain, rows_of
from bert_tf.prediction.text_model import TextModel, beginning, checked_text
from bert_tf.prediction.token_classification import EntityModel
from bert_tf.registry import TYPES


class SavedClassifier(SavedTextModel, LabelModel):
    """A classifier exported by `export_saved_model`.

    Raises:
        ValueError: the folder has no SavedModel of a classifier.
    """

    @classmethod
    def fits(cls, takes: Set[str], gives: Set[str]) -> bool:
        return "text_a" in takes and "logits" in gives and "choices" not in takes

    def __init__(self, folder: str, batch_size: int = 32, runtime: Runtime | None = None):
        if not is_saved_model(folder):
            raise ValueError(
                f"{folder} contains no saved_model.pb. Give a folder that export_saved_model wrote."
            )
        path = os.path.join(folder, EXTRA, "labels.txt")
        if not tf.io.gfile.exists(path):
            raise ValueError(
                f"{folder} has no {EXTRA}/labels.txt, so it is not a SavedModel of "
                f"export_saved_model, or {EXTRA} was not copied. Copy the folder whole."
            )
        self.labels = list(read_lines(path))
        super().__init__(folder, batch_size, runtime)
        self.is_pair = "text_b" in self._takes
        # Old exports have no task.json, and copies may lack it. The outputs state the type too.
        special = {"score": "regression", "has_label": "multi_label"}
        found = (kind for output, kind in special.items() if output in self._gives)
        self.problem_type = next(found, "single_label")

    def prepare(self, item: str | TextPair) -> TextPair:
        text_a, text_b = self.checked(item)
        if not self._settings.get("doc_stride"):  # otherwise windows contain the whole text
            self._count_if_cut(text_a, *([] if text_b is None else [text_b]))
        return text_a, text_b

    def _answer_batch(self, items: Sequence[TextPair]) -> list[dict[str, Any]]:
        inputs: dict[str, Any] = {"text_a": [text_a for text_a, _ in items]}
        if self.is_pair:
            inputs["text_b"] = [text_b for _, text_b in items]
        return [self._named(outputs) for outputs in rows_of(self._ask(**inputs))]

    def _named(self, outputs: Mapping[str, Any]) -> dict[str, Any]:
        if self.problem_type == "regression":
            return self.named([outputs["score"]], None)
        if self.problem_type == "multi_label":
            return self.named(outputs["probabilities"], outputs["has_label"])
        return self.named(
            outputs["probabilities"], list(self.labels).index(plain(outputs["label"]))
        )


class SavedAnswerer(SavedTextModel, QuestionModel):
    """A question-answering model exported by `export_saved_model`.

    Its certainty is "score", the sum of the logits.

    Raises:
        ValueError: the folder has no such SavedModel.
    """

    certainty = "score"

    @classmethod
    def fits(cls, takes: Set[str], gives: Set[str]) -> bool:
        return {"question", "context"} <= takes and "answer" in gives

    def __init__(self, folder: str, batch_size: int = 32, runtime: Runtime | None = None):
        super().__init__(folder, batch_size, runtime)
        self.has_null_odds = "null_odds" in self._gives

    def prepare(self, item: tuple[str, str]) -> tuple[str, str]:
        return self.checked(item)

    def _answer_batch(self, items: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
        outputs = self._ask(
            question=[question for question, _ in items], context=[text for _, text in items]
        )
        answers = []
        for row in rows_of(outputs):
            answer = {name: plain(row[name]) for name in self.columns}
            if answer["start"] < 0:
                answer["start"] = answer["end"] = None
            answers.append(answer)
        return answers


class SavedTagger(SavedTextModel, EntityModel):
    """A model exported by `export_saved_model`. It finds entities or labels words in raw text."""

    def __init__(self, folder: str, batch_size: int = 32, runtime: Runtime | None = None):
        super().__init__(folder, batch_size, runtime)
        self.word_labels = "word" in self._gives
        self._outputs = ("label", "word") if self.word_labels else ("type", "entity")

    @classmethod
    def fits(cls, takes: Set[str], gives: Set[str]) -> bool:
        return takes == {"text"} and bool(gives & {"entity", "word"})

    def prepare(self, item: str) -> str:
        return checked_text(item)

    def _answer_batch(self, items: Sequence[str]) -> list[dict[str, Any]]:
        (column,) = self.columns
        kind, part = self._outputs
        names = {kind: kind, "start": "start", "end": "end", "text": part}
        names["probability"] = "probability"
        answers = []
        for row in rows_of(self._ask(text=items)):
            columns = zip(*(row[name] for name in names.values()), strict=True)
            found = [dict(zip(names, map(plain, values), strict=True)) for values in columns]
            answers.append({column: [entity for entity in found if entity["start"] >= 0]})
        return answers


class SavedChooser(SavedTextModel, ChoiceModel):
    """A multiple-choice model exported by `export_saved_model`."""

    @classmethod
    def fits(cls, takes: Set[str], gives: Set[str]) -> bool:
        return {"text_a", "choices"} <= takes and "choice" in gives

    def prepare(self, item: tuple[str, Sequence[str]]) -> tuple[str, list[str]]:
        text, choices = self.checked(item)
        if not all(choices):
            raise ValueError(
                f"A choice for {beginning(text)} is empty, and a SavedModel ignores empty choices. Give "
                "a text, or leave the choice out."
            )
        self._count_if_cut(text, *choices)
        return text, choices

    def _answer_batch(self, items: Sequence[tuple[str, list[str]]]) -> list[dict[str, Any]]:
        most = max(len(choices) for _, choices in items)
        outputs = self._ask(
            text_a=[text for text, _ in items],
            choices=[choices + [""] * (most - len(choices)) for _, choices in items],
        )
        return [
            {
                "prediction": row["prediction"],
                "choice": choices[row["prediction"]],
                "probabilities": row["probabilities"][: len(choices)],
            }
            for (_, choices), row in zip(items, rows_of(outputs), strict=True)
        ]


class SavedEncoder(SavedTextModel, EmbeddingModel):
    """Embeddings, with the pooling chosen in `export_saved_model`."""

    @classmethod
    def fits(cls, takes: Set[str], gives: Set[str]) -> bool:
        return "text_a" in takes and "embedding" in gives

    @property
    def width(self) -> int:
        return self._gives["embedding"]["shape"][-1]

    def for_queries(self) -> SavedEncoder:
        """Return the same model with the prefix of queries, if it has one.

        Raises:
            ValueError: queries have a prefix of their own, but the export lacks their signature.
        """
        has_queries = QUERY in self._runtime.signatures
        of_queries, of_documents = (
            self._settings.get(f"{side}_prefix") for side in ("query", "document")
        )
        if not has_queries and of_queries != of_documents:
            raise ValueError(
                f"{self._folder} lacks the signature {QUERY}, so queries would get the prefix of "
                f"documents, {of_documents!r}, instead of their own, {of_queries!r}. Export it with "
                f"signature={TEXT},{QUERY}."
            )
        found = copy.copy(self)
        found._signature = QUERY if has_queries else TEXT
        return found

    def prepare(self, item: str) -> str:
        text = checked_text(item)
        prefix = "query_prefix" if self._signature == QUERY else "document_prefix"
        self._count_if_cut(f"{self._settings.get(prefix, '')}{text}")
        return text

    def _answer_batch(self, items: Sequence[str]) -> list[dict[str, Any]]:
        return EmbeddingModel.answer(self, items)

    def vectors(self, prepared: Sequence[str]) -> list[np.ndarray]:
        return self._in_batches(prepared, self._embed_batch)

    def _embed_batch(self, texts: Sequence[str]) -> list[np.ndarray]:
        return list(self._ask(text_a=texts)["embedding"])


class SavedMaskFiller(SavedTextModel, MaskModel):
    """Tokens for [MASK], up to the number chosen in `export_saved_model`.

    A [MASK] beyond the longest input is omitted.
    """

    def __init__(self, folder: str, batch_size: int = 32, runtime: Runtime | None = None):
        super().__init__(folder, batch_size, runtime)
        if self._tokenizer is not None:
            self._tokenizer = with_special_tokens(self._tokenizer)

    @classmethod
    def fits(cls, takes: Set[str], gives: Set[str]) -> bool:
        return "text" in takes and {"token", "probability"} <= gives

    def prepare(self, item: str) -> str:
        text = checked_text(item)
        if "[MASK]" not in text:
            raise self.no_mask(text)
        self._count_if_cut(text)
        return text

    def predict(self, text: str, top_k: int = 5) -> list[list[Candidate]]:
        (item,) = self.inputs([text])
        (masks,) = self._fill([self.prepare(item)])
        return [candidates[:top_k] for candidates in masks]

    def _answer_batch(self, items: Sequence[str]) -> list[dict[str, Any]]:
        return [
            {"masks": [[c._asdict() for c in candidates[: self.top_k]] for candidates in masks]}
            for masks in self._fill(items)
        ]

    def _fill(self, texts: Sequence[str]) -> list[list[list[Candidate]]]:
        """Return the tokens for each mask of each text, all that the export has, the best first."""
        return [
            [
                [Candidate(plain(token), p) for token, p in zip(tokens, probabilities, strict=True)]
                for tokens, probabilities in zip(row["token"], row["probability"], strict=True)
                if tokens[0]
            ]
            for row in rows_of(self._ask(text=texts))
        ]


def load_saved_model(
    folder: str, batch_size: int = 32, runtime: Runtime | None = None
) -> TextModel:
    """Load any SavedModel of export_saved_model.

    Args:
        runtime: has the folder, if it was loaded before.

    Raises:
        ValueError: it takes no text, is from another program, or is damaged.
    """
    runtime = load_runtime(folder) if runtime is None else runtime
    signature = runtime.signatures.get(TEXT, {"inputs": {}, "outputs": {}})
    dtypes = {spec["dtype"] for spec in signature["inputs"].values()}
    if dtypes != {"string"} or "examples" in signature["inputs"]:  # serving/other_names.py
        raise ValueError(
            f"{folder} has no signature {TEXT} on text. Give the folder that it was exported from, or "
            "export it with that signature."
        )
    takes, gives = signature["inputs"].keys(), signature["outputs"].keys()
    saved = (entry.load("saved") for entry in TYPES.values() if entry.saved)
    found = next((kind for kind in saved if kind.fits(takes, gives)), SavedClassifier)
    return found(folder, batch_size, runtime)


def is_saved_model(folder: str) -> bool:
    """Return True if `folder`, which may be hf://org/name, contains a SavedModel."""
    return tf.io.gfile.exists(os.path.join(local_path(folder), "saved_model.pb"))
