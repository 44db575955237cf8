"""run_embeddings: train, evaluate, resume, predict; and the model in other formats."""

import json
import logging
import random
import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from pages import figures_of
from test_distillation import taught
from tiny_runs import (
    ANIMALS,
    PLACES,
    Interruption,
    checkpoint_arrays,
    interrupt_at,
    moods,
    read_results,
)
from tiny_words_and_choices import write_json_lines

import bert_tf
from bert_tf.finetuning.embeddings import Embeddings, run_embeddings
from bert_tf.finetuning.embeddings_data import read_examples
from bert_tf.finetuning.embeddings_options import EmbeddingOptions
from bert_tf.finetuning.setup import Setup
from bert_tf.metrics.retrieval import own_documents, relevance
from bert_tf.predictor import load
from bert_tf.tasks.embeddings import EmbeddingExample, EmbeddingTask
from bert_tf.training.checkpoints import latest_checkpoint

TEXTS = ["the owl", "a calm dog in the barn"]


def pairs(num_rows, seed):
    """Anchors with an animal, and a positive with the same one."""
    rng = random.Random(seed)
    rows = []
    for _ in range(num_rows):
        animal = rng.choice(ANIMALS)
        positive = f"the {animal} is in the {rng.choice(PLACES)}"
        rows.append({"anchor": f"a {animal}", "positive": positive})
    return rows


def scored(num_rows, seed):
    rng = random.Random(seed)
    rows = []
    for _ in range(num_rows):
        first, second = rng.choices(ANIMALS, k=2)
        rows.append({"text_a": f"a {first}", "text_b": f"the {second}", "score": first == second})
    return [{**row, "score": float(row["score"]) * 0.8 + 0.1} for row in rows]


def classes(num_rows, seed):
    return [{"text": text, "label": label} for text, label in moods(num_rows, seed)]


def options(output_dir, **changes):
    values = {
        "output_dir": str(output_dir),
        "max_seq_length": 15,
        "train_batch_size": 16,
        "learning_rate": 5e-3,
        "jit_compile": "false",
        "seed": 3,
    }
    return EmbeddingOptions(**{**values, **changes})


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """File of each kind of examples: name -> training file, evaluation file."""
    folder = tmp_path_factory.mktemp("data")
    makers = {"pairs": pairs, "scores": scored, "classes": classes}
    return {
        name: [
            write_json_lines(folder / f"{name}{seed}.jsonl", make(rows, seed))
            for seed, rows in ((1, 64), (2, 24))
        ]
        for name, make in makers.items()
    }


