"""Encoders of tf-models-official, in imitations made of its documented attributes and names."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from tiny_checkpoints import CONFIG, arrays_of, assert_same, write_json
from tiny_tf2 import (
    Encoder,
    Part,
    classification_head,
    masked_lm,
    next_sentence,
    projection,
    save_hub_encoder,
    variable,
)

from bert_tf.interop.initial import initialize
from bert_tf.interop.read import read_checkpoint
from bert_tf.modeling.bert import BertModel
from bert_tf.modeling.models import (
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertForTokenClassification,
)

ARRAYS = arrays_of("masked_lm", "next_sentence")
ENCODER = {name: array for name, array in ARRAYS.items() if name.startswith("bert/")}
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh"]


def save(folder, **objects):
    return tf.train.Checkpoint(**objects).write(str(folder / "ckpt"))


@pytest.mark.parametrize("owner", ["encoder", "model"])
def test_encoder_is_found_under_every_name(tmp_path, owner):
    checkpoint = read_checkpoint(save(tmp_path, **{owner: Encoder(CONFIG, ENCODER)}))
    assert_same(checkpoint.arrays, ENCODER)
    assert checkpoint.config == CONFIG
    assert "from the shapes" in checkpoint.notes[0]


def test_configuration_and_vocabulary_beside_it_are_used(tmp_path):
    stated = dataclasses.replace(CONFIG, hidden_act="relu")
    stated.to_json_file(tmp_path / "bert_config.json")
    (tmp_path / "vocab.txt").write_text("[PAD]\n")
    checkpoint = read_checkpoint(save(tmp_path, encoder=Encoder(CONFIG, ENCODER)))
    assert checkpoint.config == stated
    assert checkpoint.vocab_file == str(tmp_path / "vocab.txt")
    assert checkpoint.notes == ()


def test_configuration_with_another_number_of_heads_is_an_error(tmp_path):
    write_json(tmp_path / "bert_config.json", {**CONFIG.to_dict(), "num_attention_heads": 4})
    with pytest.raises(ValueError, match="num_attention_heads"):
        read_checkpoint(save(tmp_path, encoder=Encoder(CONFIG, ENCODER)))


def untrained_pooler(arrays):
    """An encoder with another pooler than that of the arrays."""
    encoder = Encoder(CONFIG, arrays)
    encoder._pooler_layer.kernel.assign_add(tf.ones_like(encoder._pooler_layer.kernel))
    return encoder


@pytest.mark.parametrize("with_items", [True, False])
def test_pretraining_has_its_heads_and_the_pooler_that_was_trained(tmp_path, with_items):
    encoder, head = untrained_pooler(ENCODER), next_sentence(ARRAYS)
    mlm = masked_lm(ARRAYS)
    pretrainer = Part(encoder_network=encoder, classification_heads=[head], masked_lm=mlm)
    items = {"next_sentence.pooler_dense": head.dense, "masked_lm": mlm, "encoder": encoder}
    prefix = save(tmp_path, model=pretrainer, **(items if with_items else {}))
    checkpoint = read_checkpoint(prefix)
    assert_same(checkpoint.arrays, ARRAYS)
    assert "the pooler is the head" in checkpoint.notes[0]


@pytest.mark.parametrize("inner", [True, False])
def test_classifier_has_its_head_and_the_pooler_that_was_trained(tmp_path, inner):
    arrays = arrays_of("classifier")
    model = Part(
        _network=untrained_pooler(arrays) if inner else Encoder(CONFIG, arrays),
        classifier=classification_head(arrays, "", "sentence_prediction", inner),
    )
    prefix = save(tmp_path, model=model)
    assert_same(read_checkpoint(prefix).arrays, arrays)
    assert read_checkpoint(prefix).architecture == "BertForSequenceClassification"
    report = initialize(BertForSequenceClassification(CONFIG, num_labels=5), prefix)
    assert (report.missing, report.unexpected) == ((), ())


def test_token_classifier_has_its_head_which_is_not_for_sentences(tmp_path):
    arrays = arrays_of("token_classifier")
    classifier = projection(arrays, "", "predictions/transform/logits")
    prefix = save(tmp_path, model=Part(_network=Encoder(CONFIG, arrays), classifier=classifier))
    report = initialize(BertForTokenClassification(CONFIG, num_labels=5), prefix)
    assert (report.missing, report.unexpected) == ((), ())
    report = initialize(BertForSequenceClassification(CONFIG, num_labels=5), prefix)
    assert report.missing == report.unexpected == ("output_weights", "output_bias")


def test_span_labeler_has_its_head(tmp_path):
    arrays = arrays_of("span")
    head = Part()
    setattr(head, "layer_with_weights-0", projection(arrays, "cls/squad/", "predictions/logits"))
    prefix = save(tmp_path, model=Part(_network=Encoder(CONFIG, arrays), span_labeling=head))
    report = initialize(BertForQuestionAnswering(CONFIG), prefix)
    assert (report.missing, report.unexpected) == ((), ())


def test_heads_of_other_kinds_are_reported_as_not_used(tmp_path):
    """Two of them have a pooler, and neither is that of next sentences: the encoder's own is taken."""
    heads = [classification_head(ARRAYS, "cls/seq_relationship/", name) for name in ("a", "b")]
    model = Part(encoder_network=Encoder(CONFIG, ENCODER), classification_heads=heads)
    optimizer = Part(_variables=[variable([1.0], "Adam/m/kernel")])
    prefix = save(tmp_path, model=model, optimizer=optimizer, global_step=tf.Variable(3))
    report = initialize(BertModel(CONFIG), prefix)
    assert sorted(report.unexpected) == [
        f"model/classification_heads/{number}/{part}/{kind}"
        for number in "01"
        for part in ("dense", "out_proj")
        for kind in ("bias", "kernel")
    ]
    assert "in the checkpoint but not used: model/classification_heads/0/" in report.summary()


