"""run_reranker: losses, lists, runs, and what the folder is for others."""

import json
import math
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from tiny_rerankers import options
from tiny_runs import read_results
from tiny_teachers import taught
from tiny_words_and_choices import read_json_lines, write_json_lines

from bert_tf.finetuning import reranking
from bert_tf.finetuning.embeddings import run_embeddings
from bert_tf.finetuning.embeddings_options import EmbeddingOptions
from bert_tf.finetuning.reranking import Reranking, run_reranker, with_negatives
from bert_tf.finetuning.setup import Setup
from bert_tf.predictor import load
from bert_tf.programs.convert_checkpoint import ConvertOptions, convert_checkpoint
from bert_tf.tasks.embeddings import EmbeddingExample
from bert_tf.tasks.reranking import RERANKING_LOSSES, RerankingTask

SCORES = np.array([[1.0, -0.5, 2.0], [0.5, 0.0, 7.0]], "float32")
EXISTS = np.array([[1, 1, 1], [1, 1, 0]], "int32")
TEXTS = ("the owl is in the barn", "the dog is in the barn", "a cat", "a bad dog")


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


def test_drawn_negatives_are_never_a_positive_of_the_anchor():
    texts = [("a", "1"), ("a", "2"), ("b", "3", "9"), ("c", "4"), ("d", "1")]
    examples = [EmbeddingExample(each, 1.0, "f:1") for each in texts]
    found = with_negatives(examples, 2, seed=3)
    assert found == with_negatives(examples, 2, seed=3) != with_negatives(examples, 2, seed=4)
    for example, given in zip(found, examples, strict=True):
        anchor, positive, *negatives = example.texts
        assert (anchor, positive) == given.texts[:2] and len(set(negatives)) == 2
        allowed = {"1", "2", "3", "4"} - {e.texts[1] for e in examples if e.texts[0] == anchor}
        assert set(negatives) <= allowed | set(given.texts[2:])
    assert found[2].texts[2] == "9"  # its own
    assert [len(e.texts) for e in with_negatives(examples, 9, seed=3)] == [4, 4, 6, 5, 5]
    with pytest.raises(ValueError, match="f:1: the anchor has no negative"):
        with_negatives(examples[:2], 2, seed=3)


def predictions(folder):
    return read_json_lines(folder / "test_predictions.jsonl")


def test_what_can_be_learned_is_learned(reranker):
    assert read_results(reranker)["eval_map@100"] > 0.9  # of a random order 0.61, deviation 0.07
    metrics = json.loads((reranker / "task.json").read_text())
    assert metrics["task"] == "classification" and metrics["problem_type"] == "regression"


def test_pairs_without_scores_or_negatives_are_scored(reranker, tmp_path):
    rows = [{"anchor": "a owl", "positive": TEXTS[0]}, {"anchor": "a cat", "positive": TEXTS[3]}]
    file = str(write_json_lines(tmp_path / "t.jsonl", rows))
    init = {"init_checkpoint": str(reranker)}
    run_reranker(options(tmp_path / "out", do_predict=True, predict_file=file, **init))
    found = predictions(tmp_path / "out")
    assert [each["texts"] for each in found] == [[row["anchor"], row["positive"]] for row in rows]
    expected = load(str(reranker)).predict([tuple(each["texts"]) for each in found])
    for each, answer in zip(found, expected, strict=True):
        assert each["score"] == pytest.approx(answer["score"], abs=1e-4)
    assert (tmp_path / "out" / "test_results.txt").read_text() == "global_step = 0\n"


def test_the_folder_scores_pairs(reranker):
    row = predictions(reranker)[0]
    assert [d["score"] for d in row["documents"]] == sorted(
        (d["score"] for d in row["documents"]), reverse=True
    )
    found = load(str(reranker)).predict([(row["query"], d["text"]) for d in row["documents"]])
    expected = [document["score"] for document in row["documents"]]
    assert [each["score"] for each in found] == pytest.approx(expected, abs=1e-4)


def test_a_retriever_finds_the_documents_among_all(
    reranker, pretrained, ranking_files, tmp_path, monkeypatch
):
    monkeypatch.setattr(reranking, "DEPTH", 3)
    given = {"init_checkpoint": str(reranker), "retriever": str(pretrained)}
    run_reranker(options(tmp_path, **given, do_predict=True, predict_file=ranking_files["plain"]))
    rows = [json.loads(line) for line in Path(ranking_files["plain"]).read_text().splitlines()]
    texts = list(dict.fromkeys(row["positive"] for row in rows))
    model = load(str(pretrained))
    cosines = model.embed([rows[0]["anchor"]]) @ model.embed(texts).T
    nearest = {texts[index] for index in np.argsort(-cosines[0])[:3]}
    found = predictions(tmp_path)[0]
    assert found["query"] == rows[0]["anchor"]
    assert {document["text"] for document in found["documents"]} == nearest


