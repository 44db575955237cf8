"""Runs with a teacher: its logits in the records, and what the student learns."""

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from pages import data_of
from tiny_runs import Interruption, assert_bit_equal, interrupt_at, moods, read_results, write_table
from tiny_squad import squad_options, write_squad
from tiny_teachers import logits_of, taught, weights
from tiny_words_and_choices import conll, ner_training, questions, swag_options, write_json_lines

from bert_tf import convert, load
from bert_tf.finetuning.classification import run_classifier
from bert_tf.finetuning.distillation import add_columns
from bert_tf.finetuning.loop import num_parameters
from bert_tf.finetuning.multiple_choice import MultipleChoice, run_swag
from bert_tf.finetuning.question_answering import QuestionAnswering, run_squad
from bert_tf.finetuning.run import fine_tune
from bert_tf.finetuning.token_classification import TokenClassification, run_ner
from bert_tf.interop.read import read_checkpoint
from bert_tf.model_files import read_task
from bert_tf.model_folder import load_model
from bert_tf.modeling.crf import marginals, sentence_chains
from bert_tf.programs.export_saved_model import ExportOptions, export_saved_model
from bert_tf.report.teacher import student_and_teacher
from bert_tf.tasks.distillation import DistilledTask, soft_targets
from bert_tf.training.distillation import IS_LABELLED
from bert_tf.training.strategy import mirrored_strategy

# ---- records and results -------------------------------------------------------------------------


@pytest.mark.slow
def test_a_student_is_trained_evaluated_loaded_and_exported_as_any_model(
    student, mood_tables, tmp_path
):
    evaluated = {"do_eval": True, "eval_file": mood_tables.dev, "num_train_epochs": 10.0}
    run_classifier(student(**evaluated))
    folder = tmp_path / "student"
    assert json.loads((folder / "bert_config.json").read_text())["num_hidden_layers"] == 1
    assert read_results(folder)["eval_accuracy"] > 0.9
    sections = data_of((folder / "report.html").read_text())["sections"]
    (compared,) = (section for section in sections if section["title"] == "Student and teacher")
    assert ["layers", 2, 1] in compared["parts"][0]["rows"]
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    last = json.loads(lines[-1])
    assert last["loss"] == pytest.approx(last["hard_loss"] + last["soft_loss"], rel=1e-5)
    (answer,) = load(folder).predict(["the happy cat in the barn"])
    assert answer["label"] == "good"
    export_saved_model(ExportOptions(model_dir=str(folder), export_dir=str(tmp_path / "export")))
    (served,) = load(tmp_path / "export").predict(["the happy cat in the barn"])
    assert served["probabilities"] == pytest.approx(answer["probabilities"], rel=1e-4)


def test_the_records_contain_the_logits_of_the_teacher(student, sentence_model):
    features = taught(student())["train"]
    expected = logits_of(sentence_model, features)["logits"]
    assert features["teacher_logits"].shape == (90, 2)
    np.testing.assert_allclose(features["teacher_logits"], expected, atol=1e-5)


def test_the_logits_are_computed_once_for_a_teacher_and_its_examples(student, tmp_path, caplog):
    cache = {"feature_cache_dir": str(tmp_path / "cache")}
    other = {"precision": "mixed_bfloat16"}
    more = {"unlabelled_file": write_table(tmp_path / "more.tsv", moods(3, seed=9))}
    counts = []
    for name, changes in (
        ("a", {}),
        ("b", {"temperature": 3.0, "seed": 1}),
        ("c", other),
        ("d", more),  # the records of both files have the feature `is_labelled`
        ("e", more),
    ):
        caplog.clear()
        with caplog.at_level("INFO"):
            taught(student(name, **cache, **changes))
        counts.append(caplog.text.count("Running the teacher"))
    assert counts == [1, 0, 1, 2, 0]


def test_columns_are_added_to_records_without_a_change_of_the_others(
    student, sentence_model, tmp_path
):
    source, task = f"{sentence_model}/train.tf_record", read_task(str(sentence_model))
    logits = np.arange(180, dtype=np.float32).reshape(90, 2)
    (spec,) = soft_targets(task).features
    learned = DistilledTask(task, [spec], task.losses)
    path = str(tmp_path / "taught.tf_record")
    assert add_columns(source, {spec.name: logits}, learned.record_features, path) == 90
    before, after = (
        [tf.train.Example.FromString(r.numpy()) for r in tf.data.TFRecordDataset(file)]
        for file in (source, path)
    )
    for number, (old, new) in enumerate(zip(before, after, strict=True)):
        added = new.features.feature.pop(spec.name)
        assert list(added.float_list.value) == [2 * number, 2 * number + 1]
        assert old == new


