"""Third-party files: no code runs, and nothing outside of their folder is read or changed."""

import os

import pytest
from helpers import cause_of
from tiny_checkpoints import arrays_of, write_json, write_tf1

from bert_tf.checkpoints.read import read_checkpoint
from bert_tf.checkpoints.sentence_transformers import embedding_settings
from bert_tf.checkpoints.tensor_files import open_tensors
from bert_tf.checkpoints.tf1 import latest_checkpoint


class Calls:
    """Calls a function when it is unpickled."""

    def __reduce__(self):
        return os.mkdir, ("made by a pickle",)


@pytest.mark.parametrize("zipped", [True, False])
def test_a_pickle_of_pytorch_has_tensors_but_runs_no_code(tmp_path, monkeypatch, zipped):
    torch = pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    torch.save({"x": Calls()}, "pytorch_model.bin", _use_new_zipfile_serialization=zipped)
    with pytest.raises(ValueError, match=r"pytorch_model\.bin"):
        open_tensors("pytorch_model.bin")
    assert os.listdir(tmp_path) == ["pytorch_model.bin"]
    names = ["float16", "bfloat16", "float32", "float64", "int64", "bool"]
    tensors = {name: torch.tensor([0, 1]).to(getattr(torch, name)) for name in names}
    tensors["parameter"] = torch.nn.Parameter(torch.tensor([0.0, 1.0]))
    torch.save(tensors, "x.bin", _use_new_zipfile_serialization=zipped)
    read = open_tensors("x.bin")
    assert {name: read[name].tolist() for name in read} == {name: [0, 1] for name in tensors}


def test_a_checkpoint_outside_of_its_folder_is_not_read(tmp_path):
    folder, outside = tmp_path / "runs" / "model", tmp_path / "outside"
    for each, step in ((folder, 3), (outside, 7)):
        each.mkdir(parents=True)
        write_tf1(each, arrays_of("classifier"), name=f"model.ckpt-{step}")
    for path in ("../../outside/model.ckpt-7", f"{outside}/model.ckpt-7", "../.."):
        (folder / "checkpoint").write_text(f'model_checkpoint_path: "{path}"\n')
        with pytest.raises(ValueError, match=str(folder)):
            read_checkpoint(str(folder))
        assert latest_checkpoint(str(folder)) is None


def test_modules_and_shards_outside_of_their_folder_are_refused(tmp_path):
    kind = "sentence_transformers.models.Transformer"
    index = tmp_path / "model.safetensors.index.json"
    for part in ("../1_Pooling", "/etc", "a\\..\\b"):
        write_json(tmp_path / "modules.json", [{"type": kind, "path": part}])
        write_json(index, {"weight_map": {"a": part}})
        assert cause_of(embedding_settings, str(tmp_path)) == f"{tmp_path}/modules.json"
        assert cause_of(open_tensors, str(index)) == str(index)
