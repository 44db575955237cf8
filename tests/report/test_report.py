"""report.html: the numbers in its JSON, and the page that a browser draws of them."""

import html
import json
import re

import numpy as np
import pytest
from pages import data_of, in_browser, needs_browser, part_of

from bert_tf.finetuning.options import ThreeFilesOptions
from bert_tf.report.classification import evaluation_sections
from bert_tf.report.page import Command, learning_curve, line_chart, write_report
from bert_tf.report.sections import calibration
from bert_tf.tasks.classification import ClassificationTask, InputExample


def sections_of(task, logits, labels, texts=None):
    texts = texts or [f"text {n}" for n in range(len(labels))]
    examples = [InputExample(f"dev-{n}", text, origin=f"d:{n}") for n, text in enumerate(texts)]
    kept = {"logits": np.float32(logits), "label_ids": np.array(labels)}
    return {s.title: s for s in evaluation_sections(task, examples, kept)}


def cells(section):
    """The rows of a table."""
    return part_of(section, "table")["rows"]


def points_of(section):
    """The points of a chart with one line."""
    ((_, points),) = part_of(section, "lines")["series"]
    return points


@pytest.fixture
def page(tmp_path):
    task = ClassificationTask(["no", "yes"], 8)
    sections = sections_of(
        task, [[1, 0], [0, 2], [3, 0]], [0, 1, 1], ["a", "b", "<script>x</script>"]
    )
    lines = [{"kind": "train", "step": n, "loss": 1 / n, "learning_rate": 0.1} for n in (1, 2, 3)]
    lines.append({"kind": "eval", "step": 2, "eval_loss": 0.4, "loss": 0.4, "eval_accuracy": 0.5})
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    results = {"eval_accuracy": 2 / 3, "eval_loss": 1.2345, "loss": 1.2345, "global_step": 3}
    write_report(str(tmp_path / "report.html"), "Moods & <more>", results, list(sections.values()))
    return tmp_path / "report.html"


TITLES = [
    *("Confusion matrix", "F1 by label", "Calibration", "Hardest errors"),
    *("Learning curve", "Dev set during training", "Learning rate"),
]


def test_the_page_has_every_section_and_every_figure_once(page):
    data = data_of(page.read_text())
    assert data["title"] == "Moods & <more>"
    assert data["figures"] == [["accuracy", 2 / 3], ["loss", 1.2345], ["global_step", 3]]
    assert [section["title"] for section in data["sections"]] == TITLES


def test_the_page_needs_nothing_from_elsewhere_and_no_text_ends_its_data(page):
    text = page.read_text()
    assert text.count("</script>") == 2  # of the data and of the script
    assert "<title>Moods &amp; &lt;more&gt;</title>" in text
    addresses = set(re.findall(r"https?://[^\"' ]+", text))
    assert addresses == {"http://www.w3.org/2000/svg"}  # a name, not a place
    assert not re.search(r"\b(src|href|url|@import)\b\s*[=(]|innerHTML", text)
    assert "default-src 'none'" in text


@needs_browser
def test_a_browser_draws_every_section_with_texts_as_they_are(page):
    shown, complaints = in_browser(page)
    assert complaints == []
    shown = shown.split('<div id="page">')[1].split("<script")[0]
    assert "<h1>Moods &amp; &lt;more&gt;</h1>" in shown
    assert re.findall("<h2>(.*?)</h2>", shown) == TITLES
    assert "<dt>accuracy</dt><dd>0.6667</dd>" in shown and "<dd>3</dd>" in shown
    assert html.escape("<script>x</script>") in shown
    assert re.search(r"<td[^>]*>0<small>0%</small></td><td[^>]*>0<small>0%<", shown) is None
    assert "1<small>100%</small>" in shown and "1<small>50%</small>" in shown
    assert re.search(r">yes<title>yes</title></text><rect.*?>0.6667 <tspan[^>]*>of 2<", shown)
    assert len(re.findall("<polyline", shown)) == 3 and 'stroke="var(--color-0)"' in shown
    assert "NaN" not in shown and "undefined" not in shown


def test_the_confusion_matrix_has_a_row_per_label_and_a_column_per_prediction():
    task = ClassificationTask(["x", "y", "z"], 8)
    logits = np.eye(3)[[0, 0, 1, 1, 2, 1]]
    found = sections_of(task, logits, [0, 0, 0, 1, 2, 2])["Confusion matrix"]
    assert part_of(found, "matrix")["counts"] == [[2, 1, 0], [0, 1, 0], [0, 1, 1]]


