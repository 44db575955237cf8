"""run_swag: fine-tune, evaluate, predict, and the choice_files it promises."""

import json
from pathlib import Path

import pytest
from pages import figures_of
from tiny_runs import read_results
from tiny_words_and_choices import questions, swag_options, write_json_lines

from bert_tf.finetuning.multiple_choice import SwagOptions, run_swag


def predictions(folder, name):
    lines = (Path(folder) / f"{name}_predictions.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_what_can_be_learned_is_learned_with_any_number_of_choices(swag_model):
    results = read_results(swag_model)
    assert list(results) == ["eval_accuracy", "eval_loss", "global_step", "loss"]
    assert results["eval_accuracy"] > 0.9
    assert json.loads((swag_model / "task.json").read_text()) == {
        "task": "multiple_choice",
        "num_choices": 4,
        "max_seq_length": 19,
    }


def test_the_report_has_the_number_of_questions_and_the_command(swag_model):
    report = (swag_model / "report.html").read_text()
    assert {"examples", "accuracy_of_largest_class"} <= set(figures_of(report))
    assert "bert_tf run_swag" in report


def test_predictions_have_a_probability_for_each_choice_that_there_is(swag_model):
    for name, rows in (("eval", questions(31, seed=2)), ("test", questions(7, seed=3))):
        found = predictions(swag_model, name)
        assert [line["id"] for line in found] == [str(row["id"]) for row in rows]
        for line, row in zip(found, rows, strict=True):
            assert len(line["probabilities"]) == len(row["choices"])
            assert sum(line["probabilities"]) == pytest.approx(1.0)
            assert line["probabilities"][line["prediction"]] == max(line["probabilities"])
    right = sum(
        line["prediction"] == row["label"]
        for line, row in zip(predictions(swag_model, "eval"), questions(31, seed=2), strict=True)
    )
    assert read_results(swag_model)["eval_accuracy"] == pytest.approx(right / 31)
    assert not (swag_model / "test_results.txt").exists()


def test_evaluation_afterwards_needs_only_the_data_and_may_have_another_number_of_choices(
    swag_model, tmp_path
):
    rows = [
        {"text_a": "in the barn", "choices": ["the rude dog"] * 6 + ["the calm owl"], "label": 6}
    ]
    options = SwagOptions(
        output_dir=str(tmp_path),
        init_checkpoint=str(swag_model),
        do_predict=True,
        predict_file=write_json_lines(tmp_path / "a.jsonl", rows),
    )
    run_swag(options)
    assert predictions(tmp_path, "test")[0]["prediction"] == 6
    assert "test_accuracy = 1.0" in (tmp_path / "test_results.txt").read_text()


def test_training_and_evaluation_need_answers(pretrained, choice_files, tmp_path):
    options = swag_options(
        tmp_path,
        init_checkpoint=str(pretrained),
        do_train=True,
        train_file=choice_files["predict_file"],
    )
    with pytest.raises(ValueError, match=r"test.jsonl:1: .*7 of 7"):
        run_swag(options)


def test_too_few_questions_for_a_step_are_refused(pretrained, choice_files, tmp_path):
    options = swag_options(
        tmp_path,
        init_checkpoint=str(pretrained),
        do_train=True,
        train_file=choice_files["train_file"],
        train_batch_size=400,
    )
    with pytest.raises(ValueError, match="90 examples make no step"):
        run_swag(options)
