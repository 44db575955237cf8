"""Fine-tuned Hugging Face folders: classes go by the names in `id2label`, and the head is used."""

import json
import logging

import numpy as np
import pytest
from tiny_runs import MAX_SEQ_LENGTH, classifier_options, read_results
from tiny_words_and_choices import ner_options

from bert_tf.finetuning.classification import run_classifier
from bert_tf.finetuning.token_classification import run_ner
from bert_tf.interop.tensor_files import open_tensors
from bert_tf.predictor import Predictor
from bert_tf.programs.convert_checkpoint import ConvertOptions, convert_checkpoint
from bert_tf.tasks.glue import NLI, find_glue_task
from bert_tf.tasks.of_checkpoint import (
    label_order,
    reordered,
    spelled_as,
    without_classifier,
)

pytest.importorskip("safetensors", reason="of the extra [hf]")


def huggingface_folder(model, folder, labels=None, order=None, **config):
    """The Hugging Face folder of a run, as others write it: without task.json.

    Args:
        labels: `id2label`, in the order of the outputs.
        order: permutes the outputs.
    """
    from safetensors.numpy import save_file

    convert_checkpoint(
        ConvertOptions(
            init_checkpoint=str(model), output_dir=str(folder), output_format="huggingface"
        )
    )
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


def evaluate(checkpoint, mood_tables, output_dir, **changes):
    values = {"eval_file": mood_tables.dev, "text_a_column": "sentence", "label_column": "mood"}
    values |= {"init_checkpoint": checkpoint, "do_eval": True, "max_seq_length": MAX_SEQ_LENGTH}
    return run_classifier(classifier_options(output_dir, **{**values, **changes}))


@pytest.mark.parametrize(
    ("theirs", "ours", "order"),
    [
        (("entailment", "neutral", "contradiction"), NLI, [2, 0, 1]),
        (("NOT-ENTAILMENT", "Entailment"), ("entailment", "not_entailment"), [1, 0]),
        (("LABEL_0", "LABEL_1"), ("bad", "good"), [0, 1]),
        (("1", "0"), ("0", "1"), [1, 0]),
        (("LABEL_0", "LABEL_1"), ("1", "0"), [1, 0]),
        (("C", "c", "c_d", "c-d"), ("c-d", "C", "c", "c_d"), [3, 0, 1, 2]),
        (("C", "c"), ("C", "C "), None),
        (("LABEL_0", "LABEL_1", "LABEL_2"), ("bad", "good"), None),
        (("joy", "anger"), ("bad", "good"), None),
    ],
)
def test_classes_are_put_into_the_order_of_the_labels_by_name(theirs, ours, order):
    assert label_order(theirs, ours) == order


def test_the_transitions_of_a_crf_follow_the_labels():
    transitions = np.arange(16, dtype=np.float32).reshape(4, 4)  # the last of each axis: the ends
    arrays = {"output_bias": np.float32([0, 1, 2]), "crf/transitions": transitions}
    found = reordered(arrays, [2, 0, 1])
    assert found["output_bias"].tolist() == [2, 0, 1]
    for i, one in enumerate([2, 0, 1, 3]):
        for j, other in enumerate([2, 0, 1, 3]):
            assert found["crf/transitions"][i, j] == transitions[one, other]
    assert not without_classifier(arrays)


def test_second_names_of_glue_labels_are_understood():
    names = find_glue_task("MRPC").label_names
    assert label_order(["equivalent", "not_equivalent"], ("0", "1"), names) == [1, 0]


def test_labels_that_differ_only_in_case_keep_their_spelling():
    assert spelled_as(["US", "us"], ["us"]) == ("US", "us")


def test_numbered_classes_are_spelled_as_the_few_or_many_that_occur():
    unnamed = [f"LABEL_{index}" for index in range(11)]
    assert spelled_as(unnamed, sorted(map(str, range(11)))) == tuple(map(str, range(11)))
    assert spelled_as(unnamed[:3], ["2"]) == ("LABEL_0", "LABEL_1", "2")


@pytest.mark.parametrize("spelled", [str, str.upper])
def test_evaluation_follows_the_names_of_the_classes(
    sentence_model, mood_tables, tmp_path, spelled
):
    labels = [spelled(label) for label in reversed(labels_of(sentence_model))]
    order = list(reversed(range(len(labels))))
    checkpoint = huggingface_folder(sentence_model, tmp_path / "hf", labels, order)
    found = evaluate(checkpoint, mood_tables, tmp_path / "out")
    expected = read_results(sentence_model)
    assert found["eval_accuracy"] == expected["eval_accuracy"] > 0.8
    assert found["eval_loss"] == pytest.approx(expected["eval_loss"], rel=1e-5)


def test_evaluation_with_other_labels_is_refused(sentence_model, mood_tables, tmp_path):
    checkpoint = huggingface_folder(sentence_model, tmp_path / "hf", ["joy", "anger"])
    with pytest.raises(ValueError, match=r"joy, anger|'joy', 'anger'"):
        evaluate(checkpoint, mood_tables, tmp_path / "out")


def test_evaluation_with_another_problem_type_is_refused(sentence_model, mood_tables, tmp_path):
    checkpoint = huggingface_folder(
        sentence_model, tmp_path / "hf", problem_type="multi_label_classification"
    )
    with pytest.raises(ValueError, match=r"single_label.*multi_label"):
        evaluate(checkpoint, mood_tables, tmp_path / "out", problem_type="single_label")


