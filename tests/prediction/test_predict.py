"""predict: lines, TSV, CSV and JSON lines in; JSON lines, a table or bare answers out."""

import csv
import functools
import gzip
import io
import json
import os
import subprocess
import threading

import pytest
import tiny_text_models as tiny
from helpers import cause_of, script_command
from models import golden

from bert_tf.options import make_options
from bert_tf.prediction.extract_features import ExtractionOptions, extract_features
from bert_tf.prediction.predict import PredictionOptions, predict
from bert_tf.prediction.predictor import Predictor

# Made and traced once. The tests change nothing of them.
answerer, chooser, classifier, pretrained = map(
    functools.cache, (tiny.answerer, tiny.chooser, tiny.classifier, tiny.pretrained)
)
predictor = functools.cache(Predictor)


@pytest.fixture
def run(tmp_path):
    """Function that writes input files, runs predict on a model in memory, and returns the output."""

    def run(trained, files, **flags):
        for name, content in files.items():
            data = content if isinstance(content, bytes) else content.encode()
            (tmp_path / name).write_bytes(data)
        flags.setdefault("input_file", ",".join(str(tmp_path / name) for name in files))
        flags.setdefault("output_file", str(tmp_path / "new" / "output"))
        options = make_options(PredictionOptions, **{"model_dir": str(tmp_path), **flags})
        settings = ("batch_size", "max_seq_length", "doc_stride")
        predict(options, predictor(trained, **{name: getattr(options, name) for name in settings}))
        with open(flags["output_file"], encoding="utf-8", newline="") as file:
            return file.read()

    return run


def json_lines(text):
    return [json.loads(line) for line in text.splitlines()]


def assert_answers(lines, expected):
    for line, answer in zip(lines, expected, strict=True):
        assert line["label"] == answer["label"]
        assert line["probabilities"] == pytest.approx(answer["probabilities"], abs=1e-5)


# ---- Input ---------------------------------------------------------------------------------------


def test_lines_get_their_answers(run):
    lines = json_lines(run(classifier(), {"in.txt": "the cat\nthe Zürich 京\n"}))
    assert [line["text"] for line in lines] == ["the cat", "the Zürich 京"]
    assert [list(line) for line in lines] == [["text", "label", "probabilities"]] * 2
    pair, mask = "the cat\ta dog", "the [MASK] sat on [MASK]"
    (line,) = json_lines(run(classifier(is_pair=True), {"in.txt": pair}))
    assert line["text"] == pair and "label" in line
    (line,) = json_lines(run(pretrained(), {"in.txt": mask}, top_k=3))
    assert [len(candidates) for candidates in line["masks"]] == [3, 3]


def test_table_repeats_its_id_and_the_columns_that_were_read(run):
    table = 'id,sentence,label\n1,"the cat, the dog",good\n3,"a ""log""\nsat",good\n'
    lines = json_lines(run(classifier(), {"in.csv": table}, text_a_column="sentence"))
    texts = ["the cat, the dog", 'a "log"\nsat']
    assert [(line["id"], line["sentence"]) for line in lines] == list(zip("13", texts, strict=True))
    assert [list(line) for line in lines] == [["id", "sentence", "label", "probabilities"]] * 2
    assert_answers(lines, predictor(classifier()).predict(texts))


def test_tables_of_each_format_are_read_one_after_the_other(run):
    files = {
        "a.tsv": "text_a\tx\nthe cat\t1\n",
        "b.jsonl": '{"text_a": "a log"}\n\n{"text_a": "owls"}\n',
        "c.csv.gz": gzip.compress(b"text_a\nwho ?\n"),
        "d.txt": "a mat\n",
    }
    lines = json_lines(run(classifier(), files))
    shown = [line.get("text_a", line.get("text")) for line in lines]
    assert shown == ["the cat", "a log", "owls", "who ?", "a mat"]


def test_columns_of_pairs(run):
    trained = classifier(is_pair=True)
    expected = predictor(trained).predict([("a dog", "the cat")])
    for name, table, flags in (
        ("in.tsv", "x\ty\nthe cat\ta dog\n", {"text_a_column": "y", "text_b_column": "x"}),
        ("in.csv", "text_a;text_b\na dog;the cat\n", {"column_separator": ";"}),
        ("in.json", '{"text_a": "a dog", "text_b": "the cat"}\n', {"input_format": "jsonl"}),
    ):
        assert_answers(json_lines(run(trained, {name: table}, **flags)), expected)


def test_columns_are_those_of_the_training(run, tmp_path):
    (tmp_path / "training.json").write_text('{"flags": {"text_a_column": "review"}}')
    (line,) = json_lines(run(classifier(), {"in.csv": "text_a,review\na dog,the cat\n"}))
    assert line["review"] == "the cat" and "text_a" not in line
    (line,) = json_lines(run(classifier(), {"in.csv": "text_a\na dog\n"}))
    assert line["text_a"] == "a dog"


def test_second_text_is_optional_for_a_model_of_both(run):
    trained = classifier(is_pair=None)
    rows = '{"text_a": "the cat", "text_b": "a dog"}\n{"text_a": "the cat", "text_b": null}\n'
    lines = json_lines(run(trained, {"in.jsonl": rows}))
    expected = predictor(trained).predict([("the cat", "a dog"), "the cat"])
    assert_answers(lines, expected)
    lines = json_lines(run(trained, {"in.tsv": "text_a\tlabel\nthe cat\tgood\n"}))
    assert_answers(lines, expected[1:])


