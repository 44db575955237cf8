"""extract_features: `output.jsonl` in the reference's format, with the numbers of the NumPy BERT."""

from pathlib import Path

import numpy as np
import pytest
from helpers import cause_of, read_json_lines, write_vocab
from models import with_values
from tiny_checkpoints import write_tf1
from tiny_config import tiny_config

from bert_tf.options import make_options
from bert_tf.prediction.extract_features import ExtractionOptions, extract_features
from reference import numpy_bert

TOKENS = (
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
    *("the", "cat", "dog", "##s", "sat", "zu", "##rich", ",", ".", "|", "京"),
)
CONFIG = tiny_config(vocab_size=len(TOKENS), num_hidden_layers=3, max_position_embeddings=13)
VARIABLES = numpy_bert.random_variables(CONFIG, seed=4)
LINES = ["The cats sat.", "the dog ||| Zürich, 京 !", "", "cat"]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A TF1 checkpoint with its configuration and vocabulary."""
    folder = tmp_path_factory.mktemp("checkpoint")
    write_vocab(folder / "vocab.txt", TOKENS)
    write_tf1(folder, VARIABLES, config=CONFIG)
    return folder


@pytest.fixture
def options(checkpoint, tmp_path):
    (tmp_path / "input.txt").write_text("\n".join(LINES) + "\n", encoding="utf-8")
    return make_options(
        ExtractionOptions,
        input_file=str(tmp_path / "input.txt"),
        output_file=str(tmp_path / "new" / "output.jsonl"),
        init_checkpoint=str(checkpoint / "bert_model.ckpt"),
        layers="-1,0",
        max_seq_length=13,
    )


def extracted(options, **changes):
    options = with_values(options, **changes)
    extract_features(options)
    return read_json_lines(options.output_file)


def tokens_of(line):
    return [feature["token"] for feature in line["features"]]


def layers_of(tokens, first_segment=None):
    """What the NumPy BERT computes for `tokens`: one [S, H] per layer."""
    ids = np.array([[TOKENS.index(token) for token in tokens]])
    segments = np.zeros_like(ids)
    segments[:, len(tokens) if first_segment is None else first_segment :] = 1
    encoded = numpy_bert.encode(CONFIG, VARIABLES, ids, np.ones_like(ids), segments)
    return [layer[0] for layer in encoded.all_encoder_layers]


def assert_values(line, expected, layers):
    for position, feature in enumerate(line["features"]):
        for found, layer in zip(feature["layers"], layers, strict=True):
            assert found["index"] == layer
            np.testing.assert_allclose(
                found["values"], expected[layer][position], rtol=0, atol=1.05e-5
            )


def test_json_lines_have_the_keys_of_the_reference_and_the_numpy_bert(options):
    lines = extracted(options)
    assert [tokens_of(line) for line in lines] == [
        ["[CLS]", "the", "cat", "##s", "sat", ".", "[SEP]"],
        ["[CLS]", "the", "dog", "[SEP]", "zu", "##rich", ",", "京", "[UNK]", "[SEP]"],
        ["[CLS]", "[SEP]"],
        ["[CLS]", "cat", "[SEP]"],
    ]
    for index, (line, first_segment) in enumerate(zip(lines, (None, 4, None, None), strict=True)):
        assert list(line) == ["linex_index", "features"]
        assert line["linex_index"] == index
        for feature in line["features"]:
            assert list(feature) == ["token", "layers"]
            assert [list(layer) for layer in feature["layers"]] == [["index", "values"]] * 2
        assert_values(line, layers_of(tokens_of(line), first_segment), (-1, 0))
    values = lines[0]["features"][0]["layers"][0]["values"]
    assert len(values) == CONFIG.hidden_size
    assert values == [round(value, 6) for value in values]


def test_layers_count_from_the_first_or_the_last(options):
    lines = extracted(options, layers="0,-3,1,-1,2")
    for feature in lines[0]["features"]:
        first, minus_three, second, last, third = (x["values"] for x in feature["layers"])
        assert first == minus_three
        assert last == third
        assert len({tuple(values) for values in (first, second, last)}) == 3


def test_long_lines_and_pairs_are_truncated(options):
    Path(options.input_file).write_text("the cat sat the dog\nthe cat sat the dog ||| cats\n")
    single, pair = extracted(options, max_seq_length=7)
    assert tokens_of(single) == ["[CLS]", "the", "cat", "sat", "the", "dog", "[SEP]"]
    assert tokens_of(pair) == ["[CLS]", "the", "cat", "[SEP]", "cat", "##s", "[SEP]"]
    assert_values(pair, layers_of(tokens_of(pair), 4), (-1, 0))


def test_only_bars_between_spaces_and_no_special_token_divide_a_text(options):
    Path(options.input_file).write_text("cat|||dog\nthe ||| cat ||| dog\nthe [MASK]\n")
    assert list(map(tokens_of, extracted(options))) == [
        ["[CLS]", "cat", "|", "|", "|", "dog", "[SEP]"],
        ["[CLS]", "the", "|", "|", "|", "cat", "[SEP]", "dog", "[SEP]"],  # the last ones
        ["[CLS]", "the", *["[UNK]"] * 3, "[SEP]"],  # as in the reference
    ]


def test_files_and_batches_do_not_change_values(options, tmp_path):
    for name, lines in (("a.txt", LINES[:2]), ("b.txt", LINES[2:])):
        (tmp_path / name).write_text("\n".join(lines), encoding="utf-8")
    expected = extracted(options)
    files = f"{tmp_path}/a.txt,{tmp_path}/b.txt"
    for line, other in zip(
        extracted(options, input_file=files, batch_size=1), expected, strict=True
    ):
        assert tokens_of(line) == tokens_of(other)
        for feature, own in zip(line["features"], other["features"], strict=True):
            for layer, values in zip(feature["layers"], own["layers"], strict=True):
                np.testing.assert_allclose(layer["values"], values["values"], rtol=0, atol=2.1e-6)


def test_invalid_options_are_errors_before_anything_is_written(options):
    for changes, message in (
        ({"layers": "-4"}, "layers"),
        ({"layers": "0,3"}, "layers"),
        ({"max_seq_length": 14}, "max_seq_length"),
        ({"input_file": "/nowhere/input.txt"}, "/nowhere/input.txt"),
        ({"init_checkpoint": "/nowhere/bert_model.ckpt"}, "/nowhere"),
    ):
        with pytest.raises((ValueError, OSError), match=message):
            extracted(options, **changes)
        assert not Path(options.output_file).parent.exists(), changes


def test_invalid_files_are_named(options):
    Path(options.input_file).write_bytes(b"cat\nd\xe9j\n")
    assert cause_of(extracted, options) == f"{options.input_file}:2"
