"""Runs with a teacher: its outputs in the records, and what the student learns."""

import dataclasses
import json
import shutil

import numpy as np
import pytest
import tensorflow as tf
from tiny_runs import (
    Interruption,
    assert_bit_equal,
    checkpoint_arrays,
    interrupt_at,
    read_results,
)
from tiny_squad import squad_options
from tiny_teachers import logits_of, taught
from tiny_words_and_choices import ner_training, swag_options

from bert_tf import load
from bert_tf.finetuning.classification import run_classifier
from bert_tf.finetuning.distillation import add_columns
from bert_tf.finetuning.multiple_choice import MultipleChoice
from bert_tf.finetuning.question_answering import QuestionAnswering
from bert_tf.finetuning.token_classification import TokenClassification
from bert_tf.model_files import read_task
from bert_tf.modeling.crf import marginals, sentence_chains
from bert_tf.tasks.distillation import student_task
from bert_tf.training.checkpoints import checkpoint_step, latest_checkpoint, save_checkpoint


@pytest.mark.night
def test_student_is_a_model_like_any_other(student, mood_tables, tmp_path):
    evaluated = {"do_eval": True, "eval_file": mood_tables.dev, "num_train_epochs": 10.0}
    run_classifier(student(**evaluated))
    folder = tmp_path / "student"
    assert json.loads((folder / "bert_config.json").read_text())["num_hidden_layers"] == 1
    assert read_results(folder)["eval_accuracy"] > 0.9
    last = json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])
    assert last["loss"] == pytest.approx(last["hard_loss"] + last["soft_loss"], rel=1e-5)
    (answer,) = load(folder).predict(["the happy cat in the barn"])
    assert answer["label"] == "good"


def test_records_contain_the_logits_of_the_teacher(student, sentence_model):
    features = taught(student())
    expected = logits_of(sentence_model, features)["logits"]
    assert features["teacher_logits"].shape == (90, 2)
    np.testing.assert_allclose(features["teacher_logits"], expected, atol=1e-5)


def test_logits_are_computed_once_for_a_teacher_and_its_examples(
    student, sentence_model, tmp_path, caplog
):
    retrained = tmp_path / "retrained"
    shutil.copytree(sentence_model, retrained)
    prefix = latest_checkpoint(str(retrained))
    arrays = checkpoint_arrays(prefix)
    arrays["output_bias"] += 1
    folder, step = str(retrained), checkpoint_step(prefix)
    save_checkpoint(folder, arrays, step)
    counts = []
    other = {"temperature": 3.0, "seed": 1}
    for changes in ({}, other, {"precision": "mixed_bfloat16"}, {"teacher": folder}):
        caplog.clear()
        with caplog.at_level("INFO"):
            taught(student(**changes))
        counts.append(caplog.text.count("Running the teacher"))
    assert counts == [1, 0, 1, 1]


def test_add_columns_leaves_the_other_features_as_they_are(student, sentence_model, tmp_path):
    source, task = f"{sentence_model}/train.tf_record", read_task(str(sentence_model))
    logits = np.arange(180, dtype=np.float32).reshape(90, 2)
    path, specs = str(tmp_path / "taught.tf_record"), student_task(task, 2.0).record_features
    assert add_columns(source, {"teacher_logits": logits}, specs, path) == 90
    before, after = (
        [tf.train.Example.FromString(r.numpy()) for r in tf.data.TFRecordDataset(file)]
        for file in (source, path)
    )
    for number, (old, new) in enumerate(zip(before, after, strict=True)):
        added = new.features.feature.pop("teacher_logits")
        assert list(added.float_list.value) == [2 * number, 2 * number + 1]
        assert old == new


def test_words_have_the_logits_of_the_teacher(ner_model, conll_folder, tmp_path):
    options = ner_training(ner_model, conll_folder, tmp_path, teacher=str(ner_model))
    features = taught(options, TokenClassification())
    logits = logits_of(ner_model, features)["logits"]
    expected = np.take_along_axis(logits, features["word_positions"][..., None], axis=1)
    real = features["label_weights"] > 0
    assert real.sum() > 40
    np.testing.assert_allclose(features["teacher_logits"][real], expected[real], atol=1e-5)


def test_words_have_the_probabilities_of_a_crf(crf_model, conll_folder, tmp_path):
    options = ner_training(crf_model, conll_folder, tmp_path, teacher=str(crf_model), crf=True)
    features = taught(options, TokenClassification())
    real = features["label_weights"] > 0
    outputs = logits_of(crf_model, features)
    logits = np.take_along_axis(outputs["logits"], features["word_positions"][..., None], axis=1)
    chains = sentence_chains(logits, outputs["transitions"], real.sum(axis=1))
    expected = marginals(chains).numpy()[real]
    np.testing.assert_allclose(np.exp(features["teacher_logits"][real]), expected, atol=1e-5)


