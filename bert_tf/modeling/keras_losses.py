"""Checks of the losses, metrics and labels that a model gets in Keras."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import keras

# Functions of Keras that take probabilities by default, and classes that can take logits.
_OF_PROBABILITIES = (
    (keras.losses.binary_crossentropy, "BinaryCrossentropy"),
    (keras.losses.binary_focal_crossentropy, "BinaryFocalCrossentropy"),
    (keras.losses.categorical_crossentropy, "CategoricalCrossentropy"),
    (keras.losses.categorical_focal_crossentropy, "CategoricalFocalCrossentropy"),
    (keras.losses.categorical_generalized_cross_entropy, "CategoricalCrossentropy"),
    (keras.losses.kl_divergence, "CategoricalCrossentropy"),  # with the same gradient
    (keras.losses.dice, "BinaryCrossentropy"),
    (keras.losses.tversky, "BinaryCrossentropy"),
    (keras.losses.sparse_categorical_crossentropy, "SparseCategoricalCrossentropy"),
)

# Instead of metrics that cannot take logits.
_COUNTED = "Precision(thresholds=0) and keras.metrics.Recall(thresholds=0)"


def check_loss(loss: Any, outputs: Any) -> None:
    """Raise ValueError if a loss of Keras takes the logits in a model's outputs for probabilities."""
    outputs = list(outputs) if isinstance(outputs, Mapping) else []
    if isinstance(loss, list | tuple):
        loss = dict(zip(sorted(outputs), loss, strict=False))  # in the order of Keras
    for output in outputs:
        given = loss.get(output) if isinstance(loss, Mapping) else loss
        given = keras.losses.get(given) if isinstance(given, str) else given
        name = _class_of_logits(getattr(given, "fn", given))  # function of a loss of Keras
        if output.endswith("logits") and name is not None and not _takes_logits(given):
            raise ValueError(
                f"The output `{output}` has logits, but the loss expects probabilities. Compile with "
                f"keras.losses.{name}(from_logits=True)."
            )


def check_names_and_order(what: str, values: Any, outputs: Any) -> None:
    """Raise ValueError if values of several outputs are a list in another order or have other names.

    Keras matches a list with the outputs of a dict in the order of their names.

    Args:
        what: the values, in the plural.
    """
    names = list(outputs) if isinstance(outputs, Mapping) else []
    if isinstance(values, Mapping) and len(names) > 1 and not values.keys() <= set(names):
        raise ValueError(
            f"The {what} have the names {', '.join(map(str, values))}, but the outputs of the model are "
            f"{', '.join(names)}. Name them so: {{{', '.join(f'{name!r}: ...' for name in names)}}}."
        )
    if isinstance(values, list | tuple) and names != sorted(names):
        raise ValueError(
            f"The {what} are a list or tuple, which Keras matches with the outputs in the "
            f"order of their names: {', '.join(f'`{name}`' for name in sorted(names))}. Give a dict: "
            f"{{{', '.join(f'{name!r}: ...' for name in names)}}}."
        )


def check_metrics(loss: Any, metrics: Iterable[keras.metrics.Metric]) -> None:
    """Raise ValueError if the loss takes logits, but a metric of Keras takes them for probabilities."""
    losses = loss.values() if isinstance(loss, Mapping) else loss
    losses = losses if isinstance(losses, Iterable) else (losses,)
    if not any(_takes_logits(each) for each in losses):
        return
    for metric in metrics:
        config, name = metric.get_config(), type(metric).__name__
        takes, remedy = "expects probabilities", ""
        if config.get("from_logits") is False:
            remedy = f"{name}(from_logits=True)"
        elif name == "MeanMetricWrapper":  # of a function
            function = getattr(metric, "_fn", None)
            if function is keras.metrics.binary_accuracy and "threshold" not in config:
                takes, remedy = "compares them with 0.5", "BinaryAccuracy(threshold=0)"
            elif (of_logits := _class_of_logits(function)) and not config.get("from_logits"):
                remedy = f"{of_logits.replace('Focal', '')}(from_logits=True)"
        elif name == "KLDivergence":
            remedy = "CategoricalCrossentropy(from_logits=True)"
        elif "num_thresholds" in config and "from_logits" not in config:
            remedy = _COUNTED
        elif config.get("threshold") is not None and name in ("F1Score", "FBetaScore"):
            takes, remedy = f"compares them with {config['threshold']}", _COUNTED
        elif config.get("threshold") == 0.5 and name.startswith("Binary"):
            takes, remedy = "compares them with 0.5", f"{name}(threshold=0)"
        elif config.get("thresholds", 0) is None and config.get("top_k") is None:
            takes, remedy = "compares them with 0.5", f"{name}(thresholds=0)"
        if remedy:
            raise ValueError(
                f"The loss is of logits, but the metric `{metric.name}` {takes}. Compile with "
                f"keras.metrics.{remedy}."
            )


def _class_of_logits(function: Any) -> str | None:
    """Return the class that takes logits instead of a function of probabilities, if it is one."""
    return next((name for of, name in _OF_PROBABILITIES if of is function), None)


def _takes_logits(loss: Any) -> bool:
    return isinstance(loss, keras.losses.Loss) and loss.get_config().get("from_logits") is True
