"""bert_tf.Trainer: the training loop from Python, on record files and on datasets."""

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf.finetuning import loop
from bert_tf.model_files import write_files
from bert_tf.tasks.classification import ClassificationTask
from bert_tf.training.batch_trainer import BatchTrainer
from bert_tf.training.checkpoints import save_checkpoint

TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "good", "bad", "cat", "dog"]
CONFIG = bert_tf.BertConfig(
    vocab_size=len(TOKENS),
    hidden_size=8,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=16,
    max_position_embeddings=8,
    type_vocab_size=2,
)
TOKENIZER = bert_tf.FullTokenizer(TOKENS)
TEXTS = ["good cat", "bad cat", "good dog", "bad dog"] * 4
LABELS = [1, 0, 1, 0] * 4
SETTINGS = {
    "config": CONFIG,
    "tokenizer": TOKENIZER,
    "learning_rate": 0.02,
    "train_batch_size": 8,
    "jit_compile": "false",
}


def task():
    return bert_tf.ClassificationTask(["bad", "good"], max_seq_length=8)


def features():
    batch = TOKENIZER(TEXTS, max_length=8, pad_to_max_length=True)
    return {
        **batch,
        "label_ids": np.array(LABELS, np.int32),
        "is_real_example": np.ones(len(TEXTS), np.int32),
    }


@pytest.fixture
def record_file(tmp_path):
    path, rows = str(tmp_path / "train.tf_record"), features()
    with bert_tf.RecordWriter(path, task().features) as writer:
        for index in range(len(TEXTS)):
            writer.write({name: values[index].tolist() for name, values in rows.items()})
    return path


def trainer_of(folder, **options):
    return bert_tf.Trainer(task(), output_dir=folder, num_train_steps=2, **SETTINGS, **options)


def weights(trainer):
    return [np.asarray(variable) for variable in trainer.model.weights]


def test_it_learns_from_record_files_and_leaves_a_folder_that_can_be_asked(record_file, tmp_path):
    folder, record_file = tmp_path / "out", Path(record_file)
    trainer = bert_tf.Trainer(task(), output_dir=folder, num_train_steps=60, **SETTINGS)
    results = trainer.fit(record_file, evaluate=record_file)
    assert results["global_step"] == 60
    assert results["eval_accuracy"] == 1.0
    answers = bert_tf.load(folder).predict(["good dog", "bad cat"])
    assert [answer["label"] for answer in answers] == ["good", "bad"]


def test_a_tokenizer_of_another_case_than_in_the_folder_is_refused(tmp_path):
    trainer = trainer_of(tmp_path)
    write_files(str(tmp_path), trainer._files())
    save_checkpoint(str(tmp_path), {"v": np.zeros(2)}, step=1)
    cased = bert_tf.FullTokenizer(TOKENS, do_lower_case=False)
    with pytest.raises(ValueError, match="do_lower_case"):
        bert_tf.Trainer(
            task(), output_dir=tmp_path, num_train_steps=2, **SETTINGS | {"tokenizer": cased}
        )


@pytest.mark.usefixtures("steps_without_training")
def test_a_run_in_two_parts_has_the_batches_of_one(tmp_path, monkeypatch, caplog):
    take_steps, taken = BatchTrainer.take_steps, []

    def noted(trainer, iterator, steps, *args):
        batches = [next(iterator) for _ in range(steps)]
        taken.extend(batch["input_ids"].numpy().tolist() for batch in batches)
        return take_steps(trainer, iter(batches), steps, *args)

    monkeypatch.setattr(BatchTrainer, "take_steps", noted)
    dataset = tf.data.Dataset.from_tensor_slices(features()).batch(5, drop_remainder=True)
    whole, parts = (
        {"output_dir": str(tmp_path / name), "num_train_steps": 6, **SETTINGS}
        for name in ("whole", "parts")
    )
    assert bert_tf.Trainer(task(), **whole).fit(dataset) == {"global_step": 6}
    bert_tf.Trainer(task(), **{**parts, "num_train_steps": 5}).fit(dataset)
    bert_tf.Trainer(task(), **parts).fit(dataset)
    assert taken[6:] == taken[:6] and taken[5] not in taken[3:5]
    assert "train_batch_size" not in caplog.text  # here 8 for batches of 5


