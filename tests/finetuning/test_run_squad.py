"""run_squad: fine-tune, answer, score, combine, and the files it promises."""

import dataclasses
import json
import shutil
from pathlib import Path

import pytest
from absl import flags
from tiny_runs import (
    read_results,
)
from tiny_squad import squad_options

from bert_tf import cli
from bert_tf.finetuning.question_answering import (
    SquadOptions,
    run_squad,
)

FILES = ("predictions.json", "nbest_predictions.json")


@pytest.fixture
def training(pretrained, squad_sets, tmp_path):
    """Options of a short training into a new folder."""
    return squad_options(
        tmp_path / "output",
        init_checkpoint=str(pretrained),
        do_train=True,
        train_file=str(squad_sets / "train.json"),
        num_train_epochs=0.8,
    )


def answers_in(folder):
    return {name: json.loads((Path(folder) / name).read_text()) for name in FILES}


# ------------------------------------------------------------------------------------ what it leaves


def test_it_leaves_records_checkpoint_answers_and_all_that_the_model_needs(
    squad_model, squad2_model
):
    files = {path.name for path in squad_model.iterdir()}
    assert files == {
        *("bert_config.json", "vocab.txt", "tokenizer_config.json", "task.json", "checkpoint"),
        *("train.tf_record", "eval.tf_record", "metrics.jsonl", "eval_results.txt"),
        *("train.tf_record.json", "eval.tf_record.json"),
        *("predictions.json", "nbest_predictions.json", "training.json", "best", "report.html"),
        "README.md",
        "model_card_facts.json",
        *("model.ckpt-100.index", "model.ckpt-100.data-00000-of-00001"),
    }
    without_evaluations = files - {"best"}
    assert {p.name for p in squad2_model.iterdir()} - {"null_odds.json"} == without_evaluations


def test_questions_that_can_be_answered_are_answered(squad_model):
    results = read_results(squad_model)
    assert list(results) == ["exact_match", "f1", "global_step"]
    assert results["global_step"] == 100
    assert results["exact_match"] > 80


def test_predictions_are_in_the_order_of_the_questions_and_the_first_of_the_n_best(squad_model):
    found = answers_in(squad_model)
    assert list(found["predictions.json"]) == [f"q{number}" for number in range(30)]
    for name, entries in found["nbest_predictions.json"].items():
        assert entries[0]["text"] == found["predictions.json"][name]
        assert sum(entry["probability"] for entry in entries) == pytest.approx(1.0)
        assert len({entry["text"] for entry in entries}) == len(entries) <= 20
    text = (squad_model / "predictions.json").read_text()
    assert text.startswith('{\n    "q0": "') and text.endswith('"\n}\n')


def test_version_2_writes_odds_and_the_best_threshold(squad2_model):
    results = read_results(squad2_model)
    assert {"exact", "f1", "HasAns_f1", "NoAns_exact", "best_f1", "best_exact_thresh"} <= set(
        results
    )
    assert results["best_exact"] >= results["exact"] > 40
    odds = json.loads((squad2_model / "null_odds.json").read_text())
    predictions = answers_in(squad2_model)["predictions.json"]
    assert all((text == "") == (odds[name] > 0) for name, text in predictions.items())


def test_the_best_threshold_reaches_what_it_promises(squad2_model, squad_sets, tmp_path):
    before = read_results(squad2_model)
    results = run_squad(
        squad_options(
            tmp_path,
            init_checkpoint=str(squad2_model),
            do_predict=True,
            predict_file=str(squad_sets / "dev2.json"),
            version_2_with_negative=True,
            null_score_diff_threshold=before["best_exact_thresh"] + 1e-4,
        )
    )
    assert results["exact"] == pytest.approx(before["best_exact"])
    assert results["best_exact"] == pytest.approx(before["best_exact"])


def test_the_model_is_evaluated_while_it_trains(squad_model):
    lines = [json.loads(line) for line in (squad_model / "metrics.jsonl").read_text().splitlines()]
    first, last = [line for line in lines if "exact_match" in line]
    assert first["step"] == 60 < last["step"] == read_results(squad_model)["global_step"]
    assert first["f1"] > 0 and last["f1"] == read_results(squad_model)["f1"]


# -------------------------------------------------------------------------- start, stop and afterwards


def test_answering_afterwards_needs_only_the_questions_and_the_folder(
    squad_model, squad_sets, tmp_path
):
    options = SquadOptions(
        output_dir=str(tmp_path),
        init_checkpoint=str(squad_model),
        max_query_length=8,
        doc_stride=8,
        do_eval=True,
        predict_file=str(squad_sets / "dev.json"),
    )
    assert run_squad(options)["exact_match"] == read_results(squad_model)["exact_match"]
    assert answers_in(tmp_path)["predictions.json"] == answers_in(squad_model)["predictions.json"]


