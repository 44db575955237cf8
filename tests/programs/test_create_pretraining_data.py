"""create_pretraining_data: equal to the original script, resumable, and clear about bad input."""

import json
import logging
import os
from pathlib import Path

import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_groups import GOLDEN, VOCAB, contents, corpus_of, run_groups, write_inputs

from bert_tf.pretraining.instances import pretraining_features
from bert_tf.pretraining.make_group import make_group
from bert_tf.pretraining.manifest import (
    check_record_sets,
    check_vocabulary_of_records,
    expand_record_files,
    read_manifest,
    read_record_set,
)
from bert_tf.programs.create_pretraining_data import (
    PretrainingDataOptions,
    create_pretraining_data,
)
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
    create_pretraining_data(PretrainingDataOptions(**names, **run["flags"]))
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


@settings(max_examples=100, deadline=None)
@given(corpus=st.lists(texts, min_size=1, max_size=3), flags=all_flags)
def test_instances_equal_the_reference_for_any_corpus_and_flags(tmp_path_factory, corpus, flags):
    folder = tmp_path_factory.mktemp("corpus")
    files = {f"{number}.txt": text for number, text in enumerate([*corpus, "\n\nwalked home"])}
    names = write_inputs(folder, files)
    create_pretraining_data(PretrainingDataOptions(**names, **flags))
    instances = reference.create_instances(
        files.values(), lambda line: reference.tokenize_words(line, VOCAB), VOCAB, **flags
    )
    sizes = flags["max_seq_length"], flags["max_predictions_per_seq"]
    expected = [reference.to_record(instance, VOCAB, *sizes) for instance in instances]
    assert records(names["output_file"]) == expected


# Output


def test_the_summary_counts_what_was_read_and_written(tmp_path):
    names = write_inputs(tmp_path)
    summary = create_pretraining_data(PretrainingDataOptions(**names, max_seq_length=21))
    written = records(names["output_file"])
    assert summary.output_files == (names["output_file"],)
    counts = summary.counts
    assert (counts.documents, counts.sentences) == (4, 14)
    assert counts.random_next == sum(r["next_sentence_labels"][0] for r in written)
    assert counts.predictions == sum(sum(r["masked_lm_weights"]) for r in written)
    assert counts.instance_tokens == sum(sum(r["input_mask"]) for r in written)
    assert f"{len(written):,} instances from 4 documents, 14 sentences" in str(summary)


def test_the_first_twenty_instances_are_logged_in_full(tmp_path, caplog):
    names = write_inputs(tmp_path)
    with caplog.at_level(logging.INFO):
        create_pretraining_data(PretrainingDataOptions(**names, max_seq_length=19))
    logged = [text for text in caplog.messages if text.startswith("*** Example ***")]
    assert len(logged) == 20
    first = records(names["output_file"])[0]
    assert logged[0].splitlines()[2] == f"input_ids: {' '.join(map(str, first['input_ids']))}"


# Input


def run_with(folder, texts=GOLDEN["input"], vocab=GOLDEN["vocab"], **changes):
    names = write_inputs(folder, texts, vocab)
    create_pretraining_data(PretrainingDataOptions(**{**names, "max_seq_length": 16, **changes}))


def test_flags_of_beam_need_a_runner():
    options = {"input_file": "a", "output_file": "b", "vocab_file": "c"}
    with pytest.raises(ValueError, match="stray"):
        PretrainingDataOptions(**options, runner_flags=("stray",))


@pytest.mark.parametrize(
    "texts, message",
    [
        (
            {"a.txt": "the dog\n", "bad.txt": b"the dog\r\n\r\nthe \xff cat\r\n"},
            r"bad\.txt:3: .* 15 ",
        ),
        ({"bad.txt": b"the dog\nthe caf\xc3"}, r"bad\.txt:2: .* 15 "),
        ({"bad.txt": b"\xc3\xa9" * 700_001 + b"\xe9\n"}, r"bad\.txt:1: .* 1400002 "),
        ({"empty.txt": "\n\n \t\n\u200b\n\u00ad\n"}, r"empty\.txt"),
        ({"wiki_00": '<doc id="5" title="T">\nT\n\nThe dog barked.\n</doc>\n'}, "wiki_00"),
        ({"a.txt": "the dog\n".encode("utf-16")}, r"a\.txt"),
    ],
)
def test_a_text_that_cannot_be_used_is_named_and_leaves_no_record(tmp_path, texts, message):
    with pytest.raises(ValueError, match=message):
        run_with(tmp_path, texts)
    assert not list(tmp_path.glob("out/*.tf_record"))


