"""A comparison of each written export with its model, before the folder gets its name.

Both answer a handful of texts: words drawn from the vocabulary, also in upper case, and a text with
accents, signs and characters that are words of their own. The model answers in float32.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.prediction.loading import RUNTIMES, TEXT, TOKENS
from bert_tf.serving.served import (
    EXAMPLES,
    HUGGING_FACE,
    HUGGING_FACE_NAMES,
    TF_EXAMPLE,
    Served,
    make_signatures,
)

logger = logging.getLogger(__name__)

# Precision -> largest difference, absolute, or relative to an output's largest value above 1.
TOLERANCES = {"float32": 1e-5, "float16": 1e-2, "bfloat16": 0.05, "int8": 0.5}
_FOREIGN = "[MASK] Ça coûte 5 €, n'est-ce pas? 東京 naïve"
_WORDS = (3, 20)  # lengths of the texts from the vocabulary


class ExportCheck:
    """Compares a file or SavedModel with the model in float32, whose answers are computed at once."""

    def __init__(self, served: Served, names: Sequence[str], format: str, precision: str):
        self._format, self._precision = format, precision
        self._texts = sample_texts(served)
        self._ids = [served.trained.tokenizer.encode(text) for text in self._texts]
        requests, signatures = sample_requests(served), make_signatures(served)
        self._expected: list[tuple[str, Mapping[str, Any], dict[str, np.ndarray]]] = []
        for name in names:
            if name == TEXT and served.has_spans and precision != "float32":
                continue  # there may be other entities, and another number of them
            for request in requests[name]:
                function, _ = signatures[name]
                outputs = function(**{n: tf.constant(value) for n, value in request.items()})
                if name == HUGGING_FACE:
                    outputs.pop("pooler_output", None)  # random for a checkpoint without a pooler
                # The others follow from the outputs that may differ by rounding.
                floats = {n: v.numpy() for n, v in outputs.items() if v.dtype.is_floating}
                self._expected.append((name, request, floats))

    def __call__(self, path: str) -> dict[str, Any]:
        """Return the largest difference of each output, for export.json."""
        runtime = RUNTIMES[self._format](path)
        if runtime.token_ids(self._texts) not in (None, self._ids):
            raise ValueError("The tokenizer of the export gives other ids than FullTokenizer.")
        differences: dict[str, dict[str, float]] = {}
        for signature, request, expected in self._expected:
            answers = runtime.ask(signature, dict(request))
            of_outputs = differences.setdefault(signature, {})
            for name, value in expected.items():
                answer, difference = answers[name], np.inf
                if answer.shape == value.shape:
                    difference = float(np.abs(answer - value).max(initial=0))
                scale = max(1.0, float(np.abs(value).max(initial=0)))
                tolerance = TOLERANCES[self._precision] * scale
                if not difference <= tolerance:  # also if it is nan
                    raise ValueError(
                        f"{name} of {signature} differs from the model by {difference:.3g} (allowed: "
                        f"{tolerance:.3g}), so nothing is exported."
                    )
                of_outputs[name] = max(difference, of_outputs.get(name, 0.0))
        largest = max((d for names in differences.values() for d in names.values()), default=0.0)
        logger.info("The export answers as the model: largest difference %.3g", largest)
        return {"differences": differences}


def sample_texts(served: Served) -> list[str]:
    rng = random.Random(0)
    words = [token for token in served.pieces if token.isalpha()] or ["a"]
    texts = [" ".join(rng.choices(words, k=count)) for count in _WORDS]
    return [*texts, texts[0].upper(), _FOREIGN]


def sample_requests(served: Served) -> dict[str, list[dict[str, Any]]]:
    """Return signature -> requests: on text one for each of `sample_texts`, on ids a batch of pairs."""
    texts, trained = sample_texts(served), served.trained
    requests = {
        name: [
            {spec.name: [text if spec.shape.rank == 1 else text.split()] for spec in specs}
            for text in texts
        ]
        for name, (_, specs) in served.text_functions().items()
    }
    ids = dict(trained.tokenizer(texts, texts[::-1], max_length=trained.max_seq_length))
    if len(served.ids_shape) == 3:  # choices
        ids = {name: rows[None] for name, rows in ids.items()}
    positions = np.full((len(texts), 2), [1, 2])
    rows = {name: np.asarray(ids.get(name, positions), np.int32) for name in served.ids_specs()}
    renamed = {name: rows[own] for own, name in HUGGING_FACE_NAMES.items()}
    examples = [{EXAMPLES: [_serialize_example(request)]} for request in requests[TEXT]]
    return {**requests, TOKENS: [rows], HUGGING_FACE: [renamed], TF_EXAMPLE: examples}


def _serialize_example(request: Mapping[str, Any]) -> bytes:
    """Return the `tf.train.Example` of a request of one row."""
    features = {}
    for name, (value,) in request.items():
        texts = [value] if isinstance(value, str) else value
        values = tf.train.BytesList(value=[text.encode() for text in texts])
        features[name] = tf.train.Feature(bytes_list=values)
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()
