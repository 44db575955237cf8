"""run_pretraining with a teacher, which runs in every step."""

import json
import shutil

import pytest
import tensorflow as tf
from tiny_runs import (
    Interruption,
    assert_bit_equal,
    checkpoint_arrays,
    interrupt_at,
    pretraining_options,
)

from bert_tf.finetuning.distillation import pretraining_student
from bert_tf.finetuning.setup import Setup
from bert_tf.interop.initial import initialize
from bert_tf.model_folder import load_model
from bert_tf.modeling.fused import Logits
from bert_tf.programs.run_pretraining import find_vocabulary, run_pretraining
from bert_tf.tasks.distillation import masked_words
from bert_tf.tasks.pretraining import PretrainingTask
from bert_tf.training.checkpoints import latest_checkpoint

pytestmark = pytest.mark.slow


@pytest.fixture
def student(records, toy_text, pretrained, tmp_path):
    """Options of a student of one layer."""

    def options(name="student", **changes):
        values = {
            "bert_config_file": None,
            "vocab_file": f"{toy_text}/vocab.txt",
            "init_checkpoint": str(pretrained),
            "init_layers": "0",
            "teacher": str(pretrained),
            "do_eval": False,
            "evaluate_steps": 0,
            "num_train_steps": 8,
            "num_warmup_steps": 0,
        }
        return pretraining_options(records, toy_text, tmp_path / name, **{**values, **changes})

    return options


def student_of(options):
    setup = Setup.from_options(options)
    task = PretrainingTask(options.max_seq_length, options.max_predictions_per_seq)
    _, vocab = find_vocabulary(options, setup.checkpoint)
    return pretraining_student(options, setup, task, vocab)


def test_a_student_learns_masked_words_and_relations_and_resumes_exactly(
    student, tmp_path, monkeypatch
):
    changes = {"teacher_states": "relations", "save_checkpoints_steps": 3, "num_train_steps": 60}
    run_pretraining(student("whole", **changes))
    lines = (tmp_path / "whole" / "metrics.jsonl").read_text().splitlines()
    first, last = json.loads(lines[0]), json.loads(lines[-1])
    terms = ("hard_loss", "soft_loss", "states_loss", "next_sentence_loss")
    assert last["loss"] == pytest.approx(sum(last[name] for name in terms), rel=1e-5)
    for name in ("soft_loss", "states_loss"):
        assert last[name] < first[name]
    with monkeypatch.context() as patch:
        interrupt_at(patch, 5)
        with pytest.raises(Interruption):
            run_pretraining(student("parts", **changes))
    run_pretraining(student("parts", **changes))
    found, expected = (
        checkpoint_arrays(latest_checkpoint(str(tmp_path / name))) for name in ("parts", "whole")
    )
    assert_bit_equal(found, expected)


def test_a_finished_student_does_not_need_its_teacher(student, pretrained, tmp_path, caplog):
    teacher = tmp_path / "teacher"
    shutil.copytree(pretrained, teacher)
    with caplog.at_level("INFO"):
        run_pretraining(student(teacher=str(teacher), num_train_steps=2))
    lines = [line for line in caplog.messages if str(teacher) in line]
    assert lines[0] == f"Loading the teacher, {teacher}" and "variables initialized" in lines[1]
    teacher.rename(tmp_path / "moved")
    with caplog.at_level("INFO"):
        run_pretraining(student(teacher=str(teacher), num_train_steps=2))
    assert "Nothing to train: the checkpoint has step 2" in caplog.text


@pytest.mark.parametrize("states", [pytest.param("hidden", marks=pytest.mark.long), "relations"])
def test_states_may_be_those_of_a_model_without_masked_words(
    student, sentence_model, tmp_path, states
):
    changes = {"teacher": str(sentence_model), "teacher_states": states, "hard_labels": 1.0}
    run_pretraining(student(**changes, num_train_steps=2))
    line = json.loads((tmp_path / "student" / "metrics.jsonl").read_text().splitlines()[-1])
    assert line["states_loss"] > 0 and "soft_loss" not in line


def test_the_model_of_the_teacher_has_no_soft_loss(student, records, pretrained):
    options = student(init_layers=None, hard_labels=0.0)
    learned, teacher = student_of(options)
    model = learned.build_model(teacher.model.config)
    initialize(model, str(pretrained))
    for layer in model._flatten_layers():
        if hasattr(layer, "rate"):
            layer.rate = 0.0  # no dropout
    names = [spec.name for spec in learned.features]
    sizes = {spec.name: spec.shape for spec in learned.features}
    features = {name: tf.ones((2, *sizes[name]), tf.int32) for name in names}
    features["masked_lm_weights"] = tf.ones((2, *sizes["masked_lm_weights"]))
    inputs = {name: features[name] for name in learned.input_names}
    (soft,) = (loss for loss in learned.losses if loss.name == "soft_loss")
    outputs = learned.training_outputs(model, inputs)
    assert float(soft.total(outputs, features)) == pytest.approx(0, abs=1e-4)
    outputs["masked_lm_logits"] = -outputs["masked_lm_logits"]
    assert float(soft.total(outputs, features)) > 1


def test_the_fused_logits_of_a_training_step_have_the_same_soft_loss():
    product, bias = tf.random.stateless_normal((2, 3, 5), (1, 2)), tf.constant([1.0, 2, 0, -1, 3])
    outputs = {"teacher_masked_lm_logits": tf.random.stateless_normal((2, 3, 5), (3, 4))}
    losses = masked_words().losses
    whole = losses({**outputs, "masked_lm_logits": product + bias}, {}, 2.0)
    parts = losses({**outputs, "masked_lm_logits": Logits(product, bias)}, {}, 2.0)
    tf.debugging.assert_near(whole, parts, atol=1e-5)


def test_a_teacher_must_have_a_masked_lm_head_and_the_vocabulary(
    student, sentence_model, pretrained, tmp_path
):
    with pytest.raises(ValueError, match=r"has no masked-LM head.*hard_labels=1"):
        student_of(student(teacher=str(sentence_model)))
    states = {"hard_labels": 1.0, "teacher_states": "hidden"}
    learned, _ = student_of(student(teacher=str(sentence_model), **states))
    names = [loss.name for loss in learned.losses]
    assert names == ["states_loss", "masked_lm_loss", "next_sentence_loss"]
    other = tmp_path / "other"
    shutil.copytree(pretrained, other)
    tokens = (other / "vocab.txt").read_text().splitlines()
    tokens[-1], tokens[-2] = tokens[-2], tokens[-1]
    (other / "vocab.txt").write_text("\n".join(tokens) + "\n")
    assert load_model(str(other)).tokenizer.vocab  # is a model
    with pytest.raises(ValueError, match="has another vocabulary than the records or the model"):
        student_of(student(teacher=str(other)))
