"""Files by their names, and text files that appear whole or not at all."""

import json
import os
import stat
import subprocess
import sys
import threading

import pytest

from bert_tf.data.features import FeatureSpec
from bert_tf.data.files import (
    check_not_an_input,
    expand_files,
    files_of_checkpoint,
    json_line,
    new_folder,
    open_whole,
    write_text,
)
from bert_tf.data.records import RecordWriter


def test_text_is_written_as_it_is_and_replaces_what_was_there(tmp_path):
    path = tmp_path / "new" / "file.txt"
    write_text(path, "first, and longer\n")
    write_text(str(path), "zweite ß\r\n")
    assert path.read_bytes() == "zweite ß\r\n".encode()
    assert [entry.name for entry in path.parent.iterdir()] == ["file.txt"]


def test_a_json_line_escapes_halves_of_surrogate_pairs_only(tmp_path):
    assert json_line({"text": "猫 \ud83d😀\n"}) == '{"text": "猫 \\ud83d😀\\n"}\n'
    write_text(tmp_path / "file.jsonl", json_line(["\ud83d"]))
    assert json.loads((tmp_path / "file.jsonl").read_bytes()) == ["\ud83d"]


def test_a_file_that_is_given_up_leaves_the_old_one_and_nothing_temporary(tmp_path):
    path = tmp_path / "file.txt"
    path.write_text("old")
    with pytest.raises(KeyError), open_whole(path) as file:
        file.write("half of the new")
        raise KeyError("a bug of the caller")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_globs_keep_their_order_and_are_sorted_within(tmp_path):
    for name in ("b1", "a2", "a1", "a3.tmp", ".a4"):
        (tmp_path / name).touch()
    assert expand_files(f"{tmp_path}/.a*") == [f"{tmp_path}/.a4"]
    assert len(expand_files(f"{tmp_path}/*")) == 3
    found = expand_files(f"{tmp_path}/b*, {tmp_path}/a*")
    assert [f.rsplit("/", 1)[1] for f in found] == ["b1", "a1", "a2"]


@pytest.mark.parametrize(
    "patterns, message",
    [
        ("{0}/a,{0}/nothing*", "No file matches '.*nothing"),
        ("{0}", "is a folder"),
        (" ,", "No file matches ' ,'"),
    ],
)
def test_a_glob_without_files_is_refused_by_name(tmp_path, patterns, message):
    (tmp_path / "a").touch()
    with pytest.raises(ValueError, match=message):
        expand_files(patterns.format(tmp_path))


def test_a_folder_stands_for_all_files_below_it_where_that_is_allowed(tmp_path, caplog):
    caplog.set_level("INFO")
    hidden = ("AA/.hidden", ".git/config", "AA/.ipynb_checkpoints/wiki_00")
    for name in ("AB/wiki_00", "AA/wiki_01", "AA/wiki_00", "AA/wiki_02.tmp", "last", *hidden):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    found = expand_files(str(tmp_path), folders=True)
    assert [f.removeprefix(f"{tmp_path}/") for f in found] == [
        "AA/wiki_00",
        "AA/wiki_01",
        "AB/wiki_00",
        "last",
    ]
    assert f"Found 4 files in {tmp_path}, endings: none" in caplog.text


@pytest.mark.parametrize(
    "path, names",
    [
        ("model.ckpt-1", ["model.ckpt-1.data-00000-of-00001", "model.ckpt-1.index"]),
        ("a.safetensors", ["a.safetensors"]),
        (
            "model.safetensors.index.json",
            ["model-1-of-1.safetensors", "model.safetensors.index.json"],
        ),
        ("saved", ["saved/saved_model.pb", "saved/variables/variables.index"]),
    ],
)
def test_a_checkpoint_has_the_files_of_its_name(tmp_path, path, names):
    (tmp_path / "saved" / "variables").mkdir(parents=True)
    for name in (*names, "model.ckpt-12.index", "b.safetensors", "model_q8.safetensors"):
        (tmp_path / name).touch()
    found = files_of_checkpoint(str(tmp_path / path))
    assert [os.path.relpath(file, tmp_path) for file in found] == names


def read_pipe(path, write):
    """The bytes that `write()` puts into a named pipe."""
    os.mkfifo(path)
    found = []
    reader = threading.Thread(target=lambda: found.append(path.read_bytes()), daemon=True)
    reader.start()
    write()
    reader.join(timeout=60)
    return found[0]


def write_record(path):
    with RecordWriter(path, [FeatureSpec("ids", (1,))]) as writer:
        writer.write({"ids": [7]})


WRITERS = {"text": lambda path: write_text(path, "new\n"), "records": write_record}


