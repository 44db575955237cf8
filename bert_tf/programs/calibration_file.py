"""--calibration_file: texts in the format of predict's --input_file, for the measurement of ranges."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bert_tf.data.files import expand_files
from bert_tf.model_folder import TrainedModel
from bert_tf.prediction.text_model import TextModel
from bert_tf.programs.predict_input import InputLayout, read_inputs
from bert_tf.registry import TYPES
from bert_tf.serving.calibration import Ids, calibration_ids
from bert_tf.serving.served import TEXT, Served
from bert_tf.tokenization import FullTokenizer


def read_calibration(served: Served, calibration_file: str) -> list[Ids]:
    """Return the ids of texts, as `calibration_ids` does.

    Args:
        served: takes text.
        calibration_file: comma list of files or globs.

    Raises:
        ValueError: a line is not an input of the model, or the texts are unsuitable.
    """
    requests = _requests(served, expand_files(calibration_file))
    return calibration_ids(served, requests, f"calibration_file={calibration_file}")


def _requests(served: Served, files: list[str]) -> Iterator[dict[str, Any]]:
    """Yield one request of `serving_default` for each input."""
    model = _text_model(served)
    names = [spec.name for spec in served.text_functions()[TEXT][1]]
    for found in read_inputs(files, InputLayout(), model.fields):
        try:
            item = found.item(model)
            model.prepare(item)
        except ValueError as error:
            raise ValueError(f"calibration_file: {found.place}: {error}") from error
        parts = [item] if isinstance(item, str) else [part for part in item if part is not None]
        if len(parts) != len(names):
            raise ValueError(
                f"calibration_file: {found.place} has {len(parts)} texts, but the export takes "
                f"{' and '.join(names)}. Give one of each, or set is_pair."
            )
        yield {name: [part] for name, part in zip(names, parts, strict=True)}


def _text_model(served: Served) -> TextModel:
    """Return the Python classes for the same model, which read its input."""
    entry = next(e for e in TYPES.values() if e.served and e.load("served") is type(served))
    vocabulary = sorted(served.vocabulary, key=served.vocabulary.__getitem__)
    tokenizer = FullTokenizer(vocabulary, served.do_lower_case)
    return entry.load("predictor")(
        TrainedModel(served.model, tokenizer, served.task, served.max_seq_length)
    )
