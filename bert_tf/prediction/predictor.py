"""Predictor: one class for all models on raw text. Load once, then predict repeatedly.

    Predictor("exported_model").predict(["Great film!"])                    # a label
    Predictor("squad_output").predict([("Who won?", "Denver beat Carolina.")])
    Predictor("ner_output").predict(["John Smith lives in New York."])
    Predictor("swag_output").predict([("He opens the door.", ["He goes in.", "He eats it."])])

    pretrained = Predictor("uncased_L-12_H-768_A-12")
    pretrained.fill_mask("The dog [MASK] at the cat.")
    pretrained.embed(["A dog barked.", "A cat slept."])                     # float32 [2, H]

`predict` returns the dicts that run_scripts/predict.py writes. The classes for each type of model are
in `bert_tf/prediction/`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np

from bert_tf.checkpoints.hub import local_path
from bert_tf.modeling.models import BertForPreTraining
from bert_tf.prediction.classification import ClassificationPredictor
from bert_tf.prediction.encoder import EmbeddingPredictor
from bert_tf.prediction.loading import (
    ExportedNetwork,
    TrainedModel,
    is_export,
    load_export,
    load_model,
    with_settings,
)
from bert_tf.prediction.masked_lm import MaskedLMPredictor
from bert_tf.prediction.multiple_choice import MultipleChoicePredictor
from bert_tf.prediction.question_answering import QuestionAnsweringPredictor
from bert_tf.prediction.text_model import TextModel
from bert_tf.prediction.token_classification import TokenClassificationPredictor
from bert_tf.registry import TYPES
from bert_tf.tasks.answer_decoding import AnswerSettings
from bert_tf.tasks.base import Task
from bert_tf.tasks.question_answering import QuestionAnsweringTask
from bert_tf.tokenization import FullTokenizer
from bert_tf.training.strategy import check_backend

TEXT_MODELS: dict[str, type[TextModel]] = {
    "encoder": EmbeddingPredictor,
    "pretraining": MaskedLMPredictor,
    "masked_lm": MaskedLMPredictor,
    "classification": ClassificationPredictor,
    "token_classification": TokenClassificationPredictor,
    "question_answering": QuestionAnsweringPredictor,
    "multiple_choice": MultipleChoicePredictor,
    "embeddings": EmbeddingPredictor,
}


def load(path: str | os.PathLike, **settings) -> Predictor:
    """Return the model in a folder, ready for raw text.

    >>> import bert_tf
    >>> bert_tf.load("mrpc_output").predict([("A dog.", "A cat.")])  # doctest: +SKIP
    [{'label': '0', 'probabilities': {'0': 0.93, '1': 0.07}}]

    Args:
        path: the --output_dir of a run; a folder of `export`; any checkpoint for --init_checkpoint.
            Hugging Face folders and hf://org/name state head, labels and problem type in config.json.
        **settings: of `Predictor`.

    Raises:
        FileNotFoundError: the folder or checkpoint does not exist.
        ValueError: it contains no usable model.
    """
    return Predictor(path, **settings)


class Predictor:
    """A model on raw text.

    Args:
        model: folder of an export or of a run, any checkpoint, or the result of `load_model`.
        batch_size: sequences per batch.
        precision: Keras precision policy, default float32; an export or a loaded model has its own.
        max_seq_length, doc_stride: replace the values of the training.
        null_score_diff_threshold, n_best_size, max_answer_length: as in run_squad, for questions.

    Raises:
        ValueError: the path contains no usable model, or the model has no such setting.
        FileNotFoundError: the folder or checkpoint does not exist.
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
        check_backend()
        settings = AnswerSettings(
            n_best_size=n_best_size,
            max_answer_length=max_answer_length,
            null_score_diff_threshold=null_score_diff_threshold,
        )
        if not isinstance(model, TrainedModel):
            path = local_path(model)
            model = load_export(path) if is_export(path) else load_model(path, dtype=precision)
        self._trained = with_settings(model, max_seq_length, doc_stride)
        self._batch_size = batch_size
        self._settings: dict[str, Any] = {}  # the others are those of an export
        if isinstance(self.task, QuestionAnsweringTask):
            usual = vars(AnswerSettings())
            self._settings = {n: v for n, v in vars(settings).items() if v != usual[n]}
        self._models: dict[tuple, Any] = {}  # each is compiled on first use

    @property
    def model(self) -> keras.Model:
        """Keras model with its weights."""
        return self._trained.model

    @property
    def tokenizer(self) -> FullTokenizer:
        """Tokenizer of the model."""
        return self._trained.tokenizer

    @property
    def task(self) -> Task | None:
        """Task of the model; None for a pre-trained model."""
        return self._trained.task

    @property
    def is_embedder(self) -> bool:
        """True if the task of the model is embeddings, or for an export for embeddings.

        False for an encoder alone, which gives the means of its tokens.
        """
        return TEXT_MODELS.get(self._head) is EmbeddingPredictor

    @property
    def _head(self) -> str:
        """Name of the type of task, or of the head of a model without a task; "" for neither."""
        network = self._trained.network
        if isinstance(network, ExportedNetwork):
            return network.head
        if isinstance(network, BertForPreTraining):
            return "masked_lm"
        return "" if self.task is None else self.task.name

    def _make(self, kind: Callable[..., Any], **settings: Any) -> Any:
        key = (kind, *settings.items())
        if key not in self._models:
            self._models[key] = kind(self._trained, self._batch_size, **settings)
        return self._models[key]

    @property
    def text_model(self) -> TextModel:
        """Model for its trained task; a pre-trained model fills masks."""
        entry = TYPES.get(self._head)
        if kind := (entry and entry.predictor) or TEXT_MODELS.get(self._head):
            return self._make(kind, **self._settings)
        none = f"{self._trained.source} has no head that `predict` uses."
        problem = self._trained.unused_head or none
        raise ValueError(f"{problem} Use `embed`, or --task=embeddings of predict.")

    @property
    def mask_filler(self) -> MaskedLMPredictor:
        """Pre-trained model that fills masks, or an export of one."""
        return self._make(MaskedLMPredictor)

    def encoder(
        self, pooling: str | None = None, normalize: bool | None = None, as_query: bool = False
    ) -> EmbeddingPredictor:
        """Return the encoder of any model, for embeddings; see `EmbeddingPredictor`.

        Raises:
            ValueError: the model is an export and `pooling` or `normalize` is given, or it has no
                vectors.
        """
        settings = {"pooling": pooling, "normalize": normalize, "as_query": as_query}
        return self._make(EmbeddingPredictor, **settings)

    def predict(self, items: Sequence[Any]) -> list[dict[str, Any]]:
        """Return one prediction per input, in the order of the inputs.

        Args:
            items: texts or (text_a, text_b) for a classifier; (question, text) for run_squad; (text,
                choices) for run_swag; otherwise texts. A single text is one input, but a single pair
                needs a list: [(text_a, text_b)].

        Raises:
            ValueError: an input is not a text, or has no answer.
        """
        return self.text_model.predict(items)

    def fill_mask(self, text: str, top_k: int = 5) -> list[list[dict[str, Any]]]:
        """Return the `top_k` best {"token", "probability"} for each [MASK] of a text, best first."""
        (answer,) = self.mask_filler.answer([self.mask_filler.prepare(text)], top_k)
        return answer["masks"]

    def embed(
        self,
        texts: str | Sequence[str],
        pooling: str | None = None,
        normalize: bool | None = None,
        as_query: bool = False,
    ) -> np.ndarray:
        """Return one vector per text, float32 [N, E]; see `EmbeddingPredictor`."""
        return self.encoder(pooling, normalize, as_query).encode(texts)
