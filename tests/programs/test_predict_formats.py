"""predict: lines, TSV, CSV and JSON lines in; JSON lines, a table or bare answers out."""

import csv
import functools
import gzip
import io
import json
import sys

import pytest
import tiny_text_models as tiny

from bert_tf.predictor import (
    ChoicePredictor,
    Predictor,
    TextClassifier,
    corpus_pseudo_perplexity,
    cosine_similarity,
)
from bert_tf.programs import predict as predict_module
from bert_tf.programs.predict import PredictionOptions, predict
from bert_tf.programs.predict_input import InputLayout, read_inputs
from bert_tf.programs.predict_output import make_writer

# Made and traced once. The tests change nothing of them.
answerer, chooser, classifier, pretrained = map(
    functools.cache, (tiny.answerer, tiny.chooser, tiny.classifier, tiny.pretrained)
)
predictor = functools.cache(Predictor)


@pytest.fixture
def run(monkeypatch, tmp_path):
    """Writes input files, runs predict on a model that is in memory, and gives what it wrote."""

    def run(trained, files, **flags):
        settings = ("batch_size", "max_seq_length", "doc_stride")

        def in_memory(options):
            return predictor(trained, **{name: getattr(options, name) for name in settings})

        monkeypatch.setattr(predict_module, "make_predictor", in_memory)
        for name, content in files.items():
            data = content if isinstance(content, bytes) else content.encode()
            (tmp_path / name).write_bytes(data)
        flags.setdefault("input_file", ",".join(str(tmp_path / name) for name in files))
        output = tmp_path / "new" / "output"
        predict(PredictionOptions(model_dir="in memory", output_file=str(output), **flags))
        return output.read_text(encoding="utf-8")

    return run


def json_lines(text):
    return [json.loads(line) for line in text.splitlines()]


CSV = 'id,sentence,label\n1,"the cat, the dog",good\n2,,bad\n3,"a ""log""\nsat",good\n'


def test_a_table_repeats_its_id_and_the_columns_that_were_read(run):
    trained = classifier()
    lines = json_lines(run(trained, {"in.csv": CSV}))
    texts = ["the cat, the dog", "", 'a "log"\nsat']
    assert [(line["id"], line["sentence"]) for line in lines] == list(
        zip("123", texts, strict=True)
    )
    expected = predictor(trained).predict(texts)
    for line, answer in zip(lines, expected, strict=True):
        assert list(line) == ["id", "sentence", "label", "probabilities"]
        assert line["label"] == answer["label"]
        assert line["probabilities"] == pytest.approx(answer["probabilities"], abs=1e-6)


def test_tables_of_every_kind_are_read_one_after_the_other(run):
    files = {
        "a.tsv": "sentence\tx\nthe cat\t1\n",
        "b.jsonl": '{"text": "a log"}\n\n{"text": "owls"}\n',
        "c.csv.gz": gzip.compress(b"text_a\nwho ?\n"),
        "d.txt": "a mat\n",
    }
    lines = json_lines(run(classifier(), files))
    shown = [line.get("sentence", line.get("text", line.get("text_a"))) for line in lines]
    assert shown == ["the cat", "a log", "owls", "who ?", "a mat"]


def test_columns_can_be_named_or_counted(run):
    trained = classifier(is_pair=True)
    named = run(
        trained,
        {"in.tsv": "x\ty\nthe cat\ta dog\n"},
        text_a_column="y",
        text_b_column="x",
    )
    counted = run(trained, {"in.tsv": "a dog\tthe cat\n"}, header=False)
    assert json_lines(named)[0]["label"] == json_lines(counted)[0]["label"]
    assert json_lines(counted)[0]["1"] == "the cat"


