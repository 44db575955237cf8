"""extract_features in other formats, in several files, and after an interruption."""

import dataclasses
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import tiny_text_models as tiny

from bert_tf.programs import extract_features as extract_features_module
from bert_tf.programs.extract_features import ExtractionOptions, extract_features

LINES = ["the cat sat", "", "owls", "a dog ||| the log .", "who ?", "the mat", "on a mat"]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """The folder of a tiny encoder. No test may change it."""
    trained = tiny.trained(None)
    folder = tmp_path_factory.mktemp("checkpoint")
    tiny.CONFIG.to_json_file(folder / "bert_config.json")
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in tiny.TOKENS))
    weights = trained.model.weights
    tf.raw_ops.SaveV2(
        prefix=str(folder / "bert_model.ckpt"),
        tensor_names=[variable.path for variable in weights],
        shape_and_slices=[""] * len(weights),
        tensors=[variable.numpy() for variable in weights],
    )
    return folder


@pytest.fixture
def extract(checkpoint, tmp_path):
    """Runs extract_features on a copy of the tiny encoder; the folder of its output."""
    folder = shutil.copytree(checkpoint, tmp_path / "checkpoint")
    (tmp_path / "input.txt").write_text("\n".join(LINES) + "\n")

    def run(**changes):
        values = {
            "input_file": str(tmp_path / "input.txt"),
            "output_file": str(tmp_path / "out" / "vectors"),
            "init_checkpoint": str(folder / "bert_model.ckpt"),
            "layers": "-1,0",
            "max_seq_length": 9,
            "batch_size": 2,
        }
        assert extract_features(ExtractionOptions(**{**values, **changes})) == len(LINES)
        return tmp_path / "out"

    return run


def reference_vectors(folder):
    """float [L, T, H] and tokens of each example, from the JSON lines."""
    for line in (folder / "vectors").read_text().splitlines():
        features = json.loads(line)["features"]
        values = [[layer["values"] for layer in token["layers"]] for token in features]
        yield [token["token"] for token in features], np.array(values)


def test_numpy_arrays_hold_what_the_json_lines_hold(extract):
    expected = list(reference_vectors(extract()))
    out = extract(output_format="npz")
    with np.load(out / "vectors") as arrays:
        assert sorted(arrays) == ["example_index", "layers", "row_splits", "tokens", "vectors"]
        assert arrays["vectors"].dtype == np.float32
        assert arrays["layers"].tolist() == [-1, 0]
        assert arrays["example_index"].tolist() == list(range(len(LINES)))
        splits, vectors, tokens = arrays["row_splits"], arrays["vectors"], arrays["tokens"]
    for index, (words, values) in enumerate(expected):
        rows = slice(splits[index], splits[index + 1])
        assert tokens[rows].tolist() == words
        np.testing.assert_allclose(vectors[rows], values, atol=1.5e-6)


def test_records_hold_what_the_json_lines_hold(extract):
    expected = list(reference_vectors(extract()))
    out = extract(output_format="tfrecord")
    records = list(tf.data.TFRecordDataset(str(out / "vectors")))
    for index, (record, (words, values)) in enumerate(zip(records, expected, strict=True)):
        feature = tf.train.Example.FromString(record.numpy()).features.feature
        assert feature["example_index"].int64_list.value == [index]
        assert [t.decode() for t in feature["tokens"].bytes_list.value] == words
        shape = tuple(feature["shape"].int64_list.value)
        found = np.array(feature["vectors"].float_list.value).reshape(shape)
        np.testing.assert_allclose(found, values, atol=1.5e-6)


@pytest.mark.parametrize("output_format", ["jsonl", "tfrecord", "npz"])
def test_several_files_hold_the_examples_in_order(extract, output_format):
    name = f"v.{output_format}"
    out = extract(output_format=output_format, examples_per_shard=3)
    out = extract(output_format=output_format, examples_per_shard=3, output_file=str(out / name))
    names = [f"v-0000{index}-of-00003.{output_format}" for index in range(3)]
    assert sorted(path.name for path in out.glob("v*-of-*." + output_format)) == names
    described = json.loads((out / "v.json").read_text())
    assert (described["files"], described["num_examples"]) == (names, 7)
    assert (described["layers"], described["hidden_size"]) == ([-1, 0], 12)
    if output_format == "npz":
        indexes = [np.load(out / name)["example_index"].tolist() for name in names]
    elif output_format == "jsonl":
        lines = [(out / name).read_text().splitlines() for name in names]
        indexes = [[json.loads(line)["linex_index"] for line in part] for part in lines]
    else:
        indexes = [
            [
                tf.train.Example.FromString(r.numpy()).features.feature["example_index"].int64_list.value[0]
                for r in tf.data.TFRecordDataset(str(out / name))
            ]
            for name in names
        ]  # fmt: skip
    assert indexes == [[0, 1, 2], [3, 4, 5], [6]]


