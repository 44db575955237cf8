"""run_reranker: fine-tune and evaluate a cross-encoder, which scores a query with a document.

A training example is a query with K documents in one sequence each. The trained model is a
`ClassificationTask` of one number for a pair, which Hugging Face calls BertForSequenceClassification
with one label, and sentence-transformers CrossEncoder.

Shapes: B batch, K documents, S sequence.

Source: Nogueira and Cho 2019, arXiv 1901.04085. The reference has no such program.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.data.features import FeatureSpec, sequence_specs
from bert_tf.data.parallel import SequencesRecords, SequencesRow
from bert_tf.data.records import content_key
from bert_tf.data.tables import TableOptions
from bert_tf.embeddings.data import (
    LENGTH_OF_START,
    TextsOptions,
    read_examples,
    score_each_pair,
)
from bert_tf.embeddings.losses import PAIRS, SCORES
from bert_tf.embeddings.retrieval import Ranking, rank, relevance, score_metrics
from bert_tf.embeddings.run_embeddings import (
    BEST_METRIC,
    Answers,
    metric_keys,
    train_and_compare,
)
from bert_tf.embeddings.task import EmbeddingExample
from bert_tf.limits import DataError
from bert_tf.modeling.models import BertForMultipleChoice
from bert_tf.options import ModelOptions, OptionError, changes, option
from bert_tf.prediction.predictor import Predictor
from bert_tf.tasks.base import ExampleTask, Task, Tensors
from bert_tf.tasks.classification import ClassificationTask
from bert_tf.tasks.metrics import l2_normalize
from bert_tf.tasks.run import Run, start_fine_tuning
from bert_tf.tasks.setup import FineTuningOptions, Setup, check_data, resolve
from bert_tf.tokenization import FullTokenizer
from bert_tf.training.best_checkpoint import check_best_metric
from bert_tf.training.losses import Loss, masked_choices
from bert_tf.training.options import DeviceOptions, TrainingOptions

logger = logging.getLogger(__name__)


def binary(logits, is_document, labels):
    """Return the cross-entropy of the sigmoid of each score, averaged over the documents.

    The target of the first document is the label, that of the others 0.

    Args:
        logits: scores, float32 [B, K].
        is_document: float32 [B, K], 1 = a document, 0 = padding.
        labels: target of the first document, float32 [B].

    Returns:
        float32 [B].
    """
    targets = tf.one_hot(tf.zeros_like(labels, tf.int32), tf.shape(logits)[1]) * labels[:, None]
    terms = tf.nn.sigmoid_cross_entropy_with_logits(labels=targets, logits=logits) * is_document
    return tf.reduce_sum(terms, 1) / tf.reduce_sum(is_document, 1)


def pairwise(logits, is_document, labels):
    """Return log(1 + exp(score of a negative - score of the positive)), averaged over the negatives.

    Arguments and result are those of `binary`; the labels are unused.

    Source: Burges et al. 2005 (RankNet), equation 3.
    """
    terms = tf.nn.softplus(logits[:, 1:] - logits[:, :1]) * is_document[:, 1:]
    return tf.math.divide_no_nan(tf.reduce_sum(terms, 1), tf.reduce_sum(is_document[:, 1:], 1))


def listwise(logits, is_document, labels):
    """Return the cross-entropy of the positive among all documents of its query.

    Arguments and result are those of `binary`; the labels are unused.

    Source: Cao et al. 2007 (ListNet), with one relevant document.
    """
    return -tf.nn.log_softmax(masked_choices(logits, is_document))[:, 0]


RERANKING_LOSSES: dict[str, Callable] = {
    "binary": binary,
    "pairwise": pairwise,
    "listwise": listwise,
}


@dataclass(frozen=True, kw_only=True)
class RerankerOptions:
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
        check_data(self, self.texts.task_name)


class RerankingTask(ExampleTask):
    """A score for each document of a query.

    Args:
        max_seq_length: S, of a query with one document.
        num_documents: K, maximum documents of an example; the first is the positive.
        loss: key of `RERANKING_LOSSES`.
        best_metric: of the evaluation.
    """

    name = ClassificationTask.name
    program = "run_reranker"  # for the model card
    truncation = "%d of %d queries with a document fill --max_seq_length=%d, and may be truncated"
    labels = ()

    def __init__(
        self,
        max_seq_length: int,
        num_documents: int = 1,
        loss: str = "binary",
        best_metric: str = "eval_ndcg@10",
    ):
        self.max_seq_length, self.num_documents, self.loss = max_seq_length, num_documents, loss
        self.best_metric = best_metric
        self.soft_loss = "sigmoid" if num_documents == 1 else "softmax"
        self.features = (
            *sequence_specs((num_documents, max_seq_length)),
            FeatureSpec("choice_mask", (num_documents,), role="id"),
            FeatureSpec("label_ids", dtype="float32", role="id"),
            FeatureSpec("is_real_example", role="weight"),
        )
        self.losses = (_loss(RERANKING_LOSSES[loss]),)

    def arguments(self) -> dict[str, Any]:
        """Return those of the trained model's task."""
        task = ClassificationTask((), self.max_seq_length, is_pair=True, problem_type="regression")
        return task.arguments()

    def build_model(self, config: BertConfig, dtype: str | None = None) -> BertForMultipleChoice:
        return BertForMultipleChoice(config, dtype=dtype)

    def record_maker(self, tokenizer: FullTokenizer) -> SequencesRecords:
        names, num_documents = self.record_names, self.num_documents
        return SequencesRecords(tokenizer, self.max_seq_length, names, num_documents)

    def rows(
        self, examples: Sequence[EmbeddingExample], tokenizer: FullTokenizer
    ) -> list[SequencesRow]:
        return [SequencesRow(e.texts[1:], e.label, e.texts[0]) for e in examples]

    def num_sequences(self, examples: Sequence[EmbeddingExample]) -> int:
        return sum(len(example.texts) - 1 for example in examples)

    def records_key(self, examples: Iterable[EmbeddingExample], tokenizer: FullTokenizer) -> str:
        settings = ["reranking", self.num_documents, self.max_seq_length]
        return content_key(tokenizer, settings, ((e.texts, e.label) for e in examples))

    def eval_outputs(self, outputs: Tensors, features: Tensors) -> Tensors:
        return {"logits": masked_choices(outputs["logits"], features["choice_mask"])}

    def learned_shapes(self, embedding_dim):
        return {"logits": (self.num_documents,)}


