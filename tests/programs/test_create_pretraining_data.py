"""create_pretraining_data: equal to the original script, and clear about bad input."""

import hashlib
import json
import logging
import os
from pathlib import Path

import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_groups import GOLDEN, VOCAB, contents, corpus_of, run_groups, write_inputs

from bert_tf.data.records import read_records
from bert_tf.pretraining.instances import pretraining_features
from bert_tf.pretraining.make_group import make_group
from bert_tf.pretraining.manifest import check_record_sets, expand_record_files, read_manifest
from bert_tf.pretraining.settings import RecordSettings
from bert_tf.programs.create_pretraining_data import create_pretraining_data
from bert_tf.programs.pretraining_data_options import PretrainingDataOptions
from bert_tf.programs.pretraining_record_sets import check_vocabulary_of_records, read_record_set
from bert_tf.vocabulary import vocabulary_digest
from reference import pretraining_data as reference


def records(file):
    """Feature name -> list of numbers, for each record of a file."""
    result = []
    for data in tf.data.TFRecordDataset(str(file)).as_numpy_iterator():
        features = tf.train.Example.FromString(data).features.feature
        kinds = {name: getattr(f, f.WhichOneof("kind")) for name, f in features.items()}
        result.append({name: list(kind.value) for name, kind in kinds.items()})
    return result


# ---------------------------------------------------------------------------------------- equality


@pytest.mark.parametrize("run", GOLDEN["runs"], ids=["pieces", "whole_words"])
def test_files_equal_those_of_the_original_script(tmp_path, run):
    names = write_inputs(tmp_path)
    names["output_file"] = ",".join(str(tmp_path / name) for name in run["output"])
    create_pretraining_data(PretrainingDataOptions(**names, **run["flags"]))
    assert {name: records(tmp_path / name) for name in run["output"]} == run["output"]


def test_phases_make_the_records_of_each_length(tmp_path):
    names = write_inputs(tmp_path)
    names["output_file"] = f"{tmp_path}/{{length}}.tf_record, "  # an empty name is ignored
    both = PretrainingDataOptions(**names, phases="16:0.5,24:0.3,16:0.2")
    assert create_pretraining_data(both).max_seq_length == 24
    for length in 16, 24:
        alone = tmp_path / "alone" / f"{length}.tf_record"
        names["output_file"] = str(alone)
        create_pretraining_data(PretrainingDataOptions(**names, max_seq_length=length))
        for ending in ("", ".manifest.json"):
            made = tmp_path / f"{alone.name}{ending}"
            assert made.read_bytes() == Path(f"{alone}{ending}").read_bytes()


def test_records_of_a_later_length_stop_the_run_before_the_first_is_made(tmp_path):
    names = write_inputs(tmp_path)
    names["output_file"] = f"{tmp_path}/{{length}}.tf_record"
    (tmp_path / "24.tf_record").write_text("mine")
    with pytest.raises(ValueError, match=r"24\.tf_record exists without a"):
        create_pretraining_data(PretrainingDataOptions(**names, phases="16:0.5,24:0.5"))
    assert not (tmp_path / "16.tf_record").exists()


def test_phases_that_replace_records_resume_after_the_lengths_that_are_made(
    tmp_path, monkeypatch, caplog
):
    names = write_inputs(tmp_path)
    names["output_file"] = f"{tmp_path}/{{length}}.tf_record"
    phases = {"phases": "16:0.5,24:0.5"}
    create_pretraining_data(PretrainingDataOptions(**names, **phases, random_seed=7))
    old = contents(tmp_path)

    def stop(job, settings, *others):
        if settings.max_seq_length == 24:
            raise KeyboardInterrupt
        return make_group(job, settings, *others)

    again = PretrainingDataOptions(**names, **phases, overwrite=True)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("bert_tf.pretraining.runners.make_group", stop)
        create_pretraining_data(again)
    assert {name: (tmp_path / name).read_bytes() for name in old} == old
    with caplog.at_level("INFO"):
        create_pretraining_data(again)
    assert "Nothing to do" in caplog.text  # of the first length
    names["output_file"] = f"{tmp_path}/alone/{{length}}.tf_record"
    create_pretraining_data(PretrainingDataOptions(**names, **phases))
    for length in 16, 24:
        made = f"{length}.tf_record"
        assert (tmp_path / made).read_bytes() == (tmp_path / "alone" / made).read_bytes()


@pytest.mark.parametrize(
    ("phases", "file", "message"),
    [
        ("16:0.5,24:0.5", "a.tf_record", r"output_file=a.tf_record has no \{length\}"),
        ("16:0.5,24:0.5", "{length}.tf_record,b.tf_record", r"in each name: records-\{length\}"),
        (None, "{length}", r"output_file=\{length\} has \{length\}, .* there are no phases"),
        ("16", "{length}", "phases=16: '16' is not LENGTH:FRACTION"),
        ("4:1", "{length}", "max_seq_length is 4, but must be 5 or more"),
    ],
)
def test_phases_whose_records_cannot_be_made_are_rejected(phases, file, message):
    with pytest.raises(ValueError, match=message):
        options = PretrainingDataOptions(
            input_file="a.txt", output_file=file, vocab_file="vocab.txt", phases=phases
        )
        create_pretraining_data(options)


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


