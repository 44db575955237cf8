"""README.md next to a checkpoint: its facts, what it leaves out, and the text of users in it."""

import re
import shutil

import pytest
from tiny_runs import read_results, sentence_options

from bert_tf.finetuning.classification import ClassifierOptions, run_classifier
from bert_tf.finetuning.loop import write_results
from bert_tf.programs.convert_checkpoint import ConvertOptions, convert_checkpoint
from bert_tf.report import model_card


def card(folder):
    return (folder / "README.md").read_text(encoding="utf-8")


def section(folder, title):
    return card(folder).split(f"\n## {title}\n")[1].split("\n## ")[0]


def rows(text):
    """The first two columns of every table."""
    return dict(re.findall(r"^\| (.+?) \| (.+) \|$", text, re.M))


def convert(source, target, output_format, **flags):
    options = {"init_checkpoint": str(source), "output_dir": str(target), **flags}
    convert_checkpoint(ConvertOptions(output_format=output_format, **options))
    return target


def short_training(pretrained, mood_tables, folder, **changes):
    """Two steps, and the evaluation of what they made."""
    values = {"num_train_epochs": 0.4, "do_predict": False, **changes}
    run_classifier(sentence_options(pretrained, mood_tables, folder, **values))
    return folder


@pytest.fixture
def trained(sentence_model, tmp_path):
    """A folder of one's own with a trained model."""
    return shutil.copytree(
        sentence_model, tmp_path / "run", ignore=shutil.ignore_patterns("*.tf_record*", "*.html")
    )


# ---------------------------------------------------------------------------------- what a card says


def test_the_card_of_a_classifier_says_what_it_is_of_what_data_and_how_good(sentence_model):
    model = rows(section(sentence_model, "Model"))
    assert model["task"] == "`classification`"
    assert model["2 labels"] == "`bad`, `good`"
    assert model["layers, hidden size, heads"] == "2, 16, 2"
    num_lines = len((sentence_model / "vocab.txt").read_text().splitlines())
    assert model["vocabulary"] == f"{num_lines:,} WordPieces, lower-cased"
    data = rows(section(sentence_model, "Data"))
    assert data["`--train_file`"] == "`train.tsv`"
    assert data["records to train on"] == "90"
    assert len(data["hash of the records"].strip("`")) == 16
    results = read_results(sentence_model)
    figures = rows(section(sentence_model, "Metrics"))
    assert float(figures["`eval_accuracy`"].strip("`")) == results["eval_accuracy"]
    text = section(sentence_model, "Training")
    flags = re.search(r"```\n(.*?)\n```", text, re.S)[1].splitlines()
    assert {"--do_train", "--learning_rate=0.005", "--train_file=train.tsv"} <= set(flags)
    assert not [f for f in flags if f.startswith(("--seed", "--output_dir", "--weight_decay"))]


@pytest.mark.parametrize("model", ["pretrained", "sentence_model"])
def test_no_folder_of_the_machine_is_told(request, model):
    folder = request.getfixturevalue(model)
    assert str(folder.parent) not in card(folder)
    assert not re.search(r"=\S*/", section(folder, "Training"))


def test_the_card_of_a_pre_training_tells_its_corpus(pretrained):
    data = section(pretrained, "Data")
    assert rows(data)["`--input_file`"] == "`train.tf_record`"
    assert re.search(r"`train.txt`: 40 documents, \d+ sentences, [\d,]+ tokens", data)
    assert rows(section(pretrained, "Metrics"))["`masked_lm_loss`"]


def test_the_head_of_the_page_is_yaml_as_the_hub_reads_it(sentence_model):
    yaml = pytest.importorskip("yaml", reason="needs PyYAML")
    front = re.match(r"---\n(.*?)\n---\n", card(sentence_model), re.S)[1]
    assert yaml.safe_load(front) == {
        "license": "other",
        "library_name": "bert_tf",
        "pipeline_tag": "text-classification",
        "tags": ["bert"],
    }


# ------------------------------------------------------------------------------------- who may write