def test_choices_are_a_list_or_columns(run):
    row = '{"text_a": "who ?", "choices": ["a dog", "a log", "owls"]}\n'
    listed = run(chooser(), {"in.jsonl": row})
    table = "text_a,e0,e1,e2,e3\nwho ?,a dog,a log,owls,\n"
    columns = run(chooser(), {"in.csv": table}, choices_column="e0,e1,e2,e3")
    first, second = (json_lines(text)[0]["probabilities"] for text in (listed, columns))
    assert len(first) == 3 and second == pytest.approx(first, abs=1e-6)


# ---- Output --------------------------------------------------------------------------------------


def test_answers_are_in_the_order_of_the_texts(run):
    texts = [" ".join(["cat"] * (number * 7 % 9)) + f" {number}" for number in range(70)]
    output = run(classifier(), {"in.txt": "\n".join(texts)}, batch_size=2)  # chunks of 64
    assert [line["text"] for line in json_lines(output)] == texts
    assert_answers(json_lines(output), predictor(classifier()).predict(texts))


def test_output_can_be_a_table(run, tmp_path):
    text = 'a, "log"\t\r\nsat'
    files = {"in.jsonl": json.dumps({"id": 7, "text_a": text}) + '\n{"id": 8, "text_a": null}\n'}
    (answer,) = predictor(classifier()).predict([text])
    output = run(classifier(), files, output_file=f"{tmp_path}/out.csv")
    header, first, second = csv.reader(io.StringIO(output, newline=""))
    names = ["probabilities.bad", "probabilities.fair", "probabilities.good"]
    assert header == ["id", "text_a", "label", *names, "error"]
    assert first[:3] == ["7", text, answer["label"]] and first[-1] == ""
    assert float(first[5]) == pytest.approx(answer["probabilities"]["good"], abs=1e-6)
    assert second[:6] == ["8", *[""] * 5] and "in.jsonl:2" in second[6]


def test_output_can_be_bare_answers(run):
    text = run(classifier(), {"in.txt": "the cat\nowls\n"}, output_format="text")
    expected = predictor(classifier()).predict(["the cat", "owls"])
    assert text.splitlines() == [answer["label"] for answer in expected]


# ---- Errors --------------------------------------------------------------------------------------


def test_input_without_an_answer_has_an_error(run, caplog):
    for trained, name, content in (
        (pretrained(), "in.txt", "the [MASK]\nno mask\n[MASK] cat\n"),
        (classifier(), "in.txt", "the cat\na\tpair\nowls\n"),
        (classifier(is_pair=True), "in.txt", "a\tcat\na\na\tdog\n"),
        (classifier(), "in.jsonl", '{"text_a": "a"}\n{"text_a": 3}\n{"text_a": "b"}\n'),
        (chooser(), "in.txt", "who\ta\tb\nwho\ta\nwho\tb\ta\n"),
    ):
        caplog.clear()
        first, second, third = json_lines(run(trained, {name: content}))
        assert "error" not in {*first, *third}, content
        assert f"{name}:2: " in second["error"]
        assert "1 of 3" in caplog.text


def test_input_that_cannot_be_read_ends_the_run_without_output(run, tmp_path):
    trained = classifier()
    for name, content, place in (
        ("in.tsv", "text_a\tx\nthe cat\n", "in.tsv:2"),
        ("in.jsonl", '{"text_a": "a"}\n{"text_a": \n', "in.jsonl:2"),
        ("in.jsonl", '{"text_a": "a"}\n{"txt": "b"}\n', "in.jsonl:2"),
        ("in.csv", 'text_a\n"the cat\n', "in.csv:2"),
        ("in.csv", "a,b\nx,y\n", "in.csv:2"),
        ("in.txt", b"cat\nd\xe9j\xe0\n", "in.txt:2"),
        ("in.json", '{"text_a": "the cat"}\n', "in.json"),
    ):
        assert cause_of(run, trained, {name: content}) == f"{tmp_path}/{place}", content
        assert not list((tmp_path / "new").iterdir())
    with pytest.raises(ValueError, match="No input"):  # not one answer
        run(classifier(is_pair=True), {"in.txt": "the cat\nowls\n"})


def test_interrupted_run_keeps_the_earlier_output(run, tmp_path):
    before = run(classifier(), {"in.txt": "the cat\n"})
    cause_of(run, classifier(), {"in.csv": "a,b\nx,y\n"})
    assert (tmp_path / "new" / "output").read_text() == before


def test_no_output_replaces_an_input_or_a_folder(tmp_path):
    file = tmp_path / "in.json"
    file.write_text("mine\n")
    paths = {"input_file": str(file), "output_file": str(file)}
    for program, options in (
        (predict, make_options(PredictionOptions, model_dir="m", **paths)),
        (predict, make_options(PredictionOptions, model_dir="m", output_file=str(tmp_path))),
        (extract_features, make_options(ExtractionOptions, init_checkpoint="c", **paths)),
    ):
        with pytest.raises(ValueError, match="output_file"):
            program(options)
        assert file.read_text() == "mine\n"


def test_pipe_is_read_once(run, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    threading.Thread(target=pipe.write_text, args=("the cat\n",), daemon=True).start()
    (line,) = json_lines(run(classifier(), {}, input_file=str(pipe)))
    assert line["text"] == "the cat"


@pytest.mark.night
def test_script_answers_a_pipe_at_once_and_ends_when_the_reader_does():
    command = script_command("predict", model_dir=golden("classifier"), batch_size=1)
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    script = subprocess.Popen(**command, **pipes)
    print("the sad cat", file=script.stdin, flush=True)
    assert json.loads(script.stdout.readline())["label"] == "bad"  # before there is another line
    script.stdout.close()
    print("the sad cat\n" * 9, file=script.stdin, flush=True)
    script.stdin.close()
    assert "error:" not in script.stderr.read()
    assert script.wait() == 0