def test_the_report_has_sizes_and_metrics_of_student_and_teacher(sentence_model, tmp_path):
    folder = tmp_path / "teacher"
    shutil.copytree(sentence_model, folder)
    (folder / "eval_results.txt").write_text("a note\neval_accuracy = 0.75\neval_loss = 0.5\n")
    results = {"eval_accuracy": 0.5, "eval_loss": 0.6, "global_step": 3}
    rows, chart = student_and_teacher(str(folder), str(sentence_model), results, "eval_accuracy")
    config = json.loads((folder / "bert_config.json").read_text())
    size, layers = config["hidden_size"], config["num_hidden_layers"]
    products = 4 * size * size + 2 * size * config["intermediate_size"] + 2 * 128 * size
    work = pytest.approx(2 * layers * products / 1e6)
    parameters = num_parameters(load_model(str(folder)).model) / 1e6
    assert rows["header"] == ["", "teacher", "student"]
    assert rows["rows"] == [
        ["layers", layers, layers],
        ["hidden size", size, size],
        ["million parameters", parameters, parameters],
        ["million operations per token", work, work],
        ["eval_accuracy", 0.75, 0.5],
        ["eval_loss", 0.5, 0.6],
    ]
    assert chart["series"] == [["teacher", [(work, 0.75)]], ["student", [(work, 0.5)]]]
    (folder / "eval_results.txt").unlink()
    (rows,) = student_and_teacher(str(folder), str(sentence_model), results, "eval_accuracy")
    assert [name for name, *_ in rows["rows"]][3:] == ["million operations per token"]


# ---- other types of task -------------------------------------------------------------------------


def test_unlabelled_texts_have_the_logits_of_the_teacher(student, sentence_model, tmp_path):
    file = tmp_path / "more.tsv"
    write_table(file, [(text, "unknown") for text, _ in moods(40, seed=9)])
    found = taught(student(unlabelled_file=str(file)))
    for name, size in (("train", 90), ("unlabelled", 40)):
        features = found[name]
        assert features[IS_LABELLED].tolist() == [int(name == "train")] * size
        expected = logits_of(sentence_model, features)["logits"]
        np.testing.assert_allclose(features["teacher_logits"], expected, atol=1e-5)


def test_words_have_the_logits_of_the_teacher(ner_model, conll_folder, tmp_path):
    more = tmp_path / "more.txt"
    more.write_text(conll(8, seed=9).replace("B-A", "?"))
    options = ner_training(
        ner_model, conll_folder, tmp_path, teacher=str(ner_model), unlabelled_file=str(more)
    )
    for name, features in taught(options, TokenClassification()).items():
        assert (features[IS_LABELLED] == (name == "train")).all()
        logits = logits_of(ner_model, features)["logits"]
        expected = np.take_along_axis(logits, features["word_positions"][..., None], axis=1)
        real = features["label_weights"] > 0
        assert real.sum() > 40
        np.testing.assert_allclose(features["teacher_logits"][real], expected[real], atol=1e-5)


def test_words_have_the_probabilities_of_a_crf_or_the_logits_for_one(
    ner_model, crf_model, conll_folder, tmp_path
):
    found = {}
    for name, teacher in (("plain", ner_model), ("crf", crf_model)):
        for crf in (False, True):
            folder = tmp_path / f"{name}-{crf}"
            options = ner_training(
                crf_model if crf else ner_model, conll_folder, folder, teacher=str(teacher), crf=crf
            )
            found[name, crf] = taught(options, TokenClassification())["train"]
    features = found["crf", True]
    real = features["label_weights"] > 0
    outputs = logits_of(crf_model, features)
    logits = np.take_along_axis(outputs["logits"], features["word_positions"][..., None], axis=1)
    chains = sentence_chains(logits, outputs["transitions"], real.sum(axis=1))
    expected = marginals(chains).numpy()[real]
    for crf in (False, True):
        logits = found["crf", crf]["teacher_logits"]
        np.testing.assert_allclose(np.exp(logits[real]), expected, atol=1e-5)
        plain = found["plain", not crf]["teacher_logits"][real]
        np.testing.assert_allclose(plain, found["plain", crf]["teacher_logits"][real], atol=1e-5)


