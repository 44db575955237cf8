"""predict --runner: a pipeline gives the answers of predict without one."""

import gzip
import json
import subprocess
import sys

import pytest
import tiny_text_models as tiny
from tiny_runs import script_command

from bert_tf.interop.tf1 import write_tf1
from bert_tf.model_files import model_files, write_files
from bert_tf.programs.export_saved_model import ExportOptions, export_saved_model
from bert_tf.programs.predict import PredictionOptions, predict
from bert_tf.tasks.classification import ClassificationTask
from bert_tf.tasks.multiple_choice import MultipleChoiceTask
from bert_tf.tasks.pretraining import PretrainingTask
from bert_tf.tasks.question_answering import QuestionAnsweringTask
from bert_tf.tasks.token_classification import TokenClassificationTask

LENGTH, LABELS = tiny.MAX_SEQ_LENGTH, ("bad", "fair", "good")
PAIRS = ["the cat sat\ta dog", "who ?\tthe cat sat on a mat .", "\t"]
CHOICES = ["the cat\ton a mat\ta log\tthe dogs", "a\tdog\towl"]
MASKS = ["the [MASK] sat on [MASK]", "[MASK]"]
# Name -> task, head to export, lines, and a line without an answer.
MODELS = {
    "single_label": (ClassificationTask(LABELS, LENGTH), None, tiny.TEXTS, None),
    "pair": (ClassificationTask(LABELS, LENGTH, is_pair=True), None, PAIRS, "the cat"),
    "multi_label": (
        ClassificationTask(LABELS, LENGTH, problem_type="multi_label"),
        *(None, tiny.TEXTS, None),
    ),
    "regression": (
        ClassificationTask((), LENGTH, problem_type="regression"),
        *(None, tiny.TEXTS, None),
    ),
    "question_answering": (
        QuestionAnsweringTask(15, doc_stride=4, max_query_length=4),
        *(None, PAIRS[:2], "no tab"),
    ),
    "token_classification": (
        TokenClassificationTask(("O", "B-X", "I-X"), LENGTH),
        *(None, tiny.TEXTS, None),
    ),
    "multiple_choice": (MultipleChoiceTask(2, LENGTH), None, CHOICES, "no choice"),
    "masked_lm": (PretrainingTask(LENGTH, 3), "masked_lm", MASKS, "no mask"),
    "encoder": (PretrainingTask(LENGTH, 3), "encoder", tiny.TEXTS, None),
}


@pytest.fixture(scope="module")
def saved_model(tmp_path_factory):
    """Function that returns the folder of a SavedModel by its name in `MODELS`."""
    made = {}

    def make(name):
        if name not in made:
            folder = tmp_path_factory.mktemp(name)
            task, head, _, _ = MODELS[name]
            model = tiny.trained(task).model
            arrays = {variable.path: variable.numpy() for variable in model.weights}
            write_tf1(f"{folder}/bert_model.ckpt", arrays)
            write_files(str(folder), model_files(tiny.CONFIG, task, tiny.TOKENS, True))
            made[name] = str(folder / "export")
            export_saved_model(
                ExportOptions(
                    model_dir=str(folder), export_dir=made[name], head=head, warm_up=False
                )
            )
        return made[name]

    return make


@pytest.fixture
def answers(tmp_path):
    """Function that runs predict on files, name -> content, and returns the text of its output."""

    def run(model_dir, files, **options):
        for name, content in files.items():
            data = content if isinstance(content, bytes) else content.encode()
            (tmp_path / name).write_bytes(data)
        options.setdefault("input_file", ",".join(str(tmp_path / name) for name in files))
        output = tmp_path / "new" / "output"
        predict(PredictionOptions(model_dir=model_dir, output_file=str(output), **options))
        assert [path.name for path in output.parent.iterdir()] == ["output"]
        return output.read_text(encoding="utf-8")

    return run


