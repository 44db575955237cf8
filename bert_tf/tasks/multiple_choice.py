"""Multiple choice: the best of K texts to complete the first one.

Each choice is a pair of texts. Its score is the product of its pooled [CLS] vector and a learned
vector. A softmax over the choices gives probabilities (Devlin et al. 2019, section 4.4).

Shapes: B batch, K choices, S sequence.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from bert_tf.config import BertConfig
from bert_tf.data.features import FeatureSpec, sequence_specs
from bert_tf.data.multiple_choice import Question
from bert_tf.data.parallel import SequencesRecords, SequencesRow
from bert_tf.data.records import content_key
from bert_tf.limits import DataError
from bert_tf.modeling.models import BertForMultipleChoice
from bert_tf.registry import TaskType, register_task
from bert_tf.tasks import metrics as basic
from bert_tf.tasks.base import ExampleTask, Tensors
from bert_tf.tokenization import FullTokenizer
from bert_tf.training.losses import masked_choices, multiple_choice_loss


class MultipleChoiceTask(ExampleTask):
    """One of several texts that may continue or answer a first one.

    >>> MultipleChoiceTask(num_choices=4, max_seq_length=128).metric_keys
    ('eval_accuracy', 'eval_loss', 'loss')

    Args:
        num_choices: K, the maximum of an example. Padding choices get no probability, so the model does
            not depend on K.
        max_seq_length: S, of the first text with one choice.

    Source: Devlin et al. 2019, section 4.4.
    """

    name = "multiple_choice"
    best_metric = "eval_accuracy"
    metric_keys = ("eval_accuracy", "eval_loss", "loss")
    labels = ()  # each example has its own choices

    def __init__(self, num_choices: int, max_seq_length: int):
        self.num_choices = num_choices
        self.max_seq_length = max_seq_length
        self.features = (
            *sequence_specs((num_choices, max_seq_length)),
            FeatureSpec("choice_mask", (num_choices,), role="id"),  # 1 = a choice, 0 = padding
            FeatureSpec("label_ids", role="label", output="logits"),
            FeatureSpec("is_real_example", role="weight", output="logits"),
        )
        self.losses = (multiple_choice_loss(),)

    def id_limits(self, config: BertConfig) -> dict[str, int]:
        return super().id_limits(config) | {"label_ids": self.num_choices}

    def build_model(self, config: BertConfig, dtype: str | None = None) -> BertForMultipleChoice:
        return BertForMultipleChoice(config, dtype=dtype)

    def record_maker(self, tokenizer: FullTokenizer) -> SequencesRecords:
        names, num_choices = self.record_names, self.num_choices
        return SequencesRecords(tokenizer, self.max_seq_length, names, num_choices, "int32")

    def num_sequences(self, questions: Sequence[Question]) -> int:
        return sum(len(question.choices) for question in questions)

    def rows(self, questions: Sequence[Question], tokenizer: FullTokenizer) -> list[SequencesRow]:
        for question in questions:
            if len(question.choices) > self.num_choices:
                problem = f"{len(question.choices)} choices, but the task has {self.num_choices}."
                raise DataError(question.location, problem)
        # A test set has no labels. Its records contain an unused 0.
        return [SequencesRow(q.choices, q.label or 0, q.text_a) for q in questions]

    def records_key(self, questions: Iterable[Question], tokenizer: FullTokenizer) -> str:
        rows = ((question.text_a, question.choices, question.label) for question in questions)
        return content_key(tokenizer, [self.num_choices, self.max_seq_length], rows)

    def eval_outputs(self, outputs: Tensors, features: Tensors) -> Tensors:
        return {
            "logits": masked_choices(outputs["logits"], features["choice_mask"]),
            "label_ids": features["label_ids"],
        }

    def learned_shapes(self, embedding_dim):
        return {"logits": (self.num_choices,)}

    def metrics(self, outputs: Mapping[str, np.ndarray]) -> dict[str, float]:
        """Return `eval_accuracy`, and `eval_loss` in nats."""
        logits, labels = outputs["logits"], outputs["label_ids"]
        loss = basic.mean_cross_entropy(logits, labels)
        accuracy = basic.accuracy(logits.argmax(axis=-1), labels)
        return {"eval_accuracy": accuracy, "eval_loss": loss, "loss": loss}


register_task(
    TaskType(
        name="multiple_choice",
        task=MultipleChoiceTask,
        program="run_swag",
        pipeline="multiple-choice",
        usage='predict([("He opens the door.", ["He goes in.", "He eats it."])])',
    )
)