def _loss(of_scores: Callable) -> Loss:
    def weights(features: Tensors):
        return tf.cast(features["is_real_example"], tf.float32)

    def total(outputs: Tensors, features: Tensors):
        logits = tf.cast(outputs["logits"], tf.float32)
        documents = tf.cast(features["choice_mask"], tf.float32)
        return tf.reduce_sum(
            weights(features) * of_scores(logits, documents, features["label_ids"])
        )

    return Loss("loss", total, lambda features: tf.reduce_sum(weights(features)))


RerankerRun = Run[RerankingTask, RerankerOptions]

DEPTH = 20  # documents of a query that the retriever finds


def run_reranker(options: RerankerOptions) -> dict[str, float]:
    """Train, evaluate and predict, as the options set. Return the metrics of the evaluation, if any.

    Write `train.tf_record`, `model.ckpt-N`, `metrics.jsonl`, the files of checkpoints/write.py, and

        eval_results.txt          "key = value" lines. Anchors with positives: MRR@10, nDCG@10, MAP@100,
                                  Recall@1, 10 and 100 of the ranked documents of each query; nDCG@10
                                  of the retriever's order. Scores: Spearman and Pearson
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
    rankings = {split: list_documents(splits[split], retriever) for split in ranked}
    task = make_task(setup, types, splits)
    check_best_metric(options.training.best_metric, metric_keys(types, splits.get("dev", ())))
    run: RerankerRun = start_fine_tuning(setup, task, splits)
    single = RerankingTask(task.max_seq_length)  # of single documents; the trainer compiles it once

    def answer(split: str, name: str, batch_size: int) -> tuple[dict[str, float], Answers]:
        ranking, examples = rankings.get(split), splits[split]
        if ranking is not None:
            examples = [EmbeddingExample(pair) for pair in ranking.pairs()]
        scores = run.outputs(examples, name, batch_size, single)["logits"][:, 0]
        if ranking is None:
            return score_metrics(scores, np.array([example.label for example in examples])), scores
        reranked = ranking.reorder(scores)
        metrics, best = reranked.metrics(), BEST_METRIC[PAIRS]
        if retriever is not None:
            metrics[f"{best}_of_retriever"] = ranking.metrics()[best]
        return metrics, reranked

    return train_and_compare(run, task.program, splits, answer)


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
    best = BEST_METRIC[types.get("dev", example_type)]
    length = (
        options.model.max_seq_length or _find_length(setup.checkpoint_task) or setup.max_seq_length
    )
    return RerankingTask(length, num_documents, loss, best)


def add_negatives(
    examples: Sequence[EmbeddingExample], num_negatives: int, seed: int
) -> list[EmbeddingExample]:
    """Return the examples with label 1 and negatives: their own, and positives of other anchors.

    Positives of the same anchor in any example are left out. The result depends on the seed and the
    examples only.
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


