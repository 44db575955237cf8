"""certify: proof that exports answer as the model does, as a page and as JSON for programs."""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import tensorflow as tf

from bert_tf import __version__
from bert_tf.data.files import check_writable, file_facts, is_stream, write_text
from bert_tf.data.globs import check_not_an_input, files_of_checkpoint
from bert_tf.data.streams import STANDARD_INPUT
from bert_tf.interop.checkpoint import PretrainedCheckpoint, read_json
from bert_tf.interop.read import read_checkpoint
from bert_tf.model_folder import TrainedModel, load_model, with_settings
from bert_tf.prediction.exports import FORMAT_RUNTIMES, Export, find_exports
from bert_tf.prediction.runtime_process import Process
from bert_tf.predictor import Predictor, TextModel
from bert_tf.programs.certificate import Comparison, Expected, compare
from bert_tf.programs.certificate_answers import variants
from bert_tf.programs.certificate_faults import LIMITS, Limits, describe
from bert_tf.programs.certify_options import CertifyOptions
from bert_tf.programs.predict_input import HOW_TO_TYPE, read_inputs
from bert_tf.report.certificate import certificate_page
from bert_tf.report.command_line import changed_flags
from bert_tf.report.page import plain
from bert_tf.serving.quantization import INT8

logger = logging.getLogger(__name__)

_VARIED = 2  # inputs of which there are variants


class CertificateError(ValueError):
    """An export differs from the model by more than the limits."""


def certify(options: CertifyOptions) -> None:
    """Compare every export with the model; write the page and the JSON.

    An interrupted run keeps the exports that passed. The same command compares the others.

    Raises:
        CertificateError: an export differs by more than the limits.
        ImportError: no runtime of an export is installed.
        ValueError: an export is of another model, or there are no inputs.
    """
    json_file = os.path.splitext(options.output_file)[0] + ".json"
    check_not_an_input([options.output_file, json_file], options.files)
    names = filter(None, (name.strip() for name in options.export_dir.split(",")))
    exports = [export for name in names for export in find_exports(name)]
    _check_used(options, exports)
    _check_input(options, exports)
    runs = [run for export in exports for run in _runs(export, options)]
    check_writable(os.path.dirname(options.output_file) or ".", "the folder of output_file")
    model = _Model(options)
    for export in exports:  # errors first
        model.expected(export)
    model_files = {os.path.basename(path): file_facts(path) for path in model.files()}
    passed = _PassedExports(f"{json_file}.unfinished", [model.identity(), model_files])
    results, notes = [], []
    for number, (export, runtime, environment, python) in enumerate(runs, start=1):
        name = " ".join(filter(None, (export.folder, runtime, environment)))
        logger.info("Comparing %d of %d: %s", number, len(runs), name)
        result = passed.result(name, export)
        if result is None or result["runtime"] != _version(export, runtime, python):
            result = _run(export, runtime, python, model.expected(export), options)
            result["environment"] = environment
        else:
            logger.info("  it passed in the interrupted run")
        passed.add(name, result)
        results.append(result)
        notes += [f"{export.folder}: the signature {name}" for name in result["not_asked"]]
        _log(result)
    for export in exports:
        missing = sorted(FORMAT_RUNTIMES[export.format].keys() - set(export.runtimes))
        notes += [f"{export.folder}: {name}, which is not installed" for name in missing]
    values = {
        "passed": not any(result["faults"] for result in results),
        "bert_tf_version": __version__,
        "tensorflow_version": tf.__version__,
        "command": ["python -m bert_tf certify", *changed_flags(options)],
        "model_dir": options.model_dir,
        "model_files": model_files,
        **model.counts(),
        "exports": results,
        "notes": [*dict.fromkeys(notes), *model.skipped],
    }
    values = plain(values)
    write_text(json_file, json.dumps(values, indent=2, ensure_ascii=False) + "\n")
    write_text(options.output_file, certificate_page(values))
    passed.remove()
    logger.info("Wrote %s and %s", options.output_file, json_file)
    failed = [result for result in results if result["faults"]]
    if failed:
        reasons = "; ".join(
            f"{result['export_dir']} ({result['runtime']}): {', '.join(result['faults'])}"
            for result in failed
        )
        raise CertificateError(
            f"{len(failed)} of {len(results)} exports differ from {options.model_dir}. {reasons}. "
            f"{_remedy(exports, values['model_files'], failed)} {options.output_file} has the details."
        )


