"""MaskFiller: load once, predict repeatedly."""

import math
import shutil

import numpy as np
import pytest
from models import golden

from bert_tf.model_folder import load_model
from bert_tf.predictor import MaskFiller


@pytest.fixture(scope="module")
def filler():
    return MaskFiller(str(golden("pretrained")))


def test_each_mask_has_its_own_tokens_the_best_first(filler):
    first, last = filler.predict("The [MASK] cat is in the barn [MASK]", top_k=5)
    assert first[0].token != "." == last[0].token
    for candidates in (first, last):
        assert len({candidate.token for candidate in candidates}) == 5
        probabilities = [candidate.probability for candidate in candidates]
        assert probabilities == sorted(probabilities, reverse=True)


def test_probabilities_are_those_of_the_model_at_the_mask(filler):
    trained = load_model(str(golden("pretrained")))
    tokens = ["[CLS]", "the", "[MASK]", "cat", "[SEP]"]
    ids = np.array([trained.tokenizer.convert_tokens_to_ids(tokens)])
    inputs = {"input_ids": ids, "masked_lm_positions": np.array([[2]])}
    logits = trained.model(inputs)["masked_lm_logits"].numpy()[0, 0].astype(np.float64)
    expected = np.exp(logits) / np.exp(logits).sum()
    (candidates,) = filler.predict("the [MASK] cat", top_k=1000)
    order = expected.argsort()[::-1]
    vocabulary = set(range(len(trained.tokenizer.vocab)))
    best = [index for index in order if index in vocabulary]
    assert [c.token for c in candidates[:3]] == trained.tokenizer.convert_ids_to_tokens(best[:3])
    found = [candidate.probability for candidate in candidates]
    np.testing.assert_allclose(found, expected[best], atol=1e-6)
    assert math.fsum(found) == pytest.approx(1, abs=1e-5)  # no more than there are


def test_a_text_without_a_mask_or_too_long_is_refused(filler, tmp_path):
    last = "cat " * 20 + "[MASK]"  # the 22nd of 23 tokens, before [SEP]
    assert len(filler.predict(last)) == 1
    for text in ("the cat", "the [mask] cat", "", "cat " + last, "[MASK] cat " + last):
        with pytest.raises(ValueError, match=r"\[MASK\]|23 tokens"):
            filler.predict(text)
    for folder in (golden("classifier"), tmp_path):
        with pytest.raises(ValueError, match=r"\[MASK\]|no checkpoint"):
            MaskFiller(str(folder))


def test_rows_of_the_embeddings_beyond_the_vocabulary_are_never_named(tmp_path):
    shutil.copytree(golden("pretrained"), tmp_path, dirs_exist_ok=True)
    tokens = (golden("pretrained") / "vocab.txt").read_text().splitlines()
    (tmp_path / "vocab.txt").write_text("".join(f"{token}\n" for token in tokens[:180]))
    (candidates,) = MaskFiller(str(tmp_path)).predict("the [MASK]", top_k=190)
    assert {candidate.token for candidate in candidates} == set(tokens[:180])