@pytest.mark.usefixtures("steps_without_training")
def test_a_dataset_of_unknown_size_is_evaluated_whole(tmp_path):
    dataset = tf.data.Dataset.from_tensor_slices(features()).batch(4)
    trainer = bert_tf.Trainer(task(), output_dir=str(tmp_path), num_train_steps=2, **SETTINGS)
    trainer.fit(dataset)
    expected = trainer.evaluate(dataset)
    found = trainer.evaluate(dataset.filter(lambda batch: True))
    assert found == pytest.approx(expected)


@pytest.mark.usefixtures("steps_without_training")
def test_a_head_for_the_same_labels_in_another_order_is_loaded_in_that_of_the_task(
    record_file, tmp_path, caplog
):
    folder = str(tmp_path / "out")
    first = bert_tf.Trainer(task(), output_dir=folder, num_train_steps=2, **SETTINGS)
    first.model.weights[-1].assign([1.0, 2.0])
    first.fit(record_file)
    kernel, bias = weights(first)[-2:]

    def begun_with(labels):
        return bert_tf.Trainer(
            bert_tf.ClassificationTask(labels, max_seq_length=8),
            output_dir=tmp_path / "other",
            num_train_steps=2,
            init_checkpoint=folder,
            **SETTINGS,
        )

    found = weights(begun_with(["good", "bad"]))[-2:]
    np.testing.assert_array_equal(found[0], kernel[::-1])
    np.testing.assert_array_equal(found[1], bias[::-1])
    begun_with(["cat", "dog"])
    assert "is a classifier for the labels bad, good, but those of the data are cat" in caplog.text


@pytest.mark.usefixtures("steps_without_training")
def test_a_task_with_arguments_of_its_own_begins_with_its_folder(record_file, tmp_path):
    class Mine(ClassificationTask):
        def arguments(self):
            return super().arguments() | {"mine": 1}

    given = {"num_train_steps": 2, **SETTINGS}
    own, folder = Mine(["bad", "good"], max_seq_length=8), tmp_path / "out"
    first = bert_tf.Trainer(own, output_dir=folder, **given)
    first.model.weights[-1].assign([1.0, 2.0])
    first.fit(record_file)
    assert bert_tf.Trainer(own, output_dir=folder, **given)._loop.step == 2
    second = bert_tf.Trainer(own, output_dir=tmp_path / "x", init_checkpoint=folder, **given)
    np.testing.assert_array_equal(weights(second)[-1], weights(first)[-1])


@pytest.mark.usefixtures("steps_without_training")
@pytest.mark.parametrize(
    ("other", "message"),
    [
        (
            bert_tf.ClassificationTask(["good", "bad"], 8),
            "labels",
        ),
        (
            bert_tf.ClassificationTask(["bad", "good"], 8, problem_type="multi_label"),
            "problem_type",
        ),
        (
            bert_tf.TokenClassificationTask(["bad", "good"], 8),
            "token_classification",
        ),
    ],
)
def test_another_task_than_in_the_folder_is_refused(record_file, tmp_path, other, message):
    trainer_of(tmp_path / "out").fit(record_file)
    given = {"output_dir": tmp_path / "out", "num_train_steps": 3, **SETTINGS}
    with pytest.raises(ValueError, match=message):
        bert_tf.Trainer(other, **given)
    longer = bert_tf.ClassificationTask(["bad", "good"], max_seq_length=7)
    assert bert_tf.Trainer(longer, **given)._loop.step == 2


