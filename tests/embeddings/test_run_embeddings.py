"""run_embeddings: metrics, predictions, prefixes, the settings that a model brings, and bad input."""

import json

import numpy as np
import pytest
import tensorflow as tf
from helpers import read_json_lines, read_results, refused, write
from models import DATA, golden, options, train

import bert_tf
from bert_tf.embeddings.data import read_examples
from bert_tf.embeddings.run_embeddings import EmbeddingOptions, make_task, run_embeddings
from bert_tf.embeddings.task import EmbeddingExample, EmbeddingTask
from bert_tf.options import make_options
from bert_tf.prediction.predictor import load
from bert_tf.tasks.distillation import load_teacher
from bert_tf.tasks.setup import resolve

KINDS = ("pairs", "scores")
SCORED = {"anchor_column": "text_a", "positive_column": "text_b"}
PLAIN = ("init_layers", "gradient_accumulation_steps", "matryoshka_dims")
PLAIN = dict.fromkeys((*PLAIN, "query_prefix", "document_prefix"))


def plain_options(output_dir, **changes):
    """Options that do only what `changes` say, with the initial weights of `pretrained`."""
    values = {"init_checkpoint": str(golden("pretrained")), "max_seq_length": 15, **changes}
    values |= {"train_batch_size": changes.get("train_batch_size", 16), "jit_compile": "false"}
    if any(str(value).startswith(str(DATA / "scores")) for value in changes.values()):
        values |= SCORED
    return make_options(EmbeddingOptions, output_dir=str(output_dir), **values)


def read_task(run):
    types, splits = read_examples(run.options)
    return make_task(run, types, splits), splits


def file_of(kind, split="train"):
    return str(DATA / f"{kind}/{split}.jsonl")


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


# ------------------------------------------------------------------------------------------ metrics


def test_a_smaller_width_has_the_metric_of_the_first_numbers_of_each_vector():
    relevant: dict[str, set[str]] = {}
    rows = read_json_lines(file_of("pairs", "dev"))
    for row in rows:
        relevant.setdefault(row["anchor"], set()).add(row["positive"])
    documents = list(dict.fromkeys(row["positive"] for row in rows))
    model, gains = load(golden("embedder")), []
    queries = unit(model.embed(list(relevant), as_query=True)[:, :4])
    found = unit(model.embed(documents)[:, :4])
    for wanted, cosines in zip(relevant.values(), queries @ found.T, strict=True):
        best = np.argsort(-cosines)[:10]
        discounts = 1 / np.log2(np.arange(2, 12))
        gain = sum(d for d, i in zip(discounts, best, strict=False) if documents[i] in wanted)
        gains.append(gain / discounts[: len(wanted)].sum())
    expected = read_results(golden("embedder"))["eval_ndcg@10_dim_4"]
    assert np.mean(gains) == pytest.approx(expected, abs=1e-6)


def test_predictions_are_the_best_documents_of_each_query():
    found = read_json_lines(golden("embedder") / "test_predictions.jsonl")
    rows = read_json_lines(file_of("pairs", "dev"))
    assert [line["query"] for line in found] == list(dict.fromkeys(r["anchor"] for r in rows))
    model = load(golden("embedder"))
    documents = list(dict.fromkeys(row["positive"] for row in rows))
    cosines = model.embed([found[0]["query"]], as_query=True) @ model.embed(documents).T
    assert found[0]["documents"][0]["text"] == documents[int(cosines.argmax())]
    assert found[0]["documents"][0]["score"] == pytest.approx(float(cosines.max()), abs=1e-5)
    mrr = read_results(golden("embedder"))["eval_mrr@10"]
    assert f"test_mrr@10 = {mrr}\n" in (golden("embedder") / "test_results.txt").read_text()


@pytest.mark.night
@pytest.mark.parametrize("given", [{}, {"label_column": "score"}])
def test_pairs_without_scores_get_cosines(tmp_path, given, eagerly):
    file = write(tmp_path / "t.tsv", "text_a\ttext_b\na owl\tthe owl\na cat\tthe dog\n")
    given = {"do_predict": True, "predict_file": file, **given, **SCORED}
    if "label_column" not in given:  # with scores; else the flag shows what is wanted
        given |= {"do_eval": True, "eval_file": file_of("scores", "dev")}
    run_embeddings(plain_options(tmp_path, **given))
    first, second = read_json_lines(tmp_path / "test_predictions.jsonl")
    assert first["texts"] == ["a owl", "the owl"] and second["texts"] == ["a cat", "the dog"]
    vectors = load(golden("pretrained")).embed(["a owl", "the owl"])
    assert first["score"] == pytest.approx(float(vectors[0] @ vectors[1]), abs=1e-5)
    assert (tmp_path / "test_results.txt").read_text() == "global_step = 0\n"


