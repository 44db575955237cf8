"""predict as an Apache Beam pipeline: `predict --runner=DirectRunner ... -- flags of Beam`.

    files -> chunks of inputs -> RunInference with the SavedModel -> a part per chunk -> the output file

A chunk is as large as without a runner, and never crosses the end of a file. So the answers do not
depend on the number of workers. Workers write parts into <output_file>.parts.tmp. This process joins
them in the order of the inputs.

Source: Apache Beam, apache_beam/ml/inference/base.py (`ModelHandler`, `RunInference`).
"""

from __future__ import annotations

import copy
import itertools
import json
import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import apache_beam as beam
import tensorflow as tf
from apache_beam.ml.inference.base import KeyedModelHandler, ModelHandler, RunInference

from bert_tf.data.files import TEMPORARY_SUFFIX, remove_tree, write_text
from bert_tf.limits import MAX_DOCUMENT, read_whole
from bert_tf.modeling.inference_layout import KEEP_KERNELS
from bert_tf.predictor import TextModel, is_saved_model
from bert_tf.programs.predict import (
    BATCHES_AT_ONCE,
    PredictionOptions,
    Totals,
    answered,
    choose_model,
    make_predictor,
)
from bert_tf.programs.predict_input import (
    Input,
    InputLayout,
    check_answer_names,
    check_column_flags,
    read_inputs,
)
from bert_tf.programs.predict_output import make_writer, open_output

logger = logging.getLogger(__name__)

Key = tuple[int, int]  # number of the file, number of the chunk in it
Chunk = list[Input] | str  # str: the reason why the file cannot be read
Answered = tuple[dict, dict, str]  # repeated values of the input, answer, "file:line"
Part = tuple[list[Answered], int] | str  # of a chunk, with the number of truncated texts


def predict_on_beam(
    pipeline: beam.Pipeline, files: Sequence[str], options: PredictionOptions
) -> None:
    """Answer every input with a SavedModel in the workers of a pipeline.

    Args:
        pipeline: empty. This function runs it.
        files: read by the workers.

    Raises:
        ValueError: the model is not a SavedModel, a file does not match its format, or none of the
            inputs could be answered.
        FileNotFoundError: a worker wrote to a folder that this process does not see.
    """
    if not is_saved_model(options.model_dir):
        raise ValueError(
            f"model_dir is {options.model_dir}, but `runner` needs a SavedModel, and there is no "
            "saved_model.pb. Export the model: python -m bert_tf export_saved_model "
            f"--model_dir={options.model_dir} --export_dir=..."
        )
    model = choose_model(make_predictor(options), options)
    check_column_flags(options.layout, model.fields)
    if options.answer_format != "text":
        check_answer_names(options.layout, model.columns)
    fields = (model.fields, model.optional_fields)
    size, totals = options.batch_size * BATCHES_AT_ONCE, Totals()
    with _parts_folder(options.output_file) as folder:
        with pipeline:
            _ = (
                pipeline
                | "files" >> beam.Create(list(enumerate(files)))
                | "spread files" >> beam.Reshuffle()
                | "read" >> beam.FlatMap(_read_chunks, options.layout, fields, size)
                | "spread chunks" >> beam.Reshuffle()
                | "answer" >> RunInference(KeyedModelHandler(_Answers(options)))
                | "write" >> beam.Map(_write_part, folder)
            )
        with open_output(options.output_file) as output:
            write = make_writer(options.answer_format, model, output)
            for rows, num_cut in _read_parts(folder, len(files), size):
                model.num_cut += num_cut
                for shown, answer, place in rows:
                    write(shown, answer, place)
                    totals.add(answer)
    totals.report(model)
    totals.check()


class _Answers(ModelHandler):
    """Answers of a SavedModel to chunks. Beam loads it once per process."""

    def __init__(self, options: PredictionOptions):
        kept = {KEEP_KERNELS: os.environ[KEEP_KERNELS]} if KEEP_KERNELS in os.environ else {}
        super().__init__(max_batch_size=1, env_vars=kept)  # a chunk has its own batches
        self._options = options

    def load_model(self) -> TextModel:
        return choose_model(make_predictor(self._options), self._options)

    def run_inference(
        self, batch: Sequence[Chunk], model: TextModel, inference_args: Any = None
    ) -> list[Part]:
        return [_answer(chunk, model) for chunk in batch]


def _answer(chunk: Chunk, model: TextModel) -> Part:
    if isinstance(chunk, str):
        return chunk
    model = copy.copy(model)  # threads share the model, but each chunk has its own count
    model.num_cut = 0
    found = answered(chunk, model, len(chunk))
    rows = [(dict(each.shown), answer, each.place) for some in found for each, answer in some]
    return rows, model.num_cut


def _read_chunks(
    numbered: tuple[int, str],
    layout: InputLayout,
    fields: tuple[Sequence[str], Sequence[str]],
    size: int,
) -> Iterator[tuple[Key, Chunk]]:
    """Yield the chunks of a file; the last one is shorter than `size`, or an error."""
    number, file = numbered
    inputs = read_inputs([file], layout, *fields)
    for place in itertools.count():
        try:
            chunk = list(itertools.islice(inputs, size))
        except ValueError as error:
            yield (number, place), str(error)
            return
        yield (number, place), chunk
        if len(chunk) < size:
            return


@contextmanager
def _parts_folder(output_file: str) -> Iterator[str]:
    """Yield an empty folder next to the output file, and remove it afterwards."""
    folder = f"{output_file}.parts{TEMPORARY_SUFFIX}"
    if tf.io.gfile.exists(folder):  # of a run that was killed
        remove_tree(folder)
    tf.io.gfile.makedirs(folder)
    try:
        yield folder
    finally:
        remove_tree(folder)


def _part_file(folder: str, key: Key) -> str:
    return os.path.join(folder, "{:06d}-{:09d}.json".format(*key))


def _write_part(keyed: tuple[Key, Part], folder: str) -> None:
    key, part = keyed
    write_text(_part_file(folder, key), json.dumps(part))


def _read_parts(folder: str, num_files: int, size: int) -> Iterator[tuple[list[Answered], int]]:
    """Yield the answers to all inputs, in order, chunk by chunk, with their truncated texts."""
    for number in range(num_files):
        for place in itertools.count():
            file = _part_file(folder, (number, place))
            if not tf.io.gfile.exists(file):
                raise FileNotFoundError(
                    f"The pipeline has ended, but {file} is missing. Do all workers write to the folder "
                    "that this process sees?"
                )
            part = json.loads(read_whole(file, MAX_DOCUMENT))
            if isinstance(part, str):
                raise ValueError(part)
            yield part
            if len(part[0]) < size:
                break
