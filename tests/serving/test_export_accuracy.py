"""--eval_file: the metric of an export is that of the training program, and a worse one is refused."""

import json
import logging

import pytest

from bert_tf.finetuning.options import FineTuningOptions
from bert_tf.predictor import Predictor
from bert_tf.programs import export_accuracy
from bert_tf.programs import export_saved_model as export_saved_model_module
from bert_tf.programs.export_saved_model import ExportOptions, export_saved_model
from bert_tf.programs.model_to_export import load_served
from bert_tf.registry import TYPES
from bert_tf.training import strategy

TEXTS = ["a good film", "a bad film", "the cat sat", "a good dog", "no bad cat"]


@pytest.fixture(scope="module")
def answers(sentence_model):
    return Predictor(str(sentence_model)).predict(TEXTS)


@pytest.fixture
def labelled(answers, tmp_path):
    """A table on which the model is right about all rows but the last."""
    found = [answer["label"] for answer in answers]
    (labels,) = {tuple(answer["probabilities"]) for answer in answers}
    wrong = next(label for label in labels if label != found[-1])
    path = tmp_path / "dev.jsonl"
    rows = zip(TEXTS, [*found[:-1], wrong], strict=True)
    lines = (json.dumps({"text_a": text, "label": label}) + "\n" for text, label in rows)
    path.write_text("".join(lines))
    return path


def options(model_dir, folder, eval_file, **settings):
    return ExportOptions(
        model_dir=str(model_dir), export_dir=str(folder), eval_file=str(eval_file), **settings
    )


def test_the_metric_is_logged_and_written(sentence_model, labelled, tmp_path, caplog):
    with caplog.at_level(logging.INFO):
        export_saved_model(options(sentence_model, tmp_path / "1", labelled, precision="bfloat16"))
    assert "accuracy on" in caplog.text
    assert "0.8000 of the float32 model, 0.8000 of the bfloat16 export" in caplog.text
    assert "Fastest precision on this processor: " in caplog.text
    assert "Reading it again for the export, in bfloat16" in caplog.text
    values = json.loads((tmp_path / "1" / "assets.extra" / "export.json").read_text())
    assert values["evaluation"] == {
        "eval_file": str(labelled),
        "metric": "accuracy",
        "float32": 0.8,
        "export": 0.8,
    }


@pytest.mark.parametrize("format", ["tflite", "onnx"])
def test_a_file_on_ids_is_measured_too(sentence_model, labelled, tmp_path, format):
    if format == "onnx":
        pytest.importorskip("tf2onnx")
    given = options(sentence_model, tmp_path / "1", labelled, format=format, precision="int8")
    export_saved_model(given)
    values = json.loads((tmp_path / "1" / "export.json").read_text())["evaluation"]
    assert (values["float32"], values["export"]) == (0.8, 0.8)


def test_columns_with_other_names_serve_both_files(sentence_model, labelled, tmp_path, monkeypatch):
    rows = [json.loads(line) for line in labelled.read_text().splitlines()]
    lines = (f"{row['text_a']};{row['label']};x\n" for row in rows)
    (tmp_path / "dev.csv").write_text("".join(["review;mood;label\n", *lines]))
    flags = {"text_a_column": "review", "label_column": "mood", "column_separator": "semicolon"}
    seen = []
    monkeypatch.setattr(
        export_saved_model_module, "_quantize", lambda _, served, ids: seen.extend(ids)
    )
    file = tmp_path / "dev.csv"
    given = options(
        sentence_model,
        tmp_path / "1",
        file,
        precision="int8",
        calibration_file=str(file),
        **flags,
    )
    export_saved_model(given)
    assert len(seen) == len(TEXTS)
    values = json.loads((tmp_path / "1" / "assets.extra" / "export.json").read_text())
    assert values["evaluation"]["float32"] == 0.8


def test_a_missing_file_or_column_is_named_with_the_remedy(sentence_model, labelled, tmp_path):
    with pytest.raises(ValueError, match=r"No file matches 'no\.tsv'"):  # the model is not loaded
        export_saved_model(options("no_model", tmp_path / "1", "no.tsv"))
    given = options(sentence_model, tmp_path / "1", labelled, label_column="mood")
    with pytest.raises(ValueError, match=r"no column 'mood'.*text_a, label.*with label_column"):
        export_saved_model(given)


