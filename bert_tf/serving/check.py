"""A comparison of each written export with its model, before the folder gets its name.

Both answer a handful of texts: words drawn from the vocabulary, also in upper case, and a text with
accents, signs and characters that are words of their own. The model answers in float32.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.prediction.runtimes import POSITIONS, RUNTIMES, TEXT
from bert_tf.serving.served import Served
from bert_tf.serving.signatures import (
    EXAMPLES,
    HUGGING_FACE,
    HUGGING_FACE_INPUTS,
    INPUT_NAMES,
    TF_EXAMPLE,
    Outputs,
    serialize_examples,
)

logger = logging.getLogger(__name__)

# Precision -> largest difference, absolute, or relative to an output's largest value above 1.
TOLERANCES = {"float32": 1e-5, "float16": 1e-2, "bfloat16": 0.05, "int8": 0.5}
_FOREIGN = "Ça coûte 5 €, n'est-ce pas? 東京 naïve"
_WORDS = (3, 20)  # lengths of the texts from the vocabulary


class ExportCheck:
    """Compares a file or SavedModel with the model. The model's answers are computed at once.

    Args:
        served: the model in float32, which no export has changed yet.
        names: of the signatures to compare.
        format: key of `RUNTIMES`.
        precision: of the export.
    """

    def __init__(self, served: Served, names: Sequence[str], format: str, precision: str):
        self._format, self._precision = format, precision
        rng = random.Random(0)
        words = [token for token in served.pieces if token.isalpha()] or ["a"]
        drawn = [" ".join(rng.choices(words, k=count)) for count in _WORDS]
        self._texts = [*drawn, drawn[0].upper(), _FOREIGN]
        self._ids = [served.trained.tokenizer.encode(text) for text in self._texts]
        text, ids = served.text_functions(), served.ids_functions()
        requests = served.requests(self._texts)
        self._expected: list[tuple[str, Mapping[str, Any], dict[str, np.ndarray]]] = []
        for name in names:
            if name in ids:
                batch = _pair_ids(served, self._texts, ids[name][1])
                outputs = ids[name][0](
                    **{name: tf.constant(value) for name, value in batch.items()}
                )
                if name == HUGGING_FACE:
                    outputs.pop("pooler_output", None)  # random for a checkpoint without a pooler
                self._expected.append((name, batch, _floats(outputs)))
                continue
            if name == TEXT and served.has_spans and precision != "float32":
                continue  # there may be other entities, and another number of them
            function, specs = text[TEXT if name == TF_EXAMPLE else name]
            for request in requests[TEXT if name == TF_EXAMPLE else name]:
                outputs = function(*(tf.constant(request[spec.name]) for spec in specs))
                if name == TF_EXAMPLE:
                    request = {EXAMPLES: serialize_examples(request)}
                self._expected.append((name, request, _floats(outputs)))

    def __call__(self, path: str) -> dict[str, Any]:
        """Return the largest difference of each output, for export.json.

        Raises:
            ValueError: the export does not answer as the model.
        """
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


def _floats(outputs: Outputs) -> dict[str, np.ndarray]:
    """Return the outputs that may differ by rounding; the others follow from them."""
    return {name: value.numpy() for name, value in outputs.items() if value.dtype.is_floating}


def _pair_ids(served: Served, texts: Sequence[str], names: Iterable[str]) -> dict[str, np.ndarray]:
    """Return pairs of texts as ids, short ones padded, under the names of a signature on ids."""
    trained = served.trained
    pairs = [*texts[2:], *texts[:2]]
    ids = dict(trained.tokenizer(texts, pairs, max_length=trained.max_seq_length))
    if len(served.ids_shape) == 3:  # choices
        ids = {name: rows[None] for name, rows in ids.items()}
    ids |= dict.fromkeys(POSITIONS, np.full((len(texts), 2), [1, 2], np.int32))
    ids |= {other: ids[name] for other, name in zip(HUGGING_FACE_INPUTS, INPUT_NAMES, strict=True)}
    return {name: np.asarray(ids[name], np.int32) for name in names}