@settings(max_examples=150, deadline=None)
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


# ----------------------------------------------------------------------------------------- program


def test_records_are_read_back_as_batches_of_the_declared_shapes(tmp_path):
    names = write_inputs(tmp_path)
    summary = create_pretraining_data(
        PretrainingDataOptions(**names, max_seq_length=17, max_predictions_per_seq=4)
    )
    specs = pretraining_features(17, 4)
    batches = read_records(
        [names["output_file"]],
        specs,
        batch_size=3,
        shuffle=False,
        repeat=False,
        drop_remainder=False,
    )
    assert {
        name: (tensor.shape[1:], tensor.dtype) for name, tensor in batches.element_spec.items()
    } == {spec.name: (spec.shape, spec.dtype) for spec in specs}
    parsed = list(batches.unbatch())
    assert len(parsed) == summary.counts.instances
    for row, record in zip(parsed, records(names["output_file"]), strict=True):
        assert {name: tf.reshape(row[name], [-1]).numpy().tolist() for name in row} == record


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
    tokens = [GOLDEN["vocab"][i] for i in first["input_ids"][: sum(first["input_mask"])]]
    assert logged[0].splitlines()[1:] == [
        "tokens: " + " ".join(tokens),
        *(
            f"{spec.name}: {' '.join(map(str, first[spec.name]))}"
            for spec in pretraining_features(19, 3)
        ),
    ]


def test_files_of_a_glob_are_read_in_the_order_of_their_names(tmp_path):
    names = write_inputs(tmp_path, {"b.txt": "the river", "a.txt": "the dog", "c.txt": "a cat"})
    by_glob, by_name = tmp_path / "by_glob", tmp_path / "by_name"
    for output, files in ((by_glob, "[abc].txt"), (by_name, "a.txt,b.txt, c.txt")):
        files = ",".join(str(tmp_path / file.strip()) for file in files.split(","))
        changed = {"input_file": files, "output_file": str(output), "max_seq_length": 9}
        create_pretraining_data(PretrainingDataOptions(**{**names, **changed}))
    assert records(by_glob) == records(by_name)


# --------------------------------------------------------------------------------------- bad input


def run_with(folder, texts=GOLDEN["input"], vocab=GOLDEN["vocab"], **changes):
    names = write_inputs(folder, texts, vocab)
    create_pretraining_data(PretrainingDataOptions(**{**names, "max_seq_length": 16, **changes}))


@pytest.mark.parametrize(
    "name, value, message",
    [
        ("input_file", "", "`input_file` is empty"),
        ("max_seq_length", 4, r"must be 5 or more: \[CLS\] A \[SEP\] B \[SEP\]"),
        ("mask_token_prob", 0.95, "more than 1 together"),
        ("masked_lm_prob", 0.0, "masked_lm_prob is 0.0, but must be above 0 and"),
        ("segmented_text", True, "only .*do_whole_word_mask and .*span_masking use"),
        ("runner_flags", ("stray",), "Unknown argument 'stray'.*need .*runner"),
    ],
)
def test_an_option_out_of_range_is_refused_when_it_is_set(name, value, message):
    options = {"input_file": "a", "output_file": "b", "vocab_file": "c", name: value}
    with pytest.raises(ValueError, match=message):
        PretrainingDataOptions(**options)


def test_a_number_of_workers_is_refused_with_a_runner_that_does_not_use_it():
    options = {"input_file": "a", "output_file": "b", "vocab_file": "c", "num_workers": 8}
    with pytest.raises(
        ValueError, match=r"num_workers=8 has no effect with `runner`.*Omit num_workers"
    ):
        PretrainingDataOptions(**options, runner="DirectRunner")
    PretrainingDataOptions(**options)


def test_a_pattern_without_files_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"No file matches '.*missing-\*\.txt'"):
        run_with(tmp_path, input_file=f"{tmp_path}/a.txt,{tmp_path}/missing-*.txt")


@pytest.mark.parametrize(
    "data, offset",
    [
        (b"the dog\r\n\r\nthe \xff cat\r\n", 15),
        (b"the dog\nthe caf\xc3", 15),
        (b"\xc3\xa9" * 700_001 + b"\xe9\n", 1_400_002),
    ],
    ids=["stray_byte", "cut_off_at_the_end", "after_more_than_a_block"],
)
def test_text_that_is_not_utf8_is_named_with_file_and_byte_offset(tmp_path, data, offset):
    with pytest.raises(
        ValueError,
        match=rf"bad\.txt:\d+: .*UTF-8: byte 0x\w\w at offset {offset} of "
        r".*errors=replace",
    ):
        run_with(tmp_path, {"good.txt": "the dog\n", "bad.txt": data})