# ----------------------------------------------------------------------------------------- teachers


def test_an_encoder_alone_teaches_the_means_of_its_tokens(tmp_path):
    pretrained, folder = golden("pretrained"), tmp_path / "encoder"
    encoder = bert_tf.BertModel.from_pretrained(str(pretrained))
    tokenizer = bert_tf.FullTokenizer.from_pretrained(str(pretrained))
    encoder.save_pretrained(folder, tokenizer, format="tf1")
    given = {"train_file": file_of("pairs"), "do_train": True, "teacher": str(folder)}
    made = plain_options(tmp_path / "out", **given)
    setup = resolve(made, "embeddings")
    task, splits = read_task(setup)
    own = task, setup.tokenizer, setup.strategy, setup.policy
    teacher = load_teacher(made.fine_tuning, *own).model
    texts = [example.texts[0] for example in splits["train"]][:20]
    batch = tokenizer(texts, max_length=15, pad_to_max_length=True)
    inputs = {name: values[:, None] for name, values in batch.items()}
    found = unit(np.asarray(teacher(inputs, training=False)["embedding"])[:, 0])
    np.testing.assert_allclose(found, load(folder).embed(texts), atol=1e-4)


def test_a_teacher_with_another_prefix_is_refused(tmp_path):
    with refused("teacher") as error:
        train("embedder", tmp_path, teacher=str(golden("embedder")), query_prefix="")
    assert "query_prefix" in str(error.value)


# --------------------------------------------------------------------------- the settings of a model


@pytest.mark.night
def test_settings_of_the_model_are_the_defaults(tmp_path, eagerly):
    given = {"num_train_epochs": 0.25, "do_eval": False, "do_predict": False}
    changes = {"normalize": False, "scale": 7.0, "query_prefix": "a ", "document_prefix": None}
    train("embedder", tmp_path / "one", **given, **changes)
    changes = PLAIN | {"matryoshka_dims": "", "max_seq_length": None}
    train("embedder", tmp_path / "two", init_checkpoint=f"{tmp_path}/one", **given, **changes)
    one, two = (json.loads((tmp_path / name / "task.json").read_text()) for name in ("one", "two"))
    assert one["normalize"] is False and one["scale"] == 7 and one["matryoshka_dims"] == [4]
    assert two == one | {"matryoshka_dims": []}


def test_a_folder_keeps_its_pooling_and_prefixes(tmp_path):
    for name, value in (("pooling", "cls"), ("query_prefix", "query: "), ("normalize", False)):
        with refused("output_dir") as error:
            train("embedder", golden("embedder"), **{name: value})
        assert f"{name}: " in str(error.value)
    given = options("embedder", golden("embedder"), **PLAIN | {"init_layers": "0"}, pooling="mean")
    task, _ = read_task(resolve(given, "embeddings"))
    assert (task.query_prefix, task.document_prefix) == ("the ", "a ")


def test_records_give_texts_in_other_case_one_number(tmp_path):
    task, tokenizer = EmbeddingTask(max_seq_length=8), load(golden("pretrained")).tokenizer
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


# ----------------------------------------------------------------------------------------- bad input


def test_write_records_rejects_examples(tmp_path):
    task = EmbeddingTask(max_seq_length=8, loss="cosent")
    tokenizer = bert_tf.FullTokenizer.from_pretrained(golden("pretrained"))
    for make, message in (
        (lambda: EmbeddingExample("Who won?", "Denver."), "`texts`"),
        (lambda: EmbeddingExample(("a",)), "Example 1"),
        (lambda: EmbeddingExample(("a", "b"), 5.0), "Example 1"),
        (lambda: EmbeddingExample(("a", "b", "c")), "Example 1"),
    ):
        with pytest.raises((TypeError, ValueError), match=message):
            examples = [EmbeddingExample(("a", "b")), make()]
            task.write_records(examples, tokenizer, str(tmp_path / "pairs.tf_record"))


def test_settings_beyond_their_limits_are_refused(tmp_path):
    for settings in (
        {"scale": -20.0},
        {"scale": float("nan")},
        {"pooling": "avg"},
        {"projection_size": 0},
        {"matryoshka_dims": [2, -3]},
    ):
        with refused(*settings):
            EmbeddingTask(8, **settings)
    for kind, changes, name in (
        *((kind, {"train_batch_size": 1}, "train_batch_size") for kind in KINDS),
        ("pairs", {"loss": "cosent"}, "loss"),
        ("scores", {"loss": "contrastive"}, "loss"),
        ("pairs", {"matryoshka_dims": "99999"}, "matryoshka_dims"),
    ):
        given = {"do_train": True, "train_file": file_of(kind), **changes}
        with refused(name):
            run_embeddings(plain_options(tmp_path / "out", **given))
