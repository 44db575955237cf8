"""Files, examples and labels of run_ner."""

import dataclasses

import pytest
from tiny_words_and_choices import ner_options, ner_training

from bert_tf.finetuning.token_classification_data import find_files, read_data
from bert_tf.tasks.token_classification import TokenClassificationTask


def test_a_folder_without_the_files_says_which_it_looked_for(tmp_path):
    (tmp_path / "dev.csv").write_text("")

    options = ner_options(tmp_path / "output", data_dir=str(tmp_path), do_eval=True)
    with pytest.raises(ValueError, match=r"has none of dev.txt, .*, but dev.csv. Give .*eval_file"):
        find_files(options)


def test_a_model_whose_labels_are_of_no_scheme_needs_to_be_told(conll_folder, tmp_path):
    """As a model of another program may have them."""
    model = TokenClassificationTask(("O", "B-A", "I-A", "B-B", "I-B", "NN"), 19)
    options = ner_options(tmp_path, eval_file=str(conll_folder / "valid.txt"), do_eval=True)
    message = r"B-B, I-B, NN, .*label_scheme=iob2 or iob1"
    with pytest.raises(ValueError, match=message):
        read_data(options, model)
    task, _ = read_data(dataclasses.replace(options, label_scheme="iob2"), model)
    assert task.labels == model.labels


@pytest.mark.parametrize(
    ("labels", "changes", "warned"),
    [
        ("O B_A I_A", {}, True),
        ("per-B O a-b-I", {"crf": True}, True),
        ("O B I", {}, True),
        ("o b-person i-person", {"crf": True}, True),
        ("O b-person i-person", {}, True),
        ("O B_A I_A", {"label_scheme": "words"}, False),
        ("O NN B_A", {}, False),
        ("o nn b-a", {}, False),
        ("NN IN $ S", {"crf": True}, False),
    ],
)
def test_labels_of_entities_in_another_form_or_case_are_warned_of(
    tmp_path, caplog, labels, changes, warned
):
    (tmp_path / "a.txt").write_text("".join(f"a {label}\n" for label in labels.split()))
    given = ner_options(tmp_path, train_file=str(tmp_path / "a.txt"), do_train=True, **changes)
    assert read_data(given)[0].word_labels
    assert ("must be written as B-PER, I-PER and O" in caplog.text) == warned


def test_a_training_that_goes_on_keeps_to_its_labels(conll_folder, tmp_path):
    model = TokenClassificationTask(("O", "B-X", "I-X"), 19)
    options = ner_options(tmp_path, train_file=str(conll_folder / "train.txt"), do_train=True)
    message = "data are O, B-A, .* trained for O, B-X, I-X. .* or another .*output_dir"
    with pytest.raises(ValueError, match=message):
        read_data(options, model)


def test_the_labels_have_the_order_of_the_initial_weights(pretrained, conll_folder, tmp_path):
    options = ner_training(pretrained, conll_folder, tmp_path)
    names = read_data(options)[0].labels
    others = tuple(name.lower() for name in reversed(names))
    assert read_data(options, known_labels=others)[0].labels == names[::-1]
    assert read_data(options, known_labels=("O", "B-B"))[0].labels == names