def test_a_model_of_texts_and_pairs_reads_the_second_text_of_a_table(run, caplog):
    trained = classifier(is_pair=None)
    row = '{"text": "the cat", "text_b": "a dog"}\n{"text": "the cat", "text_b": null}\n'
    pair, alone = json_lines(run(trained, {"in.jsonl": row + '{"text": "the cat"}\n'}))[:2]
    expected = predictor(trained).predict([("the cat", "a dog"), "the cat"])
    for line, answer in zip((pair, alone), expected, strict=True):
        assert line["probabilities"] == pytest.approx(answer["probabilities"], abs=1e-6)
    (named,) = json_lines(run(trained, {"in.tsv": "text\tx\nthe cat\ta dog\n"}, text_b_column="x"))
    assert named["probabilities"] == pytest.approx(pair["probabilities"], abs=1e-6)
    assert named["x"] == "a dog" and "not read" not in caplog.text
    (counted,) = json_lines(run(trained, {"in.tsv": "the cat\tgood\n"}, header=False))
    assert counted["probabilities"] == pytest.approx(alone["probabilities"], abs=1e-6)
    assert "in.tsv:1: column 1 is not read" in caplog.text
    with pytest.raises(ValueError, match="no column 'y'"):
        run(trained, {"in.tsv": "text\tx\nthe cat\ta dog\n"}, text_b_column="y")


def test_the_beginning_of_choices_is_not_left_out(tmp_path):
    (tmp_path / "swag.csv").write_text("sent1,sent2,ending0,ending1\nHe waits.,He,goes.,sits.\n")
    layout = InputLayout(choices_column="ending0,ending1")
    with pytest.raises(ValueError, match=r"swag.csv:1: .*'sent2', which is not read.*run_swag"):
        list(read_inputs([f"{tmp_path}/swag.csv"], layout, ("text_a", "choices")))
    (tmp_path / "own.csv").write_text("sent1,ending0,ending1\nHe waits.,He goes.,He sits.\n")
    (found,) = read_inputs([f"{tmp_path}/own.csv"], layout, ("text_a", "choices"))
    assert found.values == ["He waits.", ["He goes.", "He sits."]]


@pytest.mark.parametrize("flag", ["text_b_column", "choices_column"])
def test_a_column_that_the_model_does_not_read_is_rejected(run, flag):
    with pytest.raises(ValueError, match=f"{flag} is x, but the model reads only text_a. Omit it."):
        run(classifier(), {"in.tsv": "text\tx\nthe cat\ta dog\n"}, **{flag: "x"})


@pytest.mark.parametrize(
    "flags", [{"text_a_column": "text"}, {"header": False}, {"column_separator": "comma"}]
)
def test_a_flag_of_tables_is_rejected_if_no_input_is_a_table(tmp_path, flags):
    (tmp_path / "in.txt").write_text("text\nthe cat\n")
    ((name, value),) = flags.items()
    message = f"{name}={value} has no effect, because input_file names no .*give its input_format"
    for file in ("-", str(tmp_path / "in.txt")):
        with pytest.raises(ValueError, match=message):
            _ = PredictionOptions(model_dir="m", input_file=file, **flags).files
    given = {"input_file": f"{tmp_path}/in.txt", "input_format": "tsv", **flags}
    assert PredictionOptions(model_dir="m", **given).files == [f"{tmp_path}/in.txt"]


@pytest.mark.parametrize(
    "make, name, flags",
    [
        (classifier, "label", {"text_a_column": "label"}),
        (
            *(classifier, "probabilities"),
            {"text_a_column": "probabilities", "output_format": "tsv"},
        ),
        (classifier, "error", {"text_a_column": "error"}),
        (answerer, "answer", {"text_a_column": "q", "text_b_column": "answer"}),
        (chooser, "choice", {"text_a_column": "q", "choices_column": "a,choice"}),
    ],
)
def test_an_answer_never_replaces_a_text(run, make, name, flags):
    content = f"q,a,{name}\nwho ?,a dog,the cat\n"
    with pytest.raises(ValueError, match=rf"'{name}' is the name of an answer.* Rename the column"):
        run(make(), {"in.csv": content}, **flags)


