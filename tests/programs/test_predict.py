"""predict: lines, TSV, CSV and JSON lines in; JSON lines, a table or bare answers out."""

import csv
import functools
import gzip
import io
import json
import os
import re
import subprocess
import sys
import threading

import pytest
import tiny_text_models as tiny
from tiny_runs import script_command

from bert_tf.predictor import Predictor, corpus_pseudo_perplexity, cosine_similarity
from bert_tf.programs import predict as predict_module
from bert_tf.programs.predict import PredictionOptions, predict

# Made and traced once. The tests change nothing of them.
answerer, chooser, classifier, pretrained = map(
    functools.cache, (tiny.answerer, tiny.chooser, tiny.classifier, tiny.pretrained)
)
predictor = functools.cache(Predictor)


@pytest.fixture
def run(monkeypatch, tmp_path):
    """Function that writes input files, runs predict on a model in memory, and returns the output."""

    def run(trained, files, **flags):
        settings = ("batch_size", "max_seq_length", "doc_stride")

        def in_memory(options):
            return predictor(trained, **{name: getattr(options, name) for name in settings})

        monkeypatch.setattr(predict_module, "make_predictor", in_memory)
        for name, content in files.items():
            data = content if isinstance(content, bytes) else content.encode()
            (tmp_path / name).write_bytes(data)
        flags.setdefault("input_file", ",".join(str(tmp_path / name) for name in files))
        flags.setdefault("output_file", str(tmp_path / "new" / "output"))
        flags.setdefault("model_dir", str(tmp_path))
        predict(PredictionOptions(**flags))
        with open(flags["output_file"], encoding="utf-8", newline="") as file:
            return file.read()

    return run


def json_lines(text):
    return [json.loads(line) for line in text.splitlines()]


def set_standard_input(monkeypatch, stream):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(stream)))


# ----- input


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
    lines = json_lines(run(classifier(), {"in.csv": table}))
    texts = ["the cat, the dog", 'a "log"\nsat']
    assert [(line["id"], line["sentence"]) for line in lines] == list(zip("13", texts, strict=True))
    for line, answer in zip(lines, predictor(classifier()).predict(texts), strict=True):
        assert list(line) == ["id", "sentence", "label", "probabilities"]
        assert line["label"] == answer["label"]
        assert line["probabilities"] == pytest.approx(answer["probabilities"], abs=1e-6)


def test_tables_of_each_format_are_read_one_after_the_other(run):
    files = {
        "a.tsv": "sentence\tx\nthe cat\t1\n",
        "b.jsonl": '{"text": "a log"}\n\n{"text": "owls"}\n',
        "c.csv.gz": gzip.compress(b"text_a\nwho ?\n"),
        "d.txt": "a mat\n",
    }
    lines = json_lines(run(classifier(), files))
    shown = [line.get("sentence", line.get("text", line.get("text_a"))) for line in lines]
    assert shown == ["the cat", "a log", "owls", "who ?", "a mat"]


@pytest.mark.parametrize(
    "name, table, flags",
    [
        ("in.tsv", "x\ty\nthe cat\ta dog\n", {"text_a_column": "y", "text_b_column": "x"}),
        ("in.tsv", "a dog\tthe cat\n", {"header": False}),
        ("in.csv", "query;positive\na dog;the cat\n", {"column_separator": ";"}),
        ("in.json", '{"text": "a dog", "text_b": "the cat"}\n', {"input_format": "jsonl"}),
    ],
)
def test_columns_of_pairs(run, name, table, flags):
    trained = classifier(is_pair=True)
    (line,) = json_lines(run(trained, {name: table}, **flags))
    (expected,) = predictor(trained).predict([("a dog", "the cat")])
    assert line["probabilities"] == pytest.approx(expected["probabilities"], abs=1e-6)


def test_columns_are_those_of_the_training(run, tmp_path):
    (tmp_path / "training.json").write_text('{"flags": {"text_a_column": "review"}}')
    (line,) = json_lines(run(classifier(), {"in.csv": "text,review\na dog,the cat\n"}))
    assert line["review"] == "the cat" and "text" not in line


def test_second_text_is_optional_for_a_model_of_both(run):
    trained = classifier(is_pair=None)
    rows = '{"text": "the cat", "text_b": "a dog"}\n{"text": "the cat", "text_b": null}\n'
    lines = json_lines(run(trained, {"in.jsonl": rows}))
    expected = predictor(trained).predict([("the cat", "a dog"), "the cat"])
    for line, answer in zip(lines, expected, strict=True):
        assert line["probabilities"] == pytest.approx(answer["probabilities"], abs=1e-6)
    (line,) = json_lines(run(trained, {"in.tsv": "the cat\tgood\n"}, header=False))
    assert line["probabilities"] == pytest.approx(expected[1]["probabilities"], abs=1e-6)


