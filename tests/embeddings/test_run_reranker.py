"""run_reranker: losses, lists, retrievers, and what its folder is for others."""

import json
import math
from importlib.util import find_spec

import numpy as np
import pytest
import tensorflow as tf
from helpers import read_json_lines, refused, write, write_json_lines
from models import ANIMALS, DATA, PLACES, golden, train

from bert_tf.embeddings.run_embeddings import EmbeddingOptions, run_embeddings
from bert_tf.embeddings.run_reranker import (
    RERANKING_LOSSES,
    RerankingTask,
    add_negatives,
    list_documents,
)
from bert_tf.embeddings.task import EmbeddingExample
from bert_tf.options import make_options
from bert_tf.prediction.predictor import load
from bert_tf.serving.convert_checkpoint import convert

SCORES = np.array([[1.0, -0.5, 2.0], [0.5, 0.0, 7.0]], "float32")
EXISTS = np.array([[1, 1, 1], [1, 1, 0]], "int32")
WITHOUT_TRAINING = {"do_train": False, "init_checkpoint": str(golden("reranker"))}


SCORED = {"anchor_column": "text_a", "positive_column": "text_b"}


def sigmoid(value):
    return 1 / (1 + math.exp(-value))


BY_HAND = {
    "binary": [
        -np.mean([math.log(sigmoid(1.0)), math.log(sigmoid(0.5)), math.log(sigmoid(-2.0))]),
        -np.mean([math.log(sigmoid(0.5)), math.log(sigmoid(-0.0))]),
    ],
    "pairwise": [
        np.mean([math.log(1 + math.exp(-1.5)), math.log(1 + math.exp(1.0))]),
        math.log(1 + math.exp(-0.5)),
    ],
    "listwise": [
        -math.log(math.exp(1.0) / (math.exp(1.0) + math.exp(-0.5) + math.exp(2.0))),
        -math.log(math.exp(0.5) / (math.exp(0.5) + 1.0)),
    ],
}


# ------------------------------------------------------------------------------------------- losses


@pytest.mark.parametrize("loss", RERANKING_LOSSES)
def test_losses_are_those_of_the_formulas_and_ignore_padding(loss):
    (term,) = RerankingTask(9, 3, loss).losses
    features = {
        "choice_mask": tf.constant(EXISTS),
        "label_ids": tf.ones(2),
        "is_real_example": tf.constant([1, 1]),
    }
    total = term.total({"logits": tf.constant(SCORES)}, features)
    assert float(total) == pytest.approx(sum(BY_HAND[loss]), rel=1e-5)
    features["is_real_example"] = tf.constant([0, 1])
    total = term.total({"logits": tf.constant(SCORES)}, features)
    assert float(total) == pytest.approx(BY_HAND[loss][1], rel=1e-5)
    assert float(term.weight(features)) == 1


def test_a_score_is_the_target_of_the_binary_loss():
    found = RERANKING_LOSSES["binary"](tf.constant([[0.7]]), tf.ones([1, 1]), tf.constant([0.3]))
    expected = -0.3 * math.log(sigmoid(0.7)) - 0.7 * math.log(sigmoid(-0.7))
    assert float(found[0]) == pytest.approx(expected, rel=1e-5)


# -------------------------------------------------------------------------------------------- lists


def test_drawn_negatives_are_never_a_positive_of_the_anchor():
    texts = [("a", "1"), ("a", "2"), ("b", "3", "9"), ("c", "4"), ("d", "1")]
    examples = [EmbeddingExample(each, 1.0, "f:1") for each in texts]
    found = add_negatives(examples, 2, seed=3)
    assert found == add_negatives(examples, 2, seed=3) != add_negatives(examples, 2, seed=4)
    for example, given in zip(found, examples, strict=True):
        anchor, positive, *negatives = example.texts
        assert (anchor, positive) == given.texts[:2] and len(set(negatives)) == 2
        allowed = {"1", "2", "3", "4"} - {e.texts[1] for e in examples if e.texts[0] == anchor}
        assert set(negatives) <= allowed | set(given.texts[2:])
    assert found[2].texts[2] == "9"  # its own
    assert [len(e.texts) for e in add_negatives(examples, 9, seed=3)] == [4, 4, 6, 5, 5]
    with refused("f:1"):
        add_negatives(examples[:2], 2, seed=3)


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ([("a", "1", "2", "3"), ("a", "2", "3"), ("b", "4")], [("a", "1", "3"), ("a", "2", "3")]),
        ([("a", "1", "a", "2"), ("b", "a")], [("a", "1", "2")]),
    ],
)
def test_a_positive_of_another_row_and_the_anchor_are_no_negatives(texts, expected):
    found = add_negatives([EmbeddingExample(each) for each in texts], 1, seed=1)
    assert [each.texts for each in found[: len(expected)]] == expected


def test_relevant_documents_are_last_and_queries_without_negatives_are_counted(caplog):
    texts = [("a", "1", "2"), ("a", "3", "1", "4"), ("b", "5")]
    examples = [EmbeddingExample(each) for each in texts]
    ranking = list_documents(examples)
    assert ranking.pairs() == [("a", text) for text in "2413"] + [("b", "5")]
    reordered = ranking.reorder(np.array([0.1, 0.4, 0.3, 0.2, 0.0]))
    assert reordered.pairs() == [("a", text) for text in "4132"] + [("b", "5")]
    assert "1 of 2 queries have no negatives" in caplog.text


