"""hf://org/name, with a huggingface_hub that copies from a folder of this machine."""

import fnmatch
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from tiny_checkpoints import arrays_of, assert_same, huggingface_tensors, write_huggingface

from bert_tf.interop import hub
from bert_tf.interop.read import folder_of, read_checkpoint

pytest.importorskip("safetensors", reason="needs the extra [hf]")

ARRAYS = arrays_of("masked_lm", "next_sentence")


@pytest.fixture
def fake_hub(tmp_path, monkeypatch):
    """The folder that stands for the Hub, and the calls that reached it."""
    online, calls = tmp_path / "online", []

    def snapshot_download(name, *, revision=None, allow_patterns):
        calls.append((name, revision))
        source, target = online / name, tmp_path / "cache" / name
        if not source.is_dir():
            raise OSError(f"404: Repository Not Found: {name}")
        for file in source.rglob("*"):
            path = file.relative_to(source)
            if any(fnmatch.fnmatch(str(path), pattern) for pattern in allow_patterns):
                (target / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file, target / path)
        return str(target)

    module = SimpleNamespace(snapshot_download=snapshot_download)
    monkeypatch.setitem(sys.modules, "huggingface_hub", module)
    hub._download.cache_clear()
    write_huggingface(online / "org" / "tiny", huggingface_tensors(ARRAYS))
    (online / "org" / "tiny" / "vocab.txt").write_text("[PAD]\n[UNK]\n")
    (online / "org" / "tiny" / "tf_model.h5").write_text("")
    return SimpleNamespace(online=online, calls=calls)


def test_model_is_downloaded_once_and_read(fake_hub, tmp_path):
    checkpoint = read_checkpoint("hf://org/tiny")
    assert_same(checkpoint.arrays, ARRAYS)
    folder = tmp_path / "cache" / "org" / "tiny"
    assert checkpoint.vocab_file == str(folder / "vocab.txt")
    assert folder_of("hf://org/tiny/") == str(folder)
    assert not (folder / "tf_model.h5").exists()
    assert fake_hub.calls == [("org/tiny", None)]


def test_pickles_are_fetched_only_where_there_is_nothing_else(fake_hub, tmp_path):
    for name in ("both", "old", "tf"):
        shutil.copytree(fake_hub.online / "org" / "tiny", fake_hub.online / "org" / name)
        (fake_hub.online / "org" / name / "pytorch_model.bin").write_text("")
    (fake_hub.online / "org" / "old" / "model.safetensors").unlink()
    (fake_hub.online / "org" / "tf" / "model.safetensors").unlink()
    (fake_hub.online / "org" / "tf" / "pytorch_model.bin").unlink()
    folders = {name: tmp_path / "cache" / "org" / name for name in ("both", "old", "tf")}
    assert hub.local_path("hf://org/both") == str(folders["both"])
    assert not (folders["both"] / "pytorch_model.bin").exists()
    assert hub.local_path("hf://org/old") == str(folders["old"])
    assert (folders["old"] / "pytorch_model.bin").exists()
    assert not (folders["old"] / "tf_model.h5").exists()
    assert hub.local_path("hf://org/tf") == str(folders["tf"])
    assert (folders["tf"] / "tf_model.h5").exists()


def test_all_files_of_a_sentence_transformers_folder_are_fetched(fake_hub):
    modules = fake_hub.online / "org" / "modules"
    expected = [
        "0_Transformer/config.json",
        "0_Transformer/pytorch_model-1-of-1.bin",
        "0_Transformer/pytorch_model.bin.index.json",
        "0_Transformer/vocab.txt",
        "2_Dense/model.safetensors",
        "3_Dense/pytorch_model.bin",
        "modules.json",
    ]
    for name in expected:
        (modules / name).parent.mkdir(parents=True, exist_ok=True)
        (modules / name).touch()
    folder = Path(hub.local_path("hf://org/modules"))
    files = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    assert sorted(map(str, files)) == expected


def test_missing_library_is_an_error_with_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    hub._download.cache_clear()
    with pytest.raises(ImportError, match=r"hf://org/other.*\[hf\]"):
        read_checkpoint("hf://org/other")