def test_choices_are_a_list_or_columns(run):
    row = '{"text_a": "who ?", "choices": ["a dog", "a log", "owls", " "]}\n'
    listed = run(chooser(), {"in.jsonl": row})
    table = "sent1,e0,e1,e2,e3\nwho ?,a dog,a log,owls,\n"
    columns = run(chooser(), {"in.csv": table}, choices_column="e0,e1,e2,e3")
    first, second = (json_lines(text)[0]["probabilities"] for text in (listed, columns))
    assert len(first) == 3 and second == pytest.approx(first, abs=1e-6)


def test_standard_input_is_the_default(run, monkeypatch):
    set_standard_input(monkeypatch, io.BytesIO(b'{"text": "the cat", "id": 4}\n'))
    (line,) = json_lines(run(classifier(), {}, input_file="-", input_format="jsonl"))
    assert (line["id"], line["text"]) == (4, "the cat")


@pytest.mark.parametrize("flags", [{"batch_size": 1}, {"typed": True}])
def test_single_lines_are_answered_at_once(run, monkeypatch, tmp_path, capsys, flags):
    is_typed = flags.pop("typed", False)

    class Slow(io.RawIOBase):
        """Looks at what was answered before it gives the second line."""

        lines = iter([b"the cat\n", b"a dog\n"])

        def readable(self):
            return True

        def isatty(self):
            return is_typed

        def readinto(self, buffer):
            line = next(self.lines, b"")
            if b"dog" in line:
                assert json.loads(capsys.readouterr().out)["text"] == "the cat"
            buffer[: len(line)] = line
            return len(line)

    monkeypatch.setattr(predict_module, "make_predictor", lambda _: predictor(classifier()))
    set_standard_input(monkeypatch, Slow())
    predict(PredictionOptions(model_dir=str(tmp_path), **flags))
    assert json.loads(capsys.readouterr().out)["text"] == "a dog"


# ----- output


def test_answers_are_in_the_order_of_the_texts(run):
    texts = [" ".join(["cat"] * (number * 7 % 9)) + f" {number}" for number in range(70)]
    output = run(classifier(), {"in.txt": "\n".join(texts)}, batch_size=2)  # chunks of 64
    expected = predictor(classifier()).predict(texts)
    for line, text, answer in zip(json_lines(output), texts, expected, strict=True):
        assert line["text"] == text
        assert line["probabilities"] == pytest.approx(answer["probabilities"], abs=1e-5)


@pytest.mark.parametrize("ending, delimiter", [("tsv", "\t"), ("csv", ",")])
def test_output_can_be_a_table(run, tmp_path, ending, delimiter):
    text = 'a, "log"\t\nsat'
    files = {"in.jsonl": json.dumps({"id": 7, "text": text}) + '\n{"id": 8, "text": null}\n'}
    output = run(classifier(), files, output_file=f"{tmp_path}/out.{ending}")
    form = {"quoting": csv.QUOTE_NONE} if ending == "tsv" else {}  # as our tables are read
    rows = csv.reader(io.StringIO(output, newline=""), delimiter=delimiter, **form)
    header, first, second = rows
    names = ["probabilities.bad", "probabilities.fair", "probabilities.good"]
    assert header == ["id", "text", "label", *names, "error"]
    (answer,) = predictor(classifier()).predict([text])
    shown = re.sub("[\t\n]", " ", text) if ending == "tsv" else text
    assert first[:3] == ["7", shown, answer["label"]] and first[-1] == ""
    assert float(first[5]) == pytest.approx(answer["probabilities"]["good"], abs=1e-6)
    assert second[:6] == ["8", *[""] * 5] and "in.jsonl:2" in second[6]


def test_output_can_be_bare_answers(run):
    text = run(classifier(), {"in.txt": "the cat\nowls\n"}, output_format="text")
    expected = predictor(classifier()).predict(["the cat", "owls"])
    assert text.splitlines() == [answer["label"] for answer in expected]


