"""prepare_corpus: WikiExtractor's output or plain text -> one sentence per line."""

import dataclasses
import gzip
import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow as tf

from bert_tf.data.lines import read_lines
from bert_tf.programs import prepare_corpus as prepare_corpus_module
from bert_tf.programs.prepare_corpus import CorpusPreparationOptions, prepare_corpus

WIKI = """<doc id="9" url="https://x.org/wiki?curid=9" title="Tides">
Tides

Dr. Li watched the tide. It was &lt; 3.14 m high!
History.
他走了。下雨了。
</doc>
<doc id="10" url="https://x.org/wiki?curid=10" title="Moon">
Moon

</doc>
"""
BOOK = "Call me Jo. Some\tyears  ago… I went.\n— \n\nHistory.\n"


@pytest.fixture
def options(tmp_path):
    (tmp_path / "in" / "AA").mkdir(parents=True)
    (tmp_path / "in" / "AA" / "wiki_00").write_text(WIKI, encoding="utf-8")
    (tmp_path / "in" / "book.txt.gz").write_bytes(gzip.compress(BOOK.encode()))
    return CorpusPreparationOptions(
        input_file=str(tmp_path / "in"), output_file=str(tmp_path / "out" / "corpus.txt")
    )


TIDES = ["Dr. Li watched the tide.", "It was < 3.14 m high!", "他走了。", "下雨了。"]
JO = ["Call me Jo.", "Some years ago…", "I went."]


def documents(files):
    """As the reference reads a corpus: an empty line ends a document, the end of a file does not."""
    lines = [line for file in files for line in read_lines(file)]
    assert lines[-1] == ""
    return [document.split("\n") for document in "\n".join(lines).removesuffix("\n").split("\n\n")]


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_it_writes_a_sentence_per_line_and_an_empty_line_after_each_document(options, tmp_path):
    prepare_corpus(options)
    expected = "".join("\n".join(document) + "\n\n" for document in (TIDES, JO, ["History."]))
    assert (tmp_path / "out" / "corpus.txt").read_text("utf-8") == expected
    assert names(tmp_path / "out") == ["corpus.txt"]


def test_the_summary_counts_what_was_written_and_what_was_left_out(options, tmp_path, caplog):
    with caplog.at_level("INFO"):
        summary = prepare_corpus(options)
    assert (summary.num_documents, summary.num_sentences, summary.num_words) == (3, 8, 22)
    assert summary.num_bytes == (tmp_path / "out" / "corpus.txt").stat().st_size
    assert (summary.num_titles, summary.num_headings, summary.num_short_sentences) == (2, 1, 1)
    assert summary.num_paragraphs == 8
    assert "Wrote 3 documents with 8 sentences, 22 words between spaces, 0.0 MB to" in caplog.text
    assert "Left out: 37.5% of 8 lines (2 titles, 1 headings) and 1 short sentences." in caplog.text


