"""Files, examples and labels of run_ner."""

import pytest
from tiny_words_and_choices import ner_options, ner_training

from bert_tf.finetuning.token_classification import find_files, read_data
from bert_tf.tasks.token_classification import TokenClassificationTask


def test_a_folder_without_the_files_says_which_it_looked_for(tmp_path):
    (tmp_path / "dev.csv").write_text("")
    options = ner_options(tmp_path / "output", data_dir=str(tmp_path), do_eval=True)
    with pytest.raises(ValueError, match=r"dev.csv.*eval_file"):
        find_files(options)


def test_labels_of_words_are_taken_if_the_flag_says_so(tmp_path):
    (tmp_path / "a.txt").write_text("the DET\ndog NOUN\nbarks B-X\n")
    given = {"train_file": str(tmp_path / "a.txt"), "do_train": True, "crf": True}
    with pytest.raises(ValueError, match=r"a.txt:1.*'DET'.*--label_scheme=words"):
        read_data(ner_options(tmp_path, **given))
    task, _ = read_data(ner_options(tmp_path, **given, label_scheme="words"))
    assert task.word_labels and task.crf == "words" and task.labels == ("B-X", "DET", "NOUN")


def test_the_splitting_of_the_training_words_is_kept(tmp_path):
    (tmp_path / "a.txt").write_text("AT&T B-ORG\nleft O\nU.S. B-LOC\n. O\n\nU.S. B-LOC\n")
    given = {"train_file": str(tmp_path / "a.txt"), "do_train": True}
    task, _ = read_data(ner_options(tmp_path, **given))
    arguments = task.arguments()
    assert arguments["word_splitting"] == "outer_punctuation"
    assert arguments["whole_words"] == ["U.S."]
    assert TokenClassificationTask(**arguments).arguments() == arguments
    old = {n: v for n, v in arguments.items() if n not in ("word_splitting", "whole_words")}
    assert TokenClassificationTask(**old).word_splitting == "basic"


def test_a_training_that_goes_on_keeps_to_its_labels(conll_folder, tmp_path):
    model = TokenClassificationTask(("O", "B-X", "I-X"), 19)
    options = ner_options(tmp_path, train_file=str(conll_folder / "train.txt"), do_train=True)
    with pytest.raises(ValueError, match=r"output_dir.*labels"):
        read_data(options, model)


def test_the_labels_have_the_order_of_the_initial_weights(pretrained, conll_folder, tmp_path):
    options = ner_training(pretrained, conll_folder, tmp_path)
    names = read_data(options)[0].labels
    others = tuple(name.lower() for name in reversed(names))
    assert read_data(options, known_labels=others)[0].labels == names[::-1]
    assert read_data(options, known_labels=("O", "B-B"))[0].labels == names