def test_a_file_that_is_no_text_has_no_warning_before_the_error(tmp_path, caplog):
    with pytest.raises(ValueError, match=r"\.bin:2: .*not UTF-8.*errors=replace"):
        run_with(tmp_path, {"a.bin": "été\n".encode() + b"\xe9\xff \xb2\xe4 \xfa\n" * 20})
    assert not caplog.records


@pytest.mark.parametrize("text", ["", "\n\n \t\n", "\u200b\n\u00ad\n"])
def test_a_corpus_without_text_is_refused(tmp_path, text):
    with pytest.raises(ValueError, match=r"no text in .*empty\.txt.*one sentence per line"):
        run_with(tmp_path, {"empty.txt": text})


def test_a_corpus_without_any_instance_is_refused(tmp_path):
    with pytest.raises(
        ValueError, match=r"the 3 documents in .*a\.txt: a document needs two or more"
    ):
        run_with(tmp_path, {"a.txt": "dog\n\ncat\n\nthe\n"}, objective="mlm_sop")
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize(
    "line",
    ['<doc id="5" url="https://x" title="T">', '{"id": "5", "title": "T", "text": "The dog."}'],
)
def test_output_of_wikiextractor_is_an_error_that_names_prepare_corpus(tmp_path, line):
    with pytest.raises(ValueError, match=r"wiki_00 is the output of WikiExtractor.*prepare_corpus"):
        run_with(tmp_path, {"wiki_00": f"\n{line}\nT\n\nThe dog barked.\n</doc>\n"})


def test_a_text_that_begins_with_a_brace_is_no_json(tmp_path):
    run_with(tmp_path, {"a.txt": "{the dog} barked\n\nthe cat\n"})


def test_a_corpus_without_text_leaves_no_file_of_any_group(tmp_path):
    with pytest.raises(ValueError, match="no text in"):
        run_with(tmp_path, {"blank.txt": "\n" * 9}, max_group_bytes=2)
    assert list((tmp_path / "out").iterdir()) == []


def test_a_corpus_of_one_document_is_warned_about(tmp_path, caplog):
    run_with(tmp_path, {"one.txt": "the dog barked\nthe cat walked\n"})
    assert "one document" in caplog.text and "empty line between documents" in caplog.text


@pytest.mark.parametrize("objective", ["mlm", "mlm_sop"])
def test_one_document_is_enough_without_random_next_sentences(tmp_path, caplog, objective):
    run_with(tmp_path, {"one.txt": "the dog barked\nthe cat walked\n"}, objective=objective)
    assert "one document" not in caplog.text


def test_groups_of_one_document_are_warned_about_at_the_first_and_at_the_end(tmp_path, caplog):
    text = "the dog barked\nthe cat walked\n\n" * 4
    run_with(tmp_path, {"a.txt": text}, max_group_bytes=32, dupe_factor=1)
    first, last = (text for text in caplog.messages if "single document" in text)
    assert "single document: 1 of the 2 that" in first and "single document: 2 of the 3" in last
    assert "Raise --max_group_bytes (now 32)" in last
    caplog.clear()
    changes = {"overwrite": True, "objective": "mlm", "max_group_bytes": 32, "dupe_factor": 1}
    run_with(tmp_path, {"a.txt": text}, **changes)
    assert "single document" not in caplog.text


def test_a_vocabulary_without_mask_is_named(tmp_path):
    vocab = [token for token in GOLDEN["vocab"] if token != "[MASK]"]
    with pytest.raises(ValueError, match=r"vocab\.txt: The vocabulary has no \[MASK\]"):
        run_with(tmp_path, vocab=vocab)


def test_a_vocabulary_of_the_other_case_is_warned_about(tmp_path, caplog):
    cased = [f"{first}{second}" for first in "ABCDEFGHIJK" for second in "abcdefghijk"]
    run_with(tmp_path, vocab=GOLDEN["vocab"] + cased, do_lower_case=True)
    assert "looks cased, but `do_lower_case` is True. Use --do_lower_case=False" in caplog.text


def test_a_vocabulary_of_another_language_is_warned_about_once(tmp_path, caplog):
    texts = {"a.txt": "한국어는 아름답다\n\n서울은 수도이다\n\n" * 9}
    run_with(tmp_path, texts, max_group_bytes=100, do_lower_case=False)
    assert caplog.text.count("100% of the words are [UNK]") == 1
    assert len(list((tmp_path / "out").glob("*-of-*"))) > 1


def test_a_case_against_the_file_next_to_the_vocabulary_is_an_error(tmp_path):
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    with pytest.raises(
        ValueError, match=r"`do_lower_case` is True, but .*config\.json .*sets False"
    ):
        run_with(tmp_path, do_lower_case=True)
    run_with(tmp_path, do_lower_case=False)


@pytest.mark.parametrize("noted", [None, True])
def test_the_case_is_that_of_the_vocabulary_unless_it_is_given(tmp_path, noted):
    cased = [f"{first}{second}" for first in "ABCDEFGHIJK" for second in "abcdefghijk"]
    if noted is not None:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": noted}))
    run_with(tmp_path, vocab=GOLDEN["vocab"] + cased)
    (manifest,) = tmp_path.rglob("*.manifest.json")
    flags = json.loads(manifest.read_text(encoding="utf-8"))["flags"]
    assert flags["do_lower_case"] is bool(noted)


