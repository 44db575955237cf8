"""mine_negatives: which texts become negatives, with vectors that are set by hand."""

import dataclasses
import json
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
from tiny_words_and_choices import write_json_lines

from bert_tf.finetuning.embeddings_data import read_examples
from bert_tf.finetuning.embeddings_options import EmbeddingOptions
from bert_tf.predictor import load
from bert_tf.programs import mine_negatives as module
from bert_tf.programs.mine_negatives import MiningOptions, mine_negatives

# Cosines with the anchor "q": 1.0, 0.98, 0.9, 0.6, 0.0 in this order.
ANGLES = {"p": 0.0, "near": 0.2, "other": 0.45, "far": 0.927, "never": np.pi / 2}


class Vectors:
    """A model whose vectors are those of `ANGLES`; every anchor has the angle 0."""

    def __init__(self, folder, batch_size, max_seq_length):
        self._trained = SimpleNamespace(task=None)

    def encoder(self, pooling, as_query):
        self.num_cut, self._as_query = 0, as_query
        return self

    def encode(self, texts):
        angles = [0.0 if self._as_query else ANGLES[text] for text in texts]
        return np.stack([np.cos(angles), np.sin(angles)], axis=1)


def mined(tmp_path, monkeypatch, rows, **changes):
    monkeypatch.setattr(module, "Predictor", Vectors)
    source, target = tmp_path / "in.tsv", tmp_path / "out.jsonl"
    lines = ["anchor\tpositive", *("\t".join(row) for row in rows)]
    source.write_text("\n".join(lines) + "\n")
    files = {"model_dir": "m", "input_file": str(source), "output_file": str(target)}
    mine_negatives(MiningOptions(**files, **changes))
    return [json.loads(line) for line in target.read_text().splitlines()]


ROWS = [("q", "p"), ("q1", "near"), ("q2", "other"), ("q3", "far"), ("q4", "never")]


def test_the_nearest_texts_beyond_the_margin_become_negatives(tmp_path, monkeypatch):
    first, *_ = mined(tmp_path, monkeypatch, ROWS, num_negatives=2)
    expected = {"negative_1": "other", "negative_2": "far"}  # "near" is within 0.05 of the positive
    assert first == {"anchor": "q", "positive": "p", **expected}
    first, *_ = mined(tmp_path, monkeypatch, ROWS, num_negatives=2, margin=0.0)
    assert (first["negative_1"], first["negative_2"]) == ("near", "other")


def test_more_negatives_than_ranked_texts_are_refused_and_too_few_are_counted(
    tmp_path, monkeypatch, caplog
):
    with pytest.raises(ValueError, match=r"depth is 2, but must be above num_negatives=2, because"):
        mined(tmp_path, monkeypatch, ROWS, depth=2, num_negatives=2)
    caplog.set_level("INFO")
    mined(tmp_path, monkeypatch, ROWS, num_negatives=2)
    (record,) = [each for each in caplog.records if "fewer than" in each.message]
    assert "2 of 5 examples have fewer than 2 negatives, 1 of them none" in record.message
    assert record.levelname == "WARNING"


def test_a_file_without_any_negative_is_an_error_that_writes_nothing(tmp_path, monkeypatch):
    rule = r"No example of .*in.tsv has a negative.*depth=100 .*margin=0.05\. Decrease margin"
    for rows in ([("q", "p")] * 3, [("q", "p"), ("q1", "p")]):
        with pytest.raises(ValueError, match=rule):
            mined(tmp_path, monkeypatch, rows)
    assert [each.name for each in tmp_path.iterdir()] == ["in.tsv"]


