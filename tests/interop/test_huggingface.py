import sys
import types
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from tiny_checkpoints import (
    CONFIG,
    HUGGINGFACE_CONFIG,
    arrays_of,
    assert_same,
    huggingface_tensors,
    write_huggingface,
    write_json,
)

from bert_tf.interop.huggingface import read_huggingface
from bert_tf.interop.read import read_checkpoint
from bert_tf.options import OptionError
from bert_tf.programs.convert_checkpoint import ConvertOptions

safetensors_numpy = pytest.importorskip("safetensors.numpy", reason="needs the extra [hf]")
ENCODER = arrays_of()


def write_shards(folder, tensors):
    """model-00001 and model-00002 with their index."""
    names = sorted(tensors)
    half = len(names) // 2
    weight_map = {}
    for number, part in enumerate((names[:half], names[half:]), start=1):
        file = f"model-0000{number}-of-00002.safetensors"
        safetensors_numpy.save_file({name: tensors[name] for name in part}, folder / file)
        weight_map |= dict.fromkeys(part, file)
    write_json(folder / "model.safetensors.index.json", {"weight_map": weight_map})


# ---- Names, layout, heads ------------------------------------------------------------------------


@pytest.mark.parametrize("heads", [(), ("masked_lm", "next_sentence"), ("classifier",), ("span",)])
@pytest.mark.parametrize("prefix", ["bert.", ""])
def test_every_head_gets_the_names_and_layout_of_the_reference(tmp_path, heads, prefix):
    arrays = arrays_of(*heads)
    folder = write_huggingface(tmp_path, huggingface_tensors(arrays, prefix))
    assert_same(read_huggingface(folder).arrays, arrays)


def test_gelu_is_the_exact_form_even_where_no_other_key_is_huggingfaces(tmp_path):
    write_huggingface(tmp_path, huggingface_tensors(ENCODER))
    write_json(tmp_path / "config.json", CONFIG.to_dict())
    assert read_huggingface(tmp_path).config.hidden_act == "gelu_erf"


def test_gamma_and_beta_are_the_old_names_of_weight_and_bias(tmp_path):
    tensors = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): tensor
        for name, tensor in huggingface_tensors(ENCODER).items()
    }
    assert_same(read_huggingface(write_huggingface(tmp_path, tensors)).arrays, ENCODER)


def test_tied_weights_under_a_second_name_are_read_once(tmp_path):
    arrays = arrays_of("masked_lm")
    tensors = huggingface_tensors(arrays)
    tensors["cls.predictions.decoder.weight"] = arrays["bert/embeddings/word_embeddings"].copy()
    tensors["cls.predictions.decoder.bias"] = tensors.pop("cls.predictions.bias")
    checkpoint = read_huggingface(write_huggingface(tmp_path, tensors))
    assert_same(checkpoint.arrays, arrays)
    assert checkpoint.notes == ()


def test_untied_decoder_is_kept_under_its_own_name_and_noted(tmp_path):
    arrays = arrays_of("masked_lm")
    own = {"cls.predictions.decoder.weight": arrays["bert/embeddings/word_embeddings"] + 1}
    checkpoint = read_huggingface(
        write_huggingface(tmp_path, {**huggingface_tensors(arrays), **own})
    )
    assert_same(checkpoint.arrays, {**arrays, **own})
    assert "decoder.weight differs from bert.embeddings.word_embeddings" in checkpoint.notes[0]


def test_unknown_tensors_keep_their_own_names(tmp_path):
    own = {
        "bert.encoder.layer.2.output.dense.bias": np.ones(8, np.float32),  # the model has 2 layers
        "crf.transitions": np.ones((3, 3), np.float32),
    }
    folder = write_huggingface(tmp_path, {**huggingface_tensors(ENCODER), **own})
    assert_same(read_huggingface(folder).arrays, {**ENCODER, **own})


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float64])
def test_every_precision_becomes_float32(tmp_path, dtype):
    tensors = {name: t.astype(dtype) for name, t in huggingface_tensors(ENCODER).items()}
    expected = {name: a.astype(dtype).astype(np.float32) for name, a in ENCODER.items()}
    assert_same(read_huggingface(write_huggingface(tmp_path, tensors)).arrays, expected)


# ---- Labels, architecture, tokenizer -------------------------------------------------------------


def test_labels_stand_in_the_order_of_their_ids(tmp_path):
    tensors = huggingface_tensors(arrays_of("classifier", num_labels=11))
    id2label = {str(index): f"label {index}" for index in reversed(range(11))}
    folder = write_huggingface(
        tmp_path, tensors, id2label=id2label, architectures=["BertForSequenceClassification"]
    )
    checkpoint = read_huggingface(folder)
    assert checkpoint.labels == tuple(f"label {index}" for index in range(11))
    assert checkpoint.architecture == "BertForSequenceClassification"


def test_labels_that_do_not_fit_the_classifier_are_an_error(tmp_path):
    tensors = huggingface_tensors(arrays_of("classifier", num_labels=3))
    folder = write_huggingface(tmp_path, tensors, id2label={"0": "no", "1": "yes"})
    with pytest.raises(ValueError, match="id2label"):
        read_huggingface(folder)


def test_choices_have_no_labels(tmp_path):
    tensors = huggingface_tensors(arrays_of("classifier", num_labels=1))
    folder = write_huggingface(
        tmp_path,
        tensors,
        id2label={"0": "LABEL_0", "1": "LABEL_1"},
        architectures=["BertForMultipleChoice"],
    )
    assert read_huggingface(folder).labels is None


