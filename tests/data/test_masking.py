"""Choice and replacement of masked-LM tokens."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_tf.data.masking import Masker
from reference import pretraining_data as reference

WORDS = ["dog", "cat", "##s", "##ed", "bark", "the", "[UNK]"]
VOCAB = {w: i for i, w in enumerate(["[PAD]", "[CLS]", "[SEP]", "[MASK]", *WORDS], start=3)}
TOKENS = {i: w for w, i in VOCAB.items()}


def ids(text):
    return [VOCAB[token] for token in text.split()]


def masker(prob=0.15, most=20, whole_words=False):
    return Masker(
        VOCAB,
        masked_lm_prob=prob,
        max_predictions_per_seq=most,
        do_whole_word_mask=whole_words,
    )


@given(
    a=st.lists(st.sampled_from(WORDS), min_size=1, max_size=15),
    b=st.lists(st.sampled_from(WORDS), min_size=1, max_size=15),
    prob=st.sampled_from([0.0, 0.15, 0.5, 1.0]),
    most=st.integers(min_value=1, max_value=9),
    whole_words=st.booleans(),
    seed=st.integers(min_value=0),
)
def test_masks_and_draws_equal_those_of_the_reference(a, b, prob, most, whole_words, seed):
    tokens = ["[CLS]", *a, "[SEP]", *b, "[SEP]"]
    rng, reference_rng = random.Random(seed), random.Random(seed)
    masked = masker(prob, most, whole_words)([VOCAB[token] for token in tokens], rng)
    seen, positions, labels = reference.mask(
        tokens, list(VOCAB), prob, most, whole_words, reference_rng
    )
    assert [TOKENS[i] for i in masked.token_ids] == seen
    assert masked.masked_lm_positions == positions
    assert [TOKENS[i] for i in masked.masked_lm_ids] == labels
    assert rng.getstate() == reference_rng.getstate()


def test_cls_and_sep_are_never_predicted():
    token_ids = ids("[CLS] dog bark [SEP] the cat ##s [SEP]")
    masked = masker(prob=1.0)(token_ids, random.Random(5))
    assert masked.masked_lm_positions == [1, 2, 4, 5, 6]
    assert masked.masked_lm_ids == ids("dog bark the cat ##s")
    assert [masked.token_ids[i] for i in (0, 3, 7)] == ids("[CLS] [SEP] [SEP]")


@pytest.mark.parametrize("prob, most, expected", [(0.0, 4, 1), (0.5, 4, 4), (0.3, 9, 3), (1, 5, 5)])
def test_number_of_predictions_is_the_rounded_share_within_one_and_the_most(prob, most, expected):
    token_ids = ids("[CLS] the dog bark ##ed [SEP] the cat ##s [SEP]")
    assert len(masker(prob, most)(token_ids, random.Random(1)).masked_lm_ids) == expected


def test_whole_words_are_masked_with_all_their_pieces():
    token_ids = ids("[CLS] dog ##s bark ##ed [SEP] the cat ##s [SEP]")
    for seed in range(40):
        positions = masker(0.4, whole_words=True)(token_ids, random.Random(seed))[1]
        assert len({1, 2}.intersection(positions)) != 1
        assert len({3, 4}.intersection(positions)) != 1
        assert len({7, 8}.intersection(positions)) != 1
        # Four may be masked: two pairs; or `the`, one pair, and no room for another.
        assert len(positions) == (3 if 6 in positions else 4)


def test_a_whole_word_longer_than_allowed_leaves_no_predictions():
    token_ids = ids("[CLS] dog ##s [SEP] cat ##s [SEP]")
    masked = masker(most=1, whole_words=True)(token_ids, random.Random(3))
    assert masked == (token_ids, [], [])


def test_eighty_ten_ten_percent_are_mask_same_and_random():
    token_ids = ids("[CLS] dog [SEP] the [SEP]")
    rng, choose = random.Random(17), masker(most=1)
    shares = {"mask": 0, "same": 0, "other": 0}
    for _ in range(4000):
        masked = choose(token_ids, rng)
        seen = masked.token_ids[masked.masked_lm_positions[0]]
        same = seen == masked.masked_lm_ids[0]
        kind = "mask" if seen == VOCAB["[MASK]"] else "same" if same else "other"
        shares[kind] += 1 / 4000
    # Of the random words, 1 in 11 is [MASK] and 1 in 11 is the same.
    assert shares["mask"] == pytest.approx(0.8 + 0.1 / 11, abs=0.02)
    assert shares["same"] == pytest.approx(0.1 + 0.1 / 11, abs=0.02)
    assert shares["other"] == pytest.approx(0.1 * 9 / 11, abs=0.02)


def test_the_given_sequence_is_not_changed():
    token_ids = ids("[CLS] dog [SEP] the [SEP]")
    masker(prob=1.0)(token_ids, random.Random(2))
    assert token_ids == ids("[CLS] dog [SEP] the [SEP]")


def test_a_vocabulary_without_mask_is_refused():
    vocab = {token: i for token, i in VOCAB.items() if token not in ("[MASK]", "[SEP]")}
    with pytest.raises(ValueError, match=r"no \[SEP\], \[MASK\].*create_vocab"):
        Masker(vocab, masked_lm_prob=0.15, max_predictions_per_seq=20)