@pytest.mark.usefixtures("steps_without_training")
def test_a_later_evaluation_brings_the_figures_up_to_date(pretrained, mood_tables, tmp_path):
    write_results(f"{tmp_path}/test_results.txt", {"test_f1": 0.5, "global_step": 1}, "of before")
    short_training(pretrained, mood_tables, tmp_path, do_eval=False)
    before = card(tmp_path)
    assert section(tmp_path, "Metrics").strip() == "Not evaluated."
    run_classifier(
        ClassifierOptions(
            output_dir=str(tmp_path),
            eval_file=mood_tables.dev,
            text_a_column="sentence",
            label_column="mood",
            do_eval=True,
        )
    )
    figures = rows(section(tmp_path, "Metrics"))
    assert "`eval_accuracy`" in figures and "`test_f1`" not in figures  # which is of another step
    after = card(tmp_path)
    assert after.partition("\n## Metrics\n")[0] == before.partition("\n## Metrics\n")[0]
    assert after.partition("\n## Use\n")[2] == before.partition("\n## Use\n")[2]


@pytest.mark.usefixtures("steps_without_training")
def test_a_page_that_a_person_wrote_stays_as_it_is(pretrained, mood_tables, tmp_path, caplog):
    (tmp_path / "README.md").write_text("# Mine\n")
    with caplog.at_level("INFO"):
        short_training(pretrained, mood_tables, tmp_path)
    assert card(tmp_path) == "# Mine\n"


def write_other_results(folder):
    step = int(read_results(folder)["global_step"])
    write_results(f"{folder}/eval_results.txt", {"eval_f1": 0.25, "global_step": step}, "again")


def test_text_outside_the_markers_is_the_users_and_stays(trained):
    path = trained / "README.md"
    text = card(trained).replace("---\n", "---\nlanguage: en\nlicense: mit\n", 1)
    path.write_text(text + "Thanks to all.\n")
    write_other_results(trained)
    assert card(trained).startswith("---\nlanguage: en\nlicense: mit\n")
    assert card(trained).endswith("-->\nThanks to all.\n")
    assert card(trained).count("license:") == 1  # the user's has precedence over ours
    assert rows(section(trained, "Metrics"))["`eval_f1`"] == "`0.25`"


def test_the_card_follows_from_the_files_of_the_folder(trained):
    text = card(trained)
    model_card.write_card(str(trained))
    assert card(trained) == text
    (trained / "README.md").unlink()
    model_card.write_card(str(trained))
    assert card(trained) == text
    (trained / "README.md").unlink()
    (trained / model_card.FACTS_FILE).unlink()
    model_card.write_card(str(trained))
    assert not (trained / "README.md").exists()


# ---------------------------------------------------------------------------------------- conversion


def test_a_conversion_for_transformers_keeps_what_is_known_and_says_how_it_is_loaded(
    trained, tmp_path, capsys
):
    pytest.importorskip("safetensors", reason="needs the extra [hf]")
    (trained / "README.md").write_text(card(trained).replace("---\n", "---\nlicense: mit\n", 1))
    target = convert(trained, tmp_path / "there", "huggingface")
    assert "\nlicense: mit\nlibrary_name: transformers\n" in card(target)
    for title in ("Data", "Training", "Metrics"):
        assert section(target, title) == section(trained, title)
    assert rows(section(target, "Model")) == rows(section(trained, "Model"))
    code = re.findall(r"```python\n(.*?)```", section(target, "Use"), re.S)[-1]
    exec(code.replace("FOLDER", str(target)), {})
    assert "label" in capsys.readouterr().out
    back = convert(target, tmp_path / "back", "tf1")
    assert "\nlibrary_name: bert_tf\n" in card(back)
    assert section(back, "Metrics") == section(trained, "Metrics")


def test_a_resumption_with_other_options_stands_in_the_card(trained, pretrained, mood_tables):
    step = int(read_results(trained)["global_step"])
    short_training(pretrained, mood_tables, trained, num_train_epochs=12.4)
    assert f"Resumed at step {step}; before: num_train_epochs " in section(trained, "Training")
