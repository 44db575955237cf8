"""Runs that --seeds and --grid plan."""

import dataclasses

import pytest
from tiny_runs import classifier_options

from bert_tf.cli import with_flags
from bert_tf.finetuning.classification_options import ClassifierOptions
from bert_tf.finetuning.sweep_plan import PAPER_GRID, parse_grid, plan


@pytest.fixture
def options(tmp_path):
    """Two seeds."""
    files = {"train_file": "train.tsv", "eval_file": "dev.tsv"}
    return classifier_options(tmp_path, do_train=True, do_eval=True, seeds=2, seed=7, **files)


def test_the_grid_of_the_paper_has_its_eighteen_combinations():
    settings = parse_grid("paper")
    assert len(settings) == 18
    assert {s["train_batch_size"] for s in settings} == {16, 32}
    assert {s["learning_rate"] for s in settings} == {5e-5, 3e-5, 2e-5}
    assert {s["num_train_epochs"] for s in settings} == {2, 3, 4}


@pytest.mark.parametrize(
    "text, message",
    [
        ("dropout=0.1", "'dropout=0.1' is not flag=value,value"),
        ("learning_rate", "'learning_rate' is not flag=value"),
        ("learning_rate=1;learning_rate=2", "each flag once"),
        ("train_batch_size=16,many", "'16,many' is not a list of numbers for train_batch_size"),
        ("learning_rate=5e-5,0.00005", "learning_rate=5e-5,0.00005 has a value twice"),
        ("", "'' is not flag=value,value"),
    ],
)
def test_a_grid_that_cannot_be_read_is_refused(text, message):
    with pytest.raises(ValueError, match=message):
        parse_grid(text)


def test_on_the_command_line_the_example_of_a_grid_has_no_dashes():
    with pytest.raises(ValueError, match="paper") as found:
        parse_grid("lr=1")
    assert f"--grid=paper: '{PAPER_GRID}'" in with_flags(str(found.value), ClassifierOptions)


def test_a_value_of_the_grid_that_its_flag_refuses_is_refused_before_the_first_run(options):
    with pytest.raises(ValueError, match="train_batch_size is 0"):
        plan(dataclasses.replace(options, grid="train_batch_size=16,0"))


def test_the_plan_is_each_setting_with_each_seed(options):
    runs = plan(dataclasses.replace(options, grid="learning_rate=1e-3,2e-3;num_train_epochs=1"))
    assert [run.name for run in runs] == [
        "learning_rate-0.001_num_train_epochs-1_seed-7",
        "learning_rate-0.001_num_train_epochs-1_seed-8",
        "learning_rate-0.002_num_train_epochs-1_seed-7",
        "learning_rate-0.002_num_train_epochs-1_seed-8",
    ]
    assert runs[3].options.seed == 8
    assert runs[3].options.learning_rate == 2e-3
    assert len({run.options.output_dir for run in runs}) == 4
    assert not any(run.options.do_predict or run.options.report for run in runs)


def test_values_that_differ_after_six_digits_have_folders_of_their_own(options):
    values = "5e-5,5.0000001e-5,2,1e-6"
    runs = plan(dataclasses.replace(options, seeds=1, grid=f"learning_rate={values}"))
    assert [run.name.split("_seed")[0].removeprefix("learning_rate-") for run in runs] == [
        *("5e-05", "5.0000001e-05", "2", "1e-06"),
    ]