@pytest.mark.parametrize("header", ["sentence\tlabel", "Text\tLabel", "label\ttext_a\ttext"])
def test_usual_columns_are_found_as_by_predict(sentence_model, labelled, tmp_path, header):
    row = "good\ta bad film\tthe cat" if header.startswith("label") else "a bad film\tgood"
    (tmp_path / "dev.tsv").write_text(f"{header}\n{row}\n")
    given = options(sentence_model, "1", tmp_path / "dev.tsv")
    check = export_accuracy.AccuracyCheck(given, load_served(given, "float32"))
    (example,) = check._splits["dev"]
    assert (example.text_a, example.text_b, example.label) == ("a bad film", None, "good")


@pytest.mark.parametrize("is_pair", [True, None])
def test_both_texts_of_a_pair_have_usual_columns(pair_model, tmp_path, is_pair):
    (tmp_path / "dev.csv").write_text("sentence1,sentence2,label\na cat,a dog,1\n")
    given = options(pair_model, "1", tmp_path / "dev.csv")
    served = load_served(given, "float32")
    served.task.is_pair = is_pair
    check = export_accuracy.AccuracyCheck(given, served)
    (example,) = check._splits["dev"]
    assert (example.text_a, example.text_b, example.label) == ("a cat", "a dog", "1")


@pytest.mark.parametrize(
    "rows, message",
    [
        ("a\tb\nx\ty\n", r"dev.tsv:1: no column 'text_a'.* are a, b\. Name .* text_a_column"),
        ("text\tb\nx\ty\n", r"dev.tsv:1: no column 'label'.* are text, b\. Name .* label_column"),
        ("text\tlabel\nx\tnone\n", r"dev.tsv:2: the label is 'none'"),
    ],
)
def test_a_wrong_file_is_an_error_before_the_calibration(
    sentence_model, tmp_path, monkeypatch, rows, message
):
    (tmp_path / "dev.tsv").write_text(rows)
    for name in ("read_calibration", "_quantize"):
        monkeypatch.setattr(export_saved_model_module, name, lambda *_: pytest.fail("long work"))
    monkeypatch.setattr(
        export_accuracy.AccuracyCheck, "_metric", lambda *_: pytest.fail("evaluation")
    )
    with pytest.raises(ValueError, match=message):
        export_saved_model(
            options(sentence_model, tmp_path / "1", tmp_path / "dev.tsv", precision="int8")
        )


def test_a_column_that_the_training_program_cannot_name_is_refused(sentence_model, labelled):
    given = options(sentence_model, "1", labelled, choices_column="endings")
    served = load_served(given, "float32")
    with pytest.raises(
        ValueError, match=r"choices_column is endings.*default columns .*\. Omit it"
    ):
        export_accuracy.AccuracyCheck(given, served)


def test_a_worse_export_is_refused_and_leaves_nothing(
    sentence_model, labelled, tmp_path, monkeypatch
):
    load = export_accuracy.runtimes.load

    class Negated:
        def __init__(self, *path):
            self._runtime = load(*path)

        def ask(self, *request):
            return {"logits": -self._runtime.ask(*request)["logits"]}

    monkeypatch.setattr(export_accuracy.runtimes, "load", Negated)
    given = options(sentence_model, tmp_path / "1", labelled, max_accuracy_loss=5)
    with pytest.raises(ValueError, match=r"0\.8000 in float32: 60\.00 points worse.*loss is 5"):
        export_saved_model(given)
    assert not (tmp_path / "1").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["dev.jsonl"]


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"signature": "serving_default"}, "signature tokens.*Add it"),
        ({"format": "onnx", "signature": "serving_default"}, "signature tokens.*Use it, or omit"),
        ({"eval_file": None, "max_accuracy_loss": 2}, "max_accuracy_loss=2.*Give `eval_file`"),
        ({"eval_file": None, "label_column": "y"}, "label_column=y.*Give `eval_file`"),
        ({"eval_file": None, "text_a_column": "x"}, "text_a_column=x has no effect.*Omit it"),
    ],
)
def test_where_nothing_can_be_compared_the_flag_is_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        ExportOptions(
            **{"model_dir": "model", "export_dir": "1", "eval_file": "dev.tsv", **settings}
        )