def test_windows_have_the_logits_of_the_teacher(squad_model, squad_sets, tmp_path, caplog):
    more = write_squad(tmp_path / "more.json", 12, seed=9, labeled=False)
    values = json.loads(Path(more).read_text())
    values["data"].append({"paragraphs": [{"context": " ", "qas": [{"id": "e", "question": "?"}]}]})
    Path(more).write_text(json.dumps(values))
    options = squad_options(
        tmp_path,
        init_checkpoint=str(squad_model),
        teacher=str(squad_model),
        do_train=True,
        train_file=str(squad_sets / "train.json"),
        unlabelled_file=more,
    )
    found = taught(options, QuestionAnswering())
    assert "of 13 questions, 1 questions have an empty passage and are left out: e" in caplog.text
    for features in found.values():
        real, expected = features["input_mask"] > 0, logits_of(squad_model, features)
        for name in ("start_logits", "end_logits"):
            logits = features[f"teacher_{name}"]
            np.testing.assert_allclose(logits[real], expected[name][real], atol=1e-5)
            assert (logits[~real] < -1e29).all()


def test_choices_have_the_logits_of_the_teacher(swag_model, choice_files, tmp_path):
    rows = questions(9, seed=8)
    for row in rows:
        del row["label"]
    options = swag_options(
        tmp_path,
        init_checkpoint=str(swag_model),
        teacher=str(swag_model),
        do_train=True,
        unlabelled_file=write_json_lines(tmp_path / "more.jsonl", rows),
        train_file=choice_files["train_file"],
    )
    for features in taught(options, MultipleChoice()).values():
        expected = logits_of(swag_model, features)["logits"]
        real = features["choice_mask"] > 0
        np.testing.assert_allclose(features["teacher_logits"][real], expected[real], atol=1e-5)


# ---- whole runs ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_student_resumes_exactly_with_states_and_texts_without_labels(
    student, tmp_path, monkeypatch
):
    more = write_table(tmp_path / "more.tsv", [(text, "") for text, _ in moods(40, seed=9)])
    changes = {"teacher_states": "relations", "unlabelled_file": more}
    changes |= {"save_checkpoints_steps": 4, "num_train_epochs": 1.0}  # of 130 examples
    run_classifier(student("whole", **changes))
    with monkeypatch.context() as patch:
        interrupt_at(patch, 6)
        with pytest.raises(Interruption):
            run_classifier(student("parts", **changes))
    run_classifier(student("parts", **changes))
    assert_bit_equal(weights(tmp_path / "parts"), weights(tmp_path / "whole"))


@pytest.mark.usefixtures("steps_without_training")
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {
            "num_train_epochs": 12.0,
            "evaluate_steps": 4,
            "early_stopping": 1,
            "learning_rate": 1e-30,
        },
    ],
    ids=["to the last step", "ended early"],
)
def test_a_finished_student_does_not_need_its_teacher(
    student, sentence_model, mood_tables, tmp_path, caplog, changes
):
    teacher = tmp_path / "teacher"
    shutil.copytree(sentence_model, teacher)
    evaluated = {"do_eval": True, "eval_file": mood_tables.dev, "save_checkpoints_steps": 3}
    options = student(teacher=str(teacher), **evaluated, **changes)
    results = run_classifier(options)
    teacher.rename(tmp_path / "moved")
    with caplog.at_level("INFO"):
        assert run_classifier(options) == pytest.approx(results, rel=1e-6)
    assert "Nothing to train" in caplog.text
    assert "does not compare the model with its teacher. There is no checkpoint" in caplog.text
    longer = dataclasses.replace(options, num_train_epochs=14.0, early_stopping=0)
    with pytest.raises(FileNotFoundError, match=r"needs its teacher until it ends\. There is no"):
        run_classifier(longer)


