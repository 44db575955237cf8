"""Predictions on raw text: load once, then ask as often as wanted.

    classifier = SavedClassifier("exported_model")
    classifier.predict([("Great film!", None)])

    fill_mask = MaskFiller("pretrained")
    fill_mask.predict("The dog [MASK] at the cat.")

    answerer = QuestionAnswerer("squad_output")
    answerer.predict([("Who won?", "Denver beat Carolina.")])

All answer in plain Python values.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

# Registers the operation with which the exported models tokenize.
import tensorflow_text  # noqa: F401

from bert_tf.data.packing import pack
from bert_tf.data.span_windows import Window, tokenize_passage
from bert_tf.data.squad import Passage
from bert_tf.model_folder import load_model_folder, read_task
from bert_tf.tasks.answers import AnswerSettings, characters_of, predict_answer
from bert_tf.tasks.pretraining import PretrainingTask
from bert_tf.tasks.question_answering import QuestionAnsweringTask


class Candidate(NamedTuple):
    """A token that may stand in the place of [MASK]."""

    token: str
    probability: float


class SavedClassifier:
    """A classifier that `export_saved_model` wrote.

    Args:
        folder: of the SavedModel.

    Attributes:
        labels: in the order of the probabilities; none of a regression.
        problem_type: "single_label", "multi_label" or "regression".
        is_pair: whether the model was made for pairs of sentences.

    Raises:
        ValueError: the folder holds no SavedModel of a classifier.
    """

    def __init__(self, folder: str):
        if not is_saved_model(folder):
            raise ValueError(
                f"{folder} holds no saved_model.pb. Name a folder that export_saved_model wrote."
            )
        path = os.path.join(folder, "assets.extra", "labels.txt")
        if not tf.io.gfile.exists(path):
            raise ValueError(
                f"{folder} has no assets.extra/labels.txt, so it is not a SavedModel that "
                "export_saved_model wrote."
            )
        with tf.io.gfile.GFile(path) as file:
            self.labels = file.read().splitlines()
        # An export of a version that knew one problem type has no task.json.
        task = read_task(os.path.dirname(path))
        self.problem_type = "single_label" if task is None else task.kind.name
        self._model = tf.saved_model.load(folder)  # kept, since it owns the weights
        self._serve = self._model.signatures["serving_default"]
        names = self._serve.structured_input_signature[1]
        self.is_pair = "text_b" in names
        if "text_a" not in names or "choices" in names:
            raise ValueError(
                f"{folder} takes {', '.join(names)}, so it is no classifier. For entities or choices of "
                "raw text name the --output_dir of run_ner or run_swag."
            )

    def predict(self, texts: Sequence[tuple[str, str | None]]) -> list[dict[str, Any]]:
        """Labels of a batch.

        Args:
            texts: (text_a, text_b); text_b is None for a single sentence.

        Returns:
            For each, by `problem_type`: {"label": the most probable, "probabilities": {label:
            probability}}; {"labels": those above one half, "probabilities": ...}; {"score": number}.

        Raises:
            ValueError: a second sentence for a model of single sentences, or none for a model of
                pairs.
        """
        if not texts:
            return []
        for text_a, text_b in texts:
            if self.is_pair and text_b is None:
                raise ValueError(
                    f"The model takes pairs of sentences, but there is only one: {text_a[:60]!r}."
                )
            if not self.is_pair and text_b is not None:
                raise ValueError(
                    f"The model takes single sentences, but there is a second one: {text_b[:60]!r}."
                )
        inputs = {"text_a": tf.constant([text_a for text_a, _ in texts], tf.string)}
        if self.is_pair:
            inputs["text_b"] = tf.constant([text_b for _, text_b in texts], tf.string)
        outputs = {name: value.numpy() for name, value in self._serve(**inputs).items()}
        return [
            self._answer({name: values[row] for name, values in outputs.items()})
            for row in range(len(texts))
        ]

    def _answer(self, outputs: dict[str, Any]) -> dict[str, Any]:
        """Of one text."""
        if self.problem_type == "regression":
            return {"score": float(outputs["score"])}
        shares = map(float, outputs["probabilities"])
        probabilities = dict(zip(self.labels, shares, strict=True))
        if self.problem_type == "multi_label":
            named = zip(self.labels, outputs["has_label"], strict=True)
            labels = [label for label, has in named if has]
            return {"labels": labels, "probabilities": probabilities}
        return {"label": outputs["label"].decode("utf-8"), "probabilities": probabilities}


class SavedAnswerer:
    """A model that answers questions, which `export_saved_model` wrote.

    Raises:
        ValueError: the folder holds no such SavedModel.
    """

    def __init__(self, folder: str):
        self._model = tf.saved_model.load(folder)  # kept, since it owns the weights
        self._serve = self._model.signatures["serving_default"]
        if "question" not in self._serve.structured_input_signature[1]:
            raise ValueError(f"{folder} is a SavedModel, but none that answers questions.")

    def predict(self, questions: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
        """As `QuestionAnswerer.predict`, with "score" (the sum of the logits) for "probability"."""
        if not questions:
            return []
        outputs = self._serve(
            question=tf.constant([question for question, _ in questions]),
            context=tf.constant([text for _, text in questions]),
        )
        columns = {name: value.numpy().tolist() for name, value in outputs.items()}
        rows = [
            dict(zip(columns, values, strict=True))
            for values in zip(*columns.values(), strict=True)
        ]
        names = ("answer", "start", "end", "score", "null_odds")
        answers = [{name: row[name] for name in names if name in row} for row in rows]
        for answer in answers:
            answer["answer"] = answer["answer"].decode("utf-8")
            if answer["start"] < 0:
                answer["start"] = answer["end"] = None
        return answers


def load_saved_model(folder: str) -> SavedClassifier | SavedAnswerer:
    """Whichever of the two a SavedModel is."""
    labels = os.path.join(folder, "assets.extra", "labels.txt")
    if tf.io.gfile.exists(labels) or not is_saved_model(folder):
        return SavedClassifier(folder)
    return SavedAnswerer(folder)


class MaskFiller:
    """A pre-trained model that says what may stand in the place of [MASK].

    Args:
        folder: the --output_dir of run_pretraining.

    Raises:
        ValueError: the folder holds no pre-trained model.
    """

    def __init__(self, folder: str):
        trained = load_model_folder(folder, preserve_special_tokens=True)
        if not isinstance(trained.task, PretrainingTask):
            raise ValueError(
                f"{folder} holds a fine-tuned model, and only a pre-trained one can fill a [MASK]: "
                "name the --output_dir of run_pretraining. For its labels of raw text, export it: "
                f"export_saved_model --model_dir={folder} --export_dir=NEW_FOLDER."
            )
        self._model, self._tokenizer = trained.model, trained.tokenizer
        self._max_seq_length = trained.max_seq_length

    def predict(self, text: str, top_k: int = 5) -> list[list[Candidate]]:
        """The `top_k` best tokens (or all that there are) for each [MASK] of `text`, the best first.

        Raises:
            ValueError: there is no [MASK] in the text, or it stands beyond the longest input.
        """
        cls_id, sep_id, mask_id = self._tokenizer.convert_tokens_to_ids(
            ["[CLS]", "[SEP]", "[MASK]"]
        )
        ids = self._tokenizer.encode(text)
        if mask_id not in ids:
            raise ValueError(f"There is no [MASK] in {text!r}, so there is nothing to fill.")
        max_seq_length = min(self._max_seq_length, len(ids) + 2)
        packed = pack(ids, max_seq_length=max_seq_length, cls_id=cls_id, sep_id=sep_id)
        positions = [index for index, token in enumerate(packed.input_ids) if token == mask_id]
        if len(positions) < ids.count(mask_id):
            raise ValueError(
                f"A [MASK] in {text[:60]!r} stands beyond the model's {self._max_seq_length} tokens."
            )
        inputs = {name: tf.constant([value]) for name, value in packed._asdict().items()}
        inputs["masked_lm_positions"] = tf.constant([positions])
        logits = self._model(inputs, training=False)["masked_lm_logits"][0]
        # A table of embeddings may be longer than the vocabulary; those rows are no tokens.
        logits = logits[:, : len(self._tokenizer.vocab)]
        probabilities, tokens = tf.math.top_k(
            tf.nn.softmax(logits), min(top_k, len(self._tokenizer.vocab))
        )
        return [
            [
                Candidate(token, float(probability))
                for token, probability in zip(
                    self._tokenizer.convert_ids_to_tokens(token_row), row, strict=True
                )
            ]
            for token_row, row in zip(tokens.numpy().tolist(), probabilities.numpy(), strict=True)
        ]


class QuestionAnswerer:
    """A model of run_squad that answers questions with parts of texts.

    Args:
        folder: the --output_dir of run_squad.
        null_score_diff_threshold: for a model of SQuAD 2.0; no answer is given where the odds of none
            are above this.
        n_best_size, max_answer_length: as of run_squad.
        batch_size: windows that go through the model at once.

    Raises:
        ValueError: the folder holds no model that answers questions.
    """

    def __init__(
        self,
        folder: str,
        null_score_diff_threshold: float = 0.0,
        n_best_size: int = 20,
        max_answer_length: int = 30,
        batch_size: int = 32,
    ):
        trained = load_model_folder(folder)
        if not isinstance(trained.task, QuestionAnsweringTask):
            raise ValueError(
                f"{folder} holds no model that answers questions: name the --output_dir of run_squad."
            )
        self._task, self._tokenizer = trained.task, trained.tokenizer
        self._settings = AnswerSettings(
            n_best_size,
            max_answer_length,
            trained.task.version_2_with_negative,
            null_score_diff_threshold,
        )
        self._batch_size = batch_size
        self._run = tf.function(
            lambda inputs: trained.model(inputs, training=False), reduce_retracing=True
        )

    def predict(self, questions: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
        """Answers of a batch.

        Args:
            questions: (question, text).

        Returns:
            For each: {"answer": text[start:end], "start": characters, "end": characters,
            "probability": among the n best}, and with SQuAD 2.0 "null_odds". No answer is "" with
            None for both places.
        """
        windows_of = [
            self._task.windows(
                question, tokenize_passage(Passage(text), self._tokenizer), self._tokenizer
            )
            for question, text in questions
        ]
        logits = self._logits([window for windows in windows_of for window in windows])
        answers = []
        for (_, text), windows in zip(questions, windows_of, strict=True):
            pairs = [logits[id(window)] for window in windows]
            answers.append(self._answer(text, windows, pairs))
        return answers

    def _answer(
        self, text: str, windows: Sequence[Window], logits: Sequence[tuple[np.ndarray, np.ndarray]]
    ) -> dict[str, Any]:
        starts, ends = [start for start, _ in logits], [end for _, end in logits]
        found = predict_answer(windows, starts, ends, self._tokenizer, self._settings)
        wanted = found.text if self._task.version_2_with_negative else found.best_answer
        best = next(candidate for candidate in found.nbest if candidate.text == wanted)
        characters = characters_of(best, windows, self._tokenizer)
        start, end = characters or (None, None)
        answer = {
            "answer": text[start:end] if characters else "",
            "start": start,
            "end": end,
            "probability": best.probability,
        }
        return answer if found.null_odds is None else answer | {"null_odds": found.null_odds}

    def _logits(self, windows: Sequence[Window]) -> dict[int, tuple[np.ndarray, np.ndarray]]:
        """id of the window -> start and end logits of its tokens; the shortest windows together."""
        special = self._tokenizer.convert_tokens_to_ids(["[CLS]", "[SEP]"])
        windows = sorted(windows, key=lambda window: window.num_tokens)
        logits = {}
        for first in range(0, len(windows), self._batch_size):
            some = windows[first : first + self._batch_size]
            # A multiple of 16, so that there are few different shapes.
            length = min(-(-some[-1].num_tokens // 16) * 16, self._task.max_seq_length)
            packed = [window.pack(length, *special) for window in some]
            inputs = {
                name: tf.constant([getattr(row, name) for row in packed])
                for name in self._task.input_names
            }
            outputs = self._run(inputs)
            starts, ends = outputs["start_logits"].numpy(), outputs["end_logits"].numpy()
            for window, start, end in zip(some, starts, ends, strict=True):
                logits[id(window)] = start[: window.num_tokens], end[: window.num_tokens]
        return logits


def is_saved_model(folder: str) -> bool:
    """Whether `folder` holds a SavedModel."""
    return tf.io.gfile.exists(os.path.join(folder, "saved_model.pb"))