# --------------------------------------------------------------------------------------------- runs


def test_pairs_without_scores_or_negatives_are_scored(tmp_path, eagerly):
    rows = [("a owl", "the owl is in the barn"), ("a cat", "a bad dog")]
    file = write(tmp_path / "t.tsv", "anchor\tpositive\n" + "".join(f"{a}\t{b}\n" for a, b in rows))
    train("reranker", tmp_path / "out", do_eval=False, predict_file=file, **WITHOUT_TRAINING)
    found = read_json_lines(tmp_path / "out/test_predictions.jsonl")
    assert [tuple(each["texts"]) for each in found] == rows
    expected = [answer["score"] for answer in load(golden("reranker")).predict(rows)]
    assert [each["score"] for each in found] == pytest.approx(expected, abs=1e-4)
    assert (tmp_path / "out/test_results.txt").read_text() == "global_step = 0\n"


@pytest.mark.night
def test_a_retriever_finds_the_documents_among_all(tmp_path, eagerly):
    texts = [f"the {animal} is in the {place}" for animal in ANIMALS for place in PLACES]
    rows = [{"anchor": f"a {text.split()[1]}", "positive": text} for text in texts]
    file, retriever = write_json_lines(tmp_path / "t.jsonl", rows), str(golden("pretrained"))
    given = {"do_eval": False, "predict_file": file, "retriever": retriever}
    train("reranker", tmp_path / "out", **given, **WITHOUT_TRAINING)
    model = load(retriever)
    cosines = model.embed(["a cat"]) @ model.embed(texts).T
    nearest = [texts[index] for index in np.argsort(-cosines[0])[:20]]
    answers = load(golden("reranker")).predict([("a cat", text) for text in nearest])
    scores = dict(zip(nearest, (answer["score"] for answer in answers), strict=True))
    found = read_json_lines(tmp_path / "out/test_predictions.jsonl")[0]
    assert found["query"] == "a cat"
    best = sorted(nearest, key=scores.get, reverse=True)[: len(found["documents"])]
    assert [document["text"] for document in found["documents"]] == best


@pytest.mark.night
def test_the_metric_of_the_retriever_is_that_of_run_embeddings(tmp_path, eagerly):
    files = {"do_eval": True, "eval_file": f"{DATA}/pairs/dev.jsonl"}
    given = {"retriever": str(golden("pretrained")), "do_predict": False, **files}
    found = train("reranker", tmp_path / "reranker", **given, **WITHOUT_TRAINING)
    changes = {"init_checkpoint": given["retriever"], "output_dir": str(tmp_path / "embeddings")}
    expected = run_embeddings(make_options(EmbeddingOptions, **changes, max_seq_length=23, **files))
    assert found["eval_ndcg@10_of_retriever"] == pytest.approx(expected["eval_ndcg@10"], abs=1e-9)


def test_what_does_not_fit_is_refused(tmp_path):
    for kind, changes, name in (
        ("pairs", {}, "retriever"),
        ("scores", {"loss": "listwise", **SCORED}, "loss"),
        ("ranked", {"num_negatives": 0}, "num_negatives"),
        ("ranked", {"do_train": False, "init_checkpoint": str(golden("classifier"))}, "is_pair"),
    ):
        files = {"train_file": f"{DATA}/{kind}/train.jsonl"} if "do_train" not in changes else {}
        files["eval_file"] = f"{DATA}/{kind}/dev.jsonl"
        with refused("init_checkpoint" if name == "is_pair" else name):
            train("reranker", tmp_path / "out", do_predict=False, **files, **changes)


def test_a_converted_reranker_keeps_its_length_and_takes_pairs(tmp_path):
    convert(golden("reranker"), tmp_path / "there")
    values = json.loads((tmp_path / "there/tokenizer_config.json").read_text())
    assert values["model_max_length"] == 23
    (tmp_path / "there/task.json").unlink()
    config = json.loads((tmp_path / "there/config.json").read_text())
    version = {"sentence_transformers": {"version": "4.1.0"}}  # as CrossEncoder writes
    write(tmp_path / "there/config.json", json.dumps(config | version))
    task = load(tmp_path / "there").task
    assert (task.is_pair, task.max_seq_length) == (True, 23)


@pytest.mark.weekly
@pytest.mark.skipif(not find_spec("sentence_transformers"), reason="an optional peer")
def test_sentence_transformers_gives_the_same_scores(tmp_path):
    import sentence_transformers

    convert(golden("reranker"), tmp_path / "folder")
    peer = sentence_transformers.CrossEncoder(str(tmp_path / "folder"), device="cpu")
    peer.save_pretrained(str(tmp_path / "theirs"))
    texts = [("a dog", text) for text in ("the owl is in the barn", "a cat", "a bad dog")]
    file = tmp_path / "folder" / "config.json"  # others do not state the type of problem
    config = json.loads(file.read_text())
    assert config.pop("problem_type") == "regression"
    write(file, json.dumps(config))
    for folder in (golden("reranker"), tmp_path / "folder", tmp_path / "theirs"):
        found = [each["score"] for each in load(folder).predict(texts)]
        assert found == pytest.approx(peer.predict(texts).tolist(), abs=1e-5)
