"""Settings of run_embeddings: the defaults that a model brings, and what does not fit the examples."""

import json
import shutil

import numpy as np
import pytest
import tensorflow as tf
from tiny_embeddings import options
from tiny_runs import checkpoint_arrays

import bert_tf
from bert_tf.finetuning.embeddings import Embeddings, run_embeddings
from bert_tf.finetuning.setup import Setup
from bert_tf.model_files import task_text
from bert_tf.predictor import load
from bert_tf.tasks.embeddings import EmbeddingExample, EmbeddingTask
from bert_tf.training.checkpoints import latest_checkpoint


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: EmbeddingExample(None), "`texts`"),
        (lambda: EmbeddingExample("Who won?", "Denver."), "`texts`"),
        (lambda: EmbeddingExample(("a", 1)), "`texts`"),
        (lambda: EmbeddingExample(()), "`texts`"),
        (lambda: EmbeddingExample(("a",), "sports"), "`label`"),
        (lambda: ("a", "b"), "Example 1 .*tuple"),
        (lambda: EmbeddingExample(("a",)), "Example 1 .*num_texts"),
        (lambda: EmbeddingExample(("a", "b"), 5.0), "Example 1 .*label 5"),
        (lambda: EmbeddingExample(("a", "b", "c")), "Example 1 .*num_texts"),
    ],
)
def test_write_records_rejects_examples(pretrained, tmp_path, make, message):
    task = EmbeddingTask(max_seq_length=8, loss="cosent")
    tokenizer = load(pretrained).tokenizer
    with pytest.raises((TypeError, ValueError), match=message):
        examples = [EmbeddingExample(("a", "b")), make()]
        task.write_records(examples, tokenizer, str(tmp_path / "pairs.tf_record"))


@pytest.mark.parametrize(
    "settings",
    [
        {"scale": -20.0},
        {"scale": float("nan")},
        {"pooling": "avg"},
        {"projection_size": 0},
        {"matryoshka_dims": [2, -3]},
    ],
)
def test_a_task_rejects_settings_beyond_their_limits(settings):
    (name,) = settings
    with pytest.raises(ValueError, match=name):
        EmbeddingTask(8, **settings)


def test_records_give_texts_in_other_case_one_number(pretrained, tmp_path):
    task, tokenizer = EmbeddingTask(max_seq_length=8), load(pretrained).tokenizer
    found = []
    for pairs in ([("Who ?", "a man"), ("who  ?", "A man")], [("What ?", "a man .")]):
        path = str(tmp_path / f"{len(pairs)}.tf_record")  # a trainer may read several files
        task.write_records([EmbeddingExample(pair) for pair in pairs], tokenizer, path)
        for each in tf.data.TFRecordDataset(path):
            features = tf.train.Example.FromString(each.numpy()).features.feature
            found.append(list(features["text_numbers"].int64_list.value))
    assert found[0] == found[1]
    assert len({number for row in found for number in row}) == 4
    assert all(0 < number < 2**31 for row in found for number in row)


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        ("pairs", {"train_batch_size": 1}, "train_batch_size"),
        ("scores", {"train_batch_size": 1}, "train_batch_size"),
        ("classes", {"train_batch_size": 1}, "train_batch_size"),
        ("pairs", {"loss": "triplet"}, r"jsonl:1: loss=triplet"),
        ("pairs", {"loss": "cosent"}, "loss: cosent"),
        ("scores", {"loss": "contrastive"}, "loss: contrastive .*0.1"),
        ("pairs", {"matryoshka_dims": "99999"}, "matryoshka_dims"),
        ("pairs", {"matryoshka_dims": "8,x"}, "matryoshka_dims"),
        ("classes", {"query_prefix": "query: "}, "query_prefix"),
    ],
)
def test_run_embeddings_rejects_settings_for_other_examples(
    pretrained, embedding_files, tmp_path, kind, changes, message
):
    train = embedding_files[kind][0]
    given = {"do_train": True, "train_file": train, "init_checkpoint": str(pretrained)}
    with pytest.raises(ValueError, match=message):
        run_embeddings(options(tmp_path / "out", **given, **changes))


