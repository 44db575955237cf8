"""Token classification: one label for each word, as in named entity recognition.

A word's label is predicted at its first piece (Devlin et al. 2019, section 5.3), without a CRF or with
one. A CRF labels a sentence as a whole, also one that several windows contain: each word's scores are
those of the window in which it is predicted.

Shapes: B batch, S sequence, W words, L labels.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, groupby
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.data.batching import group_by_length
from bert_tf.data.features import FeatureSpec, sequence_specs
from bert_tf.data.label_schemes import (
    Scores,
    conlleval,
    is_entity_label,
    mark_as_entity,
    to_iob2,
)
from bert_tf.data.parallel import NUM_SPECIAL_TOKENS, LabelledDocument, WordRecords
from bert_tf.data.records import content_key
from bert_tf.data.token_classification import Sentence
from bert_tf.limits import DataError
from bert_tf.modeling.crf import (
    IOB2,
    WORDS,
    best_labels,
    log_likelihood,
    log_marginals,
    sentence_chains,
)
from bert_tf.modeling.feature_based import BILSTM_UNITS, BertBiLstmForTokenClassification
from bert_tf.modeling.models import BertForTokenClassification
from bert_tf.registry import TaskType, register_task
from bert_tf.tasks.base import ExampleTask, Tensors, check_argument
from bert_tf.tokenization import FullTokenizer
from bert_tf.training.losses import (
    chains_of_words,
    crf_loss,
    cross_entropy,
    token_classification_loss,
    word_logits,
)


class TokenClassificationTask(ExampleTask):
    """One label for each word, such as its part of speech or its place in an entity.

    >>> TokenClassificationTask(["O", "B-PER", "I-PER"], max_seq_length=128).best_metric
    'eval_f1'

    Args:
        labels: in the order of the output units, from `data.label_schemes.complete_labels`.
        max_seq_length: S; longer sentences are read in windows.
        document_context: fill S with the document around a sentence, instead of the sentence alone.
        doc_stride: pieces between the starts of windows of a long text. None: half a window.
        feature_layers: layers of a frozen encoder to train a BiLSTM on (a name of
            `modeling.feature_based.FEATURE_LAYERS`); None to fine-tune the encoder.
        bilstm_units: of each direction of that BiLSTM.
        word_labels: True if labels are of words, such as parts of speech, instead of entities. Default:
            True if no label marks an entity.
        crf: "iob2" or "words" for a CRF, which in IOB2 never takes a transition that the scheme forbids.
            None for no CRF.
        word_splitting: one of `data.token_classification.RULES`, which splits raw text.
        whole_words: words that the rule outer_punctuation leaves whole.

    Source: Devlin et al. 2019, section 5.3.
    """

    name = "token_classification"
    fixed_arguments = ("labels", "feature_layers", "crf")
    uses_pooler = False

    def __init__(
        self,
        labels: Sequence[str],
        max_seq_length: int,
        document_context: bool = False,
        doc_stride: int | None = None,
        feature_layers: str | None = None,
        bilstm_units: int = BILSTM_UNITS,
        word_labels: bool | None = None,
        crf: str | None = None,
        word_splitting: str = "basic",
        whole_words: Sequence[str] = (),
    ):
        is_valid = 1 < len(labels) == len(set(labels))
        check_argument(is_valid, "labels", labels, "2 or more, all different")
        room = max_seq_length - NUM_SPECIAL_TOKENS
        check_argument(room >= 1, "max_seq_length", max_seq_length, "3 or more")
        is_valid = doc_stride is None or 1 <= doc_stride <= room
        check_argument(is_valid, "doc_stride", doc_stride, f"from 1 to {room}")
        check_argument(crf in (None, IOB2, WORDS), "crf", crf, f"{IOB2} or {WORDS}: train it again")
        self.labels = tuple(labels)
        self._ids = {label: index for index, label in enumerate(self.labels)}
        self.max_seq_length = max_seq_length
        self.document_context = document_context
        self.doc_stride = doc_stride
        self.feature_layers = feature_layers
        self.bilstm_units = bilstm_units
        if word_labels is None:
            has_entities = any(label[:2] in ("B-", "I-") for label in labels)
            word_labels = not has_entities and not all(map(is_entity_label, labels))
        self.word_labels = word_labels
        self.best_metric = "eval_accuracy" if self.word_labels else "eval_f1"
        self.crf = crf
        self.word_splitting, self.whole_words = word_splitting, frozenset(whole_words)
        self.features = _list_features(max_seq_length, with_ends=crf is not None)
        self.losses = (token_classification_loss() if crf is None else crf_loss(),)

    def arguments(self) -> dict[str, Any]:
        values = super().arguments()
        last = {
            "crf": values.pop("crf", None),
            "whole_words": sorted(values.pop("whole_words", ())),
        }
        return values | {name: value for name, value in last.items() if value}

    def id_limits(self, config: BertConfig) -> dict[str, int]:
        return super().id_limits(config) | {"label_ids": len(self.labels)}

    def build_model(self, config: BertConfig, dtype: str | None = None) -> keras.Model:
        settings: dict[str, Any] = {"crf": self.crf, "dtype": dtype}
        if self.feature_layers is None:
            return BertForTokenClassification(config, labels=self.labels, **settings)
        return BertBiLstmForTokenClassification(
            config, self.labels, self.feature_layers, self.bilstm_units, **settings
        )

    def count_windows(self, sentences: Sequence[Sentence], tokenizer: FullTokenizer) -> int:
        """Return how many records `write_records` makes of the sentences."""
        return sum(map(self.record_maker(tokenizer).count, self.rows(sentences, tokenizer)))

    def rows(
        self, sentences: Sequence[Sentence], tokenizer: FullTokenizer
    ) -> Iterator[LabelledDocument]:
        """Yield the texts to be split into windows: documents, or single sentences."""
        if not self.document_context:
            yield from ([(s.words, self.label_ids(s))] for s in sentences)
            return
        for _, document in groupby(sentences, key=lambda sentence: sentence.document):
            yield [(s.words, self.label_ids(s)) for s in document]

    def records_key(self, sentences: Iterable[Sentence], tokenizer: FullTokenizer) -> str:
        settings = [self.labels, self.max_seq_length, self.document_context, self.doc_stride]
        settings += [] if self.crf is None else [self.crf]
        rows = ((sentence.words, sentence.labels, sentence.document) for sentence in sentences)
        return content_key(tokenizer, settings, rows)

    def records(
        self, sentences: Sequence[Sentence], tokenizer: FullTokenizer
    ) -> Iterator[dict[str, Any]]:
        """Yield the windows of `sentences`: values of `features`.

        Every word is predicted in exactly one window, in the order of the sentences. With a CRF, labels
        that break its scheme become those of the same entities.
        """
        make = self.record_maker(tokenizer)
        return chain.from_iterable(map(make.rows, self.rows(sentences, tokenizer)))

    def record_maker(self, tokenizer: FullTokenizer) -> WordRecords:
        return WordRecords(tokenizer, self.max_seq_length, self.record_names, self.doc_stride)

    def label_ids(self, sentence: Sentence) -> list[int]:
        """Return the label of each word as in the records; zeros without labels.

        Raises:
            DataError: a label is unknown; the message names the line.
        """
        if sentence.labels is None:  # a test set, whose labels are unused
            return [0] * len(sentence.words)
        labels = sentence.labels if self.word_labels else to_iob2(sentence.labels)
        for index, label in enumerate(labels):
            if label not in self._ids:
                valid = ", ".join(self.labels)
                problem = f"the label is {label!r}, but those of this model are {valid}."
                raise DataError(sentence.location(index), problem)
        return [self._ids[label] for label in labels]

    def eval_outputs(self, outputs: Tensors, features: Tensors) -> Tensors:
        logits = word_logits(outputs["logits"], features["word_positions"])
        words = {n: features[n] for n in ("label_ids", "label_weights", "sentence_starts")}
        if self.crf is not None:
            return {"logits": logits, "transitions": outputs["transitions"], **words}
        return {
            "predictions": tf.argmax(logits, axis=-1, output_type=tf.int32),
            "probabilities": tf.reduce_max(tf.nn.softmax(logits), axis=-1),
            "losses": cross_entropy(logits, features["label_ids"]),
            **words,
        }

    def learned_shapes(self, embedding_dim):
        return {"logits": (self.max_seq_length - NUM_SPECIAL_TOKENS, len(self.labels))}

    def learned_outputs(self, outputs: Tensors, features: Tensors) -> Tensors:
        if self.crf is not None:  # logarithms of the probabilities of each word's labels
            return {"logits": log_marginals(chains_of_words(outputs, features))}
        return {"logits": word_logits(outputs["logits"], features["word_positions"])}

    def decode(self, outputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the predictions of the CRF for each whole sentence."""
        if self.crf is None:
            return outputs
        parts = (split_by_sentence(outputs, name) for name in ("logits", "label_ids"))
        sentences = list(zip(*parts, strict=True))
        results = {n: v for n, v in outputs.items() if n not in ("logits", "transitions")}
        is_predicted = outputs["label_weights"] > 0
        for name, values in decode_sentences(sentences, outputs["transitions"][0]).items():
            results[name] = np.zeros(is_predicted.shape, values.dtype)
            results[name][is_predicted] = values
        return results

    def metrics(self, outputs: Mapping[str, np.ndarray]) -> dict[str, float]:
        """Return `eval_loss` in nats per word, and fractions from 0 to 1.

        The fractions are those of conlleval, or accuracy and macro F1 for labels of words.
        """
        loss = float(np.average(outputs["losses"], weights=outputs["label_weights"]))
        return {**self._fractions(self.scores(outputs)), "eval_loss": loss, "loss": loss}

    @property
    def metric_keys(self) -> tuple[str, ...]:
        """Keys of `metrics`. An evaluation lacks those of types that it neither has nor predicts."""
        return (*self._fractions(conlleval([self.labels], [self.labels])), "eval_loss", "loss")

    def _fractions(self, scores: Scores) -> dict[str, float]:
        results = {"eval_accuracy": scores.accuracy}
        if self.word_labels:
            return results | {"eval_f1_macro": scores.f1_macro}
        groups = [("", scores.overall), *((f"_{k}", v) for k, v in scores.by_type.items() if k)]
        for ending, counts in groups:
            results[f"eval_precision{ending}"] = counts.precision
            results[f"eval_recall{ending}"] = counts.recall
            results[f"eval_f1{ending}"] = counts.f1
        return results

    def scores(self, outputs: Mapping[str, np.ndarray]) -> Scores:
        """Return the metrics of conlleval over an evaluation set; by label for labels of words."""
        return conlleval(*(self.entity_labels(outputs, n) for n in ("label_ids", "predictions")))

    @property
    def entity_label_names(self) -> tuple[str, ...]:
        """Labels as labels of entities; each word is an entity for labels of words."""
        return tuple(map(mark_as_entity, self.labels)) if self.word_labels else self.labels

    def entity_labels(self, outputs: Mapping[str, np.ndarray], name: str) -> list[list[str]]:
        """Return `sentence_labels` with the names of `entity_label_names`."""
        names = self.entity_label_names
        return [[names[label] for label in row] for row in split_by_sentence(outputs, name)]

    def sentence_labels(self, outputs: Mapping[str, np.ndarray], name: str) -> list[list[str]]:
        """Return the labels of the words of each sentence, in the order of the file.

        Args:
            outputs: from `eval_outputs`, of all windows.
            name: "predictions" or "label_ids".
        """
        return [[self.labels[label] for label in row] for row in split_by_sentence(outputs, name)]


