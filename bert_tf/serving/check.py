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

from bert_tf.prediction import runtimes
from bert_tf.prediction.runtimes import POSITIONS
from bert_tf.serving.other_names import EXAMPLES, HUGGING_FACE, INPUTS, TF_EXAMPLE, serialized
from bert_tf.serving.served import INPUT_NAMES, TEXT, Outputs, Served
from bert_tf.tokenization import FullTokenizer

logger = logging.getLogger(__name__)

# Precision -> largest difference, absolute, or relative to an output's largest value above 1.
TOLERANCES = {"float32": 1e-5, "float16": 1e-2, "bfloat16": 0.05, "int8": 0.5}
_FOREIGN = "Ça coûte 5 €, n'est-ce pas? 東京 naïve"
_WORDS = (3, 20)  # lengths of the texts from the vocabulary


class ExportCheck:
    """Compares a file or SavedModel with the model. Its answers are computed at once.

    Args:
        served: the model in float32, before `prepare`.
        signatures: names of those to compare.
        format: key of `runtimes.RUNTIMES`.
        precision: of the export.
    """

    def __init__(self, served: Served, signatures: Sequence[str], format: str, precision: str):
        self._format, self._precision = format, precision
        tokenizer = served.full_tokenizer
        rng = random.Random(0)
        words = [token for token in served.vocabulary if token.isalpha()] or ["a"]
        drawn = [" ".join(rng.choices(words, k=count)) for count in _WORDS]
        self._texts = [*drawn, drawn[0].upper(), _FOREIGN]
        self._ids = [tokenizer.encode(text) for text in self._texts]
        text, ids = served.text_functions(), served.ids_functions()
        requests = served.requests(self._texts)
        self._expected: list[tuple[str, Mapping[str, Any], dict[str, np.ndarray]]] = []
        for name in signatures:
            if name in ids:
                batch = _batch(served, tokenizer, self._texts, ids[name][1])
                outputs = ids[name][0](**{n: tf.constant(v) for n, v in batch.items()})
                if name == HUGGING_FACE:
                    outputs.pop("pooler_output", None)  # random for a checkpoint without a pooler
                self._expected.append((name, batch, _numbers(outputs)))
                continue
            if name == TEXT and served.has_spans and precision != "float32":
                continue  # the entities found may be others, and so their number
            function, specs = text[TEXT if name == TF_EXAMPLE else name]
            for request in requests[TEXT if name == TF_EXAMPLE else name]:
                outputs = function(*(tf.constant(request[spec.name]) for spec in specs))
                if name == TF_EXAMPLE:
                    request = {EXAMPLES: serialized(request)}
                self._expected.append((name, request, _numbers(outputs)))

    def __call__(self, path: str) -> dict[str, Any]:
        """Return the largest difference of each output, for export.json.

        Raises:
            ValueError: the export does not answer as the model.
        """
        runtime = runtimes.RUNTIMES[self._format](path)
        if runtime.token_ids(self._texts) not in (None, self._ids):
            raise ValueError("The tokenizer of the export gives other ids than FullTokenizer.")
        differences: dict[str, dict[str, float]] = {}
        tolerance = TOLERANCES[self._precision]
        for signature, request, expected in self._expected:
            answers = runtime.ask(signature, dict(request))
            largest = differences.setdefault(signature, {})
            for name, value in expected.items():
                answer = answers[name]
                difference = np.inf
                if answer.shape == value.shape:
                    difference = float(np.abs(answer - value).max(initial=0))
                allowed = tolerance * max(1.0, float(np.abs(value).max(initial=0)))
                if not difference <= allowed:  # also if it is nan
                    raise ValueError(
                        f"{name} of {signature} differs from the model by {difference:.3g} (allowed: "
                        f"{allowed:.3g}), so nothing is exported."
                    )
                largest[name] = max(difference, largest.get(name, 0.0))
        values = [value for named in differences.values() for value in named.values()]
        logger.info(
            "The export answers as the model: largest difference %.3g", max(values, default=0.0)
        )
        return {"differences": differences}


def _numbers(outputs: Outputs) -> dict[str, np.ndarray]:
    """Return the outputs that may differ by rounding; the others follow from them."""
    return {name: value.numpy() for name, value in outputs.items() if value.dtype.is_floating}


def _batch(
    served: Served, tokenizer: FullTokenizer, texts: Sequence[str], names: Iterable[str]
) -> dict[str, np.ndarray]:
    """Return the texts as pairs of ids, short ones padded, under the names of a signature on ids."""
    batch = dict(tokenizer(texts, [*texts[2:], *texts[:2]], max_length=served.max_seq_length))
    if len(served.ids_shape) == 3:  # choices
        batch = {name: ids[None] for name, ids in batch.items()}
    batch |= dict.fromkeys(POSITIONS, np.full((len(texts), 2), [1, 2], np.int32))
    batch |= {alias: batch[name] for alias, name in zip(INPUTS, INPUT_NAMES, strict=True)}
    return {name: np.asarray(batch[name], np.int32) for name in names}