@pytest.fixture(scope="module")
def embedder(pretrained, data, tmp_path_factory):
    """A model with everything: projection, prefixes, smaller widths, parts of the batch."""
    folder = tmp_path_factory.mktemp("embedder")
    train, dev = data["pairs"]
    run_embeddings(
        options(
            folder,
            init_checkpoint=str(pretrained),
            do_train=True,
            do_eval=True,
            do_predict=True,
            train_file=train,
            eval_file=dev,
            predict_file=dev,
            num_train_epochs=6.0,
            gradient_accumulation_steps=2,
            projection_size=8,
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


def test_a_smaller_width_has_the_metric_of_the_first_numbers_of_each_vector(embedder, data):
    rows = [json.loads(line) for line in Path(data["pairs"][1]).read_text().splitlines()]
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


def test_predictions_are_the_best_documents_of_each_query(embedder, data):
    lines = (embedder / "test_predictions.jsonl").read_text().splitlines()
    found = [json.loads(line) for line in lines]
    rows = [json.loads(line) for line in Path(data["pairs"][1]).read_text().splitlines()]
    assert [line["query"] for line in found] == list(dict.fromkeys(r["anchor"] for r in rows))
    model = load(str(embedder))
    documents = list(dict.fromkeys(row["positive"] for row in rows))
    cosines = model.embed([found[0]["query"]], as_query=True) @ model.embed(documents).T
    assert found[0]["documents"][0]["text"] == documents[int(cosines.argmax())]
    assert found[0]["documents"][0]["score"] == pytest.approx(float(cosines.max()), abs=1e-5)
    mrr = read_results(embedder)["eval_mrr@10"]
    assert f"test_mrr@10 = {mrr}\n" in (embedder / "test_results.txt").read_text()


def test_the_report_has_the_metrics(embedder):
    report = (embedder / "report.html").read_text()
    assert {"ndcg@10", "examples"} <= set(figures_of(report))
    assert "bert_tf run_embeddings" in report


def test_prefixes_are_those_of_the_training(embedder):
    model = load(str(embedder))
    as_query, as_document = model.embed(TEXTS, as_query=True), model.embed(TEXTS)
    assert np.abs(as_query - as_document).max() > 1e-3
    np.testing.assert_allclose(np.linalg.norm(as_query, axis=1), 1, rtol=1e-5)


@pytest.mark.parametrize(
    ("kind", "metric", "least"),
    [
        ("scores", "eval_spearman", 0.6),
        ("classes", "eval_map@100", 0.8),
    ],
)
@pytest.mark.slow
def test_scores_and_classes_are_learned(pretrained, data, tmp_path, kind, metric, least):
    train, dev = data[kind]
    given = {"train_file": train, "eval_file": dev, "do_train": True, "do_eval": True}
    found = run_embeddings(
        options(tmp_path, init_checkpoint=str(pretrained), num_train_epochs=8.0, **given)
    )
    assert found[metric] > least


@pytest.mark.slow
def test_a_resumed_run_equals_an_uninterrupted_one(pretrained, data, tmp_path, monkeypatch):
    found = []
    for name in ("straight", "resumed"):
        given = options(
            tmp_path / name,
            init_checkpoint=str(pretrained),
            do_train=True,
            train_file=data["pairs"][0],
            num_train_epochs=2.0,
            gradient_accumulation_steps=2,
            save_checkpoints_steps=2,
            iterations_per_loop=1,
        )
        if name == "resumed":
            with monkeypatch.context() as patch, pytest.raises(Interruption):
                interrupt_at(patch, 5)
                run_embeddings(given)
        run_embeddings(given)
        found.append(checkpoint_arrays(latest_checkpoint(str(tmp_path / name))))
    straight, resumed = found
    # With parts of a batch, the last digits of two straight runs may differ too. The exact gradient of
    # a key bias is zero (softmax ignores a constant), so Adam scales rounding errors to whole steps.
    for name, value in straight.items():
        if "key/bias" not in name:
            np.testing.assert_allclose(resumed[name], value, rtol=1e-3, atol=1e-5, err_msg=name)


def test_the_best_evaluation_during_training_is_kept(pretrained, data, tmp_path):
    train, dev = data["pairs"]
    given = {"train_file": train, "eval_file": dev, "do_train": True, "do_eval": True}
    settings = {"init_checkpoint": str(pretrained), "num_train_epochs": 3.0, "evaluate_steps": 2}
    results = run_embeddings(options(tmp_path, **given, **settings))
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    evaluated = {line["step"]: line["eval_ndcg@10"] for line in lines if "eval_ndcg@10" in line}
    assert list(evaluated)[:2] == [2, 4] and len(set(evaluated.values())) > 1
    evaluated[results["global_step"]] = results["eval_ndcg@10"]
    best = json.loads((tmp_path / "best" / "best.json").read_text())
    assert best["metric"] == "eval_ndcg@10" and best["value"] == max(evaluated.values())
    given = {"init_checkpoint": str(tmp_path / "best"), "eval_file": dev, "do_eval": True}
    found = run_embeddings(options(tmp_path / "again", **given))
    assert found["eval_ndcg@10"] == pytest.approx(best["value"], abs=1e-6)


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
    pretrained, data, tmp_path, kind, num_texts, loss
):
    given = {"init_checkpoint": str(pretrained), "eval_file": data[kind][1], "do_eval": True}
    expected = run_embeddings(options(tmp_path / "program", **given))
    _, splits = read_examples(options(tmp_path / "read", **given))
    task = EmbeddingTask(max_seq_length=16, num_texts=num_texts, loss=loss)
    task.write_records(splits["dev"], load(pretrained).tokenizer, str(tmp_path / "dev.tf_record"))
    trainer = bert_tf.Trainer(
        task, init_checkpoint=pretrained, output_dir=tmp_path / "trainer", num_train_steps=1
    )
    found = trainer.evaluate(tmp_path / "dev.tf_record")
    assert {**found, "global_step": 0} == pytest.approx({**expected, "global_step": 0}, abs=1e-6)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: EmbeddingExample(None), "`texts` is 'None', but must be a tuple of texts"),
        (lambda: EmbeddingExample(("a", 1)), r"`texts` is \"\('a', 1\)\", but must be"),
        (lambda: EmbeddingExample(()), r"`texts` is '\(\)', but"),
        (lambda: EmbeddingExample(("a",), "sports"), "`label` is 'sports', but must be a number"),
        (lambda: ("a", "b"), "Example 1 is of type tuple, but must be an EmbeddingExample"),
        (lambda: EmbeddingExample(("a",)), r"Example 1 has 1 texts, but .* num_texts=2 takes 2\."),
        (
            lambda: EmbeddingExample(("a", "b"), 5.0),
            r"Example 1 has the label 5, but a score is from",
        ),
        (lambda: EmbeddingExample(("a", "b", "c")), r"has 3 texts.* Use EmbeddingTask\(num_texts="),
    ],
)
def test_wrong_examples_are_refused(pretrained, tmp_path, make, message):
    task = EmbeddingTask(max_seq_length=8, loss="cosent")
    tokenizer = load(pretrained).tokenizer
    with pytest.raises((TypeError, ValueError), match=message):
        examples = [EmbeddingExample(("a", "b")), make()]
        task.write_records(examples, tokenizer, str(tmp_path / "pairs.tf_record"))


def test_evaluation_of_an_encoder_needs_no_training(pretrained, data, tmp_path):
    given = options(
        tmp_path, init_checkpoint=str(pretrained), do_eval=True, eval_file=data["scores"][1]
    )
    assert -1 <= run_embeddings(given)["eval_spearman"] <= 1


