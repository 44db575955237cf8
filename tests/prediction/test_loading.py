"""A trained model's folder: what is written is what is loaded, and what is missing is named."""

from dataclasses import replace

import numpy as np
import pytest
from helpers import cause_of, write_vocab

from bert_tf.checkpoints.write import model_files, write_files
from bert_tf.config import BertConfig
from bert_tf.prediction.loading import load_model
from bert_tf.pretraining.task import PretrainingTask
from bert_tf.tasks.classification import ClassificationTask
from bert_tf.training.checkpoints import save_checkpoint, training_variables

VOCAB = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "Hund", "hund", "##e", "ß", "犬", ""]
CONFIG = BertConfig.from_name("tiny", vocab_size=len(VOCAB), num_hidden_layers=1)
CLASSIFICATION = ClassificationTask(["ja", "nein", "weiß nicht"], 7, is_pair=True)
PRETRAINING = PretrainingTask(8, 3)


def write_folder(folder, task=CLASSIFICATION, steps=(3,), do_lower_case=False):
    """As a run writes it; the model with the weights of the last checkpoint."""
    write_files(str(folder), model_files(CONFIG, task.values(), VOCAB, do_lower_case))
    model = task.build_model(CONFIG)
    for step in steps:
        for variable in model.weights:
            variable.assign(variable + 1)
        save_checkpoint(str(folder), training_variables(model), step)
    return model


@pytest.mark.parametrize("task, do_lower_case", [(CLASSIFICATION, False), (PRETRAINING, True)])
def test_what_was_written_is_loaded(tmp_path, task, do_lower_case):
    model = write_folder(tmp_path / "out", task, do_lower_case=do_lower_case)
    loaded = load_model(str(tmp_path / "out"))
    assert type(loaded.task) is type(task)
    assert loaded.task.arguments() == task.arguments()
    assert loaded.task.features == task.features
    assert (loaded.max_seq_length, loaded.model.config) == (task.max_seq_length, CONFIG)
    assert list(loaded.tokenizer.vocab) == VOCAB
    assert loaded.tokenizer.tokenize("Hunde") == ["hund" if do_lower_case else "Hund", "##e"]
    for ours, theirs in zip(loaded.model.weights, model.weights, strict=True):
        np.testing.assert_array_equal(ours, theirs, err_msg=theirs.path)
    mixed = load_model(str(tmp_path / "out"), dtype="mixed_bfloat16").model
    assert (mixed.dtype_policy.name, mixed.weights[0].dtype) == ("mixed_bfloat16", "float32")


def test_the_newest_checkpoint_that_is_there_is_loaded(tmp_path):
    model = write_folder(tmp_path / "here", steps=[3, 12])
    folder = (tmp_path / "here").rename(tmp_path / "moved")
    for older in (0, 1):
        loaded = load_model(str(folder))
        np.testing.assert_allclose(loaded.model.weights[0], model.weights[0] - older, atol=1e-6)
        for file in folder.glob("model.ckpt-12.*"):
            file.unlink()


def test_the_files_given_replace_those_of_the_folder(tmp_path):
    write_folder(tmp_path / "run")
    vocab = [*VOCAB, "Katze"]
    larger = replace(CONFIG, vocab_size=len(vocab))
    write_files(str(tmp_path), model_files(larger, vocab=vocab))
    folder, vocab_file = str(tmp_path / "run"), str(tmp_path / "vocab.txt")
    for changes, problem in (
        ({"vocab_file": vocab_file}, "vocab_file"),
        ({"bert_config_file": str(tmp_path / "bert_config.json")}, "word_embeddings"),
        ({"do_lower_case": True}, "do_lower_case"),
    ):
        with pytest.raises(ValueError, match=problem):
            load_model(folder, **changes)
    for file in ("vocab.txt", "tokenizer_config.json"):
        (tmp_path / "run" / file).unlink()
    write_vocab(tmp_path / "vocab.txt", VOCAB)
    found = load_model(folder, vocab_file=vocab_file, do_lower_case=False)
    assert found.tokenizer.tokenize("Hunde") == ["Hund", "##e"]


def test_without_a_stated_case_the_vocabulary_decides(tmp_path):
    words = [a + b + c for a in "bcdfg" for b in "aeiou" for c in "klmn"]
    vocab = [*VOCAB[:5], *words, *map(str.title, words)]
    config = replace(CONFIG, vocab_size=len(vocab))
    write_files(str(tmp_path), model_files(config, CLASSIFICATION.values(), vocab))
    model = CLASSIFICATION.build_model(config)
    save_checkpoint(str(tmp_path), training_variables(model), 1)
    assert load_model(str(tmp_path)).tokenizer.tokenize("Bak") == ["Bak"]


def test_what_is_missing_is_named(tmp_path):
    model = write_folder(tmp_path)
    weights = training_variables(model)
    encoder = {name: variable for name, variable in weights.items() if name.startswith("bert/")}
    save_checkpoint(str(tmp_path), encoder, 9)
    with pytest.raises(ValueError, match="output_weights, output_bias"):
        load_model(str(tmp_path))
    for file in ("vocab.txt", "bert_config.json"):
        (tmp_path / file).unlink()
        with pytest.raises(ValueError, match=file):
            load_model(str(tmp_path))
    write_folder(tmp_path / "never_saved", steps=[])
    with pytest.raises(ValueError, match="no checkpoint"):
        load_model(str(tmp_path / "never_saved"))


def test_a_damaged_task_is_an_error_that_names_the_file(tmp_path):
    write_folder(tmp_path)
    for text in ('{"task": "classif', "[]"):
        (tmp_path / "task.json").write_text(text)
        assert cause_of(load_model, str(tmp_path)) == str(tmp_path / "task.json")
