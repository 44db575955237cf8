"""create_pretraining_data: equal to the original script, resumable, and clear about bad input."""

import json
import os
import shutil
import tempfile
from pathlib import Path

import pytest
import tensorflow as tf
from helpers import cause_of
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tiny_groups import GOLDEN, VOCAB, contents, corpus_of, ends_in_group, run_groups, write_inputs

from bert_tf.options import make_options
from bert_tf.pretraining.create_pretraining_data import (
    PretrainingDataOptions,
    create_pretraining_data,
)
from bert_tf.pretraining.manifest import Manifest
from bert_tf.pretraining.run_pretraining import read_record_set
from reference import pretraining_data as reference


def records(file):
    """Feature name -> list of numbers, for each record of a file."""
    result = []
    for data in tf.data.TFRecordDataset(str(file)).as_numpy_iterator():
        features = tf.train.Example.FromString(data).features.feature
        kinds = {name: getattr(f, f.WhichOneof("kind")) for name, f in features.items()}
        result.append({name: list(kind.value) for name, kind in kinds.items()})
    return result


@pytest.mark.parametrize("run", GOLDEN["runs"], ids=["pieces", "whole_words"])
def test_files_equal_those_of_the_original_script(tmp_path, run):
    names = write_inputs(tmp_path)
    names["output_file"] = ",".join(str(tmp_path / name) for name in run["output"])
    create_pretraining_data(make_options(PretrainingDataOptions, **names, **run["flags"]))
    assert {name: records(tmp_path / name) for name in run["output"]} == run["output"]


@pytest.mark.parametrize("run", GOLDEN["runs"], ids=["pieces", "whole_words"])
def test_the_oracle_of_these_tests_equals_the_original_script(run):
    flags = {"do_whole_word_mask": False, **run["flags"]}
    sizes = flags["max_seq_length"], flags["max_predictions_per_seq"]
    # The golden text in plain lower-case words, which is all that the oracle can split.
    texts = [
        text.lower().translate(str.maketrans("ëé", "ee")).replace(".", " .").replace(",", " ,")
        for text in GOLDEN["input"].values()
    ]
    instances = reference.create_instances(
        texts, lambda line: reference.tokenize_words(line, VOCAB), VOCAB, **flags
    )
    expected = [reference.to_record(instance, VOCAB, *sizes) for instance in instances]
    assert reference.deal_out(expected, 2) == list(run["output"].values())


lines = st.lists(
    st.sampled_from(["the", "dogs", "barked", "along", "a", "rainy", "river", "sailors", "far"]),
    max_size=7,
).map(" ".join)
texts = st.builds(
    lambda parts, end: "\n".join(parts) + end,
    st.lists(st.one_of(lines, st.sampled_from(["", " \t"])), max_size=14),
    st.sampled_from(["", "\n", "\r\n\r\n"]),
)
all_flags = st.fixed_dictionaries(
    {
        "random_seed": st.integers(min_value=0, max_value=10**9),
        "dupe_factor": st.integers(min_value=1, max_value=3),
        "max_seq_length": st.integers(min_value=5, max_value=31),
        "short_seq_prob": st.sampled_from([0.0, 0.1, 1.0]),
        "masked_lm_prob": st.sampled_from([0.01, 0.15, 0.6]),
        "max_predictions_per_seq": st.integers(min_value=1, max_value=6),
        "do_whole_word_mask": st.booleans(),
    }
)


@settings(max_examples=40, deadline=None)
@given(corpus=st.lists(texts, min_size=1, max_size=3), flags=all_flags)
def test_instances_equal_the_reference_for_any_corpus_and_flags(tmp_path_factory, corpus, flags):
    folder = tmp_path_factory.mktemp("corpus")
    files = {f"{number}.txt": text for number, text in enumerate([*corpus, "\n\nwalked home"])}
    names = write_inputs(folder, files)
    create_pretraining_data(make_options(PretrainingDataOptions, **names, **flags))
    instances = reference.create_instances(
        files.values(), lambda line: reference.tokenize_words(line, VOCAB), VOCAB, **flags
    )
    sizes = flags["max_seq_length"], flags["max_predictions_per_seq"]
    expected = [reference.to_record(instance, VOCAB, *sizes) for instance in instances]
    assert records(names["output_file"]) == expected