def test_a_bare_answer_replaces_no_text(run):
    flags = {"text_a_column": "label", "output_format": "text"}
    assert run(classifier(), {"in.csv": "label\nthe cat\n"}, column_separator="comma", **flags)


def test_choices_are_a_list_or_some_columns(run):
    listed = run(
        chooser(), {"in.jsonl": '{"text_a": "who ?", "choices": ["a dog", "a log", "owls"]}\n'}
    )
    columns = run(
        chooser(), {"in.csv": "sent1,e0,e1,e2,e3\nwho ?,a dog,a log,owls,\n"},
        choices_column="e0,e1,e2,e3",
    )  # fmt: skip
    counted = run(chooser(), {"in.csv": "who ?,a dog,a log,owls\n"}, header=False)
    answers = [json_lines(text)[0]["probabilities"] for text in (listed, columns, counted)]
    assert len(answers[0]) == 3
    assert answers[1] == pytest.approx(answers[0], abs=1e-6)
    assert answers[2] == pytest.approx(answers[0], abs=1e-6)


def test_a_blank_choice_before_another_is_an_error_of_its_line(run):
    lines = [
        '{"text_a": "who ?", "choices": ["a dog", "\u200b", "owls"]}\n',
        '{"text_a": "who ?", "choices": ["a dog", "a log", " \u200b"]}\n',
    ]
    refused, answered = json_lines(run(chooser(), {"in.jsonl": "".join(lines)}))
    assert "in.jsonl:1: Choice 1, counted from 0, is blank" in refused["error"]
    assert len(answered["probabilities"]) == 2
    text = "who ?\ta dog\t\towls\nwho ?\ta dog\ta log\t\u200b\n"
    refused, of_line = json_lines(run(chooser(), {"in.txt": text}))
    assert "in.txt:1: Choice 1, counted from 0, is blank" in refused["error"]
    assert of_line["probabilities"] == pytest.approx(answered["probabilities"], abs=1e-6)


def test_a_usual_name_of_a_column_may_be_in_any_case(run):
    (line,) = json_lines(run(classifier(), {"in.csv": "Text,x\nthe cat,1\n"}))
    assert line["Text"] == "the cat" and "label" in line


def test_if_no_input_can_be_answered_it_is_an_error_and_the_reasons_are_written(run, tmp_path):
    with pytest.raises(ValueError, match="No input could be answered"):
        run(classifier(is_pair=True), {"in.txt": "the cat\nowls\n"})
    (file,) = (tmp_path / "new").iterdir()
    assert all("error" in line for line in json_lines(file.read_text()))


@pytest.mark.parametrize(
    "file, output_format, expected",
    [
        ("a.tsv", None, "tsv"),
        ("a.TSV", None, "tsv"),
        ("a.tsv", "jsonl", "jsonl"),
        ("a.txt", None, "jsonl"),
        (None, None, "jsonl"),
    ],
)
def test_the_name_of_the_output_file_gives_its_format(file, output_format, expected):
    options = PredictionOptions(model_dir="model", output_file=file, output_format=output_format)
    assert options.answer_format == expected


def test_answers_in_a_csv_file_are_an_error_without_a_format():
    with pytest.raises(ValueError, match=r"output_file=a.csv .*Name it .tsv"):
        PredictionOptions(model_dir="m", output_file="a.csv")
    options = PredictionOptions(model_dir="m", output_file="a.csv", output_format="tsv")
    assert options.answer_format == "tsv"


def test_the_output_can_be_a_table(run):
    text = run(classifier(), {"in.txt": "a\tlog\nthe cat\n"}, output_format="tsv", batch_size=2)
    rows = list(csv.reader(io.StringIO(text), delimiter="\t"))
    names = ["probabilities.bad", "probabilities.fair", "probabilities.good"]
    assert rows[0] == ["text", "label", *names, "error"]
    assert rows[1][0] == "a\tlog"  # a tab in a text is no new column
    assert rows[1][1:5] == [""] * 4
    assert "in.txt:1: The model takes single sentences" in rows[1][5]
    (answer,) = predictor(classifier()).predict(["the cat"])
    assert rows[2][:2] == ["the cat", answer["label"]]
    assert float(rows[2][4]) == pytest.approx(answer["probabilities"]["good"], abs=1e-6)


