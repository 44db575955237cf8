"""What a person keeps in --output_dir is not overwritten; what a run of ours left there is."""

import dataclasses

import pytest
from tiny_runs import pretraining_options

from bert_tf.finetuning.same_run import check_output_folder
from bert_tf.programs.run_pretraining import run_pretraining


@pytest.mark.parametrize("name", ["vocab.txt", "report.html"])
def test_check_output_folder_rejects_files_without_a_run(tmp_path, name):
    check_output_folder(str(tmp_path / "new"))
    (tmp_path / "slurm.log").touch()
    check_output_folder(str(tmp_path))
    (tmp_path / name).touch()
    with pytest.raises(ValueError, match=name):
        check_output_folder(str(tmp_path))


@pytest.mark.parametrize("name", ["model.ckpt-7.index", "eval.tf_record.json", "training.json"])
def test_check_output_folder_accepts_a_run(tmp_path, name):
    (tmp_path / "vocab.txt").touch()
    (tmp_path / name).touch()
    check_output_folder(str(tmp_path))


def test_an_evaluation_of_pre_training_can_be_repeated(records, toy_text, pretrained, tmp_path):
    changes = {"do_train": False, "init_checkpoint": str(pretrained), "max_eval_steps": 1}
    options = pretraining_options(records, toy_text, tmp_path / "output")
    options = dataclasses.replace(options, evaluate_steps=0, **changes)
    assert run_pretraining(options) == run_pretraining(options)