# Output


def test_the_summary_counts_what_was_read_and_written(tmp_path):
    names = write_inputs(tmp_path)
    summary = create_pretraining_data(
        make_options(PretrainingDataOptions, **names, max_seq_length=21)
    )
    written = records(names["output_file"])
    assert summary.output_files == (names["output_file"],)
    counts = summary.counts
    assert (counts.documents, counts.sentences) == (4, 14)
    assert counts.instances == len(written)
    assert counts.random_next == sum(r["next_sentence_labels"][0] for r in written)
    assert counts.predictions == sum(sum(r["masked_lm_weights"]) for r in written)
    assert counts.instance_tokens == sum(sum(r["input_mask"]) for r in written)


# Input


def run_with(folder, texts=GOLDEN["input"], vocab=GOLDEN["vocab"], **changes):
    names = write_inputs(folder, texts, vocab)
    create_pretraining_data(
        make_options(PretrainingDataOptions, **{**names, "max_seq_length": 16, **changes})
    )


DOG = {"a.txt": "the dog\n"}
REFUSED = [  # texts, options, the option or the place that is named
    (DOG | {"b.txt": b"the dog\r\n\r\nthe \xff cat\r\n"}, {}, "b.txt:3"),
    ({"b.txt": b"\xc3\xa9" * 700_001 + b"\xe9\n"}, {}, "b.txt:1"),
    ({"b.txt": "\n\n \t\n\u200b\n\u00ad\n"}, {}, "b.txt"),
    ({"a.txt": "dog\n\ncat\n\nthe\n"}, {"objective": "mlm_sop"}, "a.txt"),  # no instance
    (DOG, {"do_lower_case": True}, "do_lower_case"),
    (DOG, {"output_file": " , "}, "output_file"),
    (DOG, {"output_file": "out,out"}, "output_file"),
]


def test_input_that_cannot_be_used_is_named_and_leaves_nothing(tmp_path):
    for number, (texts, changes, expected) in enumerate(REFUSED):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "tokenizer_config.json").write_text('{"do_lower_case": false}')
        found = cause_of(run_with, folder, texts, **{"do_lower_case": False, **changes})
        assert found.removeprefix(f"{folder}/") == expected
        assert not list(folder.glob("out/*.tf_record")), expected


def test_an_input_file_is_never_overwritten(tmp_path):
    (tmp_path / "link_to_a").symlink_to(tmp_path / "a.txt")
    with pytest.raises(ValueError, match="output_file"):
        run_with(tmp_path, output_file=f"{tmp_path}/link_to_a")
    assert (tmp_path / "a.txt").read_text("utf-8") == GOLDEN["input"]["a.txt"]


def test_a_single_document_which_has_no_random_next_is_warned_about(tmp_path, caplog):
    run_with(tmp_path, {"one.txt": "the dog barked\nthe cat walked\n"})
    assert "single document" in caplog.text


# Ways to mask


def test_records_without_masks_hold_the_text_as_it_is(tmp_path):
    run_with(tmp_path, {"a.txt": corpus_of(6)}, masking="none", dupe_factor=1)
    written = records(tmp_path / "out/data.tf_record")
    names = {"input_ids", "input_mask", "segment_ids", "next_sentence_labels"}
    assert all(set(record) == names for record in written)
    assert not any(VOCAB["[MASK]"] in record["input_ids"] for record in written)
    assert all(record["input_ids"].count(VOCAB["[SEP]"]) == 2 for record in written)


