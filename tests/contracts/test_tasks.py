"""The laws that every type of task keeps: `law` x models.KINDS."""

import json
import re
import shutil

import models
import numpy as np
import pytest
from helpers import (
    assert_bit_equal,
    cause_of,
    checkpoint_arrays,
    read_json_lines,
    read_results,
    read_task,
    remove_last_checkpoint,
)
from models import DATA, copy_of, golden, train

import bert_tf
from bert_tf.data.label_schemes import find_entities
from bert_tf.data.records import read_records
from bert_tf.data.token_classification import read_conll
from bert_tf.embeddings.run_reranker import RerankingTask
from bert_tf.modeling.crf import marginals, sentence_chains
from bert_tf.prediction.loading import load_model
from bert_tf.tasks.distillation import student_task

FINE_TUNED = [kind for kind in models.KINDS if kind != "pretrained"]
TAUGHT = ("classifier", "crf", "ner", "squad", "swag", "embedder", "reranker")
CONVERTED = ("pretrained", "classifier", "regression", "ner", "squad", "swag", "embedder")
SPAN = ("start_logits", "end_logits")
# Flags that say what the data are, or what is to be done with them.
OF_DATA = {"text_a_column", "label_column", "task_name", "max_query_length", "doc_stride"}
OF_DATA |= {"n_best_size", "do_eval", "version_2_with_negative", "num_negatives"}
OTHERS = {
    "classifier": "squad",
    "squad": "reranker",
    "reranker": "squad",
    "ner": "swag",
    "swag": "embedder",
    "embedder": "ner",
}


def by_night(kinds, *by_day, weekly=()):
    """The kinds as cases, of which those of `by_day` run in the commit tier."""
    marks = {kind: pytest.mark.weekly if kind in weekly else pytest.mark.night for kind in kinds}
    marks |= dict.fromkeys(by_day, ())
    return [pytest.param(kind, marks=marks[kind]) for kind in kinds]


def golden_files(kind):
    """Name -> bytes of the files of a golden run."""
    return {path.name: path.read_bytes() for path in golden(kind).iterdir()}


def tolerance(kind):
    return 5 if kind.startswith("squad") else 0.05  # percent


# ------------------------------------------------------------------------------------------ training


def test_golden_runs_have_learned_what_can_be_learned():
    for kind in FINE_TUNED:
        best = read_task(str(golden(kind))).best_metric
        best = "eval_map@100" if kind == "reranker" else best
        least = {"squad": 80, "squad2": 40}.get(kind, 0.9)
        assert read_results(golden(kind))[best] > least, kind


@pytest.mark.parametrize("kind", by_night(models.KINDS, "classifier"))
def test_train_again_has_the_golden_metrics_and_files(kind, tmp_path):
    found, expected = train(kind, tmp_path / "run"), read_results(golden(kind))
    assert found == read_results(tmp_path / "run")
    assert set(found) == set(expected)
    for name in found:
        if "thresh" not in name:
            assert found[name] == pytest.approx(expected[name], abs=tolerance(kind)), name
    names = set(golden_files(kind)) | {"report.html"}
    names |= {name.removesuffix(".json") for name in names if name.endswith(".tf_record.json")}
    assert {path.name for path in (tmp_path / "run").iterdir()} == names


def short(kind, num_steps=6):
    """Changes for a training of a few steps and a checkpoint after every three."""
    changes = {"do_eval": False, "do_predict": False, "save_checkpoints_steps": 3}
    if kind == "pretrained":
        changes |= {"num_train_steps": 6, "num_warmup_steps": 2, "keep_checkpoint_max": 2}
        return changes | {"do_predict": None}
    epochs, steps = models.KINDS[kind].flags["num_train_epochs"], read_results(golden(kind))
    return changes | {
        "num_train_epochs": (num_steps + 0.5) * epochs / steps["global_step"],
        "init_layers": "0",
    }


OF_PROGRAMS = ("pretrained", *TAUGHT)


@pytest.mark.parametrize("kind", by_night(OF_PROGRAMS, "classifier", weekly=OF_PROGRAMS[3:]))
def test_resume_ends_with_the_bits_of_one_run(kind, tmp_path):
    train(kind, tmp_path / "whole", **short(kind))
    shutil.copytree(tmp_path / "whole", tmp_path / "parts")
    remove_last_checkpoint(tmp_path / "parts")
    train(kind, tmp_path / "parts", **short(kind))
    whole, parts = (
        checkpoint_arrays(tmp_path / name / "model.ckpt-6") for name in ("whole", "parts")
    )
    assert_bit_equal(parts, whole)


