"""report.html: whole, self-contained, with every text escaped and every figure right."""

import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest

from bert_tf.finetuning.options import ThreeFilesOptions
from bert_tf.report.charts import bars, figure, line_chart, matrix, table
from bert_tf.report.classification import evaluation_sections
from bert_tf.report.page import Command, Section, learning_curve, write_report
from bert_tf.report.sections import calibration
from bert_tf.tasks.classification import ClassificationTask, InputExample

VOID = {"meta", "line", "rect", "circle", "polyline"}


class Checker(HTMLParser):
    """Every element is closed by its own end; keeps the texts."""

    def __init__(self, page):
        super().__init__()
        self.open, self.texts = [], []
        self.feed(page)
        assert not self.open, self.open

    def handle_starttag(self, tag, attributes):
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def sections_of(task, logits, labels, texts=None):
    texts = texts or [f"text {n}" for n in range(len(labels))]
    examples = [InputExample(f"dev-{n}", text, origin=f"d:{n}") for n, text in enumerate(texts)]
    kept = {"logits": np.float32(logits), "label_ids": np.array(labels)}
    return {s.title: s for s in evaluation_sections(task, examples, kept)}


def cells(html):
    return [
        [re.sub("<[^>]+>", "", cell) for cell in re.findall(r"<td[^>]*>(.*?)</td>", row)]
        for row in re.findall("<tr>(.*?)</tr>", html)
        if "<td" in row
    ]


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
    return (tmp_path / "report.html").read_text()


def test_the_page_is_well_formed_and_holds_what_it_should(page):
    texts = Checker(page).texts
    for title in (
        "Moods & <more>",
        "Confusion matrix",
        "F1 by label",
        "Calibration",
        "Hardest errors",
        "Learning curve",
        "On the dev set while training",
        "Learning rate",
    ):
        assert title in texts
    assert texts.count("0.6667") == 1
    assert len([text for text in texts if text in ("1.234", "1.235")]) == 1


def test_the_page_needs_nothing_from_elsewhere_and_runs_nothing(page):
    assert "<script" not in page
    assert "&lt;script&gt;x&lt;/script&gt;" in page
    addresses = set(re.findall(r"https?://[^\"' ]+", page))
    assert addresses <= {"http://www.w3.org/2000/svg"}  # a name, not a place
    assert not re.search(r"\b(src|href|url|@import)\b\s*[=(]", page)


def test_the_confusion_matrix_has_a_row_per_label_and_a_column_per_prediction():
    task = ClassificationTask(["x", "y", "z"], 8)
    logits = np.eye(3)[[0, 0, 1, 1, 2, 1]]
    found = sections_of(task, logits, [0, 0, 0, 1, 2, 2])["Confusion matrix"]
    assert cells(found.body) == [
        ["267%", "133%", "00%"],
        ["00%", "1100%", "00%"],
        ["00%", "150%", "150%"],
    ]


def test_of_many_labels_the_commonest_confusions_are_listed():
    names = [f"l{n}" for n in range(20)]
    task = ClassificationTask(names, 8)
    labels, predictions = [3, 3, 7, 5, 6], [4, 4, 8, 5, 6]
    found = sections_of(task, np.eye(20)[predictions], labels)["Commonest confusions"]
    assert cells(found.body) == [["l3", "l4", "2"], ["l7", "l8", "1"]]


def test_the_hardest_errors_are_those_that_the_model_was_surest_of():
    task = ClassificationTask(["no", "yes"], 8)
    logits = [[2, 0], [5, 0], [0, 1], [0, 9]]
    found = sections_of(task, logits, [1, 1, 0, 1])["Hardest errors"]
    rows = cells(found.body)
    assert [row[0] for row in rows] == ["text 1", "text 0", "text 2"]
    assert rows[0][1:] == ["yes (0.00669)", "no (0.993)", "d:1"]
    assert "3 of 3, the least probability of the right label first" in found.note
    right = [float(re.search(r"\((.+)\)", row[1])[1]) for row in rows]
    assert right == sorted(right)


def test_without_errors_it_says_so():
    task = ClassificationTask(["no", "yes"], 8)
    assert "no error" in sections_of(task, [[1, 0]], [0])["Hardest errors"].body


def test_calibration_is_the_distance_between_what_was_said_and_what_came_true():
    probabilities = np.array([0.95, 0.91, 0.55, 0.6, 0.62, 1.0])
    happened = np.array([True, True, False, True, False, True])
    # bins: 0.9-1: mean 0.9533, all true (3 of 6); 0.5-0.6: 0.55, none (1); 0.6-0.7: 0.61, half (2)
    expected = (3 * (1 - 0.95333) + 1 * 0.55 + 2 * (0.61 - 0.5)) / 6
    assert f"{expected:.3f}" in calibration(probabilities, happened).note


def test_sections_of_several_labels_and_of_numbers():
    several = ClassificationTask(["x", "y"], 8, problem_type="multi_label")
    found = sections_of(several, [[1, -1], [1, 1], [-1, -9]], [[1, 0], [0, 1], [0, 1]])
    assert cells(found["Counts by label"].body) == [["x", "1", "2", "1"], ["y", "2", "1", "1"]]
    assert [row[:3] for row in cells(found["Hardest errors"].body)] == [
        ["text 2", "y (9.02e-05)", "(none)"],
        ["text 1", "y (0.197)", "x, y"],
    ]
    number = ClassificationTask([], 8, problem_type="regression")
    found = sections_of(number, [[1.0], [5.0]], [1.5, 1.0])
    assert cells(found["Errors"].body)[0] == ["mean", "2.25"]
    assert cells(found["Hardest errors"].body)[0][:3] == ["text 1", "1", "5 (off by 4)"]
    for section in found.values():
        Checker(section.body)


