"""Files of run_embeddings and run_reranker: the documents of queries and the scores of pairs."""

from __future__ import annotations

import abc
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from bert_tf.data.files import json_line, open_whole
from bert_tf.finetuning import loop
from bert_tf.finetuning.run import AnyOptions, AnyTask, Program, Run, Splits, renamed
from bert_tf.metrics.retrieval import judged, retrieval_metrics, score_metrics
from bert_tf.report.embeddings import pair_sections, query_sections
from bert_tf.report.page import Command, Section, write_report
from bert_tf.tasks.embeddings import EmbeddingExample
from bert_tf.training.embedding_losses import SCORES

logger = logging.getLogger(__name__)

_SHOWN = 10  # documents of a query in test_predictions.jsonl


@dataclass(frozen=True)
class Ranking:
    """Documents of each query.

    Args:
        scores, indexes: of the documents, [Q, k], the best first; -1 after the last one.
        is_relevant: bool [Q, k], of the same documents.
        num_relevant: int [Q], relevant documents of each query, found or not.
        a_relevant: int [Q], index of one of them; any for a query without one.
    """

    queries: Sequence[str]
    documents: Sequence[str]
    scores: np.ndarray
    indexes: np.ndarray
    is_relevant: np.ndarray
    num_relevant: np.ndarray
    a_relevant: np.ndarray

    @classmethod
    def of_lists(
        cls,
        queries: Sequence[str],
        documents: Sequence[str],
        scores: np.ndarray,
        indexes: np.ndarray,
        relevant: Sequence[Sequence[int]],
    ) -> Ranking:
        """Return the ranking of queries whose relevant documents are listed: at least one of each."""
        first = np.array([own[0] for own in relevant])
        return cls(queries, documents, scores, indexes, *judged(indexes, relevant), first)

    def metrics(self) -> dict[str, float]:
        return retrieval_metrics(self.is_relevant, self.num_relevant)


class RankingProgram(Program[AnyTask, AnyOptions]):
    """A program whose splits have queries with documents, or pairs with scores.

    Attributes:
        name: of the program.
        example_types: of each split.
    """

    name: ClassVar[str]
    example_types: Mapping[str, str]

    def metric_keys(self, task: AnyTask, splits: Splits) -> list[str] | None:
        if "dev" not in splits:
            return None
        if self.example_types["dev"] == SCORES:
            labels = np.array([example.label for example in splits["dev"]])
            keys = list(score_metrics(labels, labels))
        else:
            keys = list(retrieval_metrics(np.array([[True]]), np.array([1])))
        widths = getattr(task, "matryoshka_dims", ())
        return keys + [f"{task.best_metric}_dim_{width}" for width in widths]

    def metrics(self, run: Run) -> Mapping[str, float]:
        return self.answers(run, "dev", "eval", run.options.eval_batch_size)[0]

    def evaluate(self, run: Run) -> dict[str, float]:
        return self._write(run, "dev", "eval", run.options.eval_batch_size)

    def predict(self, run: Run) -> None:
        self._write(run, "test", "test", run.options.predict_batch_size)

    def _write(self, run: Run, split: str, name: str, batch_size: int) -> dict[str, float]:
        """Write the metrics, and the report of "eval" or the predictions of "test"."""
        logger.info("***** Running %s *****", "evaluation" if name == "eval" else "prediction")
        examples, options = run.splits[split], run.options
        logger.info("  Num examples = %d", len(examples))
        metrics, found = self.answers(run, split, name, batch_size)
        results = {"global_step": run.trainer.step, **renamed(metrics, name)}
        loop.write_results(run.path(f"{name}_results.txt"), results, f"{name.capitalize()} results")
        if name == "test":
            _write_predictions(run.path("test_predictions.jsonl"), examples, found)
        else:
            source = options.task_name or os.path.basename(options.eval_file or "")
            shown = {**results, "examples": len(examples)}
            title, command = f"{self.name} on {source}", Command(self.name, options)
            sections = _sections(examples, found)
            write_report(run.path("report.html"), title, shown, sections, command)
        return results

    @abc.abstractmethod
    def answers(
        self, run: Run, split: str, name: str, batch_size: int
    ) -> tuple[dict[str, float], Ranking | np.ndarray]:
        """Return the metrics of a split, and the documents of each query or the scores of the pairs.

        Args:
            name: of the records.
        """


def _sections(examples: Sequence[EmbeddingExample], found: Ranking | np.ndarray) -> list[Section]:
    if isinstance(found, Ranking):
        return query_sections(
            found.queries, found.documents, found.indexes, found.a_relevant, found.is_relevant
        )
    labels = np.array([example.label for example in examples])
    return pair_sections([example.texts for example in examples], found, labels)


def _write_predictions(
    path: str, examples: Sequence[EmbeddingExample], found: Ranking | np.ndarray
) -> None:
    with open_whole(path) as file:
        if isinstance(found, Ranking):
            for query, scores, row in zip(found.queries, found.scores, found.indexes, strict=True):
                best = zip(scores[:_SHOWN], row[:_SHOWN], strict=True)
                documents = [
                    {"text": found.documents[index], "score": float(score)}
                    for score, index in best
                    if index >= 0
                ]
                line: dict[str, Any] = {"query": query, "documents": documents}
                file.write(json_line(line))
        else:
            for example, score in zip(examples, found, strict=True):
                line = {"texts": example.texts, "score": float(score)}
                file.write(json_line(line))
    logger.info("Wrote %s", path)
