"""run_ner: fine-tune, evaluate, predict in CoNLL columns; the feature-based way; bad input."""

import json
import random
from pathlib import Path

import pytest
import tensorflow as tf
from tiny_checkpoints import arrays_of, write_tf1
from tiny_runs import assert_bit_equal, checkpoint_arrays, read_results
from tiny_words_and_choices import conll, ner_options, ner_training

from bert_tf.data.token_classification import read_conll
from bert_tf.data.word_splitting import join_words
from bert_tf.finetuning.token_classification import NerOptions, run_ner
from bert_tf.metrics.conlleval import conlleval, entities
from bert_tf.predictor import EntityRecognizer, load
from bert_tf.programs.export_saved_model import ExportOptions, export_saved_model

# ------------------------------------------------------------------------------------ what it leaves


def test_it_leaves_its_labels_and_its_task(ner_model):
    assert (ner_model / "labels.txt").read_text() == "O\nB-A\nI-A\nB-B\nI-B\n"
    assert json.loads((ner_model / "task.json").read_text()) == {
        "task": "token_classification",
        "labels": ["O", "B-A", "I-A", "B-B", "I-B"],
        "max_seq_length": 19,
        "document_context": False,
        "doc_stride": None,
        "feature_layers": None,
        "bilstm_units": 768,
        "word_labels": False,
        "word_splitting": "basic",
    }


def test_what_can_be_learned_is_learned_and_scored_by_conlleval(ner_model, conll_folder):
    results = read_results(ner_model)
    assert results["eval_f1"] > 0.9
    rows = [line.split() for line in (ner_model / "eval_predictions.txt").read_text().splitlines()]
    assert [row[:3] for row in rows if row] == [
        line.split() for line in (conll_folder / "valid.txt").read_text().splitlines() if line
    ]
    actual, predicted = ([[row[column] for row in rows if row]] for column in (2, 3))
    scores = conlleval(actual, predicted)  # no entity touches the end of a sentence's next
    assert results["eval_accuracy"] == pytest.approx(scores.accuracy)
    assert results["eval_f1_A"] == pytest.approx(scores.by_type["A"].f1)
    assert (
        (ner_model / "eval_report.txt")
        .read_text()
        .startswith("processed 66 tokens with 22 phrases")
    )


def test_predictions_are_the_test_file_with_other_labels(ner_model, conll_folder):
    found = (ner_model / "test_predictions.txt").read_text().splitlines()
    given = (conll_folder / "test.txt").read_text().splitlines()
    assert len(found) == len(given)
    for line, original in zip(found, given, strict=True):
        assert line.split()[:2] == original.split()[:2]
    assert found[0] == "-DOCSTART- -X- O"
    predicted = read_conll(str(ner_model / "test_predictions.txt"))
    assert predicted[0].labels == ("O", "B-A", "O", "O", "B-B", "I-B")
    assert "test_f1 = " in (ner_model / "test_results.txt").read_text()


# ------------------------------------------------------------------------------ afterwards, elsewhere


def test_evaluation_afterwards_needs_only_the_data_and_the_folder(
    ner_model, conll_folder, tmp_path
):
    options = NerOptions(
        output_dir=str(tmp_path),
        init_checkpoint=str(ner_model),
        eval_file=str(conll_folder / "valid.txt"),
        do_eval=True,
        eval_batch_size=3,
    )
    found, expected = run_ner(options), read_results(ner_model)
    assert found == pytest.approx({**expected, "global_step": found["global_step"]}, rel=1e-4)


@pytest.fixture(scope="module")
def pos_model(pretrained, tmp_path_factory):
    """A run of run_ner on parts of speech: determiners, nouns, verbs and prepositions."""
    tags = {"a": "DT", "the": "DT", "is": "VBZ", "in": "IN"}
    folder = tmp_path_factory.mktemp("pos")
    for name, number in (("train", 90), ("dev", 11), ("test", 3)):
        rows = [line.split(" ")[0] for line in conll(number, seed=number).splitlines()]
        lines = (f"{word} {tags.get(word, 'NN')}\n" if word else "\n" for word in rows)
        (folder / f"{name}.txt").write_text("".join(lines))
    options = {"do_eval": True, "do_predict": True, "evaluate_steps": 20, "label_scheme": "words"}
    run_ner(ner_training(pretrained, folder, folder / "out", **options))
    return folder / "out"


