"""Predictor on folders that hold a checkpoint, and on those that hold something else."""

import json
import shutil

import numpy as np
import pytest
from tiny_checkpoints import (
    CONFIG,
    arrays_of,
    huggingface_tensors,
    write_huggingface,
    write_json,
    write_tf1,
)
from tiny_text_models import TOKENS

from bert_tf.predictor import Predictor
from bert_tf.programs.export_saved_model import ExportOptions, load_served
from reference import numpy_bert

WORDS = TOKENS[: CONFIG.vocab_size]


def write_vocab(folder, tokens=WORDS):
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in tokens), encoding="utf-8")


def test_any_checkpoint_with_a_masked_lm_head_fills_masks(tmp_path):
    arrays = arrays_of("masked_lm", "next_sentence")
    prefix = write_tf1(tmp_path / "tf1", arrays)
    write_vocab(tmp_path / "tf1")
    tensors = huggingface_tensors(arrays)
    write_huggingface(tmp_path / "hf", tensors, hidden_act="gelu_new")
    write_vocab(tmp_path / "hf")
    ids = np.array([[WORDS.index(token) for token in ("[CLS]", "the", "[MASK]", "[SEP]")]])
    encoded = numpy_bert.encode(CONFIG, arrays, ids, np.ones_like(ids), np.zeros_like(ids))
    logits = numpy_bert.masked_lm_logits(CONFIG, arrays, encoded.sequence_output, np.array([[2]]))
    shares = np.exp(logits[0, 0]) / np.exp(logits[0, 0]).sum()
    best = np.argsort(-shares)[:3]
    for folder in (prefix, str(tmp_path / "tf1"), str(tmp_path / "hf")):
        (candidates,) = Predictor(folder).fill_mask("the [MASK]", top_k=3)
        assert [c.token for c in candidates] == [WORDS[index] for index in best]
        np.testing.assert_allclose([c.probability for c in candidates], shares[best], atol=1e-5)


def test_an_encoder_alone_embeds(tmp_path):
    arrays = arrays_of()
    write_tf1(tmp_path, arrays)
    write_vocab(tmp_path)
    found = Predictor(str(tmp_path)).embed(["the cat"], normalize=False)
    ids = np.array([[WORDS.index(token) for token in ("[CLS]", "the", "cat", "[SEP]")]])
    encoded = numpy_bert.encode(CONFIG, arrays, ids, np.ones_like(ids), np.zeros_like(ids))
    np.testing.assert_allclose(found[0], encoded.sequence_output[0].mean(axis=0), atol=1e-5)


def test_the_pooler_that_a_checkpoint_lacks_is_not_used(tmp_path):
    arrays = {name: array for name, array in arrays_of().items() if "pooler" not in name}
    write_tf1(tmp_path, arrays)
    write_vocab(tmp_path)
    message = "pooling=pooled"
    model = Predictor(str(tmp_path))
    with pytest.raises(ValueError, match=message):
        model.embed(["the cat"], pooling="pooled")
    assert model.embed(["the cat"]).shape == (1, CONFIG.hidden_size)
    options = {
        "model_dir": str(tmp_path),
        "export_dir": str(tmp_path / "export"),
        "head": "encoder",
    }
    with pytest.raises(ValueError, match=message):
        load_served(ExportOptions(**options, pooling="pooled"), "float32", True)


@pytest.mark.parametrize("task", ["classification", "embeddings"])
def test_a_model_that_needs_the_pooler_is_refused_without_it(tmp_path, task):
    """Its answers would be random."""
    head = ("classifier",) if task == "classification" else ()
    arrays = {n: array for n, array in arrays_of(*head, num_labels=2).items() if "pooler" not in n}
    prefix = write_tf1(tmp_path, arrays)
    write_vocab(tmp_path)
    values = {"labels": ["a", "b"]} if head else {"pooling": "pooled"}
    write_json(tmp_path / "task.json", {"task": task, "max_seq_length": 9, **values})
    for path in (prefix, str(tmp_path)):
        with pytest.raises(ValueError, match="lacks bert/pooler/dense/kernel, bert/pooler/dense/b"):
            Predictor(path)
    if task == "embeddings":
        write_json(tmp_path / "task.json", {"task": task, "max_seq_length": 9, "pooling": "cls"})
        assert Predictor(prefix).embed(["the cat"]).shape == (1, CONFIG.hidden_size)


