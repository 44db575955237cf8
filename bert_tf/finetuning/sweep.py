"""--seeds and --grid: training of several models, of which the best is kept.

    output_dir/
      runs/seed-12345/        eval_results.txt, metrics.jsonl, result.json of each run
      runs.tsv                a line per run
      runs_summary.tsv        mean, standard deviation, min and max of each metric, by setting
      model.ckpt-N, ...       the best model so far, like that of a single run

Complete runs are not repeated, so the same command resumes an interrupted one. A run whose loss becomes
infinite or NaN has failed: it has no metrics, and the others are made.
"""

from __future__ import annotations

import gc
import itertools
import json
import logging
import math
import os
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, fields, replace
from typing import Any

import keras
import tensorflow as tf

from bert_tf.data.files import whole_file, write_text
from bert_tf.finetuning.classification_options import ClassifierOptions
from bert_tf.finetuning.distillation_options import TeacherOptions
from bert_tf.finetuning.output_folder import check_output_folder
from bert_tf.finetuning.sweep_plan import PlannedRun, plan
from bert_tf.interop.checkpoint import read_json, typed
from bert_tf.metrics.basic import score
from bert_tf.model_files import BESIDE_CHECKPOINTS, read_task
from bert_tf.report.best_run import BEST_RUN_FILE, best_of_runs, read_best_run
from bert_tf.report.charts import table
from bert_tf.report.model_card import CARD_FILE
from bert_tf.report.page import Section
from bert_tf.training import checkpoints
from bert_tf.training.strategy import is_multi_worker

logger = logging.getLogger(__name__)

RunOnce = Callable[..., dict[str, float]]

# Flags that may differ between two commands on the same runs.
_SWEEP_ONLY = (
    *("output_dir", "do_predict", "predict_file", "predict_batch_size", "report", "seeds", "grid"),
    *("feature_cache_dir", "num_workers", "num_threads", "license"),
)


def run_all(
    options: ClassifierOptions, devices: tf.distribute.Strategy, run_once: RunOnce
) -> dict[str, float]:
    """Make the missing runs, evaluate and predict with the best model, and return its results.

    Args:
        devices: result of `options.make_strategy()`.
        run_once: (options, devices, sections for the report, options for its command) -> results.

    Raises:
        ValueError: --output_dir contains another model, runs with other flags or a best run that is not
            planned, several processes train together, or no run has a finite metric to choose by.
    """
    if is_multi_worker(devices):
        raise ValueError(
            "`seeds` and `grid` train one model after the other in one process, but TF_CONFIG names "
            "several processes. Start each run separately, with `seed`."
        )
    runs = plan(options)
    _check_no_other_model(options, runs)
    _check_best_is_planned(options.output_dir, runs)
    check_output_folder(options, dict.fromkeys(("labels.txt", *BESIDE_CHECKPOINTS), ""))
    results: dict[str, dict[str, float]] = {}
    for number, run in enumerate(runs, start=1):
        completed = _completed(run)
        if completed is None:
            logger.info("***** Run %d of %d: %s *****", number, len(runs), run.name)
            completed = _results_of(run, devices, run_once)
            note = {"results": completed, "flags": _flags(run.options)}
            write_text(run.result_file, json.dumps(note, indent=2) + "\n")
            keras.backend.clear_session()
            gc.collect()
        results[run.name] = completed
        _keep_if_best(run, completed, options.output_dir)
    best = read_best_run(options.output_dir)
    _write_tables(runs, results, best.get("name", ""), options.output_dir)
    if not best:
        raise ValueError(
            f"None of the {len(runs)} runs in {options.output_dir} can be the best one: each has failed "
            "or has no finite metric; see runs.tsv. Use another output_dir with a lower learning_rate, "
            "or with other data."
        )
    (chosen,) = (run for run in runs if run.name == best["name"])
    _note_runs(chosen, best, runs, results, options.output_dir)
    about = best_of_runs(options.output_dir, int(results[chosen.name]["global_step"]))
    logger.info("%s", about)
    without_teacher: dict[str, Any] = {each.name: each.default for each in fields(TeacherOptions)}
    final = replace(
        chosen.options,
        **without_teacher,
        unlabelled_file=None,
        do_train=False,
        stop_step=None,
        do_predict=options.do_predict,
        predict_file=options.predict_file,
        report=options.report,
        output_dir=options.output_dir,
        init_checkpoint=None,
        init_layers=None,
        init_optimizer=False,
    )
    section = Section(
        f"Best of {len(runs)} runs",
        [table(*_summary(runs, results)), table(*_lines(runs, results, best["name"]))],
        f"{about} Below: mean and standard deviation by setting, then each run.",
        wide=True,
    )
    return run_once(final, devices, [section], options)


