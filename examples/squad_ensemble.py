"""Answer SQuAD with several runs of run_squad together: their n-best lists vote.

    python examples/squad_ensemble.py --predict_file=dev-v1.1.json --output_dir=vote run_1 run_2

The probability of a text is its mean over the runs, and 0 in a run that does not list it. For SQuAD 2.0
add --version_2_with_negative; the odds of no answer are log(mean probability of no answer) - log(that of
the best answer), so a single run keeps its own answers. No model is loaded, and the runs may differ in
vocabulary, length and size.

Source: Devlin et al. 2019, section 4.2, an ensemble of 7 models.
"""

import argparse
import json
import math
import sys
from collections import Counter
from pathlib import Path

from bert_tf.data.question_answering import read_squad
from bert_tf.tasks.squad_metrics import evaluate_v1, evaluate_v2


def vote(lists):
    """Return [(text, mean probability)], the best first, from the n-best list of each run."""
    totals = Counter()
    for entries in lists:
        for entry in entries:
            totals[entry["text"]] += entry["probability"] / len(lists)
    return totals.most_common()


def odds_of_no_answer(votes):
    """Return the best text that is not empty, and the odds of the empty one."""
    best, probability = next(((t, p) for t, p in votes if t), ("", 0.0))
    null, best_log = (math.log(max(p, sys.float_info.min)) for p in (dict(votes)[""], probability))
    return best, null - best_log


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+", help="--output_dir of a run on the same --predict_file")
    parser.add_argument("--predict_file", required=True)
    parser.add_argument("--output_dir", required=True, help="new folder")
    parser.add_argument("--version_2_with_negative", action="store_true")
    parser.add_argument("--null_score_diff_threshold", type=float, default=0.0)
    arguments = parser.parse_args()
    runs = [
        json.loads(Path(run, "nbest_predictions.json").read_text("utf-8")) for run in arguments.runs
    ]
    examples = read_squad(arguments.predict_file)
    votes = {e.qas_id: vote([run[e.qas_id] for run in runs]) for e in examples}
    answers = {e.qas_id: [answer.text for answer in e.answers or ()] for e in examples}
    files = {"predictions.json": {name: texts[0][0] for name, texts in votes.items()}}
    if arguments.version_2_with_negative:
        pairs = {name: odds_of_no_answer(texts) for name, texts in votes.items()}
        best, odds = ({name: pair[n] for name, pair in pairs.items()} for n in (0, 1))
        threshold = arguments.null_score_diff_threshold
        chosen = {name: "" if odds[name] > threshold else best[name] for name in votes}
        files = {"predictions.json": chosen, "null_odds.json": odds}
    folder = Path(arguments.output_dir)
    folder.mkdir(parents=True)  # an existing folder may be that of a run
    for file, values in files.items():
        (folder / file).write_text(json.dumps(values, indent=4) + "\n", "utf-8")
    if arguments.version_2_with_negative:
        metrics = evaluate_v2(answers, chosen, best, odds)
    else:
        metrics = evaluate_v1(answers, files["predictions.json"])
    for name, value in metrics.items():
        print(f"{name} = {value}")
