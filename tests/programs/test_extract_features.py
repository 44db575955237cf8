"""extract_features: `output.jsonl` in the reference's format, with the numbers of the NumPy BERT."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.programs.extract_features import ExtractionOptions, extract_features
from reference import numpy_bert

TOKENS = (
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
    *("the", "cat", "dog", "##s", "sat", "zu", "##rich", ",", ".", "|", "京"),
)
CONFIG = BertConfig(
    vocab_size=len(TOKENS),
    hidden_size=8,
    num_hidden_layers=3,
    num_attention_heads=2,
    intermediate_size=11,
    max_position_embeddings=13,
    type_vocab_size=2,
)
VARIABLES = numpy_bert.random_variables(CONFIG, seed=4)
LINES = ["The cats sat.", "the dog ||| Zürich, 京 !", "", "cat"]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A TF1 checkpoint with its configuration and vocabulary."""
    folder = tmp_path_factory.mktemp("checkpoint")
    CONFIG.to_json_file(folder / "bert_config.json")
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in TOKENS), encoding="utf-8")
    tf.raw_ops.SaveV2(
        prefix=str(folder / "bert_model.ckpt"),
        tensor_names=list(VARIABLES),
        shape_and_slices=[""] * len(VARIABLES),
        tensors=list(VARIABLES.values()),
    )
    return folder


def options_in(folder, checkpoint):
    (folder / "input.txt").write_text("\n".join(LINES) + "\n", encoding="utf-8")
    return ExtractionOptions(
        input_file=str(folder / "input.txt"),
        output_file=str(folder / "new" / "output.jsonl"),
        init_checkpoint=str(checkpoint / "bert_model.ckpt"),
        layers="-1,0",
        max_seq_length=13,
    )


@pytest.fixture
def options(checkpoint, tmp_path):
    return options_in(tmp_path, checkpoint)


@pytest.fixture(scope="module")
def all_lines(checkpoint, tmp_path_factory):
    """What is extracted by these options."""
    return extracted(options_in(tmp_path_factory.mktemp("lines"), checkpoint))


def extracted(options, **changes):
    options = dataclasses.replace(options, **changes)
    extract_features(options)
    return [json.loads(line) for line in Path(options.output_file).read_text().splitlines()]


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


def test_each_line_has_the_keys_of_the_reference_in_its_order(all_lines):
    for index, line in enumerate(all_lines):
        assert list(line) == ["linex_index", "features"]
        assert line["linex_index"] == index
        for feature in line["features"]:
            assert list(feature) == ["token", "layers"]
            assert [list(layer) for layer in feature["layers"]] == [["index", "values"]] * 2
            assert [layer["index"] for layer in feature["layers"]] == [-1, 0]


def test_tokens_are_those_of_the_line_between_cls_and_sep(all_lines):
    assert [tokens_of(line) for line in all_lines] == [
        ["[CLS]", "the", "cat", "##s", "sat", ".", "[SEP]"],
        ["[CLS]", "the", "dog", "[SEP]", "zu", "##rich", ",", "京", "[UNK]", "[SEP]"],
        ["[CLS]", "[SEP]"],
        ["[CLS]", "cat", "[SEP]"],
    ]


def test_values_equal_the_numpy_bert_to_six_decimals(all_lines):
    for line, first_segment in zip(all_lines, (None, 4, None, None), strict=True):
        assert_values(line, layers_of(tokens_of(line), first_segment), (-1, 0))
    values = all_lines[0]["features"][0]["layers"][0]["values"]
    assert len(values) == CONFIG.hidden_size
    assert values == [round(value, 6) for value in values]


def test_layers_are_counted_from_the_first_or_from_the_last(options):
    lines = extracted(options, layers="0,-3,1,-1,2")
    for feature in lines[0]["features"]:
        first, minus_three, second, last, third = (x["values"] for x in feature["layers"])
        assert first == minus_three
        assert last == third
        assert len({tuple(values) for values in (first, second, last)}) == 3


@pytest.mark.parametrize("batch_size", [1, 3])
def test_the_size_of_the_batches_cannot_be_seen(options, all_lines, batch_size):
    for found, line in zip(extracted(options, batch_size=batch_size), all_lines, strict=True):
        assert tokens_of(found) == tokens_of(line)
        for feature, other in zip(found["features"], line["features"], strict=True):
            for layer, same in zip(feature["layers"], other["layers"], strict=True):
                np.testing.assert_allclose(layer["values"], same["values"], rtol=0, atol=2.1e-6)


def test_a_long_line_loses_its_end_and_a_long_pair_that_of_the_longer(options):
    Path(options.input_file).write_text("the cat sat the dog\nthe cat sat the dog ||| cats\n")
    single, pair = extracted(options, max_seq_length=7)
    assert tokens_of(single) == ["[CLS]", "the", "cat", "sat", "the", "dog", "[SEP]"]
    assert tokens_of(pair) == ["[CLS]", "the", "cat", "[SEP]", "cat", "##s", "[SEP]"]
    assert_values(pair, layers_of(tokens_of(pair), 4), (-1, 0))


