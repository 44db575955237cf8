"""Faults that an exporter may have, injected into served models of a few hundred numbers.

FAULTS[name] = (kind of model, function that spoils a `Served`)
"""

from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
import tiny_text_models as tiny

from bert_tf.modeling.activations import get_activation
from bert_tf.prediction.runtimes import SavedModel
from bert_tf.serving.classification import ServedClassifier
from bert_tf.serving.embeddings import ServedEmbedder
from bert_tf.serving.encoder import ServedEncoder
from bert_tf.serving.masked_lm import ServedMaskFiller
from bert_tf.serving.multiple_choice import ServedChooser
from bert_tf.serving.question_answering import ServedAnswerer
from bert_tf.serving.saved_model import described
from bert_tf.serving.token_classification import ServedTagger
from bert_tf.tasks.answer_decoding import AnswerSettings
from bert_tf.tasks.embeddings import EmbeddingTask
from bert_tf.tasks.token_classification import TokenClassificationTask
from bert_tf.text_ops.tokenizer import GraphTokenizer

LONG = (
    "the dog , the dog and the owl sat on the log . who sat on the mat ? the cat sat on the mat ."
)
SENTENCES = ["the cat sat on a mat .", "owls", LONG, "a log", "京 京", "who ?", "a dog on the log"]
INPUTS = {
    "single": [(text, None) for text in SENTENCES],
    "multi_label": [(text, None) for text in SENTENCES],
    "regression": [(text, None) for text in SENTENCES],
    "windows": [(text, None) for text in SENTENCES],
    "pair": list(zip(SENTENCES, SENTENCES[2:] + SENTENCES[:2], strict=True)),
    "questions": [("who sat ?", LONG), ("who ?", "the cat sat on a mat"), ("a log ?", "owls sat")],
    "entities": SENTENCES,
    "crf": ["", *SENTENCES, " \t"],
    "choices": [("a dog", ["sat .", "the owl , who sat"]), ("who ?", ["owls", "cats", "a mat"])],
    "encoder": SENTENCES,
    "embedder": SENTENCES,
    "masks": ["the [MASK] sat on a mat", "[MASK] ? [MASK]", "a [MASK] log on the log . owls"],
}


def trained(kind):
    """The model of a kind; always the same, with a random value in every bias."""
    pairs = {"pair": {"is_pair": True}, "windows": {"is_pair": False, "doc_stride": 4}}
    if kind in ("single", "pair", "windows", "multi_label", "regression"):
        problem = kind if kind in ("multi_label", "regression") else "single_label"
        model = tiny.classifier(problem, **pairs.get(kind, {"is_pair": False}))
    elif kind in ("entities", "crf"):
        labels = ("O", "B-X", "I-X", "B-Y", "I-Y")
        scheme = "iob2" if kind == "crf" else None
        model = tiny.trained(TokenClassificationTask(labels, tiny.MAX_SEQ_LENGTH, crf=scheme))
    elif kind == "embedder":
        prefixes = {"query_prefix": "who ? ", "document_prefix": "a mat , "}
        model = tiny.trained(EmbeddingTask(tiny.MAX_SEQ_LENGTH, **prefixes))
    else:
        makers = {"questions": tiny.answerer, "choices": tiny.chooser, "masks": tiny.pretrained}
        model = makers[kind]() if kind in makers else tiny.trained(None)
    rng = np.random.default_rng(3)
    for variable in model.model.weights:
        if variable.path.endswith(("bias", "beta")):
            variable.assign(rng.normal(0, 0.3, variable.shape))
        if kind in ("entities", "crf") and variable.path == "output_bias":
            variable.assign(variable.numpy() - [2, 0, 0, 0, 0])  # few words are outside of entities
    return model


def served(kind, model=None):
    """The same for export."""
    model = model or trained(kind)
    length = model.max_seq_length
    if kind == "encoder":
        return ServedEncoder(model.model, model.tokenizer, length)
    if kind == "masks":
        return ServedMaskFiller(model.model, model.tokenizer, length)
    if kind == "questions":
        return ServedAnswerer(model, AnswerSettings())
    makers = {"choices": ServedChooser, "embedder": ServedEmbedder}
    makers |= {"entities": ServedTagger, "crf": ServedTagger}
    return makers.get(kind, ServedClassifier)(model, length)


class InMemory(SavedModel):
    """A served model that was not written, as a runtime."""

    def __init__(self, model):
        model.prepare()
        functions = model.signatures([*model.text_functions(), "tokens"])
        self.version, self.served = "in memory", model
        self._model = SimpleNamespace(signatures=functions, tokenizer=model.tokenizer)
        self.signatures = {name: described(function) for name, function in functions.items()}

    def _ask(self, signature, inputs):
        function = self._model.signatures[signature]
        specs = self.signatures[signature]["inputs"]
        tensors = {name: tf.constant(v, specs[name]["dtype"]) for name, v in inputs.items()}
        positional = [tensors[each.name] for each in function.structured_input_signature[0]]
        outputs = function(*positional) if positional else function(**tensors)
        return {name: value.numpy() for name, value in outputs.items()}


# ---- what an exporter may do wrong ---------------------------------------------------------------


def bert_of(model):
    return getattr(model.model, "bert", model.model)


def swap(first, second):
    for one, other in zip(first.weights, second.weights, strict=True):
        one_value, other_value = one.numpy(), other.numpy()
        one.assign(other_value)
        other.assign(one_value)


