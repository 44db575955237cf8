"""Runs with a teacher, beside tests/contracts: what its records keep, resume, and wrong teachers."""

import json
import shutil

import numpy as np
import pytest
import tensorflow as tf
from helpers import (
    assert_bit_equal,
    checkpoint_arrays,
    read_task,
    refused,
    remove_last_checkpoint,
    write,
)
from models import copy_of, golden, options, train

from bert_tf.checkpoints.tf1 import latest_checkpoint
from bert_tf.data.records import read_records
from bert_tf.prediction.loading import load_model
from bert_tf.tasks.distillation import add_columns, load_teacher, student_task
from bert_tf.tasks.run_classifier import read_data
from bert_tf.tasks.setup import resolve
from bert_tf.training.checkpoints import checkpoint_step, save_checkpoint

STUDENT = {"teacher": str(golden("classifier")), "init_layers": "0"}
TRAINING = STUDENT | {"do_eval": False, "do_predict": False}


def taught(folder, **changes):
    """The features of a student's training records, in their order."""
    given = options("classifier", folder, **TRAINING | changes)
    setup = resolve(given, "classification")
    task, splits = read_data(given, setup.trained, setup.max_seq_length)
    teacher = load_teacher(given.fine_tuning, task, setup.tokenizer, setup.strategy, setup.policy)
    records, examples = str(folder / "train.tf_record"), splits["train"]
    task.write_records(examples, setup.tokenizer, records)
    batches = read_records(
        [teacher.write_records(records, examples, setup.tokenizer, batch_size=10)],
        teacher.student.record_features,
        batch_size=500,
    )
    (features,) = batches.as_numpy_iterator()
    return features


@pytest.mark.night
def test_logits_are_computed_once_for_a_teacher_and_its_examples(tmp_path, caplog, eagerly):
    retrained = copy_of("classifier", tmp_path / "retrained")
    prefix = latest_checkpoint(str(retrained))
    arrays = checkpoint_arrays(prefix)
    arrays["output_bias"] += 1
    save_checkpoint(str(retrained), arrays, checkpoint_step(prefix))
    counts = []
    other = {"temperature": 3.0, "seed": 1}
    for changes in ({}, other, {"precision": "mixed_bfloat16"}, {"teacher": str(retrained)}):
        caplog.clear()
        with caplog.at_level("INFO"):
            taught(tmp_path / "out", **changes)
        counts.append(caplog.text.count("Running the teacher"))
    assert counts == [1, 0, 1, 1]


def test_add_columns_leaves_the_other_features_as_they_are(tmp_path, eagerly):
    taught(tmp_path)
    source, task = str(tmp_path / "train.tf_record"), read_task(str(golden("classifier")))
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


@pytest.mark.night
def test_a_student_resumes_exactly(tmp_path, eagerly):
    given = TRAINING | {"save_checkpoints_steps": 3, "num_train_epochs": 1.1}
    train("classifier", tmp_path / "whole", **given)
    shutil.copytree(tmp_path / "whole", tmp_path / "parts")
    remove_last_checkpoint(tmp_path / "parts")
    train("classifier", tmp_path / "parts", **given)
    whole, parts = (
        checkpoint_arrays(latest_checkpoint(str(tmp_path / name))) for name in ("whole", "parts")
    )
    assert_bit_equal(parts, whole)


# ---- what would go wrong in silence --------------------------------------------------------------


def change_json(path, **changes):
    write(path, json.dumps(json.loads(path.read_text()) | changes))


def test_labels_of_a_teacher_may_have_another_order(tmp_path, eagerly):
    assert read_task(str(golden("classifier"))).labels == ("bad", "good")
    teacher = copy_of("classifier", tmp_path / "teacher")
    change_json(teacher / "task.json", labels=["GOOD", "BAD"])
    features = taught(tmp_path / "out", teacher=str(teacher))
    inputs = {name: features[name] for name in ("input_ids", "input_mask", "segment_ids")}
    outputs = load_model(str(golden("classifier"))).model(inputs, training=False)
    expected = outputs["logits"].numpy()[:, ::-1]
    np.testing.assert_allclose(features["teacher_logits"], expected, atol=1e-5)


def test_a_teacher_that_reads_or_answers_otherwise_is_refused(tmp_path):
    multi_label = {"problem_type": "multi_label", "metric_names": ["f1_micro"]}
    for number, (file, changes, what) in enumerate(
        (
            ("task.json", {"labels": ["happy", "sad"]}, "happy, sad"),
            ("task.json", multi_label, "problem_type"),
            ("tokenizer_config.json", {"do_lower_case": False}, "do_lower_case"),
            ("vocab.txt", {}, "vocabulary"),
        )
    ):
        teacher = copy_of("classifier", tmp_path / f"{number}")
        if changes:
            change_json(teacher / file, **changes)
        else:
            tokens = (teacher / file).read_text().splitlines()
            write(teacher / file, "\n".join([*tokens[:-2], tokens[-1], tokens[-2], ""]))
        with refused("teacher" if what != "happy, sad" else "model.ckpt-67") as error:
            train("classifier", tmp_path / "out", **TRAINING | {"teacher": str(teacher)})
        assert what in str(error.value)
    for kind, teacher, what in (
        ("classifier", "ner", "task"),
        ("classifier", "pretrained", "task"),
        ("ner", "crf", "crf"),
    ):
        with refused("teacher") as error:
            train(kind, tmp_path / "out", do_predict=False, teacher=str(golden(teacher)))
        assert what in str(error.value)