def test_whole_chinese_words_are_masked_together_where_spaces_divide_the_text(tmp_path):
    vocab = list(dict.fromkeys([*GOLDEN["vocab"], *"使用语言模型来预测下一个词的概率"]))
    lines = "使用 语言 模型 来 预测 the river 下一个 词 的 概率\n" * 4
    masks = {"masked_lm_prob": 0.3, "mask_token_prob": 1.0, "random_token_prob": 0.0}
    words = {"do_whole_word_mask": True, "segmented_text": True, "max_seq_length": 64}
    run_with(tmp_path, {"a.txt": f"{lines}\n{lines}"}, vocab, dupe_factor=4, **masks, **words)
    together = 0
    for record in records(tmp_path / "out/data.tf_record"):
        assert max(record["input_ids"]) < len(vocab)
        labels = dict(zip(record["masked_lm_positions"], record["masked_lm_ids"], strict=True))
        text = "".join(vocab[labels.get(position, 0)] for position in range(1, 64))
        together += sum(text.count(word) for word in ("使用", "语言", "模型", "预测", "下一个"))
    assert together > 20


# Groups


def test_a_group_is_what_the_reference_makes_of_its_text_with_its_seed(tmp_path):
    summary = run_groups(tmp_path, "out")
    manifest = Manifest.read(summary.manifest_file)
    assert len({group.seed for group in manifest.groups.values()}) == manifest.num_groups > 2
    data = {str(tmp_path / n): (tmp_path / n).read_bytes() for n in ("a.txt", "b.txt")}
    for group in manifest.groups.values():
        texts = [data[part["file"]][part["start"] : part["end"]].decode() for part in group.input]
        instances = reference.create_instances(
            texts,
            lambda line: reference.tokenize_words(line, VOCAB),
            VOCAB,
            random_seed=group.seed,
            dupe_factor=2,
            max_seq_length=24,
            short_seq_prob=0.1,
            masked_lm_prob=0.15,
            max_predictions_per_seq=4,
            do_whole_word_mask=False,
        )
        expected = [reference.to_record(instance, VOCAB, 24, 4) for instance in instances]
        found = [records(tmp_path / "out" / shard.file) for shard in group.shards]
        assert found == reference.deal_out(expected, 2)


def test_remote_files_go_through_gfile(tmp_path):
    local = run_groups(tmp_path, "out")
    folder = "ram://bert_tf_pretraining_data"
    for name in ("a.txt", "b.txt"):
        tf.io.gfile.copy(str(tmp_path / name), f"{folder}/{name}", overwrite=True)
    names = {"input_file": f"{folder}/a.txt,{folder}/b.txt"}
    remote = run_groups(tmp_path, "-", **names, output_file=f"{folder}/x,{folder}/y")
    for found, expected in zip(remote.output_files, local.output_files, strict=True):
        assert tf.io.gfile.GFile(found, "rb").read() == Path(expected).read_bytes()
    read_record_set(",".join(remote.output_files))


def test_the_manifest_describes_the_set(tmp_path):
    summary = run_groups(tmp_path, "out")
    values = json.loads(Path(summary.manifest_file).read_text())
    shards = [shard for group in values["groups"] for shard in group["shards"]]
    count = values["num_groups"]
    names = [f"{n}-{i:05d}-of-{count:05d}" for i in range(count) for n in ("x", "y")]
    found = {shard["file"]: shard["records"] for shard in shards}
    assert found == {name: len(records(tmp_path / "out" / name)) for name in names}
    assert values["complete"] is True
    assert values["totals"]["masked_share"] == pytest.approx(0.15, abs=0.03)
    assert values["flags"]["max_predictions_per_seq"] == 4


# Resuming


