"""create_pretraining_data: equal to the original script, and clear about bad input."""

import json
import logging
from pathlib import Path

import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from bert_tf.data.masking import Masker
from bert_tf.data.records import read_records
from bert_tf.data.sentence_pairs import pretraining_features
from bert_tf.tokenization import FullTokenizer
from bert_tf.workflows.pretraining_data import (
    PretrainingDataOptions,
    create_instances,
    create_pretraining_data,
    read_documents,
)
from reference import pretraining_data as reference

GOLDEN = json.loads(
    (Path(__file__).parents[1] / "golden" / "pretraining_data.json").read_text("utf-8")
)
VOCAB = {token: i for i, token in enumerate(GOLDEN["vocab"])}


def write_inputs(folder, texts=GOLDEN["input"], vocab=GOLDEN["vocab"]):
    """Files as in the golden run; returns the options that name them."""
    for name, text in texts.items():
        data = text if isinstance(text, bytes) else text.encode()
        (folder / name).write_bytes(data)
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in vocab))
    return {
        "input_file": ",".join(str(folder / name) for name in texts),
        "output_file": str(folder / "out" / "data.tf_record"),
        "vocab_file": str(folder / "vocab.txt"),
    }


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
        "masked_lm_prob": st.sampled_from([0.0, 0.15, 0.6]),
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
    options = PretrainingDataOptions(**names, **flags)
    sizes = options.max_seq_length, options.max_predictions_per_seq
    tokenizer = FullTokenizer(options.vocab_file)
    masker = Masker(
        VOCAB,
        masked_lm_prob=options.masked_lm_prob,
        max_predictions_per_seq=options.max_predictions_per_seq,
        do_whole_word_mask=options.do_whole_word_mask,
    )
    documents = read_documents(names["input_file"].split(","), tokenizer)
    found = create_instances(documents, masker, options)
    expected = reference.create_instances(
        files.values(), lambda line: reference.tokenize_words(line, VOCAB), VOCAB, **flags
    )
    features = [instance.to_features(*sizes) for instance in found]
    for values in features:  # a single number here is a list of one in a record
        values["next_sentence_labels"] = [values["next_sentence_labels"]]
    assert features == [reference.to_record(instance, VOCAB, *sizes) for instance in expected]


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
    assert len(parsed) == summary.num_instances
    for row, record in zip(parsed, records(names["output_file"]), strict=True):
        assert {name: tf.reshape(row[name], [-1]).numpy().tolist() for name in row} == record


def test_the_summary_counts_what_was_read_and_written(tmp_path):
    names = write_inputs(tmp_path)
    summary = create_pretraining_data(PretrainingDataOptions(**names, max_seq_length=21))
    written = records(names["output_file"])
    assert summary.output_files == (names["output_file"],)
    assert (summary.num_documents, summary.num_sentences) == (4, 14)
    assert summary.num_random_next == sum(r["next_sentence_labels"][0] for r in written)
    assert summary.num_predictions == sum(sum(r["masked_lm_weights"]) for r in written)
    assert f"{len(written):,} instances from 4 documents, 14 sentences" in str(summary)


def test_the_first_twenty_instances_are_logged_in_full(tmp_path, caplog):
    names = write_inputs(tmp_path)
    with caplog.at_level(logging.INFO):
        create_pretraining_data(PretrainingDataOptions(**names, max_seq_length=19))
    assert caplog.messages.count("*** Example ***") == 20
    first = records(names["output_file"])[0]
    tokens = [GOLDEN["vocab"][i] for i in first["input_ids"][: sum(first["input_mask"])]]
    start = caplog.messages.index("*** Example ***")
    assert caplog.messages[start + 1] == "tokens: " + " ".join(tokens)
    assert caplog.messages[start + 2 : start + 9] == [
        f"{spec.name}: {' '.join(map(str, first[spec.name]))}"
        for spec in pretraining_features(19, 20)
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
        ("input_file", "", "`input_file` is empty: give --input_file"),
        ("max_seq_length", 4, r"must be 5 or more: \[CLS\] A \[SEP\] B \[SEP\]"),
        ("max_predictions_per_seq", 0, "`max_predictions_per_seq` is 0, but must be 1 or more"),
        ("dupe_factor", 0, "`dupe_factor` is 0, but must be 1 or more"),
        ("masked_lm_prob", 15, "`masked_lm_prob` is 15, but must be between 0 and 1"),
        ("short_seq_prob", -0.1, "`short_seq_prob` is -0.1, but must be between 0 and 1"),
    ],
)
def test_an_option_out_of_range_is_refused_when_it_is_set(name, value, message):
    options = {"input_file": "a", "output_file": "b", "vocab_file": "c", name: value}
    with pytest.raises(ValueError, match=message):
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
        match=rf"bad\.txt:\d+: a text must be UTF-8, but byte 0x\w\w at offset {offset} of ",
    ):
        run_with(tmp_path, {"good.txt": "the dog\n", "bad.txt": data})


@pytest.mark.parametrize("text", ["", "\n\n \t\n", "\u200b\n\u00ad\n"])
def test_a_corpus_without_text_is_refused(tmp_path, text):
    with pytest.raises(ValueError, match=r"no text in .*empty\.txt.*one sentence per line"):
        run_with(tmp_path, {"empty.txt": text})


def test_a_corpus_of_one_document_is_warned_about(tmp_path, caplog):
    run_with(tmp_path, {"one.txt": "the dog barked\nthe cat walked\n"})
    assert "one document" in caplog.text and "empty line between documents" in caplog.text


def test_a_vocabulary_without_mask_is_named(tmp_path):
    vocab = [token for token in GOLDEN["vocab"] if token != "[MASK]"]
    with pytest.raises(ValueError, match=r"vocab\.txt: The vocabulary has no \[MASK\]"):
        run_with(tmp_path, vocab=vocab)


def test_a_vocabulary_of_the_other_case_is_warned_about(tmp_path, caplog):
    cased = [f"{first}{second}" for first in "ABCDEFGHIJK" for second in "abcdefghijk"]
    run_with(tmp_path, vocab=GOLDEN["vocab"] + cased)
    assert "looks cased, but `do_lower_case` is True. Use --do_lower_case=False" in caplog.text


def test_an_output_file_named_twice_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"out' stands twice in `output_file`"):
        run_with(tmp_path, output_file=f"{tmp_path}/out,{tmp_path}/out")


def test_a_list_of_no_output_files_is_refused(tmp_path):
    with pytest.raises(ValueError, match="`output_file` is ' , ', but must name at least one"):
        run_with(tmp_path, output_file=" , ")


def test_an_input_file_is_never_overwritten(tmp_path):
    with pytest.raises(ValueError, match=r"a\.txt' is an input file"):
        run_with(tmp_path, output_file=f"{tmp_path}/a.txt")
    assert (tmp_path / "a.txt").read_text("utf-8") == GOLDEN["input"]["a.txt"]


def test_an_error_leaves_no_file_behind(tmp_path):
    with pytest.raises(ValueError, match="must be UTF-8"):
        run_with(tmp_path, {"bad.txt": b"the dog\n\xff"})
    assert list((tmp_path / "out").iterdir()) == []