def test_flat_rows_of_datasets_have_the_answers_of_squad(squad_model, squad_sets, tmp_path):
    rows = []
    for paragraph in json.loads((squad_sets / "dev.json").read_text())["data"][0]["paragraphs"]:
        for qa in paragraph["qas"]:
            answers = {
                name: [answer[name] for answer in qa["answers"]]
                for name in ("text", "answer_start")
            }
            rows.append({**qa, "context": paragraph["context"], "answers": answers})
    (tmp_path / "flat.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = []
    for file in (squad_sets / "dev.json", tmp_path / "flat.jsonl"):
        folder = tmp_path / file.stem
        given = {"do_eval": True, "predict_file": str(file), "init_checkpoint": str(squad_model)}
        metrics = run_squad(squad_options(folder, **given))
        found.append((metrics, (folder / "nbest_predictions.json").read_bytes()))
    assert found[0] == found[1]


def test_a_test_set_is_answered_without_metrics(squad_model, squad_sets, tmp_path):
    options = squad_options(
        tmp_path,
        init_checkpoint=str(squad_model),
        do_predict=True,
        predict_file=str(squad_sets / "test.json"),
    )
    assert run_squad(options) == {}
    assert [len(found) for found in answers_in(tmp_path).values()] == [9, 9]
    with pytest.raises(ValueError, match=r"do_eval: .*test.json"):
        run_squad(dataclasses.replace(options, do_eval=True))
    training = {"do_train": True, "train_file": str(squad_sets / "train.json")}
    options = dataclasses.replace(options, evaluate_steps=9, **training)
    with pytest.raises(ValueError, match=r"evaluate_steps: .*test.json"):
        run_squad(options)


# ------------------------------------------------------------------------------------------ ensembles


def test_an_ensemble_of_one_run_answers_as_the_run(squad2_model, squad_sets, tmp_path):
    options = SquadOptions(
        output_dir=str(tmp_path),
        predictions=str(squad2_model),
        predict_file=str(squad_sets / "dev2.json"),
        version_2_with_negative=True,
    )
    results = run_squad(options)
    before = read_results(squad2_model)
    for name in ("exact", "f1", "best_exact", "best_f1"):
        assert results[name] == pytest.approx(before[name])
    assert results["num_runs"] == 1
    odds, expected = (
        json.loads((folder / "null_odds.json").read_text()) for folder in (tmp_path, squad2_model)
    )
    assert odds == pytest.approx(expected, abs=1e-6)
    assert answers_in(tmp_path)["predictions.json"] == answers_in(squad2_model)["predictions.json"]


def test_several_runs_vote(squad_model, squad_sets, tmp_path):
    names = list(answers_in(squad_model)["predictions.json"])
    for number, text in enumerate(("barn", "barn", "lake")):
        (tmp_path / str(number)).mkdir()
        nbest = {name: [{"text": text, "probability": 1.0}] for name in names}
        (tmp_path / str(number) / "nbest_predictions.json").write_text(json.dumps(nbest))
    options = SquadOptions(
        output_dir=str(tmp_path / "ensemble"),
        predictions=",".join(str(tmp_path / name) for name in "012"),
        predict_file=str(squad_sets / "dev.json"),
    )
    assert run_squad(options)["num_runs"] == 3
    found = answers_in(tmp_path / "ensemble")
    assert set(found["predictions.json"].values()) == {"barn"}
    entries = found["nbest_predictions.json"]["q0"]
    assert [entry["text"] for entry in entries] == ["barn", "lake"]
    assert [entry["probability"] for entry in entries] == pytest.approx([2 / 3, 1 / 3])


def test_an_ensemble_does_not_replace_answers_of_a_run_or_of_others(
    squad_model, squad_sets, tmp_path
):
    given = {"predict_file": str(squad_sets / "dev.json"), "predictions": str(squad_model)}
    before = (squad_model / "predictions.json").read_bytes()
    with pytest.raises(ValueError, match="predictions"):
        run_squad(SquadOptions(output_dir=f"{squad_model}/", **given))
    assert (squad_model / "predictions.json").read_bytes() == before
    for _ in range(2):  # its own files may be replaced
        run_squad(SquadOptions(output_dir=str(tmp_path / "again"), **given))
    (tmp_path / "report.html").write_text("foreign")
    with pytest.raises(ValueError, match=r"report\.html"):
        run_squad(SquadOptions(output_dir=str(tmp_path), **given))


def test_a_model_trained_with_characters_cuts_its_answers_by_characters(
    squad_model, squad_sets, tmp_path
):
    task_file = shutil.copytree(squad_model, tmp_path / "model") / "task.json"
    task = json.loads(task_file.read_text())
    assert task["answer_spans"] == "words"
    task_file.write_text(json.dumps(task | {"answer_spans": "characters"}))
    values = json.loads((squad_sets / "test.json").read_text())
    for paragraph in values["data"][0]["paragraphs"]:
        paragraph["context"] = paragraph["context"].replace(" ", "\u00a0")  # one word
    whole = {paragraph["context"] for paragraph in values["data"][0]["paragraphs"]}
    (tmp_path / "one_word.json").write_text(json.dumps(values))
    options = squad_options(
        tmp_path / "model", do_predict=True, predict_file=str(tmp_path / "one_word.json")
    )
    run_squad(options)
    assert not whole & set(answers_in(tmp_path / "model")["predictions.json"].values())
    run_squad(dataclasses.replace(options, answer_spans="words"))
    assert whole == set(answers_in(tmp_path / "model")["predictions.json"].values())


# ------------------------------------------------------------------------------------------- bad input


@pytest.mark.usefixtures("steps_without_training")
def test_what_is_left_out_is_counted_and_named(training, squad_sets, tmp_path, caplog):
    values = json.loads((squad_sets / "train.json").read_text())
    paragraphs = values["data"][0]["paragraphs"]
    paragraphs[3]["qas"][0]["answers"][0]["text"] = "moon"
    paragraphs[5]["qas"][0]["answers"][0]["answer_start"] = -4
    paragraphs[7]["qas"][0]["answers"][0]["answer_start"] += 1
    (tmp_path / "odd.json").write_text(json.dumps(values))
    run_squad(dataclasses.replace(training, train_file=str(tmp_path / "odd.json")))
    assert (
        "odd.json: of 160 questions, 2 questions are left out, because their answer is not at "
        "answer_start: q3, q5"
    ) in caplog.text
    assert "1 questions have an answer that does not begin at answer_start: q7" in caplog.text


def test_odd_questions_to_predict_are_answered_and_named(squad_model, tmp_path, caplog):
    paragraphs = [
        {"context": " \n", "qas": [{"id": "empty", "question": "where"}]},
        {"context": "The cat.", "qas": [{"id": "silent", "question": ""}]},
        {"context": "The owl.", "qas": [{"id": "none", "question": "?", "is_impossible": True}]},
    ]
    (tmp_path / "odd.json").write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}))
    for version_2, expected in ((False, "empty"), (True, "")):
        caplog.clear()
        folder = tmp_path / str(version_2)
        run_squad(
            squad_options(
                folder,
                init_checkpoint=str(squad_model),
                do_predict=True,
                predict_file=str(tmp_path / "odd.json"),
                version_2_with_negative=version_2,
            )
        )
        found = answers_in(folder)["predictions.json"]
        assert found["empty"] == expected
        assert set(found) == {"empty", "silent", "none"}
        assert "1 questions have an empty passage and get no answer: empty" in caplog.text
        assert "1 questions are empty texts: silent" in caplog.text
        assert ("have no answer but get one" in caplog.text) is not version_2


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"train_batch_size": 161}, "train_batch_size"),
        ({"max_seq_length": 32}, "max_seq_length"),
        ({"max_query_length": 28}, "max_query_length"),
        ({"doc_stride": 0}, "doc_stride"),
        ({"train_file": "/nowhere/train.json"}, "/nowhere/train.json"),
        ({"init_checkpoint": "/nowhere/bert_model.ckpt"}, "/nowhere"),
        ({"init_checkpoint": None}, "init_checkpoint"),
    ],
)
def test_what_cannot_be_trained_is_refused_before_anything_is_written(training, changes, message):
    with pytest.raises((ValueError, OSError), match=message):
        run_squad(dataclasses.replace(training, **changes))
    assert not Path(training.output_dir).exists()


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"do_train": False}, "do_train"),
        ({"train_file": None}, "train_file"),
        ({"do_predict": True}, "predict_file"),
        ({"do_eval": True}, "predict_file"),
        ({"do_train": False, "predictions": "x"}, "predict_file"),
        ({"predictions": "x"}, "predictions"),
        ({"null_score_diff_threshold": float("nan")}, "null_score_diff_threshold"),
    ],
)
def test_options_are_checked_when_made(training, changes, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(training, **changes)


README_COMMANDS = {
    "1.1": """--vocab_file=$B/vocab.txt --bert_config_file=$B/bert_config.json
        --init_checkpoint=$B/bert_model.ckpt --do_train=True --train_file=$S/train-v1.1.json
        --do_predict=True --predict_file=$S/dev-v1.1.json --train_batch_size=12
        --learning_rate=3e-5 --num_train_epochs=2.0 --max_seq_length=384 --doc_stride=128
        --output_dir=squad_base/""",
    "2.0": """--vocab_file=$B/vocab.txt --bert_config_file=$B/bert_config.json
        --init_checkpoint=$B/bert_model.ckpt --do_train=False --train_file=$S/train-v2.0.json
        --do_predict=True --predict_file=$S/dev-v2.0.json --train_batch_size=24
        --learning_rate=3e-5 --num_train_epochs=2.0 --max_seq_length=384 --doc_stride=128
        --output_dir=gs://some_bucket/squad_large/ --use_tpu=True --tpu_name=$TPU_NAME
        --version_2_with_negative=True --null_score_diff_threshold=-1.967471694946289""",
}


@pytest.mark.parametrize("version", README_COMMANDS)
def test_the_commands_of_the_reference_are_understood(version):
    values = flags.FlagValues()
    cli.define_flags(SquadOptions, values)
    assert values(["run_squad.py", *README_COMMANDS[version].split()]) == ["run_squad.py"]
    options = cli.options_from_flags(SquadOptions, values)
    assert (options.max_seq_length, options.doc_stride, options.learning_rate) == (384, 128, 3e-5)
    assert bool(options.version_2_with_negative) is (version == "2.0")
    assert options.do_train is (version == "1.1") and options.do_predict