def _flags(options: ClassifierOptions) -> dict[str, Any]:
    return {name: v for name, v in asdict(options).items() if name not in _SWEEP_ONLY}


def _results_of(
    run: PlannedRun, devices: tf.distribute.Strategy, run_once: RunOnce
) -> dict[str, float]:
    """Make a run and return its results, {} if it fails because its loss is not finite."""
    try:
        return run_once(run.options, devices)
    except FloatingPointError as error:
        logger.warning(
            "%s has failed, and the other runs are made without it. To make it again, remove %s. %s",
            *(run.name, run.result_file, error),
        )
        return {}


def _completed(run: PlannedRun) -> dict[str, float] | None:
    """Return the results of a complete run, {} if it has failed, None if it is not complete."""
    if not tf.io.gfile.exists(run.result_file):
        return None
    note = read_json(run.result_file)
    flags, results = (typed(note, key, dict, run.result_file) for key in ("flags", "results"))
    if flags is None or results is None:
        raise ValueError(
            f"{run.result_file} is damaged: it must have `flags` and `results`. Remove it, and the run "
            "is made again."
        )
    now = json.loads(json.dumps(_flags(run.options)))
    # A flag that is newer than the note had its default.
    defaults = {
        field.name: field.default for field in fields(run.options) if field.name not in flags
    }
    flags = {**defaults, **flags}
    differing = [name for name in now if flags.get(name) != now[name]]
    if differing:
        listed = ", ".join(f"`{n}` was {flags.get(n)}, is {now[n]}" for n in differing)
        raise ValueError(
            f"{run.result_file} is from a run with other flags: {listed}. Use another output_dir, or "
            "remove its folder runs."
        )
    logger.info("%s %s", run.name, "is complete" if results else "has failed before")
    return results


def _check_no_other_model(options: ClassifierOptions, runs: Sequence[PlannedRun]) -> None:
    if any(tf.io.gfile.exists(run.result_file) for run in runs):
        return  # the model may be one that was moved when the process was killed
    if checkpoints.latest_checkpoint(options.output_dir) and not read_best_run(options.output_dir):
        raise ValueError(
            f"output_dir={options.output_dir} contains a model of a single run, which `seeds` and "
            "`grid` would replace. Use another output_dir."
        )


def _check_best_is_planned(output_dir: str, runs: Sequence[PlannedRun]) -> None:
    best = read_best_run(output_dir).get("name")
    if best is not None and best not in [run.name for run in runs]:
        raise ValueError(
            f"output_dir={output_dir} contains the model of {best}, the best run so far, but `seed`, "
            "`seeds` and `grid` do not plan that run. Use another output_dir, or a plan with that run."
        )


def _keep_if_best(run: PlannedRun, results: Mapping[str, float], output_dir: str) -> None:
    """Move the run's model to `output_dir` if it is the best so far, and remove it from its own folder.

    The folder `best` of --evaluate_steps stays in place. The file `checkpoint` is removed first: a run
    without it was compared before, even if the process was killed.
    """
    folder = run.options.output_dir
    if results and checkpoints.latest_checkpoint(folder) is not None:
        _move_if_best(run, results, output_dir)
    for name in sorted(tf.io.gfile.listdir(folder)):  # begins with `checkpoint`
        if name.startswith("model.ckpt-") or name == "checkpoint":
            tf.io.gfile.remove(os.path.join(folder, name))