def _remedy(
    exports: Sequence[Export], model_files: Mapping[str, Any], failed: Sequence[Mapping[str, Any]]
) -> str:
    """Return the probable reason of differences, by the files that the exports state and the faults.

    Args:
        failed: results with faults.
    """
    stated = [export for export in exports if export.source_files]
    for export in stated:
        if export.source_files != model_files:
            return (
                f"{export.folder} states that it is an export of other weights: "
                f"{', '.join(sorted(export.source_files or ()))}, but model_dir has "
                f"{', '.join(model_files)}. Name the model that was exported."
            )
    faults = [fault for result in failed for fault in result["faults"]]
    if any(fault.startswith("The runtime ") for fault in faults):
        return "Without an answer nothing is compared: copy that export whole, or export it again."
    if any(fault.startswith("max_seq_length is ") for fault in faults):
        return "Give the max_seq_length of the export."
    if any(fault.startswith(("the labels", "the ids ")) for fault in faults):
        return (
            "Labels and ids are exact in any precision: a file was changed. Export the model again."
        )
    exact = LIMITS["float32"].difference
    if all(
        result["precision"] == "float32" and result["largest_difference"] > exact
        for result in failed
    ):
        return (
            "In float32 only rounding differs: if the difference is far above the limit, a file was "
            "changed after the export. Export the model again, or set the limits, max_difference and "
            "max_flipped."
        )
    is_same = "The model is the one that was exported, so its"
    is_unknown = "If the model is the one that was exported, its"
    is_int8 = any(export.precision == INT8 for export in exports)
    of_int8 = " Calibrate int8 with texts like these first (docs/int8.md)." if is_int8 else ""
    return (
        f"{is_same if len(stated) == len(exports) else is_unknown} precision may be too low for these "
        "inputs: export it in another one, or set the limits, max_difference and max_flipped."
        f"{of_int8}"
    )


def _run(
    export: Export, runtime: str, python: str | None, expected: Expected, options: CertifyOptions
) -> dict[str, Any]:
    """Return the result of one runtime."""
    found, failures = Comparison(), []
    about: dict[str, Any] = {"runtime": runtime, "peak_memory": 0}
    try:
        with _process(export, runtime, python) as process:
            found = compare(process, export, expected, options.batch_size)
            about = {"runtime": process.version, "peak_memory": process.peak_memory()}
    except ValueError as error:  # the others are compared all the same
        failures.append(str(error))
    result = describe(export, expected, found, _limits(export, options))
    about["not_asked"] = found.not_asked
    return {**result, **about, "faults": failures + result["faults"]}


def _process(export: Export, runtime: str, python: str | None) -> Process:
    settings = {"architecture": export.head.architecture} if runtime == "huggingface" else {}
    return Process(runtime, export.path, python, **settings)


def _version(export: Export, runtime: str, python: str | None) -> str:
    with _process(export, runtime, python) as process:
        return process.version


class _PassedExports:
    """Results of exports that passed, in a file until the certificate is written.

    Args:
        file: exists if the last run was interrupted.
        key: facts that the results depend on, except the exports.
    """

    def __init__(self, file: str, key: Sequence[Any]):
        self._file, self._key = file, json.dumps(key)
        self._results: dict[str, Any] = {}
        if os.path.exists(file):
            values = read_json(file)
            self._results = values["results"] if values.get("key") == self._key else {}

    def result(self, name: str, export: Export) -> dict[str, Any] | None:
        """Return the result of an export whose files are unchanged, or None."""
        found = self._results.get(name)
        return found if found is not None and found["files"] == export.files() else None

    def add(self, name: str, result: Mapping[str, Any]) -> None:
        if not result["faults"]:
            self._results[name] = result
            values = {"key": self._key, "results": self._results}
            write_text(self._file, json.dumps(values, ensure_ascii=False))

    def remove(self) -> None:
        if os.path.exists(self._file):
            os.remove(self._file)


def _runs(export: Export, options: CertifyOptions) -> Iterator[tuple[Export, str, str, str | None]]:
    """Yield (export, runtime, name of the environment, interpreter) of each run."""
    for runtime in export.runtimes:
        others = options.environments if runtime == "saved_model" else {"": None}
        for name, python in others.items():
            yield export, runtime, name, python