def test_labels_of_words_are_scored_by_accuracy_and_macro_f1(pos_model):
    results = read_results(pos_model)
    assert set(results) == {"global_step", "eval_accuracy", "eval_f1_macro", "eval_loss", "loss"}
    assert results["eval_accuracy"] > 0.95
    assert json.loads((pos_model / "task.json").read_text())["word_labels"] is True
    assert (pos_model / "labels.txt").read_text().split() == ["DT", "IN", "NN", "VBZ"]
    best = json.loads((pos_model / "best" / "best.json").read_text())
    assert best["metric"] == "eval_accuracy"
    text = (pos_model / "eval_report.txt").read_text()
    assert "macro F1" in text and "phrases" not in text
    page = (pos_model / "report.html").read_text()
    assert "F1 by label" in page and "entities" not in page
    predicted = (pos_model / "test_predictions.txt").read_text().splitlines()
    assert [line.split()[-1] for line in predicted[:3]] == ["DT", "NN", "VBZ"]


def test_every_word_is_predicted_with_its_label_by_model_and_export(pos_model, tmp_path):
    texts = ["the owl is in a barn", ""]
    model = EntityRecognizer(str(pos_model))
    first, second = model.predict(texts)
    assert second == []
    assert [(word["text"], word["label"]) for word in first] == [
        *(("the", "DT"), ("owl", "NN"), ("is", "VBZ"), ("in", "IN"), ("a", "DT"), ("barn", "NN"))
    ]
    assert [(word["start"], word["end"]) for word in first[:2]] == [(0, 3), (4, 7)]
    given = {"export_dir": str(tmp_path / "1"), "signature": "serving_default"}
    export_saved_model(ExportOptions(model_dir=str(pos_model), **given))
    served = tf.saved_model.load(str(tmp_path / "1")).signatures["serving_default"]
    found = served(text=tf.constant(texts))
    for name, part in (("word", "text"), ("label", "label")):
        assert [value.decode() for value in found[name].numpy()[0]] == [w[part] for w in first]
    assert found["probability"].numpy()[0] == pytest.approx(
        [word["probability"] for word in first], abs=1e-4
    )
    assert model.columns == ("words",)
    assert model.short({"words": first}) == "the/DT owl/NN is/VBZ in/IN a/DT barn/NN"


def offices(number, seed):
    """Sentences with words that hold punctuation, in CoNLL columns."""
    rng, blocks = random.Random(seed), []
    for _ in range(number):
        rows = [(rng.choice(["AT&T", "Yahoo!", "H&M"]), "B-ORG"), ("left", "O"), ("the", "O")]
        rows += [(rng.choice(["U.S.", "Baden-Baden", "Kiel"]), "B-LOC"), ("today", "O"), (".", "O")]
        blocks.append("".join(f"{word} {label}\n" for word, label in rows))
    return "\n".join(blocks)


def test_entities_of_raw_text_are_those_of_the_evaluation(pretrained, tmp_path):
    """Case 8: words that hold punctuation."""
    for name, number in (("train", 90), ("dev", 11)):
        (tmp_path / f"{name}.txt").write_text(offices(number, seed=number))
    model_dir = str(tmp_path / "out")
    results = run_ner(ner_training(pretrained, tmp_path, model_dir, do_eval=True))
    assert results["eval_f1"] == 1.0 and "eval_f1_of_text" not in results
    sentences = read_conll(str(tmp_path / "dev.txt"))
    expected = [
        [(e.type, " ".join(row.words[e.start : e.end])) for e in entities(row.labels)]
        for row in sentences
    ]
    given = {"export_dir": str(tmp_path / "1"), "signature": "serving_default"}
    export_saved_model(ExportOptions(model_dir=model_dir, **given))
    written, typed = ([join(row.words) for row in sentences] for join in (" ".join, join_text))
    assert typed[0].endswith("today.")
    for folder, items in (
        (model_dir, written),
        (model_dir, typed),
        (model_dir, [list(row.words) for row in sentences]),
    ):
        answers = load(folder).predict(items)
        found = [[(e["type"], e["text"]) for e in answer["entities"]] for answer in answers]
        assert found == expected
    served = tf.saved_model.load(given["export_dir"]).signatures["serving_default"]
    for texts in (written, typed):
        outputs = served(text=tf.constant(texts))
        rows = zip(outputs["type"].numpy().astype(str), outputs["entity"].numpy(), strict=True)
        found = [[(t, e.decode()) for t, e in zip(*row, strict=True) if t] for row in rows]
        assert found == expected
    (answer,) = load(model_dir).predict([["Yahoo!", "left", "the", "U.S.", "today", "."]])
    assert [(e["start"], e["end"]) for e in answer["entities"]] == [(0, 1), (3, 4)]
    # a model that splits otherwise: F1 of raw text stands beside that of words
    task = json.loads((tmp_path / "out" / "task.json").read_text())
    (tmp_path / "out" / "task.json").write_text(json.dumps(task | {"word_splitting": "basic"}))
    options = ner_options(tmp_path / "out", eval_file=str(tmp_path / "dev.txt"), do_eval=True)
    again = run_ner(options)
    assert again["eval_f1"] == 1.0 and again["eval_f1_of_text"] < 0.6


def join_text(words):
    return join_words(words)[0]