def test_the_hardest_errors_are_those_that_the_model_was_surest_of():
    task = ClassificationTask(["no", "yes"], 8)
    logits = [[2, 0], [5, 0], [0, 1], [0, 9]]
    found = sections_of(task, logits, [1, 1, 0, 1])["Hardest errors"]
    rows = cells(found)
    assert [row[0] for row in rows] == ["text 1", "text 0", "text 2"]
    assert rows[0][1:] == ["yes (0.00669)", "no (0.993)", "d:1"]
    assert "3 of 3, the lowest probability of the right label first" in found.note
    right = [float(re.search(r"\((.+)\)", row[1])[1]) for row in rows]
    assert right == sorted(right)


def test_calibration_is_the_distance_between_what_was_said_and_what_came_true():
    probabilities = np.array([0.95, 0.91, 0.55, 0.6, 0.62, 1.0])
    happened = np.array([True, True, False, True, False, True])
    # bins: 0.9-1: mean 0.9533, all true (3 of 6); 0.5-0.6: 0.55, none (1); 0.6-0.7: 0.61, half (2)
    expected = (3 * (1 - 0.95333) + 1 * 0.55 + 2 * (0.61 - 0.5)) / 6
    assert f"{expected:.3f}" in calibration(probabilities, happened).note


def test_sections_of_several_labels_and_of_numbers():
    several = ClassificationTask(["x", "y"], 8, problem_type="multi_label")
    found = sections_of(several, [[1, -1], [1, 1], [-1, -9]], [[1, 0], [0, 1], [0, 1]])
    assert cells(found["Counts by label"]) == [["x", 1, 2, 1], ["y", 2, 1, 1]]
    assert [row[:3] for row in cells(found["Hardest errors"])] == [
        ["text 2", "y (9.02e-05)", "(none)"],
        ["text 1", "y (0.197)", "x, y"],
    ]
    number = ClassificationTask([], 8, problem_type="regression")
    found = sections_of(number, [[1.0], [5.0]], [1.5, 1.0])
    assert cells(found["Errors"])[0] == ["mean", 2.25]
    assert cells(found["Hardest errors"])[0][:3] == ["text 1", "1", "5 (off by 4)"]
    assert part_of(found["Predicted and known"], "lines")["dots"]


def test_a_resumed_run_shows_each_step_once(tmp_path):
    lines = [
        {"kind": "train", "step": n, "loss": loss} for n, loss in ((1, 9), (2, 8), (1, 3), (2, 2))
    ]
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    (section,) = learning_curve(str(path))
    assert points_of(section) == [(1, 3), (2, 2)]
    assert learning_curve(str(tmp_path / "none.jsonl")) == []


def test_a_chart_has_few_points_and_none_that_is_not_finite():
    (_, points), (_, none) = line_chart(
        {"a": [(n, n) for n in range(5000)], "b": [(1, float("nan"))]}, "", ""
    )["series"]
    assert 200 < len(points) <= 300 and none == []
    assert points[0] == (8.0, 8.0)  # the mean of 17


def test_the_checkpoint_and_the_command_are_told_with_the_flags_that_were_changed(tmp_path):
    options = ThreeFilesOptions(
        output_dir=str(tmp_path), init_checkpoint="my folder/bert", do_eval=True
    )

    def texts():
        path = tmp_path / "r.html"
        write_report(str(path), "t", {}, [], Command("run_swag", options))
        (section,) = data_of(path.read_text())["sections"]
        *found, command = section["parts"]
        return {part["text"]: part["code"] for part in found}, command["text"]

    found, command = texts()
    assert command.startswith("python -m bert_tf run_swag")
    flags = {"--do_eval", f"--output_dir={tmp_path}", "--init_checkpoint='my folder/bert'"}
    assert set(re.findall(r"--\S+(?: \S+')?", command)) == flags
    assert found == {"Checkpoint: ": "my folder/bert"}
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-7"\n')
    for name in ("index", "data-00000-of-00001"):
        (tmp_path / f"model.ckpt-7.{name}").write_text("")
    found, _ = texts()
    assert found == {
        "Checkpoint: ": f"{tmp_path}/model.ckpt-7",
        "Started from: ": "my folder/bert",
    }