def test_an_interrupted_run_goes_on_behind_the_last_whole_file(extract, monkeypatch, tmp_path):
    whole = extract(examples_per_shard=2, output_file=str(tmp_path / "out" / "whole.jsonl"))
    packed, real = [], extract_features_module.pack_line

    def counting(line, *arguments):
        packed.append(line)
        return real(line, *arguments)

    def interrupted(line, *arguments):
        if line == LINES[4]:
            raise KeyboardInterrupt
        return real(line, *arguments)

    flags = {
        "examples_per_shard": 2,
        "batch_size": 1,
        "output_file": str(tmp_path / "out" / "a.jsonl"),
    }
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(extract_features_module, "pack_line", interrupted)
        patch.setattr(extract_features_module, "_BATCHES_AT_ONCE", 1)
        extract(**flags)
    names = sorted(path.name for path in whole.glob("a*"))
    assert names == ["a-00000-of-00004.jsonl", "a-00001-of-00004.jsonl", "a.json"]
    monkeypatch.setattr(extract_features_module, "pack_line", counting)
    extract(**flags)
    assert packed == LINES[4:]
    for index in range(4):
        name = f"-0000{index}-of-00004.jsonl"
        ours, theirs = (json.loads((whole / f"{stem}{name}").read_text().splitlines()[0])
                        for stem in ("a", "whole"))  # fmt: skip
        assert ours["linex_index"] == theirs["linex_index"] == 2 * index
        for one, other in zip(ours["features"], theirs["features"], strict=True):
            np.testing.assert_allclose(
                one["layers"][0]["values"], other["layers"][0]["values"], atol=2.1e-6
            )
    packed.clear()
    extract(**flags)  # everything is there
    assert packed == []


def test_files_of_other_settings_are_made_anew(extract, tmp_path):
    flags = {"examples_per_shard": 3, "output_file": str(tmp_path / "out" / "a.jsonl")}
    extract(**flags)
    out = extract(**flags, layers="1")
    first = json.loads((out / "a-00000-of-00003.jsonl").read_text().splitlines()[0])
    assert [layer["index"] for layer in first["features"][0]["layers"]] == [1]
    (tmp_path / "input.txt").write_text("\n".join(reversed(LINES)) + "\n")
    extract(**flags, layers="1")
    first = json.loads((out / "a-00000-of-00003.jsonl").read_text().splitlines()[0])
    assert first["features"][1]["token"] == "on"


def test_files_of_a_run_with_other_names_are_removed(tmp_path):
    source = tmp_path / "input.txt"
    source.write_text("a")
    (tmp_path / "other.jsonl").write_text("kept")

    def write(size):
        shards = extract_features_module.Shards(str(tmp_path / "a.jsonl"), "jsonl", 7, size)
        assert shards.resume({}, [str(source)]) == 0
        for path, _ in shards.missing():
            Path(path).write_text(str(size))
        return shards

    write(2)
    described = json.loads((tmp_path / "a.json").read_text())
    described["files"].append("other.jsonl")
    (tmp_path / "a.json").write_text(json.dumps(described))
    shards = write(3)
    assert sorted(map(str, tmp_path.glob("a-*"))) == shards.paths
    assert shards.resume({}, [str(source)]) == 7
    assert (tmp_path / "other.jsonl").read_text() == "kept"


@pytest.mark.parametrize("changed", ["weights", "vocabulary", "configuration"])
def test_files_of_a_changed_model_are_made_anew(extract, tmp_path, changed):
    flags = {"examples_per_shard": 4, "output_file": str(tmp_path / "out" / "a.jsonl")}
    first = extract(**flags) / "a-00000-of-00002.jsonl"
    before, folder = first.read_text(), tmp_path / "checkpoint"
    if changed == "weights":
        prefix = str(folder / "bert_model.ckpt")
        reader = tf.train.load_checkpoint(prefix)
        names = list(reader.get_variable_to_shape_map())
        values = [reader.get_tensor(name) + np.float32(0.1) for name in names]
        tf.raw_ops.SaveV2(
            prefix=prefix, tensor_names=names, shape_and_slices=[""] * len(names), tensors=values
        )
    elif changed == "vocabulary":
        tokens = list(tiny.TOKENS)
        cat, dog = tokens.index("cat"), tokens.index("dog")
        tokens[cat], tokens[dog] = "dog", "cat"
        (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in tokens))
    else:
        dataclasses.replace(tiny.CONFIG, hidden_act="relu").to_json_file(
            folder / "bert_config.json"
        )
    extract(**flags)
    assert first.read_text() != before


@pytest.mark.parametrize("text", ['{"files": []}', "[1]", "not JSON"])
def test_a_json_file_of_another_program_is_kept(extract, tmp_path, text):
    (tmp_path / "texts.json").write_text(text)
    with pytest.raises(ValueError, match=r"texts\.json would be overwritten .*another output_file"):
        extract(examples_per_shard=4, output_file=str(tmp_path / "texts.jsonl"))
    assert (tmp_path / "texts.json").read_text() == text


def test_several_inputs_are_one_after_the_other(extract, tmp_path):
    for name, lines in (("a.txt", LINES[:4]), ("b.txt", LINES[4:])):
        (tmp_path / name).write_text("\n".join(lines))
    out = extract(input_file=f"{tmp_path}/a.txt,{tmp_path}/b.txt")
    assert len((out / "vectors").read_text().splitlines()) == len(LINES)
