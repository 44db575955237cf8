"""What a person keeps in --output_dir is not overwritten; what a run of ours left there is."""

import dataclasses
import json

import pytest
from tiny_runs import classifier_options, pretraining_options
from tiny_squad import squad_options

from bert_tf.finetuning.classification import run_classifier
from bert_tf.finetuning.output_folder import check_output_folder, warn_of_old_results
from bert_tf.programs.run_pretraining import run_pretraining

CONTENTS = {"vocab.txt": "[PAD]\na\n", "labels.txt": "no\nyes\n"}
NOBODYS = "contains {}, which a run would overwrite.*another .*output_dir"


@pytest.fixture
def options(tmp_path):
    (tmp_path / "output").mkdir()
    values = {"train_file": "t.tsv", "eval_file": "e.tsv", "do_train": True, "do_eval": True}
    return lambda **changes: classifier_options(tmp_path / "output", **{**values, **changes})


def put(folder, *names, text="mine\n"):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


@pytest.mark.parametrize(
    "name",
    [
        *("vocab.txt", "labels.txt", "train.tf_record", "eval.tf_record", "metrics.jsonl"),
        *("training.json", "model_card_facts.json", "eval_results.txt", "report.html"),
    ],
)
def test_a_persons_own_file_is_not_overwritten(options, tmp_path, name):
    put(tmp_path / "output", name, "notes.txt")
    with pytest.raises(ValueError, match=NOBODYS.format(name)):
        check_output_folder(options(), CONTENTS)


@pytest.mark.parametrize("name", ["predictions.json", "eval_results.txt", "report.html"])
def test_predictions_of_questions_do_not_overwrite_it_either(tmp_path, name):
    put(tmp_path, name)
    with pytest.raises(ValueError, match=NOBODYS.format(name)):
        check_output_folder(squad_options(tmp_path, do_predict=True, predict_file="q.json"), {})


def test_results_from_before_a_training_are_warned_of(options, tmp_path, caplog):
    warn_of_old_results(options())
    put(tmp_path / "output", "test_results.tsv", "eval_results.txt", "predict.tf_record")
    warn_of_old_results(options(do_predict=True, predict_file="p.tsv"))
    assert not caplog.messages
    warn_of_old_results(options())
    assert "of earlier weights, not of this training: test_results.tsv." in caplog.text


def test_all_files_are_named(options, tmp_path):
    put(tmp_path / "output", "vocab.txt", "train.tf_record")
    with pytest.raises(ValueError, match=NOBODYS.format("train.tf_record, vocab.txt")):
        check_output_folder(options(), CONTENTS)


def test_files_that_are_not_written_or_have_the_same_lines_may_stay(options, tmp_path):
    put(tmp_path / "output", "vocab.txt", text="[PAD]\r\na\r\n")
    put(tmp_path / "output", "README.md", "test_results.tsv", "my.tf_record")
    check_output_folder(options(), CONTENTS)
    put(tmp_path / "output", "train.tf_record")
    check_output_folder(options(feature_cache_dir="elsewhere"), CONTENTS)
    check_output_folder(options(do_train=False, train_file=None), {})


@pytest.mark.parametrize(
    "name, values",
    [
        ("model.ckpt-7.index", {}),
        ("eval.tf_record.json", {"key": ""}),
        ("task.json", {"task": "classification"}),
        ("training.json", {"optimizer": "lamb"}),
    ],
)
def test_a_folder_of_a_run_is_written_again(options, tmp_path, name, values):
    put(tmp_path / "output", "vocab.txt", "train.tf_record", "task.json")
    with pytest.raises(ValueError, match=r"task\.json"):
        check_output_folder(options(), CONTENTS | {"task.json": "{}"})
    put(tmp_path / "output", name, text=json.dumps(values))
    check_output_folder(options(), CONTENTS)


def test_a_run_whose_records_are_elsewhere_is_evaluated_again(options, tmp_path):
    put(tmp_path / "output", "eval_results.txt")
    check_output_folder(options(do_train=False, train_file=None, feature_cache_dir="cache"), {})


def test_fine_tuning_leaves_a_persons_folder_as_it_is(toy_text, mood_tables, tmp_path):
    changes = {
        "train_file": mood_tables.train,
        "eval_file": mood_tables.dev,
        "text_a_column": "sentence",
        "label_column": "mood",
        "bert_config_file": str(toy_text / "bert_config.json"),
        "vocab_file": str(toy_text / "vocab.txt"),
        "do_train": True,
        "do_eval": True,
    }
    put(tmp_path / "output", "vocab.txt", "eval_results.txt")
    with pytest.raises(ValueError, match=NOBODYS.format("eval_results.txt, vocab.txt")):
        run_classifier(classifier_options(tmp_path / "output", **changes))
    assert {path.read_text() for path in (tmp_path / "output").iterdir()} == {"mine\n"}


def test_pre_training_leaves_a_persons_folder_as_it_is(records, toy_text, tmp_path):
    put(tmp_path / "output", "vocab.txt")
    with pytest.raises(ValueError, match=NOBODYS.format("vocab.txt")):
        run_pretraining(pretraining_options(records, toy_text, tmp_path / "output"))
    assert [path.read_text() for path in (tmp_path / "output").iterdir()] == ["mine\n"]


def test_an_evaluation_of_pre_training_leaves_it_too_and_can_be_repeated(
    records, toy_text, pretrained, tmp_path
):
    changes = {"do_train": False, "init_checkpoint": str(pretrained), "max_eval_steps": 1}
    options = pretraining_options(records, toy_text, tmp_path / "output")
    options = dataclasses.replace(options, evaluate_steps=0, **changes)
    put(tmp_path / "output", "eval_results.txt", "report.html")
    with pytest.raises(ValueError, match=NOBODYS.format("eval_results.txt, report.html")):
        run_pretraining(options)
    assert {path.read_text() for path in (tmp_path / "output").iterdir()} == {"mine\n"}
    options = dataclasses.replace(options, output_dir=str(tmp_path / "empty"))
    assert run_pretraining(options) == run_pretraining(options)
