"""Settings of run_embeddings: the defaults that a model brings, and what does not fit the examples."""

import json
import shutil

import numpy as np
import pytest
import tensorflow as tf
from tiny_embeddings import options, write
from tiny_runs import ANIMALS, checkpoint_arrays
from tiny_words_and_choices import write_json_lines

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
        (lambda: EmbeddingExample(None), "`texts` is 'None', but must be a tuple of texts"),
        (lambda: EmbeddingExample(("a", 1)), r"`texts` is \"\('a', 1\)\", but must be"),
        (lambda: EmbeddingExample(()), r"`texts` is '\(\)', but"),
        (lambda: EmbeddingExample(("a",), "sports"), "`label` is 'sports', but must be a number"),
        (lambda: ("a", "b"), "Example 1 is of type tuple, but must be of type EmbeddingExample"),
        (lambda: EmbeddingExample(("a",)), r"Example 1 has 1 texts, but .* num_texts=2 takes 2\."),
        (
            lambda: EmbeddingExample(("a", "b"), 5.0),
            r"Example 1 has the label 5, but a score is from",
        ),
        (lambda: EmbeddingExample(("a", "b", "c")), r"has 3 texts.* Use EmbeddingTask\(num_texts="),
    ],
)
def test_wrong_examples_are_refused(pretrained, tmp_path, make, message):
    task = EmbeddingTask(max_seq_length=8, loss="cosent")
    tokenizer = load(pretrained).tokenizer
    with pytest.raises((TypeError, ValueError), match=message):
        examples = [EmbeddingExample(("a", "b")), make()]
        task.write_records(examples, tokenizer, str(tmp_path / "pairs.tf_record"))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"scale": -20.0}, "scale is -20.0, but must be above 0"),
        ({"scale": float("nan")}, "scale is nan, but must be above 0 and finite"),
        ({"margin": 7}, "margin is 7, but must be above 0 and at most 2"),
        ({"pooling": "avg"}, "pooling is 'avg', but must be one of mean, max"),
        ({"projection_size": 0}, "projection_size is 0, but must be 1 or more"),
        ({"matryoshka_dims": [2, -3]}, "matryoshka_dims is -3, but must be 1 or more"),
    ],
)
def test_a_task_has_the_limits_of_the_flags(settings, message):
    with pytest.raises(ValueError, match=message):
        EmbeddingTask(8, **settings)


def test_widths_of_a_task_are_below_that_of_its_vectors():
    config = bert_tf.BertConfig.from_name("tiny", vocab_size=5)
    EmbeddingTask(8, matryoshka_dims=[config.hidden_size - 1]).build_model(config)
    task = EmbeddingTask(8, matryoshka_dims=[config.hidden_size])
    with pytest.raises(ValueError, match=r"below the width of the vectors, 128, .* Leave 128 out"):
        task.build_model(config)


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
        ("pairs", {"train_batch_size": 1}, "an anchor has no negatives"),
        ("scores", {"train_batch_size": 1}, "loss=cosent compares the examples of a batch"),
        ("classes", {"train_batch_size": 1}, "loss=batch_all_triplet compares the examples"),
        (
            "equal",
            {},
            "Every pair has the score 1, but loss=contrastive learns from different scores",
        ),
        ("equal", {"loss": "cosent"}, "Every pair has the score 1, but loss=cosent"),
        ("pairs", {"loss": "triplet"}, r"jsonl:1: loss=triplet needs a negative in every example"),
        (
            "pairs",
            {"loss": "cosent"},
            "loss=cosent is for two texts with a score, but the examples",
        ),
        (
            "scores",
            {"loss": "contrastive"},
            "loss=contrastive needs scores of 0 and 1, but found 0.1",
        ),
        ("pairs", {"margin": 0.3}, "margin=0.3 has no effect with loss=multiple_negatives_ranking"),
        ("classes", {"scale": 9.0}, "scale=9.0 has no effect with loss=batch_all_triplet"),
        ("pairs", {"data_dir": "x"}, "data_dir=x has no effect without `task_name`"),
        ("pairs", {"matryoshka_dims": "99999"}, "must be below the width of the vectors"),
        (
            "pairs",
            {"matryoshka_dims": "8,x"},
            "matryoshka_dims is '8,x', but must be whole numbers",
        ),
    ],
)
def test_settings_that_do_not_fit_the_examples_are_refused(
    pretrained, embedding_files, tmp_path, kind, changes, message
):
    rows = [{"text_a": "a owl", "text_b": f"the {animal}", "score": 1} for animal in ANIMALS]
    equal = [write_json_lines(tmp_path / "equal.jsonl", rows)]
    train = {**embedding_files, "equal": equal}[kind][0]
    given = {"do_train": True, "train_file": str(train), "init_checkpoint": str(pretrained)}
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


