"""Question answering: the answer to a question is a span of its passage, or missing.

A question has one or more windows (data/windows.py). The model computes two logits per token, for
the first and the last token of the answer. [CLS] represents no answer.

Shapes: B batch, S sequence.

Source: google-research/bert, run_squad.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.data.features import FeatureSpec, sequence_specs
from bert_tf.data.parallel import WindowRecords, WindowRow
from bert_tf.data.question_answering import Findings, SquadExample, TrainingExample
from bert_tf.data.records import content_key
from bert_tf.data.windows import (
    FIRST_UNIQUE_ID,
    Passage,
    TokenizedPassage,
    TokenSpan,
    Window,
    make_windows,
    tokenize_passage,
)
from bert_tf.modeling.models import BertForQuestionAnswering
from bert_tf.registry import TaskType, register_task
from bert_tf.tasks.answer_decoding import ANSWER_SPANS, AnswerSettings, Prediction, predict_answer
from bert_tf.tasks.base import ExampleTask, Tensors, check_argument
from bert_tf.tasks.squad_metrics import evaluate_v1, evaluate_v2
from bert_tf.tokenization import FullTokenizer
from bert_tf.training.losses import span_loss, without_padding

LabeledQuestion = tuple[SquadExample, TokenizedPassage, TokenSpan | None]


def tokenize_passages(
    examples: Iterable[SquadExample], tokenizer: FullTokenizer
) -> dict[Passage, TokenizedPassage]:
    """Return the word pieces of each passage, computed once for all its questions."""
    passages = dict.fromkeys(example.passage for example in examples)
    return {passage: tokenize_passage(passage, tokenizer) for passage in passages}


def label_questions(
    examples: Sequence[TrainingExample],
    tokenizer: FullTokenizer,
    findings: Findings,
    answer_spans: str = "words",
) -> list[LabeledQuestion]:
    """Return questions with the tokens of their answers, or None without an answer."""
    passages = tokenize_passages((example for example, _ in examples), tokenizer)
    labeled: list[LabeledQuestion] = []
    for example, answer in examples:
        passage, span = passages[example.passage], None
        if answer is not None:
            if answer_spans == "characters":
                span = passage.find_exact_span(passage.passage.locate(answer), tokenizer)
            else:
                span = passage.find_span(answer, tokenizer.encode(answer.text))
            if span is None:
                findings.add("are left out, because their answer has no tokens", example.qas_id)
                continue
        labeled.append((example, passage, span))
    return labeled


# Extra features of a record for training. The last is unused, as in the reference.
ANSWER_FEATURES = (
    FeatureSpec("start_positions", role="label", output="start_logits"),
    FeatureSpec("end_positions", role="label", output="end_logits"),
)
IS_IMPOSSIBLE = FeatureSpec("is_impossible", role="id")


class QuestionAnsweringTask(ExampleTask):
    """One answer to each question, a span of its passage.

    >>> QuestionAnsweringTask(max_seq_length=384, version_2_with_negative=True).metric_keys[:2]
    ('exact', 'f1')

    Args:
        max_seq_length: S, of the question and a window of the passage. Longer windows are fewer.
        doc_stride: tokens from one window of a passage to the next. Shorter strides give each token
            more context and more windows.
        max_query_length: maximum tokens of a question; the rest is truncated.
        version_2_with_negative: True if a question may have no answer.
        answer_spans: one of `ANSWER_SPANS`.
        is_labeled: True if the records contain the answers, as training needs.

    Source: Devlin et al. 2019, sections 4.2 and 4.3.
    """

    name = "question_answering"
    uses_pooler = False
    best_metric = "f1"

    def __init__(
        self,
        max_seq_length: int,
        doc_stride: int = 128,
        max_query_length: int = 64,
        version_2_with_negative: bool = False,
        answer_spans: str = "words",
        is_labeled: bool = True,
    ):
        minimum = max_query_length + 4  # [CLS], [SEP], a token, [SEP]
        rule = f"{minimum} or more, with max_query_length={max_query_length}"
        check_argument(max_query_length > 0, "max_query_length", max_query_length, "1 or more")
        check_argument(max_seq_length >= minimum, "max_seq_length", max_seq_length, rule)
        check_argument(doc_stride > 0, "doc_stride", doc_stride, "1 or more")
        assert answer_spans in ANSWER_SPANS  # noqa: S101
        self.max_seq_length = max_seq_length
        self.doc_stride = doc_stride
        self.max_query_length = max_query_length
        self.version_2_with_negative = version_2_with_negative
        self.answer_spans = answer_spans
        self.is_labeled = is_labeled
        self.features = (FeatureSpec("unique_ids", role="id"), *sequence_specs((max_seq_length,)))
        if is_labeled:
            self.features += ANSWER_FEATURES
        self.losses = (span_loss(),)

    @property
    def metric_keys(self) -> tuple[str, ...]:
        """Keys of the official metrics; an evaluation lacks those of a type without questions."""
        if not self.version_2_with_negative:
            return ("exact_match", "f1")
        groups = ("", "HasAns_", "NoAns_", "best_")
        return tuple(f"{group}{name}" for group in groups for name in ("exact", "f1"))

    def arguments(self) -> dict[str, Any]:
        return {name: v for name, v in super().arguments().items() if name != "is_labeled"}

    def unlabeled(self) -> QuestionAnsweringTask:
        """Return the same task for records without answers."""
        return QuestionAnsweringTask(**self.arguments(), is_labeled=False)

    def build_model(self, config: BertConfig, dtype: str | None = None) -> BertForQuestionAnswering:
        return BertForQuestionAnswering(config, dtype=dtype)

    def windows(
        self,
        question: str,
        passage: TokenizedPassage,
        tokenizer: FullTokenizer,
        answer: TokenSpan | None = None,
        first_unique_id: int = FIRST_UNIQUE_ID,
    ) -> list[Window]:
        """Return the windows of one question."""
        query_ids = tokenizer.encode(question)[: self.max_query_length]
        return list(
            make_windows(
                query_ids,
                passage,
                max_seq_length=self.max_seq_length,
                doc_stride=self.doc_stride,
                answer=answer,
                first_unique_id=first_unique_id,
            )
        )

    def windows_by_question(
        self, questions: Iterable[LabeledQuestion], tokenizer: FullTokenizer
    ) -> Iterator[list[Window]]:
        """Yield the windows of each question."""
        unique_id = FIRST_UNIQUE_ID
        for example, passage, answer in questions:
            windows = self.windows(example.question_text, passage, tokenizer, answer, unique_id)
            yield windows
            unique_id += len(windows)

    @property
    def written_features(self) -> tuple[FeatureSpec, ...]:
        return (*self.features, *([IS_IMPOSSIBLE] if self.is_labeled else []))

    def record_maker(self, tokenizer: FullTokenizer) -> WindowRecords:
        return WindowRecords(tokenizer, self.max_seq_length, self.record_names)

    def rows(
        self, examples: Sequence[LabeledQuestion], tokenizer: FullTokenizer
    ) -> Iterator[WindowRow]:
        for window in chain.from_iterable(self.windows_by_question(examples, tokenizer)):
            ids, positions = (window.query_ids, window.passage_ids), window.answer_positions
            yield WindowRow(*ids, window.unique_id, *positions, window.answer is None)

    def records_key(self, examples: Sequence[LabeledQuestion], tokenizer: FullTokenizer) -> str:
        settings = self.arguments() | {"is_labeled": self.is_labeled}
        return content_key(tokenizer, settings, _list_content(examples))

    def eval_outputs(self, outputs: Tensors, features: Tensors) -> Tensors:
        """Return logits [B, S], also for batches with shorter padding."""
        mask = self._pad(features["input_mask"])
        logits = {
            name: without_padding(self._pad(outputs[name]), mask)
            for name in ("start_logits", "end_logits")
        }
        return {"unique_ids": features["unique_ids"], **logits}

    def learned_shapes(self, embedding_dim):
        return dict.fromkeys(("start_logits", "end_logits"), (self.max_seq_length,))

    def _pad(self, tensor):
        return tf.pad(tensor, [[0, 0], [0, self.max_seq_length - tf.shape(tensor)[1]]])


@dataclass(frozen=True, eq=False)
class QuestionSet:
    """Questions to predict. Their windows are computed on each use, and not kept in memory."""

    questions: Sequence[LabeledQuestion]
    task: QuestionAnsweringTask
    tokenizer: FullTokenizer
    settings: AnswerSettings

    @property
    def examples(self) -> list[SquadExample]:
        return [example for example, _, _ in self.questions]

    def predict(self, outputs: Mapping[str, np.ndarray]) -> dict[str, Prediction]:
        """Return question -> answer, from the `eval_outputs` of the windows in any order."""
        row_by_id = {unique_id: row for row, unique_id in enumerate(outputs["unique_ids"].tolist())}
        windows_by_question = self.task.windows_by_question(self.questions, self.tokenizer)
        predictions = {}
        for (example, _, _), windows in zip(self.questions, windows_by_question, strict=True):
            rows = [row_by_id[window.unique_id] for window in windows]
            predictions[example.qas_id] = predict_answer(
                windows,
                [outputs["start_logits"][row] for row in rows],
                [outputs["end_logits"][row] for row in rows],
                self.tokenizer,
                self.settings,
            )
        return predictions

    @property
    def has_answers(self) -> bool:
        """True if the official metrics can be computed."""
        answers = [example.answers for example in self.examples]
        if self.task.version_2_with_negative:
            return None not in answers
        return all(answers)

    def metrics(self, predictions: Mapping[str, Prediction]) -> dict[str, float]:
        """Return exact match and F1 by the rules of SQuAD 1.1 or 2.0, in percent."""
        answers = {e.qas_id: [answer.text for answer in e.answers or ()] for e in self.examples}
        texts = {name: prediction.text for name, prediction in predictions.items()}
        if not self.task.version_2_with_negative:
            return evaluate_v1(answers, texts)
        return evaluate_v2(
            answers,
            texts,
            {name: prediction.best_answer for name, prediction in predictions.items()},
            {name: prediction.null_odds or 0.0 for name, prediction in predictions.items()},
        )


def _list_content(questions: Iterable[LabeledQuestion]) -> Iterator[Any]:
    """Yield the content of records: each question, and each passage's text before its first question."""
    numbers: dict[Passage, int] = {}
    for example, passage, answer in questions:
        if passage.passage not in numbers:
            numbers[passage.passage] = len(numbers)
            yield passage.passage.text
        yield example.question_text, numbers[passage.passage], answer


register_task(
    TaskType(
        name="question_answering",
        task=QuestionAnsweringTask,
        program="run_squad",
        pipeline="question-answering",
        usage='predict([("Who won?", "Denver beat Carolina.")])',
    )
)
