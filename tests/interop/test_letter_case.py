"""Cased or uncased: by name, by the tokenizer's files, by the vocabulary."""

import pytest

from bert_tf.interop.sidecar import validate_case_matches_checkpoint, vocab_is_cased

WORDS = [a + b + c for a in "abcde" for b in "aeiou" for c in "stuvwx"]  # 150
CASED = dict.fromkeys(["[UNK]", *WORDS, *(word.title() for word in WORDS)])
UNCASED = dict.fromkeys(["[UNK]", "<S>", *WORDS])


@pytest.mark.parametrize(
    "name, lower_cased",
    [
        ("uncased_L-24_H-1024_A-16", True),
        ("uncased_L-12_H-768_A-12", True),
        ("multilingual_L-12_H-768_A-12", True),
        ("chinese_L-12_H-768_A-12", True),
        ("cased_L-12_H-768_A-12", False),
        ("cased_L-24_H-1024_A-16", False),
        ("multi_cased_L-12_H-768_A-12", False),
        ("wwm_uncased_L-24_H-1024_A-16", True),
        ("models--bert-base-cased/snapshots/1234", False),
        ("old_uncased_things/my.Cased.run", False),
    ],
)
def test_case_is_known_from_the_name(name, lower_cased):
    checkpoint = f"gone/{name}/bert_model.ckpt"
    validate_case_matches_checkpoint(lower_cased, checkpoint)
    with pytest.raises(ValueError, match=rf"do_lower_case={lower_cased} for {checkpoint}"):
        validate_case_matches_checkpoint(not lower_cased, checkpoint)


@pytest.mark.parametrize("checkpoint", [None, "", "bert_model.ckpt", "showcased/bert_model.ckpt"])
@pytest.mark.parametrize("do_lower_case", [True, False])
def test_an_unknown_name_is_accepted(checkpoint, do_lower_case):
    assert validate_case_matches_checkpoint(do_lower_case, checkpoint, {"[UNK]": 0}) is None


def test_case_is_known_from_the_vocabulary_even_against_the_name():
    validate_case_matches_checkpoint(True, "cased/model.ckpt", UNCASED)
    with pytest.raises(ValueError, match="do_lower_case=True"):
        validate_case_matches_checkpoint(False, "cased/model.ckpt", UNCASED)
    with pytest.raises(ValueError, match="do_lower_case=False"):
        validate_case_matches_checkpoint(True, None, CASED)


@pytest.mark.parametrize(
    "vocab, is_cased",
    [
        (CASED, True),
        (UNCASED, False),
        (WORDS[:99], None),  # too few to tell
        ([*WORDS, "Aes"], None),  # one upper-case word in 151 is noise
        ([*WORDS, "straße", "äst"], None),  # lower-cased by other means: accents are there
        (["漢", "字", *"123"] * 50, None),
        ([f"[unused{i}]" for i in range(500)], None),
    ],
)
def test_case_of_a_vocabulary(vocab, is_cased):
    assert vocab_is_cased(vocab) is is_cased


@pytest.mark.parametrize("checkpoint", ["", "model.ckpt", "model.ckpt.index"])
def test_case_is_known_from_the_configuration_beside_the_checkpoint(tmp_path, checkpoint):
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": false, "model_max": 5}')
    validate_case_matches_checkpoint(False, tmp_path / checkpoint, UNCASED)
    with pytest.raises(ValueError, match=r"tokenizer_config.json"):
        validate_case_matches_checkpoint(True, tmp_path / checkpoint, UNCASED)