def write(path, text):
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\tb\nx\ty\n", r"t.tsv:1: the columns are a, b, and none has the name of an anchor"),
        ("anchor\nx\n", "The anchor in 'anchor' needs a positive or a class"),
        ("anchor\tpositive\nx\t\n", r"t.tsv:2: positive is '', but must be a text"),
        ("text_a\ttext_b\tscore\nx\ty\t3\n", r"score is '3', but a score must be a number from 0"),
        ("text_a\ttext_b\tscore\nx\ty\t-.1\n", r"'-.1', .* -1 to 1 write \(score \+ 1\) / 2\."),
        ("text_a\ttext_b\tscore\nx\ty\tnan\n", "score is 'nan'"),
        (
            "text_a\ttext_b\tscore\nx\ty\t0,8\n",
            r"t.tsv:2: score is '0,8', but .* number .* Write a decimal point, not a comma",
        ),
        ("text_a\ttext_b\tscore\nx\ty\tTRUE\n", "score is 'TRUE', .* Write 1 for true and 0 for"),
        (
            "text_a\ttext_b\tlabel\nx\ty\tsame\n",
            r"'same', but a score must be a number.* label_column \(an empty name: none\)",
        ),
        ("text\tlabel\nx\tA\ny\tA\n", "every text has the class 'A', but .* label_column"),
        ("text\tlabel\nx\té\ny\te\u0301\n", r"t.tsv:3: the label is 'e\\u0301', but '\\xe9'"),
        ("anchor\tnegative\tlabel\nx\ty\tA\n", "needs a positive"),
        ("anchor\tpositive\n", "t.tsv has no examples"),
    ],
)
def test_wrong_tables_are_refused(tmp_path, text, message):
    file = write(tmp_path / "t.tsv", text)
    with pytest.raises(ValueError, match=message):
        read_examples(options(tmp_path / "out", do_train=True, train_file=file))


def test_empty_rows_of_a_spreadsheet_are_skipped_and_counted(tmp_path, caplog):
    file = write(tmp_path / "t.csv", "anchor,positive,note\na,b,c\n,,\nd,e,\n,,\n")
    _, splits = read_examples(options(tmp_path / "out", do_train=True, train_file=file))
    assert [each.texts for each in splits["train"]] == [("a", "b"), ("d", "e")]
    assert "2 rows without any text were skipped, the last in" in caplog.text
    assert "t.csv:5" in caplog.text


def test_the_sentence_of_a_table_with_classes_is_its_anchor(tmp_path):
    file = write(tmp_path / "t.tsv", "sentence\tlabel\nx\tA\ny\tB\nz\tA\n")
    kinds, splits = read_examples(options(tmp_path / "out", do_train=True, train_file=file))
    assert kinds == {"train": "classes"}
    assert [example.texts for example in splits["train"]] == [("x",), ("y",), ("z",)]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("sentence1,other,label\na,b,1\n", "'sentence1' is a name for two texts"),
        ("text,other,Similarity\na,b,1\n", "'Similarity' is a name for two texts"),
        ("text,other,label\na,b,1\nc,d,0.5\n", "label is '0.5', a score of two texts"),
        ('text,other,label\na,b,2\nc,d,"0,5"\n', "label is '0,5', a score of two texts"),
    ],
)
def test_a_table_of_two_texts_with_one_column_misnamed_has_no_classes(tmp_path, text, why):
    given = {"do_train": True, "train_file": write(tmp_path / "t.csv", text)}
    header = text.partition("\n")[0].replace(",", ", ")
    message = rf"t.csv:\d: the columns are {header}. {why}, but only one text.* positive_column"
    with pytest.raises(ValueError, match=message):
        read_examples(options(tmp_path / "out", **given))
    named = options(tmp_path / "out", positive_column="other", **given)
    if "2" not in text:
        assert read_examples(named)[0] == {"train": "scores"}


@pytest.mark.parametrize("labels", ["1 2 1.0", "v1.5 inf 2", "-1 1 -1"])
def test_names_and_whole_numbers_are_classes(tmp_path, labels):
    rows = [{"query": "x", "label": label} for label in labels.split()]
    given = {"do_train": True, "train_file": write_json_lines(tmp_path / "t.jsonl", rows)}
    assert read_examples(options(tmp_path / "out", **given))[0] == {"train": "classes"}


def test_a_name_in_other_capitals_than_given_is_suggested(tmp_path):
    file = write(tmp_path / "t.tsv", "ANCHOR\tpositive\nx\ty\n")
    given = {"do_train": True, "train_file": file, "anchor_column": "anchor"}
    with pytest.raises(ValueError, match=r"t.tsv:1: no column 'anchor'; did you mean \"ANCHOR\"\?"):
        read_examples(options(tmp_path / "out", **given))


def test_usual_names_of_columns_may_have_any_case(tmp_path):
    file = write(tmp_path / "t.tsv", "Sentence_a\tSENTENCE_B\tNegative\tNEGATIVE_2\na\tb\tc\td\n")
    kinds, splits = read_examples(options(tmp_path / "out", do_train=True, train_file=file))
    assert kinds == {"train": "pairs"}
    assert splits["train"][0].texts == ("a", "b", "c", "d")


def test_texts_that_differ_in_case_or_whitespace_are_one_document(tmp_path, caplog):
    rows = "anchor\tpositive\nWho?\tA  man\nwho? \ta man\nWhat?\tÉté\nWhen?\tEte\n"
    file = write(tmp_path / "t.tsv", rows)
    caplog.set_level(logging.INFO)
    _, splits = read_examples(options(tmp_path / "out", do_train=True, train_file=file))
    first, second, *others = (each.texts for each in splits["train"])
    assert first == second == ("Who?", "A  man")
    assert others == [("What?", "Été"), ("When?", "Ete")]  # other words for a cased vocabulary
    assert (
        "2 texts differ from another one only in case or whitespace, such as 'a man'" in caplog.text
    )
    _, documents, relevant = relevance(each.texts for each in splits["train"])
    assert list(documents) == ["A  man", "Été", "Ete"] and relevant[0] == [0, 0]