@pytest.mark.parametrize("kind", by_night(TAUGHT, "classifier"))
def test_teacher_is_in_the_records_of_its_student(kind, tmp_path, eagerly):
    teacher, changes = str(golden(kind)), short(kind, 15) | {"iterations_per_loop": 1}
    train(kind, tmp_path, **changes, teacher=teacher)
    task, size = read_task(teacher), 0
    if kind == "reranker":
        task = RerankingTask(23, 2)
    if kind == "embedder":
        size = load_model(teacher).model.config.hidden_size
    (features,) = read_records(
        [str(tmp_path / "train_taught.tf_record")],
        student_task(task, 2.0, size).record_features,
        batch_size=500,
    ).as_numpy_iterator()
    for name, (expected, real) in taught(kind, features).items():
        assert real.sum() > 40
        found = features[f"teacher_{name}"][real]
        if kind == "crf":
            found = np.exp(found)
        if kind == "embedder":
            found = found / np.linalg.norm(found, axis=-1, keepdims=True)
        np.testing.assert_allclose(found, expected[real], atol=1e-4, rtol=1e-4)
    losses = [line["loss"] for line in read_json_lines(tmp_path / "metrics.jsonl")]
    assert len(losses) == 15 and np.mean(losses[-5:]) < np.mean(losses[:5])


def taught(kind, features):
    """Name -> the outputs of the teacher without bert_tf's loops, and where they are real."""
    shape = features["input_mask"].shape[:-1]
    if kind == "embedder":
        rows, model = read_json_lines(DATA / "pairs/train.jsonl"), bert_tf.load(golden(kind))
        vectors = [model.embed([row["anchor"] for row in rows], as_query=True)]
        vectors += [model.embed([row["positive"] for row in rows])]
        return {"embedding": (np.stack(vectors, 1), np.ones(shape, bool))}
    if kind == "reranker":
        rows, model = read_json_lines(DATA / "ranked/train.jsonl"), bert_tf.load(golden(kind))
        pairs = [(row["anchor"], row[name]) for row in rows for name in ("positive", "negative")]
        scores = np.array([answer["score"] for answer in model.predict(pairs)])
        return {"logits": (scores.reshape(shape), np.ones(shape, bool))}
    inputs = {name: features[name] for name in ("input_ids", "input_mask", "segment_ids")}
    outputs = load_model(str(golden(kind))).model(inputs, training=False)
    outputs = {name: value.numpy() for name, value in outputs.items()}
    if kind == "squad":
        real = features["input_mask"] > 0
        assert all((features[f"teacher_{name}"][~real] < -1e29).all() for name in SPAN)
        return {name: (outputs[name], real) for name in SPAN}
    if kind == "swag":
        return {"logits": (outputs["logits"], features["choice_mask"] > 0)}
    if kind in ("ner", "crf"):
        real = features["label_weights"] > 0
        logits = np.take_along_axis(outputs["logits"], features["word_positions"][..., None], 1)
        if kind == "crf":
            chains = sentence_chains(logits, outputs["transitions"], real.sum(axis=1))
            logits = marginals(chains).numpy()  # as probabilities
        return {"logits": (logits, real)}
    return {"logits": (outputs["logits"], np.ones(shape, bool))}


# ------------------------------------------------------------------------------------ afterwards


@pytest.mark.parametrize("kind", models.KINDS)
def test_same_command_again_changes_no_file(kind, tmp_path, eagerly):
    folder = copy_of(kind, tmp_path / "run")
    assert train(kind, folder) == pytest.approx(read_results(golden(kind)), rel=1e-4, abs=1e-5)
    assert_same_files(folder, golden_files(kind))


def assert_same_files(folder, expected):
    """All but the last digits of numbers is equal."""
    for name, content in expected.items():
        found = (folder / name).read_bytes()
        if name.startswith("model.ckpt") or found == content:
            assert found == content, name
            continue
        (words, numbers), (given, exact) = map(words_and_numbers, (found, content))
        assert words == given, name
        assert numbers == pytest.approx(exact, rel=1e-3, abs=1e-5), name


def words_and_numbers(content):
    number, text = re.compile(r"-?\d+(?:\.\d+)?(?:e-\d+)?"), content.decode()
    return number.sub("#", text), [float(each) for each in number.findall(text)]


@pytest.mark.parametrize("kind", FINE_TUNED)
def test_evaluation_elsewhere_needs_only_the_model_and_the_data(kind, tmp_path):
    of_training = set(models.KINDS[kind].flags) - OF_DATA
    changes = dict.fromkeys([*of_training, "max_seq_length", "learning_rate"])
    changes |= {"do_train": False, "init_checkpoint": str(golden(kind)), "eval_batch_size": 5}
    found = train(kind, tmp_path, **changes)
    expected = read_results(golden(kind))
    for values in (found, expected):
        values.pop("global_step", None)
    assert found == pytest.approx(expected, rel=1e-4, abs=1e-5)
    wanted = {name: text for name, text in golden_files(kind).items() if "predictions" in name}
    assert_same_files(tmp_path, wanted)