@pytest.mark.parametrize("again", ["out", "./out", "sub/../out"])
def test_an_output_file_named_twice_is_refused(tmp_path, again):
    (tmp_path / "sub").mkdir()
    with pytest.raises(ValueError, match=r"out' is named twice in `output_file`"):
        run_with(tmp_path, output_file=f"{tmp_path}/out,{tmp_path}/{again}")


def test_a_list_of_no_output_files_is_refused(tmp_path):
    with pytest.raises(ValueError, match="`output_file` is ' , ', but must name at least one"):
        run_with(tmp_path, output_file=" , ")


@pytest.mark.parametrize("spelling", ["a.txt", "./a.txt", "link/a.txt", "link_to_a"])
def test_an_input_file_is_never_overwritten(tmp_path, spelling):
    (tmp_path / "link").symlink_to(tmp_path)
    (tmp_path / "link_to_a").symlink_to(tmp_path / "a.txt")
    with pytest.raises(ValueError, match=r"would be written, but it is also an input"):
        run_with(tmp_path, output_file=f"{tmp_path}/{spelling}", overwrite=True)
    assert (tmp_path / "a.txt").read_text("utf-8") == GOLDEN["input"]["a.txt"]


@pytest.mark.parametrize(
    "inputs, output",
    [
        ("", "new"),
        ("", "sub/new"),
        ("/*", "new"),
        ("/n*-of-*", "new"),
        ("/*.json", "new"),
        ("/f*", "far/x"),
    ],
)
def test_an_output_that_the_next_run_would_read_is_an_error(tmp_path, inputs, output):
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "name-of-a.txt").write_text("the dog\n\na cat\n")
    (folder / "b.json").write_text("the dog\n")
    (folder / "far").mkdir()
    (folder / "far" / "c.txt").write_text("the dog\n\na cat\n")
    (tmp_path / "link").symlink_to(folder)
    before = sorted(folder.iterdir())
    with pytest.raises(ValueError, match=r"files of input_file=.*Choose another folder for output"):
        run_with(tmp_path, input_file=f"{folder}{inputs}", output_file=f"{tmp_path}/link/{output}")
    assert sorted(folder.iterdir()) == before


def test_an_input_with_the_name_of_a_group_is_never_overwritten(tmp_path):
    with pytest.raises(ValueError, match=r"x-00007-of-00010' is an input file"):
        run_with(tmp_path, {"x-00007-of-00010": "the dog"}, output_file=f"{tmp_path}/x")


def test_an_error_leaves_no_record_behind(tmp_path):
    with pytest.raises(ValueError, match="not UTF-8"):
        run_with(tmp_path, {"bad.txt": b"the dog\n" * 200 + b"\xff"})
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["data.tf_record.manifest.json"]


def test_text_that_is_not_utf8_may_be_read_with_replacement(tmp_path):
    run_with(tmp_path, {"bad.txt": b"the dog\n\nthe c\xffat"}, errors="replace", dupe_factor=1)
    tokens = {i for record in records(tmp_path / "out/data.tf_record") for i in record["input_ids"]}
    assert VOCAB["cat"] in tokens


def test_a_line_of_a_megabyte_is_read(tmp_path):
    text = "the dog barked " * 70_000 + "\n\na cat\n"
    run_with(tmp_path, {"long.txt": text}, dupe_factor=1)
    assert len(records(tmp_path / "out/data.tf_record")) == 2


def test_an_output_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises((tf.errors.OpError, OSError), match="file"):
        run_with(tmp_path, output_file=f"{tmp_path}/file/data.tf_record")


