"""BERT (Devlin et al. 2019) for TensorFlow 2 and Keras 3.

    import bert_tf

    bert_tf.load("mrpc_output").predict([("A dog.", "A cat.")])
    model = bert_tf.BertForSequenceClassification.from_pretrained(folder, num_labels=3)
    tokenizer = bert_tf.FullTokenizer.from_pretrained(folder)

Importing this package does not import TensorFlow or Keras. The names below are imported on first use.
"""

# ruff: noqa: F401  (type checkers read the imports, Python the table below them)

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "3.0.0.dev0"

if TYPE_CHECKING:
    from bert_tf.checkpoints.initial import LoadReport, initialize
    from bert_tf.checkpoints.read import read_checkpoint
    from bert_tf.config import BertConfig
    from bert_tf.data.features import FeatureSpec
    from bert_tf.data.records import RecordWriter
    from bert_tf.embeddings.task import EmbeddingExample, EmbeddingTask
    from bert_tf.modeling.bert import BertModel
    from bert_tf.modeling.configured_model import ConfiguredModel
    from bert_tf.modeling.models import (
        BertForMaskedLM,
        BertForMultipleChoice,
        BertForPreTraining,
        BertForQuestionAnswering,
        BertForSentenceEmbedding,
        BertForSequenceClassification,
        BertForTokenClassification,
    )
    from bert_tf.prediction.encoder import cosine_similarity
    from bert_tf.prediction.predictor import Predictor, load
    from bert_tf.pretraining.task import PretrainingTask
    from bert_tf.registry import TaskType, register_task
    from bert_tf.serving.convert_checkpoint import convert
    from bert_tf.serving.export_saved_model import export
    from bert_tf.serving.preprocessor import TextPreprocessor
    from bert_tf.tasks.base import Task
    from bert_tf.tasks.classification import ClassificationTask, InputExample
    from bert_tf.tasks.multiple_choice import MultipleChoiceTask
    from bert_tf.tasks.question_answering import QuestionAnsweringTask
    from bert_tf.tasks.token_classification import TokenClassificationTask
    from bert_tf.tasks.trainer import Trainer
    from bert_tf.tokenization import FullTokenizer
    from bert_tf.training.losses import Loss
    from bert_tf.training.optimizers import AdamW, AdamWeightDecay, Lamb, Muon
    from bert_tf.training.schedules import WarmupDecay

# Module -> its names in this package.
_NAMES = {
    "config": "BertConfig",
    "tokenization": "FullTokenizer",
    "serving.preprocessor": "TextPreprocessor",
    "prediction.predictor": "load Predictor",
    "prediction.encoder": "cosine_similarity",
    "serving.export_saved_model": "export",
    "serving.convert_checkpoint": "convert",
    "modeling.bert": "BertModel",
    "modeling.configured_model": "ConfiguredModel",
    "modeling.models": "BertForPreTraining BertForMaskedLM BertForSequenceClassification "
    "BertForTokenClassification BertForQuestionAnswering BertForMultipleChoice "
    "BertForSentenceEmbedding",
    "checkpoints.read": "read_checkpoint",
    "checkpoints.initial": "initialize LoadReport",
    "tasks.trainer": "Trainer",
    "registry": "TaskType register_task",
    "tasks.base": "Task",
    "tasks.classification": "ClassificationTask InputExample",
    "tasks.question_answering": "QuestionAnsweringTask",
    "tasks.token_classification": "TokenClassificationTask",
    "tasks.multiple_choice": "MultipleChoiceTask",
    "embeddings.task": "EmbeddingTask EmbeddingExample",
    "pretraining.task": "PretrainingTask",
    "data.features": "FeatureSpec",
    "data.records": "RecordWriter",
    "training.losses": "Loss",
    "training.optimizers": "AdamWeightDecay AdamW Lamb Muon",
    "training.schedules": "WarmupDecay",
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = ["__version__", *_HOMES]


def __getattr__(name: str):
    if name not in _HOMES:
        from bert_tf.limits import suggestion

        raise AttributeError(
            f"module 'bert_tf' has no attribute {name!r}{suggestion(name, _HOMES)}"
        )
    return getattr(import_module(f"bert_tf.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