def test_tasks_of_a_pretrained_model(run, caplog):
    caplog.set_level("INFO")
    trained, texts = pretrained(), ["the cat sat", "a log"]
    lines = json_lines(run(trained, {"in.txt": "\n".join(texts)}, task="embeddings"))
    vectors = predictor(trained).embed(texts)
    cosines = cosine_similarity(vectors, [line["embedding"] for line in lines]).diagonal()
    assert cosines == pytest.approx([1, 1], abs=1e-5)
    lines = json_lines(run(trained, {"in.txt": "\n".join(texts)}, task="pseudo_perplexity"))
    expected = predictor(trained).pseudo_perplexity(texts)
    for line, answer in zip(lines, expected, strict=True):
        assert line["pseudo_perplexity"] == pytest.approx(answer["pseudo_perplexity"], rel=1e-4)
    assert f"{corpus_pseudo_perplexity(expected):.3f}"[:-2] in caplog.text


def test_truncated_texts_are_counted_unless_windows_read_them(run, caplog):
    run(classifier(), {"in.txt": f"{tiny.TEXTS[3]}\n"})
    assert "1 of 1 texts" in caplog.text
    caplog.clear()
    run(classifier(), {"in.txt": f"{tiny.TEXTS[3]}\n"}, doc_stride=4)
    assert "1 of 1 texts" not in caplog.text


def test_progress_ends_with_the_number_of_inputs(run, capsys):
    rows = "".join(f'"cat\n{number}"\n\n' for number in range(3))
    run(classifier(), {"in.csv": f"text\n{rows}"})
    assert "predict 3/3 100%" in capsys.readouterr().err


def test_no_input_has_no_answers(run):
    assert run(classifier(), {"in.txt": ""}) == ""


# ----- errors


@pytest.mark.parametrize(
    "make, name, content",
    [
        (pretrained, "in.txt", "the [MASK]\nno mask\n[MASK] cat\n"),
        (classifier, "in.txt", "the cat\n\u200b\nowls\n"),
        (classifier, "in.txt", "the cat\na\tpair\nowls\n"),
        (lambda: classifier(is_pair=True), "in.txt", "a\tcat\na\t\na\tdog\n"),
        (classifier, "in.jsonl", '{"text": "a"}\n{"text": 3}\n{"text": "b"}\n'),
        (chooser, "in.txt", "who\ta\tb\nwho\ta\t\tb\nwho\tb\ta\n"),
    ],
)
def test_input_without_an_answer_has_an_error(run, caplog, make, name, content):
    first, second, third = json_lines(run(make(), {name: content}))
    assert "error" not in {*first, *third}
    assert f"{name}:2: " in second["error"]
    assert "1 of 3 inputs could not be answered" in caplog.text


def test_no_answer_at_all_is_an_error(run):
    with pytest.raises(ValueError, match="No input"):
        run(classifier(is_pair=True), {"in.txt": "the cat\nowls\n"})


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("in.tsv", "text\tx\nthe cat\n", r"in.tsv:2: "),
        ("in.jsonl", '{"text": "a"}\n{"text": \n', r"in.jsonl:2: "),
        ("in.jsonl", '{"text": "a"}\n{"txt": "b"}\n', r"in.jsonl:2: .*'text'"),
        ("in.csv", 'text\n"the cat\n', r"in.csv:2: "),
        ("in.csv", "a,b\nx,y\n", r"in.csv:2: .*text_a_column"),
        ("in.txt", b"cat\nd\xe9j\xe0\n", r"in.txt:2: .*UTF-8"),
        ("in.json", '{"text": "the cat"}\n', r"in.json: .*input_format"),
    ],
)
def test_invalid_files_end_the_run_without_output(run, tmp_path, name, content, message):
    with pytest.raises(ValueError, match=message):
        run(classifier(), {name: content})
    assert not list((tmp_path / "new").iterdir())


def test_interrupted_run_keeps_the_earlier_output(run, tmp_path):
    before = run(classifier(), {"in.txt": "the cat\n"})
    with pytest.raises(ValueError, match=r"in\.csv"):
        run(classifier(), {"in.csv": "a,b\nx,y\n"})
    assert (tmp_path / "new" / "output").read_text() == before


def test_pipe_is_read_once(run, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    threading.Thread(target=pipe.write_text, args=("the cat\n",), daemon=True).start()
    (line,) = json_lines(run(classifier(), {}, input_file=str(pipe)))
    assert line["text"] == "the cat"


def test_script_answers_a_pipe_and_ends_when_the_reader_does(exported, tmp_path):
    (tmp_path / "input.txt").write_text("the sad cat\n" * 20_000)
    flags = {"model_dir": exported.single, "input_file": tmp_path / "input.txt"}
    script = subprocess.Popen(
        **script_command("predict", **flags), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert json.loads(script.stdout.readline())["label"] == "bad"
    script.stdout.close()
    assert b"error:" not in script.stderr.read()
    assert script.wait() == 0
