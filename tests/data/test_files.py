"""Files by their names, and text files that appear whole or not at all."""

import itertools
import json
import os
import stat
import threading

import pytest

from bert_tf.data.features import FeatureSpec
from bert_tf.data.records import RecordWriter
from bert_tf.files import (
    atomic_folder,
    atomic_write,
    check_not_an_input,
    expand_files,
    json_line,
    list_checkpoint_files,
    write_text,
)


def test_write_text_replaces_a_file_and_keeps_its_permissions(tmp_path):
    path = tmp_path / "new" / "file.txt"
    write_text(path, "first, and longer\n")
    path.chmod(0o640)
    write_text(str(path), "zweite ß\r\n")
    assert path.read_bytes() == "zweite ß\r\n".encode()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert [entry.name for entry in path.parent.iterdir()] == ["file.txt"]


def test_json_line_escapes_halves_of_surrogate_pairs_only(tmp_path):
    assert json_line({"text": "猫 \ud83d😀\n"}) == '{"text": "猫 \\ud83d😀\\n"}\n'
    write_text(tmp_path / "file.jsonl", json_line(["\ud83d"]))
    assert json.loads((tmp_path / "file.jsonl").read_bytes()) == ["\ud83d"]


def test_atomic_write_leaves_the_old_file_after_an_error(tmp_path):
    path = tmp_path / "file.txt"
    path.write_text("old")
    with pytest.raises(KeyError), atomic_write(path) as file:
        file.write("half of the new")
        raise KeyError("a bug of the caller")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_expand_files_sorts_within_each_glob(tmp_path):
    for name in ("b1", "a2", "a1", "a3.tmp", ".a4"):
        (tmp_path / name).touch()
    assert expand_files(f"{tmp_path}/.a4") == [f"{tmp_path}/.a4"]
    assert len(expand_files(f"{tmp_path}/*")) == 3
    found = expand_files(f"{tmp_path}/b*, {tmp_path}/a*")
    assert [f.rsplit("/", 1)[1] for f in found] == ["b1", "a1", "a2"]
    for patterns, named in (
        (f"{tmp_path}/b1,{tmp_path}/nothing*", "/nothing"),
        (" ,", "' ,'"),
    ):
        with pytest.raises(ValueError, match=named):
            expand_files(patterns)


def test_expand_files_finds_all_files_below_a_folder(tmp_path):
    hidden = ("AA/.hidden", ".git/config", "AA/.ipynb_checkpoints/wiki_00")
    for name in ("AB/wiki_00", "AA/wiki_01", "AA/wiki_00", "AA/wiki_02.tmp", "last", *hidden):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    found = [f.removeprefix(f"{tmp_path}/") for f in expand_files(str(tmp_path), folders=True)]
    assert found == ["AA/wiki_00", "AA/wiki_01", "AB/wiki_00", "last"]


def test_list_checkpoint_files_are_those_of_its_name(tmp_path):
    (tmp_path / "saved" / "variables").mkdir(parents=True)
    files_of = {
        "model.ckpt-1": ["model.ckpt-1.data-00000-of-00001", "model.ckpt-1.index"],
        "a.safetensors": ["a.safetensors"],
        "m.safetensors.index.json": ["m-1-of-1.safetensors", "m.safetensors.index.json"],
        "saved": ["saved/saved_model.pb", "saved/variables/variables.index"],
    }
    others = ["model.ckpt-12.index", "b.safetensors", "m_q8.safetensors"]
    for name in itertools.chain(*files_of.values(), others):
        (tmp_path / name).touch()
    for path, names in files_of.items():
        found = list_checkpoint_files(str(tmp_path / path))
        assert [os.path.relpath(file, tmp_path) for file in found] == names


def write_record(path):
    with RecordWriter(path, [FeatureSpec("ids", (1,))]) as writer:
        writer.write({"ids": [7]})


WRITERS = {"text": lambda path: write_text(path, "new\n"), "records": write_record}


@pytest.mark.parametrize("writer", WRITERS)
def test_a_named_pipe_is_written_into_and_stays_one(tmp_path, writer):
    pipe, regular, found = tmp_path / "pipe", tmp_path / "regular", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: found.append(pipe.read_bytes()), daemon=True)
    reader.start()
    WRITERS[writer](pipe)
    reader.join(timeout=60)
    WRITERS[writer](regular)
    assert found == [regular.read_bytes()]
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert {*tmp_path.iterdir()} == {pipe, regular}


@pytest.mark.parametrize("writer", WRITERS)
def test_a_link_stays_one_and_its_target_is_replaced(tmp_path, writer):
    target, link = tmp_path / "disk" / "target", tmp_path / "link"
    target.parent.mkdir()
    link.symlink_to(target)
    WRITERS[writer](tmp_path / "regular")
    size = (tmp_path / "regular").stat().st_size
    for _ in range(2):  # without a target, and with an old one
        WRITERS[writer](link)
        assert link.is_symlink() and len(target.read_bytes()) == size
        assert [path.name for path in target.parent.iterdir()] == ["target"]
        target.write_text("old, and longer than the new one")


def test_atomic_folder_appears_whole_or_not_at_all(tmp_path):
    with pytest.raises(KeyError), atomic_folder(f"{tmp_path}/1", "--export_dir") as folder:
        write_text(os.path.join(folder, "half"), "half")
        raise KeyError("a bug of the caller")
    assert not any(tmp_path.iterdir())
    (tmp_path / "1").mkdir()
    with atomic_folder(f"{tmp_path}/1/", "--export_dir") as folder:
        write_text(os.path.join(folder, "file"), "whole")
        assert not any((tmp_path / "1").iterdir())
    assert (tmp_path / "1" / "file").read_text() == "whole"
    assert [path.name for path in tmp_path.iterdir()] == ["1"]


def test_check_not_an_input_refuses_inputs_and_folders(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("a")
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path)
    (tmp_path / "link_to_a").symlink_to(tmp_path / "a.txt")
    inputs = [f"{tmp_path}/other.txt", f"{tmp_path}/a.txt"]
    check_not_an_input(["new", "/dev/null"], [*inputs, "/dev/null"])
    outputs = ["a.txt", "./a.txt", f"{tmp_path}/link/a.txt", "link_to_a"]
    for output in [*outputs, ".", "folder", "folder/", "new/", "link"]:
        with pytest.raises(ValueError, match=f"output_file={output} "):
            check_not_an_input(["new", output], inputs)