def split_by_sentence(outputs: Mapping[str, np.ndarray], name: str) -> list[np.ndarray]:
    """Split an array [windows, W] of `eval_outputs` into one array per sentence."""
    is_predicted = outputs["label_weights"] > 0  # each word once
    starts = np.flatnonzero(outputs["sentence_starts"][is_predicted])
    return np.split(outputs[name][is_predicted], starts[1:])


_SENTENCES_AT_ONCE = 64


def decode_sentences(
    sentences: Sequence[tuple[np.ndarray, np.ndarray]], transitions: np.ndarray
) -> dict[str, np.ndarray]:
    """Return the best labels by a CRF, with their probabilities and losses, over all words in order.

    Args:
        sentences: logits float32 [W, L] and actual labels int32 [W] of each.
        transitions: float32 [L + 1, L + 1].
    """
    lengths = [len(labels) for _, labels in sentences]
    results: list[dict[str, np.ndarray]] = [{}] * len(sentences)
    for rows in group_by_length(lengths, _SENTENCES_AT_ONCE):
        shape = (len(rows), lengths[rows[-1]])
        logits = np.zeros((*shape, len(transitions) - 1), np.float32)
        labels = np.zeros(shape, np.int32)
        for index, row in enumerate(rows):
            logits[index, : lengths[row]], labels[index, : lengths[row]] = sentences[row]
        counts = np.array([lengths[row] for row in rows])
        batch = _decode(logits, transitions, labels, counts)
        for index, row in enumerate(rows):
            results[row] = {n: value[index, : lengths[row]].numpy() for n, value in batch.items()}
    return {name: np.concatenate([result[name] for result in results]) for name in results[0]}