@pytest.mark.parametrize("writer", WRITERS)
def test_a_named_pipe_is_written_into_and_stays_one(tmp_path, writer):
    WRITERS[writer](tmp_path / "regular")
    expected = (tmp_path / "regular").read_bytes()
    found = read_pipe(tmp_path / "pipe", lambda: WRITERS[writer](tmp_path / "pipe"))
    assert found == expected
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["pipe", "regular"]


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("exists", [True, False])
def test_a_link_stays_one_and_its_target_is_replaced(tmp_path, writer, exists):
    target, link = tmp_path / "disk" / "target", tmp_path / "link"
    target.parent.mkdir()
    if exists:
        target.write_text("old")
    link.symlink_to(target)
    WRITERS[writer](link)
    WRITERS[writer](tmp_path / "regular")
    assert link.is_symlink() and len(target.read_bytes()) == (tmp_path / "regular").stat().st_size
    assert [path.name for path in target.parent.iterdir()] == ["target"]


WRITE_TO_STANDARD_OUTPUT = """
from bert_tf.data.files import write_text
write_text("/dev/stdout", "new\\n")
"""


@pytest.mark.night
@pytest.mark.weekly_cases("False")
@pytest.mark.parametrize("to_file", [True, False])
def test_standard_output_is_written_into_and_keeps_what_was_there(tmp_path, to_file):
    """A pipe, and a file to which a shell appends."""
    command = [sys.executable, "-c", WRITE_TO_STANDARD_OUTPUT]
    if to_file:
        (tmp_path / "all.txt").write_text("old\n")
        with open(tmp_path / "all.txt", "a") as file:
            subprocess.run(command, stdout=file, check=True)
        assert (tmp_path / "all.txt").read_text() == "old\nnew\n"
    else:
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        assert done.stdout == "new\n"
    assert os.path.islink("/dev/stdout")


def test_a_folder_appears_when_it_is_whole_and_an_abandoned_one_is_removed(tmp_path):
    (tmp_path / "1.tmp" / "of a kill").mkdir(parents=True)
    with pytest.raises(KeyError), new_folder(f"{tmp_path}/1", "--export_dir") as folder:
        write_text(os.path.join(folder, "half"), "half")
        raise KeyError("a bug of the caller")
    assert not any(tmp_path.iterdir())
    with pytest.raises(KeyError), new_folder(f"{tmp_path}/new/er/1/", "--export_dir"):
        raise KeyError("a bug of the caller")
    assert not any(tmp_path.iterdir())
    with pytest.raises(OSError), new_folder(f"{tmp_path}/new/{'x' * 300}/1", ""):
        pass
    assert not any(tmp_path.iterdir())
    (tmp_path / "1").mkdir()
    with new_folder(f"{tmp_path}/1/", "--export_dir") as folder:
        write_text(os.path.join(folder, "file"), "whole")
        assert not any((tmp_path / "1").iterdir())
    assert (tmp_path / "1" / "file").read_text() == "whole"
    assert [path.name for path in tmp_path.iterdir()] == ["1"]


def test_a_link_to_an_empty_folder_stays_one(tmp_path):
    (tmp_path / "disk" / "target").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "disk" / "target")
    with new_folder(str(tmp_path / "link"), "--export_dir") as folder:
        write_text(os.path.join(folder, "file"), "whole")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "disk" / "target" / "file").read_text() == "whole"


@pytest.mark.parametrize("output", ["a.txt", "./a.txt", "link/a.txt", "link_to_a", "hard"])
def test_an_output_is_never_an_input_under_another_name(tmp_path, output):
    (tmp_path / "a.txt").write_text("a")
    (tmp_path / "link").symlink_to(tmp_path)
    (tmp_path / "link_to_a").symlink_to(tmp_path / "a.txt")
    (tmp_path / "hard").hardlink_to(tmp_path / "a.txt")
    inputs = [f"{tmp_path}/other.txt", f"{tmp_path}/a.txt"]
    with pytest.raises(ValueError, match=rf"output_file=.*{output} "):
        check_not_an_input([f"{tmp_path}/new", f"{tmp_path}/{output}"], inputs)
    check_not_an_input([f"{tmp_path}/new", "/dev/null"], [*inputs, "/dev/null"])


@pytest.mark.parametrize("output", [".", "folder", "folder/", "new/", "link"])
def test_an_output_is_never_a_folder(tmp_path, monkeypatch, output):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    with pytest.raises(ValueError, match=f"output_file={output} "):
        check_not_an_input([output], [])


def test_a_replaced_file_passes_its_permissions_on(tmp_path):
    path = tmp_path / "file.txt"
    path.write_text("old")
    path.chmod(0o640)
    write_text(path, "new")
    assert (path.read_text(), stat.S_IMODE(path.stat().st_mode)) == ("new", 0o640)
