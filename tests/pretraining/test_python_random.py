"""RandomWords draws what `random.Random` draws."""

import random

from hypothesis import given
from hypothesis import strategies as st

from bert_tf.pretraining.python_random import RandomWords

SEEDS = st.integers(min_value=0, max_value=2**64)


@given(seed=SEEDS, numbers=st.lists(st.integers(min_value=1, max_value=2**32 - 1), max_size=60))
def test_methods_in_any_order_draw_as_random(seed, numbers):
    ours, theirs = RandomWords(seed), random.Random(seed)
    for number in numbers:
        assert ours.randrange(number) == theirs.randrange(number)
        assert ours.randint(7, 6 + number) == theirs.randint(7, 6 + number)
        assert ours.random() == theirs.random()


@given(seed=SEEDS, length=st.integers(0, 300))
def test_shuffle_is_that_of_random(seed, length):
    ours, theirs = RandomWords(seed), random.Random(seed)
    found, expected = list(range(length)), list(range(length))
    ours.shuffle(found)
    theirs.shuffle(expected)
    assert found == expected
    assert ours.random() == theirs.random()  # and as many words were drawn


def test_words_continue_in_the_next_chunk():
    ours, theirs = RandomWords(3), random.Random(3)
    assert [ours.random() for _ in range(100_000)] == [theirs.random() for _ in range(100_000)]


@given(seed=SEEDS, number=st.integers(min_value=0, max_value=9_000))
def test_coins_are_draws_of_random(seed, number):
    ours, theirs = RandomWords(seed), random.Random(seed)
    assert [coin < 1 << 31 for coin in ours.coins(number)] == [
        theirs.random() < 0.5 for _ in range(number)
    ]
    assert ours.random() == theirs.random()
