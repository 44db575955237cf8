"""Which model a run is about, and its tokenizer."""

import contextlib
import dataclasses

import numpy as np
import pytest
from helpers import refused, write_vocab
from models import options
from tiny_config import tiny_config

from bert_tf.checkpoints.checkpoint import PretrainedCheckpoint, TokenizerFiles, find_config
from bert_tf.checkpoints.write import model_files, write_files
from bert_tf.config import BertConfig
from bert_tf.embeddings.run_embeddings import EmbeddingOptions
from bert_tf.embeddings.run_reranker import RerankerOptions
from bert_tf.options import make_options
from bert_tf.tasks.classification import ClassificationTask
from bert_tf.tasks.run_folder import (
    RunFolder,
    RunOptions,
    RunRecord,
    check_output_folder,
    model_values,
)
from bert_tf.tasks.setup import resolve
from bert_tf.tasks.trainer import TrainerOptions
from bert_tf.tokenization import load_tokenizer
from bert_tf.training import checkpoints

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
LETTERS = "abcdefghijklmnopqrstuvwxyz"
LOWER = (*SPECIAL, *(a + b for a in LETTERS[:12] for b in LETTERS[:10]))
CASED = (*LOWER, *(token.title() for token in LOWER[5:25]))
CONFIG = tiny_config(vocab_size=len(CASED), intermediate_size=12, max_position_embeddings=48)


def checkpoint(config=None, **files):
    tokenizer = TokenizerFiles(**files)
    return PretrainedCheckpoint("downloads/model.ckpt", {}, config, tokenizer)


# ------------------------------------------------------------------------------------- configuration


def test_the_configuration_is_that_of_the_flag_else_that_beside_the_checkpoint(tmp_path):
    CONFIG.to_json_file(tmp_path / "bert_config.json")
    other = BertConfig.from_name("tiny", vocab_size=99)
    flag = str(tmp_path / "bert_config.json")
    assert find_config(flag, checkpoint(config=other)) == CONFIG
    assert find_config(None, checkpoint(config=other)) == other


@pytest.mark.parametrize("num_layers", [2, 3])
def test_chosen_layers_fit_a_configuration_of_the_checkpoint_or_of_the_model(num_layers, tmp_path):
    arrays = {f"bert/encoder/layer_{n}/bias": np.full(2, n) for n in range(3)}
    start = checkpoints.save_checkpoint(str(tmp_path), arrays, step=0)
    flags = {"output_dir": str(tmp_path / "out"), "init_checkpoint": start, "init_layers": "0,2"}
    given = dataclasses.replace(CONFIG, num_hidden_layers=num_layers)
    setup = resolve(make_options(TrainerOptions, do_train=True, **flags), config=given)
    assert setup.config == dataclasses.replace(CONFIG, num_hidden_layers=2)
    assert setup.checkpoint.arrays["bert/encoder/layer_1/bias"].tolist() == [2, 2]


def changes(folder, rules=None, **current):
    return RunFolder.read(str(folder)).compare(current, rules or {})


def test_a_folder_with_checkpoints_of_another_model_is_refused_with_the_differences(tmp_path):
    other = dataclasses.replace(CONFIG, num_attention_heads=4, hidden_dropout_prob=0.3)
    other.to_json_file(tmp_path / "bert_config.json")
    values, others = (model_values({}, config, None, None) for config in (CONFIG, other))
    assert not changes(tmp_path, **values)  # there is no checkpoint yet
    checkpoints.save_checkpoint(str(tmp_path), {"v": np.zeros(2)}, step=1)
    assert not changes(tmp_path, **others)
    with refused("output_dir") as error:
        changes(tmp_path, **values)
    assert "  num_attention_heads: 4 there, 2 now" in str(error.value)
    assert "  hidden_dropout_prob: 0.3 there, 0.1 now" in str(error.value)
    assert "hidden_size" not in str(error.value)
    # keys that the saved configuration does not keep are no other model
    theirs = {**other.to_dict(), "hidden_act": "gelu", "model_type": "bert", "pad_token_id": 0}
    config = BertConfig.from_dict(theirs)
    config.to_json_file(tmp_path / "bert_config.json")
    assert not changes(tmp_path, **model_values({}, config, None, None))


def test_a_change_of_length_or_epochs_is_logged_when_a_run_resumes(tmp_path, caplog):
    given = {"output_dir": str(tmp_path), "do_train": True, "init_checkpoint": "BERT"}
    given |= {"train_file": "train.tsv"}
    settings = {"scale": 9.0, "loss": "triplet", "matryoshka_dims": "8"}
    first = make_options(EmbeddingOptions, **given, max_seq_length=64, **settings)
    RunRecord(RunOptions.read(first, 2).values).save(str(tmp_path))
    checkpoints.save_checkpoint(str(tmp_path), {"v": np.zeros(2)}, step=1)

    def resumed(options, steps=2):
        own = RunOptions.read(options, steps)
        return changes(tmp_path, own.rules, **own.values)

    assert not resumed(make_options(EmbeddingOptions, **given))
    assert not caplog.text  # the model has these settings, which are then used
    assert resumed(make_options(RerankerOptions, **given))["loss"] == "triplet"  # no setting of it
    assert "with a change: loss: triplet there, the default now" in caplog.text
    changed = make_options(EmbeddingOptions, **given, max_seq_length=32, num_train_epochs=4.0)
    assert resumed(changed, 3) == {
        "num_train_epochs": 3.0,
        "max_seq_length": 64,
        "num_train_steps": 2,
    }
    assert "with a change: max_seq_length: 64 there, 32 now" in caplog.text
    with refused("output_dir") as error:
        resumed(make_options(EmbeddingOptions, **given, optimizer="lamb"))
    assert "optimizer: adam_weight_decay there, lamb now" in str(error.value)


