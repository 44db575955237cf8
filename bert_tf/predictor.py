"""Predictor: one class for every model on raw text. Load once, then ask as often as wanted.

    Predictor("exported_model").predict(["Great film!"])                    # a label
    Predictor("squad_output").predict([("Who won?", "Denver beat Carolina.")])
    Predictor("ner_output").predict(["John Smith lives in New York."])
    Predictor("swag_output").predict([("He opens the door.", ["He goes in.", "He eats it."])])

    pretrained = Predictor("uncased_L-12_H-768_A-12")
    pretrained.fill_mask("The dog [MASK] at the cat.")
    pretrained.pseudo_perplexity(["The dog barked at the cat."])
    pretrained.embed(["A dog barked.", "A cat slept."])                     # float32 [2, H]

`predict` answers with the dicts that run_scripts/predict.py writes. What it does lies in
`bert_tf/prediction/`, one module for each kind of model; their classes are found here as well.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import keras
import numpy as np

from bert_tf.model_folder import TrainedModel, load_model, with_settings
from bert_tf.modeling.models import BertForPreTraining
from bert_tf.prediction.classification import TextClassifier
from bert_tf.prediction.encoder import (
    EMBEDDING_POOLINGS,
    EmbeddingModel,
    SentenceEncoder,
    cosine_similarity,
)
from bert_tf.prediction.masked_lm import (
    Candidate,
    MaskFiller,
    PseudoPerplexity,
    corpus_pseudo_perplexity,
)
from bert_tf.prediction.multiple_choice import ChoicePredictor
from bert_tf.prediction.question_answering import QuestionAnswerer
from bert_tf.prediction.saved_models import (
    SavedAnswerer,
    SavedClassifier,
    is_saved_model,
    load_saved_model,
)
from bert_tf.prediction.text_model import TextModel
from bert_tf.prediction.token_classification import EntityRecognizer
from bert_tf.registry import TYPES
from bert_tf.tasks.base import Task
from bert_tf.tokenization import FullTokenizer

__all__ = [
    "EMBEDDING_POOLINGS",
    "Candidate",
    "ChoicePredictor",
    "EntityRecognizer",
    "MaskFiller",
    "Predictor",
    "PseudoPerplexity",
    "QuestionAnswerer",
    "SavedAnswerer",
    "SavedClassifier",
    "SentenceEncoder",
    "TextClassifier",
    "TextModel",
    "corpus_pseudo_perplexity",
    "cosine_similarity",
    "is_saved_model",
    "load",
    "load_saved_model",
]


def load(path: str | os.PathLike, **settings) -> Predictor:
    """Return the model in a folder, ready for raw text.

    >>> import bert_tf
    >>> bert_tf.load("mrpc_output").predict([("A dog.", "A cat.")])  # doctest: +SKIP
    [{'label': '0', 'probabilities': {'0': 0.93, '1': 0.07}}]

    Args:
        path: the --output_dir of a run of ours; a Hugging Face folder or hf://org/name, whose head,
            labels and problem type are those of its config.json; any other checkpoint that
            --init_checkpoint may name; or a SavedModel of `export`.
        **settings: of `Predictor`.

    Raises:
        FileNotFoundError: there is no such folder or checkpoint.
        ValueError: it contains nothing that can be loaded.
    """
    return Predictor(path, **settings)


class Predictor:
    """A model on raw text.

    Args:
        model: folder of a SavedModel or of a run of ours, or any checkpoint; or what
            `prediction.loading.load_model` has loaded.
        batch_size: sequences that go through the model at once.
        precision: Keras precision policy, default float32; a SavedModel has its own.
        max_seq_length, doc_stride: in place of those that the model was trained with; not of a
            SavedModel.
        null_score_diff_threshold, n_best_size, max_answer_length: as of `QuestionAnswerer`.

    Raises:
        ValueError: there is nothing to be used, or it has no such setting.
        FileNotFoundError: there is no such folder or checkpoint.
    """

    def __init__(
        self,
        model: str | os.PathLike | TrainedModel,
        *,
        batch_size: int = 32,
        precision: str | None = None,
        max_seq_length: int | None = None,
        doc_stride: int | None = None,
        null_score_diff_threshold: float = 0.0,
        n_best_size: int = 20,
        max_answer_length: int = 30,
    ):
        if keras.backend.backend() != "tensorflow":
            raise RuntimeError(
                "Models on raw text need Keras' TensorFlow backend, but it is "
                f"{keras.backend.backend()}. Set KERAS_BACKEND=tensorflow before Keras is imported."
            )
        if batch_size < 1:
            raise ValueError(f"`batch_size` is {batch_size}, but must be 1 or more.")
        self._batch_size = batch_size
        self._answer_settings: dict[str, Any] = {
            "null_score_diff_threshold": null_score_diff_threshold,
            "n_best_size": n_best_size,
            "max_answer_length": max_answer_length,
        }
        self._encoders: dict[tuple[str, bool], SentenceEncoder] = {}
        self._saved = self._trained = None
        if isinstance(model, TrainedModel):
            self._trained = with_settings(model, max_seq_length, doc_stride)
            return
        model = os.fspath(model)
        if is_saved_model(model):
            fixed: dict[str, Any] = {"max_seq_length": max_seq_length, "doc_stride": doc_stride}
            fixed["precision"] = None if precision == "float32" else precision
            for name, value in fixed.items():
                if value is not None:
                    raise ValueError(
                        f"{model} is a SavedModel, whose `{name}` was fixed when it was exported. Leave "
                        "the flag out, or name the folder that it was exported from."
                    )
            self._saved, self._saved_folder = load_saved_model(model, batch_size), model
        else:
            self._trained = load_model(
                model, dtype=precision, max_seq_length=max_seq_length, doc_stride=doc_stride
            )

    @property
    def model(self) -> keras.Model:
        """The Keras model with its weights."""
        return self._weights().model

    @property
    def tokenizer(self) -> FullTokenizer:
        """The tokenizer of the model."""
        return self._weights().tokenizer

    @property
    def task(self) -> Task | None:
        """What the model was trained for; None for a pre-trained model."""
        return self._weights().task

    @cached_property
    def text_model(self) -> TextModel:
        """The model for the task that it was trained for; a pre-trained one fills masks."""
        if self._saved is not None:
            return self._saved
        trained, task = self._weights(), self._weights().task
        if isinstance(trained.model, BertForPreTraining):
            return self.mask_filler
        if task is not None:
            settings = self._answer_settings if task.name == "question_answering" else {}
            predictor = TYPES[task.name].load("predictor")
            return predictor(trained, batch_size=self._batch_size, **settings)
        if trained.unused_head:
            raise ValueError(
                f"{trained.unused_head} Write it as a folder that states its task with "
                "convert_checkpoint, or use its embeddings: `embed`, or --task=embeddings of predict."
            )
        raise ValueError(
            f"{trained.source} holds an encoder without a head, which has nothing to predict. Use its "
            "embeddings: `embed`, or --task=embeddings of predict."
        )

    @cached_property
    def mask_filler(self) -> MaskFiller:
        """The pre-trained model, to fill masks."""
        return MaskFiller(self._weights(), batch_size=self._batch_size)

    @cached_property
    def scorer(self) -> PseudoPerplexity:
        """The pre-trained model, to score texts."""
        return PseudoPerplexity(self._weights(), self._batch_size)

    def encoder(self, pooling: str = "mean", normalize: bool = True) -> EmbeddingModel:
        """The encoder of any model, for embeddings; that of a SavedModel as it was exported."""
        if isinstance(self._saved, EmbeddingModel):
            return self._saved
        key = (pooling, normalize)
        if key not in self._encoders:
            weights = self._weights()
            self._encoders[key] = SentenceEncoder(weights, pooling, normalize, self._batch_size)
        return self._encoders[key]

    def predict(self, items: Sequence[Any]) -> list[dict[str, Any]]:
        """What the model was trained to say of each input, in the order of the inputs.

        Args:
            items: of a classifier texts or (text_a, text_b); of run_squad (question, text); of run_swag
                (text, choices); else texts. A lone text is one input. A text is a str, bytes in UTF-8
                or a string tensor; a list may be an array or tensor of strings.

        Raises:
            TypeError: one of them is not a text.
            ValueError: there is no answer to one of them.
        """
        return self.text_model.answers(items)

    def fill_mask(self, text: str, top_k: int = 5) -> list[list[Candidate]]:
        """The `top_k` best tokens for each [MASK] of a text, the best first."""
        return self.mask_filler.predict(text, top_k)

    def pseudo_perplexity(self, texts: str | Sequence[str]) -> list[dict[str, Any]]:
        """Score each text, or a lone one. See `PseudoPerplexity`, `corpus_pseudo_perplexity`."""
        return self.scorer.predict(texts)

    def embed(
        self, texts: str | Sequence[str], pooling: str = "mean", normalize: bool = True
    ) -> np.ndarray:
        """One vector for each text, float32 [N, E]; a lone text is one. See `SentenceEncoder`."""
        return self.encoder(pooling, normalize).encode(texts)

    def _weights(self) -> TrainedModel:
        if self._trained is None:
            raise ValueError(
                f"{self._saved_folder} is a SavedModel, which does what it was exported for and nothing "
                "else. Name the folder that it was exported from."
            )
        return self._trained