def test_a_metric_that_is_not_a_number_is_refused(sentence_model, labelled, tmp_path, monkeypatch):
    given = options(sentence_model, tmp_path / "1", labelled, max_accuracy_loss=100)
    values = iter([0.8, float("nan")])
    monkeypatch.setattr(export_accuracy.AccuracyCheck, "_metric", lambda *_: next(values))
    with pytest.raises(ValueError, match=r"is nan in float32, but 0\.8000"):
        export_saved_model(given)
    assert not (tmp_path / "1").exists()


def test_an_encoder_has_no_metric(sentence_model, labelled, tmp_path):
    with pytest.raises(ValueError, match=r"without a task.*Omit it"):
        export_saved_model(options(sentence_model, tmp_path / "1", labelled, head="encoder"))


def test_every_type_of_task_that_is_trained_and_served_names_its_program():
    types = [entry for entry in TYPES.values() if entry.task and entry.served]
    assert types
    for entry in types:
        program = entry.load("finetuning")
        assert program.task_type == entry.name
        assert issubclass(program.options_type, FineTuningOptions)


@pytest.mark.slow
def test_answers_are_scored_as_by_run_squad(squad_model, squad_sets, tmp_path):
    export_saved_model(options(squad_model, tmp_path / "1", squad_sets / "dev.json"))
    values = json.loads((tmp_path / "1" / "assets.extra" / "export.json").read_text())["evaluation"]
    lines = (squad_model / "eval_results.txt").read_text().splitlines()
    metrics = dict(line.split(" = ") for line in lines)
    assert values["metric"] == "f1"
    assert values["float32"] == pytest.approx(float(metrics["f1"]), abs=1e-3)
    assert values["export"] == pytest.approx(values["float32"], abs=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("format", ["saved_model", "openvino"])
def test_words_are_scored_as_by_run_ner(ner_model, conll_folder, tmp_path, format):
    if format == "openvino":
        pytest.importorskip("openvino")
    file = conll_folder / "valid.txt"
    given = options(ner_model, tmp_path / "1", file, format=format, max_accuracy_loss=100)
    export_saved_model(given)
    (path,) = (tmp_path / "1").rglob("export.json")
    values = json.loads(path.read_text())["evaluation"]
    assert values["metric"] == "f1"
    assert values["export"] == pytest.approx(values["float32"], abs=1e-6)


@pytest.mark.parametrize(
    "flags, has_texts, chosen, reason",
    [
        ("avx512_bf16 avx512_vnni", True, "int8", "avx512_vnni"),
        ("avx512_bf16 avx512_vnni", False, "bfloat16", "avx512_bf16; with its avx512_vnni"),
        ("avx2 avx_vnni", True, "int8", "avx_vnni"),
        ("avx2 avx_vnni", False, "float32", "neither amx_bf16 nor avx512_bf16; with its avx_vnni"),
        ("avx2", True, "int8", "with weights of 7 bits"),
        ("avx2", False, "float32", "avx512_bf16; with a calibration_file, int8 is faster"),
    ],
)
def test_auto_chooses_by_the_processor_and_says_why(
    tmp_path, monkeypatch, flags, has_texts, chosen, reason
):
    (tmp_path / "cpuinfo").write_text(f"flags\t: fpu {flags}\n")
    monkeypatch.setattr(strategy, "CPU_INFO", tmp_path / "cpuinfo")
    texts = {"calibration_file": "texts.txt"} if has_texts else {}
    given = ExportOptions(model_dir="a", export_dir="b", precision="auto", **texts)
    assert given.chosen.precision == chosen
    assert reason in given.chosen.reason


def test_auto_is_float32_on_processors_that_are_not_x86(tmp_path, monkeypatch):
    (tmp_path / "cpuinfo").write_text("Features\t: fp asimd i8mm bf16\n")
    monkeypatch.setattr(strategy, "CPU_INFO", tmp_path / "cpuinfo")
    given = {"model_dir": "a", "export_dir": "b", "calibration_file": "texts.txt"}
    assert ExportOptions(precision="auto", **given).chosen.precision == "float32"


def test_auto_is_for_a_saved_model():
    with pytest.raises(ValueError, match="precision is auto, but for format=onnx"):
        ExportOptions(model_dir="a", export_dir="b", precision="auto", format="onnx")
