"""predict: lines of text in, JSON lines out."""

import io
import json
import os
import shutil
import subprocess
import sys

import pytest
from tiny_runs import script_command

from bert_tf.predictor import load
from bert_tf.programs.predict import (
    PredictionOptions,
    _progress,
    _warn_of_labelled_words,
    predict,
)
from bert_tf.programs.predict_input import Input

pytestmark = pytest.mark.usefixtures("models_loaded_once")


def answers(model_dir, tmp_path, text, **options):
    """What `predict` writes for the file with `text`."""
    (tmp_path / "input.txt").write_text(text, encoding="utf-8")
    predict(
        PredictionOptions(
            model_dir=str(model_dir),
            input_file=str(tmp_path / "input.txt"),
            output_file=str(tmp_path / "new" / "output.jsonl"),
            **options,
        )
    )
    lines = (tmp_path / "new" / "output.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def set_standard_input(monkeypatch, data):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(data))))


def test_each_line_of_a_file_gets_a_line_with_text_label_and_probabilities(exported, tmp_path):
    text = "the happy cat\n\nthe sad Zürich 京\n"
    lines = answers(exported.single, tmp_path, text)
    assert [line["text"] for line in lines] == ["the happy cat", "", "the sad Zürich 京"]
    assert [list(line) for line in lines] == [["text", "label", "probabilities"]] * 3
    assert (lines[0]["label"], lines[2]["label"]) == ("good", "bad")
    assert list(lines[0]["probabilities"]) == ["bad", "good"]
    assert sorted(path.name for path in (tmp_path / "new").iterdir()) == ["output.jsonl"]


def test_a_tab_separates_the_sentences_of_a_pair(exported, tmp_path):
    text = "the cat in the barn\ta dog in the barn\nthe cat in the wood\ta dog in the wood\n"
    lines = answers(exported.pair, tmp_path, text)
    assert [line["label"] for line in lines] == ["1", "0"]
    assert lines[0]["text"] == "the cat in the barn\ta dog in the barn"


@pytest.mark.parametrize("batch_size", [1, 2, 32])
def test_the_size_of_the_batches_cannot_be_seen(exported, tmp_path, batch_size):
    text = "the happy cat\nthe rude dog in the lake\nthe kind owl is in the barn .\n"
    lines = answers(exported.single, tmp_path, text, batch_size=batch_size)
    assert [line["label"] for line in lines] == ["good", "bad", "good"]


def test_each_mask_of_a_line_gets_its_tokens(pretrained, tmp_path):
    text = "The sad cat is in the barn [MASK]\n[MASK] sad [MASK]\n"
    lines = answers(pretrained, tmp_path, text, top_k=2)
    assert [list(line) for line in lines] == [["text", "masks"]] * 2
    assert [len(line["masks"]) for line in lines] == [1, 2]
    assert [len(mask) for line in lines for mask in line["masks"]] == [2, 2, 2]
    assert list(lines[0]["masks"][0][0]) == ["token", "probability"]
    assert lines[0]["masks"][0][0]["token"] == "."


def test_a_line_that_cannot_be_answered_says_why_and_costs_no_other(pretrained, tmp_path, caplog):
    text = "the [MASK]\nno mask\n[MASK] cat\n"
    first, second, third = answers(pretrained, tmp_path, text)
    assert "masks" in first
    assert "masks" in third
    assert list(second) == ["text", "error"]
    reason = "There is no [MASK] in 'no mask', so there is nothing to fill."
    assert second["error"] == f"{tmp_path}/input.txt:2: {reason}"
    assert "1 of 3 inputs could not be answered" in caplog.text


def test_lines_with_the_wrong_number_of_sentences_say_so(exported, tmp_path):
    single = answers(exported.single, tmp_path, "the sad cat\nthe sad cat\tthe dog\n")
    assert "label" in single[0]
    assert "The model takes single sentences" in single[1]["error"]
    pair = answers(exported.pair, tmp_path, "the cat\tthe dog\nthe cat\n")
    assert "label" in pair[0]
    assert "The model takes pairs of sentences" in pair[1]["error"]


def test_standard_input_and_output_are_the_default(exported, monkeypatch, capsys):
    set_standard_input(monkeypatch, b"the sad cat\r\nthe calm owl")
    predict(PredictionOptions(model_dir=str(exported.single)))
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(line["text"], line["label"]) for line in lines] == [
        ("the sad cat", "bad"),
        ("the calm owl", "good"),
    ]


@pytest.mark.parametrize("flags", [{"line_by_line": True}, {"batch_size": 1}, {"typed": True}])
def test_a_line_that_is_asked_alone_is_answered_at_once(exported, monkeypatch, capsys, flags):
    class Slow(io.RawIOBase):
        """Looks at what was answered before it gives the second line."""

        lines = iter(())

        def readable(self):
            return True

        def isatty(self):
            return flags.get("typed", False)

        def readinto(self, buffer):
            line = next(self.lines, b"")
            if b"calm" in line:
                assert json.loads(capsys.readouterr().out)["label"] == "bad"
            buffer[: len(line)] = line
            return len(line)

    Slow.lines = iter([b"the sad cat\n", b"the calm owl\n"])
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(Slow())))
    options = {name: value for name, value in flags.items() if name != "typed"}
    predict(PredictionOptions(model_dir=str(exported.single), **options))
    assert json.loads(capsys.readouterr().out)["label"] == "good"