def test_a_disk_that_is_full_stops_the_run_and_leaves_no_record(tmp_path, monkeypatch):
    def write(self, record):
        raise tf.errors.ResourceExhaustedError(None, None, f"{self.path}; No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("bert_tf.data.records.RecordWriter.write_serialized", write)
        with pytest.raises(tf.errors.ResourceExhaustedError, match=r"data\.tf_record; No space"):
            run_with(tmp_path)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["data.tf_record.manifest.json"]
    run_with(tmp_path)
    assert records(tmp_path / "out/data.tf_record")


# ---------------------------------------------------------------------------------- ways to mask


@pytest.mark.parametrize(
    "length, prob, expected", [(128, 0.15, 20), (512, 0.15, 77), (100, 0.15, 15), (5, 0.01, 1)]
)
def test_the_most_predictions_follow_from_length_and_share_when_not_given(length, prob, expected):
    settings = RecordSettings(
        vocab_file="c", do_lower_case=True, max_seq_length=length, masked_lm_prob=prob
    )
    assert settings.resolved().max_predictions_per_seq == expected


def test_the_rule_for_the_most_predictions_is_logged(tmp_path, caplog):
    with caplog.at_level(logging.INFO):
        run_with(tmp_path)
    rule = "max_predictions_per_seq = 3: max_seq_length 16 x masked_lm_prob 0.15, rounded up"
    assert rule in caplog.messages


def test_records_without_masks_hold_the_text_as_it_is(tmp_path):
    run_with(tmp_path, {"a.txt": corpus_of(6)}, masking="none", dupe_factor=1)
    written = records(tmp_path / "out/data.tf_record")
    names = {"input_ids", "input_mask", "segment_ids", "next_sentence_labels"}
    assert all(set(record) == names for record in written)
    assert not any(VOCAB["[MASK]"] in record["input_ids"] for record in written)
    assert all(record["input_ids"].count(VOCAB["[SEP]"]) == 2 for record in written)


def test_flags_of_masks_contradict_records_without_masks():
    names = {"input_file": "a", "output_file": "b", "vocab_file": "c"}
    with pytest.raises(ValueError, match="masks are given: do_whole_word_mask, masked_lm_prob"):
        PretrainingDataOptions(**names, masking="none", do_whole_word_mask=True, masked_lm_prob=0.2)
    with pytest.raises(ValueError, match="exclude each other"):
        PretrainingDataOptions(**names, span_masking=True, max_ngram_size=3)


@pytest.mark.parametrize("objective", ["mlm", "mlm_sop"])
@pytest.mark.parametrize("how", [{}, {"span_masking": True}, {"max_ngram_size": 3}])
def test_other_objectives_and_masks_make_records_of_the_declared_features(tmp_path, objective, how):
    run_with(tmp_path, {"a.txt": corpus_of(9)}, objective=objective, dupe_factor=2, **how)
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


# ---------------------------------------------------------------------------- groups and workers


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


def test_files_of_several_groups_are_numbered_and_listed_in_the_manifest(tmp_path):
    summary = run_groups(tmp_path, "out")
    manifest = read_manifest(summary.manifest_file)
    count = manifest.num_groups
    names = [f"{n}-{i:05d}-of-{count:05d}" for i in range(count) for n in ("x", "y")]
    assert [shard.file for shard in manifest.shards] == names
    assert [shard.records for shard in manifest.shards] == [
        len(records(tmp_path / "out" / name)) for name in names
    ]
    values = json.loads(Path(summary.manifest_file).read_text())
    assert values["complete"] is True
    assert values["totals"]["instances"] == sum(shard.records for shard in manifest.shards)
    assert 0 < values["totals"]["padding_share"] < 1
    assert values["totals"]["masked_share"] == pytest.approx(0.15, abs=0.03)
    assert values["flags"]["max_predictions_per_seq"] == 4
    assert len(values["vocabulary"]["sha256"]) == 64


def test_compressed_records_are_the_same_records(tmp_path):
    run_groups(tmp_path, "plain")
    summary = run_groups(tmp_path, "packed", gzip_compress=True)
    for file in summary.output_files:
        packed = tf.data.TFRecordDataset(file, "GZIP").as_numpy_iterator()
        plain = tf.data.TFRecordDataset(file.replace("packed", "plain")).as_numpy_iterator()
        assert list(packed) == list(plain)


def test_a_gzip_corpus_makes_the_records_of_the_plain_one(tmp_path):
    import gzip

    run_groups(tmp_path, "plain")
    (tmp_path / "gz").mkdir()
    for name in ("a.txt", "b.txt"):
        data = gzip.compress((tmp_path / name).read_bytes())
        (tmp_path / "gz" / f"{name}.gz").write_bytes(data)
    summary = run_groups(tmp_path, "out", input_file=str(tmp_path / "gz"))
    for file in summary.output_files:
        assert records(file) == records(file.replace("/out/", "/plain/"))


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


def test_more_workers_than_groups_are_said_to_have_nothing_to_do(tmp_path, caplog):
    run_groups(tmp_path, "out", max_group_bytes=10**6, num_workers=2)
    assert "1 group(s) of text for --num_workers=2" in caplog.text


def test_the_end_of_the_progress_is_shown_once(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("bert_tf.pretraining.runners._SECONDS_BETWEEN_REPORTS", 0)
    run_groups(tmp_path, "out", max_group_bytes=10**6, dupe_factor=1)
    assert capsys.readouterr().err.count(" 100%") == 1


# ------------------------------------------------------------------------------------- going on


def test_a_run_that_was_stopped_goes_on_with_the_groups_that_are_missing(
    tmp_path, monkeypatch, caplog
):
    run_groups(tmp_path, "whole")

    def stop_at_third(job, settings, on_progress=None):
        if job.number == 2:
            raise KeyboardInterrupt
        return make_group(job, settings, on_progress)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("bert_tf.pretraining.runners.make_group", stop_at_third)
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


def test_records_of_other_flags_are_refused_with_the_difference_unless_overwritten(tmp_path):
    run_groups(tmp_path, "out")
    with pytest.raises(ValueError, match=r"random_seed.*: 12345 there, 7 now\n.*overwrite"):
        run_groups(tmp_path, "out", random_seed=7)
    summary = run_groups(tmp_path, "out", random_seed=7, max_group_bytes=4000, overwrite=True)
    left = {path.name for path in (tmp_path / "out").iterdir()}
    assert left == {*(Path(f).name for f in summary.output_files), "x.manifest.json"}


def test_records_of_another_number_of_groups_are_not_left_among_the_new_ones(tmp_path):
    old = run_groups(tmp_path, "out", max_group_bytes=4000)
    Path(old.manifest_file).unlink()  # as after a run that was stopped before it noted the group
    other = tmp_path / "out" / "x-of-mine"
    other.write_text("")
    with pytest.raises(ValueError, match=r"x-00000-of-00003 is of an earlier run.*\(6 such files"):
        run_groups(tmp_path, "out")
    summary = run_groups(tmp_path, "out", overwrite=True)
    left = {path.name for path in (tmp_path / "out").iterdir()}
    assert left == {*(Path(f).name for f in summary.output_files), "x.manifest.json", other.name}
    stale = Path(old.output_files[1])
    stale.write_bytes(b"")
    with pytest.raises(ValueError, match=r"y-00000-of-00003 is of an earlier run"):
        run_groups(tmp_path, "out")
    with pytest.raises(
        ValueError, match=r"y-00000-of-00003 is not one of the \d+ files that .*x\.man"
    ):
        check_record_sets([*summary.output_files, str(stale)], LIMITS)


def test_sets_with_numbers_in_their_names_are_sets_of_their_own(tmp_path):
    files = [f"{tmp_path}/out/x-0000{number}-of-00002" for number in range(2)]
    for file in files:
        run_groups(tmp_path, "out", output_file=file, max_group_bytes=10**6, overwrite=True)
    check_record_sets(files, LIMITS)
    whole = f"{tmp_path}/out/x"
    run_groups(tmp_path, "out", output_file=whole, max_group_bytes=10**6, overwrite=True)
    check_record_sets([whole, *files], LIMITS)
    check_record_sets(files, LIMITS)


def test_records_whose_path_has_two_slashes_are_made_again(tmp_path):
    given = {"output_file": f"{tmp_path}/out//x", "max_group_bytes": 10**6}
    for overwrite in (False, False, True):
        files = run_groups(tmp_path, "out", **given, overwrite=overwrite).output_files
        check_record_sets(files, LIMITS)


@pytest.mark.parametrize("max_group_bytes", [1500, 4000])
def test_old_records_are_kept_until_all_new_ones_exist(tmp_path, monkeypatch, max_group_bytes):
    def old_records():
        return {path.name: path.read_bytes() for path in (tmp_path / "out").glob("[xy]*[0-9n]")}

    old = run_groups(tmp_path, "out")
    before = old_records()
    assert len(before) == len(old.output_files) + 1
    changes = {"overwrite": True, "random_seed": 7, "max_group_bytes": max_group_bytes}
    (tmp_path / "bad.txt").write_bytes(b"the dog\n" * 200 + b"\xff\n")
    files = f"{tmp_path}/a.txt,{tmp_path}/b.txt,{tmp_path}/bad.txt"
    with pytest.raises(ValueError, match="not UTF-8"):
        run_groups(tmp_path, "out", input_file=files, **changes)
    assert old_records() == before
    check_record_sets(old.output_files, LIMITS)

    def stop_at_second(job, settings, on_progress=None):
        if job.number == 1:
            raise KeyboardInterrupt
        return make_group(job, settings, on_progress)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("bert_tf.pretraining.runners.make_group", stop_at_second)
        run_groups(tmp_path, "out", **changes)
    assert old_records() == before
    check_record_sets(old.output_files, LIMITS)
    assert expand_record_files(f"{tmp_path}/out/*") == sorted(old.output_files)
    assert run_groups(tmp_path, "out") == old  # nothing to do
    new = run_groups(tmp_path, "out", **changes)
    left = {path.name for path in (tmp_path / "out").iterdir()}
    assert left == {*(Path(f).name for f in new.output_files), "x.manifest.json"}
    check_record_sets(new.output_files, LIMITS)


def test_a_corpus_without_text_leaves_the_old_records_as_they_are(tmp_path):
    run_groups(tmp_path, "out")
    before = contents(tmp_path / "out")
    (tmp_path / "blank.txt").write_text("\n \n")
    changes = {"input_file": f"{tmp_path}/blank.txt", "overwrite": True}
    with pytest.raises(ValueError, match="There is no text in"):
        run_groups(tmp_path, "out", **changes)
    assert contents(tmp_path / "out") == before
    whole = {"output_file": f"{tmp_path}/whole/x", "max_group_bytes": 10**6}
    run_groups(tmp_path, "whole", **whole)
    before = contents(tmp_path / "whole")
    with pytest.raises(ValueError, match="There is no text in"):
        run_groups(tmp_path, "whole", **whole | changes)
    assert contents(tmp_path / "whole") == before


def test_records_in_several_folders_and_behind_links_are_replaced(tmp_path):
    for name in ("out", "other", "far"):
        (tmp_path / name).mkdir()
    (tmp_path / "out" / "x").symlink_to(tmp_path / "far" / "z")
    files = f"{tmp_path}/out/x,{tmp_path}/other/y"
    changes = {"output_file": files, "max_group_bytes": 10**6}
    run_groups(tmp_path, "out", **changes)
    new = run_groups(tmp_path, "out", **changes, random_seed=7, overwrite=True)
    check_record_sets(new.output_files, LIMITS)
    assert (tmp_path / "out" / "x").is_symlink()
    assert read_manifest(new.manifest_file).flags["random_seed"] == 7
    left = {name: sorted(os.listdir(tmp_path / name)) for name in ("out", "other", "far")}
    assert left == {"out": ["x", "x.manifest.json"], "other": ["y"], "far": ["z"]}


def test_links_of_one_name_into_one_folder_are_replaced(tmp_path):
    for name in ("out", "other", "far"):
        (tmp_path / name).mkdir()
    (tmp_path / "out" / "x").symlink_to(tmp_path / "far" / "z")
    (tmp_path / "other" / "x").symlink_to(tmp_path / "far" / "w")
    files = f"{tmp_path}/out/x,{tmp_path}/other/x"
    changes = {"output_file": files, "max_group_bytes": 10**6}
    first = run_groups(tmp_path, "out", **changes)
    records = {path.name: path.read_bytes() for path in (tmp_path / "far").iterdir()}
    run_groups(tmp_path, "out", **changes, overwrite=True)
    assert {path.name: path.read_bytes() for path in (tmp_path / "far").iterdir()} == records
    check_record_sets(first.output_files, LIMITS)


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("stop_at", [1, None])
def test_an_overwriting_run_that_was_stopped_goes_on_and_then_removes_the_old_records(
    tmp_path, monkeypatch, caplog, stop_at, again
):
    """With or without --overwrite, from another number of groups; at last while files are moved."""
    run_groups(tmp_path, "out", max_group_bytes=4000)
    run_groups(tmp_path, "whole")

    def stop(job, *others):
        if job.number == stop_at:
            raise KeyboardInterrupt
        return make_group(job, *others)

    def stop_at_a_move(source, target, overwrite=False, rename=tf.io.gfile.rename):
        if source.endswith("y-00001-of-00006"):
            raise KeyboardInterrupt
        rename(source, target, overwrite)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("bert_tf.pretraining.runners.make_group", stop)
        if stop_at is None:
            patch.setattr("tensorflow.io.gfile.rename", stop_at_a_move)
        run_groups(tmp_path, "out", overwrite=True)
    with caplog.at_level("INFO"):
        run_groups(tmp_path, "out", overwrite=again)
    assert f"Resuming: {stop_at or 4} of 6" in caplog.text
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_records_whose_manifest_is_damaged_can_be_overwritten(tmp_path):
    run_groups(tmp_path, "out")
    manifest = tmp_path / "out" / "x.manifest.json"
    values = json.loads(manifest.read_text())
    manifest.write_text("{")
    summary = run_groups(tmp_path, "out", overwrite=True)
    assert json.loads(manifest.read_text())["groups"] == values["groups"]
    check_record_sets(summary.output_files, LIMITS)


def test_a_changed_input_or_vocabulary_is_noticed(tmp_path):
    run_groups(tmp_path, "out")
    with (tmp_path / "vocab.txt").open("a") as file:
        file.write("more\n")
    with pytest.raises(ValueError, match="the vocabulary file has changed"):
        run_groups(tmp_path, "out")
    with (tmp_path / "a.txt").open("a") as file:
        file.write("the dog\n")
    with pytest.raises(ValueError, match=r"the input files have changed.*\n.*the vocabulary"):
        run_groups(tmp_path, "out")


def test_an_input_that_changes_within_a_second_is_noticed(tmp_path):
    summary = run_groups(tmp_path, "out")
    second = (tmp_path / "a.txt").stat().st_mtime_ns // 10**9 * 10**9
    values = json.loads(Path(summary.manifest_file).read_text())
    os.utime(tmp_path / "a.txt", ns=(second + 7, second + 7))
    with pytest.raises(ValueError, match="the input files have changed"):
        run_groups(tmp_path, "out")
    for each in values["input"]:  # as earlier versions noted it
        each["mtime_nsec"] = each["mtime_nsec"] // 10**9 * 10**9
    Path(summary.manifest_file).write_text(json.dumps(values))
    assert run_groups(tmp_path, "out") == summary


def test_records_without_a_manifest_are_not_overwritten_unasked(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out/data.tf_record").write_bytes(b"somebody's")
    with pytest.raises(
        ValueError, match=r"data\.tf_record exists without a data.*manif.*pass `overwrite`"
    ):
        run_with(tmp_path)
    assert (tmp_path / "out/data.tf_record").read_bytes() == b"somebody's"
    run_with(tmp_path, overwrite=True)
    assert records(tmp_path / "out/data.tf_record")


# --------------------------------------------------------------------------------------- reading

LIMITS = {"vocab_size": ("`vocab_size`", len(VOCAB)), "max_seq_length": ("--max_seq_length", 24)}


def test_a_set_is_read_where_it_agrees_with_its_manifest_also_in_part_and_moved(tmp_path):
    summary = run_groups(tmp_path, "out")
    check_record_sets(summary.output_files, LIMITS)
    check_record_sets(summary.output_files[2:3], LIMITS)
    (tmp_path / "out").rename(tmp_path / "moved")
    check_record_sets([f.replace("/out/", "/moved/") for f in summary.output_files], LIMITS)


def test_an_unfinished_damaged_or_other_set_is_refused_by_name(tmp_path):
    summary = run_groups(tmp_path, "out")
    files = summary.output_files
    with pytest.raises(ValueError, match=r"with `max_seq_length` = 24, but .*max_seq_length is 32"):
        check_record_sets(files, {"max_seq_length": ("--max_seq_length", 32)})
    with pytest.raises(ValueError, match=rf"`vocab_size` = {len(VOCAB)}, but .* is 9. Records and"):
        check_record_sets(files, {"vocab_size": ("`vocab_size` of the model", 9)})
    Path(files[-1]).unlink()
    with pytest.raises(ValueError, match=rf"{Path(files[-1]).name} is missing or .* resumes"):
        check_record_sets(files[:1], LIMITS)
    values = json.loads(Path(summary.manifest_file).read_text())
    values["groups"].pop()
    Path(summary.manifest_file).write_text(json.dumps(values))
    with pytest.raises(ValueError, match=r"only \d of \d groups are written.* unfinished"):
        check_record_sets(files[:1], LIMITS)
    Path(summary.manifest_file).write_text("{")
    with pytest.raises(ValueError, match=r"x\.manifest\.json is damaged"):
        check_record_sets(files[:1], LIMITS)


def test_a_set_in_a_folder_with_brackets_in_its_name_is_compared_with_its_manifest(tmp_path):
    summary = run_groups(tmp_path, "r[1]?")
    check_record_sets(summary.output_files, LIMITS)
    with open(summary.output_files[0], "ab") as file:
        file.write(b"more")
    with pytest.raises(ValueError, match=r"does not have the \d+ bytes noted"):
        check_record_sets(summary.output_files, LIMITS)


def test_files_without_a_manifest_are_read_as_before(tmp_path):
    (tmp_path / "foreign.tf_record").write_bytes(b"")
    check_record_sets([str(tmp_path / "foreign.tf_record")], LIMITS)


def test_a_glob_of_the_records_leaves_out_their_manifest(tmp_path):
    run_with(tmp_path)
    (records,) = tmp_path.rglob("*.manifest.json")
    name = str(records).removesuffix(".manifest.json")
    assert expand_record_files(f"{name}*") == [name]
    with pytest.raises(ValueError, match=r"\.manifest\*' matches no records, only manifests"):
        expand_record_files(f"{name}.manifest*")


def test_a_manifest_with_the_digest_of_the_vocabulary_file_is_known(tmp_path):
    write_inputs(tmp_path, {"a.txt": corpus_of(40), "b.txt": corpus_of(25)})
    vocab_file = tmp_path / "vocab.txt"
    vocab_file.write_text(vocab_file.read_text().removesuffix("\n"))
    summary = run_groups(tmp_path, "out")
    manifest = read_manifest(summary.manifest_file)
    assert manifest.vocabulary["sha256"] == vocabulary_digest(VOCAB)
    old = hashlib.sha256(vocab_file.read_bytes()).hexdigest()  # as earlier versions noted it
    manifest.vocabulary["sha256"] = old
    manifest.write(summary.manifest_file)
    assert run_groups(tmp_path, "out") == summary
    check_vocabulary_of_records(
        read_record_set(summary.output_files, 24), list(VOCAB), str(vocab_file)
    )


@pytest.mark.parametrize("change", [lambda text: text + b"\n", lambda text: b"\xef\xbb\xbf" + text])
def test_ends_and_byte_order_mark_of_the_vocabulary_do_not_make_it_another(tmp_path, change):
    write_inputs(tmp_path, {"a.txt": corpus_of(40), "b.txt": corpus_of(25)})
    vocab_file = tmp_path / "vocab.txt"
    text = vocab_file.read_bytes().removesuffix(b"\n")
    vocab_file.write_bytes(change(text))
    summary = run_groups(tmp_path, "out")
    vocab_file.write_bytes(text.replace(b"\n", b" \r\n"))
    check_vocabulary_of_records(
        read_record_set(summary.output_files, 24), list(VOCAB), str(vocab_file)
    )


def test_line_ends_of_the_vocabulary_do_not_make_it_another(tmp_path):
    names = write_inputs(tmp_path, GOLDEN["input"], GOLDEN["vocab"])
    vocab_file = Path(names["vocab_file"])
    text = vocab_file.read_bytes()
    vocab_file.write_bytes(text.replace(b"\n", b"\r\n"))
    create_pretraining_data(PretrainingDataOptions(**names, max_seq_length=16))
    (manifest,) = tmp_path.rglob("*.manifest.json")
    found = json.loads(manifest.read_text(encoding="utf-8"))["vocabulary"]["sha256"]
    assert found == hashlib.sha256(text).hexdigest()
