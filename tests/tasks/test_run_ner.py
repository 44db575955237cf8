"""run_ner: CoNLL columns, labels of words, the CRF, the feature-based way, and bad input."""

import json
import random
import shutil

import numpy as np
import pytest
import tensorflow as tf
from helpers import assert_bit_equal, checkpoint_arrays, lines_of, read_results, refused, write
from models import DATA, golden, options, train
from tiny_checkpoints import arrays_of, write_tf1

from bert_tf.data.label_schemes import conlleval, find_entities
from bert_tf.data.token_classification import join_words, read_conll
from bert_tf.modeling.models import BertForTokenClassification
from bert_tf.options import make_options
from bert_tf.prediction.predictor import load
from bert_tf.serving.convert_checkpoint import convert
from bert_tf.serving.export_saved_model import ExportOptions, export_saved_model
from bert_tf.tasks.run_ner import (
    NerOptions,
    choose_learning_rates,
    read_data,
    run_ner,
)
from bert_tf.tasks.token_classification import TokenClassificationTask


def ner_options(output_dir, **changes):
    return make_options(NerOptions, output_dir=str(output_dir), **changes)


def conll_files(folder):
    names = {"train_file": "train", "eval_file": "valid", "predict_file": "test"}
    return {flag: f"{folder}/{name}.txt" for flag, name in names.items()}


# --------------------------------------------------------------------------------------- what it leaves


def evaluated_words(folder):
    """Columns of the words that were evaluated: each word of the file, with its label, and another."""
    words, given = (
        [line.split() for line in lines_of(path) if line.strip() and not line.startswith("-")]
        for path in (folder / "eval_predictions.txt", DATA / "conll/valid.txt")
    )
    assert [row[:3] for row in words] == given
    return words


def test_the_evaluation_is_that_of_conlleval():
    folder = golden("ner")
    results, words = read_results(folder), evaluated_words(folder)
    actual, predicted = ([[row[column] for row in words]] for column in (2, 3))
    scores = conlleval(actual, predicted)  # no entity touches the end of a sentence's next
    assert results["eval_accuracy"] == pytest.approx(scores.accuracy)
    assert results["eval_f1_A"] == pytest.approx(scores.by_type["A"].f1)
    assert lines_of(folder / "eval_report.txt")[0].startswith(
        f"processed {len(words)} tokens with 22 phrases"
    )


def test_words_without_labels_get_a_column_of_labels(tmp_path):
    file = write(tmp_path / "words.txt", "a\ncat\n\nthe\nbarn\n")
    given = {"init_checkpoint": str(golden("ner")), "predict_file": file, "do_predict": True}
    run_ner(ner_options(tmp_path, **given))
    rows = lines_of(tmp_path / "test_predictions.txt")
    assert [row.split("\t")[0] for row in rows] == ["a", "cat", "", "the", "barn"]
    assert rows[1] == "cat\tB-A"
    assert not (tmp_path / "test_results.txt").exists()


def test_document_context_is_trained_with_and_kept_to(tmp_path, caplog, eagerly):
    with caplog.at_level("INFO"):
        given = {"do_eval": False, "do_predict": False, "num_train_epochs": 0.25}
        train("ner", tmp_path, document_context=True, **given)
    assert json.loads((tmp_path / "task.json").read_text())["document_context"] is True
    # 3 documents of 30 * 6 words make windows of 17 words, 8 apart
    assert "90 examples in 66 windows, steps: 1" in caplog.text
    run_ner(ner_options(tmp_path, eval_file=f"{DATA}/conll/valid.txt", do_eval=True))
    words = evaluated_words(tmp_path)
    hits = [actual == predicted for *_, actual, predicted in words]
    assert read_results(tmp_path)["eval_accuracy"] == pytest.approx(np.mean(hits))


# ------------------------------------------------------------------------------------ labels of words