@pytest.mark.slow
@pytest.mark.long
def test_packed_rows_on_two_replicas_give_the_same_losses(squad_model, squad_sets, tmp_path):
    config = json.loads((squad_model / "bert_config.json").read_text())
    config |= {"hidden_dropout_prob": 0, "attention_probs_dropout_prob": 0, "num_hidden_layers": 1}
    (tmp_path / "config.json").write_text(json.dumps(config))
    options = squad_options(
        tmp_path / "one",
        bert_config_file=f"{tmp_path}/config.json",
        init_checkpoint=str(squad_model),
        teacher=str(squad_model),
        teacher_states="relations",
        do_train=True,
        train_file=str(squad_sets / "train.json"),
        train_batch_size=160,  # the whole set, so that the order does not matter
        num_train_epochs=1.0,
    )
    fine_tune(QuestionAnswering(), options)
    packed = dataclasses.replace(options, output_dir=f"{tmp_path}/two", pack_sequences=True)
    # The names are those of the other tests: a second strategy in a process would fail.
    devices = tuple(device.name for device in tf.config.list_logical_devices("CPU")[:2])
    fine_tune(QuestionAnswering(), packed, mirrored_strategy(devices))
    one, two = (
        json.loads((tmp_path / name / "metrics.jsonl").read_text()) for name in ("one", "two")
    )
    for name in ("loss", "hard_loss", "soft_loss", "states_loss", "gradient_norm"):
        assert two[name] == pytest.approx(one[name], rel=1e-4), name


@pytest.mark.slow
def test_a_narrower_student_learns_hidden_states_through_a_layer_of_the_training(
    student, toy_text, tmp_path, caplog
):
    config = json.loads((toy_text / "bert_config.json").read_text())
    config |= {"hidden_size": 8, "num_hidden_layers": 1}
    (tmp_path / "config.json").write_text(json.dumps(config))
    options = student(
        bert_config_file=f"{tmp_path}/config.json",
        init_layers=None,
        init_checkpoint=None,
        vocab_file=f"{toy_text}/vocab.txt",
        teacher_states="hidden",
        teacher_layer=0,
        num_train_epochs=6.0,
    )
    run_classifier(options)
    with caplog.at_level("INFO"):
        run_classifier(options)  # without the layer of the training
    assert "Nothing to train" in caplog.text
    assert weights(tmp_path / "student")["distillation/kernel"].shape == (8, 16)
    lines = (tmp_path / "student" / "metrics.jsonl").read_text().splitlines()
    values = [json.loads(line)["states_loss"] for line in lines]
    assert values[-1] < 0.5 * values[0]
    assert load(tmp_path / "student").predict(["the sad owl"])[0]["label"] in ("bad", "good")
    convert(tmp_path / "student", tmp_path / "converted", format="tf1")
    assert "distillation/kernel" not in read_checkpoint(str(tmp_path / "converted")).arrays


@pytest.mark.slow
def test_choices_learn_states(swag_model, choice_files, tmp_path):
    options = swag_options(
        tmp_path,
        init_checkpoint=str(swag_model),
        init_layers="0",
        teacher=str(swag_model),
        teacher_states="hidden",
        do_train=True,
        num_train_epochs=4.0,
        train_file=choice_files["train_file"],
    )
    run_swag(options)
    values = [
        json.loads(line)["states_loss"]
        for line in (tmp_path / "metrics.jsonl").read_text().splitlines()
    ]
    assert values[-1] < 0.5 * values[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [{"num_train_epochs": 4.0}, {"crf": True, "hard_labels": 0.0}],
    ids=["without a CRF", "with a CRF, of a teacher without one"],
)
def test_words_learn_from_a_teacher(ner_model, conll_folder, tmp_path, changes):
    given = {"teacher": str(ner_model), "init_layers": "0", "do_eval": True}
    options = ner_training(ner_model, conll_folder, tmp_path, **given, **changes)
    assert run_ner(options)["eval_f1"] > 0.5


@pytest.mark.slow
def test_answers_learn_from_a_teacher(squad_model, squad_sets, tmp_path):
    options = squad_options(
        tmp_path,
        init_checkpoint=str(squad_model),
        init_layers="1",
        teacher=str(squad_model),
        hard_labels=0.0,
        do_train=True,
        do_predict=True,
        train_file=str(squad_sets / "train.json"),
        predict_file=str(squad_sets / "dev.json"),
        num_train_epochs=6.0,
    )
    assert run_squad(options)["f1"] > 30
