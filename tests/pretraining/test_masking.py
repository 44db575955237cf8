"""Choice and replacement of masked-LM tokens."""

import random
from array import array

import pytest
from helpers import cause_of
from hypothesis import given
from hypothesis import strategies as st

from bert_tf.options import make_options
from bert_tf.pretraining.masking import Masker, MaskingOptions, continuation_ids
from bert_tf.pretraining.python_random import RandomWords
from reference import pretraining_data as reference

WORDS = ["dog", "cat", "##s", "##ed", "bark", "the", "[UNK]"]
VOCAB = {w: i for i, w in enumerate(["[PAD]", "[CLS]", "[SEP]", "[MASK]", *WORDS], start=3)}
TOKENS = {i: w for w, i in VOCAB.items()}


def ids(text):
    return array("i", [VOCAB[token] for token in text.split()])


def masker(prob=0.15, most=20, whole_words=False, continuations=(), **changes):
    """A function of token ids and a seed (or what it left of its words)."""
    settings = MaskingOptions(masked_lm_prob=prob, do_whole_word_mask=whole_words, **changes)
    mask = Masker(VOCAB, settings, most, continuations or continuation_ids(VOCAB))

    def run(token_ids, rng):
        rng = RandomWords(rng) if isinstance(rng, int) else rng
        return mask(token_ids, token_ids.index(VOCAB["[SEP]"]), rng)

    return run


@given(
    a=st.lists(st.sampled_from(WORDS), min_size=1, max_size=15),
    b=st.lists(st.sampled_from(WORDS), min_size=1, max_size=15),
    prob=st.sampled_from([0.01, 0.15, 0.5, 1.0]),
    most=st.integers(min_value=1, max_value=9),
    whole_words=st.booleans(),
    seed=st.integers(min_value=0),
)
def test_masks_and_draws_equal_those_of_the_reference(a, b, prob, most, whole_words, seed):
    tokens = ["[CLS]", *a, "[SEP]", *b, "[SEP]"]
    rng, reference_rng = RandomWords(seed), random.Random(seed)
    masked = masker(prob, most, whole_words)(ids(" ".join(tokens)), rng)
    seen, positions, labels = reference.mask(
        tokens, list(VOCAB), prob, most, whole_words, reference_rng
    )
    assert [TOKENS[i] for i in masked.token_ids] == seen
    assert masked.masked_lm_positions == positions
    assert [TOKENS[i] for i in masked.masked_lm_ids] == labels
    assert rng.random() == reference_rng.random()  # as many were drawn


def test_every_position_of_a_long_sequence_can_be_predicted():
    token_ids = ids("[CLS]" + " dog" * 3000 + " [SEP]" + " cat" * 3000 + " [SEP]")
    found = masker(prob=1.0, most=6000)(token_ids, 7).masked_lm_positions
    assert found == [*range(1, 3001), *range(3002, 6002)]


def test_the_given_sequence_is_not_changed():
    token_ids = ids("[CLS] dog [SEP] the [SEP]")
    masker(prob=1.0)(token_ids, 2)
    assert token_ids == ids("[CLS] dog [SEP] the [SEP]")


# ----------------------------------------------------------------------------------------- mixtures


@pytest.mark.parametrize(
    "mask, random_", [(0.8, 0.1), (1.0, 0.0), (0.8, 0.2), (0.0, 1.0), (0.2, 0.3), (0, 0)]
)
def test_the_mixture_of_the_papers_table_8_is_what_was_asked_for(mask, random_):
    token_ids = ids("[CLS] dog [SEP] the [SEP]")
    rng = RandomWords(17)
    choose = masker(most=1, mask_token_prob=mask, random_token_prob=random_)
    masks = same = 0
    for _ in range(4000):
        masked = choose(token_ids, rng)
        seen = masked.token_ids[masked.masked_lm_positions[0]]
        masks += seen == VOCAB["[MASK]"]
        same += seen == masked.masked_lm_ids[0]
    # Of the random words, 1 in 11 is [MASK] and 1 in 11 is the same.
    assert masks / 4000 == pytest.approx(mask + random_ / 11, abs=0.02)
    assert same / 4000 == pytest.approx(1 - mask - random_ + random_ / 11, abs=0.02)


def test_shares_that_are_none_are_refused():
    for option, changes in (
        ("mask_token_prob", {"mask_token_prob": 1.1, "random_token_prob": 0.0}),
        ("random_token_prob", {"random_token_prob": -0.1}),
        ("random_token_prob", {"random_token_prob": 0.3}),
        ("random_token_prob", {"mask_token_prob": 0.95}),
        ("masked_lm_prob", {"masked_lm_prob": 1.5}),
    ):
        assert cause_of(make_options, MaskingOptions, **changes) == option, changes


def test_ids_that_continue_a_word_may_be_named():
    token_ids = ids("[CLS] dog cat the bark [SEP]")
    choose = masker(0.34, whole_words=True, continuations=[VOCAB["cat"], VOCAB["bark"]])
    for seed in range(20):
        assert choose(token_ids, seed).masked_lm_positions in ([1, 2], [3, 4])
