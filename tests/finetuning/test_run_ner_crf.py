"""run_ner --crf: what it learns and leaves, what the folder keeps, and bad input."""

import dataclasses
import json

import numpy as np
import pytest
from tiny_runs import checkpoint_arrays, read_results
from tiny_words_and_choices import ner_options

from bert_tf.data.label_schemes import breaks
from bert_tf.data.token_classification import read_conll
from bert_tf.finetuning.setup import make_optimizer
from bert_tf.finetuning.token_classification import read_data, run_ner
from bert_tf.model_files import read_task
from bert_tf.modeling.models import BertForTokenClassification
from bert_tf.predictor import EntityRecognizer
from bert_tf.programs.convert_checkpoint import convert
from bert_tf.tokenization import FullTokenizer


def test_it_learns_and_predicts_valid_sentences_only(crf_model):
    results = read_results(crf_model)
    assert results["eval_f1"] > 0.9 and 0 < results["eval_loss"] < 0.5
    for sentence in read_conll(str(crf_model / "test_predictions.txt")):
        assert not list(breaks(sentence.labels, "iob2"))
    transitions = checkpoint_arrays(crf_model)["crf/transitions"]
    assert transitions.shape == (6, 6) and np.abs(transitions).max() > 0.1


def test_the_folder_keeps_it(crf_model, conll_folder, tmp_path):
    assert json.loads((crf_model / "task.json").read_text())["crf"] == "iob2"
    options = ner_options(
        tmp_path / "again",
        init_checkpoint=str(crf_model),
        eval_file=str(conll_folder / "valid.txt"),
        do_eval=True,
    )
    expected = read_results(crf_model) | {"global_step": 0}
    run_ner(options)
    assert read_results(tmp_path / "again") == expected
    task = read_task(str(crf_model))
    for crf in (False, True):
        assert read_data(dataclasses.replace(options, crf=crf), task)[0].crf == "iob2"


def test_a_folder_of_the_class_keeps_it(crf_model, tmp_path):
    model = BertForTokenClassification.from_pretrained(str(crf_model))
    model.save_pretrained(str(tmp_path / "tf1"), format="tf1")
    again = BertForTokenClassification.from_pretrained(str(tmp_path / "tf1"))
    assert not again.load_report.missing and not again.load_report.unexpected
    np.testing.assert_array_equal(again.crf.allowed, model.crf.allowed)
    np.testing.assert_array_equal(again.crf.transitions, model.crf.transitions)
    assert json.loads((tmp_path / "tf1" / "task.json").read_text())["crf"] == "iob2"
    with pytest.raises(ValueError, match="crf/transitions"):
        model.save_pretrained(str(tmp_path / "huggingface"))
    with pytest.raises(ValueError, match="crf/transitions"):
        convert(crf_model, tmp_path / "converted")
    convert(crf_model, tmp_path / "converted", head="token_classification")
    assert "crf" not in json.loads((tmp_path / "converted" / "task.json").read_text())


def test_raw_text_is_one_sentence_however_long(crf_model):
    recognizer = EntityRecognizer(str(crf_model))
    short, long = recognizer.predict(["a owl is in the barn", "a owl is in the barn " * 20])
    assert [(each["type"], each["text"]) for each in short] == [("A", "owl"), ("B", "the barn")]
    assert long[-1]["start"] > 300 and all(0 < each["probability"] <= 1 for each in long)


@pytest.mark.parametrize("feature_based", [False, True])
def test_the_transitions_have_a_rate_of_their_own(feature_based):
    options = ner_options(
        "output", data_dir="data", do_eval=True, crf=True, feature_based=feature_based
    )
    optimizer = make_optimizer(options, 2, 100, 0)
    base = 1e-3 if feature_based else options.learning_rate
    assert optimizer.learning_rate_factor("crf/transitions") == pytest.approx(1e-2 / base)
    assert optimizer.learning_rate_factor("bert/embeddings/word_embeddings") == 1.0
    plain = make_optimizer(dataclasses.replace(options, crf=False), 2, 100, 0)
    assert plain.learning_rate_factor("crf/transitions") == 1.0


def test_labels_that_break_the_scheme_are_read_as_conlleval_reads_them(
    pretrained, tmp_path, caplog
):
    broken = "a x O\ncat x I-A\n\nthe x I-B\nbarn x I-B\ndog x B-A\n\nowl x B-A\na x O\n\n"
    good = "owl x B-A\nbarn x I-A\n\n" * 4
    (tmp_path / "train.txt").write_text(good + broken)
    options = ner_options(
        tmp_path / "output", train_file=str(tmp_path / "train.txt"), do_train=True, crf=True
    )
    task, splits = read_data(options)
    assert task.crf == "iob2"
    rows = list(task.records(splits["train"], FullTokenizer.from_pretrained(str(pretrained))))
    labels = [[task.labels[label] for label in row["label_ids"]] for row in rows]
    assert [row[:3] for row in labels[4:6]] == [["O", "B-A", "O"], ["B-B", "I-B", "B-A"]]
    assert "2 labels break the scheme iob2" in caplog.text
    plain, splits = read_data(dataclasses.replace(options, crf=False))
    assert plain.crf is None and splits["train"][4].labels == ("O", "I-A")