@pytest.mark.usefixtures("steps_without_training")
def test_settings_of_the_model_are_the_defaults(pretrained, embedding_files, tmp_path):
    changes = {"normalize": False, "scale": 7.0, "matryoshka_dims": "4", "query_prefix": "a "}
    given = {"do_train": True, "train_file": embedding_files["pairs"][0], "num_train_epochs": 1.0}
    run_embeddings(options(tmp_path / "one", init_checkpoint=str(pretrained), **given, **changes))
    changes = {"matryoshka_dims": "", "max_seq_length": None}
    run_embeddings(options(tmp_path / "two", init_checkpoint=f"{tmp_path}/one", **given, **changes))
    one, two = (json.loads((tmp_path / name / "task.json").read_text()) for name in ("one", "two"))
    assert one["normalize"] is False and one["scale"] == 7 and one["matryoshka_dims"] == [4]
    assert two == one | {"matryoshka_dims": []}


def test_a_folder_of_sentence_transformers_has_its_longest_input(
    pretrained, embedding_files, tmp_path
):
    tokenizer = bert_tf.FullTokenizer.from_pretrained(pretrained)
    model = bert_tf.BertForSentenceEmbedding.from_pretrained(pretrained)
    model.save_pretrained(tmp_path / "theirs", tokenizer)
    (tmp_path / "theirs" / "task.json").unlink()
    (tmp_path / "theirs" / "sentence_bert_config.json").write_text('{"max_seq_length": 11}')
    given = {"do_eval": True, "eval_file": embedding_files["pairs"][0]}
    for length, expected in ((None, 11), (13, 13)):
        given |= {"init_checkpoint": str(tmp_path / "theirs"), "max_seq_length": length}
        run = options(tmp_path / "out", **given)
        task, _ = Embeddings().read(run, Setup.for_task(run, "embeddings"))
        assert task.max_seq_length == expected


def test_a_folder_with_other_modules_needs_a_pooling(pretrained, embedding_files, tmp_path):
    folder = shutil.copytree(pretrained, tmp_path / "folder")
    types = [
        {"type": f"sentence_transformers.models.{n}", "path": ""} for n in ("Transformer", "LSTM")
    ]
    (folder / "modules.json").write_text(json.dumps(types))
    given = {
        "do_train": True,
        "train_file": embedding_files["pairs"][0],
        "init_checkpoint": str(folder),
    }
    with pytest.raises(ValueError, match="Transformer, LSTM"):
        run_embeddings(options(tmp_path / "one", **given))


def test_a_task_with_arguments_of_its_own_begins_with_its_folder(pretrained, tmp_path):
    class Mine(EmbeddingTask):
        def arguments(self):
            return super().arguments() | {"mine": 1}

    folder = shutil.copytree(pretrained, tmp_path / "theirs")
    (folder / "task.json").write_text(task_text(Mine(8)))
    given = {"output_dir": tmp_path / "out", "num_train_steps": 1, "jit_compile": "false"}
    model = bert_tf.Trainer(Mine(8), init_checkpoint=folder, **given).model
    expected = checkpoint_arrays(latest_checkpoint(str(folder)))["bert/pooler/dense/kernel"]
    np.testing.assert_array_equal(model.bert.pooler.kernel, expected)


@pytest.mark.usefixtures("steps_without_training")
def test_a_folder_keeps_its_pooling_and_prefixes(pretrained, embedding_files, tmp_path):
    given = {
        "train_file": embedding_files["pairs"][0],
        "init_checkpoint": str(pretrained),
        "do_train": True,
    }
    run_embeddings(options(tmp_path / "out", **given))
    for changes in ({"pooling": "cls"}, {"query_prefix": "query: "}, {"normalize": False}):
        (name,) = changes
        with pytest.raises(ValueError, match=f"{name}: .*output_dir"):
            run_embeddings(options(tmp_path / "out", **given, **changes))
    run_embeddings(options(tmp_path / "out", pooling="mean", **given))