def test_a_masked_lm_with_a_decoder_of_its_own_only_embeds(tmp_path):
    arrays = arrays_of("masked_lm")
    own = {"cls.predictions.decoder.weight": arrays["bert/embeddings/word_embeddings"] + 1}
    write_huggingface(tmp_path, {**huggingface_tensors(arrays), **own}, hidden_act="gelu_new")
    write_vocab(tmp_path)
    predictor = Predictor(str(tmp_path))
    assert predictor.embed(["the cat"], pooling="mean").shape == (1, CONFIG.hidden_size)
    message = "decoder.weight differs from"
    for answer in (predictor.fill_mask, predictor.pseudo_perplexity, predictor.predict):
        with pytest.raises(ValueError, match=message):
            answer("the [MASK]")
    for head in ("task", "masked_lm"):
        with pytest.raises(ValueError, match=message):
            options = ExportOptions(model_dir=str(tmp_path), export_dir="out", head=head)
            load_served(options, "float32", True)


def test_a_folder_that_holds_no_checkpoint_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises((ValueError, OSError), match=r"notes.txt, and no checkpoint"):
        Predictor(str(tmp_path))
    with pytest.raises(FileNotFoundError, match="no checkpoint /nowhere"):
        Predictor("/nowhere")


def test_a_checkpoint_without_a_vocabulary_is_refused(tmp_path):
    write_tf1(tmp_path, arrays_of())
    with pytest.raises(ValueError, match="vocab_file"):
        Predictor(str(tmp_path))


@pytest.mark.parametrize("is_run", [False, True])
def test_a_vocabulary_beyond_the_embeddings_is_refused(tmp_path, is_run, request):
    if is_run:
        shutil.copytree(request.getfixturevalue("pretrained"), tmp_path, dirs_exist_ok=True)
        tokens = (tmp_path / "vocab.txt").read_text().splitlines()
        size = len(tokens)
    else:
        write_tf1(tmp_path, arrays_of())
        tokens, size = list(WORDS), CONFIG.vocab_size
    write_vocab(tmp_path, [*tokens, "more"])
    with pytest.raises(ValueError, match=f"ids up to {size}"):
        Predictor(str(tmp_path))


def test_embeddings_of_another_size_than_the_configuration_says_are_refused(tmp_path):
    write_tf1(tmp_path, arrays_of())
    write_vocab(tmp_path)
    config = json.loads((tmp_path / "bert_config.json").read_text())
    write_json(tmp_path / "bert_config.json", {**config, "vocab_size": 40})
    with pytest.raises(ValueError, match="word_embeddings"):
        Predictor(str(tmp_path))


def test_a_task_of_ones_own_has_embeddings_and_no_predictions(tmp_path):
    write_tf1(tmp_path, arrays_of("classifier"))
    write_vocab(tmp_path)
    write_json(tmp_path / "task.json", {"task": "poetry"})
    predictor = Predictor(str(tmp_path))
    assert predictor.embed("a").shape == (1, CONFIG.hidden_size)
    with pytest.raises(ValueError, match="'poetry'"):
        predictor.predict(["a"])


def test_a_part_of_a_masked_lm_head_is_refused(tmp_path):
    arrays = arrays_of("masked_lm")
    del arrays["cls/predictions/output_bias"]
    write_tf1(tmp_path, arrays)
    write_vocab(tmp_path)
    with pytest.raises(ValueError, match="lacks cls/predictions/output_bias"):
        Predictor(str(tmp_path))


def test_a_run_whose_head_is_missing_is_refused(tmp_path):
    write_tf1(tmp_path, arrays_of())
    write_vocab(tmp_path)
    task = {"task": "classification", "max_seq_length": 9, "labels": ["a", "b"]}
    write_json(tmp_path / "task.json", task)
    with pytest.raises(ValueError, match="lacks output_weights, output_bias"):
        Predictor(str(tmp_path))