def _move_if_best(run: PlannedRun, results: Mapping[str, float], output_dir: str) -> None:
    """Copy the run's model to `output_dir` if it is the best so far, and its metric is finite.

    The note is written last: after a kill, the model still exists and is compared again.
    """
    folder = run.options.output_dir
    metric = run.options.best_metric or read_task(folder).best_metric
    reached = score(metric, results[metric])
    best = read_best_run(output_dir)
    if reached == -math.inf:
        logger.warning("%s cannot be the best run: its %s is %s", run.name, metric, results[metric])
        return
    if best and best["name"] != run.name and reached <= best["score"]:
        return
    for name in tf.io.gfile.listdir(output_dir):
        if name.startswith("model.ckpt-"):
            tf.io.gfile.remove(os.path.join(output_dir, name))
    for name in sorted(tf.io.gfile.listdir(folder)):
        source, target = (os.path.join(place, name) for place in (folder, output_dir))
        is_own = name.startswith(("result.json", "eval_results.txt", CARD_FILE))
        if not is_own and not tf.io.gfile.isdir(source):
            with whole_file(target) as temporary:
                tf.io.gfile.copy(source, temporary, overwrite=True)
    note = json.dumps({"name": run.name, "score": reached})
    write_text(os.path.join(output_dir, BEST_RUN_FILE), note + "\n")


def _metric_names(results: Iterable[Mapping[str, float]]) -> list[str]:
    names = dict.fromkeys(name for values in results for name in values)
    return sorted(name for name in names if name.startswith("eval_"))


def _lines(
    runs: Sequence[PlannedRun], results: Mapping[str, Mapping[str, float]], best: str
) -> tuple[list[str], list[list[Any]]]:
    """Return header and rows: one row per run."""
    metrics = _metric_names(results.values())
    settings = list(runs[0].setting)
    rows = [
        [run.name, *(run.setting[n] for n in settings), run.options.seed]
        + [results[run.name].get(name, math.nan) for name in metrics]
        + ["best" if run.name == best else "" if results[run.name] else "failed"]
        for run in runs
    ]
    return ["run", *settings, "seed", *metrics, ""], rows


def _summary(
    runs: Sequence[PlannedRun], results: Mapping[str, Mapping[str, float]]
) -> tuple[list[str], list[list[Any]]]:
    """Return header and rows: each metric of each setting over the seeds. `std` is that of a sample.

    All four numbers are NaN if a value is not finite.
    """
    rows = []
    metrics = _metric_names(results.values())
    for setting, group in itertools.groupby(runs, key=lambda run: run.setting):
        names = [run.name for run in group]
        for metric in metrics:
            values = [results[name].get(metric, math.nan) for name in names]
            summary = [math.nan] * 4
            if all(map(math.isfinite, values)):
                deviation = statistics.stdev(values) if len(values) > 1 else math.nan
                summary = [statistics.fmean(values), deviation, min(values), max(values)]
            rows.append([*setting.values(), metric, len(values), *summary])
    return [*runs[0].setting, "metric", "runs", "mean", "std", "min", "max"], rows


def _note_runs(
    chosen: PlannedRun,
    best: Mapping[str, Any],
    runs: Sequence[PlannedRun],
    results: Mapping[str, Mapping[str, float]],
    output_dir: str,
) -> None:
    """Add the number of runs, and the means of its setting, to the note on the best run."""
    seeds = [run for run in runs if run.setting == chosen.setting]
    header, rows = _summary(seeds, results)
    columns = [header.index(name) for name in ("metric", "mean", "std")]
    note = {
        **best,
        "step": results[chosen.name]["global_step"],
        "runs": len(runs),
        "seeds": len(seeds),
        "metric": chosen.options.best_metric or read_task(output_dir).best_metric,
        "mean_std": {
            name: mean_std for name, *mean_std in ([row[c] for c in columns] for row in rows)
        },
    }
    write_text(os.path.join(output_dir, BEST_RUN_FILE), json.dumps(note, indent=2) + "\n")


def _write_tables(
    runs: Sequence[PlannedRun],
    results: Mapping[str, Mapping[str, float]],
    best: str,
    output_dir: str,
) -> None:
    header, rows = _summary(runs, results)
    for row in rows:
        logger.info("  %s", "  ".join(f"{n} {v}" for n, v in zip(header, row, strict=True)))
    for name, (head, lines) in (
        ("runs_summary.tsv", (header, rows)),
        ("runs.tsv", _lines(runs, results, best)),
    ):
        text = "".join("\t".join(map(str, line)) + "\n" for line in [head, *lines])
        write_text(os.path.join(output_dir, name), text)