def test_a_corpus_without_any_instance_is_refused_and_leaves_nothing(tmp_path):
    with pytest.raises(ValueError, match=r"a\.txt: no instance .* 3 documents"):
        run_with(tmp_path, {"a.txt": "dog\n\ncat\n\nthe\n"}, objective="mlm_sop")
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize(("objective", "warned"), [("mlm_nsp", True), ("mlm_sop", False)])
def test_random_next_sentences_of_one_document_are_warned_about(
    tmp_path, caplog, objective, warned
):
    run_with(tmp_path, {"one.txt": "the dog barked\nthe cat walked\n"}, objective=objective)
    assert ("1 of 1 parts of the text are a single document" in caplog.text) == warned


def test_a_vocabulary_of_the_other_case_is_warned_about(tmp_path, caplog):
    cased = [f"{first}{second}" for first in "ABCDEFGHIJK" for second in "abcdefghijk"]
    run_with(tmp_path, vocab=GOLDEN["vocab"] + cased, do_lower_case=True)
    assert "do_lower_case=False" in caplog.text


def test_a_case_against_the_file_next_to_the_vocabulary_is_an_error(tmp_path):
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    with pytest.raises(ValueError, match=r"do_lower_case.*config\.json"):
        run_with(tmp_path, do_lower_case=True)
    run_with(tmp_path, do_lower_case=False)


@pytest.mark.parametrize("outputs", [" , ", "out,out"])
def test_output_files_must_be_different_ones(tmp_path, outputs):
    with pytest.raises(ValueError, match="output_file"):
        run_with(tmp_path, output_file=outputs)


@pytest.mark.parametrize("spelling", ["a.txt", "./a.txt", "link/a.txt", "link_to_a"])
def test_an_input_file_is_never_overwritten(tmp_path, spelling):
    (tmp_path / "link").symlink_to(tmp_path)
    (tmp_path / "link_to_a").symlink_to(tmp_path / "a.txt")
    with pytest.raises(ValueError, match=r"a.* is also an input"):
        run_with(tmp_path, output_file=f"{tmp_path}/{spelling}")
    assert (tmp_path / "a.txt").read_text("utf-8") == GOLDEN["input"]["a.txt"]


# Ways to mask


def test_records_without_masks_hold_the_text_as_it_is(tmp_path):
    run_with(tmp_path, {"a.txt": corpus_of(6)}, masking="none", dupe_factor=1)
    written = records(tmp_path / "out/data.tf_record")
    names = {"input_ids", "input_mask", "segment_ids", "next_sentence_labels"}
    assert all(set(record) == names for record in written)
    assert not any(VOCAB["[MASK]"] in record["input_ids"] for record in written)
    assert all(record["input_ids"].count(VOCAB["[SEP]"]) == 2 for record in written)


@pytest.mark.parametrize("objective", ["mlm", "mlm_sop"])
@pytest.mark.parametrize("max_ngram_size", [1, 3])
def test_other_objectives_make_records_of_the_declared_features(
    tmp_path, objective, max_ngram_size
):
    changes = {"objective": objective, "max_ngram_size": max_ngram_size, "dupe_factor": 2}
    run_with(tmp_path, {"a.txt": corpus_of(9)}, **changes)
    written = records(tmp_path / "out/data.tf_record")
    specs = pretraining_features(16, 3, objective)
    assert all(set(record) == {spec.name for spec in specs} for record in written)
    ends = 1 if objective == "mlm" else 2
    assert all(record["input_ids"].count(VOCAB["[SEP]"]) == ends for record in written)
    assert all(0 < sum(record["masked_lm_weights"]) <= 3 for record in written)