class _Model:
    """The model, and its answers for each type of export."""

    def __init__(self, options: CertifyOptions):
        self._options = options
        self._trained = load_model(options.model_dir)
        self._checkpoint: PretrainedCheckpoint = read_checkpoint(options.model_dir)
        self._expected: dict[str, Expected] = {}
        self.skipped: list[str] = []

    def files(self) -> list[str]:
        """Return the paths of the weights."""
        return files_of_checkpoint(self._checkpoint.source)

    def identity(self) -> list[Any]:
        """Return the facts that the answers depend on, except the weights: plain values."""
        items = {name: repr(expected.items) for name, expected in self._expected.items()}
        flags = changed_flags(self._options, ("export_dir",))
        return [__version__, tf.__version__, flags, items]

    def counts(self) -> dict[str, int]:
        """Return the numbers of inputs and variants of the first export."""
        first = next(iter(self._expected.values()))
        return {"inputs": first.num_own, "variants": len(first.items) - first.num_own}

    def expected(self, export: Export) -> Expected:
        """Return the answers for the head of an export.

        Raises:
            ValueError: the export is of another model, or no input is valid.
        """
        self._check(export)
        name = export.head.name
        if name not in self._expected:
            length = self._options.max_seq_length
            if length is None and not export.head.task:
                length = self._checkpoint.longest_input(export.config)
            trained = with_settings(self._trained, max_seq_length=length)
            self._expected[name] = self._answers(trained, name)
        return self._expected[name]

    def _check(self, export: Export) -> None:
        """Raise unless an export has the architecture and the task of the model."""
        config, task = self._trained.model.config, self._trained.task
        names = [each.name for each in fields(config) if each.compare]
        facts = [(name, getattr(export.config, name), getattr(config, name)) for name in names]
        if export.head.task and export.head.name != "pretraining":
            facts.append(("task", export.head.name, "none" if task is None else task.name))
            labels = getattr(task, "labels", ())
            # A number has no label here, and LABEL_0 at Hugging Face. Another order is a fault.
            is_number = not labels and len(export.labels) <= 1
            if export.head.has_labels and not is_number and set(export.labels) != set(labels):
                facts.append(("list of labels", ", ".join(export.labels), ", ".join(labels)))
        for name, found, wanted in facts:
            if found != wanted:
                raise ValueError(
                    f"{export.folder} is an export of another model: its {name} is {found}, but that "
                    f"of model_dir={self._options.model_dir} is {wanted}. Name the model that was "
                    "exported."
                )

    def _answers(self, trained: TrainedModel, name: str) -> Expected:
        options = self._options
        model = _text_model(trained, name, options)
        items: list[Any] = []
        if options.is_typed:
            print(HOW_TO_TYPE, file=sys.stderr)
        for found in read_inputs(
            options.files, options.layout, model.fields, model.optional_fields
        ):
            try:
                item = found.item(model)
                model.prepare(item)
                items.append(item)
            except ValueError as error:
                self.skipped.append(f"{found.place}: {error}")
        if not items:
            first = f": {self.skipped[0]}" if self.skipped else ""
            raise ValueError(
                f"input_file={options.input_file or STANDARD_INPUT} has no valid input for {name}"
                f"{first}. Give a file with one input per line."
            )
        has_pooler = "bert/pooler/dense/kernel" in self._checkpoint.arrays
        length = trained.max_seq_length
        more = variants(model, items[:_VARIED], length) if options.variants else []
        omit = () if has_pooler else ("pooled_output",)  # it would be random
        return Expected(trained, model, [*items, *more], len(items), omit)


# Task of an export -> options that only its answers depend on.
_USED = {
    "encoder": ("pooling", "normalize"),
    "embeddings": ("as_query",),
    "question_answering": ("null_score_diff_threshold", "n_best_size", "max_answer_length"),
}


def _check_used(options: CertifyOptions, exports: Sequence[Export]) -> None:
    """Raise ValueError for an option that changes no answer of the exports."""
    if options.environment and not any("saved_model" in each.runtimes for each in exports):
        raise ValueError(
            f"environment is {options.environment}, but its interpreters answer with SavedModels, and "
            f"export_dir={options.export_dir} has none. Omit it."
        )
    tasks = {export.head.name for export in exports}
    for task, names in _USED.items():
        given = [name for name in names if getattr(options, name) != getattr(CertifyOptions, name)]
        if given and task not in tasks:
            raise ValueError(
                f"{given[0]} is {getattr(options, given[0])}, but only answers of an export for {task} "
                f"depend on it. The exports in export_dir={options.export_dir} are for "
                f"{', '.join(sorted(tasks))}. Omit {given[0]}."
            )


def _check_input(options: CertifyOptions, exports: Sequence[Export]) -> None:
    """Raise ValueError if an input file is missing, or can be read only once but is needed twice."""
    heads = sorted({export.head.name for export in exports})
    for file in options.files:
        if len(heads) > 1 and (file == STANDARD_INPUT or is_stream(file)):
            raise ValueError(
                f"input_file={file} can be read only once, but the exports need it for each of "
                f"{' and '.join(heads)}. Give a file, or certify these exports one by one."
            )


def _text_model(trained: TrainedModel, name: str, options: CertifyOptions) -> TextModel:
    answers = _USED["question_answering"]
    predictor = Predictor(trained, **{each: getattr(options, each) for each in answers})
    if name == "encoder":
        alone = Predictor(replace(trained, task=None))  # exported without prefixes and projection
        return alone.encoder(options.pooling, options.normalize)
    if name == "embeddings":
        return predictor.encoder(as_query=options.as_query)
    return predictor.mask_filler if name in ("masked_lm", "pretraining") else predictor.text_model


def _limits(export: Export, options: CertifyOptions) -> Limits:
    usual = LIMITS.get(export.precision, LIMITS["float32"])
    return Limits(
        usual.difference if options.max_difference is None else options.max_difference,
        usual.flipped if options.max_flipped is None else options.max_flipped,
    )


def _log(result: Mapping[str, Any]) -> None:
    difference = "nothing compared"
    if result["signatures"]:
        difference = (
            f"largest difference {result['largest_difference']:.3g} "
            f"of at most {result['max_difference']:g}"
        )
    runtime = " ".join(filter(None, (result["runtime"], result["environment"])))
    verdict = f"failed ({'; '.join(result['faults'])})" if result["faults"] else "passed"
    logger.info("%s, %s: %s, %s", result["export_dir"], runtime, verdict, difference)