def test_a_resumed_run_shows_each_step_once(tmp_path):
    lines = [
        {"kind": "train", "step": n, "loss": loss} for n, loss in ((1, 9), (2, 8), (1, 3), (2, 2))
    ]
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    (section,) = learning_curve(str(path))
    assert len(re.search('points="([^"]+)"', section.body)[1].split()) == 2
    assert learning_curve(str(tmp_path / "none.jsonl")) == []


def test_the_rates_are_drawn_as_they_were_at_their_steps_the_peak_above_all(tmp_path):
    def drawn(lines):
        (tmp_path / "m.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        (section,) = learning_curve(str(tmp_path / "m.jsonl"))
        points = re.search('points="([^"]+)"', section.body)[1].split()
        return section, [tuple(map(float, point.split(","))) for point in points]

    line = {
        "kind": "train",
        "step": 42,
        "learning_rate": 0.5,
        "learning_rates": {"2": 0.1, "15": 3},
    }
    section, points = drawn([{"kind": "train", "step": 1, "learning_rate": 0.0}, line])
    assert section.title == "Learning rate"
    assert len(points) == 4 and points == sorted(points)
    heights = [y for _, y in points]
    assert heights.index(min(heights)) == 2  # the peak, at step 15
    many = [{"kind": "train", "step": n, "learning_rate": min(n, 500 - n)} for n in range(5000)]
    _, points = drawn([{**line, "learning_rate": max(0, line["learning_rate"])} for line in many])
    assert len(points) <= 300
    assert min(y for _, y in points) == 12.0  # the top of the chart: the highest of all


def test_a_line_that_a_kill_has_cut_does_not_cost_the_report(tmp_path, caplog):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"kind": "train", "step": 1, "loss": 2}\n{"kind": "tra')
    assert len(learning_curve(str(path))) == 1
    assert "metrics.jsonl:2: no JSON" in caplog.text


def contrast(*colors):
    """Of two colors "#rgb" or "#rrggbb", as WCAG 2.2 defines it."""

    def luminance(color):
        digits = color[1:] if len(color) == 7 else "".join(2 * digit for digit in color[1:])
        parts = np.array([int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)])
        linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
        return linear @ [0.2126, 0.7152, 0.0722]

    low, high = sorted(map(luminance, colors))
    return (high + 0.05) / (low + 0.05)


def test_texts_and_lines_can_be_told_from_the_paper_in_the_light_and_in_the_dark(page):
    light, dark = page.split("prefers-color-scheme: dark")
    for part in (light, dark):
        colors = dict(re.findall(r"--([\w-]+): (#\w+)", part))
        assert len(colors) == 9
        for name in set(colors) - {"line", "paper"}:  # lines of tables and grids only decorate
            assert contrast(colors[name], colors["paper"]) >= 4.5, name
    body = page.split("</style>")[1]
    assert not re.search("#[0-9a-f]{3,6}", body)  # every color is one of those above
    assert 'stroke="var(--color-0)"' in body


def test_the_page_fits_a_phone_and_short_texts_are_not_broken(page):
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in page
    cells = table(["text", "label"], [["many words " * 9, "entailment"]], texts=True)
    assert '<td class="text" data-name="text">' in cells  # may break anywhere
    assert '<td data-name="label">entailment</td>' in cells


def test_charts_survive_what_data_can_be():
    for points in (
        [],
        [(1, 2)],
        [(1, 2), (1, 2)],
        [(1, float("nan"))],
        [(n, 0) for n in range(5000)],
    ):
        Checker(line_chart({"a<b": points, "c": []}, "x & y", "z"))
    assert line_chart({"a": [(n, n) for n in range(5000)]}, "", "").count(",") < 400
    Checker(bars({"a" * 60: (1.7, 3), "<b>": (float("-1"), 0)}, "F1"))
    Checker(bars({}, "F1"))
    Checker(table(["<h>"], [["<c>"], [float("nan")], [3]]))
    Checker(matrix(["<a>"], ["<a>"], [[0]]))


def test_a_task_may_bring_sections_of_its_own(tmp_path):
    section = Section("By question word", bars({"who": (0.5, 12)}, "F1"), "Read me.", wide=True)
    write_report(str(tmp_path / "r.html"), "t", {}, [section])
    texts = Checker((tmp_path / "r.html").read_text()).texts
    assert {"By question word", "who", "Read me.", "of 12"} <= set(texts)


def test_the_checkpoint_and_the_command_are_told_with_the_flags_that_were_changed(tmp_path):
    options = ThreeFilesOptions(
        output_dir=str(tmp_path), init_checkpoint="my folder/bert", do_eval=True, report=True
    )

    def texts():
        path = tmp_path / "r.html"
        write_report(str(path), "t", {}, [], Command("run_swag", options))
        return Checker(path.read_text()).texts

    (command,) = (text for text in texts() if text.startswith("python -m bert_tf run_swag"))
    flags = {"--do_eval", f"--output_dir={tmp_path}", "--init_checkpoint='my folder/bert'"}
    assert set(re.findall(r"--\S+(?: \S+')?", command)) == flags
    assert "my folder/bert" in texts() and "Started from: " not in texts()
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-7"\n')
    for name in ("index", "data-00000-of-00001"):
        (tmp_path / f"model.ckpt-7.{name}").write_text("")
    assert {f"{tmp_path}/model.ckpt-7", "my folder/bert", "Started from: "} <= set(texts())


def test_figures_are_short():
    assert [figure(v) for v in (0.123456, 3, 3.0, 1e-9, float("inf"))] == [
        "0.1235",
        "3",
        "3",
        "1e-09",
        "inf",
    ]