def test_whole_chinese_words_are_masked_together_where_spaces_divide_the_text(tmp_path):
    vocab = [*GOLDEN["vocab"], *"使用语言模型来预测下一个词的概率"]
    vocab = list(dict.fromkeys(vocab))
    lines = "使用 语言 模型 来 预测 the river 下一个 词 的 概率\n" * 4
    run_with(
        tmp_path,
        {"a.txt": f"{lines}\n{lines}"},
        vocab=vocab,
        do_whole_word_mask=True,
        segmented_text=True,
        masked_lm_prob=0.3,
        mask_token_prob=1.0,
        random_token_prob=0.0,
        max_seq_length=64,
        dupe_factor=4,
    )
    ids = {token: i for i, token in enumerate(vocab)}
    words = [tuple(ids[c] for c in word) for word in ("使用", "语言", "模型", "预测", "下一个")]
    together = 0
    for record in records(tmp_path / "out/data.tf_record"):
        assert max(record["input_ids"]) < len(vocab)
        tokens = dict(zip(record["masked_lm_positions"], record["masked_lm_ids"], strict=True))
        for word in words:
            for start in range(1, 60):
                if tokens.get(start) == word[0]:
                    inside = [tokens.get(start + k) for k in range(len(word))]
                    together += inside == list(word)
    assert together > 20


# Groups and workers

LIMITS = {"vocab_size": ("`vocab_size`", len(VOCAB)), "max_seq_length": ("--max_seq_length", 24)}


@pytest.mark.night
def test_the_records_do_not_depend_on_the_number_of_workers(tmp_path):
    summary = run_groups(tmp_path, "one")
    run_groups(tmp_path, "three", num_workers=3)
    assert len(summary.output_files) > 4
    assert contents(tmp_path / "one") == contents(tmp_path / "three")


def test_a_group_is_what_the_reference_makes_of_its_text_with_its_seed(tmp_path):
    summary = run_groups(tmp_path, "out")
    manifest = read_manifest(summary.manifest_file)
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
    check_record_sets(remote.output_files, LIMITS)


def test_the_manifest_describes_the_set(tmp_path):
    summary = run_groups(tmp_path, "out")
    values = json.loads(Path(summary.manifest_file).read_text())
    count = values["num_groups"]
    names = [f"{n}-{i:05d}-of-{count:05d}" for i in range(count) for n in ("x", "y")]
    shards = [shard for group in values["groups"] for shard in group["shards"]]
    assert [shard["file"] for shard in shards] == names
    assert [shard["records"] for shard in shards] == [
        len(records(tmp_path / "out" / name)) for name in names
    ]
    assert values["complete"] is True
    assert values["totals"]["masked_share"] == pytest.approx(0.15, abs=0.03)
    assert values["flags"]["max_predictions_per_seq"] == 4


# Resuming


def test_a_run_that_was_stopped_goes_on_with_the_groups_that_are_missing(
    tmp_path, monkeypatch, caplog
):
    run_groups(tmp_path, "whole")

    def stop_at_third(job, settings, on_progress=None):
        if job.number == 2:
            raise KeyboardInterrupt
        return make_group(job, settings, on_progress)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("bert_tf.programs.create_pretraining_data.make_group", stop_at_third)
        run_groups(tmp_path, "out")
    times = {p.name: p.stat().st_mtime_ns for p in (tmp_path / "out").glob("[xy]-*")}
    assert len(times) == 4
    with caplog.at_level(logging.INFO):
        run_groups(tmp_path, "out")
    assert "Resuming: 2 of" in caplog.text
    assert all((tmp_path / "out" / n).stat().st_mtime_ns == t for n, t in times.items())
    found, expected = contents(tmp_path / "out"), contents(tmp_path / "whole")
    assert found == expected


def test_a_finished_set_is_left_as_it_is_and_a_missing_file_made_again(tmp_path, caplog):
    summary = run_groups(tmp_path, "out")
    before = contents(tmp_path / "out")
    with caplog.at_level(logging.INFO):
        assert run_groups(tmp_path, "out") == summary
    assert "Nothing to do" in caplog.text
    Path(summary.output_files[3]).unlink()
    with open(summary.output_files[0], "ab") as file:
        file.write(b"more")
    run_groups(tmp_path, "out")
    assert contents(tmp_path / "out") == before


def test_a_run_that_ended_before_its_first_records_does_not_stop_the_next_one(tmp_path):
    run_groups(tmp_path, "whole")
    (tmp_path / "a.bin").write_bytes(b"the dog\n" * 200 + "caf\xe9".encode("latin-1"))
    with pytest.raises(ValueError, match="not UTF-8"):
        run_groups(tmp_path, "out", input_file=f"{tmp_path}/a.bin")
    run_groups(tmp_path, "out")
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_records_with_other_settings_are_kept_and_the_difference_named(tmp_path):
    run_groups(tmp_path, "out")
    before = contents(tmp_path / "out")
    with pytest.raises(ValueError, match=r"random_seed: 12345 there, 7 now.*output_file"):
        run_groups(tmp_path, "out", random_seed=7)
    with (tmp_path / "vocab.txt").open("a") as file:
        file.write("more\n")
    with pytest.raises(ValueError, match=r"x\.manifest\.json .*vocab_file"):
        run_groups(tmp_path, "out")
    second = (tmp_path / "a.txt").stat().st_mtime_ns // 10**9 * 10**9
    os.utime(tmp_path / "a.txt", ns=(second + 7, second + 7))
    with pytest.raises(ValueError, match="input files"):
        run_groups(tmp_path, "out")
    assert contents(tmp_path / "out") == before