def test_records_give_texts_in_other_case_one_number(pretrained, tmp_path):
    task, tokenizer = EmbeddingTask(max_seq_length=8), load(pretrained).tokenizer
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


def test_a_table_of_another_name_names_no_flag_of_another_program(tmp_path):
    given = {"do_train": True, "train_file": write(tmp_path / "t.txt", "anchor\tpositive\n")}
    with pytest.raises(ValueError, match=r"unknown format of a table.* Rename the file\.$"):
        read_examples(options(tmp_path / "out", **given))


def test_a_data_set_of_glue_is_named_in_any_case(tmp_path):
    write(tmp_path / "dev.tsv", "a\tb\tc\td\te\n1\t2\t3\tx\ty\n")
    given = {"do_eval": True, "data_dir": str(tmp_path)}
    kinds, _ = read_examples(options(tmp_path / "out", task_name="MRPC", **given))
    assert kinds == {"dev": "scores"}
    assert options(tmp_path, task_name="STSB", **given).task_name == "STSB"
    with pytest.raises(ValueError, match="task_name is 'cola', but must be one of sts-b, mrpc"):
        options(tmp_path, task_name="cola", **given)


def test_files_may_be_of_different_kinds(data, tmp_path):
    given = {"train_file": data["pairs"][0], "eval_file": data["classes"][1]}
    kinds, splits = read_examples(options(tmp_path, do_train=True, do_eval=True, **given))
    assert kinds == {"train": "pairs", "dev": "classes"} and len(splits["dev"]) == 24


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        ("pairs", {"train_batch_size": 1}, "an anchor has no negatives"),
        ("scores", {"train_batch_size": 1}, "loss=cosent compares the examples of a batch"),
        ("classes", {"train_batch_size": 1}, "loss=batch_all_triplet compares the examples"),
        (
            "equal",
            {},
            "Every pair has the score 1, but loss=contrastive learns from different scores",
        ),
        ("equal", {"loss": "cosent"}, "Every pair has the score 1, but loss=cosent"),
        ("pairs", {"loss": "triplet"}, r"jsonl:1: loss=triplet needs a negative in every example"),
        (
            "pairs",
            {"loss": "cosent"},
            "loss=cosent is for two texts with a score, but the examples",
        ),
        (
            "scores",
            {"loss": "contrastive"},
            "loss=contrastive needs scores of 0 and 1, but found 0.1",
        ),
        ("pairs", {"matryoshka_dims": "99999"}, "must be below the width of the vectors"),
        (
            "pairs",
            {"matryoshka_dims": "8,x"},
            "matryoshka_dims is '8,x', but must be whole numbers",
        ),
    ],
)
def test_settings_that_do_not_fit_the_examples_are_refused(
    pretrained, data, tmp_path, kind, changes, message
):
    rows = [{"text_a": "a owl", "text_b": f"the {animal}", "score": 1} for animal in ANIMALS]
    equal = [write_json_lines(tmp_path / "equal.jsonl", rows)]
    train = {**data, "equal": equal}[kind][0]
    given = {"do_train": True, "train_file": str(train), "init_checkpoint": str(pretrained)}
    with pytest.raises(ValueError, match=message):
        run_embeddings(options(tmp_path / "out", **given, **changes))


def test_columns_may_be_named_and_have_several_negatives(tmp_path):
    text = "q,good,bad1,bad2\nwho,me,you,\nwhat,this,that,it\n"
    file = write(tmp_path / "t.csv", text)
    given = {"anchor_column": "q", "positive_column": "good", "negative_columns": "bad1,bad2"}
    _, splits = read_examples(options(tmp_path, do_train=True, train_file=file, **given))
    texts = [example.texts for example in splits["train"]]
    assert texts == [("who", "me", "you"), ("what", "this", "that", "it")]


def test_an_empty_name_of_a_column_is_no_label_and_no_negative(tmp_path):
    file = write(tmp_path / "t.csv", "query,positive,negative,label\nwho,me,you,7\n")
    files = {"do_train": True, "train_file": file, "do_predict": True, "predict_file": file}
    given = options(tmp_path / "out", **files, label_column="", negative_columns="")
    kinds, splits = read_examples(given)
    assert kinds == {"train": "pairs", "test": "pairs"}
    assert splits["train"][0].texts == splits["test"][0].texts == ("who", "me")


def test_a_column_of_json_lines_may_have_several_negatives(tmp_path):
    rows = [
        {"anchor": "who", "positive": "me", "negative": ["you", "", "she"], "negative_2": "it"},
        {"anchor": "what", "positive": "this", "negative": [], "negative_2": ""},
    ]
    given = options(
        tmp_path, do_train=True, train_file=write_json_lines(tmp_path / "t.jsonl", rows)
    )
    texts = [example.texts for example in read_examples(given)[1]["train"]]
    assert texts == [("who", "me", "you", "she", "it"), ("what", "this")]
    write_json_lines(tmp_path / "t.jsonl", [{**rows[0], "negative": ["you", 3]}])
    with pytest.raises(ValueError, match=r"t.jsonl:1: negative is 3, but must be a text"):
        read_examples(given)


