"""Several runs that answer together: the mean of the probabilities in their nbest_predictions.json.

A text that a run does not name has probability 0 in it. Runs may differ in vocabulary, length and
windows, but not in the questions.

Source: Devlin et al. 2019, table 2, reports ensembles of 7 systems without the method of voting.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import tensorflow as tf

from bert_tf.interop.checkpoint import read_json
from bert_tf.limits import MAX_DOCUMENT
from bert_tf.tasks.answer_decoding import AnswerSettings, Candidate, Prediction

NBEST_FILE = "nbest_predictions.json"


NBest = Mapping[str, Sequence[Mapping[str, Any]]]  # question -> entries, best first


def read_nbest(path: str, names: Sequence[str], version_2_with_negative: bool) -> NBest:
    """Read the n-best answers of a run.

    Args:
        path: the run's --output_dir, or the file.
        names: required questions.

    Raises:
        ValueError: the file is missing or damaged, lacks a question, or was made for another version.
    """
    file = os.path.join(path, NBEST_FILE) if tf.io.gfile.isdir(path) else path
    if not tf.io.gfile.exists(file):
        raise ValueError(
            f"`predictions`: {file} was not found. Name the output_dir of runs with do_predict."
        )
    nbest = read_json(file, MAX_DOCUMENT)
    for name in names:
        entries = nbest.get(name)
        if not isinstance(entries, list) or not entries:
            raise ValueError(
                f"{file}: the answer to question {name} is missing. Predict the same predict_file with "
                "every run."
            )
        for entry in entries:
            if not isinstance(entry, dict) or not {"text", "probability"} <= set(entry):
                raise ValueError(
                    f'{file}: an answer to question {name} lacks "text" or "probability".'
                )
        if version_2_with_negative and all(entry["text"] for entry in entries):
            raise ValueError(
                f"{file}: question {name} has no probability of no answer, because the run did not set "
                "version_2_with_negative."
            )
    if not version_2_with_negative and all(
        any(not entry["text"] for entry in nbest[name]) for name in names
    ):
        raise ValueError(
            f"{file}: every question has a probability of no answer, because the run set "
            "version_2_with_negative. Set it here too."
        )
    return nbest


def combine(
    runs: Sequence[NBest], names: Sequence[str], settings: AnswerSettings
) -> dict[str, Prediction]:
    """Return question -> joint answer of the runs.

    Odds of no answer are log(probability of no answer) - log(probability of the best answer), as in
    each run. The logits of an entry are means over the runs that list it.
    """
    return {name: _vote([run[name] for run in runs], settings) for name in names}


def _vote(runs: Sequence[Sequence[Mapping[str, Any]]], settings: AnswerSettings) -> Prediction:
    entries: dict[str, list[Mapping[str, Any]]] = {}
    for run in runs:
        for entry in run:
            entries.setdefault(entry["text"], []).append(entry)
    candidates = [
        Candidate(
            text,
            fmean(entry.get("start_logit", 0.0) for entry in same),
            fmean(entry.get("end_logit", 0.0) for entry in same),
            sum(entry["probability"] for entry in same) / len(runs),
        )
        for text, same in entries.items()
    ]
    candidates.sort(key=lambda candidate: -candidate.probability)
    nbest = candidates[: settings.n_best_size]
    if not settings.version_2_with_negative:
        return Prediction(nbest[0].text, tuple(nbest), nbest[0].text)
    (null,) = (candidate for candidate in candidates if not candidate.text)
    if null not in nbest:
        nbest.append(null)
    best = next((candidate for candidate in candidates if candidate.text), Candidate("", 0, 0, 0.0))
    odds = _log(null.probability) - _log(best.probability)
    is_null = odds > settings.null_score_diff_threshold
    return Prediction("" if is_null else best.text, tuple(nbest), best.text, odds)


def _log(probability: float) -> float:
    return math.log(max(probability, sys.float_info.min))
