"""Files of run_embeddings and run_reranker: the documents of queries and the scores of pairs."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from bert_tf.embeddings.losses import SCORES
from bert_tf.embeddings.retrieval import judge, retrieval_metrics, score_metrics
from bert_tf.embeddings.task import EmbeddingExample
from bert_tf.files import atomic_write, json_line
from bert_tf.report.page import MAX_ERRORS, Section, hardest_errors, shorten
from bert_tf.tasks.run import Run

logger = logging.getLogger(__name__)

_NUM_PREDICTED = 10  # documents of a query in test_predictions.jsonl


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
    def from_lists(
        cls,
        queries: Sequence[str],
        documents: Sequence[str],
        scores: np.ndarray,
        indexes: np.ndarray,
        relevant: Sequence[Sequence[int]],
    ) -> Ranking:
        """Return the ranking of queries whose relevant documents are listed: at least one of each."""
        first = np.array([indexes[0] for indexes in relevant])
        return cls(queries, documents, scores, indexes, *judge(indexes, relevant), first)

    def metrics(self) -> dict[str, float]:
        return retrieval_metrics(self.is_relevant, self.num_relevant)


Answers: TypeAlias = (
    "Ranking | np.ndarray"  # the documents of each query, or the scores of the pairs
)


def metric_keys(
    task: Any, example_types: Mapping[str, str], examples: Sequence[EmbeddingExample]
) -> list[str] | None:
    """Return the keys of the metrics of "dev", None without its examples."""
    if not examples:
        return None
    if example_types["dev"] == SCORES:
        labels = np.array([example.label for example in examples])
        keys = list(score_metrics(labels, labels))
    else:
        keys = list(retrieval_metrics(np.array([[True]]), np.array([1])))
    widths = getattr(task, "matryoshka_dims", ())
    return keys + [f"{task.best_metric}_dim_{width}" for width in widths]


def train_and_rank(
    run: Run,
    program: str,
    splits: Mapping[str, Sequence[EmbeddingExample]],
    answer: Callable[[str, str, int], tuple[dict[str, float], Answers]],
) -> dict[str, float]:
    """Train, evaluate and predict, as the options set. Return the metrics of the evaluation, if any.

    Args:
        program: its name.
        answer: (split, name of its records, batch size) -> metrics and answers.
    """
    options, results = run.options, {}

    def dev_metrics() -> dict[str, float]:
        return answer("dev", "eval", options.training.eval_batch_size)[0]

    if options.training.do_train:
        run.train(splits["train"], dev_metrics if options.training.do_eval else None)
    if options.training.do_eval:
        logger.info("***** Running evaluation on %d examples *****", len(splits["dev"]))
        metrics, answers = answer("dev", "eval", options.training.eval_batch_size)
        results = run.write_results("eval", metrics)
        source = options.texts.task_name or os.path.basename(options.fine_tuning.eval_file or "")
        values = {**results, "examples": len(splits["dev"])}
        sections = _sections(splits["dev"], answers)
        run.write_report(f"{program} on {source}", values, sections)
    if options.fine_tuning.do_predict:
        logger.info("***** Running prediction on %d examples *****", len(splits["test"]))
        metrics, answers = answer("test", "test", options.fine_tuning.predict_batch_size)
        run.write_results("test", metrics)
        _write_predictions(run.path("test_predictions.jsonl"), splits["test"], answers)
    return results


def _sections(examples: Sequence[EmbeddingExample], answers: Answers) -> list[Section]:
    if isinstance(answers, Ranking):
        return query_sections(answers)
    labels = np.array([example.label for example in examples])
    return pair_sections([example.texts for example in examples], answers, labels)


def _write_predictions(path: str, examples: Sequence[EmbeddingExample], answers: Answers) -> None:
    with atomic_write(path) as file:
        if isinstance(answers, Ranking):
            rows = zip(answers.queries, answers.scores, answers.indexes, strict=True)
            for query, scores, row in rows:
                best = zip(scores[:_NUM_PREDICTED], row[:_NUM_PREDICTED], strict=True)
                documents = [
                    {"text": answers.documents[index], "score": float(score)}
                    for score, index in best
                    if index >= 0
                ]
                line: dict[str, Any] = {"query": query, "documents": documents}
                file.write(json_line(line))
        else:
            for example, score in zip(examples, answers, strict=True):
                line = {"texts": example.texts, "score": float(score)}
                file.write(json_line(line))
    logger.info("Wrote %s", path)


def query_sections(ranking: Ranking) -> list[Section]:
    """Return the queries whose first relevant document has the lowest rank."""
    k = ranking.is_relevant.shape[1]
    ranks = np.where(ranking.is_relevant.any(axis=1), ranking.is_relevant.argmax(axis=1), k)
    wrong = [query for query in np.argsort(-ranks, kind="stable") if ranks[query]]
    indexes = np.column_stack([ranking.indexes, ranking.a_relevant])
    rows = [
        [
            shorten(ranking.queries[query]),
            shorten(ranking.documents[indexes[query, ranks[query]]]),
            shorten(ranking.documents[indexes[query, 0]]),
            f"beyond {k}" if ranks[query] == k else str(ranks[query] + 1),
        ]
        for query in wrong[:MAX_ERRORS]
    ]
    header = ["query", "relevant", "found first", "place of the relevant one"]
    return [hardest_errors(header, rows, len(wrong), "the lowest place first")]


def pair_sections(
    pairs: Sequence[Sequence[str]], predicted: np.ndarray, scores: np.ndarray
) -> list[Section]:
    """Return the pairs whose rank by predicted score differs most from that by score.

    Pairs with equal scores share their ranks.
    """
    count, ascending = len(pairs), np.sort(scores)
    ranks = np.argsort(np.argsort(predicted, kind="stable"))
    first, last = (np.searchsorted(ascending, scores, side) for side in ("left", "right"))
    gaps = np.maximum(first - ranks, 0) + np.maximum(ranks - (last - 1), 0)
    wrong = [index for index in np.argsort(-gaps, kind="stable") if gaps[index]]
    rows = [
        [*map(shorten, pairs[i]), f"{scores[i]:.3g}", f"{predicted[i]:.3f}"]
        for i in wrong[:MAX_ERRORS]
    ]
    header = ["first text", "second text", "score", "score of the model"]
    order = f"the largest difference of the places among {count} pairs first"
    return [hardest_errors(header, rows, len(wrong), order)]
