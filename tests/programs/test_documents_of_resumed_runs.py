"""README.md and report.html of a folder that several commands have trained."""

import dataclasses
import re
import shutil
from pathlib import Path

import pytest
from pages import data_of
from tiny_runs import Interruption, interrupt_at, pretraining_options, sentence_options

from bert_tf.finetuning.classification import run_classifier
from bert_tf.programs.run_pretraining import run_pretraining

pytestmark = pytest.mark.usefixtures("steps_without_training")


@pytest.fixture
def options(records, toy_text, tmp_path):
    return pretraining_options(
        records,
        toy_text,
        tmp_path / "output",
        bert_config_file=str(toy_text / "one_layer.json"),
        do_eval=False,
        num_train_steps=3,
        num_warmup_steps=1,
        evaluate_steps=0,
    )


def card(options):
    return (Path(options.output_dir) / "README.md").read_text()


def origin(options):
    """Text of the last section of the report: rows and commands."""
    page = data_of((Path(options.output_dir) / "report.html").read_text())
    parts = page["sections"][-1]["parts"]
    return "\n".join(f"{part['text']}{part.get('code', '')}" for part in parts)


def until(text, step):
    """Rows of the table of the earlier part that ends at `step`."""
    table = text.split(f"Until step {step} it used:\n\n")[1].split("\n\n")[0]
    return dict(re.findall(r"^\| (.+?) \| (.+) \|$", table, re.M))


def test_the_initial_checkpoint_of_a_folder_is_the_one_that_its_training_began_with(
    options, tmp_path, caplog, monkeypatch
):
    first, other = (
        dataclasses.replace(options, output_dir=str(tmp_path / name), num_train_steps=1)
        for name in ("first", "unwanted")
    )
    for each in (first, other):
        run_pretraining(each)
    start = first.output_dir
    begun = dataclasses.replace(options, init_checkpoint=start, stop_step=1)
    run_pretraining(begun)
    monkeypatch.chdir(tmp_path)
    same = dataclasses.replace(options, init_checkpoint="./first", stop_step=2)
    run_pretraining(same)  # another spelling
    run_pretraining(dataclasses.replace(same, init_checkpoint=options.output_dir))
    assert "is not used" not in caplog.text
    shutil.move(start, tmp_path / "moved")
    resumed = dataclasses.replace(options, init_checkpoint=other.output_dir)
    run_pretraining(resumed)
    assert f"model.ckpt-2; init_checkpoint={other.output_dir} is not used" in caplog.text
    for text in (card(options), origin(options)):
        assert re.search("--init_checkpoint=.*first$|--init_checkpoint=.*first ", text, re.M)
        assert "unwanted" not in text
    assert f"Started from: {start}" in origin(options)
    caplog.clear()
    run_pretraining(resumed)  # nothing is left to train
    assert f"model.ckpt-3; init_checkpoint={other.output_dir} is not used" in caplog.text
    assert "unwanted" not in origin(options)


def test_an_initial_checkpoint_is_not_noted_if_the_weights_were_random(options, tmp_path, caplog):
    other = dataclasses.replace(options, output_dir=str(tmp_path / "other"), num_train_steps=1)
    run_pretraining(other)
    run_pretraining(dataclasses.replace(options, stop_step=1))
    run_pretraining(dataclasses.replace(options, init_checkpoint=other.output_dir))
    assert f"init_checkpoint={other.output_dir} is not used" in caplog.text
    assert str(tmp_path / "other") not in origin(options)
    assert "--init_checkpoint=other" not in card(options)


def test_other_records_are_warned_of_and_the_card_names_both(options, tmp_path, caplog):
    run_pretraining(dataclasses.replace(options, stop_step=1))
    moved = tmp_path / "elsewhere" / Path(options.input_file).name
    moved.parent.mkdir()
    shutil.copy(options.input_file, moved)
    shutil.copy(f"{options.input_file}.manifest.json", f"{moved}.manifest.json")
    run_pretraining(dataclasses.replace(options, input_file=str(moved), stop_step=2))
    assert "other data" not in caplog.text
    name = Path(options.input_file).name
    other = shutil.copy(moved, tmp_path / "other.tf_record")
    run_pretraining(dataclasses.replace(options, input_file=str(other)))
    assert f"other data: `--input_file`: `{name}` there, `other.tf_record` now" in caplog.text
    data = card(options).split("## Data")[1].split("## Training")[0]
    now, before = data.split("Until step 2:")
    assert "| `--input_file` | `other.tf_record` |" in now
    assert f"| `--input_file` | `{name}` |" in before and "train.txt" in before