def test_windows_have_the_logits_of_the_teacher(squad_model, squad_sets, tmp_path):
    options = squad_options(
        tmp_path,
        init_checkpoint=str(squad_model),
        teacher=str(squad_model),
        do_train=True,
        train_file=str(squad_sets / "train.json"),
    )
    features = taught(options, QuestionAnswering())
    real, expected = features["input_mask"] > 0, logits_of(squad_model, features)
    for name in ("start_logits", "end_logits"):
        logits = features[f"teacher_{name}"]
        np.testing.assert_allclose(logits[real], expected[name][real], atol=1e-5)
        assert (logits[~real] < -1e29).all()


def test_choices_have_the_logits_of_the_teacher(swag_model, choice_files, tmp_path):
    options = swag_options(
        tmp_path,
        init_checkpoint=str(swag_model),
        teacher=str(swag_model),
        do_train=True,
        train_file=choice_files["train_file"],
    )
    features = taught(options, MultipleChoice())
    expected, real = logits_of(swag_model, features)["logits"], features["choice_mask"] > 0
    np.testing.assert_allclose(features["teacher_logits"][real], expected[real], atol=1e-5)


@pytest.mark.night
def test_student_resumes_exactly(student, tmp_path, monkeypatch):
    changes = {"save_checkpoints_steps": 2, "num_train_epochs": 1.0}
    run_classifier(student("whole", **changes))
    with monkeypatch.context() as patch:
        interrupt_at(patch, 3)
        with pytest.raises(Interruption):
            run_classifier(student("parts", **changes))
    run_classifier(student("parts", **changes))
    whole, parts = (
        checkpoint_arrays(latest_checkpoint(str(tmp_path / name))) for name in ("whole", "parts")
    )
    assert_bit_equal(parts, whole)


@pytest.mark.usefixtures("steps_without_training")
def test_finished_student_does_not_need_its_teacher(student, sentence_model, tmp_path, caplog):
    shutil.copytree(sentence_model, tmp_path / "teacher")
    options = student(teacher=str(tmp_path / "teacher"))
    run_classifier(options)
    shutil.rmtree(tmp_path / "teacher")
    with caplog.at_level("INFO"):
        run_classifier(options)
    assert "Nothing to train" in caplog.text
    with pytest.raises(FileNotFoundError):
        run_classifier(dataclasses.replace(options, num_train_epochs=14.0))


# ---- what would go wrong in silence --------------------------------------------------------------


def with_task(folder, copy, **changes):
    """The same model with other values in task.json."""
    shutil.copytree(folder, copy)
    task = json.loads((copy / "task.json").read_text())
    (copy / "task.json").write_text(json.dumps(task | changes))
    return str(copy)


def test_labels_of_a_teacher_may_have_another_order(student, sentence_model, tmp_path):
    assert read_task(str(sentence_model)).labels == ("bad", "good")
    teacher = with_task(sentence_model, tmp_path / "teacher", labels=["GOOD", "BAD"])
    features = taught(student(teacher=teacher))
    expected = logits_of(sentence_model, features)["logits"][:, ::-1]
    np.testing.assert_allclose(features["teacher_logits"], expected, atol=1e-5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"labels": ["happy", "sad"]}, "happy, sad"),
        ({"problem_type": "multi_label", "metric_names": ["f1_micro"]}, "problem_type"),
    ],
)
def test_teacher_with_other_outputs_is_an_error(
    student, sentence_model, tmp_path, changes, message
):
    teacher = with_task(sentence_model, tmp_path / "teacher", **changes)
    with pytest.raises(ValueError, match=message):
        taught(student(teacher=teacher))


@pytest.mark.parametrize("model", ["ner_model", "pretrained"])
def test_teacher_of_another_type_of_task_is_an_error(student, request, model):
    with pytest.raises(ValueError, match="another task"):
        taught(student(teacher=str(request.getfixturevalue(model))))


@pytest.mark.parametrize("changed", ["vocabulary", "do_lower_case"])
def test_teacher_with_another_tokenizer_is_an_error(student, sentence_model, tmp_path, changed):
    teacher = tmp_path / "teacher"
    shutil.copytree(sentence_model, teacher)
    if changed == "vocabulary":
        tokens = (teacher / "vocab.txt").read_text().splitlines()
        (teacher / "vocab.txt").write_text("\n".join([*tokens[:-2], tokens[-1], tokens[-2], ""]))
    else:
        settings = json.loads((teacher / "tokenizer_config.json").read_text())
        settings["do_lower_case"] = not settings["do_lower_case"]
        (teacher / "tokenizer_config.json").write_text(json.dumps(settings))
    with pytest.raises(ValueError, match=changed):
        taught(student(teacher=str(teacher)))


def test_teacher_with_a_crf_for_a_student_without_one_is_an_error(
    ner_model, crf_model, conll_folder, tmp_path
):
    options = ner_training(ner_model, conll_folder, tmp_path, teacher=str(crf_model))
    with pytest.raises(ValueError, match="another crf"):
        taught(options, TokenClassification())
