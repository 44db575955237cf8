"""Third-party files: no code runs, and nothing outside of their folder is read or changed."""

import os

import pytest
from tiny_checkpoints import arrays_of, write_json, write_tf1

from bert_tf.config import BertConfig
from bert_tf.data.files import new_folder
from bert_tf.interop.read import read_checkpoint
from bert_tf.interop.sentence_transformers import embedding_settings
from bert_tf.interop.tensor_files import open_tensors
from bert_tf.limits import MAX_WHOLE_FILE, read_json
from bert_tf.training.checkpoints import latest_checkpoint
from bert_tf.vocabulary import load_vocab


@pytest.mark.parametrize("read", [read_json, BertConfig.from_json_file, load_vocab])
def test_a_file_that_is_read_whole_has_a_limit(tmp_path, read):
    path = tmp_path / "config.json"
    path.touch()
    os.truncate(path, 8 * MAX_WHOLE_FILE)  # zeros that take no space on the disk
    with pytest.raises(ValueError, match=r"config\.json"):
        read(str(path))


def test_deeply_nested_json_names_its_file(tmp_path):
    (tmp_path / "a.json").write_text("[" * 1_000_000)
    with pytest.raises(ValueError, match=r"a\.json"):
        read_json(str(tmp_path / "a.json"))


class Calls:
    """Calls a function when it is unpickled."""

    def __reduce__(self):
        return os.mkdir, ("made by a pickle",)


@pytest.mark.parametrize("zipped", [True, False])
def test_a_pickle_that_runs_code_is_rejected(tmp_path, monkeypatch, zipped):
    torch = pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "pytorch_model.bin"
    torch.save({"x": Calls()}, path, _use_new_zipfile_serialization=zipped)
    with pytest.raises(ValueError, match=r"pytorch_model\.bin.*would run code"):
        open_tensors(str(path))
    assert os.listdir(tmp_path) == ["pytorch_model.bin"]


@pytest.mark.parametrize("zipped", [True, False])
def test_tensors_of_pytorch_are_read(tmp_path, zipped):
    torch = pytest.importorskip("torch")
    names = ["float16", "bfloat16", "float32", "float64", "int64", "bool"]
    tensors = {name: torch.tensor([0, 1]).to(getattr(torch, name)) for name in names}
    tensors["parameter"] = torch.nn.Parameter(torch.tensor([0.0, 1.0]))
    torch.save(tensors, tmp_path / "x.bin", _use_new_zipfile_serialization=zipped)
    read = open_tensors(str(tmp_path / "x.bin"))
    assert {name: read[name].tolist() for name in read} == {name: [0, 1] for name in tensors}


@pytest.mark.parametrize("name", ["../../outside/model.ckpt-7", "{outside}/model.ckpt-7", "../.."])
def test_a_checkpoint_outside_of_its_folder_is_not_read(tmp_path, name):
    folder, outside = tmp_path / "runs" / "model", tmp_path / "outside"
    for each, step in ((folder, 3), (outside, 7)):
        each.mkdir(parents=True)
        write_tf1(each, arrays_of("classifier"), name=f"model.ckpt-{step}")
    path = name.format(outside=outside)
    (folder / "checkpoint").write_text(f'model_checkpoint_path: "{path}"\n')
    with pytest.raises(FileNotFoundError, match=str(folder)):
        read_checkpoint(str(folder))
    assert latest_checkpoint(str(folder)) is None


@pytest.mark.parametrize("part", ["../1_Pooling", "/etc", "a\\..\\b"])
def test_modules_and_shards_outside_of_their_folder_are_rejected(tmp_path, part):
    kind = "sentence_transformers.models.Transformer"
    write_json(tmp_path / "modules.json", [{"type": kind, "path": part}])
    with pytest.raises(ValueError, match=r"modules\.json"):
        embedding_settings(str(tmp_path))
    index = tmp_path / "model.safetensors.index.json"
    write_json(index, {"weight_map": {"a": part}})
    with pytest.raises(ValueError, match=r"index\.json"):
        open_tensors(str(index))


def test_a_new_folder_keeps_files_behind_links_of_an_unfinished_one(tmp_path):
    home, left = tmp_path / "home", tmp_path / "exported.tmp"
    (home / "folder").mkdir(parents=True)
    (home / "file").write_text("precious")
    (left / "folder").mkdir(parents=True)
    for link in (left / "link", left / "folder" / "link"):
        link.symlink_to(home)
    (left / "to a file").symlink_to(home / "file")
    with new_folder(str(tmp_path / "exported"), "export_dir") as folder:
        assert not os.listdir(folder)
    left.symlink_to(home)
    (tmp_path / "exported").rmdir()
    with (
        pytest.raises(ValueError, match="export_dir"),
        new_folder(str(tmp_path / "exported"), "export_dir"),
    ):
        raise AssertionError("not reached")
    assert sorted(os.listdir(home)) == ["file", "folder"]
