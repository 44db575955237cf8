import sys
import types
from pathlib import Path

import h5py
import numpy as np
import pytest
from helpers import cause_of
from tiny_checkpoints import (
    CONFIG,
    HUGGINGFACE_CONFIG,
    arrays_of,
    assert_same,
    huggingface_tensors,
    write_huggingface,
    write_json,
)

from bert_tf.checkpoints.huggingface import read_huggingface
from bert_tf.checkpoints.read import read_checkpoint

safetensors_numpy = pytest.importorskip("safetensors.numpy", reason="needs the extra [hf]")
ENCODER = arrays_of()
TENSORS = huggingface_tensors(ENCODER)


# ---- Names, layout, heads ------------------------------------------------------------------------


def test_every_head_gets_the_names_and_layout_of_the_reference(tmp_path):
    for heads in ((), ("masked_lm", "next_sentence"), ("classifier",), ("span",)):
        arrays = arrays_of(*heads)
        for prefix in ("bert.", ""):
            folder = write_huggingface(tmp_path, huggingface_tensors(arrays, prefix))
            assert_same(read_huggingface(folder).arrays, arrays)


def test_gelu_is_the_exact_form_even_where_no_other_key_is_huggingfaces(tmp_path):
    write_huggingface(tmp_path, TENSORS)
    write_json(tmp_path / "config.json", CONFIG.to_dict())
    assert read_huggingface(tmp_path).config.hidden_act == "gelu_erf"


def test_gamma_and_beta_are_the_old_names_of_weight_and_bias(tmp_path):
    tensors = {
        name.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta"): tensor
        for name, tensor in TENSORS.items()
    }
    assert_same(read_huggingface(write_huggingface(tmp_path, tensors)).arrays, ENCODER)


@pytest.mark.parametrize("is_tied", [True, False])
def test_a_decoder_is_kept_and_noted_unless_it_is_tied(tmp_path, is_tied):
    arrays = arrays_of("masked_lm")
    tensors, decoder = huggingface_tensors(arrays), "cls.predictions.decoder.weight"
    own = {decoder: arrays["bert/embeddings/word_embeddings"] + (0 if is_tied else 1)}
    tensors["cls.predictions.decoder.bias"] = tensors.pop("cls.predictions.bias")
    checkpoint = read_huggingface(write_huggingface(tmp_path, {**tensors, **own}))
    assert_same(checkpoint.arrays, arrays if is_tied else {**arrays, **own})
    assert [decoder in note for note in checkpoint.notes] == ([] if is_tied else [True])


def test_unknown_tensors_keep_their_own_names(tmp_path):
    own = {
        "bert.encoder.layer.2.output.dense.bias": np.ones(8, np.float32),  # the model has 2 layers
        "crf.transitions": np.ones((3, 3), np.float32),
    }
    folder = write_huggingface(tmp_path, {**TENSORS, **own})
    assert_same(read_huggingface(folder).arrays, {**ENCODER, **own})


# ---- Labels, tokenizer ---------------------------------------------------------------------------


def test_labels_stand_in_the_order_of_their_ids(tmp_path):
    tensors = huggingface_tensors(arrays_of("classifier", num_labels=11))
    id2label = {str(index): f"label {index}" for index in reversed(range(11))}
    architectures = ["BertForSequenceClassification"]
    values = {"id2label": id2label, "architectures": architectures}
    checkpoint = read_huggingface(write_huggingface(tmp_path, tensors, **values))
    assert checkpoint.labels == tuple(f"label {index}" for index in range(11))
    assert checkpoint.architecture == architectures[0]
    write_huggingface(tmp_path, tensors, id2label={"0": "no", "1": "yes"})
    assert cause_of(read_checkpoint, tmp_path) == str(tmp_path / "config.json")
    tensors = huggingface_tensors(arrays_of("classifier", num_labels=1))
    values = {"id2label": {"0": "a", "1": "b"}, "architectures": ["BertForMultipleChoice"]}
    assert read_huggingface(write_huggingface(tmp_path, tensors, **values)).labels is None