@pytest.mark.night
def test_labels_of_words_are_predicted_by_model_and_export(tmp_path):
    tags = {"a": "DT", "the": "DT", "is": "VBZ", "in": "IN"}
    for name in ("train", "valid", "test"):
        rows = [line.split(" ")[0] for line in lines_of(DATA / f"conll/{name}.txt")]
        lines = (
            f"{word} {tags.get(word, 'NN')}" if word else "" for word in rows if word[:1] != "-"
        )
        write(tmp_path / f"{name}.txt", "\n".join(lines) + "\n")
    folder = tmp_path / "out"
    given = conll_files(tmp_path) | {"label_scheme": "words", "evaluate_steps": 20}
    results = train("ner", folder, **given)
    assert set(results) == {"global_step", "eval_accuracy", "eval_f1_macro", "eval_loss", "loss"}
    assert results["eval_accuracy"] > 0.95
    assert (folder / "labels.txt").read_text().split() == ["DT", "IN", "NN", "VBZ"]
    assert json.loads((folder / "best/best.json").read_text())["metric"] == "eval_accuracy"
    text, page = ((folder / name).read_text() for name in ("eval_report.txt", "report.html"))
    assert "macro F1" in text and "phrases" not in text
    assert "F1 by label" in page and "entities" not in page

    texts = ["the owl is in a barn", ""]
    model = load(folder).text_model
    first, second = (answer["words"] for answer in model.predict(texts))
    assert second == []
    assert model.short({"words": first}) == "the/DT owl/NN is/VBZ in/IN a/DT barn/NN"
    assert [(word["start"], word["end"]) for word in first[:2]] == [(0, 3), (4, 7)]
    given = {"export_dir": str(tmp_path / "1"), "signature": "serving_default"}
    export_saved_model(make_options(ExportOptions, model_dir=str(folder), **given))
    served = tf.saved_model.load(str(tmp_path / "1")).signatures["serving_default"]
    found = served(text=tf.constant(texts))
    for name, part in (("word", "text"), ("label", "label")):
        assert [value.decode() for value in found[name].numpy()[0]] == [w[part] for w in first]
    assert found["probability"].numpy()[0] == pytest.approx(
        [word["probability"] for word in first], abs=1e-4
    )


def test_labels_of_words_are_taken_if_the_flag_says_so(tmp_path):
    file = write(tmp_path / "a.txt", "the DET\ndog NOUN\nbarks B-X\n")
    given = {"train_file": file, "do_train": True, "crf": True}
    with refused("a.txt:1"):
        read_data(ner_options(tmp_path, **given))
    task, _ = read_data(ner_options(tmp_path, **given, label_scheme="words"))
    assert task.word_labels and task.crf == "words" and task.labels == ("B-X", "DET", "NOUN")


# ----------------------------------------------------------------------------------------- raw text


def offices(number, seed):
    """Sentences with words that hold punctuation, in CoNLL columns."""
    rng, blocks = random.Random(seed), []
    for _ in range(number):
        rows = [(rng.choice(["AT&T", "Yahoo!", "H&M"]), "B-ORG"), ("left", "O"), ("the", "O")]
        rows += [(rng.choice(["U.S.", "Baden-Baden", "Kiel"]), "B-LOC"), ("today", "O"), (".", "O")]
        blocks.append("".join(f"{word} {label}\n" for word, label in rows))
    return "\n".join(blocks)


@pytest.mark.night
def test_entities_of_raw_text_are_those_of_the_evaluation(tmp_path):
    """Case 8: words that hold punctuation."""
    for name, number in (("train", 90), ("dev", 11)):
        write(tmp_path / f"{name}.txt", offices(number, seed=number))
    folder, file = tmp_path / "out", str(tmp_path / "dev.txt")
    files = {"train_file": f"{tmp_path}/train.txt", "eval_file": file, "do_predict": False}
    assert train("ner", folder, **files)["eval_f1"] == 1.0
    sentences = [list(row.words) for row in read_conll(file)]
    expected = [
        [(e.type, " ".join(row.words[e.start : e.end])) for e in find_entities(row.labels)]
        for row in read_conll(file)
    ]
    written = [" ".join(words) for words in sentences]
    typed = [join_words(words)[0] for words in sentences]
    assert typed[0].endswith("today.")
    for items in (written, typed, sentences):
        answers = load(folder).predict(items)
        assert [[(e["type"], e["text"]) for e in each["entities"]] for each in answers] == expected
    given = {"export_dir": str(tmp_path / "1"), "signature": "serving_default"}
    export_saved_model(make_options(ExportOptions, model_dir=str(folder), **given))
    served = tf.saved_model.load(given["export_dir"]).signatures["serving_default"]
    for texts in (written, typed):
        outputs = served(text=tf.constant(texts))
        rows = zip(outputs["type"].numpy().astype(str), outputs["entity"].numpy(), strict=True)
        found = [[(t, e.decode()) for t, e in zip(*row, strict=True) if t] for row in rows]
        assert found == expected
    (answer,) = load(folder).predict([["Yahoo!", "left", "the", "U.S.", "today", "."]])
    assert [(e["start"], e["end"]) for e in answer["entities"]] == [(0, 1), (3, 4)]


def test_the_splitting_of_the_training_words_is_kept(tmp_path):
    file = write(tmp_path / "a.txt", "AT&T B-ORG\nleft O\nU.S. B-LOC\n. O\n\nU.S. B-LOC\n")
    task, _ = read_data(ner_options(tmp_path, train_file=file, do_train=True))
    arguments = task.arguments()
    assert arguments["word_splitting"] == "outer_punctuation"
    assert arguments["whole_words"] == ["U.S."]
    assert TokenClassificationTask(**arguments).arguments() == arguments
    old = {n: v for n, v in arguments.items() if n not in ("word_splitting", "whole_words")}
    assert TokenClassificationTask(**old).word_splitting == "basic"