@pytest.fixture
def beam():
    pytest.importorskip("apache_beam", reason="pip install -e .[beam]")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=() if n == "question_answering" else pytest.mark.long) for n in MODELS],
)
def test_a_pipeline_writes_the_bytes_of_predict(beam, saved_model, answers, name):
    *_, lines, wrong = MODELS[name]
    lines = [*lines, *([wrong] if wrong else []), lines[0]] * 20
    text = "".join(f"{line}\n" for line in lines)
    options = {"batch_size": 1, "output_format": "jsonl"}
    expected = answers(saved_model(name), {"in.txt": text}, **options)
    found = answers(saved_model(name), {"in.txt": text}, runner="DirectRunner", **options)
    assert found == expected
    assert len(found.splitlines()) == len(lines) > 32  # several chunks
    errors = ["error" in json.loads(line) for line in found.splitlines()]
    assert errors == [line == wrong for line in lines]


@pytest.mark.slow
def test_tables_and_lines_are_answered_in_the_order_of_the_files(beam, saved_model, answers):
    model_dir, options = saved_model("pair"), {"batch_size": 2}
    rows = [{"id": n, "question": "a dog", "text_a": "the cat", "text_b": f"{n}"} for n in range(9)]
    files = {
        "a.jsonl": "".join(f"{json.dumps(row)}\n" for row in rows),
        "b.csv": 'id,text_a,text_b\n7,"the, cat",京\n8,owls,\n',
        "c.csv.gz": gzip.compress(b"text_b,text_a\nlog,a mat\n"),
        "d.csv": "text_a,text_b\n",
    }
    one_by_one = [answers(model_dir, {name: data}, **options) for name, data in files.items()]
    found = answers(model_dir, files, runner="DirectRunner", **options)
    assert found == "".join(one_by_one)
    assert len(found.splitlines()) == 12


@pytest.mark.slow
@pytest.mark.parametrize("output_format", ["tsv", "text"])
def test_every_output_format_is_that_of_predict(beam, saved_model, answers, output_format):
    files = {"in.csv": 'id,text_a,text_b\n7,"the, cat",京\n8,owls,\n'}
    model_dir, options = saved_model("pair"), {"output_format": output_format}
    expected = answers(model_dir, files, **options)
    assert answers(model_dir, files, runner="DirectRunner", **options) == expected != ""


