"""Predictor on folders that hold a checkpoint, and on those that hold something else."""

import json

import numpy as np
import pytest
from models import copy_of
from tiny_checkpoints import (
    CONFIG,
    arrays_of,
    huggingface_tensors,
    write_huggingface,
    write_json,
    write_tf1,
)
from tiny_text_models import TOKENS

from bert_tf.options import make_options
from bert_tf.prediction.predictor import Predictor
from bert_tf.serving.export_saved_model import ExportOptions, load_served
from reference import numpy_bert

WORDS = TOKENS[: CONFIG.vocab_size]
SHAPE = (1, CONFIG.hidden_size)


def write_vocab(folder, tokens=WORDS):
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in tokens), encoding="utf-8")


def write(folder, arrays, task=None):
    """The prefix of a checkpoint with its vocabulary."""
    prefix = write_tf1(folder, arrays)
    write_vocab(folder)
    if task:
        write_json(folder / "task.json", task)
    return prefix


def without(arrays, part):
    return {name: array for name, array in arrays.items() if part not in name}


def encoded(arrays, *tokens):
    ids = np.array([[WORDS.index(token) for token in ("[CLS]", *tokens, "[SEP]")]])
    return numpy_bert.encode(CONFIG, arrays, ids, np.ones_like(ids), np.zeros_like(ids))


# ------------------------------------------------------------------------------------ what is answered


def test_any_checkpoint_with_a_masked_lm_head_fills_masks(tmp_path):
    arrays = arrays_of("masked_lm", "next_sentence")
    prefix = write(tmp_path / "tf1", arrays)
    write_huggingface(tmp_path / "hf", huggingface_tensors(arrays), hidden_act="gelu_new")
    write_vocab(tmp_path / "hf")
    outputs = encoded(arrays, "the", "[MASK]").sequence_output
    logits = numpy_bert.masked_lm_logits(CONFIG, arrays, outputs, np.array([[2]]))
    shares = np.exp(logits[0, 0]) / np.exp(logits[0, 0]).sum()
    best = np.argsort(-shares)[:3]
    for folder in (prefix, str(tmp_path / "tf1"), str(tmp_path / "hf")):
        (candidates,) = Predictor(folder).fill_mask("the [MASK]", top_k=3)
        assert [c["token"] for c in candidates] == [WORDS[index] for index in best]
        np.testing.assert_allclose([c["probability"] for c in candidates], shares[best], atol=1e-5)


def test_the_pooler_that_a_checkpoint_lacks_is_not_used(tmp_path):
    write(tmp_path, without(arrays_of(), "pooler"))
    model = Predictor(str(tmp_path))
    options = {"model_dir": str(tmp_path), "export_dir": "", "head": "encoder", "pooling": "pooled"}
    for refused in (
        lambda: model.embed(["the cat"], pooling="pooled"),
        lambda: load_served(make_options(ExportOptions, **options)),
    ):
        with pytest.raises(ValueError, match="pooling"):
            refused()
    assert model.embed(["the cat"]).shape == SHAPE


def test_a_masked_lm_with_a_decoder_of_its_own_only_embeds(tmp_path):
    arrays = arrays_of("masked_lm")
    own = {"cls.predictions.decoder.weight": arrays["bert/embeddings/word_embeddings"] + 1}
    write_huggingface(tmp_path, {**huggingface_tensors(arrays), **own}, hidden_act="gelu_new")
    write_vocab(tmp_path)
    predictor = Predictor(str(tmp_path))
    assert predictor.embed(["the cat"], pooling="mean").shape == SHAPE

    def served(head):
        options = make_options(ExportOptions, model_dir=str(tmp_path), export_dir="out", head=head)
        return load_served(options)

    asked = (predictor.fill_mask, predictor.predict)
    for refused, argument in (*((ask, "the [MASK]") for ask in asked), (served, "masked_lm")):
        with pytest.raises(ValueError) as caught:
            refused(argument)
        assert "decoder.weight" in str(caught.value)


def test_a_task_of_ones_own_has_embeddings_and_no_predictions(tmp_path):
    write(tmp_path, arrays_of("classifier"), {"task": "poetry"})
    predictor = Predictor(str(tmp_path))
    assert predictor.embed("a").shape == SHAPE
    with pytest.raises(ValueError, match="'poetry'"):
        predictor.predict(["a"])


# ------------------------------------------------------------------------------------- what is refused

CLASSIFIER = {"task": "classification", "max_seq_length": 9, "labels": ["a", "b"]}
POOLED = {"task": "embeddings", "max_seq_length": 9, "pooling": "pooled"}
NO_BIAS = "cls/predictions/output_bias"


@pytest.mark.parametrize(
    "arrays, task, missing",
    [
        (without(arrays_of("classifier", num_labels=2), "pooler"), CLASSIFIER, "bert/pooler/"),
        (without(arrays_of(), "pooler"), POOLED, "bert/pooler/"),
        (without(arrays_of("masked_lm"), NO_BIAS), None, NO_BIAS),
        (arrays_of(), CLASSIFIER, "output_weights, output_bias"),
    ],
)
def test_predictor_refuses_a_model_that_lacks_variables(tmp_path, arrays, task, missing):
    """Its answers would be random."""
    prefix = write(tmp_path, arrays, task)
    for path in (prefix, str(tmp_path)):
        with pytest.raises(ValueError) as caught:
            Predictor(path)
        assert f"lacks {missing}" in str(caught.value)


def test_predictor_refuses_files_that_do_not_fit(tmp_path):
    folder = tmp_path / "plain"
    write_tf1(folder, arrays_of())
    rows = [("vocab_file", lambda: None)]
    rows += [(f"ids up to {CONFIG.vocab_size}", lambda: write_vocab(folder, [*WORDS, "more"]))]
    config = json.loads((folder / "bert_config.json").read_text()) | {"vocab_size": 40}
    rows += [("word_embeddings", lambda: write_json(folder / "bert_config.json", config))]
    for named, change in rows:
        change()
        with pytest.raises(ValueError) as caught:
            Predictor(str(folder))
        assert named in str(caught.value)
    run = copy_of("pretrained", tmp_path / "run")
    tokens = (run / "vocab.txt").read_text().splitlines()
    write_vocab(run, [*tokens, "more"])
    with pytest.raises(ValueError) as caught:
        Predictor(str(run))
    assert f"ids up to {len(tokens)}" in str(caught.value)