@pytest.mark.parametrize("name", ["label_ids", "is_real_example"])
def test_labels_and_weights_of_another_rank_are_an_error(tmp_path, name):
    batches = features()
    batches[name] = batches[name][:, None]  # losses of a regression would be [B, B]
    dataset = tf.data.Dataset.from_tensor_slices(batches).batch(4)
    with pytest.raises(ValueError, match=name):
        trainer_of(tmp_path).fit(dataset)


@pytest.mark.parametrize(("label", "dtype"), [(-1, np.int32), (2, np.int64)])
def test_labels_that_are_no_ids_of_the_task_are_an_error(tmp_path, label, dtype):
    batches = features() | {"label_ids": np.array([*LABELS[1:], label], dtype)}
    dataset = tf.data.Dataset.from_tensor_slices(batches).batch(16)
    trainer = trainer_of(tmp_path)
    with pytest.raises(ValueError, match="label_ids"):
        trainer.fit(dataset)
    with pytest.raises(ValueError, match=f"label such as {label}"):
        trainer.evaluate(dataset)


@pytest.mark.usefixtures("steps_without_training")
def test_a_dataset_without_end_is_for_training_alone(tmp_path):
    def endless():
        while True:
            yield {name: values[:4] for name, values in features().items()}

    batches = tf.data.Dataset.from_tensor_slices(features()).batch(4)
    spec = {n: tf.TensorSpec([4, *s.shape[1:]], s.dtype) for n, s in batches.element_spec.items()}
    dataset = tf.data.Dataset.from_generator(endless, output_signature=spec)
    trainer = bert_tf.Trainer(task(), output_dir=str(tmp_path), num_train_steps=2, **SETTINGS)
    with pytest.raises(ValueError, match="repeat"):
        trainer.fit(dataset, evaluate=batches.repeat())
    assert trainer.fit(dataset) == {"global_step": 2}


@pytest.mark.usefixtures("steps_without_training")
def test_the_same_command_again_keeps_what_is_noted_of_the_training(tmp_path):
    data = tf.data.Dataset.from_tensor_slices(features()).batch(8)
    given = {**SETTINGS, "output_dir": tmp_path, "num_train_steps": 2}
    bert_tf.Trainer(task(), **given).fit(data)
    files = [tmp_path / name for name in ("training.json", "README.md")]
    before = [file.read_text() for file in files]
    bert_tf.Trainer(task(), **{**given, "learning_rate": 0.5}).fit(data)
    assert [file.read_text() for file in files] == before


def test_the_last_step_is_evaluated_once(tmp_path, monkeypatch):
    run_model, evaluated = loop.run_model, []

    def noted(trainer, *args):
        evaluated.append(trainer.step)
        return run_model(trainer, *args)

    monkeypatch.setattr(loop, "run_model", noted)
    data = tf.data.Dataset.from_tensor_slices(features()).batch(8)
    given = {"evaluate_steps": 1}
    trainer = trainer_of(tmp_path, **given)
    results = trainer.fit(data, evaluate=data)
    assert evaluated == [1, 2]
    assert trainer.evaluate(data) == results
    assert trainer_of(tmp_path, **given).evaluate(data) == pytest.approx(results)


@pytest.mark.parametrize(
    ("change", "error", "name"),
    [
        ({"learning_rat": 1.0}, TypeError, "learning_rat"),
        ({"config": None}, ValueError, "config"),
        ({"best_metric": "eval_acuracy", "evaluate_steps": 1}, ValueError, "best_metric"),
    ],
)
def test_a_wrong_argument_is_named(tmp_path, change, error, name):
    values = {"output_dir": str(tmp_path), "num_train_steps": 2, **SETTINGS, **change}
    with pytest.raises(error, match=name):
        bert_tf.Trainer(task(), **values)


@pytest.mark.parametrize("name", ["evaluate_steps", "pack_sequences"])
def test_options_that_a_dataset_cannot_fulfil_are_errors(tmp_path, name):
    data = tf.data.Dataset.from_tensor_slices(features()).batch(8)
    with pytest.raises(ValueError, match=name):
        trainer_of(tmp_path, **{name: True}).fit(data)