def list_documents(
    examples: Sequence[EmbeddingExample], retriever: Predictor | None = None
) -> Ranking[str]:
    """Return the documents of each query that are to be ranked.

    Without a retriever they are those in the rows of the query, the relevant ones last: the order
    matters for equal scores, and a model that gives every document one score finds nothing.
    """
    if retriever is not None:
        return rank(
            (example.texts for example in examples),
            lambda texts: embed(retriever, texts, "queries", as_query=True),
            lambda texts: embed(retriever, texts, "documents"),
            DEPTH,
        )
    queries, documents, relevant = relevance(example.texts for example in examples)
    in_rows: list[set[int]] = [set() for _ in queries]
    for example in examples:
        in_rows[queries[example.texts[0]]].update(documents[text] for text in example.texts[1:])
    others = [own - set(row) for own, row in zip(in_rows, relevant, strict=True)]
    if trivial := others.count(set()):
        logger.warning(
            "%d of %d queries have no negatives, and raise the metrics because any order is perfect. "
            "Give them negatives, or use --retriever.",
            *(trivial, len(queries)),
        )
    indexes = np.full((len(queries), max(map(len, in_rows))), -1)
    for number, own in enumerate(in_rows):
        indexes[number, : len(own)] = sorted(others[number]) + sorted(own - others[number])
    scores = np.zeros(indexes.shape)
    return Ranking(list(queries), list(documents), scores, indexes, relevant)


def embed(
    retriever: Predictor, texts: Sequence[str], name: str, as_query: bool = False
) -> np.ndarray:
    """Return unit vectors [texts, E]. Log how many texts were truncated."""
    logger.info("The retriever embeds %d %s", len(texts), name)
    encoder = retriever.encoder(as_query=as_query)
    encoder.num_truncated = 0
    vectors = l2_normalize(encoder.encode(texts))
    if encoder.num_truncated:
        logger.warning(
            "%d of %d %s are longer than the longest input, %d tokens, and were truncated",
            *(encoder.num_truncated, len(texts), name, encoder.max_seq_length),
        )
    return vectors


def _find_length(task: Mapping[str, Any]) -> int | None:
    """Return the longest input of the model that the run begins with; None unless that scores pairs."""
    scores_pairs = task.get("problem_type") == "regression" and task.get("is_pair")
    return task["max_seq_length"] if scores_pairs else None


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
    if types.get("train") == SCORES and options.loss not in (None, "binary"):
        raise OptionError("loss", f"{options.loss} is not for two texts with a score: use binary.")
    for split, examples in splits.items():
        is_ranked = split != "train" and types[split] == PAIRS and not options.retriever
        if is_ranked and not any(len(example.texts) > 2 for example in examples):
            raise OptionError("retriever", f"is needed, as the {split} set has no negatives.")