@functools.partial(tf.function, reduce_retracing=True, autograph=False)
def _decode(logits, transitions, labels, counts) -> dict[str, tf.Tensor]:
    """Return `best_labels` of sentences with `counts` words, and `losses` [B, W]."""
    rows = tf.broadcast_to(transitions, tf.concat([[tf.size(counts)], tf.shape(transitions)], 0))
    chains = sentence_chains(logits, rows, counts)
    loss = -log_likelihood(chains, labels, tf.ones_like(labels)) / tf.cast(counts, tf.float32)
    predictions, probabilities = best_labels(chains)
    return {
        "predictions": predictions,
        "probabilities": probabilities,
        "losses": tf.broadcast_to(loss[:, None], tf.shape(labels)),
    }


def _list_features(max_seq_length: int, with_ends: bool = False) -> tuple[FeatureSpec, ...]:
    """Return the features of a window of words.

    `word_positions`: positions of the first piece of each word, 0 for padding. `label_weights`: 1 for
    words predicted in this window. `sentence_starts`: 1 for the first word of a sentence.
    `sentence_ends`, `with_ends` only: 1 for the last word.
    """
    num_words = max_seq_length - NUM_SPECIAL_TOKENS
    return (
        *sequence_specs((max_seq_length,)),
        FeatureSpec("word_positions", (num_words,), role="id"),
        FeatureSpec("label_ids", (num_words,), role="label", output="logits"),
        FeatureSpec("label_weights", (num_words,), "float32", role="weight", output="logits"),
        FeatureSpec("sentence_starts", (num_words,), role="id"),
        *([FeatureSpec("sentence_ends", (num_words,), role="id")] if with_ends else []),
    )


register_task(
    TaskType(
        name="token_classification",
        task=TokenClassificationTask,
        program="run_ner",
        pipeline="token-classification",
        usage='predict(["John Smith lives in New York."])',
    )
)
