"""Teachers with another vocabulary or other labels, and teachers that do not fit."""

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from tiny_runs import classifier_options, moods, write_table
from tiny_squad import squad_options
from tiny_teachers import logits_of, other_vocabulary, taught, teacher_and_run
from tiny_words_and_choices import ner_training, swag_options

from bert_tf import convert, load
from bert_tf.finetuning.multiple_choice import MultipleChoice
from bert_tf.finetuning.question_answering import QuestionAnswering
from bert_tf.finetuning.token_classification import TokenClassification
from bert_tf.model_files import read_task
from bert_tf.model_folder import load_model
from bert_tf.tasks.classification import ClassificationTask
from bert_tf.training.encoder_parts import freezes_encoder


def test_a_teacher_with_another_vocabulary_gives_the_same_logits(student, sentence_model, tmp_path):
    teacher = str(other_vocabulary(sentence_model, tmp_path / "teacher"))
    expected = taught(student())["train"]["teacher_logits"]
    whole = taught(student("whole", teacher=teacher))["train"]
    np.testing.assert_allclose(whole["teacher_logits"], expected, atol=1e-5)
    # The teacher's own length has room for whole texts. Each window of the student gets their logits.
    windows = {"doc_stride": 2, "max_seq_length": 6}
    parts = taught(student("windows", teacher=teacher, **windows))["train"]
    numbers = parts["example_numbers"]
    assert len(numbers) > 90
    np.testing.assert_allclose(parts["teacher_logits"], expected[numbers], atol=1e-5)


def test_a_tagger_with_another_vocabulary_gives_the_logits_of_the_same_words(
    ner_model, conll_folder, tmp_path
):
    other = other_vocabulary(ner_model, tmp_path / "teacher")
    same, found = (
        taught(
            ner_training(
                ner_model, conll_folder, tmp_path / f"of_{folder.name}", teacher=str(folder)
            ),
            TokenClassification(),
        )["train"]
        for folder in (ner_model, other)
    )
    real = same["label_weights"] > 0
    expected = same["teacher_logits"][real]
    np.testing.assert_allclose(found["teacher_logits"][real], expected, atol=1e-5)
    assert (found["teacher_logits"][~real] == 0).all()


def test_a_chooser_with_another_vocabulary_gives_the_same_logits(
    swag_model, choice_files, tmp_path
):
    other = other_vocabulary(swag_model, tmp_path / "teacher")
    same, found = (
        taught(
            swag_options(
                tmp_path / f"of_{folder.name}",
                init_checkpoint=str(swag_model),
                teacher=str(folder),
                do_train=True,
                train_file=choice_files["train_file"],
            ),
            MultipleChoice(),
        )["train"]
        for folder in (swag_model, other)
    )
    real = same["choice_mask"] > 0
    expected = same["teacher_logits"][real]
    np.testing.assert_allclose(found["teacher_logits"][real], expected, atol=1e-5)


def with_task(folder, copy, **changes):
    """The same model with other values in task.json."""
    shutil.copytree(folder, copy)
    task = json.loads((copy / "task.json").read_text())
    (copy / "task.json").write_text(json.dumps(task | changes))
    return str(copy)


def test_the_labels_of_a_teacher_may_have_another_order(student, sentence_model, tmp_path):
    assert read_task(str(sentence_model)).labels == ("bad", "good")
    teacher = with_task(sentence_model, tmp_path / "teacher", labels=["GOOD", "BAD"])
    features = taught(student(teacher=teacher))["train"]
    expected = logits_of(sentence_model, features)["logits"][:, ::-1]
    np.testing.assert_allclose(features["teacher_logits"], expected, atol=1e-5)


# ---- bad input -----------------------------------------------------------------------------------


def test_a_teacher_with_other_names_of_labels_is_an_error(student, sentence_model, tmp_path):
    teacher = with_task(sentence_model, tmp_path / "teacher", labels=["happy", "sad"])
    message = "has the 2 labels happy, sad, but the data have 2: bad, good"
    with pytest.raises(ValueError, match=message):
        teacher_and_run(student(teacher=teacher))


def test_a_teacher_with_another_number_of_labels_is_an_error(student, sentence_model, tmp_path):
    text = Path(student().train_file).read_text().replace("bad", "fair", 3)
    (tmp_path / "three.tsv").write_text(text)
    message = "has the 2 labels bad, good, but the data have 3: bad, fair, good"
    with pytest.raises(ValueError, match=message):
        teacher_and_run(student(train_file=str(tmp_path / "three.tsv")))


def test_labels_without_names_are_assumed_to_have_the_order_of_the_data(
    student, sentence_model, tmp_path, caplog
):
    teacher = with_task(sentence_model, tmp_path / "teacher", labels=["LABEL_0", "LABEL_1"])
    teacher_and_run(student(teacher=teacher))
    assert "does not name its labels (LABEL_0, LABEL_1)" in caplog.text


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("ner_model", "is for token_classification, but the model is for classification"),
        ("pretrained", "is for pretraining, but the model is for classification"),
        ("pair_model", "is for pairs of sentences, but the data are single sentences"),
    ],
)
def test_a_teacher_of_another_type_of_task_is_an_error(student, request, model, message):
    with pytest.raises(ValueError, match=message):
        teacher_and_run(student(teacher=str(request.getfixturevalue(model))))


def test_a_teacher_of_another_problem_type_is_an_error(student, sentence_model, tmp_path):
    changed = {"problem_type": "multi_label", "metric_names": ["f1_micro"]}
    teacher = with_task(sentence_model, tmp_path / "teacher", **changed)
    message = "problem_type=multi_label, but the model for single_label"
    with pytest.raises(ValueError, match=message):
        teacher_and_run(student(teacher=teacher))