def test_vocabulary_and_case_come_from_the_same_folder(tmp_path):
    folder = write_huggingface(tmp_path, huggingface_tensors(ENCODER))
    assert read_huggingface(folder).do_lower_case is None
    (tmp_path / "vocab.txt").write_text("[PAD]\n")
    write_json(tmp_path / "tokenizer_config.json", {"do_lower_case": False})
    checkpoint = read_huggingface(folder)
    assert checkpoint.vocab_file == str(tmp_path / "vocab.txt")
    assert checkpoint.vocab is None
    assert checkpoint.do_lower_case is False


def test_vocabulary_is_taken_from_tokenizer_json_where_there_is_no_vocab_txt(tmp_path):
    folder = write_huggingface(tmp_path, huggingface_tensors(ENCODER))
    path = tmp_path / "tokenizer.json"
    model = {"type": "WordPiece", "vocab": {"b": 1, "[UNK]": 0, "##c": 2}}
    write_json(path, {"normalizer": {"lowercase": True}, "model": model})
    checkpoint = read_huggingface(folder)
    assert checkpoint.vocab_file is None
    assert checkpoint.vocab == ("[UNK]", "b", "##c")
    assert checkpoint.do_lower_case is True

    write_json(path, {"model": {"type": "WordPiece", "vocab": {"[PAD]": 0, "b": 2}}})
    with pytest.raises(ValueError, match=f"{path}"):
        read_huggingface(folder)
    write_json(path, {"normalizer": None, "model": {"type": "BPE", "vocab": {}}})
    assert read_huggingface(folder).vocab is None


# ---- Files ---------------------------------------------------------------------------------------


def test_shards_are_read_as_one(tmp_path):
    write_json(tmp_path / "config.json", HUGGINGFACE_CONFIG)
    write_shards(tmp_path, huggingface_tensors(ENCODER))
    assert_same(read_huggingface(tmp_path).arrays, ENCODER)
    (tmp_path / "model-00002-of-00002.safetensors").write_bytes(b"cut off")
    with pytest.raises(ValueError, match="model-00002-of-00002"):
        read_huggingface(tmp_path)
    (tmp_path / "model-00002-of-00002.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match="model-00002-of-00002"):
        read_huggingface(tmp_path)


@pytest.mark.parametrize("model_path", ["", "0_Transformer"])
def test_transformer_of_a_sentence_transformers_folder_is_found(tmp_path, model_path):
    modules = [
        {"idx": 0, "path": model_path, "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
    ]
    write_json(tmp_path / "modules.json", modules)
    write_huggingface(tmp_path / model_path, huggingface_tensors(ENCODER, prefix=""))
    checkpoint = read_huggingface(tmp_path)
    assert Path(checkpoint.source).parent == tmp_path / model_path
    assert_same(checkpoint.arrays, ENCODER)


@pytest.mark.parametrize("folder_has", ["weights and adapter", "adapter"])
def test_adapter_in_the_folder_is_an_error_with_the_remedy(tmp_path, folder_has):
    if folder_has == "weights and adapter":
        write_huggingface(tmp_path, huggingface_tensors(ENCODER))
    write_json(
        tmp_path / "adapter_config.json", {"peft_type": "LORA", "base_model_name_or_path": "x"}
    )
    with pytest.raises(ValueError, match=r"adapter_config.json.*merge_and_unload"):
        read_checkpoint(tmp_path)


def test_adapter_that_is_not_merged_is_an_error_with_the_remedy(tmp_path):
    tensors = {
        name.replace("self.query.", "self.query.base_layer."): value
        for name, value in huggingface_tensors(ENCODER).items()
    }
    write_huggingface(tmp_path, tensors)
    with pytest.raises(ValueError, match=r"query.base_layer.*merge_and_unload"):
        read_checkpoint(tmp_path)


def test_the_library_for_safetensors_is_missed_before_the_model_is_read(monkeypatch):
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(OptionError, match=r"output_format.*\[hf\]"):
        ConvertOptions(init_checkpoint="absent", output_dir="new")


# ---- Configurations ------------------------------------------------------------------------------


def test_another_architecture_is_refused_by_its_name(tmp_path):
    folder = write_huggingface(
        tmp_path, huggingface_tensors(ENCODER), model_type="deberta", relative_attention=True
    )
    with pytest.raises(ValueError, match=r"config.json: `model_type`"):
        read_huggingface(folder)


# ---- PyTorch's own files -------------------------------------------------------------------------


def write_torch(path, tensors, **options):
    torch = pytest.importorskip("torch")
    torch.save({name: torch.tensor(tensor) for name, tensor in tensors.items()}, path, **options)
    write_json(path.parent / "config.json", HUGGINGFACE_CONFIG)


@pytest.mark.parametrize(
    ("file", "module", "remedy"),
    [
        ("model.safetensors", "safetensors", r"\[hf\]"),
        ("pytorch_model.bin", "torch", "pip install torch"),
    ],
)
def test_a_missing_library_is_an_error_with_the_remedy(tmp_path, monkeypatch, file, module, remedy):
    write_json(tmp_path / "config.json", HUGGINGFACE_CONFIG)
    (tmp_path / file).write_bytes(b"")
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=rf"{file}.*{remedy}"):
        read_huggingface(tmp_path)


def test_a_torch_whose_weights_only_can_be_got_round_is_refused(tmp_path, monkeypatch):
    write_json(tmp_path / "config.json", HUGGINGFACE_CONFIG)
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    old = types.SimpleNamespace(__version__="2.5.1+cpu")
    monkeypatch.setitem(sys.modules, "torch", old)
    with pytest.raises(ImportError, match="CVE-2025-32434"):
        read_huggingface(tmp_path)