def test_an_output_that_cannot_be_written_is_an_error_before_the_model_is_loaded(
    tmp_path, monkeypatch
):
    (tmp_path / "file").touch()
    (tmp_path / "in.tsv").write_text("anchor\tpositive\nq\tp\n")
    monkeypatch.setattr(module, "Predictor", lambda *_, **__: pytest.fail("loaded"))
    files = {"input_file": f"{tmp_path}/in.tsv", "output_file": f"{tmp_path}/file/out.jsonl"}
    with pytest.raises(tf.errors.OpError):
        mine_negatives(MiningOptions(model_dir="m", **files))


def test_no_positive_of_the_anchor_is_a_negative(tmp_path, monkeypatch):
    rows = [*ROWS, ("q", "other")]
    first, *_, last = mined(tmp_path, monkeypatch, rows, num_negatives=1)
    assert first["negative_1"] == "far"
    assert last["positive"] == "other" and last["negative_1"] == "far"


def test_a_text_in_other_case_is_no_second_negative(tmp_path, monkeypatch):
    rows = [*ROWS, ("q5", "Other"), ("q6", "P")]
    first, *_ = mined(tmp_path, monkeypatch, rows, num_negatives=3)
    assert [first[f"negative_{k}"] for k in (1, 2, 3)] == ["other", "far", "never"]


def test_an_anchor_without_negatives_keeps_an_empty_column(tmp_path, monkeypatch):
    *_, last = mined(tmp_path, monkeypatch, ROWS)
    assert last == {"anchor": "q4", "positive": "never", "negative_1": ""}


def test_only_anchors_with_positives_are_taken(tmp_path):
    source = tmp_path / "in.tsv"
    source.write_text("text\tlabel\nx\tA\ny\tB\n")
    files = {"model_dir": "m", "input_file": str(source), "output_file": "out.jsonl"}
    with pytest.raises(ValueError, match=r"in.tsv:1: .* needs a positive.* positive_column\.$"):
        mine_negatives(MiningOptions(**files))
    with pytest.raises(ValueError, match=r"output_file is out.tsv, but must end in .jsonl"):
        MiningOptions(**{**files, "output_file": "out.tsv"})


def test_negatives_and_labels_of_the_file_are_ignored(tmp_path, monkeypatch, caplog):
    lines = ["query,answer,negative,score", "q,p,x,7", "q1,near,,", "q2,other,x,no"]
    (tmp_path / "in.csv").write_text("\n".join(lines))
    monkeypatch.setattr(module, "Predictor", Vectors)
    files = {"input_file": f"{tmp_path}/in.csv", "output_file": f"{tmp_path}/out.jsonl"}
    mine_negatives(MiningOptions(model_dir="m", **files))
    first, *_ = (tmp_path / "out.jsonl").read_text().splitlines()
    assert json.loads(first) == {"anchor": "q", "positive": "p", "negative_1": "other"}
    assert "in.csv:1: 'score' is not used as a score" in caplog.text
    names = {each.name for each in dataclasses.fields(MiningOptions)}
    assert not names & {"negative_columns", "label_column"}


@pytest.mark.parametrize(
    "ending, zero", [("csv", "0"), ("csv", "0.0"), ("csv", "FALSE"), ("jsonl", 0), ("jsonl", False)]
)
def test_documents_with_label_0_are_no_positives(tmp_path, monkeypatch, caplog, ending, zero):
    rows = [("q", "p", 1), ("q", "never", zero), ("q1", "near", 1), ("q2", "other", 2)]
    names = ("query", "document", "label")
    lines = [",".join(map(str, row)) for row in [names, *rows]]
    if ending == "jsonl":
        lines = [json.dumps(dict(zip(names, row, strict=True))) for row in rows]
    (tmp_path / f"in.{ending}").write_text("\n".join(lines))
    monkeypatch.setattr(module, "Predictor", Vectors)
    files = {"input_file": f"{tmp_path}/in.{ending}", "output_file": f"{tmp_path}/out.jsonl"}
    mine_negatives(MiningOptions(model_dir="m", **files))
    found = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [(each["anchor"], each["positive"]) for each in found] == [
        *(("q", "p"), ("q1", "near"), ("q2", "other"))
    ]
    assert "1 rows with a label of 0 or less were left out, the last in" in caplog.text


