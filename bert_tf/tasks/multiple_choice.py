"""Multiple choice: the best of K texts to complete the first one.

Each choice is a pair of texts. Its score is the product of its pooled [CLS] vector and a learned
vector. A softmax over the choices gives probabilities (Devlin et al. 2019, section 4.4).

Shapes: B batch, K choices, S sequence.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf.config import BertConfig
from bert_tf.data.features import FeatureSpec, sequence_specs
from bert_tf.data.multiple_choice import Question
from bert_tf.data.record_makers import ChoiceRecords, ChoiceRow
from bert_tf.data.records import chunks_of, content_key, write_parts
from bert_tf.metrics import basic
from bert_tf.modeling.models import BertForMultipleChoice
from bert_tf.tasks.base import ExampleTask, Tensors, of_type
from bert_tf.tokenization import FullTokenizer
from bert_tf.training.losses import masked_choices, multiple_choice_loss

logger = logging.getLogger(__name__)


class MultipleChoiceTask(ExampleTask):
    """One of several choices.

    Args:
        num_choices: K, the maximum of an example. Padding choices get no probability, so the model does
            not depend on K.
        max_seq_length: S, of each choice.
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

    def arguments(self) -> dict[str, Any]:
        return {"num_choices": self.num_choices, "max_seq_length": self.max_seq_length}

    @classmethod
    def of_head(cls, config, labels, max_seq_length, *, is_pair, num_choices):
        return cls(num_choices, max_seq_length)

    def id_limits(self, config: BertConfig) -> dict[str, int]:
        return super().id_limits(config) | {"label_ids": self.num_choices}

    def build_model(self, config: BertConfig, dtype: str | None = None) -> BertForMultipleChoice:
        return BertForMultipleChoice(config, dtype=dtype)

    def write_records(
        self,
        questions: Sequence[Question],
        tokenizer: FullTokenizer,
        path: str,
        num_workers: int = 1,
    ) -> int:
        """Write `questions` as a TFRecord file. Return their number.

        Args:
            num_workers: processes that tokenize. The file is the same for any number.

        Raises:
            TypeError: a question is not a Question.
            ValueError: a question has more choices than `num_choices`; the message names its line.
        """
        names = tuple(spec.name for spec in self.features)
        make = ChoiceRecords(tokenizer, self.max_seq_length, names, self.num_choices)
        rows = [self._row(question) for question in of_type(questions, Question)]
        count, num_full = write_parts(path, self.features, make, chunks_of(rows), num_workers)
        if num_full:
            logger.info(
                "%d of %d texts with their choice fill --max_seq_length=%d, and may be truncated",
                num_full,
                self.num_sequences(questions),
                self.max_seq_length,
            )
        return count

    def texts(self, example: Question) -> Iterable[str]:
        return (example.text_a, *example.choices)

    def num_sequences(self, questions: Sequence[Question]) -> int:
        return sum(len(question.choices) for question in questions)

    def _row(self, question: Question) -> ChoiceRow:
        num_choices = len(question.choices)
        if num_choices > self.num_choices:
            raise ValueError(
                f"{question.origin}: there are {num_choices} choices, but the task has at most "
                f"{self.num_choices}."
            )
        # A test set has no labels. Its records contain an unused 0.
        return ChoiceRow(question.text_a, question.choices, question.label or 0)

    def records_key(self, questions: Iterable[Question], tokenizer: FullTokenizer) -> str:
        rows = ((question.text_a, question.choices, question.label) for question in questions)
        return content_key(tokenizer, [self.num_choices, self.max_seq_length], rows)

    def eval_outputs(self, outputs: Tensors, features: Tensors) -> Tensors:
        return {
            "logits": masked_choices(outputs["logits"], features["choice_mask"]),
            "label_ids": features["label_ids"],
        }

    def metrics(self, kept: Mapping[str, np.ndarray]) -> dict[str, float]:
        """Return `eval_accuracy`, and `eval_loss` in nats."""
        logits, labels = kept["logits"], kept["label_ids"]
        loss = basic.mean_cross_entropy(logits, labels)
        accuracy = basic.accuracy(logits.argmax(axis=-1), labels)
        return {"eval_accuracy": accuracy, "eval_loss": loss, "loss": loss}
