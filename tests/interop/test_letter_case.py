"""Cased or uncased: by name, by the tokenizer's files, by the vocabulary."""

from bert_tf.interop.sidecar import validate_case_matches_checkpoint, vocab_is_cased

WORDS = [a + b + c for a in "abcde" for b in "aeiou" for c in "stuvwx"]  # 150
CASED = dict.fromkeys(["[UNK]", *WORDS, *(word.title() for word in WORDS)])
UNCASED = dict.fromkeys(["[UNK]", "<S>", *WORDS])
UNKNOWN = {"[UNK]": 0}


def accepted_cases(checkpoint, vocab=None):
    accepted = []
    for lower_case in (True, False):
        try:
            validate_case_matches_checkpoint(lower_case, checkpoint, vocab)
            accepted.append(lower_case)
        except ValueError:
            pass
    return accepted


def test_case_is_known_from_the_name():
    for name, lower_cased in {
        "uncased_L-24_H-1024_A-16": True,
        "uncased_L-12_H-768_A-12": True,
        "multilingual_L-12_H-768_A-12": True,
        "chinese_L-12_H-768_A-12": True,
        "cased_L-12_H-768_A-12": False,
        "cased_L-24_H-1024_A-16": False,
        "multi_cased_L-12_H-768_A-12": False,
        "wwm_uncased_L-24_H-1024_A-16": True,
        "models--bert-base-cased/snapshots/1234": False,
        "old_uncased_things/my.Cased.run": False,
    }.items():
        assert accepted_cases(f"gone/{name}/bert_model.ckpt") == [lower_cased], name
    for name in (None, "", "bert_model.ckpt", "showcased/bert_model.ckpt"):
        assert accepted_cases(name, UNKNOWN) == [True, False], name


def test_case_is_known_from_the_vocabulary_even_against_the_name():
    assert accepted_cases("cased/model.ckpt", UNCASED) == [True]
    assert accepted_cases(None, CASED) == [False]


def test_case_of_a_vocabulary():
    for vocab, is_cased in (
        (CASED, True),
        (UNCASED, False),
        (WORDS[:99], None),  # too few to tell
        ([*WORDS, "Aes"], None),  # one upper-case word in 151 is noise
        ([*WORDS, "straße", "äst"], None),  # lower-cased by other means: accents are there
        (["漢", "字", *"123"] * 50, None),
        ([f"[unused{i}]" for i in range(500)], None),
    ):
        assert vocab_is_cased(vocab) is is_cased


def test_case_is_known_from_the_configuration_beside_the_checkpoint(tmp_path):
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": false, "model_max": 5}')
    for checkpoint in ("", "model.ckpt", "model.ckpt.index"):
        assert accepted_cases(tmp_path / checkpoint, UNCASED) == [False]