def test_the_anchor_is_no_negative_of_itself(tmp_path, monkeypatch):
    rows = [("far", "p"), ("q1", "far"), ("q2", "never")]
    first, *_ = mined(tmp_path, monkeypatch, rows, num_negatives=2)
    assert first == {"anchor": "far", "positive": "p", "negative_1": "never", "negative_2": ""}


def test_a_model_finds_the_nearest_negative(pretrained, tmp_path):
    rows = [{"anchor": f"the {name}", "positive": f"a {name} ."} for name in ("owl", "dog", "cat")]
    source = write_json_lines(tmp_path / "in.jsonl", rows)
    target = tmp_path / "out.jsonl"
    files = {"model_dir": str(pretrained), "input_file": str(source), "output_file": str(target)}
    mine_negatives(MiningOptions(**files, margin=0.0))
    found = [json.loads(line) for line in target.read_text().splitlines()]
    model = load(str(pretrained))
    documents = [row["positive"] for row in rows]
    cosines = model.embed([row["anchor"] for row in rows]) @ model.embed(documents).T
    for own, line in enumerate(found):
        order = [i for i in np.argsort(-cosines[own]) if cosines[own][i] <= cosines[own][own]]
        others = [documents[i] for i in order if i != own]
        assert line["negative_1"] == (others[0] if others else "")


def test_max_seq_length_is_that_of_predict(pretrained, tmp_path, caplog):
    rows = [{"anchor": f"the {name}", "positive": f"a {name} ."} for name in ("owl", "dog", "cat")]
    source = write_json_lines(tmp_path / "in.jsonl", rows)
    files = {"input_file": str(source), "output_file": str(tmp_path / "out.jsonl")}
    given = {"model_dir": str(pretrained), **files, "margin": 0.0}
    mine_negatives(MiningOptions(**given, max_seq_length=4))
    assert "3 of 3 documents are longer than the longest input, 4 tokens" in caplog.text
    for length in (2, 1000):
        with pytest.raises(ValueError, match=rf"max_seq_length.* is {length}") as expected:
            load(str(pretrained), max_seq_length=length)
        with pytest.raises(ValueError) as found:
            mine_negatives(MiningOptions(**given, max_seq_length=length))
        assert str(found.value) == str(expected.value)


def test_the_same_flags_read_the_file_and_the_mined_one(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "Predictor", Vectors)
    source, target = tmp_path / "in.csv", tmp_path / "out.jsonl"
    lines = ["Frage;Antwort", *(";".join(row) for row in ROWS), ";", ""]
    source.write_text("\n".join(lines), encoding="utf-8-sig")
    flags = {"anchor_column": "Frage", "positive_column": "Antwort", "column_separator": ";"}
    files = {"model_dir": "m", "input_file": str(source), "output_file": str(target)}
    mine_negatives(MiningOptions(**files, **flags))
    given = EmbeddingOptions(
        output_dir=str(tmp_path / "out"),
        do_train=True,
        do_eval=True,
        train_file=str(target),
        eval_file=str(source),
        **flags,
    )
    _, splits = read_examples(given)
    assert [each.texts[:2] for each in splits["train"]] == ROWS
    assert [each.texts for each in splits["dev"]] == ROWS
    assert splits["train"][0].texts[2] == "other"


def test_the_input_is_never_overwritten(tmp_path):
    source = tmp_path / "in.jsonl"
    source.write_text("{}\n")
    (tmp_path / "link.jsonl").symlink_to(source)
    files = {"input_file": str(source), "output_file": f"{tmp_path}/link.jsonl"}
    with pytest.raises(ValueError, match=r"link.jsonl would be written, but it is also an input"):
        mine_negatives(MiningOptions(model_dir="m", **files))