def test_another_table_is_warned_of_and_the_card_names_both(
    sentence_model, pretrained, mood_tables, tmp_path, caplog
):
    folder = shutil.copytree(sentence_model, tmp_path / "model")
    lines = Path(mood_tables.train).read_text().splitlines(keepends=True)
    other = tmp_path / "other.tsv"
    other.write_text("".join(lines[:-10]))
    given = {"train_file": str(other), "do_eval": False, "do_predict": False}
    given["num_train_epochs"] = 15.0
    run_classifier(sentence_options(pretrained, mood_tables, folder, **given))
    assert "other data: `--train_file`: `train.tsv` there, `other.tsv` now" in caplog.text
    assert "other data: records to train on: 90 there, 80 now" in caplog.text
    data = (folder / "README.md").read_text().split("## Data")[1].split("## Training")[0]
    assert "`other.tsv`" in data.split("Until step")[0]
    assert "`train.tsv`" in data.split("Until step")[1]


def test_another_text_in_the_same_file_is_warned_of(
    sentence_model, pretrained, mood_tables, tmp_path, caplog
):
    folder = shutil.copytree(sentence_model, tmp_path / "model")
    table = tmp_path / Path(mood_tables.train).name
    shutil.copy(mood_tables.train, table)
    given = {"train_file": str(table), "do_eval": False, "do_predict": False}
    options = sentence_options(pretrained, mood_tables, folder, **given)
    first, last = (dataclasses.replace(options, num_train_epochs=n) for n in (14.0, 15.0))
    run_classifier(first)
    assert "resumes with other data" not in caplog.text
    table.write_text(table.read_text().replace("happy", "merry"))
    run_classifier(last)
    assert re.search("other data: hash of the records: `(.{16})` there, `(.{16})` now", caplog.text)
    assert caplog.text.count("resumes with other data") == 1


def test_the_card_of_a_resumed_run_states_the_earlier_values(options):
    first = dataclasses.replace(options, stop_step=1)
    run_pretraining(first)
    changes = {
        "train_batch_size": 8,
        "objective": "mlm",
        "seed": 7,
        "max_predictions_per_seq": None,
    }
    second = dataclasses.replace(options, stop_step=2, **changes)
    run_pretraining(second)
    run_pretraining(dataclasses.replace(second, stop_step=3))
    text = card(options).split("## Training")[1]
    assert "`run_pretraining`: 3 steps. Flags after step 1 that differ" in text
    assert text.count("Until step") == 1
    part = until(text, 1)
    assert part["examples per step"] == "16" and "| examples per step | 8 |" in text
    assert part["`--objective`"] == "`mlm_nsp`" and part["`--seed`"] == "`12345`"
    assert "`--weight_decay_rate`" not in part  # it did not change


def test_an_interrupted_run_keeps_its_values_for_the_card_of_the_next_one(options, monkeypatch):
    with monkeypatch.context() as patched:
        interrupt_at(patched, 3)
        with pytest.raises(Interruption):
            run_pretraining(dataclasses.replace(options, save_checkpoints_steps=1))
    assert not (Path(options.output_dir) / "README.md").exists()
    run_pretraining(dataclasses.replace(options, seed=7))
    assert "`--seed`" in card(options)


def test_a_run_that_trains_nothing_leaves_the_report_as_it_is(options):
    run_pretraining(options)
    page = Path(options.output_dir) / "report.html"
    before = page.read_text()
    shorter = dataclasses.replace(options, num_train_steps=2, train_batch_size=8)
    run_pretraining(shorter)
    assert page.read_text() == before
    note = (Path(options.output_dir) / "training.json").read_text()
    run_pretraining(dataclasses.replace(shorter, do_eval=True))
    trained, evaluated = origin(options).split("Evaluated by:")
    assert "--num_train_steps=3" in trained and "--train_batch_size=16" in trained
    assert "--do_eval" in evaluated and "--do_eval" not in trained
    assert (Path(options.output_dir) / "training.json").read_text() == note