class StoppedAndSpoiltRuns(RuleBasedStateMachine):
    """Whatever happened to a set of four groups, one more run makes it what a single run makes."""

    def __init__(self):
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.whole = self.make("whole")
        self.expected = contents(self.folder / "whole")
        assert len(self.whole.output_files) == 2 * 4
        self.names = [Path(file).name for file in self.whole.output_files]
        self.out = self.folder / "out"
        self.out.mkdir()

    def make(self, name, **changes):
        return run_groups(self.folder, name, max_group_bytes=2200, dupe_factor=1, **changes)

    def teardown(self):
        shutil.rmtree(self.folder)

    def is_made(self, name):
        path = self.out / name
        return path.exists() and path.stat().st_size == len(self.expected[name])

    @property
    def made(self):
        """The numbers of the groups whose two files are whole."""
        pairs = zip(self.names[::2], self.names[1::2], strict=True)
        return {i for i, pair in enumerate(pairs) if all(map(self.is_made, pair))}

    @rule()
    def run(self):
        made, times = self.made, {}
        for name in self.names:
            times[name] = (self.out / name).stat().st_mtime_ns if self.is_made(name) else None
        assert self.make("out").counts == self.whole.counts
        assert contents(self.out) == self.expected
        for number in made:
            for name in self.names[2 * number : 2 * number + 2]:
                assert (self.out / name).stat().st_mtime_ns == times[name]

    @rule(number=st.integers(0, 3))
    def end_in_a_group(self, number):
        is_made = number in self.made
        with ends_in_group(self.whole, number) as path:
            if not is_made:
                assert cause_of(self.make, "out").startswith(f"{path}:")
        assert is_made or self.made >= set(range(number))

    @precondition(lambda self: any((self.out / name).exists() for name in self.names))
    @rule(data=st.data(), is_removed=st.booleans())
    def spoil_a_file(self, data, is_removed):
        paths = [self.out / name for name in self.names if (self.out / name).exists()]
        path = data.draw(st.sampled_from(paths))
        if is_removed:
            path.unlink()
        else:
            with open(path, "ab") as file:
                file.write(b"more")

    @precondition(lambda self: (self.out / "x.manifest.json").exists() and self.made)
    @rule(change=st.sampled_from(["flag", "vocabulary", "time"]))
    def run_with_other_settings(self, change):
        before, changes = contents(self.out), {}
        path = self.folder / {"vocabulary": "vocab.txt"}.get(change, "a.txt")
        data, time = path.read_bytes(), path.stat().st_mtime_ns
        if change == "flag":
            changes = {"random_seed": 7}
        elif change == "vocabulary":
            path.write_bytes(data + b"more\n")
        else:
            os.utime(path, ns=(time + 7, time + 7))
        found = cause_of(self.make, "out", **changes)
        path.write_bytes(data)
        os.utime(path, ns=(time, time))
        assert found == f"{self.out}/x.manifest.json"
        assert contents(self.out) == before

    @rule()
    def remove_all(self):
        shutil.rmtree(self.out)
        self.out.mkdir()

    @invariant()
    def a_reader_takes_whole_sets_only(self):
        path = self.out / "x.manifest.json"
        if path.exists() and any((self.out / name).exists() for name in self.names):
            if len(self.made) == 4:
                assert len(read_record_set(f"{self.out}/*").files) == 8
            else:
                assert cause_of(read_record_set, f"{self.out}/*") == str(path)


StoppedAndSpoiltRuns.TestCase.settings = settings(
    max_examples=9, stateful_step_count=7, deadline=None
)
TestStoppedAndSpoiltRuns = StoppedAndSpoiltRuns.TestCase


def test_what_is_left_of_a_lost_group_is_no_set():
    runs = StoppedAndSpoiltRuns()
    runs.end_in_a_group(1)
    (runs.out / runs.names[0]).unlink()
    runs.end_in_a_group(0)
    runs.a_reader_takes_whole_sets_only()
    assert not list(runs.out.glob("*-of-*"))
    runs.teardown()


def test_records_without_a_manifest_are_kept(tmp_path):
    (tmp_path / "out").mkdir()
    file = tmp_path / "out/data.tf_record"
    file.write_bytes(b"somebody's")
    assert cause_of(run_with, tmp_path) == str(file)
    assert file.read_bytes() == b"somebody's"


# Reading


def test_a_set_is_read_also_in_part_and_moved(tmp_path):
    summary = run_groups(tmp_path, "r[1]?")
    manifest = Manifest.read(summary.manifest_file)
    for files in (summary.output_files[2], f"{tmp_path}/moved/*"):
        assert list(read_record_set(files).manifests.values()) == [manifest]
        if (tmp_path / "r[1]?").exists():
            (tmp_path / "r[1]?").rename(tmp_path / "moved")
