"""hf://org/name, with a huggingface_hub that copies from a folder of this machine."""

import fnmatch
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from tiny_checkpoints import arrays_of, assert_same, huggingface_tensors, write_huggingface

from bert_tf.checkpoints import hub
from bert_tf.checkpoints.read import read_checkpoint

ARRAYS = arrays_of("masked_lm", "next_sentence")


@pytest.fixture
def fake_hub(tmp_path, monkeypatch):
    """`online` stands for the Hub; `address` is hf://org of this test, since downloads are kept."""
    online, calls, org = tmp_path / "online", [], tmp_path.name

    def snapshot_download(name, *, revision=None, allow_patterns):
        calls.append((name, revision))
        source, target = online / name, tmp_path / "cache" / name
        for file in source.rglob("*"):
            path = file.relative_to(source)
            if any(fnmatch.fnmatch(str(path), pattern) for pattern in allow_patterns):
                (target / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file, target / path)
        return str(target)

    module = SimpleNamespace(snapshot_download=snapshot_download)
    monkeypatch.setitem(sys.modules, "huggingface_hub", module)
    write_huggingface(online / org / "tiny", huggingface_tensors(ARRAYS))
    (online / org / "tiny" / "vocab.txt").write_text("[PAD]\n[UNK]\n")
    (online / org / "tiny" / "tf_model.h5").write_text("")
    cache = tmp_path / "cache" / org
    return SimpleNamespace(
        online=online / org, cache=cache, calls=calls, org=org, address=f"hf://{org}"
    )


def test_model_is_downloaded_once_and_read(fake_hub):
    checkpoint = read_checkpoint(f"{fake_hub.address}/tiny/")
    assert_same(checkpoint.arrays, ARRAYS)
    folder = fake_hub.cache / "tiny"
    assert checkpoint.tokenizer.vocab_file == str(folder / "vocab.txt")
    assert not (folder / "tf_model.h5").exists()
    assert fake_hub.calls == [(f"{fake_hub.org}/tiny", None)]


def test_pickles_are_fetched_only_where_there_is_nothing_else(fake_hub):
    weights = {"model.safetensors", "pytorch_model.bin", "tf_model.h5"}
    for name, absent, fetched in (
        ("both", set(), "model.safetensors"),
        ("old", {"model.safetensors"}, "pytorch_model.bin"),
        ("tf", {"model.safetensors", "pytorch_model.bin"}, "tf_model.h5"),
    ):
        shutil.copytree(fake_hub.online / "tiny", fake_hub.online / name)
        (fake_hub.online / name / "pytorch_model.bin").write_text("")
        for file in absent:
            (fake_hub.online / name / file).unlink()
        folder = Path(hub.local_path(f"{fake_hub.address}/{name}"))
        assert folder == fake_hub.cache / name
        assert weights & {path.name for path in folder.iterdir()} == {fetched}


def test_all_files_of_a_sentence_transformers_folder_are_fetched(fake_hub):
    modules = fake_hub.online / "modules"
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
    folder = Path(hub.local_path(f"{fake_hub.address}/modules"))
    files = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    assert sorted(map(str, files)) == expected