# ---------------------------------------------------------------------------------------- the CRF


def test_a_folder_of_the_class_keeps_its_crf(tmp_path):
    model = BertForTokenClassification.from_pretrained(str(golden("crf")))
    model.save_pretrained(str(tmp_path / "tf1"), format="tf1")
    again = BertForTokenClassification.from_pretrained(str(tmp_path / "tf1"))
    assert not again.load_report.missing and not again.load_report.unexpected
    np.testing.assert_array_equal(again.crf.allowed, model.crf.allowed)
    np.testing.assert_array_equal(again.crf.transitions, model.crf.transitions)
    assert json.loads((tmp_path / "tf1" / "task.json").read_text())["crf"] == "iob2"
    for write_folder in (model.save_pretrained, lambda path: convert(golden("crf"), path)):
        with refused("crf/transitions"):
            write_folder(str(tmp_path / "huggingface"))
    convert(golden("crf"), tmp_path / "converted", head="token_classification")
    assert "crf" not in json.loads((tmp_path / "converted" / "task.json").read_text())


def test_raw_text_is_one_sentence_for_a_crf_however_long():
    texts = ["a owl is in the barn", "a owl is in the barn " * 20]
    short, long = (answer["entities"] for answer in load(golden("crf")).predict(texts))
    assert [(each["type"], each["text"]) for each in short] == [("A", "owl"), ("B", "the barn")]
    assert long[-1]["start"] > 300 and all(0 < each["probability"] <= 1 for each in long)


def test_transitions_have_a_learning_rate_of_their_own():
    model = load(golden("crf")).model
    for feature_based in (False, True):
        given = options("crf", "output", feature_based=feature_based)
        rates = choose_learning_rates(given)
        optimizer = given.training.make_optimizer(model, 100, 10, rates)
        base = 1e-3 if feature_based else given.training.learning_rate
        assert optimizer.schedule.learning_rate == base
        assert optimizer.learning_rate_factor("crf/transitions") == pytest.approx(1e-2 / base)
        assert optimizer.learning_rate_factor("bert/embeddings/word_embeddings") == 1.0
        plain = given.training.make_optimizer(model, 100, 10, {})
        assert plain.learning_rate_factor("crf/transitions") == 1.0


# ------------------------------------------------------------------------------------- feature-based


@pytest.mark.night
def test_the_feature_based_way_learns_and_leaves_the_encoder_as_it_was(tmp_path):
    given = {"feature_based": True, "feature_layers": "weighted_sum_all_layers"}
    results = train("ner", tmp_path, do_predict=False, init_layers=None, **given)
    assert results["eval_f1"] > 0.9
    before, after = (
        {name: value for name, value in checkpoint_arrays(folder).items() if name[:5] == "bert/"}
        for folder in (golden("pretrained"), tmp_path)
    )
    assert_bit_equal(after, {name: before[name] for name in before if "/adam_" not in name})
    again = run_ner(ner_options(tmp_path, eval_file=f"{DATA}/conll/valid.txt", do_eval=True))
    assert again == pytest.approx(results, rel=1e-5)
    with refused("output_dir"):
        train("ner", tmp_path, init_layers=None)


# ----------------------------------------------------------------------------------------- bad input


def test_bad_input_is_refused_before_training(tmp_path):
    data = shutil.copytree(DATA / "conll", tmp_path / "data")
    valid, train_rows = ((data / f"{name}.txt").read_text() for name in ("valid", "train"))
    for files, changes, name in (
        ({"valid": "a x O\n\nb x B-Z\n"}, {}, "valid.txt:3"),
        ({"train": "a x O\nb x O\n"}, {}, "labels"),
        ({"train": "a x O\nb x A\n"}, {"label_column": 2}, "train.txt:1"),
        ({}, {"max_seq_length": 32}, "max_seq_length"),
        ({}, {"label_column": 4}, "train.txt:3"),
        ({}, {"evaluate_steps": 5, "best_metric": "eval_f1_C"}, "best_metric"),
    ):
        write(data / "valid.txt", files.get("valid", valid))
        write(data / "train.txt", files.get("train", train_rows))
        with refused(name):
            train("ner", tmp_path / "output", **conll_files(data) | changes)
        assert not list(tmp_path.glob("output/model.ckpt*"))


def test_a_checkpoint_without_labels_is_not_evaluated(tmp_path):
    write(tmp_path / "vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\n")
    given = {"init_checkpoint": write_tf1(tmp_path, arrays_of("classifier")), "max_seq_length": 9}
    with refused("init_checkpoint"):  # it has no task.json
        run_ner(
            ner_options(
                tmp_path / "out", eval_file=f"{DATA}/conll/valid.txt", do_eval=True, **given
            )
        )
