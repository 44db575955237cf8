"""MaskFiller: load once, predict repeatedly."""

import math
import shutil

import numpy as np
import pytest

from bert_tf.model_folder import load_model
from bert_tf.predictor import MaskFiller


@pytest.fixture(scope="module")
def filler(pretrained):
    return MaskFiller(str(pretrained))


def test_a_mask_gets_the_most_probable_tokens_the_best_first(filler):
    (candidates,) = filler.predict("The sad cat is in the barn [MASK]", top_k=5)
    assert candidates[0].token == "."
    assert len({candidate.token for candidate in candidates}) == 5
    probabilities = [candidate.probability for candidate in candidates]
    assert probabilities == sorted(probabilities, reverse=True)
    assert all(0 < probability < 1 for probability in probabilities)


def test_each_mask_has_its_own_tokens_in_the_order_of_the_text(filler):
    first, last = filler.predict("The [MASK] cat is in the barn [MASK]", top_k=1)
    assert first[0].token != "."
    assert last[0].token == "."


def test_probabilities_are_those_of_the_model_at_the_mask(filler, pretrained):
    trained = load_model(str(pretrained))
    tokens = ["[CLS]", "the", "[MASK]", "cat", "[SEP]"]
    ids = np.array([trained.tokenizer.convert_tokens_to_ids(tokens)])
    inputs = {"input_ids": ids, "masked_lm_positions": np.array([[2]])}
    logits = trained.model(inputs)["masked_lm_logits"].numpy()[0, 0].astype(np.float64)
    expected = np.exp(logits) / np.exp(logits).sum()
    (candidates,) = filler.predict("the [MASK] cat", top_k=3)
    best = expected.argsort()[::-1][:3]
    assert [c.token for c in candidates] == trained.tokenizer.convert_ids_to_tokens(best)
    np.testing.assert_allclose([c.probability for c in candidates], expected[best], atol=1e-6)


def test_no_more_tokens_are_named_than_there_are(filler):
    (candidates,) = filler.predict("[MASK]", top_k=1000)
    assert len({candidate.token for candidate in candidates}) == len(candidates) == 190
    assert math.fsum(candidate.probability for candidate in candidates) == pytest.approx(
        1, abs=1e-5
    )


def test_a_text_without_a_mask_is_refused(filler):
    for text in ("the cat", "the [mask] cat", ""):
        with pytest.raises(ValueError, match=r"needs a \[MASK\]"):
            filler.predict(text)


def test_a_mask_beyond_the_longest_input_is_refused(filler):
    last = "cat " * 20 + "[MASK]"  # the 22nd of 23 tokens, before [SEP]
    assert len(filler.predict(last)) == 1
    for text in ("cat " + last, "[MASK] cat " + last):
        with pytest.raises(ValueError, match="within 23 tokens"):
            filler.predict(text)


def test_only_a_pre_trained_model_fills_masks(sentence_model, tmp_path):
    with pytest.raises(ValueError, match=r"\[MASK\]"):
        MaskFiller(str(sentence_model))
    with pytest.raises(ValueError, match="no checkpoint"):
        MaskFiller(str(tmp_path))


def test_rows_of_the_embeddings_beyond_the_vocabulary_are_never_named(pretrained, tmp_path):
    shutil.copytree(pretrained, tmp_path, dirs_exist_ok=True)
    tokens = (pretrained / "vocab.txt").read_text().splitlines()
    (tmp_path / "vocab.txt").write_text("".join(f"{token}\n" for token in tokens[:180]))
    (candidates,) = MaskFiller(str(tmp_path)).predict("the [MASK]", top_k=190)
    assert {candidate.token for candidate in candidates} == set(tokens[:180])
