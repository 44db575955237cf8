"""Fine-tuned Hugging Face folders: classes go by the names in `id2label`, and the head is used."""

import json

import numpy as np
import pytest
from helpers import read_results, refused
from models import golden, train

import bert_tf
from bert_tf.checkpoints.checkpoint import PretrainedCheckpoint
from bert_tf.checkpoints.heads import align_labels, label_order
from bert_tf.checkpoints.tensor_files import open_tensors
from bert_tf.prediction.predictor import Predictor
from bert_tf.tasks.glue import NLI, find_glue_task

save_file = pytest.importorskip("safetensors.numpy", reason="of the extra [hf]").save_file


def huggingface_folder(model, folder, labels=None, order=None, **config):
    """The Hugging Face folder of a run, as others write it: without task.json.

    Args:
        labels: `id2label`, in the order of the outputs.
        order: permutes or selects the outputs.
    """
    bert_tf.convert(model, folder, format="huggingface")
    (folder / "task.json").unlink()
    values = json.loads((folder / "config.json").read_text()) | config
    if labels is not None:
        values["id2label"] = {str(index): label for index, label in enumerate(labels)}
    (folder / "config.json").write_text(json.dumps(values))
    tensors = open_tensors(str(folder / "model.safetensors"))
    tensors = {name: tensors[name] for name in tensors}
    if order is not None:
        for name in ("classifier.weight", "classifier.bias"):
            tensors[name] = np.ascontiguousarray(tensors[name][order])
    save_file(tensors, folder / "model.safetensors")
    return str(folder)


def labels_of(folder) -> list[str]:
    return json.loads((folder / "task.json").read_text())["labels"]


def evaluate(checkpoint, output_dir, **changes):
    values = {"init_checkpoint": checkpoint, "do_train": False, "do_predict": False}
    return train("classifier", output_dir, **values, **changes)


def test_classes_are_put_into_the_order_of_the_labels_by_name():
    for theirs, ours, order in (
        (("entailment", "neutral", "contradiction"), NLI, [2, 0, 1]),
        (("NOT-ENTAILMENT", "Entailment"), ("entailment", "not_entailment"), [1, 0]),
        (("LABEL_0", "LABEL_1"), ("bad", "good"), [0, 1]),
        (("1", "0"), ("0", "1"), [1, 0]),
        (("LABEL_0", "LABEL_1"), ("1", "0"), [1, 0]),
        (("C", "c", "c_d", "c-d"), ("c-d", "C", "c", "c_d"), [3, 0, 1, 2]),
        (("C", "c"), ("C", "C "), None),
        (("LABEL_0", "LABEL_1", "LABEL_2"), ("bad", "good"), None),
        (("joy", "anger"), ("bad", "good"), None),
    ):
        assert label_order(theirs, ours) == order, theirs
    names = find_glue_task("MRPC").label_names
    assert label_order(["equivalent", "not_equivalent"], ("0", "1"), names) == [1, 0]


def test_a_classifier_for_other_labels_is_new_in_training_and_else_refused(caplog):
    arrays = {"output_weights": np.eye(2), "output_bias": np.float32([1, 2]), "bert/x": np.ones(1)}
    arrays["crf/transitions"] = np.ones((3, 3))
    checkpoint = PretrainedCheckpoint("the fake", arrays)
    known, same, other = ("bad", "good"), ("Good", "bad"), ("joy", "anger")
    unnamed = ("LABEL_0", "LABEL_1")
    for will_train in (True, False):
        aligned = align_labels(checkpoint, known, same, will_train=will_train)
        assert aligned.arrays["output_bias"].tolist() == [2, 1]
    assert not caplog.text
    assert align_labels(checkpoint, unnamed, known).arrays["output_bias"].tolist() == [1, 2]
    assert "LABEL_0, LABEL_1" in caplog.text
    assert list(align_labels(checkpoint, known, other, will_train=True).arrays) == ["bert/x"]
    with pytest.raises(ValueError, match=r"bad, good.*joy, anger"):
        align_labels(checkpoint, known, other)


def test_evaluation_follows_the_names_of_the_classes(tmp_path):
    labels = [label.upper() for label in reversed(labels_of(golden("classifier")))]
    checkpoint = huggingface_folder(golden("classifier"), tmp_path / "hf", labels, [1, 0])
    labels = ",".join(labels_of(golden("classifier")))
    found = evaluate(checkpoint, tmp_path / "out", labels=labels)
    expected = read_results(golden("classifier"))
    assert found["eval_accuracy"] == expected["eval_accuracy"] > 0.8
    assert found["eval_loss"] == pytest.approx(expected["eval_loss"], rel=1e-5)


def test_evaluation_with_other_labels_or_problem_type_is_refused(tmp_path):
    other = huggingface_folder(golden("classifier"), tmp_path / "other", ["joy", "anger"])
    with refused("moods/dev.tsv:2"):
        evaluate(other, tmp_path / "out")
    values = {"problem_type": "multi_label_classification"}
    checkpoint = huggingface_folder(golden("classifier"), tmp_path / "hf", **values)
    with pytest.raises(ValueError, match=r"single_label.*multi_label"):
        evaluate(checkpoint, tmp_path / "out", problem_type="single_label")


def test_prediction_uses_the_head_and_the_names(tmp_path):
    texts = ["the good cat", "the bad dog"]
    expected = Predictor(str(golden("classifier"))).predict(texts)
    labels = list(reversed(labels_of(golden("classifier"))))
    predictor = Predictor(huggingface_folder(golden("classifier"), tmp_path / "hf", labels, [1, 0]))
    for ours, theirs in zip(predictor.predict(texts), expected, strict=True):
        assert ours["label"] == theirs["label"]
        assert ours["probabilities"] == pytest.approx(theirs["probabilities"], abs=1e-6)
    assert set(predictor.predict([tuple(texts)])[0]["probabilities"]) == set(labels)
    undescribed = huggingface_folder(golden("classifier"), tmp_path / "none", architectures=None)
    predictor = Predictor(undescribed)
    with pytest.raises(ValueError, match="head=classification"):
        predictor.predict(texts)
    assert predictor.embed(texts[:1]).shape[0] == 1
    number = huggingface_folder(
        golden("classifier"), tmp_path / "number", ["LABEL_0"], [0], problem_type=None
    )
    assert Predictor(number).predict(texts)[0].keys() == {"score"}


def test_labels_of_words_go_by_name_and_need_no_pooler(tmp_path):
    """As transformers saves it: its classes for words have no pooler."""
    labels = list(reversed(labels_of(golden("ner"))))
    order = list(reversed(range(len(labels))))
    checkpoint = huggingface_folder(golden("ner"), tmp_path / "hf", labels, order)
    (tmp_path / "hf" / "pooler.safetensors").unlink()
    given = {"do_train": False, "do_predict": False, "init_layers": None}
    found = train("ner", tmp_path / "out", init_checkpoint=checkpoint, **given)
    assert found["eval_f1"] == read_results(golden("ner"))["eval_f1"] > 0.5
    text = "a cat is in the barn"
    (ours,), (theirs,) = (Predictor(str(m)).predict([text]) for m in (checkpoint, golden("ner")))
    assert len(ours["entities"]) == len(theirs["entities"]) > 0
    for found, wanted in zip(ours["entities"], theirs["entities"], strict=True):
        assert found == wanted | {"probability": pytest.approx(wanted["probability"], abs=1e-6)}
