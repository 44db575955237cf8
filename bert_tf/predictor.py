"""Predictions on raw text: load once, then ask as often as wanted.

    classifier = SavedClassifier("exported_model")
    classifier.predict([("Great film!", None)])

    fill_mask = MaskFiller("pretrained")
    fill_mask.predict("The dog [MASK] at the cat.")

Both answer in plain Python values.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf

# Registers the operation with which the exported models tokenize.
import tensorflow_text  # noqa: F401

from bert_tf.data.packing import pack
from bert_tf.model_folder import load_model_folder, read_task
from bert_tf.tasks.pretraining import PretrainingTask


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


def is_saved_model(folder: str) -> bool:
    """Whether `folder` holds a SavedModel."""
    return tf.io.gfile.exists(os.path.join(folder, "saved_model.pb"))