@pytest.mark.parametrize("wanted", ["train", "eval"])
def test_a_folder_of_sentence_transformers_has_its_longest_input(
    pretrained, embedding_files, tmp_path, wanted
):
    tokenizer = bert_tf.FullTokenizer.from_pretrained(pretrained)
    model = bert_tf.BertForSentenceEmbedding.from_pretrained(pretrained)
    model.save_pretrained(tmp_path / "theirs", tokenizer)
    (tmp_path / "theirs" / "task.json").unlink()
    (tmp_path / "theirs" / "sentence_bert_config.json").write_text('{"max_seq_length": 11}')
    given = {f"do_{wanted}": True, f"{wanted}_file": embedding_files["pairs"][0]}
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
    with pytest.raises(ValueError, match="the modules Transformer, LSTM are not supported"):
        run_embeddings(options(tmp_path / "one", **given))


def test_texts_of_classes_have_one_prefix(pretrained, embedding_files, tmp_path):
    given = {
        "do_train": True,
        "train_file": embedding_files["classes"][0],
        "query_prefix": "query: ",
    }
    with pytest.raises(ValueError, match="texts with classes are compared with each other"):
        run_embeddings(options(tmp_path, init_checkpoint=str(pretrained), **given))


@pytest.mark.parametrize("column", ["anchor", "positive"])
def test_examples_of_which_none_is_a_negative_are_refused(pretrained, tmp_path, column):
    path, other = tmp_path / "train.tsv", {"anchor": "positive", "positive": "anchor"}[column]
    path.write_text(f"{column}\t{other}\n" + "".join(f"same\ta {n}\n" for n in ANIMALS))
    given = {"train_file": str(path), "init_checkpoint": str(pretrained), "do_train": True}
    with pytest.raises(
        ValueError, match=f"Every example has the {column} 'same', so none is a neg"
    ):
        run_embeddings(options(tmp_path / "out", train_batch_size=2, **given))


def test_classes_of_one_text_each_are_refused(pretrained, tmp_path):
    path = tmp_path / "train.tsv"
    path.write_text("text\tlabel\n" + "".join(f"{name}\t{name}\n" for name in ANIMALS))
    given = {"train_file": str(path), "init_checkpoint": str(pretrained), "do_train": True}
    with pytest.raises(ValueError, match=r"Every text has a class of its own, .* label_column"):
        run_embeddings(options(tmp_path / "out", train_batch_size=2, **given))
    train = write(tmp_path / "two.tsv", "text\tlabel\n" + "a\tx\nb\tx\nc\ty\nd\ty\n")
    given |= {"train_file": train, "eval_file": str(path), "do_eval": True}
    with pytest.raises(
        ValueError, match=r"Every class of .*train\.tsv has one text.* label_column"
    ):
        run_embeddings(options(tmp_path / "other", **given))
    assert not list((tmp_path / "other").glob("model.ckpt*"))


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
        with pytest.raises(ValueError, match=f"contains a model with {name}=.*another output_dir"):
            run_embeddings(options(tmp_path / "out", **given, **changes))
    run_embeddings(options(tmp_path / "out", pooling="mean", **given))


def test_a_trainer_names_the_settings_of_its_embedder_that_the_task_lacks(
    pretrained, tmp_path, caplog
):
    folder = tmp_path / "theirs"
    model = bert_tf.BertForSentenceEmbedding.from_pretrained(pretrained, pooling="cls")
    model.save_pretrained(folder, bert_tf.FullTokenizer.from_pretrained(pretrained))

    class Mine(EmbeddingTask):
        """A task of a user."""

    def make(kind=EmbeddingTask, **settings):
        given = {"output_dir": tmp_path / "out", "num_train_steps": 1, "jit_compile": "false"}
        return bert_tf.Trainer(kind(8, **settings), init_checkpoint=folder, **given)

    make(pooling="cls")
    assert "To keep the former" not in caplog.text
    make(query_prefix="a ")
    message = "pooling='cls', query_prefix='', but the task has pooling='mean', query_prefix='a '"
    assert message in caplog.text
    (folder / "task.json").unlink()  # as in the folder of sentence-transformers
    caplog.clear()
    make(Mine)
    assert "pooling='cls', but the task has pooling='mean'" in caplog.text
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode": "lasttoken"}))
    with pytest.raises(ValueError, match=r"'lasttoken' is not supported.* with head=encoder"):
        make()
