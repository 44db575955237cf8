"""README.md next to a checkpoint: it follows from the files of its folder, and leaves a user's text."""

import json
import re

import pytest
from models import KINDS, copy_of, golden, train

from bert_tf.options import make_options
from bert_tf.report import model_card
from bert_tf.serving.convert_checkpoint import ConvertOptions, convert_checkpoint


def card(folder):
    return (folder / "README.md").read_text(encoding="utf-8")


def section(folder, title):
    return card(folder).split(f"\n## {title}\n")[1].split("\n## ")[0]


def facts(folder):
    return json.loads((folder / model_card.FACTS_FILE).read_text())


@pytest.fixture
def trained(tmp_path):
    return copy_of("classifier", tmp_path / "run")


def test_write_card_makes_the_golden_card_of_every_kind(tmp_path):
    for kind in KINDS:
        folder = copy_of(kind, tmp_path / kind)
        for _ in ("replaced", "written"):
            model_card.write_card(str(folder))
            assert card(folder) == card(golden(kind)), kind
            (folder / "README.md").unlink()
        assert not re.search(r"=\S*/", section(golden(kind), "Training")), "a private folder"
        (folder / model_card.FACTS_FILE).unlink()
        model_card.write_card(str(folder))
        assert not (folder / "README.md").exists(), "a card without facts"


def test_golden_cards_begin_with_yaml_as_the_hub_reads_it():
    yaml = pytest.importorskip("yaml", reason="needs PyYAML")
    for kind in KINDS:
        front = yaml.safe_load(card(golden(kind)).split("---\n")[1])
        assert (front["library_name"], front["tags"]) == ("bert_tf", ["bert"])
        assert front["pipeline_tag"], kind


def test_card_follows_a_resumption_and_a_later_evaluation(trained, eagerly):
    before = facts(trained)
    changes = {"num_train_epochs": 12.4, "do_predict": False}
    train("classifier", trained, do_eval=False, **changes)
    resumed, after = card(trained), facts(trained)
    assert section(trained, "Metrics").strip() == "Not evaluated."  # those are of step 67
    train("classifier", trained, do_train=False, do_predict=False)
    assert "Resumed at step 67; before: num_train_epochs " in section(trained, "Training")
    assert after["training"].pop("step") == 69
    assert before.pop("training")["used"] != after.pop("training")["used"]
    assert after == before  # data, task and parameters are those of the golden run
    assert "| `eval_accuracy` |" in section(trained, "Metrics")
    parts = [text.partition("\n## Metrics\n") for text in (resumed, card(trained))]
    assert parts[0][0] == parts[1][0]
    assert parts[0][2].partition("\n## Use\n")[2] == parts[1][2].partition("\n## Use\n")[2]


def test_write_card_leaves_the_text_of_users(trained):
    path = trained / "README.md"
    text = card(trained).replace("---\n", "---\nlanguage: en\nlicense: mit\n", 1)
    path.write_text(text + "Thanks to all.\n")
    (trained / "eval_results.txt").write_text("eval_f1 = 0.25\nglobal_step = 67\n")
    model_card.write_card(str(trained))
    assert card(trained).startswith("---\nlanguage: en\nlicense: mit\n")
    assert card(trained).endswith("-->\nThanks to all.\n")
    assert card(trained).count("license:") == 1  # the user's has precedence over ours
    assert "| `eval_f1` | `0.25` |" in section(trained, "Metrics")
    path.write_text("# Mine\n")  # without the markers
    model_card.write_card(str(trained))
    assert card(trained) == "# Mine\n"


def test_conversion_keeps_what_is_known_and_tells_how_to_load(trained, tmp_path, capsys):

    def convert(source, name, output_format):
        folders = {"init_checkpoint": str(source), "output_dir": str(tmp_path / name)}
        convert_checkpoint(make_options(ConvertOptions, output_format=output_format, **folders))
        return tmp_path / name

    (trained / "README.md").write_text(card(trained).replace("---\n", "---\nlicense: mit\n", 1))
    target = convert(trained, "there", "huggingface")
    assert "\nlicense: mit\nlibrary_name: transformers\n" in card(target)
    for title in ("Model", "Data", "Training", "Metrics"):
        assert section(target, title) == section(trained, title)
    code = re.findall(r"```python\n(.*?)```", section(target, "Use"), re.S)[-1]
    exec(code.replace("FOLDER", str(target)), {})
    assert "label" in capsys.readouterr().out
    back = convert(target, "back", "tf1")
    assert "\nlibrary_name: bert_tf\n" in card(back)
    assert section(back, "Metrics") == section(trained, "Metrics")
