"""Folders that Hugging Face's TF classes saved: tf_model.h5, and safetensors with their names.

The names are those of the files of transformers 4.57.6 with TensorFlow 2.21, read from real ones of its
eight classes. Our outputs equal theirs within 5e-7 (docs/results_serving.md).
"""

import h5py
import numpy as np
import pytest
from tiny_checkpoints import HUGGINGFACE_CONFIG, arrays_of, assert_same, write_json

from bert_tf.interop.huggingface import read_huggingface
from bert_tf.limits import DataError

NAMES = {
    "bert/embeddings/word_embeddings": "bert/embeddings/word_embeddings/weight",
    "bert/embeddings/token_type_embeddings": "bert/embeddings/token_type_embeddings/embeddings",
    "bert/embeddings/position_embeddings": "bert/embeddings/position_embeddings/embeddings",
    "cls/predictions/output_bias": "mlm___cls/predictions/bias",
    "cls/seq_relationship/output_weights": "nsp___cls/seq_relationship/kernel",
    "cls/seq_relationship/output_bias": "nsp___cls/seq_relationship/bias",
    "cls/squad/output_weights": "qa_outputs/kernel",
    "cls/squad/output_bias": "qa_outputs/bias",
    "output_weights": "classifier/kernel",
    "output_bias": "classifier/bias",
}
CLASSES = {
    (): "bert_model",
    ("masked_lm", "next_sentence"): "bert_for_pre_training",
    ("classifier",): "bert_for_sequence_classification",
    ("span",): "bert_for_question_answering",
}


def tf_variables(arrays):
    """The arrays with the names and the layout of a TF class."""
    found = {}
    for name, array in arrays.items():
        theirs = NAMES.get(name, name.replace("layer_", "layer_._").replace("cls/", "mlm___cls/"))
        found[f"{theirs}:0"] = array.T if name.endswith("output_weights") else array
    return found


def write_h5(folder, arrays, class_name="bert_model"):
    """tf_model.h5 as Keras 2 writes it: a group for each layer, which lists its weights."""
    write_json(folder / "config.json", HUGGINGFACE_CONFIG)
    variables = tf_variables(arrays)
    layers = sorted({name.split("/")[0] for name in variables})
    with h5py.File(folder / "tf_model.h5", "w") as file:
        file.attrs["layer_names"] = [layer.encode() for layer in (*layers, "dropout_37")]
        file.create_group("dropout_37").attrs["weight_names"] = np.zeros(0)
        for layer in layers:
            group = file.create_group(layer)
            own = {f"tf_{class_name}/{n}": v for n, v in variables.items() if n.startswith(layer)}
            group.attrs["weight_names"] = [name.encode() for name in own]
            for name, value in own.items():
                group.create_dataset(name, data=value)
    return folder


def test_every_variable_of_a_tf_class_is_read(tmp_path):
    for heads, name in CLASSES.items():
        arrays = arrays_of(*heads)
        found = read_huggingface(write_h5(tmp_path / name, arrays, name))
        assert_same(found.arrays, arrays)
        assert found.source.endswith("tf_model.h5")


def test_safetensors_of_a_tf_class_are_read(tmp_path):
    safetensors_numpy = pytest.importorskip("safetensors.numpy", reason="needs the extra [hf]")
    arrays = arrays_of("classifier")
    variables = {n: np.ascontiguousarray(v) for n, v in tf_variables(arrays).items()}
    write_json(tmp_path / "config.json", HUGGINGFACE_CONFIG)
    safetensors_numpy.save_file(variables, tmp_path / "model.safetensors", {"format": "tf"})
    assert_same(read_huggingface(tmp_path).arrays, arrays)


def test_the_heads_of_transformers_4_2_have_an_axis_of_their_own(tmp_path):
    arrays = arrays_of()
    apart = dict(arrays)
    for name, array in arrays.items():
        if "/attention/self/" in name:  # [H, N, D] and [N, D]
            apart[name] = array.reshape(*array.shape[:-1], 2, -1)
        elif "/attention/output/dense/kernel" in name:  # [N, D, H]
            apart[name] = array.reshape(2, -1, array.shape[-1])
    assert any(array.ndim == 3 for array in apart.values())
    assert_same(read_huggingface(write_h5(tmp_path, apart)).arrays, arrays)


def test_a_file_that_is_cut_off_or_of_another_program_is_named(tmp_path):
    cut = write_h5(tmp_path / "cut", arrays_of()) / "tf_model.h5"
    cut.write_bytes(cut.read_bytes()[:2000])
    other = write_json(tmp_path / "other" / "config.json", HUGGINGFACE_CONFIG)
    with h5py.File(other.with_name("tf_model.h5"), "w") as file:
        file["table"] = np.zeros(3)
    for path in (cut, other.with_name("tf_model.h5")):
        with pytest.raises(DataError) as error:
            read_huggingface(path.parent)
        assert error.value.location == str(path)
