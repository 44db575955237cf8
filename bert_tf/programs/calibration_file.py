"""--calibration_file: texts or training records, for the measurement of ranges."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf.data.globs import expand_files
from bert_tf.data.record_checks import feature_sizes, naming_damaged_file
from bert_tf.data.records import read_records
from bert_tf.interop.hub import local_path
from bert_tf.model_folder import TrainedModel
from bert_tf.prediction.text_model import TextModel
from bert_tf.programs.predict_input import InputColumnsOptions, read_inputs
from bert_tf.registry import TYPES
from bert_tf.serving.calibration import (
    Ids,
    calibration_ids,
    ids_of_records,
    warn_of_other_words,
)
from bert_tf.serving.served import TEXT, Served
from bert_tf.tokenization import FullTokenizer

RECORDS_ENDING = ".tf_record"


def read_calibration(
    served: Served,
    calibration_file: str,
    columns: InputColumnsOptions | None = None,
    trained_on: str | None = None,
) -> list[Ids]:
    """Return the ids of texts or records, as `calibration_ids` does.

    Warn if texts have other words than the training.

    Args:
        served: takes text.
        calibration_file: comma list of files or globs. TFRecords have the ending .tf_record.
        columns: of a table.
        trained_on: file of the records of the training, if it is there.

    Raises:
        ValueError: a line is not an input of the model, or the texts are unsuitable.
    """
    files, source = expand_files(calibration_file), f"calibration_file={calibration_file}"
    if calibration_file == trained_on:
        source = f"{trained_on} (the records of the training)"
    if all(file.endswith(RECORDS_ENDING) for file in files):
        return ids_of_records(served, _records(served, files), source)
    rows = calibration_ids(
        served, _requests(served, files, columns or InputColumnsOptions()), source
    )
    if trained_on is not None:
        warn_of_other_words(served, rows, _records(served, [trained_on]), source)
    return rows


def training_records(model_dir: str) -> str | None:
    """Return the path of the training records in a folder, if they are there."""
    path = os.path.join(local_path(model_dir), f"train{RECORDS_ENDING}")
    return path if tf.io.gfile.exists(path) else None


def _records(served: Served, files: list[str]) -> Iterator[Ids]:
    """Yield the inputs of the model in each record."""
    if served.task is None:
        raise ValueError(
            f"calibration_file: {files[0]} contains records of a task, but the export has no task. Give "
            "texts."
        )
    names = served.ids_specs()
    specs = [s for s in served.task.record_features if s.name in names and s.role == "input"]
    num_documents = feature_sizes(files[0]).get("choice_mask")
    if num_documents and len(specs[0].shape) == 1:  # of a reranker, which reads lists in training
        specs = [replace(spec, shape=(num_documents, *spec.shape)) for spec in specs]
    id_limits = served.task.id_limits(served.config)
    dataset = read_records(
        files,
        specs,
        batch_size=1,
        shuffle=False,
        repeat=False,
        drop_remainder=False,
        id_limits=id_limits,
    )
    with naming_damaged_file(files, id_limits):
        for inputs in dataset.as_numpy_iterator():
            if inputs["input_ids"].ndim == len(served.ids_shape):
                yield inputs
                continue
            for text in range(inputs["input_ids"].shape[1]):  # K texts, each a sequence of its own
                row = {name: value[:, text] for name, value in inputs.items()}
                if row["input_mask"].any():
                    yield {"segment_ids": np.zeros_like(row["input_ids"]), **row}


def _requests(
    served: Served, files: list[str], columns: InputColumnsOptions
) -> Iterator[dict[str, Any]]:
    """Yield one request of `serving_default` for each input."""
    model = _text_model(served)
    names = [spec.name for spec in served.text_functions()[TEXT][1]]
    for found in read_inputs(files, columns, model):
        try:
            if found.error:
                raise ValueError(found.error)
            item = found.item
            model.prepare(item)
        except ValueError as error:
            raise ValueError(f"calibration_file: {found.place}: {error}") from error
        parts = [item] if isinstance(item, str) else [part for part in item if part is not None]
        if len(parts) != len(names):
            raise ValueError(
                f"calibration_file: {found.place} has {len(parts)} texts, but the export takes "
                f"{' and '.join(names)}. Give one of each, remove the column of the second texts, or "
                "set is_pair."
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
