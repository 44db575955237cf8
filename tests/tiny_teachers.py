"""Options of a student of the `sentence_model`, and what a teacher gives for its examples."""

from types import SimpleNamespace

import pytest
from tiny_runs import sentence_options

from bert_tf.data.records import read_records
from bert_tf.finetuning.classification import Classification
from bert_tf.finetuning.distillation import load_teacher
from bert_tf.finetuning.run import Run
from bert_tf.finetuning.setup import Setup
from bert_tf.model_folder import load_model


@pytest.fixture
def student(sentence_model, mood_tables, tmp_path):
    """Options of a student with the teacher's second layer, with changes."""

    def options(name="student", **changes):
        values = {
            "teacher": str(sentence_model),
            "init_layers": "1",
            "do_eval": False,
            "do_predict": False,
            "eval_file": None,
            "predict_file": None,
            "num_train_epochs": 2.0,
        }
        return sentence_options(
            sentence_model, mood_tables, tmp_path / name, **{**values, **changes}
        )

    return options


def taught(options, program=None):
    """The features of a student's training records, in their order."""
    program = program or Classification()
    setup = Setup.for_task(options, program.task_type, default_length=program.default_length)
    task, splits = program.read(options, setup)
    teacher = load_teacher(options, setup, task)
    trainer = SimpleNamespace(strategy=setup.devices, is_chief=True)
    run = Run(options, setup, trainer, task, splits, options.output_dir)
    batches = read_records(
        [teacher.write_records(run, splits["train"])],
        teacher.student.record_features,
        batch_size=500,
        shuffle=False,
        repeat=False,
        drop_remainder=False,
    )
    (features,) = batches.as_numpy_iterator()
    return features


def logits_of(folder, features):
    """The outputs of a model for records, without bert_tf's loops."""
    model = load_model(str(folder)).model
    inputs = {name: features[name] for name in ("input_ids", "input_mask", "segment_ids")}
    return {name: value.numpy() for name, value in model(inputs, training=False).items()}