def test_rows_of_json_lines_may_have_other_negatives_but_not_another_kind(tmp_path):
    rows = [
        {"anchor": "who", "positive": "me"},
        {"anchor": "what", "positive": "this", "negative": "that", "negative_2": "it"},
    ]
    file = write_json_lines(tmp_path / "t.jsonl", rows)
    given = options(tmp_path / "out", do_train=True, train_file=str(file))
    _, splits = read_examples(given)
    texts = [example.texts for example in splits["train"]]
    assert texts == [("who", "me"), ("what", "this", "that", "it")]
    write_json_lines(tmp_path / "t.jsonl", [*rows, {"anchor": "a", "positive": "b", "score": 1}])
    message = r"different types of examples \(.*t.jsonl:1: pairs, .*t.jsonl:3: scores\)"
    with pytest.raises(ValueError, match=message):
        read_examples(given)


def test_settings_of_the_model_are_the_defaults(pretrained, data, tmp_path):
    changes = {"normalize": False, "scale": 7.0, "matryoshka_dims": "4", "query_prefix": "a "}
    given = {"do_train": True, "train_file": data["pairs"][0], "num_train_epochs": 1.0}
    run_embeddings(options(tmp_path / "one", init_checkpoint=str(pretrained), **given, **changes))
    changes = {"matryoshka_dims": "", "max_seq_length": None}
    run_embeddings(options(tmp_path / "two", init_checkpoint=f"{tmp_path}/one", **given, **changes))
    one, two = (json.loads((tmp_path / name / "task.json").read_text()) for name in ("one", "two"))
    assert one["normalize"] is False and one["scale"] == 7 and one["matryoshka_dims"] == [4]
    assert two == one | {"matryoshka_dims": []}


@pytest.mark.parametrize("wanted", ["train", "eval"])
def test_a_folder_of_sentence_transformers_has_its_longest_input(
    pretrained, data, tmp_path, wanted
):
    tokenizer = bert_tf.FullTokenizer.from_pretrained(pretrained)
    model = bert_tf.BertForSentenceEmbedding.from_pretrained(pretrained)
    model.save_pretrained(tmp_path / "theirs", tokenizer)
    (tmp_path / "theirs" / "task.json").unlink()
    (tmp_path / "theirs" / "sentence_bert_config.json").write_text('{"max_seq_length": 11}')
    given = {f"do_{wanted}": True, f"{wanted}_file": data["pairs"][0]}
    for length, expected in ((None, 11), (13, 13)):
        given |= {"init_checkpoint": str(tmp_path / "theirs"), "max_seq_length": length}
        run = options(tmp_path / "out", **given)
        task, _ = Embeddings().read(run, Setup.for_task(run, "embeddings"))
        assert task.max_seq_length == expected


def test_a_folder_with_other_modules_needs_a_pooling(pretrained, data, tmp_path):
    folder = shutil.copytree(pretrained, tmp_path / "folder")
    types = [
        {"type": f"sentence_transformers.models.{n}", "path": ""} for n in ("Transformer", "LSTM")
    ]
    (folder / "modules.json").write_text(json.dumps(types))
    given = {"do_train": True, "train_file": data["pairs"][0], "init_checkpoint": str(folder)}
    with pytest.raises(ValueError, match="the modules Transformer, LSTM are not supported"):
        run_embeddings(options(tmp_path / "one", **given))


def test_texts_of_classes_have_one_prefix(pretrained, data, tmp_path):
    given = {"do_train": True, "train_file": data["classes"][0], "query_prefix": "query: "}
    with pytest.raises(ValueError, match="texts with classes are compared with each other"):
        run_embeddings(options(tmp_path, init_checkpoint=str(pretrained), **given))


