"""SavedClassifier and MaskFiller: load once, ask as often as wanted."""

import math
import shutil

import numpy as np
import pytest
import tensorflow as tf
from tiny_runs import moods, pairs

from bert_tf.model_folder import load_model_folder
from bert_tf.predictor import (
    MaskFiller,
    Predictor,
    SavedClassifier,
    is_saved_model,
    load_saved_model,
)


@pytest.fixture(scope="module")
def classifier(exported):
    return SavedClassifier(str(exported.single))


@pytest.fixture(scope="module")
def filler(pretrained):
    return MaskFiller(str(pretrained))


# ----------------------------------------------------------------------------------- SavedClassifier


def test_sentences_get_their_label_and_the_probability_of_each(classifier):
    rows = moods(9, seed=15)
    answers = classifier.predict([(text, None) for text, _ in rows])
    assert [answer["label"] for answer in answers] == [label for _, label in rows]
    for answer in answers:
        assert list(answer) == ["label", "probabilities"]
        assert list(answer["probabilities"]) == classifier.labels == ["bad", "good"]
        assert sum(answer["probabilities"].values()) == pytest.approx(1.0, abs=1e-6)
        assert max(answer["probabilities"], key=answer["probabilities"].get) == answer["label"]


def test_pairs_get_their_label(exported):
    classifier = SavedClassifier(str(exported.pair))
    assert classifier.is_pair
    rows = pairs(6, seed=16)
    answers = classifier.predict([(text_a, text_b) for text_a, text_b, _ in rows])
    assert [answer["label"] for answer in answers] == [label for _, _, label in rows]


def test_no_texts_have_no_answers(classifier):
    assert classifier.predict([]) == []


def test_a_second_sentence_is_refused_by_a_model_of_single_ones(classifier):
    assert not classifier.is_pair
    with pytest.raises(ValueError, match=r"single sentences, .* second one: 'another'"):
        classifier.predict([("one", None), ("one", "another")])


def test_a_missing_second_sentence_is_refused_by_a_model_of_pairs(exported):
    classifier = SavedClassifier(str(exported.pair))
    assert len(classifier.predict([("one", "")])) == 1  # an empty one was said
    with pytest.raises(ValueError, match=r"pairs of sentences.* only one: 'lone'"):
        classifier.predict([("one", "another"), ("lone", None)])


def test_a_folder_without_a_saved_model_is_refused(tmp_path, pretrained):
    assert not is_saved_model(str(pretrained))
    with pytest.raises(ValueError, match=r"no saved_model.pb"):
        SavedClassifier(str(tmp_path))


def test_a_saved_model_of_another_program_is_refused(tmp_path):
    module = tf.Module()
    module.call = tf.function(lambda x: x, input_signature=[tf.TensorSpec([None], tf.float32)])
    tf.saved_model.save(module, str(tmp_path))
    assert is_saved_model(str(tmp_path))
    with pytest.raises(ValueError, match=r"no assets.extra/labels.txt, so it .*not copied"):
        SavedClassifier(str(tmp_path))


DAMAGE = {
    "weights cut off": ("variables/variables.data-00000-of-00001", b"\x00" * 100),
    "index cut off": ("variables/variables.index", b"\x00" * 100),
    "no weights": ("variables/variables.index", None),
    "graph cut off": ("saved_model.pb", b"junk"),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_saved_model_is_named(exported, tmp_path, kind):
    file, content = DAMAGE[kind]
    folder = shutil.copytree(exported.pair, tmp_path / "copy")
    (folder / file).unlink()
    if content is not None:
        (folder / file).write_bytes(content)
    for load in (load_saved_model, SavedClassifier):
        with pytest.raises(ValueError) as raised:
            load(str(folder))
        message = str(raised.value)
        assert f"The SavedModel in {folder} cannot be read, so it is damaged" in message
        assert message.endswith("Copy it whole, or export it again.")


# ---------------------------------------------------------------------------------------- MaskFiller


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
    trained = load_model_folder(str(pretrained))
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
        with pytest.raises(ValueError, match=r"There is no \[MASK\] in "):
            filler.predict(text)


def test_a_mask_beyond_the_longest_input_is_refused(filler):
    last = "cat " * 20 + "[MASK]"  # the 22nd of 23 tokens, before [SEP]
    assert len(filler.predict(last)) == 1
    message = r"A \[MASK\] in 'cat cat .* is beyond the longest input, 23 tokens"
    with pytest.raises(ValueError, match=message):
        filler.predict("cat " + last)
    with pytest.raises(ValueError, match="is beyond"):
        filler.predict("[MASK] cat " + last)


def test_only_a_pre_trained_model_fills_masks(sentence_model, tmp_path):
    message = r"a fine-tuned model, and only a pre-trained one can fill a \[MASK\]"
    with pytest.raises(ValueError, match=message):
        MaskFiller(str(sentence_model))
    with pytest.raises(ValueError, match="no checkpoint"):
        MaskFiller(str(tmp_path))


def test_rows_of_the_embeddings_beyond_the_vocabulary_are_never_named(pretrained, tmp_path):
    shutil.copytree(pretrained, tmp_path, dirs_exist_ok=True)
    tokens = (pretrained / "vocab.txt").read_text().splitlines()
    (tmp_path / "vocab.txt").write_text("".join(f"{token}\n" for token in tokens[:180]))
    (candidates,) = MaskFiller(str(tmp_path)).predict("the [MASK]", top_k=190)
    assert {candidate.token for candidate in candidates} == set(tokens[:180])


def test_methods_of_sentence_transformers_are_errors_that_name_those_here():
    model = Predictor.__new__(Predictor)
    with pytest.raises(AttributeError, match=r"no method 'encode'\. Use embed\(texts\); docs/mig"):
        model.encode(["a"])
    with pytest.raises(AttributeError, match=r"'Predictor' object has no attribute 'xyz'"):
        _ = model.xyz
    assert not hasattr(model, "similarity")