def test_words_without_labels_get_a_column_of_labels(ner_model, tmp_path):
    (tmp_path / "words.txt").write_text("a\ncat\n\nthe\nbarn\n")
    run_ner(
        NerOptions(
            output_dir=str(tmp_path),
            init_checkpoint=str(ner_model),
            predict_file=str(tmp_path / "words.txt"),
            do_predict=True,
        )
    )
    rows = (tmp_path / "test_predictions.txt").read_text().splitlines()
    assert [row.split("\t")[0] for row in rows] == ["a", "cat", "", "the", "barn"]
    assert rows[1] == "cat\tB-A"
    assert not (tmp_path / "test_results.txt").exists()


@pytest.mark.usefixtures("steps_without_training")
def test_document_context_is_trained_with_and_kept_to(pretrained, conll_folder, tmp_path, caplog):
    options = ner_training(
        pretrained, conll_folder, tmp_path, document_context=True, num_train_epochs=1.0
    )
    with caplog.at_level("INFO"):
        run_ner(options)
    assert json.loads((tmp_path / "task.json").read_text())["document_context"] is True
    # 3 documents of 30 * 6 words make windows of 17 words, 8 apart
    assert "90 sentences in 66 windows, 4 steps" in caplog.text
    run_ner(ner_options(tmp_path, data_dir=str(conll_folder), do_eval=True))
    assert read_results(tmp_path)["eval_accuracy"] > 0


# ------------------------------------------------------------------------------------- feature-based


@pytest.mark.night
def test_the_feature_based_way_learns_and_leaves_the_encoder_as_it_was(
    pretrained, conll_folder, tmp_path
):
    options = ner_training(
        pretrained,
        conll_folder,
        tmp_path,
        do_eval=True,
        feature_based=True,
        feature_layers="weighted_sum_all_layers",
    )
    results = run_ner(options)
    assert results["eval_f1"] > 0.9
    before, after = (
        {
            name: value
            for name, value in checkpoint_arrays(str(Path(folder) / prefix)).items()
            if name.startswith("bert/") and "/adam_" not in name
        }
        for folder, prefix in ((pretrained, "model.ckpt-150"), (tmp_path, "model.ckpt-45"))
    )
    assert_bit_equal(after, before)
    assert not any("/adam_" in name and name.startswith("bert/") for name in after)

    again = run_ner(ner_options(tmp_path, data_dir=str(conll_folder), do_eval=True))
    assert again == pytest.approx(results, rel=1e-5)
    with pytest.raises(ValueError, match=r"output_dir.*feature_layers"):
        run_ner(ner_training(pretrained, conll_folder, tmp_path))


# ----------------------------------------------------------------------------------------- bad input


def changed(conll_folder, tmp_path, **files):
    """A copy of the data in which some files are others."""
    folder = tmp_path / "data"
    folder.mkdir()
    for path in conll_folder.iterdir():
        (folder / path.name).write_text(files.get(path.stem, path.read_text()))
    return folder


@pytest.mark.parametrize(
    "files, changes, message",
    [
        ({"valid": "a x O\nb O\n"}, {}, "valid.txt:2"),
        ({"valid": "a x O\n\nb x B-Z\n"}, {}, "valid.txt:3: the label is 'B-Z'.*B-A"),
        ({"train": "a x O\nb x O\n"}, {}, "train.txt: every label is 'O'"),
        ({"train": "a x O\nb x A\n"}, {"label_column": 2}, "train.txt:1: "),
        ({"valid": "a x O\nb x I-A\n"}, {"label_scheme": "iob2"}, "label_scheme.*valid.txt:2"),
        ({}, {"train_file": "/nowhere/a.txt"}, "/nowhere/a.txt"),
        ({}, {"max_seq_length": 2}, "max_seq_length"),
        ({}, {"max_seq_length": 32}, "max_seq_length"),
        ({}, {"label_column": 4}, "train.txt:3.*label_column"),
        ({}, {"evaluate_steps": 5, "best_metric": "eval_f1_C"}, "best_metric"),
    ],
)
def test_bad_input_is_an_error_that_says_where(
    pretrained, conll_folder, tmp_path, files, changes, message
):
    folder = changed(conll_folder, tmp_path, **files)
    options = ner_training(pretrained, folder, tmp_path / "output", do_eval=True, **changes)
    with pytest.raises((ValueError, OSError), match=message):
        run_ner(options)
    assert not list(tmp_path.glob("output/model.ckpt*"))


def test_a_checkpoint_that_does_not_know_its_labels_is_refused(conll_folder, tmp_path):
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nthe\n")
    options = ner_options(
        tmp_path / "output",
        data_dir=str(conll_folder),
        init_checkpoint=write_tf1(tmp_path, arrays_of("classifier")),
        do_eval=True,
        max_seq_length=9,
    )
    with pytest.raises(ValueError, match=r"task\.json"):
        run_ner(options)