def swapped_layers(model):
    swap(*bert_of(model).encoder_layers[:2])


def other_gelu(model):
    for layer in bert_of(model).encoder_layers:
        layer.intermediate.activation = get_activation("gelu_erf")


def norms(model):
    yield bert_of(model).embeddings.layer_norm
    for layer in bert_of(model).encoder_layers:
        yield layer.attention_output.layer_norm
        yield layer.feed_forward_output.layer_norm


def other_epsilon(model):
    for norm in norms(model):
        norm.epsilon = 1e-3  # Keras' default


def other_case(model):
    model.tokenizer = GraphTokenizer(model.vocabulary, not model.do_lower_case)


def shifted_vocabulary(model):
    tokens = list(model.vocabulary)
    model.tokenizer = GraphTokenizer(tokens[1:] + tokens[:1], model.do_lower_case)


class KeepsAccents(GraphTokenizer):
    def __call__(self, texts):
        return super().__call__(tf.strings.lower(texts, encoding="utf-8"))


def accents_kept(model):
    model.tokenizer = KeepsAccents(model.vocabulary, do_lower_case=False)


def truncated_embedding(model):
    table = bert_of(model).embeddings.word_embeddings
    value = table.numpy()
    value[-8:] = 0
    table.assign(value)


def no_positions(model):
    table = bert_of(model).embeddings.position_embeddings
    table.assign(0 * table.numpy())


def with_inputs(change):
    """Change the ids on their way to the model."""

    def spoil(model):
        call = model.call_model
        model.call_model = lambda **inputs: call(**{**inputs, **change(inputs)})

    return spoil


segments_ignored = with_inputs(lambda i: {"segment_ids": tf.zeros_like(i["segment_ids"])})
mask_ignored = with_inputs(lambda i: {"input_mask": tf.ones_like(i["input_mask"])})


def transposed_kernel(model):
    kernel = bert_of(model).encoder_layers[-1].attention_output.dense.kernel
    kernel.assign(kernel.numpy().T)


def heads_in_another_order(model):
    attention = bert_of(model).encoder_layers[0].self_attention
    attention.value.kernel.assign(np.roll(attention.value.kernel.numpy(), 4, axis=1))


def bias_lost(model):
    (bias,) = (each for each in model.model.weights if each.path == "output_bias")
    bias.assign(0 * bias.numpy())


def lost_pooler(model):
    pooler = bert_of(model).pooler
    pooler.activation = None


def other_length(model):
    model.max_seq_length -= 2


def cut_at_the_front(model):
    pack = model.pack

    def spoiled(ids_a, ids_b):
        return pack(ids_a[:, -(model.max_seq_length - 2) :], ids_b)

    model.pack = spoiled


def swapped_special_tokens(model):
    model.cls_id, model.sep_id = model.sep_id, model.cls_id


def swapped_sentences(model):
    pack = model.pack
    model.pack = lambda ids_a, ids_b: pack(ids_b, ids_a)


def label_order(model):
    model._label_names = model._label_names[::-1]


def no_softmax(model):
    answer = model._answer
    model._answer = lambda logits: {**answer(logits), "probabilities": logits}


def swapped_ends(model):
    call = model.call_model

    def spoiled(**inputs):
        found = call(**inputs)
        return {"start_logits": found["end_logits"], "end_logits": found["start_logits"]}

    model.call_model = spoiled


def not_normalized(model):
    model.normalize = False


def other_pooling(model):
    model.pooling = "cls"


def another_step(model):
    rng = np.random.default_rng(1)
    for variable in model.model.weights:
        variable.assign(variable.numpy() * (1 + 1e-4 * rng.normal(size=variable.shape)))


def half_precision(model):
    for variable in model.model.weights:
        variable.assign(variable.numpy().astype(np.float16))


# For tests of every type. Classifiers of texts are like "pair", and "entities" like "crf": `long`.
_LIKE_OTHERS = ("single", "multi_label", "regression", "windows", "entities")
KINDS = [
    pytest.param(kind, marks=[pytest.mark.long] if kind in _LIKE_OTHERS else []) for kind in INPUTS
]
FAULTS = {
    "swapped layers": ("single", swapped_layers),
    "the other GELU": ("single", other_gelu),
    "the other epsilon of LayerNorm": ("single", other_epsilon),
    "the other case": ("single", other_case),
    "a vocabulary shifted by one": ("single", shifted_vocabulary),
    "accents are kept": ("single", accents_kept),
    "a truncated table of embeddings": ("single", truncated_embedding),
    "no position embeddings": ("single", no_positions),
    "segment ids are ignored": ("pair", segments_ignored),
    "the mask is ignored": ("single", mask_ignored),
    "a transposed kernel": ("single", transposed_kernel),
    "attention heads in another order": ("single", heads_in_another_order),
    "the bias of the head is lost": ("single", bias_lost),
    "the pooler's tanh is lost": ("single", lost_pooler),
    "another max_seq_length": ("single", other_length),
    "truncated at the front": ("single", cut_at_the_front),
    "[CLS] and [SEP] swapped": ("single", swapped_special_tokens),
    "sentences of a pair swapped": ("pair", swapped_sentences),
    "another order of the labels": ("single", label_order),
    "no softmax": ("single", no_softmax),
    "start and end swapped": ("questions", swapped_ends),
    "embeddings not normalized": ("encoder", not_normalized),
    "another pooling": ("encoder", other_pooling),
    "weights of another step": ("single", another_step),
    "weights rounded to float16": ("single", half_precision),
}
