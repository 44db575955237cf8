"""run_embeddings: train, evaluate, resume, predict; and the model in other formats."""

import functools
import json
from pathlib import Path

import numpy as np
import pytest
from tiny_embeddings import options, write
from tiny_runs import ANIMALS, PLACES, read_results
from tiny_teachers import taught
from tiny_words_and_choices import write_json_lines

import bert_tf
from bert_tf.finetuning.embeddings import Embeddings, run_embeddings
from bert_tf.finetuning.embeddings_data import read_examples
from bert_tf.predictor import load
from bert_tf.tasks.embeddings import EmbeddingTask

TEXTS = ["the owl", "a calm dog in the barn"]


@pytest.fixture(scope="module")
def embedder(pretrained, embedding_files, tmp_path_factory):
    """A model with everything: prefixes, smaller widths, parts of the batch."""
    folder = tmp_path_factory.mktemp("embedder")
    train, dev = embedding_files["pairs"]
    run_embeddings(
        options(
            folder,
            init_checkpoint=str(pretrained),
            init_layers="0",  # its graph is traced in less time
            do_train=True,
            do_eval=True,
            do_predict=True,
            train_file=train,
            eval_file=dev,
            predict_file=dev,
            num_train_epochs=6.0,
            gradient_accumulation_steps=2,
            matryoshka_dims="4",
            query_prefix="the ",
            document_prefix="a ",
        )
    )
    return folder


def test_what_can_be_learned_is_learned(embedder):
    results = read_results(embedder)
    assert results["eval_ndcg@10"] > 0.9
    assert {"eval_mrr@10", "eval_map@100", "eval_recall@1", "global_step"} <= set(results)
    task = json.loads((embedder / "task.json").read_text())
    assert task["task"] == "embeddings" and task["matryoshka_dims"] == [4]


def test_a_smaller_width_has_the_metric_of_the_first_numbers_of_each_vector(
    embedder, embedding_files
):
    rows = [json.loads(line) for line in Path(embedding_files["pairs"][1]).read_text().splitlines()]
    relevant: dict[str, set[str]] = {}
    for row in rows:
        relevant.setdefault(row["anchor"], set()).add(row["positive"])
    documents = list(dict.fromkeys(row["positive"] for row in rows))
    model = load(str(embedder))
    queries, found = (
        vectors[:, :4] / np.linalg.norm(vectors[:, :4], axis=1, keepdims=True)
        for vectors in (model.embed(list(relevant), as_query=True), model.embed(documents))
    )
    gains = []
    for wanted, cosines in zip(relevant.values(), queries @ found.T, strict=True):
        best = np.argsort(-cosines)[:10]
        discounts = 1 / np.log2(np.arange(2, 12))
        gain = sum(d for d, i in zip(discounts, best, strict=False) if documents[i] in wanted)
        gains.append(gain / discounts[: len(wanted)].sum())
    assert read_results(embedder)["eval_ndcg@10_dim_4"] == pytest.approx(np.mean(gains), abs=1e-6)


def test_predictions_are_the_best_documents_of_each_query(embedder, embedding_files):
    lines = (embedder / "test_predictions.jsonl").read_text().splitlines()
    found = [json.loads(line) for line in lines]
    rows = [json.loads(line) for line in Path(embedding_files["pairs"][1]).read_text().splitlines()]
    assert [line["query"] for line in found] == list(dict.fromkeys(r["anchor"] for r in rows))
    model = load(str(embedder))
    documents = list(dict.fromkeys(row["positive"] for row in rows))
    cosines = model.embed([found[0]["query"]], as_query=True) @ model.embed(documents).T
    assert found[0]["documents"][0]["text"] == documents[int(cosines.argmax())]
    assert found[0]["documents"][0]["score"] == pytest.approx(float(cosines.max()), abs=1e-5)
    mrr = read_results(embedder)["eval_mrr@10"]
    assert f"test_mrr@10 = {mrr}\n" in (embedder / "test_results.txt").read_text()


def test_prefixes_are_those_of_the_training(embedder):
    model = load(str(embedder))
    as_query, as_document = model.embed(TEXTS, as_query=True), model.embed(TEXTS)
    assert np.abs(as_query - as_document).max() > 1e-3
    np.testing.assert_allclose(np.linalg.norm(as_query, axis=1), 1, rtol=1e-5)


@pytest.fixture(scope="module")
def evaluated(pretrained, embedding_files, tmp_path_factory):
    """Function kind -> options of an evaluation of the encoder, without training, and its metrics."""

    @functools.cache
    def evaluate(kind):
        given = {"init_checkpoint": str(pretrained), "eval_file": embedding_files[kind][1]}
        given |= {"do_eval": True, "matryoshka_dims": "4"}
        made = options(tmp_path_factory.mktemp(kind), **given)
        return made, run_embeddings(made)

    return evaluate