def test_the_script_answers_a_pipe_on_standard_output_alone_even_where_it_is_not_utf_8(exported):
    process = subprocess.run(
        **script_command("predict", model_dir=exported.single),
        input="the sad Zürich\n".encode() + b"the calm \xff owl\n",
        capture_output=True,
    )
    assert process.returncode == 0, process.stderr
    first, second = (json.loads(line) for line in process.stdout.decode().splitlines())
    assert (first["text"], first["label"]) == ("the sad Zürich", "bad")
    assert (second["text"], second["label"]) == ("the calm � owl", "good")


def test_an_interrupted_run_leaves_the_earlier_output(exported, tmp_path, monkeypatch):
    before = answers(exported.single, tmp_path, "the sad cat\n")

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("bert_tf.predictor.SavedClassifier.answer", interrupted)
        answers(exported.single, tmp_path, "the calm owl\n")
    output = (tmp_path / "new" / "output.jsonl").read_text()
    assert [json.loads(line) for line in output.splitlines()] == before


# ------------------------------------------------------------------------------------------- errors


def test_a_folder_one_above_the_saved_model_is_told_apart(exported):
    with pytest.raises(
        ValueError, match=r"contains no checkpoint.* Did you mean .*/(single|pair)\?"
    ):
        predict(PredictionOptions(model_dir=str(exported.single.parent)))


def test_the_newest_version_is_proposed_by_its_number(tmp_path):
    for name in ("1", "9", "10", "v6"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "saved_model.pb").touch()
    with pytest.raises(ValueError, match=r"Did you mean .*/10\?"):
        predict(PredictionOptions(model_dir=str(tmp_path)))


def test_a_folder_two_above_the_saved_model_proposes_it(tmp_path):
    for name in ("9", "10"):
        (tmp_path / "served" / "moods" / name).mkdir(parents=True)
        (tmp_path / "served" / "moods" / name / "saved_model.pb").touch()
    with pytest.raises(ValueError, match=r"Did you mean .*/served/moods/10\?"):
        predict(PredictionOptions(model_dir=str(tmp_path / "served")))


def test_exports_below_a_checkpoint_do_not_hide_it(pretrained, tmp_path):
    folder = shutil.copytree(pretrained, tmp_path / "folder")
    (folder / "served" / "1").mkdir(parents=True)
    (folder / "served" / "1" / "saved_model.pb").touch()
    assert load(str(folder)).embed(["a cat"]).shape[0] == 1


def test_a_missing_input_file_is_named_before_the_model_is_loaded():
    options = PredictionOptions(model_dir="/nowhere", input_file="/nowhere/input.txt")
    with pytest.raises(ValueError, match=r"No file matches '/nowhere/input.txt'"):
        predict(options)


def test_text_that_is_not_utf_8_in_a_file_is_named_by_line(exported, tmp_path):
    (tmp_path / "latin.txt").write_bytes(b"cat\nd\xe9j\xe0\n")
    options = {"input_file": str(tmp_path / "latin.txt"), "output_file": str(tmp_path / "o.jsonl")}
    with pytest.raises(ValueError, match=r"latin.txt:2: .*UTF-8"):
        predict(PredictionOptions(model_dir=str(exported.single), **options))
    assert not (tmp_path / "o.jsonl").exists()


def test_a_reader_that_has_enough_ends_the_run_quietly(exported, tmp_path):
    (tmp_path / "input.txt").write_text("the sad cat\n" * 20_000)
    flags = {"model_dir": exported.single, "input_file": tmp_path / "input.txt"}
    script = subprocess.Popen(
        **script_command("predict", **flags), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert json.loads(script.stdout.readline())["label"] == "bad"
    script.stdout.close()
    assert b"error" not in script.stderr.read()
    assert script.wait() == 0


def test_a_pipe_is_not_read_to_count_its_lines(tmp_path):
    pipe = str(tmp_path / "pipe")
    os.mkfifo(pipe)
    with _progress([pipe], typed=False) as report:  # opening the pipe would wait for a writer
        report(None, 1)


@pytest.mark.parametrize(
    "lines, warns", [("EU B-ORG\nrejects VBZ O\n\n.\tO\n", True), ("a dog\nTeam O\n", False)]
)
def test_labelled_words_instead_of_texts_are_a_warning(caplog, lines, warns):
    inputs = [
        Input({"text": line}, None, "words.txt", number)
        for number, line in enumerate(lines.splitlines(), start=1)
    ]
    _warn_of_labelled_words(inputs)
    assert ("words.txt: the lines look like words with labels, such as" in caplog.text) == warns
