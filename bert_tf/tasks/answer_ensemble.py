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

from bert_tf.limits import MAX_DOCUMENT, read_json
from bert_tf.tasks.answer_decoding import AnswerSettings, Candidate, Prediction

NBEST_FILE = "nbest_predictions.json"


NBest = Mapping[str, Sequence[Mapping[str, Any]]]  # question -> entries, best first


def read_nbest(path: str, names: Sequence[str], version_2_with_negative: bool) -> NBest:
    """Read the n-best answers of a run.

    Args:
        path: the run's --output_dir, or the file.
        names: required questions.

    Raises:
        ValueError: the file is missing, lacks a question, or was made for another version.
    """
    file = os.path.join(path, NBEST_FILE) if tf.io.gfile.isdir(path) else path
    if not tf.io.gfile.exists(file):
        raise ValueError(f"predictions: {file} was not found. Name output folders of do_predict.")
    nbest = read_json(file, MAX_DOCUMENT)
    if missing := [name for name in names if not nbest.get(name)]:
        raise ValueError(
            f"{file}: no answer to question {missing[0]}. Predict the same predict_file."
        )
    # Only a run with version_2_with_negative lists no answer, "", for each question.
    has_none = all(any(not entry["text"] for entry in nbest[name]) for name in names)
    if has_none != version_2_with_negative:
        raise ValueError(
            f"{file} was made with version_2_with_negative={has_none}. Set the same here."
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