# ------------------------------------------------------------------------------------------ tokenizer


@pytest.mark.parametrize(
    ("vocab", "stated", "flag", "lower"),
    [
        (LOWER, None, None, True),
        (CASED, None, None, False),  # nobody said so, but the tokens show it
        (SPECIAL, None, None, True),
        (SPECIAL, False, None, False),
        (SPECIAL, None, False, False),
    ],
)
def test_text_is_lower_cased_as_flag_checkpoint_or_else_vocabulary_say(vocab, stated, flag, lower):
    cases = () if stated is None else ((stated, "tokenizer_config.json"),)
    found = checkpoint(vocab=vocab, cases=cases)
    assert load_tokenizer(None, flag, found, CONFIG).do_lower_case is lower


@pytest.fixture(params=["vocab.txt", "tokenizer.json"])
def known(request, tmp_path):
    """A checkpoint with the 125 tokens of LOWER, in a file of their own or in tokenizer.json only."""
    is_own = request.param == "vocab.txt"
    file = write_vocab(tmp_path / "theirs.txt", LOWER) if is_own else None
    return checkpoint(vocab=LOWER, vocab_file=file)


def test_tokens_that_the_checkpoint_knows_by_another_id_are_counted_in_a_warning(
    known, tmp_path, caplog
):
    load_tokenizer(None, None, known, CONFIG)
    load_tokenizer(write_vocab(tmp_path / "same.txt", LOWER), None, known, CONFIG)
    assert caplog.text == ""
    changed = (*SPECIAL, "new", *LOWER[6:])
    load_tokenizer(write_vocab(tmp_path / "ours.txt", changed), None, known, CONFIG)
    assert "1 of the 125 tokens in" in caplog.text and " aa," in caplog.text


def test_one_token_in_twenty_may_be_replaced(known, tmp_path):
    for count in (6, 7):  # of 125: 4.8 and 5.6 %
        tokens = (*SPECIAL, *(f"n{index}" for index in range(count)), *LOWER[5 + count :])
        file = write_vocab(tmp_path / "ours.txt", tokens)
        with refused("ours.txt") if count == 7 else contextlib.nullcontext():
            load_tokenizer(file, None, known, CONFIG)


def test_a_folder_with_checkpoints_of_another_tokenizer_is_refused(tmp_path):
    folder, ours = str(tmp_path), (*SPECIAL, "new", *LOWER[6:])
    write_files(folder, model_files(vocab=LOWER, do_lower_case=True))
    assert not changes(folder, **model_values({}, None, ours, False))  # no checkpoint yet
    checkpoints.save_checkpoint(folder, {"v": np.zeros(2)}, step=1)
    for same in (True, None):
        assert not changes(folder, **model_values({}, None, LOWER, same))
    with refused("output_dir") as error:
        changes(folder, **model_values({}, None, ours, False))
    assert "vocabulary: " in str(error.value)
    assert "do_lower_case: True there, False now" in str(error.value)
    with refused("output_dir"):
        changes(folder, **model_values({}, None, (*LOWER, "more"), True))


def test_the_length_is_that_of_the_model_unless_it_is_given(tmp_path):
    folder, task = str(tmp_path), ClassificationTask(["a", "b"], max_seq_length=12)
    write_files(folder, model_files(CONFIG, task.values(), vocab=LOWER, do_lower_case=True))
    checkpoints.save_checkpoint(folder, {"v": np.zeros(2)}, step=1)
    for length in ({}, {"max_seq_length": 9}, {"max_seq_length": 9, "do_train": True}):
        given = {"max_seq_length": None, "do_train": False, "init_checkpoint": None, **length}
        setup = resolve(options("classifier", tmp_path, **given), "classification")
        assert setup.max_seq_length == length.get("max_seq_length", 12)


def test_a_case_or_a_vocabulary_that_does_not_fit_is_refused():
    with refused("do_lower_case"):
        load_tokenizer(None, True, checkpoint(vocab=CASED), CONFIG)
    with refused("vocab_size"):
        load_tokenizer(None, None, checkpoint(vocab=(*CASED, "more")), CONFIG)


@pytest.mark.parametrize("name", ["vocab.txt", "report.html"])
def test_files_of_a_person_in_output_dir_are_not_overwritten(tmp_path, name):
    check_output_folder(str(tmp_path / "new"))
    (tmp_path / "slurm.log").touch()
    check_output_folder(str(tmp_path))
    (tmp_path / name).touch()
    with refused("output_dir"):
        check_output_folder(str(tmp_path))
    for of_a_run in ("model.ckpt-7.index", "eval.tf_record.json", "training.json"):
        (tmp_path / of_a_run).touch()
        check_output_folder(str(tmp_path))
        (tmp_path / of_a_run).unlink()


def test_a_vocabulary_with_far_fewer_tokens_than_the_model_is_a_warning(tmp_path, caplog):
    padded = dataclasses.replace(CONFIG, vocab_size=len(CASED) + 128)
    load_tokenizer(None, None, checkpoint(vocab=CASED), padded)
    assert "vocab_size" not in caplog.text
    larger = dataclasses.replace(CONFIG, vocab_size=len(CASED) + 129)
    load_tokenizer(None, None, checkpoint(vocab=CASED), larger)
    assert "has 145 tokens" in caplog.text