def test_a_table_has_numbers_and_lists_in_its_cells():
    output = io.StringIO()
    write = make_writer("tsv", TextClassifier(classifier("regression")), output)
    write({"text": "owls"}, {"score": 0.25}, "in.txt:1")
    assert output.getvalue() == "text\tscore\terror\nowls\t0.25\t\n"
    output = io.StringIO()
    write = make_writer("tsv", ChoicePredictor(chooser()), output)
    write({}, {"prediction": 1, "choice": "ü", "probabilities": [0.25, 0.75]}, "in.txt:1")
    assert output.getvalue().splitlines()[1] == "1\tü\t[0.25, 0.75]\t"


@pytest.mark.parametrize("text", ["a\rb", "a\nb", "a\r\nb", 'a "\r" b', " a", ""])
def test_a_table_read_again_has_the_same_texts(text):
    output = io.StringIO(newline="")
    write = make_writer("tsv", TextClassifier(classifier("regression")), output)
    write({"id": 7, "text": text}, {"score": 0.25}, "in.jsonl:1")
    rows = list(csv.reader(io.StringIO(output.getvalue(), newline=""), delimiter="\t"))
    assert rows == [["id", "text", "score", "error"], ["7", text, "0.25", ""]]


def test_a_table_whose_columns_would_lose_a_text_is_an_error():
    output = io.StringIO()
    write = make_writer("tsv", TextClassifier(classifier("regression")), output)
    write({"id": 1, "text": "owls"}, {"score": 0.25}, "a.csv:2")
    write({"text": "a log"}, {"score": 0.5}, "b.csv:2")
    message = r"c.csv:2: the output has no column 'sentence'.* id, text\. Use output_format=jsonl"
    with pytest.raises(ValueError, match=message):
        write({"sentence": "the cat"}, {"score": 0.5}, "c.csv:2")
    assert output.getvalue().splitlines()[1:] == ["1\towls\t0.25\t", "\ta log\t0.5\t"]


def test_the_output_can_be_the_bare_answers(run):
    trained = classifier()
    text = run(trained, {"in.txt": "the cat\nowls\n"}, output_format="text")
    assert text.splitlines() == [
        a["label"] for a in predictor(trained).predict(["the cat", "owls"])
    ]
    text = run(pretrained(), {"in.txt": "no mask\n[MASK] cat\n"}, output_format="text")
    assert "in.txt:1: There is no [MASK]" in text.splitlines()[0]
    assert len(text.splitlines()[1].split()) == 1


def test_answers_stand_in_the_order_of_the_texts_however_they_are_put_together(run):
    texts = [" ".join(["cat"] * (number * 7 % 9)) + f" {number}" for number in range(70)]
    lines = json_lines(
        run(classifier(), {"in.txt": "\n".join(texts)}, batch_size=2)  # chunks of 64
    )
    assert [line["text"] for line in lines] == texts
    expected = predictor(classifier()).predict(texts)
    for line, answer in zip(lines, expected, strict=True):
        assert line["probabilities"] == pytest.approx(answer["probabilities"], abs=1e-5)


def test_embeddings_and_pseudo_perplexity_are_tasks_of_their_own(run, caplog):
    caplog.set_level("INFO")
    trained = pretrained()
    texts = ["the cat sat", "a log", ""]
    lines = json_lines(run(trained, {"in.txt": "\n".join(texts) + "\n"}, task="embeddings"))
    vectors = predictor(trained).embed(texts)
    cosines = cosine_similarity(vectors, [line["embedding"] for line in lines]).diagonal()
    assert cosines == pytest.approx([1, 1, 1], abs=1e-5)
    scored = json_lines(run(trained, {"in.txt": "\n".join(texts) + "\n"}, task="pseudo_perplexity"))
    expected = predictor(trained).pseudo_perplexity(texts[:2])
    for line, answer in zip(scored, expected, strict=False):
        assert line["pseudo_perplexity"] == pytest.approx(answer["pseudo_perplexity"], rel=1e-4)
    assert "in.txt:3: There is no token" in scored[2]["error"]
    whole = corpus_pseudo_perplexity(expected)
    assert f"Pseudo-perplexity of all 5 tokens: {whole:.3f}"[:-2] in caplog.text