def test_an_export_is_no_teacher(student, tmp_path):
    (tmp_path / "saved_model.pb").touch()
    with pytest.raises(ValueError, match=r"is an export.* Name the folder that was exported"):
        teacher_and_run(student(teacher=str(tmp_path)))


def test_a_teacher_without_a_vocabulary_is_told_where_to_put_it(
    student, sentence_model, toy_text, tmp_path
):
    folder = tmp_path / "teacher"
    convert(sentence_model, folder, format="huggingface")
    for pattern in ("vocab*", "tokenizer*", "task.json"):
        for path in folder.glob(pattern):
            path.unlink()
    message = rf"The teacher {folder} has no vocabulary\. Copy the vocab\.txt .* into its folder\.$"
    with pytest.raises(ValueError, match=message):
        teacher_and_run(student(teacher=str(folder), vocab_file=f"{toy_text}/vocab.txt"))


def test_states_need_the_same_tokenizer_and_fitting_numbers(student, sentence_model, tmp_path):
    teacher = str(other_vocabulary(sentence_model, tmp_path / "teacher"))
    for changes, message in (
        (
            {"teacher_states": "hidden", "teacher": teacher},
            r"another vocabulary or case .* or teacher_states=none",
        ),
        (
            {"teacher_states": "hidden", "teacher_layer": 2},
            r"teacher_layer is 2, but the layers of .* are 0 to 1",
        ),
        (
            {"teacher_states": "relations", "relation_heads": 3},
            r"relation_heads is 3, but must divide .* teacher, 16",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            teacher_and_run(student(**changes))


def test_answers_need_the_same_tokenizer(squad_model, squad_sets, tmp_path):
    options = squad_options(
        tmp_path / "student",
        init_checkpoint=str(squad_model),
        teacher=str(other_vocabulary(squad_model, tmp_path / "teacher")),
        do_train=True,
        train_file=str(squad_sets / "train.json"),
    )
    with pytest.raises(ValueError, match="learns from it token by token"):
        teacher_and_run(options, QuestionAnswering())


def test_a_student_larger_than_its_teacher_is_a_warning(student, caplog):
    teacher, run = teacher_and_run(student())
    teacher.check_size(run.task.build_model(run.setup.config))
    assert "larger" not in caplog.text and "smaller" not in caplog.text
    wide = dataclasses.replace(run.setup.config, hidden_size=32)
    teacher.check_size(run.task.build_model(wide))
    assert "Distillation is for models that are smaller than their teacher." in caplog.text


@pytest.mark.parametrize(("offset", "changes"), [(0, {}), (9, {}), (9, {"hard_labels": 0.0})])
def test_a_teacher_with_numbers_of_another_scale_is_a_warning(
    student, sentence_model, tmp_path, caplog, offset, changes
):
    trained = load_model(str(sentence_model))
    task = ClassificationTask((), trained.max_seq_length, problem_type="regression")
    model = task.build_model(trained.model.config)
    teacher, table = str(tmp_path / "teacher"), tmp_path / "numbers.tsv"
    model.save_pretrained(teacher, trained.tokenizer)
    texts = ["the cat sat", "a dog", "the owl sat on the log", "who ?"]
    numbers = [found["score"] + offset for found in load(teacher).predict(texts)]
    write_table(table, [(text, str(value)) for text, value in zip(texts, numbers, strict=True)])
    values = {"teacher": teacher, "train_file": str(table), "problem_type": "regression", **changes}
    taught(student(**values))
    message = "misses the labels by 9 (root mean square), their own mean by"
    assert (message in caplog.text) == (offset > 0 and not changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"temperature": 3.0},
        {"hard_labels": 0.1},
        {"teacher_states": "hidden"},
        {"unlabelled_file": "more.tsv"},
    ],
)
def test_flags_without_their_teacher_are_errors(tmp_path, changes):
    files = {"train_file": "train.tsv", "do_train": True}
    with pytest.raises(ValueError, match="has no effect without `teacher`"):
        classifier_options(tmp_path, **files, **changes)


def test_flags_without_states_are_errors(student):
    for changes in ({"teacher_layer": 1}, {"relation_heads": 2}, {"states_weight": 2.0}):
        with pytest.raises(ValueError, match="no effect without `teacher_states`"):
            student(**changes)


@pytest.mark.parametrize(
    "freeze", ["embeddings,encoder", "0-1,embeddings", "embeddings,1,pooler,0"]
)
def test_states_for_a_frozen_encoder_are_an_error(student, freeze):
    with pytest.raises(ValueError, match=f"teacher_states=hidden .*with freeze={freeze}, "):
        teacher_and_run(student(teacher_states="hidden", freeze=freeze))


def test_states_may_have_a_part_of_the_encoder_to_learn_them():
    for freeze in ("encoder", "embeddings,0", "embeddings,1-1", "pooler"):
        assert not freezes_encoder(freeze, num_hidden_layers=2)


def test_a_teacher_without_a_share_in_the_loss_is_an_error(student):
    with pytest.raises(ValueError, match="hard_labels is 1, so nothing is learned"):
        student(hard_labels=1.0)
    student(hard_labels=1.0, teacher_states="hidden")
    student(hard_labels=1.0, unlabelled_file="more.tsv")


def test_unlabelled_pairs_are_no_sentences(pair_model, mrpc_folder, tmp_path):
    options = classifier_options(
        tmp_path / "student",
        task_name="mrpc",
        data_dir=str(mrpc_folder),
        init_checkpoint=str(pair_model),
        teacher=str(pair_model),
        unlabelled_file=write_table(tmp_path / "more.tsv", moods(3, seed=1)),
        do_train=True,
    )
    with pytest.raises(ValueError, match="which are pairs of sentences: give text_b_column"):
        teacher_and_run(options)
