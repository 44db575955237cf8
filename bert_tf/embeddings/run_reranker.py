"""run_reranker: fine-tune and evaluate a cross-encoder, which scores a query with a document.

Source: Nogueira and Cho 2019, arXiv 1901.04085. The reference has no such program.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bert_tf.data.tables import TableOptions
from bert_tf.embeddings.data import (
    LENGTH_OF_START,
    TextsOptions,
    describe_source,
    read_examples,
    score_each_pair,
)
from bert_tf.embeddings.losses import CLASSES, PAIRS, SCORES
from bert_tf.embeddings.rankings import Answers, Ranking, metric_keys, train_and_rank
from bert_tf.embeddings.reranking import RERANKING_LOSSES, RerankingTask
from bert_tf.embeddings.retrieval import (
    find_own_documents,
    relevance,
    score_metrics,
    search_others,
)
from bert_tf.embeddings.task import EmbeddingExample
from bert_tf.limits import DataError
from bert_tf.options import ModelOptions, OptionError, changes, option
from bert_tf.prediction.predictor import Predictor
from bert_tf.tasks.base import Task
from bert_tf.tasks.classification import ClassificationTask
from bert_tf.tasks.metrics import l2_normalize
from bert_tf.tasks.run import Run, start_fine_tuning
from bert_tf.tasks.setup import FineTuningOptions, Setup, check_data, resolve
from bert_tf.training.options import DeviceOptions, TrainingOptions
from bert_tf.training.progress import Progress

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class RerankerOptions:
    """The flags of run_reranker."""

    devices: DeviceOptions
    training: TrainingOptions
    model: ModelOptions = LENGTH_OF_START
    fine_tuning: FineTuningOptions
    table: TableOptions = changes(text_a_column=None, text_b_column=None, choices_column=None)
    texts: TextsOptions
    loss: str | None = option(
        "binary: cross-entropy of each score. pairwise: the positive against each negative. listwise: "
        "the positive among all documents of its query. Default: binary for scores, else listwise.",
        group="Model",
        default=None,
        choices=tuple(RERANKING_LOSSES),
        on_resume="warn",
    )
    num_negatives: int = option(
        "Negatives of a training example: those of --train_file, and positives of other anchors, drawn "
        "with --seed, up to this number.",
        default=4,
        min=1,
        on_resume="warn",
    )
    retriever: str | None = option(
        "Model of run_embeddings, or another folder for embeddings, that finds the documents to rank in "
        "an evaluation, among the positives and negatives of the file, except the query itself. "
        "Default: a query has the documents of its own rows.",
        default=None,
    )

    def __post_init__(self) -> None:
        check_data(self, self.texts.data_set, self.texts.data_dir)


RerankerRun = Run[RerankingTask, RerankerOptions]

DEPTH = 20  # documents of a query that the retriever finds
_BEST_METRIC = {PAIRS: "eval_ndcg@10", SCORES: "eval_spearman"}


def run_reranker(options: RerankerOptions) -> dict[str, float]:
    """Train, evaluate and predict, as the options set. Return the metrics of the evaluation, if any.

    Write `train.tf_record`, `model.ckpt-N`, `metrics.jsonl`, the files of checkpoints/write.py, and

        eval_results.txt          "key = value" lines. Anchors with positives: MRR@10, nDCG@10, MAP@100,
                                  Recall@1, 10 and 100 of the ranked documents of each query; nDCG@10
                                  of the retriever's order. Scores: Spearman and Pearson
        report.html               the hardest queries or pairs
        test_predictions.jsonl    of --predict_file: the ten best documents of each query, or the score
                                  of each pair
        test_results.txt          the step, and its metrics if it has scores or negatives
    """
    setup = resolve(options, ClassificationTask.name)
    types, splits = read_examples(options)
    if options.retriever is None:
        score_each_pair(types, splits)
    _check(options, types, splits, setup.trained)
    ranked = [split for split in types if split != "train" and types[split] == PAIRS]
    retriever = Predictor(options.retriever) if options.retriever and ranked else None
    lists = {split: _lists(splits[split], retriever) for split in ranked}
    task = make_task(setup, types, splits)
    keys, program = metric_keys(task, types, splits.get("dev", ())), "run_reranker"
    run: RerankerRun = start_fine_tuning(setup, task, splits, metric_keys=keys, program=program)
    pairs = RerankingTask(task.max_seq_length)  # of single documents; the trainer compiles it once

    def score(examples: Sequence[EmbeddingExample], name: str, batch_size: int) -> np.ndarray:
        """Return the score of each query with its document, [N]."""
        return run.outputs(examples, name, batch_size, pairs)["logits"][:, 0]

    def answer(split: str, name: str, batch_size: int) -> tuple[dict[str, float], Answers]:
        if types[split] == SCORES:
            labels = np.array([example.label for example in splits[split]])
            scores = score(splits[split], name, batch_size)
            return score_metrics(scores, labels), scores
        candidates = lists[split]
        ranking = candidates.rank(score(candidates.pairs(), name, batch_size))
        metrics, best = ranking.metrics(), _BEST_METRIC[PAIRS]
        if candidates.in_order and metrics:
            metrics[f"{best}_of_retriever"] = candidates.as_retrieved().metrics()[best]
        return metrics, ranking

    return train_and_rank(run, program, splits, answer)


def make_task(
    setup: Setup, types: Mapping[str, str], splits: dict[str, list[EmbeddingExample]]
) -> RerankingTask:
    """Return the task for the options and the examples. Give anchors of "train" their negatives."""
    options, example_type = setup.options, next(iter(types.values()))
    if example_type == PAIRS and "train" in splits:
        num_negatives, seed = options.num_negatives, options.training.seed
        splits["train"] = add_negatives(splits["train"], num_negatives, seed)
    num_documents = max((len(e.texts) - 1 for e in splits.get("train", ())), default=1)
    loss = options.loss or ("binary" if example_type == SCORES else "listwise")
    best = _BEST_METRIC[types.get("dev", example_type)]
    length = options.model.max_seq_length or _find_length(setup.known) or setup.max_seq_length
    return RerankingTask(length, num_documents, loss, best)


@dataclass(frozen=True)
class Lists:
    """Documents of each query that are ranked.

    Args:
        candidates: of each query, the indexes of these documents.
        relevant: of each query, the indexes of its relevant documents, ranked or not.
        in_order: the retriever has ranked the candidates, the best first.
    """

    queries: Sequence[str]
    documents: Sequence[str]
    candidates: Sequence[Sequence[int]]
    relevant: Sequence[Sequence[int]]
    in_order: bool

    def pairs(self) -> list[EmbeddingExample]:
        """Return each query with each of its candidates."""
        return [
            EmbeddingExample((query, self.documents[index]))
            for query, row in zip(self.queries, self.candidates, strict=True)
            for index in row
        ]

    def as_retrieved(self) -> Ranking:
        """Return the documents in the order of the candidates."""
        return self.rank(np.concatenate([-np.arange(len(row)) for row in self.candidates]))

    def rank(self, candidate_scores: np.ndarray) -> Ranking:
        """Return the documents by the scores of all candidates, [N] in their order."""
        shape = len(self.queries), max(map(len, self.candidates))
        scores, indexes = np.full(shape, -np.inf), np.full(shape, -1)
        exists = np.arange(shape[1]) < np.array([len(row) for row in self.candidates])[:, None]
        scores[exists], indexes[exists] = candidate_scores, np.concatenate(self.candidates)
        order = np.argsort(-scores, axis=1, kind="stable")
        scores, indexes = (np.take_along_axis(values, order, 1) for values in (scores, indexes))
        return Ranking.from_lists(self.queries, self.documents, scores, indexes, self.relevant)


def add_negatives(
    examples: Sequence[EmbeddingExample], num_negatives: int, seed: int
) -> list[EmbeddingExample]:
    """Return the examples with label 1 and negatives: their own, and positives of other anchors.

    Positives of the same anchor in any example are left out. The result depends on the seed and the
    examples only.

    Raises:
        ValueError: an anchor has every positive of the file, so that none is a negative.
    """
    queries, documents, relevant = relevance(example.texts[:2] for example in examples)
    texts = list(documents)
    positives = {
        query: {texts[index] for index in row} for query, row in zip(queries, relevant, strict=True)
    }
    generator, with_own = random.Random(seed), []
    for example in examples:
        anchor, positive, *own = example.texts
        excluded = positives[anchor] | {anchor, *own}
        own = [text for text in dict.fromkeys(own) if text not in positives[anchor] | {anchor}]
        negatives = own[:num_negatives]
        missing = min(num_negatives - len(negatives), len(texts) - len(excluded & documents.keys()))
        while missing > 0:
            text = generator.choice(texts)
            if text not in excluded:
                excluded.add(text)
                negatives.append(text)
                missing -= 1
        if not negatives:
            raise DataError(
                example.origin,
                "every positive of the file is one of the anchor's own. Give negatives.",
            )
        with_own.append(replace(example, texts=(anchor, positive, *negatives), label=1.0))
    return with_own


def _lists(examples: Sequence[EmbeddingExample], retriever: Predictor | None) -> Lists:
    queries, documents, relevant = relevance(example.texts for example in examples)
    if retriever is not None:
        query_vectors = embed_all(retriever, list(queries), "queries", as_query=True)
        vectors = embed_all(retriever, list(documents), "documents")
        own = find_own_documents(queries, documents, relevant)
        indexes = search_others(query_vectors, vectors, own, DEPTH)[1].tolist()
        candidates = [[document for document in row if document >= 0] for row in indexes]
    else:
        candidates = list_documents(examples, queries, documents, relevant)
    in_order = retriever is not None
    return Lists(list(queries), list(documents), candidates, relevant, in_order)


def list_documents(
    examples: Sequence[EmbeddingExample],
    queries: Mapping[str, int],
    documents: Mapping[str, int],
    relevant: Sequence[Sequence[int]],
) -> list[list[int]]:
    """Return the documents in the rows of each query, the relevant ones last.

    The order matters for equal scores only: a model that gives every document one score finds nothing.
    """
    in_rows: list[set[int]] = [set() for _ in queries]
    for example in examples:
        in_rows[queries[example.texts[0]]].update(documents[text] for text in example.texts[1:])
    trivial = sum(own <= set(row) for own, row in zip(in_rows, relevant, strict=True))
    if trivial:
        logger.warning(
            "%d of %d queries have no negatives, and raise the metrics because any order is perfect. "
            "Give them negatives, or use --retriever.",
            *(trivial, len(queries)),
        )
    return [
        sorted(own - set(row)) + sorted(set(row))
        for own, row in zip(in_rows, relevant, strict=True)
    ]


def _find_length(known: Task | None) -> int | None:
    """Return the longest input of the model that the run begins with; None unless that scores pairs."""
    if not isinstance(known, ClassificationTask) or known.kind.name != "regression":
        return None
    return known.max_seq_length if known.is_pair else None


def _check(
    options: RerankerOptions,
    types: Mapping[str, str],
    splits: Mapping[str, Sequence[EmbeddingExample]],
    trained: Task | None,
) -> None:
    """Raise ValueError unless the model and the loss fit the examples and there is something to rank."""
    if isinstance(trained, ClassificationTask) and (
        trained.is_pair is False or trained.kind.name != "regression"
    ):
        raise OptionError(
            "init_checkpoint",
            f"a reranker is a regression of pairs, not {trained.kind.name}, is_pair={trained.is_pair}.",
        )
    if CLASSES in types.values():
        raise ValueError("The examples are texts with classes: use run_classifier.")
    if types.get("train") == SCORES and options.loss not in (None, "binary"):
        raise OptionError("loss", f"{options.loss} is not for two texts with a score: use binary.")
    for split, examples in splits.items():
        is_ranked = split != "train" and types[split] == PAIRS and not options.retriever
        if is_ranked and not any(len(example.texts) > 2 for example in examples):
            raise DataError(
                describe_source(options, split),
                "no negatives: give `retriever` or negative_columns.",
            )


_CHUNK = 1024  # texts between updates of the progress


def embed_all(
    model: Predictor, texts: Sequence[str], label: str, as_query: bool = False
) -> np.ndarray:
    """Return unit vectors [texts, E]. Show the progress, and log how many texts were truncated."""
    encoder = model.encoder(as_query=as_query)
    cut_before = encoder.num_truncated
    progress, parts = Progress(label, len(texts), unit="texts"), []
    for first in range(0, len(texts), _CHUNK):
        parts.append(l2_normalize(encoder.encode(texts[first : first + _CHUNK])))
        progress.update(min(first + _CHUNK, len(texts)))
    if num_truncated := encoder.num_truncated - cut_before:
        logger.warning(
            "%d of %d %s are longer than the longest input, %d tokens, and were truncated",
            *(num_truncated, len(texts), label, encoder.max_seq_length),
        )
    return np.concatenate(parts)