@pytest.mark.weekly_cases("pairs-2-triplet")
@pytest.mark.parametrize(
    ("kind", "num_texts", "loss"),
    [
        ("pairs", 2, "triplet"),
        ("pairs", 2, "cosent"),  # trained on scores
        ("classes", 1, "batch_all_triplet"),
        ("scores", 2, "cosent"),
    ],
)
def test_the_trainer_has_the_metrics_of_the_program(
    pretrained, evaluated, tmp_path, kind, num_texts, loss
):
    made, metrics = evaluated(kind)
    expected = {name: value for name, value in metrics.items() if "_dim_" not in name}
    _, splits = read_examples(made)
    task = EmbeddingTask(max_seq_length=16, num_texts=num_texts, loss=loss)
    task.write_records(splits["dev"], load(pretrained).tokenizer, str(tmp_path / "dev.tf_record"))
    trainer = bert_tf.Trainer(
        task, init_checkpoint=pretrained, output_dir=tmp_path / "trainer", num_train_steps=1
    )
    found = trainer.evaluate(tmp_path / "dev.tf_record")
    assert {**found, "global_step": 0} == pytest.approx({**expected, "global_step": 0}, abs=1e-6)


def predicted(folder):
    lines = (folder / "test_predictions.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize("given", [{}, {"label_column": "score"}])
def test_pairs_without_scores_get_cosines(pretrained, embedding_files, tmp_path, given):
    file = write(tmp_path / "t.tsv", "text_a\ttext_b\na owl\tthe owl\na cat\tthe dog\n")
    files = {"eval_file": embedding_files["scores"][1], "predict_file": file, "do_predict": True}
    run_embeddings(
        options(
            tmp_path,
            init_checkpoint=str(pretrained),
            do_eval=not given,  # with scores; else the flag shows what is wanted
            **{**files, **given},
        )
    )
    first, second = predicted(tmp_path)
    assert first["texts"] == ["a owl", "the owl"] and second["texts"] == ["a cat", "the dog"]
    vectors = load(str(pretrained)).embed(["a owl", "the owl"])
    assert first["score"] == pytest.approx(float(vectors[0] @ vectors[1]), abs=1e-5)
    assert (tmp_path / "test_results.txt").read_text() == "global_step = 0\n"


def test_the_documents_of_a_text_are_the_others_of_its_class(pretrained, tmp_path):
    """Against sets, and without a list of the class for each text."""
    rng = np.random.default_rng(4)
    rows = [
        {"text": f"the {animal} {place}", "label": str(rng.integers(3))}
        for animal in ANIMALS
        for place in PLACES
    ]
    file = write_json_lines(tmp_path / "t.jsonl", rows)
    given = {"init_checkpoint": str(pretrained), "eval_file": file, "do_eval": True}
    found = run_embeddings(options(tmp_path / "out", **given))
    vectors = load(str(pretrained)).embed([row["text"] for row in rows])
    recalls, ranks = [], []
    for own, row in enumerate(rows):
        order = [i for i in np.argsort(-(vectors @ vectors[own]), kind="stable") if i != own]
        relevant = {i for i in order if rows[i]["label"] == row["label"]}
        recalls.append(len(relevant & set(order[:10])) / len(relevant))
        ranks.append(next((1 / n for n, i in enumerate(order[:10], 1) if i in relevant), 0.0))
    assert found["eval_recall@10"] == pytest.approx(np.mean(recalls))
    assert found["eval_mrr@10"] == pytest.approx(np.mean(ranks))


# ---- Teachers -----------------------------------------------------------------------------------


def test_a_student_learns_the_similarities_of_a_teacher(
    embedder, pretrained, embedding_files, tmp_path
):
    settings = {
        "init_checkpoint": str(pretrained),
        "init_layers": "0",
        "teacher": str(embedder),
        "train_file": embedding_files["pairs"][0],
        "do_train": True,
        "num_train_epochs": 6.0,
        "query_prefix": "the ",  # those of the teacher
        "document_prefix": "a ",
    }
    with pytest.raises(ValueError, match="query_prefix"):
        taught(options(tmp_path, **{**settings, "query_prefix": ""}), Embeddings())
    features = taught(options(tmp_path, **settings), Embeddings())
    rows = [json.loads(line) for line in Path(embedding_files["pairs"][0]).read_text().splitlines()]
    teacher = load(embedder)
    expected = [teacher.embed([row["anchor"] for row in rows], as_query=True)]
    expected += [teacher.embed([row["positive"] for row in rows])]
    found = features["teacher_embedding"]
    found = found / np.linalg.norm(found, axis=-1, keepdims=True)
    np.testing.assert_allclose(found, np.stack(expected, 1), atol=1e-4)
    run_embeddings(options(tmp_path, **settings))
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    losses = [json.loads(line)["loss"] for line in lines]
    assert losses[-1] < 0.5 * losses[0]


def test_an_encoder_alone_teaches_the_means_of_its_tokens(
    embedder, pretrained, embedding_files, tmp_path
):
    folder = tmp_path / "encoder"
    encoder = bert_tf.BertModel.from_pretrained(str(pretrained))
    tokenizer = bert_tf.FullTokenizer.from_pretrained(str(pretrained))
    encoder.save_pretrained(folder, tokenizer, format="tf1")
    settings = {"train_file": embedding_files["pairs"][0], "do_train": True, "teacher": str(folder)}
    made = options(tmp_path / "a", init_checkpoint=str(pretrained), **settings)
    found = taught(made, Embeddings())["teacher_embedding"][:, 0]
    rows = [json.loads(line) for line in Path(embedding_files["pairs"][0]).read_text().splitlines()]
    expected = load(folder).embed([row["anchor"] for row in rows])
    found = found / np.linalg.norm(found, axis=-1, keepdims=True)
    np.testing.assert_allclose(found, expected, atol=1e-4)
