"""Truncation, special tokens and padding."""

import random

import pytest
from helpers import pack_windows
from hypothesis import given
from hypothesis import strategies as st

from bert_tf.packing import pack, pack_all, sliding_windows, truncate_pair

IDS = {"cls_id": 1, "sep_id": 2}
sentences = st.lists(st.integers(min_value=200, max_value=210), max_size=12)


@given(sentences, sentences, st.integers(min_value=0, max_value=25))
def test_truncate_pair_gives_up_one_token_at_a_time(a, b, max_tokens):
    kept_a, kept_b = list(a), list(b)
    while len(kept_a) + len(kept_b) > max_tokens:
        (kept_a if len(kept_a) > len(kept_b) else kept_b).pop()
    assert truncate_pair(a, b, max_tokens) == (kept_a, kept_b)


def test_pack_adds_special_tokens_and_padding():
    packed = pack([7, 8], [9], max_seq_length=8, **IDS)
    assert packed.input_ids == [1, 7, 8, 2, 9, 2, 0, 0]
    assert packed.input_mask == [1, 1, 1, 1, 1, 1, 0, 0]
    assert packed.segment_ids == [0, 0, 0, 0, 1, 1, 0, 0]
    packed = pack([5, 6, 7, 8, 9], max_seq_length=5, **IDS)
    assert packed.input_ids == [1, 5, 6, 7, 2]
    assert packed.segment_ids == [0] * 5


@given(sentences, sentences, st.integers(min_value=3, max_value=30))
def test_pack_pads_at_the_end_to_the_full_length(a, b, max_seq_length):
    packed = pack(a, b, max_seq_length=max_seq_length, **IDS)
    num_real = sum(packed.input_mask)
    assert [len(values) for values in packed] == [max_seq_length] * 3
    assert packed.input_mask == [1] * num_real + [0] * (max_seq_length - num_real)
    assert (packed.input_ids[0], packed.input_ids[num_real - 1]) == (1, 2)
    assert not any(packed.input_ids[num_real:]) and not any(packed.segment_ids[num_real:])


def test_pack_refuses_a_length_without_room():
    for ids_b, max_seq_length in ((None, 1), ([9], 2)):
        with pytest.raises(ValueError, match="`max_seq_length`"):
            pack([7], ids_b, max_seq_length=max_seq_length, **IDS)


@pytest.mark.parametrize("max_seq_length", [3, 4, 7, 12])
def test_pack_all_equals_pack(max_seq_length):
    rng = random.Random(max_seq_length)
    pairs = [
        ([rng.randrange(5, 99) for _ in range(a)], [rng.randrange(5, 99) for _ in range(b)])
        for a in (0, 1, 2, 5, 20)
        for b in (0, 1, 3, 20)
    ]
    found = pack_all(pairs, max_seq_length=max_seq_length, **IDS)
    each = [pack(*pair, max_seq_length=max_seq_length, **IDS)._asdict() for pair in pairs]
    assert {name: values.tolist() for name, values in found.items()} == {
        name: [sequence[name] for sequence in each] for name in each[0]
    }
    assert {values.dtype.name for values in found.values()} == {"int32"}


# ------------------------------------------------------------------------------------ long documents


def test_sliding_windows_cover_every_token():
    for size, stride in ((6, 1), (6, 4), (6, 6), (6, 9), (1, 1)):
        for num_tokens in (0, 1, 5, 6, 7, 20):
            windows = sliding_windows(num_tokens, size, stride)
            covered = {token for start, end in windows for token in range(start, end)}
            assert covered == set(range(num_tokens))
            assert all(end - start == size for start, end in windows[:-1])
            assert len({end for _, end in windows}) == len(windows)  # none lies within another


def test_window_of_what_fits_is_that_of_pack():
    for pair in (([7, 8], None), ([7, 8], [9]), ([7] * 6, None), ([7] * 3, [9] * 2), ([], [])):
        found = pack_windows(*pair, max_seq_length=8, doc_stride=2, **IDS)
        assert found == [pack(*pair, max_seq_length=8, **IDS)]


def test_windows_of_a_long_sentence_overlap():
    windows = pack_windows(list(range(10, 17)), max_seq_length=6, doc_stride=2, **IDS)
    assert [window.input_ids for window in windows] == [
        [1, 10, 11, 12, 13, 2],
        [1, 12, 13, 14, 15, 2],
        [1, 14, 15, 16, 2, 0],
    ]


@pytest.mark.parametrize("swapped", [False, True])
def test_windows_of_a_pair_slide_over_the_longer(swapped):
    short, long = [5, 6], [10, 11, 12, 13]
    pair = (long, short) if swapped else (short, long)
    windows = pack_windows(*pair, max_seq_length=8, doc_stride=1, **IDS)
    parts = [[10, 11, 12], [11, 12, 13]]
    expected = [[1, *part, 2, *short, 2] if swapped else [1, *short, 2, *part, 2] for part in parts]
    assert [window.input_ids for window in windows] == expected
    assert all(sum(window.segment_ids) == (3 if swapped else 4) for window in windows)


def test_windows_of_two_long_ones_cut_the_other_to_half():
    windows = pack_windows([5] * 9, [7] * 8, max_seq_length=9, doc_stride=3, **IDS)
    assert [window.input_ids for window in windows] == [[1, 5, 5, 5, 2, 7, 7, 7, 2]] * 3