def predicted(folder):
    lines = (folder / "test_predictions.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize("given", [{}, {"label_column": "score"}])
def test_pairs_without_scores_get_cosines(pretrained, data, tmp_path, given):
    file = write(tmp_path / "t.tsv", "text_a\ttext_b\na owl\tthe owl\na cat\tthe dog\n")
    files = {"eval_file": data["scores"][1], "predict_file": file, "do_predict": True}
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


@pytest.mark.parametrize("has_classes", [False, True])  # then each its own
def test_texts_alone_get_the_nearest_others(pretrained, tmp_path, has_classes):
    rows = [{"text": text} for text in ("a owl", "the dog", "the dog in the barn")]
    if has_classes:
        rows = [{**row, "label": str(number)} for number, row in enumerate(rows)]
    file = write_json_lines(tmp_path / "t.jsonl", rows)
    given = {"init_checkpoint": str(pretrained), "query_prefix": "the ", "predict_file": file}
    run_embeddings(options(tmp_path, do_predict=True, **given))
    found = predicted(tmp_path)
    assert [each["query"] for each in found] == [row["text"] for row in rows]
    assert all(len(each["documents"]) == 2 for each in found)
    assert (tmp_path / "test_results.txt").read_text() == "global_step = 0\n"


def test_scores_may_be_missing_in_the_test_set_alone(tmp_path):
    file = write(tmp_path / "t.tsv", "text_a\ttext_b\tscore\nx\ty\t\nz\ty\t0.5\n")
    kinds, splits = read_examples(options(tmp_path / "out", do_predict=True, predict_file=file))
    assert kinds == {"test": "scores"}
    assert np.isnan(splits["test"][0].label) and splits["test"][1].label == 0.5
    with pytest.raises(ValueError, match="score is ''"):
        read_examples(options(tmp_path / "out", do_eval=True, eval_file=file))


def test_a_test_set_without_the_named_column_of_scores_has_no_metrics(tmp_path, caplog):
    file = write(tmp_path / "t.tsv", "text_a\ttext_b\nx\ty\n")
    given = {"predict_file": file, "label_column": "scoer"}
    read_examples(options(tmp_path / "out", do_predict=True, **given))
    assert "t.tsv:1: no column 'scoer', so no metrics" in caplog.text


def test_the_test_set_of_glue_has_no_scores(tmp_path):
    header = "\t".join(f"c{index}" for index in range(9))
    row = "\t".join([*map(str, range(7)), "a man", "a woman"])
    write(tmp_path / "test.tsv", f"{header}\n{row}\n")
    given = options(tmp_path / "out", do_predict=True, task_name="sts-b", data_dir=str(tmp_path))
    kinds, splits = read_examples(given)
    assert kinds == {"test": "scores"} and np.isnan(splits["test"][0].label)


def test_questions_of_squad_have_their_passages_as_positives(tmp_path):
    answers = [{"text": "me", "answer_start": 0}]
    paragraphs = [
        {"context": "me .", "qas": [{"id": "1", "question": "who ?", "answers": answers}]}
    ]
    values = {"data": [{"title": "t", "paragraphs": paragraphs}]}
    file = write(tmp_path / "s.json", json.dumps(values))
    kind, splits = read_examples(options(tmp_path, do_eval=True, eval_file=file))
    assert kind == {"dev": "pairs"} and splits["dev"][0].texts == ("who ?", "me .")


def test_a_data_set_of_glue_has_scores_from_0_to_1(tmp_path):
    header = "\t".join(f"c{index}" for index in range(10))
    row = "\t".join([*map(str, range(7)), "a man", "a woman", "2.5"])
    write(tmp_path / "dev.tsv", f"{header}\n{row}\n")
    given = options(tmp_path / "out", do_eval=True, task_name="sts-b", data_dir=str(tmp_path))
    kind, splits = read_examples(given)
    assert kind == {"dev": "scores"}
    assert splits["dev"][0].texts == ("a man", "a woman") and splits["dev"][0].label == 0.5


def test_mnli_gives_entailed_pairs_and_qqp_gives_scores(tmp_path):
    rows = [("neutral", "t0"), ("contradiction", "t1"), ("entailment", "t2")]
    header = "\t".join([*(f"c{n}" for n in range(8)), "sentence1", "sentence2", "gold_label"])
    lines = ["\t".join([*map(str, range(8)), "a man runs", b, label]) for label, b in rows]
    for name in ("dev_matched", "dev_mismatched"):
        write(tmp_path / f"{name}.tsv", "\n".join([header, *lines]) + "\n")
    given = {"do_eval": True, "data_dir": str(tmp_path)}
    kinds, splits = read_examples(options(tmp_path / "out", task_name="mnli", **given))
    assert kinds == {"dev": "pairs"}
    assert {each.texts for each in splits["dev"]} == {("a man runs", "t2", "t1")}
    header = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate"
    write(tmp_path / "dev.tsv", f"{header}\n0\t1\t2\twho ?\twhat ?\t1\n")
    kinds, splits = read_examples(options(tmp_path / "out", task_name="qqp", **given))
    assert kinds == {"dev": "scores"}
    assert [(each.texts, each.label) for each in splits["dev"]] == [(("who ?", "what ?"), 1.0)]


def test_examples_that_share_a_text_are_counted(tmp_path, caplog):
    rows = [{"anchor": a, "positive": p} for a, p in ("ax", "ay", "bx", "cz", "dx")]
    file = write_json_lines(tmp_path / "t.jsonl", rows)
    with caplog.at_level("INFO"):
        read_examples(options(tmp_path / "out", do_train=True, train_file=file))
    assert "2 of 5 examples share their anchor with another one" in caplog.text
    assert "3 of 5 examples share their positive with another one" in caplog.text


def test_positives_that_equal_their_anchors_are_counted_and_all_of_them_refused(tmp_path, caplog):
    rows = [{"query": a, "answer": p} for a, p in (("a x", "A  x"), ("b", "b"), ("c", "z"))]
    given = options(
        tmp_path / "out", do_train=True, train_file=write_json_lines(tmp_path / "t.jsonl", rows)
    )
    read_examples(given)
    assert "2 of 3 examples have a positive that equals the anchor, the first in" in caplog.text
    write_json_lines(tmp_path / "t.jsonl", rows[:2])
    message = r"t.jsonl:1: the positive equals the anchor, as in every .* or positive_column\."
    with pytest.raises(ValueError, match=message):
        read_examples(given)


def test_snli_gives_entailed_pairs_with_a_contradiction(tmp_path):
    labels = ("neutral", "contradiction", "entailment", "-", "entailment")
    rows = [
        {"sentence1": "a man runs", "sentence2": f"text {i}", "gold_label": label, "pairID": "1"}
        for i, label in enumerate(labels)
    ]
    write(tmp_path / "snli_1.0_dev.jsonl", "\n".join(map(json.dumps, rows)))
    given = options(tmp_path / "out", do_eval=True, task_name="snli", data_dir=str(tmp_path))
    kind, splits = read_examples(given)
    assert kind == {"dev": "pairs"}
    texts = [example.texts for example in splits["dev"]]
    assert texts == [("a man runs", "text 2", "text 1"), ("a man runs", "text 4", "text 1")]


@pytest.mark.slow
def test_onnx_files_give_the_same_vectors(embedder, tmp_path):
    from bert_tf.programs.export_saved_model import export

    pytest.importorskip("tf2onnx")
    pytest.importorskip("onnxruntime")
    model = load(str(embedder))
    export(embedder, tmp_path / "onnx", format="onnx")
    other = load(str(tmp_path / "onnx"))
    for as_query in (False, True):
        found = other.embed(TEXTS, as_query=as_query)
        np.testing.assert_allclose(found, model.embed(TEXTS, as_query=as_query), atol=1e-5)


@pytest.mark.slow
def test_exports_and_folders_of_sentence_transformers_give_the_same_vectors(embedder, tmp_path):
    from bert_tf.programs.convert_checkpoint import convert
    from bert_tf.programs.export_saved_model import export

    model = load(str(embedder))
    expected = model.embed(TEXTS), model.embed(TEXTS, as_query=True)
    export(embedder, tmp_path / "saved")
    export(embedder, tmp_path / "lite", format="tflite")
    convert(embedder, tmp_path / "folder")
    (tmp_path / "folder" / "task.json").unlink()
    for name in ("saved", "lite", "folder"):
        other = load(str(tmp_path / name))
        for found, wanted in zip(
            (other.embed(TEXTS), other.embed(TEXTS, as_query=True)), expected, strict=True
        ):
            np.testing.assert_allclose(found, wanted, atol=1e-5, err_msg=name)
    theirs = pytest.importorskip("sentence_transformers").SentenceTransformer(
        str(tmp_path / "folder")
    )
    np.testing.assert_allclose(theirs.encode_document(TEXTS), expected[0], atol=1e-5)
    np.testing.assert_allclose(theirs.encode_query(TEXTS), expected[1], atol=1e-5)


# ---- Teachers -----------------------------------------------------------------------------------


def test_a_student_learns_the_similarities_of_a_teacher(embedder, pretrained, data, tmp_path):
    settings = {
        "init_checkpoint": str(pretrained),
        "init_layers": "0",
        "teacher": str(embedder),
        "train_file": data["pairs"][0],
        "do_train": True,
        "hard_labels": 0.0,
        "num_train_epochs": 6.0,
        "query_prefix": "",  # that of the teacher is another one
    }
    features = taught(options(tmp_path / "a", **settings), Embeddings())["train"]
    rows = [json.loads(line) for line in Path(data["pairs"][0]).read_text().splitlines()]
    teacher = load(embedder)
    expected = [teacher.embed([row["anchor"] for row in rows], as_query=True)]
    expected += [teacher.embed([row["positive"] for row in rows])]
    found = features["teacher_embedding"]
    found = found / np.linalg.norm(found, axis=-1, keepdims=True)
    np.testing.assert_allclose(found, np.stack(expected, 1), atol=1e-4)
    run_embeddings(options(tmp_path / "b", **settings))
    lines = (tmp_path / "b" / "metrics.jsonl").read_text().splitlines()
    losses = [json.loads(line)["loss"] for line in lines]
    assert losses[-1] < 0.5 * losses[0]
    assert load(tmp_path / "b").embed(["a dog"]).shape[1] != found.shape[-1]  # no projection


def test_an_encoder_alone_teaches_the_means_of_its_tokens(embedder, pretrained, data, tmp_path):
    folder = tmp_path / "encoder"
    encoder = bert_tf.BertModel.from_pretrained(str(pretrained))
    tokenizer = bert_tf.FullTokenizer.from_pretrained(str(pretrained))
    encoder.save_pretrained(folder, tokenizer, format="tf1")
    settings = {"train_file": data["pairs"][0], "do_train": True, "teacher": str(folder)}
    made = options(tmp_path / "a", init_checkpoint=str(pretrained), **settings)
    found = taught(made, Embeddings())["train"]["teacher_embedding"][:, 0]
    rows = [json.loads(line) for line in Path(data["pairs"][0]).read_text().splitlines()]
    expected = load(folder).embed([row["anchor"] for row in rows])
    found = found / np.linalg.norm(found, axis=-1, keepdims=True)
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_texts_alone_are_learned_from_a_teacher(embedder, pretrained, data, tmp_path):
    texts = [{"text": row["text"]} for row in classes(64, 1)]
    settings = {
        "init_checkpoint": str(pretrained),
        "init_layers": "0",
        "teacher": str(embedder),
        "train_file": write_json_lines(
            tmp_path / "texts.jsonl", [*texts[:9], {"text": ""}, *texts[9:]]
        ),
        "eval_file": data["scores"][1],
        "do_train": True,
        "do_eval": True,
        "num_train_epochs": 6.0,
        "query_prefix": "",
        "document_prefix": "",
    }
    with pytest.raises(ValueError, match=r"Texts alone can be the train_file of run_embeddings"):
        read_examples(options(tmp_path, **settings))
    taught_alone = {**settings, "hard_labels": 0.0}
    _, splits = read_examples(options(tmp_path, **taught_alone))
    assert [each.texts[0] for each in splits["train"]] == [row["text"] for row in texts]
    with pytest.raises(ValueError, match=r"train_batch_size is 1, but the similarities compare"):
        run_embeddings(options(tmp_path / "one", **taught_alone, train_batch_size=1))
    run_embeddings(options(tmp_path / "student", **taught_alone))
    lines = (tmp_path / "student" / "metrics.jsonl").read_text().splitlines()
    losses = [json.loads(line)["loss"] for line in lines]
    assert losses[-1] < 0.7 * losses[0]
    assert "eval_spearman" in read_results(tmp_path / "student")


def test_embeddings_have_no_states_and_no_other_file_without_labels(data, tmp_path):
    given = {"teacher": "x", "train_file": data["pairs"][0], "do_train": True}
    with pytest.raises(ValueError, match="teacher_states is 'hidden', but embeddings learn only"):
        options(tmp_path, **given, teacher_states="hidden")
    with pytest.raises(ValueError, match="as train_file, with hard_labels=0"):
        options(tmp_path, **given, unlabelled_file="y")


def test_classes_are_names_without_spaces_around_them(pretrained, tmp_path):
    path = tmp_path / "train.tsv"
    path.write_text("text\tlabel\na dog\tpet\nthe cat\tpet \na barn\tplace\n")
    splits = read_examples(options(tmp_path / "out", train_file=str(path), do_train=True))[1]
    assert [example.label for example in splits["train"]] == [0.0, 0.0, 1.0]
    path.write_text("text\tlabel\na dog\tpet\nthe cat\t \n")
    with pytest.raises(ValueError, match=r"train.tsv:3: label is ' ', but must be a class"):
        read_examples(options(tmp_path / "out", train_file=str(path), do_train=True))


def test_a_query_is_no_document_of_its_own_unless_it_is_relevant():
    examples = [
        EmbeddingExample(texts) for texts in (("a", "b"), ("b", "a"), ("c", "c"), ("d", "b"))
    ]
    assert own_documents(*relevance(each.texts for each in examples)).tolist() == [1, 0, -1, -1]


def test_the_columns_of_a_table_are_logged(pretrained, data, tmp_path, caplog):
    with caplog.at_level("INFO"):
        read_examples(options(tmp_path, train_file=data["scores"][0], do_train=True))
    assert ": anchor in 'text_a', positive in 'text_b', label in 'score'" in caplog.text


@pytest.mark.parametrize("column", ["anchor", "positive"])
def test_examples_of_which_none_is_a_negative_are_refused(pretrained, tmp_path, column):
    path, other = tmp_path / "train.tsv", {"anchor": "positive", "positive": "anchor"}[column]
    path.write_text(f"{column}\t{other}\n" + "".join(f"same\ta {n}\n" for n in ANIMALS))
    given = {"train_file": str(path), "init_checkpoint": str(pretrained), "do_train": True}
    with pytest.raises(
        ValueError, match=f"Every example has the {column} 'same', so none is a neg"
    ):
        run_embeddings(options(tmp_path / "out", train_batch_size=2, **given))


def test_classes_of_one_text_each_are_refused(pretrained, tmp_path):
    path = tmp_path / "train.tsv"
    path.write_text("text\tlabel\n" + "".join(f"{name}\t{name}\n" for name in ANIMALS))
    given = {"train_file": str(path), "init_checkpoint": str(pretrained), "do_train": True}
    with pytest.raises(ValueError, match=r"Every text has a class of its own, .* label_column"):
        run_embeddings(options(tmp_path / "out", train_batch_size=2, **given))
    train = write(tmp_path / "two.tsv", "text\tlabel\n" + "a\tx\nb\tx\nc\ty\nd\ty\n")
    given |= {"train_file": train, "eval_file": str(path), "do_eval": True}
    with pytest.raises(
        ValueError, match=r"Every class of .*train\.tsv has one text.* label_column"
    ):
        run_embeddings(options(tmp_path / "other", **given))
    assert not list((tmp_path / "other").glob("model.ckpt*"))


def test_a_folder_keeps_its_pooling_and_prefixes(pretrained, data, tmp_path):
    given = {"train_file": data["pairs"][0], "init_checkpoint": str(pretrained), "do_train": True}
    run_embeddings(options(tmp_path / "out", stop_step=1, **given))
    for changes in ({"pooling": "cls"}, {"query_prefix": "query: "}, {"normalize": False}):
        (name,) = changes
        with pytest.raises(ValueError, match=f"contains a model with {name}=.*another output_dir"):
            run_embeddings(options(tmp_path / "out", **given, **changes))
    run_embeddings(options(tmp_path / "out", stop_step=2, pooling="mean", **given))


def test_an_example_of_one_text_alone_is_a_tuple_too():
    with pytest.raises(TypeError, match=r"`texts` is 'Who won\?', but must be a tuple"):
        EmbeddingExample("Who won?", "Denver.")
