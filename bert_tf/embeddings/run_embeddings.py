"""run_embeddings: fine-tune and evaluate embeddings of texts.

Source: Reimers and Gurevych 2019, arXiv 1908.10084. The reference has no such program.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from bert_tf.data.tables import TableOptions, guess_format
from bert_tf.embeddings.data import (
    LENGTH_OF_START,
    TextsOptions,
    read_examples,
    score_each_pair,
)
from bert_tf.embeddings.losses import CLASSES, EMBEDDING_LOSSES, PAIRS, SCORES
from bert_tf.embeddings.rankings import Answers, Ranking, metric_keys, train_and_rank
from bert_tf.embeddings.retrieval import (
    RANKED,
    find_own_documents,
    pair_metrics,
    relevance,
    search_class,
    search_others,
)
from bert_tf.embeddings.task import LIMITS, EmbeddingExample, EmbeddingTask
from bert_tf.limits import DataError
from bert_tf.options import ModelOptions, OptionError, changes, option
from bert_tf.tasks.metrics import l2_normalize
from bert_tf.tasks.run import Run, start_fine_tuning
from bert_tf.tasks.setup import FineTuningOptions, Setup, check_data, resolve
from bert_tf.training.options import DeviceOptions, TrainingOptions

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class EmbeddingOptions:
    """The flags of run_embeddings."""

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
        "anchors with positives, cosent for scores, contrastive for scores of 0 and 1, "
        "batch_all_triplet for classes.",
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
        check_data(self, self.texts.data_set, self.texts.data_dir)

    @property
    def widths(self) -> tuple[int, ...] | None:
        """`matryoshka_dims` as numbers, None if not given.

        Raises:
            ValueError: a part is not a whole number of 1 or more.
        """
        if self.matryoshka_dims is None:
            return None
        parts = [part.strip() for part in self.matryoshka_dims.split(",") if part.strip()]
        if not all(part.isdecimal() and int(part) > 0 for part in parts):
            raise OptionError(
                "matryoshka_dims", "must be whole numbers with commas, such as 256,128."
            )
        return tuple(int(part) for part in parts)


EmbeddingRun = Run[EmbeddingTask, EmbeddingOptions]
Encode = Callable[[Sequence[str], str, str], np.ndarray]  # texts, name, prefix -> unit vectors

_BEST_METRIC = {PAIRS: "eval_ndcg@10", SCORES: "eval_spearman", CLASSES: "eval_map@100"}


def run_embeddings(options: EmbeddingOptions) -> dict[str, float]:
    """Train, evaluate and predict, as the options set. Return the metrics of the evaluation, if any.

    Write `train.tf_record`, `model.ckpt-N`, `metrics.jsonl`, the files of checkpoints/write.py, and

        eval_results.txt          "key = value" lines. Anchors with positives: MRR@10, nDCG@10, MAP@100,
                                  Recall@1, 10 and 100 of the positives among all texts that are not
                                  anchors. Scores: Spearman and Pearson of the cosines. Classes: as for
                                  anchors; relevant are the other texts of the class. The main metric
                                  also of vectors cut to each width of `matryoshka_dims`
        report.html               the hardest queries or pairs
        test_predictions.jsonl    of --predict_file: the ten best documents of each query, or the cosine
                                  of each pair. Of texts alone, the ten nearest others of each
        test_results.txt          the step, and its metrics if it has scores, positives or classes
    """
    setup = resolve(options, "embeddings")
    types, splits = read_data(setup)
    task = make_task(setup, types, splits)
    keys = metric_keys(task, types, splits.get("dev", ()))
    run: EmbeddingRun = start_fine_tuning(setup, task, splits, metric_keys=keys)
    evaluator = SplitEvaluator(run, types, splits)
    return train_and_rank(run, "run_embeddings", splits, evaluator.evaluate)


def read_data(setup: Setup) -> tuple[dict[str, str], dict[str, list[EmbeddingExample]]]:
    """Return the type of the examples of each split, and the examples."""
    options = setup.options
    example_types, splits = read_examples(options)
    types = [*example_types.values()]
    ending = guess_format(str(options.fine_tuning.predict_file))
    is_table = options.texts.positive_column is None and ending != "json"
    if "train" not in example_types and is_table:
        types.append(
            _example_type(_known_settings(setup).get("loss", "multiple_negatives_ranking"))
        )
    if SCORES in types or options.texts.label_column:
        score_each_pair(example_types, splits)
    return example_types, splits


class SplitEvaluator:
    """Rankings or scores of the splits, by the vectors of the current model."""

    def __init__(
        self,
        run: EmbeddingRun,
        example_types: Mapping[str, str],
        splits: Mapping[str, Sequence[EmbeddingExample]],
    ) -> None:
        self._run, self._example_types, self._splits = run, example_types, splits
        self._single: dict[str, EmbeddingTask] = {}  # by prefix; the trainer compiles each once

    def evaluate(self, split: str, name: str, batch_size: int) -> tuple[dict[str, float], Answers]:
        """Return the metrics of a split, and the documents of each query or the scores of the pairs."""
        vectors: dict[str, np.ndarray] = {}

        def encode(width: int | None, texts: Sequence[str], side: str, prefix: str) -> np.ndarray:
            if side not in vectors:
                vectors[side] = self._encode(batch_size, texts, side, prefix)
            return l2_normalize(vectors[side][:, :width])

        metrics, answers = self._compare(split, name, functools.partial(encode, None))
        best = _BEST_METRIC[self._example_types[split]]
        for width in self._run.task.matryoshka_dims if best in metrics else ():
            narrow, _ = self._compare(split, name, functools.partial(encode, width))
            metrics[f"{best}_dim_{width}"] = narrow[best]
        return metrics, answers

    def _compare(self, split: str, name: str, encode: Encode) -> tuple[dict[str, float], Answers]:
        examples, task = self._splits[split], self._run.task
        if self._example_types[split] == SCORES:
            first, second = ([e.texts[side] for e in examples] for side in (0, 1))
            queries = encode(first, f"{name}_queries", task.query_prefix)
            documents = encode(second, f"{name}_documents", task.document_prefix)
            scores = np.array([e.label for e in examples])
            return pair_metrics(queries, documents, scores), (queries * documents).sum(-1)
        if self._example_types[split] == PAIRS:
            ranking = self._ranking(task, examples, name, encode)
        else:
            ranking = self._neighbours(task, examples, split, name, encode)
        return ranking.metrics(), ranking

    def _ranking(
        self, task: EmbeddingTask, examples: Sequence[EmbeddingExample], name: str, encode: Encode
    ) -> Ranking:
        queries, documents, relevant = relevance(example.texts for example in examples)
        ranked = search_others(
            encode(list(queries), f"{name}_queries", task.query_prefix),
            encode(list(documents), f"{name}_documents", task.document_prefix),
            find_own_documents(queries, documents, relevant),
            RANKED,
        )
        return Ranking.from_lists(list(queries), list(documents), *ranked, relevant)

    def _neighbours(
        self,
        task: EmbeddingTask,
        examples: Sequence[EmbeddingExample],
        split: str,
        name: str,
        encode: Encode,
    ) -> Ranking:
        """Return the nearest other texts of each text; relevant are those of its class."""
        texts, classes = [e.texts[0] for e in examples], np.array([e.label for e in examples])
        neighbours = search_class(encode(texts, name, task.query_prefix), classes)
        _, _, _, num_relevant, _ = neighbours
        ranked = np.flatnonzero((num_relevant > 0) | (split == "test"))
        queries = [texts[index] for index in ranked]
        return Ranking(queries, texts, *(values[ranked] for values in neighbours))

    def _encode(self, batch_size: int, texts: Sequence[str], name: str, prefix: str) -> np.ndarray:
        """Return vectors [texts, E]; equal texts are computed once."""
        numbers = {text: number for number, text in enumerate(dict.fromkeys(texts))}
        task = self._single.setdefault(prefix, self._run.task.of_single_texts(prefix))
        examples = [EmbeddingExample((text,)) for text in numbers]
        outputs = self._run.outputs(examples, name, batch_size, task)
        return outputs["embedding"][[numbers[text] for text in texts]]


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
    fits = "loss" in known and _example_type(known["loss"]) == example_type
    loss = options.loss or (known["loss"] if fits else _default_loss(example_type, labels))
    settings: dict[str, Any] = {
        **{name: known[name] for name in flags if name in known},
        **{name: value for name, value in flags.items() if value is not None},
        "loss": loss,
        "best_metric": _BEST_METRIC[types.get("dev", example_type)],
    }
    if train:
        _check_loss(loss, example_type, labels, train, options)
    num_texts = max(len(example.texts) for example in next(iter(splits.values())))
    length = options.model.max_seq_length or known.get("max_seq_length", setup.max_seq_length)
    task = EmbeddingTask(length, num_texts, **settings)
    compared = {example_type for split, example_type in types.items() if split != "test"}
    if CLASSES in compared and task.query_prefix != task.document_prefix:
        raise OptionError(
            "query_prefix",
            "must be document_prefix: texts with classes are compared with each other.",
        )
    task.check_widths(setup.config)
    return task


def _known_settings(setup: Setup) -> dict[str, Any]:
    """Return the settings that the model was trained with, as far as its folder has them."""
    checkpoint, trained = setup.checkpoint, setup.trained or setup.known
    if isinstance(trained, EmbeddingTask):
        return trained.arguments()
    if checkpoint and checkpoint.problem:
        return {"max_seq_length": checkpoint.longest_input(setup.config)}
    return {}


# Options whose default is the value of the model.
_MODEL_OPTIONS = ("pooling", "normalize", "query_prefix", "document_prefix", "scale")


def _example_type(loss: str) -> str:
    """Return the type of the examples that a loss is for."""
    return EMBEDDING_LOSSES[loss][2]


def _default_loss(example_type: str, labels: set[float]) -> str:
    if example_type == PAIRS:
        return "multiple_negatives_ranking"
    if example_type == CLASSES:
        return "batch_all_triplet"
    return "contrastive" if labels <= {0.0, 1.0} and labels else "cosent"


_NAMES = {
    PAIRS: "anchors with positives",
    SCORES: "two texts with a score",
    CLASSES: "texts with classes",
}


def _check_loss(
    loss: str,
    example_type: str,
    labels: set[float],
    examples: Sequence[EmbeddingExample],
    options: EmbeddingOptions,
) -> None:
    if _example_type(loss) != example_type:
        fitting = ", ".join(
            name for name in EMBEDDING_LOSSES if _example_type(name) == example_type
        )
        raise OptionError("loss", f"{loss}, but {_NAMES[example_type]} need one of {fitting}.")
    if loss == "contrastive" and not labels <= {0.0, 1.0}:
        other = min(labels - {0.0, 1.0})
        raise OptionError("loss", f"contrastive needs scores of 0 and 1, not {other}. Use cosent.")
    if loss == "triplet":
        for example in examples:
            if len(example.texts) < 3:
                raise DataError(example.origin, "loss=triplet needs a negative in every example.")
    has_own = loss in ("cosine_similarity", "contrastive") or all(
        len(e.texts) > 2 for e in examples
    )
    if options.training.train_batch_size == 1 and not has_own:
        raise OptionError(
            "train_batch_size", f"is 1, but loss={loss} compares the examples of a batch. Use 32."
        )
