"""run_embeddings: fine-tune and evaluate embeddings of texts.

Source: Reimers and Gurevych 2019, arXiv 1908.10084. The reference has no such program.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from bert_tf.data.tables import TableOptions
from bert_tf.embeddings.data import LENGTH_OF_START, TextsOptions, read_examples
from bert_tf.embeddings.losses import EMBEDDING_LOSSES, PAIRS, SCORES
from bert_tf.embeddings.retrieval import (
    Ranking,
    pair_metrics,
    rank,
    retrieval_metrics,
    score_metrics,
)
from bert_tf.embeddings.task import LIMITS, EmbeddingExample, EmbeddingTask
from bert_tf.files import json_line
from bert_tf.options import ModelOptions, OptionError, changes, option
from bert_tf.tasks.metrics import l2_normalize
from bert_tf.tasks.run import Run, start_fine_tuning
from bert_tf.tasks.setup import FineTuningOptions, Setup, check_data, resolve
from bert_tf.training.best_checkpoint import check_best_metric
from bert_tf.training.options import DeviceOptions, TrainingOptions

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class EmbeddingOptions:
    devices: DeviceOptions
    training: TrainingOptions = changes(
        train_batch_size={
            "help": "Examples per step, over all devices. The other texts of the batch are the "
            "negatives, so more are better; --gradient_accumulation_steps saves memory and keeps all of "
            "them."
        }
    )
    model: ModelOptions = LENGTH_OF_START
    fine_tuning: FineTuningOptions
    table: TableOptions = changes(text_a_column=None, text_b_column=None, choices_column=None)
    texts: TextsOptions
    loss: str | None = option(
        "Loss. Default: that of the model if it fits the examples; else multiple_negatives_ranking for "
        "anchors with positives, cosent for scores, contrastive for scores of 0 and 1.",
        group="Model",
        default=None,
        choices=tuple(EMBEDDING_LOSSES),
        on_resume="model",
    )
    scale: float | None = option(
        "Factor of the cosines in the ranking losses and cosent: 1 / temperature. Default: that of the "
        "model, else 20.",
        default=None,
        **LIMITS["scale"],
        on_resume="model",
    )
    matryoshka_dims: str | None = option(
        "Comma list of smaller widths: the loss is added for the first numbers of each vector, so that "
        "cut vectors are useful too. Default: those of the model; an empty list: none.",
        default=None,
        on_resume="model",
    )
    pooling: str | None = option(
        "Vector of a text, from those of its tokens. Default: that of the model, else mean.",
        group="Model",
        default=None,
        **LIMITS["pooling"],
    )
    normalize: bool | None = option(
        "Return vectors of length 1. Default: as the model, else true.",
        default=None,
    )
    query_prefix: str | None = option(
        'Put before every anchor, such as "query: ". Default: that of the model.',
        default=None,
    )
    document_prefix: str | None = option(
        'Put before every other text, such as "passage: ". Default: that of the model.',
        default=None,
    )

    def __post_init__(self) -> None:
        check_data(self, self.texts.task_name)

    @property
    def widths(self) -> tuple[int, ...] | None:
        """`matryoshka_dims` as numbers, None if not given."""
        if self.matryoshka_dims is None:
            return None
        return tuple(int(part) for part in self.matryoshka_dims.split(",") if part)


EmbeddingRun = Run[EmbeddingTask, EmbeddingOptions]
# Documents of each query, or scores of the pairs.
Answers: TypeAlias = "Ranking[str] | np.ndarray"

BEST_METRIC = {PAIRS: "eval_ndcg@10", SCORES: "eval_spearman"}
_NUM_PREDICTED = 10  # documents of a query in test_predictions.jsonl


def run_embeddings(options: EmbeddingOptions) -> dict[str, float]:
    """Train, evaluate and predict, as the options set. Return the metrics of the evaluation, if any.

    Write `train.tf_record`, `model.ckpt-N`, `metrics.jsonl`, the files of checkpoints/write.py, and

        eval_results.txt          "key = value" lines. Anchors with positives: MRR@10, nDCG@10, MAP@100,
                                  Recall@1, 10 and 100 of the positives among all texts that are not
                                  anchors. Scores: Spearman and Pearson of the cosines. The main metric
                                  also of vectors cut to each width of `matryoshka_dims`
        test_predictions.jsonl    of --predict_file: the ten best documents of each query, or the cosine
                                  of each pair
        test_results.txt          the step, and its metrics if it has scores or positives
    """
    setup = resolve(options, "embeddings")
    types, splits = read_examples(options)
    task = make_task(setup, types, splits)
    keys = metric_keys(types, splits.get("dev", ()), task.matryoshka_dims)
    check_best_metric(options.training.best_metric, keys)
    run: EmbeddingRun = start_fine_tuning(setup, task, splits)
    single = {  # by prefix; the trainer compiles each once
        prefix: task.of_single_texts(prefix) for prefix in (task.query_prefix, task.document_prefix)
    }

    def encode(texts: Sequence[str], name: str, prefix: str, batch_size: int) -> np.ndarray:
        """Return vectors [texts, E]; equal texts are computed once."""
        numbers = {text: number for number, text in enumerate(dict.fromkeys(texts))}
        examples = [EmbeddingExample((text,)) for text in numbers]
        outputs = run.outputs(examples, name, batch_size, single[prefix])
        return outputs["embedding"][[numbers[text] for text in texts]]

    def answer(split: str, name: str, batch_size: int) -> tuple[dict[str, float], Answers]:
        vectors: dict[str, np.ndarray] = {}
        compare = compare_pairs if types[split] == SCORES else rank_documents

        def encode_side(side: str, width: int | None, texts: Sequence[str]) -> np.ndarray:
            if side not in vectors:
                prefix = task.query_prefix if side == "queries" else task.document_prefix
                vectors[side] = encode(texts, f"{name}_{side}", prefix, batch_size)
            return l2_normalize(vectors[side][:, :width])

        metrics, answers = compare(splits[split], encode_side, None)
        best = BEST_METRIC[types[split]]
        for width in task.matryoshka_dims if best in metrics else ():
            narrow, _ = compare(splits[split], encode_side, width)
            metrics[f"{best}_dim_{width}"] = narrow[best]
        return metrics, answers

    return train_and_compare(run, "run_embeddings", splits, answer)


# Side, width, texts -> unit vectors.
EncodeSide: TypeAlias = Callable[[str, "int | None", Sequence[str]], np.ndarray]


def compare_pairs(
    examples: Sequence[EmbeddingExample], encode: EncodeSide, width: int | None
) -> tuple[dict[str, float], Answers]:
    """Return the metrics of two texts with a score, and their cosines."""
    queries = encode("queries", width, [example.texts[0] for example in examples])
    documents = encode("documents", width, [example.texts[1] for example in examples])
    scores = np.array([example.label for example in examples])
    return pair_metrics(queries, documents, scores), (queries * documents).sum(-1)


def rank_documents(
    examples: Sequence[EmbeddingExample], encode: EncodeSide, width: int | None
) -> tuple[dict[str, float], Answers]:
    """Return the metrics of anchors with positives, and the nearest documents of each."""
    ranking = rank(
        (example.texts for example in examples),
        lambda texts: encode("queries", width, texts),
        lambda texts: encode("documents", width, texts),
    )
    return ranking.metrics(), ranking


def metric_keys(
    types: Mapping[str, str], dev: Sequence[EmbeddingExample], widths: Sequence[int] = ()
) -> list[str] | None:
    """Return the keys of the metrics of "dev", None without its examples."""
    if not dev:
        return None
    labels = np.array([example.label for example in dev])
    keys = score_metrics(labels, labels)
    if types["dev"] == PAIRS:
        keys = retrieval_metrics(np.array([[0]]), [[0]])
    return [*keys, *(f"{BEST_METRIC[types['dev']]}_dim_{width}" for width in widths)]


def train_and_compare(
    run: Run,
    program: str,
    splits: Mapping[str, Sequence[EmbeddingExample]],
    answer: Callable[[str, str, int], tuple[dict[str, float], Answers]],
) -> dict[str, float]:
    """Train and evaluate. `answer`: (split, name of records, batch size) -> metrics and answers."""
    options, results = run.options, {}

    def dev_metrics() -> dict[str, float]:
        return answer("dev", "eval", options.training.eval_batch_size)[0]

    if options.training.do_train:
        run.train(splits["train"], dev_metrics if options.training.do_eval else None)
    if options.training.do_eval:
        logger.info("***** Running evaluation on %d examples *****", len(splits["dev"]))
        results = run.write_results("eval", dev_metrics())
        source = options.texts.task_name or os.path.basename(options.fine_tuning.eval_file or "")
        values = {**results, "examples": len(splits["dev"])}
        run.write_report(f"{program} on {source}", values)
    if options.fine_tuning.do_predict:
        logger.info("***** Running prediction on %d examples *****", len(splits["test"]))
        metrics, answers = answer("test", "test", options.fine_tuning.predict_batch_size)
        run.write_results("test", metrics)
        if isinstance(answers, Ranking):
            lines = best_documents(answers)
        else:
            pairs = zip(splits["test"], answers, strict=True)
            lines = [{"texts": e.texts, "score": float(score)} for e, score in pairs]
        run.write_lines("test_predictions.jsonl", map(json_line, lines))
    return results


def best_documents(ranking: Ranking[str]) -> list[dict[str, Any]]:
    lines = []
    rows = zip(ranking.queries, ranking.scores, ranking.indexes, strict=True)
    for query, scores, indexes in rows:
        best = zip(scores[:_NUM_PREDICTED], indexes[:_NUM_PREDICTED], strict=True)
        documents = [
            {"text": ranking.documents[index], "score": float(score)}
            for score, index in best
            if index >= 0
        ]
        lines.append({"query": query, "documents": documents})
    return lines


def make_task(
    setup: Setup, types: Mapping[str, str], splits: Mapping[str, Sequence[EmbeddingExample]]
) -> EmbeddingTask:
    """Return the task for the options and the examples. Settings of a trained model are the defaults."""
    options = setup.options
    if options.pooling is None and setup.checkpoint is not None:
        setup.checkpoint.check_embeddings()
    known = _known_settings(setup)
    flags = {name: getattr(options, name) for name in _MODEL_OPTIONS}
    flags |= {"matryoshka_dims": options.widths, "projection_size": None}
    example_type, train = next(iter(types.values())), splits.get("train", ())
    labels = {example.label for example in train}
    loss = options.loss or known.get("loss")
    if loss is None or (options.loss is None and EMBEDDING_LOSSES[loss][2] != example_type):
        loss = _default_loss(example_type, labels)
    settings: dict[str, Any] = {
        **{name: known[name] for name in flags if name in known},
        **{name: value for name, value in flags.items() if value is not None},
        "loss": loss,
        "best_metric": BEST_METRIC[types.get("dev", example_type)],
    }
    if train:
        _check_loss(loss, example_type, labels, train, options.training.train_batch_size)
    num_texts = max(len(example.texts) for example in next(iter(splits.values())))
    length = options.model.max_seq_length or known.get("max_seq_length", setup.max_seq_length)
    task = EmbeddingTask(length, num_texts, **settings)
    task.check_widths(setup.config)
    return task


def _known_settings(setup: Setup) -> dict[str, Any]:
    """Return the settings that the model was trained with, as far as its folder has them."""
    checkpoint, task = setup.checkpoint, setup.checkpoint_task
    if task.get("task") == "embeddings":
        return dict(task)
    if checkpoint and checkpoint.problem:
        return {"max_seq_length": checkpoint.longest_input(setup.config)}
    return {}


# Options whose default is the value of the model.
_MODEL_OPTIONS = ("pooling", "normalize", "query_prefix", "document_prefix", "scale")


def _default_loss(example_type: str, labels: set[float]) -> str:
    if example_type == PAIRS:
        return "multiple_negatives_ranking"
    return "contrastive" if labels <= {0.0, 1.0} and labels else "cosent"


def _check_loss(
    loss: str,
    example_type: str,
    labels: set[float],
    examples: Sequence[EmbeddingExample],
    batch_size: int,
) -> None:
    """Raise OptionError if the loss would be computed of something else, or always be 0."""
    if EMBEDDING_LOSSES[loss][2] != example_type:
        names = [name for name, row in EMBEDDING_LOSSES.items() if row[2] == example_type]
        raise OptionError("loss", f"{loss}, but {example_type} need one of {', '.join(names)}.")
    if loss == "contrastive" and not labels <= {0.0, 1.0}:
        other = min(labels - {0.0, 1.0})
        raise OptionError("loss", f"contrastive needs scores of 0 and 1, not {other}. Use cosent.")
    has_own = loss in ("cosine_similarity", "contrastive") or all(
        len(e.texts) > 2 for e in examples
    )
    if batch_size == 1 and not has_own:
        raise OptionError(
            "train_batch_size", f"is 1, but loss={loss} compares the examples of a batch. Use 32."
        )
