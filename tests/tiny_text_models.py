"""Models of every task with random weights, as `load_model` would give them.

They are made once. A test that changes one makes its own by `trained`.
"""

import functools

import keras
import numpy as np
from tiny_config import tiny_config

from bert_tf.modeling.bert import BertModel
from bert_tf.packing import PackedSequence
from bert_tf.prediction.loading import TrainedModel
from bert_tf.pretraining.task import PretrainingTask
from bert_tf.tasks.classification import ClassificationTask
from bert_tf.tasks.multiple_choice import MultipleChoiceTask
from bert_tf.tasks.question_answering import QuestionAnsweringTask
from bert_tf.tokenization import FullTokenizer

TOKENS = (
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
    *("the", "cat", "dog", "owl", "##s", "sat", "on", "a"),
    *("mat", "log", ".", ",", "who", "?", "京"),
)
MAX_SEQ_LENGTH = 11
SIZES = {"hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3}
SIZES |= {"intermediate_size": 17, "max_position_embeddings": 23, "initializer_range": 0.4}
CONFIG = tiny_config(vocab_size=len(TOKENS) + 3, **SIZES)
TEXTS = [
    "the cat sat on a mat .",
    "",
    "owls",
    "the dog , the dog and the owl sat on the log . who sat on the mat ? the cat sat on the mat .",
    "a log",
    "京 京",
    "who ?",
]


def trained(task, config=CONFIG, max_seq_length=MAX_SEQ_LENGTH) -> TrainedModel:
    """A model for a task; None makes an encoder without a head."""
    keras.utils.set_random_seed(7)
    model = BertModel(config) if task is None else task.build_model(config)
    return TrainedModel(model, FullTokenizer(TOKENS), task, max_seq_length)


@functools.cache
def classifier(problem_type="single_label", **kwargs) -> TrainedModel:
    labels = () if problem_type == "regression" else ("bad", "fair", "good")
    return trained(ClassificationTask(labels, MAX_SEQ_LENGTH, problem_type=problem_type, **kwargs))


@functools.cache
def chooser() -> TrainedModel:
    return trained(MultipleChoiceTask(2, MAX_SEQ_LENGTH))


@functools.cache
def answerer(**kwargs) -> TrainedModel:
    task = QuestionAnsweringTask(15, doc_stride=4, max_query_length=4, **kwargs)
    return trained(task, max_seq_length=15)


@functools.cache
def pretrained() -> TrainedModel:
    return trained(PretrainingTask(MAX_SEQ_LENGTH, 3))


def alone(text, second=None) -> PackedSequence:
    """[CLS] text [SEP], or [CLS] text [SEP] second [SEP], cut after MAX_SEQ_LENGTH tokens."""
    tokenizer = FullTokenizer(TOKENS)
    ids = [TOKENS.index("[CLS]"), *tokenizer.encode(text)[: MAX_SEQ_LENGTH - 2]]
    ids.append(TOKENS.index("[SEP]"))
    segments = [0] * len(ids)
    if second is not None:
        more = [*tokenizer.encode(second), TOKENS.index("[SEP]")]
        ids, segments = ids + more, segments + [1] * len(more)
    return PackedSequence(ids, [1] * len(ids), segments)


def run_alone(model, sequence: PackedSequence) -> dict:
    """The outputs for one sequence that shares its batch with no other."""
    return model(
        {n: np.array([values]) for n, values in sequence._asdict().items()}, training=False
    )
