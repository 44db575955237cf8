"""Options of a student of the `sentence_model`, and what a teacher gives for its examples."""

from types import SimpleNamespace

import numpy as np
import pytest
from tiny_runs import checkpoint_arrays, sentence_options

from bert_tf.data.records import read_records
from bert_tf.finetuning.classification import Classification
from bert_tf.finetuning.distillation import Teacher
from bert_tf.finetuning.run import Run
from bert_tf.finetuning.setup import Setup
from bert_tf.model_files import model_files, write_files
from bert_tf.model_folder import load_model
from bert_tf.training.checkpoints import latest_checkpoint, save_checkpoint, training_variables


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


def weights(folder):
    """The variables of the newest checkpoint."""
    return checkpoint_arrays(latest_checkpoint(str(folder)))


def teacher_and_run(options, program=None):
    """What `fine_tune` makes before the training, without a student's model."""
    program = program or Classification()
    setup = Setup.for_task(options, program.task_type, default_length=program.default_length)
    task, splits = program.read(options, setup)
    teacher = Teacher.for_task(options, setup, task, all_labelled="unlabelled" not in splits)
    trainer = SimpleNamespace(strategy=setup.devices, is_chief=True)
    return teacher, Run(options, setup, trainer, task, splits, options.output_dir)


def taught(options, program=None):
    """Name of a split -> the features of its records, in their order."""
    teacher, run = teacher_and_run(options, program)
    found = {}
    for name in ("train", "unlabelled"):
        if name in run.splits:
            files = [teacher.records(run, run.splits[name], name)]
            batches = read_records(
                files,
                teacher.learned.record_features,
                batch_size=500,
                shuffle=False,
                repeat=False,
                drop_remainder=False,
            )
            (found[name],) = batches.as_numpy_iterator()
    return found


def logits_of(folder, features):
    """The outputs of a model for records, without bert_tf's loops."""
    model = load_model(str(folder)).model
    inputs = {name: features[name] for name in ("input_ids", "input_mask", "segment_ids")}
    return {name: value.numpy() for name, value in model(inputs, training=False).items()}


def other_vocabulary(folder, copy):
    """The same model with its WordPieces, and so the rows of its table, in reverse order."""
    trained = load_model(str(folder))
    table = trained.model.bert.embeddings.word_embeddings
    vocab = list(trained.tokenizer.vocab)
    table.assign(np.concatenate([np.asarray(table)[: len(vocab)][::-1], table[len(vocab) :]]))
    copy.mkdir()
    write_files(str(copy), model_files(trained.model.config, trained.task, vocab[::-1], True))
    save_checkpoint(str(copy), training_variables(trained.model, None), step=1)
    return copy