def test_records_without_a_manifest_are_kept(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out/data.tf_record").write_bytes(b"somebody's")
    with pytest.raises(ValueError, match=r"data\.tf_record exists"):
        run_with(tmp_path)
    assert (tmp_path / "out/data.tf_record").read_bytes() == b"somebody's"


# Reading


def test_a_set_is_read_where_it_agrees_with_its_manifest_also_in_part_and_moved(tmp_path):
    summary = run_groups(tmp_path, "r[1]?")
    check_record_sets(summary.output_files, LIMITS)
    check_record_sets(summary.output_files[2:3], LIMITS)
    (tmp_path / "r[1]?").rename(tmp_path / "moved")
    check_record_sets([f.replace("/r[1]?/", "/moved/") for f in summary.output_files], LIMITS)
    (tmp_path / "foreign.tf_record").write_bytes(b"")  # without a manifest
    check_record_sets([str(tmp_path / "foreign.tf_record")], LIMITS)


def test_sets_with_numbers_in_their_names_are_sets_of_their_own(tmp_path):
    files = [f"{tmp_path}/out/{name}" for name in ("x", "x-00000-of-00002", "x-00001-of-00002")]
    for file in files:
        run_groups(tmp_path, "out", output_file=file, max_group_bytes=10**6)
    check_record_sets(files, LIMITS)
    check_record_sets(files[1:], LIMITS)


def test_an_unfinished_damaged_or_other_set_is_refused_by_name(tmp_path):
    summary = run_groups(tmp_path, "out")
    files = summary.output_files
    with pytest.raises(ValueError, match=r"max_seq_length.* = 24, but .*max_seq_length is 32"):
        check_record_sets(files, {"max_seq_length": ("--max_seq_length", 32)})
    with pytest.raises(ValueError, match=rf"vocab_size.* = {len(VOCAB)}, but .* is 9"):
        check_record_sets(files, {"vocab_size": ("`vocab_size` of the model", 9)})
    stale = tmp_path / "out/x-00000-of-00099"  # of an earlier run
    stale.write_bytes(b"")
    with pytest.raises(ValueError, match=stale.name):
        check_record_sets([*files, str(stale)], LIMITS)
    Path(files[-1]).unlink()
    with pytest.raises(ValueError, match=Path(files[-1]).name):
        check_record_sets(files[:1], LIMITS)
    values = json.loads(Path(summary.manifest_file).read_text())
    values["groups"].pop()
    Path(summary.manifest_file).write_text(json.dumps(values))
    with pytest.raises(ValueError, match=r"only \d of \d groups"):
        check_record_sets(files[:1], LIMITS)


def test_a_glob_of_the_records_leaves_out_their_manifest(tmp_path):
    run_with(tmp_path)
    (manifest,) = tmp_path.rglob("*.manifest.json")
    name = str(manifest).removesuffix(".manifest.json")
    assert expand_record_files(f"{name}*") == [name]
    with pytest.raises(ValueError, match=r"\.manifest\*"):
        expand_record_files(f"{name}.manifest*")


@pytest.mark.parametrize("change", [lambda text: text + b"\n", lambda text: b"\xef\xbb\xbf" + text])
def test_ends_and_byte_order_mark_of_the_vocabulary_do_not_make_it_another(tmp_path, change):
    write_inputs(tmp_path, {"a.txt": corpus_of(40), "b.txt": corpus_of(25)})
    vocab_file = tmp_path / "vocab.txt"
    text = vocab_file.read_bytes().removesuffix(b"\n")
    vocab_file.write_bytes(change(text))
    summary = run_groups(tmp_path, "out")
    vocab_file.write_bytes(text.replace(b"\n", b" \r\n"))
    found = read_record_set(summary.output_files, 24)
    check_vocabulary_of_records(found, list(VOCAB), str(vocab_file))