def test_only_bars_between_spaces_separate_a_pair_and_the_last_ones_do(options):
    Path(options.input_file).write_text("cat|||dog\nthe ||| cat ||| dog\n")
    first, second = extracted(options)
    assert tokens_of(first) == ["[CLS]", "cat", "|", "|", "|", "dog", "[SEP]"]
    expected = ["[CLS]", "the", "|", "|", "|", "cat", "[SEP]", "dog", "[SEP]"]
    assert tokens_of(second) == expected


def test_special_tokens_in_the_text_are_taken_apart_as_in_the_reference(options):
    Path(options.input_file).write_text("the [MASK]\n")
    assert tokens_of(extracted(options)[0]) == ["[CLS]", "the", *["[UNK]"] * 3, "[SEP]"]


def test_configuration_and_vocabulary_can_be_named_and_another_vocabulary_is_used(
    options, checkpoint, tmp_path
):
    weights = tmp_path / "weights"
    weights.mkdir()
    for path in checkpoint.glob("bert_model.ckpt*"):
        (weights / path.name).write_bytes(path.read_bytes())
    shouting = [token.replace("cat", "CAT") for token in TOKENS]
    (tmp_path / "v.txt").write_text("".join(f"{token}\n" for token in shouting), encoding="utf-8")
    lines = extracted(
        options,
        init_checkpoint=str(weights / "bert_model.ckpt"),
        bert_config_file=str(checkpoint / "bert_config.json"),
        vocab_file=str(tmp_path / "v.txt"),
        do_lower_case=False,
    )
    assert tokens_of(lines[0]) == ["[CLS]", "[UNK]", "[UNK]", "sat", ".", "[SEP]"]


def test_a_folder_of_our_own_with_heads_will_do(options, pretrained):
    lines = extracted(options, init_checkpoint=str(pretrained), layers="-1")
    assert tokens_of(lines[3]) == ["[CLS]", "cat", "[SEP]"]
    assert len(lines[3]["features"][0]["layers"][0]["values"]) == 16


# ------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    "layers, message",
    [
        ("-4", r"layers is -4 and has -4, but the model's 3 layers are -3 to 2. Use .*layers=-1"),
        ("0,3", "has 3, but the model's 3 layers"),
        ("last", "layers is 'last', but must be whole numbers"),
        ("", "layers is '', but must be whole numbers"),
        ("-1,,0", "must be whole numbers"),
    ],
)
def test_layers_that_do_not_exist_are_refused(options, layers, message):
    with pytest.raises(ValueError, match=message):
        extracted(options, layers=layers)
    assert not Path(options.output_file).exists()


def test_an_empty_file_is_refused(options):
    Path(options.input_file).write_text("")
    with pytest.raises(ValueError, match=r"input.txt is empty"):
        extracted(options)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"max_seq_length": 14}, "max_seq_length is 14, .* 13"),
        ({"max_seq_length": 1}, "max_seq_length is 1, .* 2 or more"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"input_file": "/nowhere/input.txt"}, "/nowhere/input.txt"),
        ({"init_checkpoint": "/nowhere/bert_model.ckpt"}, "no checkpoint /nowhere"),
    ],
)
def test_what_cannot_be_extracted_is_refused_before_anything_is_written(options, changes, message):
    with pytest.raises((ValueError, OSError), match=message):
        extracted(options, **changes)
    assert not Path(options.output_file).parent.exists()


@pytest.mark.parametrize("output_format", ["jsonl", "npz", "tfrecord"])
def test_an_output_that_cannot_be_written_is_found_before_the_first_text(
    options, monkeypatch, output_format
):
    monkeypatch.setattr(
        "bert_tf.programs.extract_features.pack_line", lambda *_: pytest.fail("extracted")
    )
    wrong = {"output_format": output_format, "output_file": f"{options.input_file}/vectors"}
    with pytest.raises((ValueError, tf.errors.OpError), match=r"input\.txt"):
        extracted(options, **wrong)


def test_text_that_is_not_utf_8_is_named_by_line(options):
    Path(options.input_file).write_bytes(b"cat\nd\xe9j\xe0\n")
    with pytest.raises(ValueError, match=r"input.txt:2: .*UTF-8"):
        extracted(options)


def test_an_interrupted_run_leaves_the_earlier_output(options, monkeypatch):
    before = extracted(options)

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("bert_tf.programs.extract_features.feature_line", interrupted)
    with pytest.raises(KeyboardInterrupt):
        extract_features(options)
    lines = Path(options.output_file).read_text().splitlines()
    assert [json.loads(line) for line in lines] == before
