"""run_squad: answers and odds, odd questions, and bad input."""

import json
from pathlib import Path

import pytest
from helpers import read_results, refused, write
from models import DATA, copy_of, golden, options, train, with_values

from bert_tf.tasks.run_squad import run_squad

TEST, DEV = DATA / "squad/test.json", DATA / "squad/dev.json"
WITHOUT_TRAINING = {"do_train": False, "init_checkpoint": str(golden("squad"))}


def answers_in(folder):
    return json.loads((Path(folder) / "predictions.json").read_text())


def nbest_in(folder):
    return json.loads((Path(folder) / "nbest_predictions.json").read_text())


# ------------------------------------------------------------------------------------------- answers


def test_predictions_have_the_order_of_the_questions_and_are_the_first_of_the_n_best():
    found = answers_in(golden("squad"))
    assert list(found) == [f"q{number}" for number in range(30)]
    for name, entries in nbest_in(golden("squad")).items():
        assert entries[0]["text"] == found[name]
        assert sum(entry["probability"] for entry in entries) == pytest.approx(1.0)
        assert len({entry["text"] for entry in entries}) == len(entries) <= 5
    text = (golden("squad") / "predictions.json").read_text()
    assert text.startswith('{\n    "q0": "') and text.endswith('"\n}\n')


def test_the_best_threshold_reaches_what_it_promises(tmp_path, eagerly):
    before, given = read_results(golden("squad2")), {"init_checkpoint": str(golden("squad2"))}
    given["null_score_diff_threshold"] = before["best_exact_thresh"] + 1e-4
    results = train("squad2", tmp_path, do_train=False, **given)
    assert results["exact"] == results["best_exact"] == pytest.approx(before["best_exact"])


def test_a_test_set_is_answered_without_metrics(tmp_path, eagerly):
    given = options("squad", tmp_path, predict_file=str(TEST), **WITHOUT_TRAINING)
    assert run_squad(given) == {}
    assert len(answers_in(tmp_path)) == len(nbest_in(tmp_path)) == 9
    training = {"do_train": True, "train_file": f"{DATA}/squad/train.json"}
    for name, changes in (("do_eval", {"do_eval": True}), ("evaluate_steps", training)):
        with refused(name):
            run_squad(with_values(given, **{**changes, name: 1}))


def test_a_model_trained_with_characters_cuts_its_answers_by_characters(tmp_path, eagerly):
    task_file = copy_of("squad", tmp_path / "model") / "task.json"
    task = json.loads(task_file.read_text())
    assert task["answer_spans"] == "words"
    write(task_file, json.dumps(task | {"answer_spans": "characters"}))
    values = json.loads(TEST.read_text())
    for paragraph in values["data"][0]["paragraphs"]:
        paragraph["context"] = paragraph["context"].replace(" ", "\u00a0")  # one word
    whole = {paragraph["context"] for paragraph in values["data"][0]["paragraphs"]}
    file = write(tmp_path / "one_word.json", json.dumps(values))
    given = {"do_train": False, "predict_file": file}
    train("squad", tmp_path / "model", **given)
    assert not whole & set(answers_in(tmp_path / "model").values())
    train("squad", tmp_path / "model", **given, answer_spans="words")
    assert whole == set(answers_in(tmp_path / "model").values())


# ------------------------------------------------------------------------------------- odd questions


@pytest.mark.parametrize("version_2", [False, True])
def test_odd_questions_to_predict_are_answered(tmp_path, version_2, eagerly):
    paragraphs = [
        {"context": " \n", "qas": [{"id": "empty", "question": "where"}]},
        {"context": "The cat.", "qas": [{"id": "silent", "question": ""}]},
        {"context": "The owl.", "qas": [{"id": "none", "question": "?", "is_impossible": True}]},
    ]
    file = write(tmp_path / "odd.json", json.dumps({"data": [{"paragraphs": paragraphs}]}))
    given = {"predict_file": file, "version_2_with_negative": version_2}
    train("squad", tmp_path / "out", **given, **WITHOUT_TRAINING)
    found = answers_in(tmp_path / "out")
    assert found["empty"] == ("" if version_2 else "empty")
    assert set(found) == {"empty", "silent", "none"}


# ------------------------------------------------------------------------------------------- bad input


def test_questions_that_cannot_be_evaluated_or_answered_are_refused(tmp_path):
    data = json.loads((DATA / "squad/dev.json").read_text())
    paragraphs = [paragraph for each in data["data"] for paragraph in each["paragraphs"]]
    paragraphs[0]["qas"][0].pop("answers")
    unknown = write(tmp_path / "unknown.json", json.dumps(data))
    for paragraph in paragraphs:
        paragraph["context"], paragraph["qas"] = "", [{"id": "0", "question": "who ?"}]
    empty = write(tmp_path / "empty.json", json.dumps({"data": [{"paragraphs": paragraphs[:1]}]}))
    for changes, name in (
        ({"predict_file": unknown, "do_eval": True}, "do_eval"),
        ({"predict_file": empty}, "empty.json"),
    ):
        given = options("squad", tmp_path / "out", **WITHOUT_TRAINING | changes)
        with refused(name):
            run_squad(given)


def test_what_cannot_be_trained_is_refused_before_anything_is_written(tmp_path):
    for changes, name in (
        ({"train_batch_size": 161, "num_train_epochs": 0.8}, "train_batch_size"),
        ({"max_seq_length": 32}, "max_seq_length"),
        ({"max_query_length": 28}, "max_query_length"),
        ({"doc_stride": 0}, "doc_stride"),
        ({"train_file": "/nowhere/train.json"}, "/nowhere/train.json"),
        ({"init_checkpoint": "/nowhere/bert_model.ckpt"}, "/nowhere"),
        ({"init_checkpoint": None}, "init_checkpoint"),
        ({"do_train": False}, "do_train"),
        ({"train_file": None}, "train_file"),
        ({"do_predict": True, "predict_file": None}, "predict_file"),
        ({"do_eval": True, "predict_file": None}, "predict_file"),
        ({"null_score_diff_threshold": float("nan")}, "null_score_diff_threshold"),
    ):
        with refused(name):
            train("squad", tmp_path / "output", **{"do_predict": False, **changes})
    assert not (tmp_path / "output").exists()
