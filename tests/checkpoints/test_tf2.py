"""Encoders of tf-models-official, in imitations made of its documented attributes and names."""

import dataclasses

import pytest
import tensorflow as tf
from helpers import cause_of
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

import bert_tf
from bert_tf.checkpoints.initial import initialize
from bert_tf.checkpoints.read import read_checkpoint

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
    prefix = save(tmp_path, encoder=Encoder(CONFIG, ENCODER))
    checkpoint = read_checkpoint(prefix)
    assert (checkpoint.config, checkpoint.notes) == (stated, ())
    assert checkpoint.tokenizer.vocab_file == str(tmp_path / "vocab.txt")
    path = write_json(tmp_path / "bert_config.json", {**CONFIG.to_dict(), "num_attention_heads": 4})
    assert cause_of(read_checkpoint, prefix) == str(path)


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
    checkpoint = read_checkpoint(save(tmp_path, model=pretrainer, **(items if with_items else {})))
    assert_same(checkpoint.arrays, ARRAYS)
    assert "the pooler is the head" in checkpoint.notes[0]


def span_labeler(arrays):
    head = Part()
    setattr(head, "layer_with_weights-0", projection(arrays, "cls/squad/", "predictions/logits"))
    return Part(_network=Encoder(CONFIG, arrays), span_labeling=head)


def classifier(arrays, inner=True):
    """With an inner layer, the trained pooler is in the head."""
    network = untrained_pooler(arrays) if inner else Encoder(CONFIG, arrays)
    head = classification_head(arrays, "", "sentence_prediction", inner)
    return Part(_network=network, classifier=head)


def token_classifier(arrays):
    head = projection(arrays, "", "predictions/transform/logits")
    return Part(_network=Encoder(CONFIG, arrays), classifier=head)


@pytest.mark.parametrize(
    ("head", "imitation", "name"),
    [
        ("classifier", classifier, "SequenceClassification"),
        ("classifier", lambda arrays: classifier(arrays, inner=False), "SequenceClassification"),
        ("token_classifier", token_classifier, "TokenClassification"),
        ("span", span_labeler, "QuestionAnswering"),
    ],
)
def test_a_fine_tuned_model_has_its_head(tmp_path, head, imitation, name):
    arrays = arrays_of(head)
    prefix = save(tmp_path, model=imitation(arrays))
    labels = {} if head == "span" else {"num_labels": 5}
    model = getattr(bert_tf, f"BertFor{name}")(CONFIG, **labels)
    report = initialize(model, prefix)
    assert (report.missing, report.unexpected) == ((), ())
    assert_same({variable.path: variable.numpy() for variable in model.weights}, arrays)
    if head == "token_classifier":  # which is not for sentences
        report = initialize(bert_tf.BertForSequenceClassification(CONFIG, num_labels=5), prefix)
        assert report.missing == report.unexpected == ("output_weights", "output_bias")


def test_heads_of_other_kinds_are_reported_as_not_used(tmp_path):
    """Two of them have a pooler, and neither is that of next sentences: the encoder's own is taken."""
    heads = [classification_head(ARRAYS, "cls/seq_relationship/", name) for name in ("a", "b")]
    model = Part(encoder_network=Encoder(CONFIG, ENCODER), classification_heads=heads)
    optimizer = Part(_variables=[variable([1.0], "Adam/m/kernel")])
    prefix = save(tmp_path, model=model, optimizer=optimizer, global_step=tf.Variable(3))
    report = initialize(bert_tf.BertModel(CONFIG), prefix)
    assert sorted(report.unexpected) == [
        f"model/classification_heads/{number}/{part}/{kind}"
        for number in "01"
        for part in ("dense", "out_proj")
        for kind in ("bias", "kernel")
    ]


def test_variables_are_known_by_their_names_where_attributes_say_nothing(tmp_path):
    variables = {v.name.removesuffix(":0"): v for v in Encoder(CONFIG, ENCODER).variables}
    slots = [variable(v * 0, f"Adam/m/{name}") for name, v in variables.items()]
    model = Part(weights=list(variables.values()))
    prefix = save(tmp_path, model=model, optimizer=Part(_variables=slots))
    assert_same(read_checkpoint(prefix).arrays, ENCODER)


def changed(part, name, value):
    encoder = Encoder(CONFIG, ENCODER)
    setattr(getattr(encoder, part) if part else encoder, name, value)
    return {"encoder": encoder}


def test_what_is_no_single_whole_bert_is_refused(tmp_path):
    narrow = variable(ARRAYS["bert/pooler/dense/kernel"][:, :6], "word_embeddings/embeddings")
    for number, objects in enumerate(
        (
            {name: Encoder(CONFIG, ENCODER) for name in ("query", "passage")},
            {"net": Part(kernel=variable([1.0], "dense/kernel"))},
            changed("", "_transformer_layers", []),
            changed("_embedding_layer", "embeddings", narrow),  # an ALBERT
        )
    ):
        prefix = tf.train.Checkpoint(**objects).write(str(tmp_path / f"{number}.ckpt"))
        assert cause_of(read_checkpoint, prefix) == prefix


def test_saved_model_has_weights_vocabulary_and_case(tmp_path):
    folder = save_hub_encoder(tmp_path / "hub", CONFIG, ENCODER, TOKENS, do_lower_case=False)
    checkpoint = read_checkpoint(folder)
    assert_same(checkpoint.arrays, ENCODER)
    assert checkpoint.config == CONFIG
    assert checkpoint.tokenizer.vocab_file == f"{folder}/assets/vocab.txt"
    assert checkpoint.tokenizer.do_lower_case is False