def test_vocabulary_and_case_come_from_the_same_folder(tmp_path):
    folder = write_huggingface(tmp_path, TENSORS)
    assert read_checkpoint(folder).tokenizer.do_lower_case is None
    path = tmp_path / "tokenizer.json"
    model = {"type": "WordPiece", "vocab": {"b": 1, "[UNK]": 0, "##c": 2}}
    write_json(path, {"normalizer": {"lowercase": True}, "model": model})
    checkpoint = read_checkpoint(folder)
    assert checkpoint.tokenizer.vocab_file is None
    assert checkpoint.tokenizer.vocab == ("[UNK]", "b", "##c")
    assert checkpoint.tokenizer.do_lower_case is True
    write_json(path, {"model": {"type": "WordPiece", "vocab": {"[PAD]": 0, "b": 2}}})
    assert cause_of(read_checkpoint, folder) == str(path)
    write_json(path, {"normalizer": None, "model": {"type": "BPE", "vocab": {}}})
    assert read_checkpoint(folder).tokenizer.vocab is None
    (tmp_path / "vocab.txt").write_text("[PAD]\n")
    write_json(tmp_path / "tokenizer_config.json", {"do_lower_case": False})
    checkpoint = read_checkpoint(folder)
    assert checkpoint.tokenizer.vocab_file == str(tmp_path / "vocab.txt")
    assert (checkpoint.tokenizer.vocab, checkpoint.tokenizer.do_lower_case) == (("[PAD]",), False)


# ---- Files ---------------------------------------------------------------------------------------


def test_shards_are_read_as_one(tmp_path):
    write_json(tmp_path / "config.json", HUGGINGFACE_CONFIG)
    names, weight_map = sorted(TENSORS), {}
    for number in (1, 2):
        file, part = f"model-0000{number}-of-00002.safetensors", names[number - 1 :: 2]
        safetensors_numpy.save_file({name: TENSORS[name] for name in part}, tmp_path / file)
        weight_map |= dict.fromkeys(part, file)
    write_json(tmp_path / "model.safetensors.index.json", {"weight_map": weight_map})
    assert_same(read_huggingface(tmp_path).arrays, ENCODER)
    (tmp_path / file).write_bytes(b"cut off")
    assert cause_of(read_checkpoint, tmp_path) == str(tmp_path / file)
    (tmp_path / file).unlink()
    with pytest.raises(FileNotFoundError, match=file):
        read_huggingface(tmp_path)


def test_transformer_of_a_sentence_transformers_folder_is_found(tmp_path):
    for path in ("0_Transformer", ""):
        types = ((path, "Transformer"), ("1_Pooling", "Pooling"))
        modules = [
            {"path": module, "type": f"sentence_transformers.models.{kind}"}
            for module, kind in types
        ]
        write_json(tmp_path / "modules.json", modules)
        write_huggingface(tmp_path / path, huggingface_tensors(ENCODER, prefix=""))
        checkpoint = read_huggingface(tmp_path)
        assert Path(checkpoint.source).parent == tmp_path / path
        assert_same(checkpoint.arrays, ENCODER)


def test_adapters_and_other_architectures_are_refused(tmp_path):
    write_json(tmp_path / "adapter_config.json", {"peft_type": "LORA"})
    with pytest.raises(FileNotFoundError):
        read_checkpoint(tmp_path)
    write_huggingface(tmp_path, TENSORS)
    assert cause_of(read_checkpoint, tmp_path) == str(tmp_path)
    (tmp_path / "adapter_config.json").unlink()
    write_huggingface(tmp_path, TENSORS, model_type="deberta", relative_attention=True)
    with pytest.raises(ValueError, match="model_type"):
        read_checkpoint(tmp_path)
    own = {name.replace("query.", "query.base_layer."): value for name, value in TENSORS.items()}
    write_huggingface(tmp_path, own)
    assert cause_of(read_checkpoint, tmp_path) == str(tmp_path)


def test_a_torch_whose_weights_only_can_be_got_round_is_refused(tmp_path, monkeypatch):
    write_json(tmp_path / "config.json", HUGGINGFACE_CONFIG)
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    old = types.SimpleNamespace(__version__="2.5.1+cpu")
    monkeypatch.setitem(sys.modules, "torch", old)
    with pytest.raises(ImportError, match="CVE-2025-32434"):
        read_huggingface(tmp_path)


# ---- Folders of Hugging Face's TF classes: tf_model.h5, and safetensors with their names ---------

# The names are those of files of transformers 4.57.6 with TensorFlow 2.21, read from its eight classes.
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
    arrays = arrays_of("classifier")
    variables = {n: np.ascontiguousarray(v) for n, v in tf_variables(arrays).items()}
    write_json(tmp_path / "config.json", HUGGINGFACE_CONFIG)
    safetensors_numpy.save_file(variables, tmp_path / "model.safetensors", {"format": "tf"})
    assert_same(read_huggingface(tmp_path).arrays, arrays)