def test_top_k_and_doc_stride_reach_the_model(run, caplog):
    lines = json_lines(run(pretrained(), {"in.txt": "[MASK] cat\n"}, top_k=3))
    assert len(lines[0]["masks"][0]) == 3
    long = tiny.TEXTS[3]
    run(classifier(), {"in.txt": f"{long}\n"})
    assert "1 of 1 texts are longer than the model's input" in caplog.text
    caplog.clear()
    run(classifier(), {"in.txt": f"{long}\n"}, doc_stride=4)
    assert "longer than the model's input" not in caplog.text


@pytest.mark.parametrize(
    "make, flags, message",
    [
        (classifier, {"pooling": "cls"}, "pooling is cls, .*embeddings, .* gives label"),
        (answerer, {"normalize": False}, "normalize is False, .* gives answer"),
        (
            pretrained,
            {"as_query": True},
            "as_query is True, .* Omit it or give task=embeddings",
        ),
        (
            pretrained,
            {"task": "pseudo_perplexity", "pooling": "cls"},
            "pooling is cls, .* task=pseudo_perplexity gives pseudo_perplexity",
        ),
        (
            classifier,
            {"top_k": 3},
            "top_k is 3, but it is for masks, .* gives label. Omit it.",
        ),
        (pretrained, {"task": "embeddings", "top_k": 3}, "top_k is 3, .* gives embedding"),
    ],
)
def test_an_option_that_the_model_does_not_use_is_rejected(run, make, flags, message):
    with pytest.raises(ValueError, match=message):
        run(make(), {"in.txt": "the cat\n"}, **flags)


def test_standard_input_may_be_a_table(run, monkeypatch, capsys):
    monkeypatch.setattr(predict_module, "_SECONDS_BETWEEN_REPORTS", -1)
    data = b'{"text": "the cat", "id": 4}\n'
    stream = io.TextIOWrapper(io.BufferedReader(io.BytesIO(data)))
    monkeypatch.setattr(sys, "stdin", stream)
    (line,) = json_lines(run(classifier(), {}, input_file="-", input_format="jsonl"))
    assert (line["id"], line["text"]) == (4, "the cat")
    assert "predict 1 inputs" in capsys.readouterr().err


def test_progress_counts_the_inputs_of_a_table_and_not_its_lines(run, capsys):
    rows = "".join(f'"cat\n{number}"\n\n' for number in range(3))
    output = run(classifier(), {"in.csv": f"text\n{rows}"})
    assert len(output.splitlines()) == 3
    assert "predict 3/3 100%" in capsys.readouterr().err


@pytest.mark.parametrize("file, text", [("in.txt", ""), ("in.tsv", "the cat\ta dog\n")])
def test_no_input_has_an_empty_output_and_a_warning(run, caplog, file, text):
    assert run(classifier(), {file: text}) == ""
    assert "There was no input. The first line of a TSV or CSV is its header" in caplog.text


def test_a_text_of_a_hundred_thousand_characters_is_answered(run):
    text = "the cat sat , " * 8000
    (line,) = json_lines(run(classifier(), {"in.txt": text + "\n"}))
    assert line["text"] == text
    assert "label" in line