@pytest.mark.weekly
def test_training_permutes_the_classes_and_starts_a_new_classifier_for_other_labels(
    sentence_model, mood_tables, tmp_path, caplog
):
    caplog.set_level(logging.INFO)
    train = dict(do_train=True, train_file=mood_tables.train, num_train_epochs=0.2)
    labels = list(reversed(labels_of(sentence_model)))
    checkpoint = huggingface_folder(sentence_model, tmp_path / "hf", labels, [1, 0])
    found = evaluate(checkpoint, mood_tables, tmp_path / "out", learning_rate=1e-9, **train)
    assert found["eval_accuracy"] == read_results(sentence_model)["eval_accuracy"]
    caplog.clear()
    checkpoint = huggingface_folder(sentence_model, tmp_path / "other", ["joy", "anger"])
    evaluate(checkpoint, mood_tables, tmp_path / "out_other", **train)
    assert "joy, anger" in caplog.text and "a new one is trained" in caplog.text
    assert "output_weights" in caplog.text.split("with random values: ")[1].splitlines()[0]


def test_classes_without_names_are_taken_in_order_with_a_warning(
    pair_model, mrpc_folder, tmp_path, caplog
):
    checkpoint = huggingface_folder(pair_model, tmp_path / "hf", ["LABEL_0", "LABEL_1"])
    glue = dict(task_name="MRPC", data_dir=str(mrpc_folder), init_checkpoint=checkpoint)
    options = classifier_options(tmp_path / "out", do_eval=True, **glue)
    assert run_classifier(options)["eval_f1"] == read_results(pair_model)["eval_f1"]

    labels = ["equivalent", "not_equivalent"]
    checkpoint = huggingface_folder(pair_model, tmp_path / "named", labels, [1, 0])
    glue["init_checkpoint"] = checkpoint
    options = classifier_options(tmp_path / "out_named", do_eval=True, **glue)
    assert run_classifier(options)["eval_f1"] == read_results(pair_model)["eval_f1"]


def test_prediction_uses_the_head_and_the_names(sentence_model, tmp_path):
    texts = ["the good cat", "the bad dog"]
    expected = Predictor(str(sentence_model)).predict(texts)
    labels = list(reversed(labels_of(sentence_model)))
    checkpoint = huggingface_folder(sentence_model, tmp_path / "hf", labels, [1, 0])
    found = Predictor(checkpoint).predict(texts)
    assert [answer["label"] for answer in found] == [answer["label"] for answer in expected]
    for ours, theirs in zip(found, expected, strict=True):
        assert ours["probabilities"] == pytest.approx(theirs["probabilities"], abs=1e-6)
    pairs = [("the good cat", "the bad dog")]
    assert set(Predictor(checkpoint).predict(pairs)[0]["probabilities"]) == set(labels)


def test_a_head_that_nothing_describes_is_refused_by_name(sentence_model, tmp_path):
    checkpoint = huggingface_folder(sentence_model, tmp_path / "hf", architectures=None)
    predictor = Predictor(checkpoint)
    with pytest.raises(ValueError, match=r"output_weights.*head=classification"):
        predictor.predict(["the good cat"])
    assert predictor.embed(["the good cat"]).shape[0] == 1


def test_a_single_output_is_a_number(sentence_model, tmp_path):
    from safetensors.numpy import load_file, save_file

    checkpoint = huggingface_folder(sentence_model, tmp_path / "hf", ["LABEL_0"], problem_type=None)
    tensors = load_file(f"{checkpoint}/model.safetensors")
    tensors |= {name: tensors[name][:1].copy() for name in ("classifier.weight", "classifier.bias")}
    save_file(tensors, f"{checkpoint}/model.safetensors")
    classifier = Predictor(checkpoint)
    assert classifier.predict(["the good cat"])[0].keys() == {"score"}


def test_labels_of_words_go_by_name_as_well(ner_model, conll_folder, tmp_path):
    labels = list(reversed(labels_of(ner_model)))
    order = list(reversed(range(len(labels))))
    checkpoint = huggingface_folder(ner_model, tmp_path / "hf", labels, order)
    options = dict(data_dir=str(conll_folder), init_checkpoint=checkpoint, do_eval=True)
    found = run_ner(ner_options(tmp_path / "out", **options))
    expected = read_results(ner_model)
    assert found["eval_f1"] == expected["eval_f1"] > 0.5
    (ours,) = Predictor(checkpoint).predict(["a cat is in the barn"])
    (theirs,) = Predictor(str(ner_model)).predict(["a cat is in the barn"])
    assert len(ours["entities"]) == len(theirs["entities"]) > 0
    for found, wanted in zip(ours["entities"], theirs["entities"], strict=True):
        assert found == wanted | {"probability": pytest.approx(wanted["probability"], abs=1e-6)}


def test_a_head_without_a_pooler_is_evaluated(ner_model, conll_folder, tmp_path):
    """As transformers saves it: its classes for words have no pooler."""
    checkpoint = huggingface_folder(ner_model, tmp_path / "hf")
    (tmp_path / "hf" / "pooler.safetensors").unlink()
    options = dict(data_dir=str(conll_folder), init_checkpoint=checkpoint, do_eval=True)
    found = run_ner(ner_options(tmp_path / "out", **options))
    assert found["eval_f1"] == read_results(ner_model)["eval_f1"]