@pytest.mark.parametrize("kind", FINE_TUNED)
def test_predict_answers_as_the_run(kind):
    items, expected = asked(kind)
    assert len(items) == len(expected) > 0
    if kind == "embedder":
        model = bert_tf.load(golden(kind))
        for (query, texts), scores in zip(items, expected, strict=True):
            found = model.embed([query], as_query=True) @ model.embed(texts).T
            assert found[0] == pytest.approx(scores, abs=1e-5)
        return
    for answer, right in zip(bert_tf.load(golden(kind)).predict(items), expected, strict=True):
        if kind in ("ner", "crf"):
            assert [(e["type"], e["start"], e["end"]) for e in answer["entities"]] == right
        elif kind.startswith("squad"):
            assert answer["answer"] == right
        elif kind in ("regression", "reranker"):
            assert answer["score"] == pytest.approx(right, abs=1e-4)
        else:
            found = answer["probabilities"]
            found = list(found.values()) if isinstance(found, dict) else found
            assert found == pytest.approx(right, abs=1e-4)


def asked(kind):
    """What a model is asked, and what the golden run says to it."""
    file = DATA / models.KINDS[kind].files.get("predict_file", "MRPC/test.tsv")
    if kind in ("classifier", "pair"):
        rows = [line.split("\t") for line in file.read_text().splitlines()[1:]]
        items = [tuple(row[-2:]) if kind == "pair" else row[0] for row in rows]
    elif kind in ("multi_label", "regression"):
        items = [row["text"] for row in read_json_lines(file)]
    elif kind in ("ner", "crf"):
        rows = read_conll(str(golden(kind) / "test_predictions.txt"))
        right = [[(e.type, e.start, e.end) for e in find_entities(row.labels)] for row in rows]
        return [list(row.words) for row in rows], right
    elif kind.startswith("squad"):
        paragraphs = json.loads(file.read_text())["data"][0]["paragraphs"]
        items = [(each["qas"][0]["question"], each["context"]) for each in paragraphs]
        return items, list(json.loads((golden(kind) / "predictions.json").read_text()).values())
    else:
        rows = read_json_lines(golden(kind) / "test_predictions.jsonl")
        if kind == "swag":
            items = [(row["text_a"], row["choices"]) for row in read_json_lines(file)]
            return items, [row["probabilities"] for row in rows]
        if kind == "embedder":
            texts = [[each["text"] for each in row["documents"]] for row in rows]
            scores = [[each["score"] for each in row["documents"]] for row in rows]
            return list(zip((row["query"] for row in rows), texts, strict=True)), scores
        found = [(row["query"], each) for row in rows for each in row["documents"]]
        return [(query, each["text"]) for query, each in found], [
            each["score"] for _, each in found
        ]
    lines = (golden(kind) / "test_results.tsv").read_text().splitlines()
    right = [[float(cell) for cell in line.split("\t")] for line in lines]
    return items, [row[0] for row in right] if kind == "regression" else right


@pytest.mark.parametrize("kind", by_night(CONVERTED, "classifier", "swag"))
def test_convert_there_and_back_changes_no_tensor(kind, tmp_path):
    bert_tf.convert(golden(kind), tmp_path / "there")
    bert_tf.convert(tmp_path / "there", tmp_path / "back", format="tf1")
    found = checkpoint_arrays(tmp_path / "back/bert_model.ckpt")
    expected = checkpoint_arrays(golden(kind))
    expected = {name: expected[name] for name in expected if "/adam_" not in name}
    del expected["global_step"]
    assert_bit_equal(found, expected)
    task, back = (read_task(str(path)) for path in (golden(kind), tmp_path / "back"))
    assert (back and back.arguments()) == (task and task.arguments())
    if kind not in ("embedder", "pretrained"):
        items, _ = asked(kind)
        there, here = (
            bert_tf.load(path).predict(items[:3]) for path in (tmp_path / "there", golden(kind))
        )
        assert there == here


# ------------------------------------------------------------------------------------- wrong folders


@pytest.mark.parametrize(("kind", "other"), OTHERS.items())
def test_folder_of_another_type_is_refused(kind, other, tmp_path):
    folder = copy_of(other, tmp_path / "run")
    assert cause_of(train, kind, folder) == "output_dir"
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == golden_files(other)
    if kind == "embedder":  # an encoder is enough
        return
    given = {"do_train": False, "init_checkpoint": str(golden(other))}
    assert cause_of(train, kind, tmp_path / "new", **given) == "init_checkpoint"
    assert not (tmp_path / "new").exists()