# ------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("in.tsv", "text\tx\nthe cat\n", r"in.tsv:2: found 1 columns, but 2 are expected"),
        ("in.jsonl", '{"text": "a"}\n{"text": \n', r"in.jsonl:2: .*JSON"),
        ("in.jsonl", '{"text": "a"}\n{"txt": "b"}\n', r"in.jsonl:2: .*column 'text'"),
        ("in.csv", 'text\n"the cat\n', r"in.csv:2: "),
        (
            "in.csv",
            "a,b\nx,y\n",
            r"in.csv:1: no column is called text_a or text or .* with `text_a_column`",
        ),
        ("in.txt", b"cat\nd\xe9j\xe0\n", r"in.txt:2: .*UTF-8"),
        ("in.txt", b"the cat\ra dog\r", r"in.txt: the file has no line feed; .*Convert it: tr"),
    ],
)
def test_a_file_that_is_not_as_its_format_says_is_named_by_line(
    run, tmp_path, name, content, message
):
    with pytest.raises(ValueError, match=message):
        run(classifier(), {name: content})
    assert not list((tmp_path / "new").iterdir())


def test_json_lines_may_have_another_name_if_the_format_is_given(run):
    content = '{"text": "the cat"}\n{"text": "a dog"}\n'
    with pytest.raises(ValueError, match=r"in\.json: the format of a \.json file is unknown"):
        run(classifier(), {"in.json": content})
    lines = json_lines(run(classifier(), {"in.json": content}, input_format="jsonl"))
    assert [line["text"] for line in lines] == ["the cat", "a dog"]
    with pytest.raises(ValueError, match=r'Write a table as JSON lines: to_json\("train\.jsonl"'):
        run(classifier(), {"in.json": f"[{content}]"}, input_format="jsonl")


def test_a_column_that_is_not_there_is_named_with_those_that_are(run):
    with pytest.raises(ValueError, match=r"no column 'sentense'; did you mean \"sentence\"\?"):
        run(classifier(), {"in.csv": CSV}, text_a_column="sentense")


def test_choices_must_be_texts(run):
    rows = '{"text": "a", "choices": [1, "b"]}\n{"text": "a", "choices": ["cat", "dog"]}\n'
    wrong, right = json_lines(run(chooser(), {"in.jsonl": rows}))
    assert "in.jsonl:1: column 'choices' contains 1, but must contain a text" in wrong["error"]
    assert right["prediction"] in (0, 1)


@pytest.mark.parametrize("output_format", ["jsonl", "tsv", "text"])
def test_a_row_without_a_text_has_an_error_and_the_others_answers(run, output_format):
    texts = ("null", "3", r'"a \ud83d"', r'"the \ud83d\ude00"')
    rows = "".join(f'{{"id": {number}, "text": {text}}}\n' for number, text in enumerate(texts))
    rows += r'{"id": "\ud83d", "text": "owls"}' + "\n"
    lines = run(classifier(), {"in.jsonl": rows}, output_format=output_format).splitlines()
    lines = lines[output_format == "tsv" :]
    reasons = (
        "None, but must contain a text",
        "3, but must contain a text",
        "'a \\ud83d', which has",
    )
    for number, (line, reason) in enumerate(zip(lines, reasons, strict=False), 1):
        assert (
            f"in.jsonl:{number}: column 'text' contains {reason}".replace(
                "\\", "\\\\" if output_format == "jsonl" else "\\"
            )
            in line
        )
    assert len(lines) == 5 and not any("in.jsonl" in line for line in lines[3:])
    if output_format == "jsonl":
        assert [json.loads(line)["id"] for line in lines] == [0, 1, 2, 3, "\ud83d"]


def test_the_columns_of_rerankers_are_found(tmp_path):
    (tmp_path / "in.csv").write_text("id,Query,Positive\n1,who,me\n")
    (tmp_path / "other.csv").write_text("text,document\nwho,me\n")
    for optional in ((), ("text_b",)):
        files, fields = [f"{tmp_path}/in.csv"], ("text_a", "text_b")
        (found,) = read_inputs(files, InputLayout(), fields, optional)
        assert found.values == ["who", "me"] and found.shown["id"] == "1"
    (found,) = read_inputs([f"{tmp_path}/other.csv"], InputLayout(), fields, optional)
    assert found.values == ["who", None]
