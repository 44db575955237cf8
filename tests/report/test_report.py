"""report.html: the numbers in its JSON, and the page that a browser draws of them."""

import html
import re

import numpy as np
import pytest
from helpers import write_json_lines
from pages import cells, data_of, in_browser, needs_browser, part_of

from bert_tf.report.classification import Example, evaluation_sections
from bert_tf.report.page import (
    calibration,
    learning_curve,
    line_chart,
    write_report,
)
from bert_tf.tasks.classification import PROBLEM_TYPES


def sections_of(names, logits, labels, texts=None, problem_type="single_label"):
    texts = texts or [f"text {n}" for n in range(len(labels))]
    examples = [Example([text], f"d:{n}") for n, text in enumerate(texts)]
    scores = PROBLEM_TYPES[problem_type].scores(np.float32(logits))
    sections = evaluation_sections(problem_type, names, examples, scores, np.array(labels))
    return {section.title: section for section in sections}


@pytest.fixture
def page(tmp_path):
    texts = ["a", "b", "<script>x</script>"]
    sections = sections_of(["no", "yes"], [[1, 0], [0, 2], [3, 0]], [0, 1, 1], texts)
    lines = [{"kind": "train", "step": n, "loss": 1 / n, "learning_rate": 0.1} for n in (1, 2, 3)]
    lines.append({"kind": "eval", "step": 2, "eval_loss": 0.4, "loss": 0.4, "eval_accuracy": 0.5})
    write_json_lines(tmp_path / "metrics.jsonl", lines)
    results = {"eval_accuracy": 2 / 3, "eval_loss": 1.2345, "loss": 1.2345, "global_step": 3}
    write_report(str(tmp_path / "report.html"), "Moods & <more>", results, list(sections.values()))
    return tmp_path / "report.html"


TITLES = [
    *("Confusion matrix", "F1 by label", "Calibration", "Hardest errors"),
    *("Learning curve", "Dev set during training", "Learning rate"),
]


def test_page_has_every_section_and_needs_nothing_from_elsewhere(page):
    text = page.read_text()
    data = data_of(text)
    assert data["title"] == "Moods & <more>"
    assert data["figures"] == [["accuracy", 2 / 3], ["loss", 1.2345], ["global_step", 3]]
    assert [section["title"] for section in data["sections"]] == TITLES
    assert text.count("</script>") == 2  # of the data and of the script
    assert "<title>Moods &amp; &lt;more&gt;</title>" in text
    addresses = set(re.findall(r"https?://[^\"' ]+", text))
    assert addresses == {"http://www.w3.org/2000/svg"}  # a name, not a place
    assert not re.search(r"\b(src|href|url|@import)\b\s*[=(]|innerHTML", text)
    assert "default-src 'none'" in text


@needs_browser
def test_browser_draws_every_section_with_texts_as_they_are(page):
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
    assert len(re.findall("<polyline", shown)) == 5 and 'stroke="var(--color-0)"' in shown
    assert "NaN" not in shown and "undefined" not in shown


def test_sections_of_one_label_count_confusions_and_sort_errors():
    found = sections_of("xyz", np.eye(3)[[0, 0, 1, 1, 2, 1]], [0, 0, 0, 1, 2, 2])
    counts = part_of(found["Confusion matrix"], "matrix")["counts"]
    assert counts == [[2, 1, 0], [0, 1, 0], [0, 1, 1]]
    found = sections_of(["no", "yes"], [[2, 0], [5, 0], [0, 1], [0, 9]], [1, 1, 0, 1])[
        "Hardest errors"
    ]
    assert [row[0] for row in cells(found)] == ["text 1", "text 0", "text 2"]
    assert cells(found)[0][1:] == ["yes (0.00669)", "no (0.993)", "d:1"]
    assert found.note.startswith("3 of 3,")


def test_sections_of_several_labels_and_of_numbers():
    labels = [[1, 0], [0, 1], [0, 1]]
    found = sections_of("xy", [[1, -1], [1, 1], [-1, -9]], labels, problem_type="multi_label")
    assert [row[:3] for row in cells(found["Hardest errors"])] == [
        ["text 2", "y (9.02e-05)", "(none)"],
        ["text 1", "y (0.197)", "x, y"],
    ]
    found = sections_of((), [[1.0], [5.0]], [1.5, 1.0], problem_type="regression")
    assert cells(found["Hardest errors"])[0][:3] == ["text 1", "1", "5 (off by 4)"]
    assert part_of(found["Predicted and known"], "lines")["dots"]


def test_calibration_error_is_the_mean_distance_of_the_bins():
    probabilities = np.array([0.95, 0.91, 0.55, 0.6, 0.62, 1.0])
    happened = np.array([True, True, False, True, False, True])
    # bins: 0.9-1: mean 0.9533, all true (3 of 6); 0.5-0.6: 0.55, none (1); 0.6-0.7: 0.61, half (2)
    expected = (3 * (1 - 0.95333) + 1 * 0.55 + 2 * (0.61 - 0.5)) / 6
    assert f"{expected:.3f}" in calibration(probabilities, happened).note


def test_learning_curve_of_a_resumed_run_has_each_step_once(tmp_path):
    losses = ((1, 9), (2, 8), (1, 3), (2, 2))
    lines = [{"kind": "train", "step": step, "loss": loss} for step, loss in losses]
    (section,) = learning_curve(write_json_lines(tmp_path / "metrics.jsonl", lines), {})
    assert part_of(section, "lines")["series"][0][1] == [(1, 3), (2, 2)]
    assert learning_curve(str(tmp_path / "none.jsonl"), {}) == []


def test_line_chart_has_few_points_and_none_that_is_not_finite():
    series = {"a": [(n, n) for n in range(5000)], "b": [(1, float("nan"))]}
    (_, points), (_, none) = line_chart(series, "", "")["series"]
    assert len(points) == 60 and none == []
    assert points[0] == (41.5, 41.5)  # the mean of 84
