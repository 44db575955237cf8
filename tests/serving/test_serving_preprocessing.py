"""The preprocessing of a TF Hub encoder: the ids of our tokenizer, packed as tensorflow-text packs."""

from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text
import tiny_text_models as tiny

from bert_tf.serving.other_names import INPUTS, TF_HUB
from bert_tf.serving.preprocessing import preprocessor
from bert_tf.tokenization import BasicTokenizer, FullTokenizer

CLS, SEP, PAD, MASK = (tiny.TOKENS.index(f"[{name}]") for name in ("CLS", "SEP", "PAD", "MASK"))
NAMES = INPUTS[TF_HUB]


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    served = SimpleNamespace(  # all that is read of a model
        vocabulary={token: index for index, token in enumerate(tiny.TOKENS)},
        do_lower_case=True,
        max_seq_length=200,
        config=SimpleNamespace(max_position_embeddings=200),
        cls_id=CLS,
        sep_id=SEP,
    )
    folder = str(tmp_path_factory.mktemp("preprocess"))
    root = preprocessor(served)
    tf.saved_model.save(root, folder, signatures={"serving_default": root.__call__})
    return tf.saved_model.load(folder)


def expected_packing(segments, seq_length):
    """What TF Hub's own preprocessing does, by the parts of tensorflow-text that it uses."""
    trimmer = tensorflow_text.RoundRobinTrimmer(seq_length - len(segments) - 1)
    rows, types = tensorflow_text.combine_segments(
        trimmer.trim(segments), start_of_sequence_id=CLS, end_of_segment_id=SEP
    )
    ids, _ = tensorflow_text.pad_model_inputs(rows, seq_length, pad_value=PAD)
    types, mask = tensorflow_text.pad_model_inputs(types, seq_length, pad_value=0)
    return dict(zip(NAMES, (ids, mask, types), strict=True))


def ragged(seed, rows=7):
    rng = np.random.default_rng(seed)
    return tf.ragged.constant(
        [rng.integers(5, 20, rng.integers(0, 12)).tolist() for _ in range(rows)], tf.int32
    )


@pytest.mark.parametrize("seq_length", [3, 4, 5, 10, 11, 23])
def test_one_and_two_segments_are_packed_as_by_tf_hub(loaded, seq_length):
    first, second = ragged(1), ragged(2)
    second = tf.concat([second[:-1], tf.ragged.constant([[]], tf.int32)], axis=0)
    for segments in ([first], [first, second], [second, first]):
        found = loaded.bert_pack_inputs(segments, seq_length=seq_length)
        expected = expected_packing(segments, seq_length)
        assert set(found) == set(NAMES)
        for name in NAMES:
            assert found[name].dtype == tf.int32
            np.testing.assert_array_equal(found[name], expected[name], err_msg=name)


def test_words_are_those_of_our_tokenizer(loaded):
    texts = [*tiny.TEXTS, "CATS, the Dögs?", "\x00\u200b", "a\u00a0cat"]
    words = loaded.tokenize(tf.constant(texts))
    assert (words.dtype, words.shape.rank) == (tf.int32, 3)
    full, basic = FullTokenizer(tiny.TOKENS), BasicTokenizer()
    for row, text in zip(words, texts, strict=True):
        assert row.flat_values.numpy().tolist() == full.encode(text)
        assert [full.encode(word) for word in basic.tokenize(text)] == row.to_list()


def test_texts_become_rows_of_128_ids(loaded):
    found = loaded(tf.constant(tiny.TEXTS))
    packed = loaded.bert_pack_inputs([loaded.tokenize(tf.constant(tiny.TEXTS))])
    for name in NAMES:
        assert found[name].shape == (len(tiny.TEXTS), 128)
        np.testing.assert_array_equal(found[name], packed[name])
    ids = FullTokenizer(tiny.TOKENS).encode(tiny.TEXTS[0])
    assert found["input_word_ids"][0, : len(ids) + 2].numpy().tolist() == [CLS, *ids, SEP]
    served = loaded.signatures["serving_default"](sentences=tf.constant(tiny.TEXTS))
    assert {name: value.numpy().tolist() for name, value in served.items()} == {
        name: value.numpy().tolist() for name, value in found.items()
    }


def test_it_works_in_tf_data_with_labels(loaded):
    data = tf.data.Dataset.from_tensor_slices((tiny.TEXTS, np.arange(len(tiny.TEXTS))))
    (inputs, labels), *_ = data.batch(3).map(lambda texts, labels: (loaded(texts), labels))
    assert inputs["input_mask"].shape == (3, 128)
    assert labels.numpy().tolist() == [0, 1, 2]


def test_special_tokens_are_named_as_by_tf_hub(loaded):
    found = loaded.tokenize.get_special_tokens_dict()
    assert {name: int(value) for name, value in found.items()} == {
        "start_of_sequence_id": CLS,
        "end_of_segment_id": SEP,
        "padding_id": PAD,
        "mask_id": MASK,
        "vocab_size": len(tiny.TOKENS),
    }


@pytest.mark.parametrize("seq_length, least", [(1, 2), (201, 2), (2, 3)])
def test_a_length_that_the_encoder_cannot_take_is_refused(loaded, seq_length, least):
    segments = [ragged(1)] * (least - 1)
    message = rf"(?s)`seq_length`.*{seq_length}.*from {least} to 200"
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        loaded.bert_pack_inputs(segments, seq_length=seq_length)
