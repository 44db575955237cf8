"""run_swag: probabilities of any number of choices, and bad input."""

from helpers import read_json_lines, refused, write_json_lines
from models import DATA, golden, train

from bert_tf.options import make_options
from bert_tf.tasks.run_swag import SwagOptions, run_swag


def test_a_model_may_be_asked_with_another_number_of_choices(tmp_path, eagerly):
    choices = ["the rude dog"] * 6 + ["the calm owl"]
    rows = [{"text_a": "in the barn", "choices": choices, "label": 6}]
    file = write_json_lines(tmp_path / "a.jsonl", rows)
    given = {"init_checkpoint": str(golden("swag")), "do_predict": True, "predict_file": file}
    run_swag(make_options(SwagOptions, output_dir=str(tmp_path), **given))
    assert read_json_lines(tmp_path / "test_predictions.jsonl")[0]["prediction"] == 6
    assert "test_accuracy = 1.0" in (tmp_path / "test_results.txt").read_text()


def test_training_needs_answers_and_enough_questions(tmp_path):
    with refused("test.jsonl:1"):
        train("swag", tmp_path / "out", train_file=f"{DATA}/choices/test.jsonl")
    with refused("train_batch_size"):
        train("swag", tmp_path / "out", train_batch_size=901)