@pytest.mark.slow
@pytest.mark.long
def test_two_processes_of_workers_give_the_bytes_of_one(beam, saved_model, tmp_path):
    model_dir = saved_model("single_label")
    for number in range(3):
        lines = [f"{text} {number}\n" for text in tiny.TEXTS * 20]
        (tmp_path / f"{number}.txt").write_text("".join(lines), encoding="utf-8")
    for name, more in {
        "one": [],
        "two": ["--", "--direct_num_workers=2", "--direct_running_mode=multi_processing"],
    }.items():
        command = script_command(
            "predict",
            model_dir=model_dir,
            input_file=f"{tmp_path}/*.txt",
            output_file=f"{tmp_path}/{name}.jsonl",
            batch_size=1,
            runner="DirectRunner",
        )
        command["args"] += more
        done = subprocess.run(**command, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    one, two = ((tmp_path / f"{name}.jsonl").read_bytes() for name in ("one", "two"))
    assert one == two
    assert len(one.splitlines()) == 3 * 20 * len(tiny.TEXTS)


@pytest.mark.slow
def test_workers_of_one_process_load_the_model_once(beam, saved_model, answers, monkeypatch):
    from bert_tf.programs import predict_beam

    loaded = []
    make_predictor = predict_beam.make_predictor
    monkeypatch.setattr(
        predict_beam, "make_predictor", lambda o: loaded.append(o) or make_predictor(o)
    )
    text = "the cat\n" * 100
    flags = ("--direct_num_workers=3", "--direct_running_mode=multi_threading")
    options = {"batch_size": 1, "runner": "DirectRunner", "runner_flags": flags}
    found = answers(saved_model("single_label"), {"in.txt": text}, **options)
    assert len(found.splitlines()) == 100
    assert len(loaded) == 2  # the first one checks the SavedModel before the pipeline starts


def test_truncated_texts_of_all_workers_are_counted(beam, saved_model, answers, caplog):
    files = {"a.txt": "the cat\n" + "the cat " * 9 + "\n", "b.txt": "a log " * 9 + "\n"}
    answers(saved_model("single_label"), files, runner="DirectRunner", batch_size=1)
    assert "2 of 3 texts are longer than the model's input" in caplog.text


@pytest.mark.slow
@pytest.mark.parametrize(
    "files, message",
    [
        ({"a.txt": "the cat\n", "b.jsonl": '{"text": "a"}\n{"text"\n'}, r"b\.jsonl:2: .*JSON"),
        ({"a.csv": "title,body\nx,y\n"}, r"a\.csv:1: .* title, body.*text_a_column"),
        ({"a.txt": b"the \xff cat\n"}, r"a\.txt:1: .*UTF-8"),
    ],
    ids=["json", "columns", "bytes"],
)
def test_a_file_of_another_format_is_named_and_leaves_no_output(
    beam, saved_model, answers, tmp_path, files, message
):
    with pytest.raises(ValueError, match=message):
        answers(saved_model("single_label"), files, runner="DirectRunner")
    assert list((tmp_path / "new").iterdir()) == []


@pytest.mark.slow
def test_a_part_that_fills_the_memory_is_rejected(beam, tmp_path, monkeypatch):
    from bert_tf.programs import predict_beam

    monkeypatch.setattr(predict_beam, "MAX_DOCUMENT", 9)
    path = tmp_path / "000000-000000000.json"
    path.write_text("[" + " " * 9 + "]")
    with pytest.raises(ValueError, match=f"{path} has more than 9 bytes"):
        list(predict_beam._read_parts(str(tmp_path), 1, 2))


def test_parts_that_are_not_seen_are_an_error(beam, saved_model, answers, monkeypatch):
    from bert_tf.programs import predict_beam

    monkeypatch.setattr(predict_beam, "write_text", lambda path, text: None)
    with pytest.raises(FileNotFoundError, match=r"parts\.tmp.* missing.*all workers"):
        answers(saved_model("single_label"), {"in.txt": "owls\n"}, runner="DirectRunner")


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"input_file": None}, "runner.*input_file.*standard input"),
        ({"input_file": "-"}, "runner.*input_file.*standard input"),
        ({"output_file": None}, "runner.*output_file.*standard input"),
        ({"line_by_line": True}, "line_by_line.*runner"),
        ({"runner": None, "runner_flags": ("stray",)}, "'stray'.*need .*runner"),
    ],
)
def test_options_that_contradict_a_runner_are_rejected(changes, message):
    options = {"model_dir": "m", "input_file": "i", "output_file": "o", "runner": "DirectRunner"}
    with pytest.raises(ValueError, match=message):
        PredictionOptions(**options | changes)


def test_a_folder_without_a_saved_model_is_rejected_with_the_command_to_make_one(
    beam, answers, tmp_path
):
    with pytest.raises(ValueError, match=f"{tmp_path}.*runner.*SavedModel.*export_saved_model "):
        answers(str(tmp_path), {"in.txt": "a\n"}, runner="DirectRunner")


@pytest.mark.parametrize("runner", ["NoRunner", "no.such.Runner", "apache_beam.NoRunner"])
def test_an_unknown_runner_is_rejected(beam, answers, runner):
    with pytest.raises(ValueError, match=f"runner.*'{runner}'.*Beam"):
        answers("unused", {"in.txt": "a\n"}, runner=runner)


def test_without_beam_the_error_names_the_extra(answers, monkeypatch):
    monkeypatch.setitem(sys.modules, "apache_beam", None)
    with pytest.raises(ImportError, match=r"runner.*pip install -e '\.\[beam\]'"):
        answers("unused", {"in.txt": "a\n"}, runner="DirectRunner")