def test_variables_are_known_by_their_names_where_attributes_say_nothing(tmp_path):
    variables = {v.name.removesuffix(":0"): v for v in Encoder(CONFIG, ENCODER).variables}
    slots = {f"Adam/m/{name}": variable(v * 0, f"Adam/m/{name}") for name, v in variables.items()}
    model = Part(weights=list(variables.values()))
    checkpoint = read_checkpoint(
        save(tmp_path, model=model, optimizer=Part(_variables=list(slots.values())))
    )
    assert_same(checkpoint.arrays, ENCODER)


def test_two_encoders_are_an_error(tmp_path):
    encoders = {name: Encoder(CONFIG, ENCODER) for name in ("query", "passage")}
    with pytest.raises(ValueError, match="2 encoders"):
        read_checkpoint(save(tmp_path, **encoders))


def test_object_based_checkpoint_of_something_else_is_an_error(tmp_path):
    prefix = save(tmp_path, net=Part(kernel=variable([1.0], "dense/kernel")))
    with pytest.raises(ValueError, match=r"dense/kernel"):
        read_checkpoint(prefix)


def test_encoder_without_its_layers_is_an_error(tmp_path):
    encoder = Encoder(CONFIG, ENCODER)
    encoder._transformer_layers = []
    with pytest.raises(ValueError, match="query"):
        read_checkpoint(save(tmp_path, encoder=encoder))


def test_projected_embeddings_are_another_architecture(tmp_path):
    encoder = Encoder(CONFIG, ENCODER)
    encoder._embedding_layer.embeddings = variable(np.ones((13, 6)), "word_embeddings/embeddings")
    with pytest.raises(ValueError, match="ALBERT"):
        read_checkpoint(save(tmp_path, encoder=encoder))


# ---- SavedModels ---------------------------------------------------------------------------------


def test_saved_model_has_weights_vocabulary_and_case(tmp_path):
    folder = save_hub_encoder(tmp_path / "hub", CONFIG, ENCODER, TOKENS, do_lower_case=False)
    checkpoint = read_checkpoint(folder)
    assert_same(checkpoint.arrays, ENCODER)
    assert checkpoint.config == CONFIG
    assert checkpoint.vocab_file == f"{folder}/assets/vocab.txt"
    assert checkpoint.do_lower_case is False


def test_our_encoder_answers_like_the_saved_model(tmp_path):
    folder = save_hub_encoder(tmp_path / "hub", CONFIG, ENCODER, TOKENS)
    model = BertModel(CONFIG)
    report = initialize(model, folder)
    assert (report.missing, report.unexpected) == ((), ())
    rng = np.random.default_rng(0)
    ids = rng.integers(0, CONFIG.vocab_size, (2, 7)).astype("int32")
    ours = model({"input_ids": ids, "input_mask": np.ones_like(ids)})
    inputs = {"input_word_ids": ids, "input_mask": np.ones_like(ids), "input_type_ids": 0 * ids}
    theirs = tf.saved_model.load(folder).signatures["serving_default"](
        **{name: tf.constant(value) for name, value in inputs.items()}
    )
    for name in ("sequence_output", "pooled_output"):
        np.testing.assert_allclose(ours[name], theirs[name], rtol=0, atol=1e-5)