def test_the_metric_of_the_retriever_is_that_of_run_embeddings(
    reranker, pretrained, ranking_files, tmp_path
):
    files = {"do_eval": True, "eval_file": ranking_files["plain"]}
    given = {"init_checkpoint": str(reranker), "retriever": str(pretrained)}
    found = run_reranker(options(tmp_path / "reranker", **given, **files))
    changes = {"init_checkpoint": str(pretrained), "output_dir": str(tmp_path / "embeddings")}
    expected = run_embeddings(EmbeddingOptions(**changes, max_seq_length=23, **files))
    assert found["eval_ndcg@10_of_retriever"] == pytest.approx(expected["eval_ndcg@10"], abs=1e-9)


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        ("plain", {}, "plain.jsonl .*`retriever`"),
        ("texts", {}, "run_classifier"),
        ("scores", {"loss": "listwise"}, "loss: listwise"),
        ("train", {"num_negatives": 0}, "num_negatives"),
    ],
)
def test_what_does_not_fit_is_refused(pretrained, ranking_files, tmp_path, kind, changes, message):
    given = {"init_checkpoint": str(pretrained), "do_eval": True, "do_train": True}
    files = dict.fromkeys(("train_file", "eval_file"), ranking_files.get(kind))
    if kind == "texts":
        rows = [{"text": "a", "label": "b"}, {"text": "c", "label": "d"}]
        write_json_lines(tmp_path / "texts.jsonl", rows)
        files = dict.fromkeys(files, str(tmp_path / "texts.jsonl"))
    with pytest.raises(ValueError, match=message):
        run_reranker(options(tmp_path / "output", **given, **files, **changes))


def test_a_classifier_with_labels_is_no_reranker(sentence_model, ranking_files, tmp_path):
    given = {
        "init_checkpoint": str(sentence_model),
        "do_eval": True,
        "eval_file": ranking_files["dev"],
    }
    with pytest.raises(ValueError, match="is_pair=False"):
        run_reranker(options(tmp_path, **given))


def test_a_converted_reranker_keeps_its_length_and_takes_pairs(reranker, tmp_path):
    there = tmp_path / "there"
    given = {"init_checkpoint": str(reranker), "output_format": "huggingface"}
    convert_checkpoint(ConvertOptions(**given, output_dir=str(there)))
    length = load(str(reranker)).task.max_seq_length
    values = json.loads((there / "tokenizer_config.json").read_text())
    assert values["model_max_length"] == length
    (there / "task.json").unlink()
    config = json.loads((there / "config.json").read_text())
    version = {"sentence_transformers": {"version": "4.1.0"}}  # as CrossEncoder writes
    (there / "config.json").write_text(json.dumps(config | version))
    task = load(str(there)).task
    assert (task.is_pair, task.max_seq_length) == (True, length)


@pytest.mark.parametrize(("begins_with", "length"), [("reranker", 23), ("pretrained", 16)])
def test_the_longest_input_is_that_of_the_first_reranker(
    reranker, pretrained, ranking_files, tmp_path, begins_with, length
):
    init = {"init_checkpoint": str({"reranker": reranker, "pretrained": pretrained}[begins_with])}
    given = options(
        tmp_path, max_seq_length=None, do_train=True, train_file=ranking_files["train"], **init
    )
    task, _ = Reranking().read(given, Setup.for_task(given, "classification", default_length=16))
    assert task.max_seq_length == length


@pytest.mark.night
@pytest.mark.skipif(not find_spec("sentence_transformers"), reason="an optional peer")
def test_sentence_transformers_gives_the_same_scores(reranker, tmp_path):
    import sentence_transformers

    from bert_tf.programs.convert_checkpoint import convert

    convert(reranker, tmp_path / "folder")
    peer = sentence_transformers.CrossEncoder(str(tmp_path / "folder"), device="cpu")
    peer.save_pretrained(str(tmp_path / "theirs"))
    texts = [("a dog", text) for text in TEXTS]
    file = tmp_path / "folder" / "config.json"  # others do not state the type of problem
    config = json.loads(file.read_text())
    assert config.pop("problem_type") == "regression"
    file.write_text(json.dumps(config))
    for folder in (reranker, tmp_path / "folder", tmp_path / "theirs"):
        found = [each["score"] for each in load(str(folder)).predict(texts)]
        assert found == pytest.approx(peer.predict(texts).tolist(), abs=1e-5)


def test_a_student_learns_the_scores_of_a_teacher(reranker, pretrained, ranking_files, tmp_path):
    given = options(
        tmp_path,
        init_checkpoint=str(pretrained),
        init_layers="0",
        teacher=str(reranker),
        train_file=ranking_files["train"],
        num_negatives=1,
        do_train=True,
        num_train_epochs=4.0,
    )
    found = taught(given, Reranking())["teacher_logits"]
    rows = read_json_lines(ranking_files["train"])
    texts = [(row["anchor"], row[name]) for row in rows for name in ("positive", "negative")]
    expected = np.array([answer["score"] for answer in load(reranker).predict(texts)])
    np.testing.assert_allclose(found, expected.reshape(-1, 2), atol=1e-4, rtol=1e-4)
    run_reranker(given)
    lines = read_json_lines(tmp_path / "metrics.jsonl")
    assert lines[-1]["soft_loss"] < 0.5 * lines[0]["soft_loss"]
