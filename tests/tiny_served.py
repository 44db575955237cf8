"""Served models of a few hundred numbers, one of each type of task, and inputs for them."""

import numpy as np
import tiny_text_models as tiny

from bert_tf.serving.classification import ServedClassifier
from bert_tf.serving.embeddings import ServedEmbedder
from bert_tf.serving.encoder import ServedEncoder
from bert_tf.serving.masked_lm import ServedMaskFiller
from bert_tf.serving.multiple_choice import ServedChooser
from bert_tf.serving.question_answering import ServedAnswerer
from bert_tf.serving.token_classification import ServedTagger
from bert_tf.tasks.answer_decoding import AnswerSettings
from bert_tf.tasks.embeddings import EmbeddingTask
from bert_tf.tasks.token_classification import TokenClassificationTask

LONG = (
    "the dog , the dog and the owl sat on the log . who sat on the mat ? the cat sat on the mat ."
)
SENTENCES = ["the cat sat on a mat .", "owls", LONG, "a log", "京 京", "who ?", "a dog on the log"]
MOODS = [
    f"the {mood} {animal} in the {place}"
    for mood in ("happy", "calm", "kind", "angry", "sad", "rude")
    for animal in ("cat", "dog", "owl", "hen")
    for place in ("barn", "wood", "lake")
]
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