@pytest.mark.parametrize(
    "flags, message",
    [
        ({"language": "de"}, "language=de has no effect with splitter=rules"),
        ({"keep_headings": True, "input_format": "plain"}, "keep_headings has no effect"),
    ],
)
def test_flags_without_an_effect_are_refused(options, flags, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(options, **flags)


def test_headings_and_short_sentences_are_left_out_or_kept(options):
    keeping = dataclasses.replace(options, keep_headings=True, min_sentence_chars=0)
    tides, jo, _ = documents(prepare_corpus(keeping).output_files)
    assert tides == [*TIDES[:2], "History.", *TIDES[2:]]
    assert jo == [*JO, "—"]
    cutting = dataclasses.replace(options, min_sentence_chars=9, overwrite=True)
    assert documents(prepare_corpus(cutting).output_files) == [TIDES[:2], [JO[1]]]


def test_progress_goes_by_the_size_of_the_files(options, tmp_path, monkeypatch):
    updates = []

    class Progress:
        def __init__(self, label, num_bytes):
            self.num_bytes = num_bytes
            updates.append((label, num_bytes > 3_000_000))

        def update(self, done):
            updates.append("all" if done == self.num_bytes else done // 1_000_000)

    monkeypatch.setattr(prepare_corpus_module, "ByteProgress", Progress)
    (tmp_path / "in" / "book.txt.gz").write_bytes(gzip.compress((b"a" * 999 + b"\n") * 4_000))
    (tmp_path / "in" / "long.txt").write_text(("é" * 500 + "\n") * 3_000, encoding="utf-8")
    prepare_corpus(options)
    assert updates == [("read", True), 1, 2, 3, "all"]


def test_compressed_output_is_the_same_text_and_has_no_time_in_it(options, tmp_path):
    prepare_corpus(options)
    path = tmp_path / "out" / "corpus.txt.gz"
    zipped = dataclasses.replace(options, output_file=str(path), overwrite=True)
    prepare_corpus(zipped)
    first = path.read_bytes()
    prepare_corpus(zipped)
    assert path.read_bytes() == first
    assert gzip.decompress(first) == (tmp_path / "out" / "corpus.txt").read_bytes()


def test_shards_hold_whole_documents(options, tmp_path):
    sharded = dataclasses.replace(options, shard_bytes=20)
    summary = prepare_corpus(sharded)
    assert names(tmp_path / "out") == [f"corpus-0000{i}.txt" for i in range(3)]
    assert [documents([f]) for f in summary.output_files] == [
        [TIDES],
        [JO],
        [["History."]],
    ]
    assert f"to {summary.output_files[0]} and 2 more, in" in str(summary)
    # A run with fewer shards leaves none of the others behind.
    with pytest.raises(ValueError, match=r"corpus-00000\.txt exists.*overwrite"):
        prepare_corpus(sharded)
    prepare_corpus(dataclasses.replace(sharded, shard_bytes=90, overwrite=True))
    assert names(tmp_path / "out") == ["corpus-00000.txt", "corpus-00001.txt"]


def test_output_of_the_other_kind_is_kept_and_warned_about(options, tmp_path, caplog):
    sharded = dataclasses.replace(options, shard_bytes=20)
    prepare_corpus(options)
    assert not caplog.messages
    prepare_corpus(sharded)
    (message,) = caplog.messages
    assert re.search(
        r"corpus\.txt exists, perhaps from a run without shard_bytes.* remove it,", message
    )
    prepare_corpus(dataclasses.replace(options, overwrite=True))
    message = caplog.messages[-1]
    assert re.search(
        r"corpus-00000\.txt exists, perhaps from a run with .*it and 2 more, or name", message
    )
    assert len(names(tmp_path / "out")) == 4


def test_the_number_of_open_files_does_not_grow_with_the_shards(options, tmp_path):
    (tmp_path / "in" / "many.txt").write_text("One.\n\n" * 60)
    few = len(os.listdir("/proc/self/fd")) + 30
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (few, limits[1]))
    try:
        summary = prepare_corpus(dataclasses.replace(options, shard_bytes=1))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert len(summary.output_files) == 63
    assert documents(summary.output_files[-1:]) == [["One."]]


def test_shards_can_be_compressed(options, tmp_path):
    path = str(tmp_path / "out" / "my.wiki.txt.gz")
    prepare_corpus(dataclasses.replace(options, output_file=path, shard_bytes=90))
    assert names(tmp_path / "out") == ["my.wiki-00000.txt.gz", "my.wiki-00001.txt.gz"]


def test_remote_input_and_output_go_through_gfile(options):
    with tf.io.gfile.GFile("ram://prepare_corpus/in/book.txt", "w") as file:
        file.write(BOOK)
    for output in ("ram://prepare_corpus/out/c.txt", "ram://prepare_corpus/out/c.txt.gz"):
        remote = dataclasses.replace(
            options, input_file="ram://prepare_corpus/in/book.txt", output_file=output
        )
        prepare_corpus(remote)
        assert documents([output]) == [JO, ["History."]]
    with pytest.raises(ValueError, match=r"book\.txt would be written, but it is also an input"):
        prepare_corpus(dataclasses.replace(remote, output_file=remote.input_file))


def test_existing_output_is_kept_unless_told_otherwise(options, tmp_path):
    prepare_corpus(options)
    (tmp_path / "out" / "corpus.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"corpus\.txt exists\..*overwrite"):
        prepare_corpus(options)
    assert (tmp_path / "out" / "corpus.txt").read_text() == "mine"
    prepare_corpus(dataclasses.replace(options, overwrite=True))
    assert (tmp_path / "out" / "corpus.txt").read_text("utf-8").startswith("Dr. Li")


@pytest.mark.parametrize("shard_bytes, name", [(0, "corpus.txt"), (20, "corpus-00007.txt")])
def test_an_output_that_is_also_an_input_is_refused(options, tmp_path, shard_bytes, name):
    (tmp_path / "in" / name).write_text("Mine. All mine.\n")
    (tmp_path / "link").symlink_to(tmp_path / "in")
    clashing = dataclasses.replace(
        options,
        output_file=str(tmp_path / "link" / "corpus.txt"),
        shard_bytes=shard_bytes,
        overwrite=True,
    )
    with pytest.raises(ValueError, match=rf"{name} would be written, but it is also an input"):
        prepare_corpus(clashing)
    assert (tmp_path / "in" / name).read_text() == "Mine. All mine.\n"


@pytest.mark.parametrize("shard_bytes", [0, 20])
def test_an_output_that_the_next_run_would_read_is_an_error(options, tmp_path, shard_bytes):
    output = str(tmp_path / "in" / "corpus.txt")
    changed = dataclasses.replace(options, output_file=output, shard_bytes=shard_bytes)
    with pytest.raises(ValueError, match=r"one of the files of input_file=.*for output_file, or"):
        prepare_corpus(changed)
    prepare_corpus(dataclasses.replace(changed, input_file=f"{tmp_path}/in/book*"))


@pytest.mark.parametrize("shard_bytes", [0, 5])
def test_a_run_that_fails_leaves_nothing_behind(options, tmp_path, shard_bytes):
    (tmp_path / "in" / "z.txt").write_bytes(b"One. Two.\nCaf\xe9.\n")
    strict = dataclasses.replace(options, shard_bytes=shard_bytes)
    with pytest.raises(
        ValueError, match=r"z\.txt:2: .*byte 0xe9 at offset 13 of the file .*errors=replace"
    ):
        prepare_corpus(strict)
    assert names(tmp_path / "out") == []
    replaced = prepare_corpus(dataclasses.replace(options, errors="replace"))
    assert documents(replaced.output_files)[-1] == ["One.", "Two.", "Caf\ufffd."]


def test_a_damaged_file_is_named_by_the_line(options, tmp_path):
    (tmp_path / "in" / "AA" / "wiki_01").write_text('<doc id="1" title="T">\nT\n\nOn and')
    with pytest.raises(ValueError, match=r"wiki_01:1: this <doc> is never closed"):
        prepare_corpus(options)


def test_a_corpus_without_sentences_is_refused(options, tmp_path):
    (tmp_path / "empty.txt").write_text("\n…\n")
    empty = dataclasses.replace(options, input_file=f"{tmp_path}/empty.txt")
    with pytest.raises(ValueError, match=r"There is no sentence in .*empty\.txt"):
        prepare_corpus(empty)
    assert names(tmp_path / "out") == []


def test_an_output_that_is_a_folder_is_refused(options, tmp_path):
    with pytest.raises(ValueError, match=r"output_file=.*/in is a folder"):
        prepare_corpus(dataclasses.replace(options, output_file=str(tmp_path / "in")))


def test_a_missing_splitter_is_named_before_anything_is_read(options, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "sentencex", None)
    with pytest.raises(ImportError, match=r"pip install -e '\.\[sentences\]'"):
        prepare_corpus(dataclasses.replace(options, splitter="sentencex"))
    assert not (tmp_path / "out").exists()


def test_the_script_does_it_and_names_what_is_wrong(options, tmp_path):
    script = Path(prepare_corpus_module.__file__).parents[2] / "run_scripts" / "prepare_corpus.py"
    command = [sys.executable, script, f"--input_file={options.input_file}"]
    command.append(f"--output_file={options.output_file}")
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "100%" in done.stderr
    assert "Wrote 3 documents with 8 sentences" in done.stderr
    again = subprocess.run(command, capture_output=True, text=True)
    assert again.returncode == 1
    assert "error: " in again.stderr and "pass --overwrite" in again.stderr
    assert "Traceback" not in again.stderr


def test_an_input_with_carriage_returns_only_is_an_error(options, tmp_path):
    (tmp_path / "in" / "old_mac.txt").write_bytes(b"One line.\rAnother line.\r\rA document.\r")
    with pytest.raises(ValueError, match=r"old_mac\.txt: the file has no line feed"):
        prepare_corpus(options)
    assert not (tmp_path / "out" / "corpus.txt").exists()
