"""Reads a SavedModel as Spark NLP's `BertEmbeddings.loadSavedModel` and `BertSentenceEmbeddings` do.

    python spark_nlp_reader.py FOLDER < rows.json > answers.json

From JohnSnowLabs/spark-nlp: LoadExternalModel.scala (the folder `assets` with vocab.txt),
ModelSignatureManager.scala and ModelSignatureConstants.scala (the signatures become one table), and
ml/ai/Bert.scala (what is fed and fetched, in a session).
"""

import json
import os
import sys

import tensorflow as tf

folder = sys.argv[1]
assert os.path.isdir(os.path.join(folder, "assets")), "Folder assets not found"
with open(os.path.join(folder, "assets", "vocab.txt"), encoding="utf-8") as file:
    vocabulary = {line: index for index, line in enumerate(file.read().splitlines())}

ADOPTED = {
    "input_word_ids": "input_ids",
    "input_mask": "attention_mask",
    "segment_ids": "token_type_ids",
    "input_type_ids": "token_type_ids",
    "sequence_output": "last_hidden_state",
    "bert_encoder": "last_hidden_state",
}
rows = json.load(sys.stdin)  # WordPieces of each text
ids = [[vocabulary[piece] for piece in row] for row in rows]
longest = max(map(len, ids))
v1 = tf.compat.v1
with v1.Session(graph=v1.Graph()) as session:
    meta_graph = v1.saved_model.loader.load(session, ["serve"], folder)
    tensors = {}
    for signature in meta_graph.signature_def.values():
        for side in (signature.inputs, signature.outputs):
            tensors.update({ADOPTED.get(key, key): spec.name for key, spec in side.items()})
    feeds = {
        tensors["input_ids"]: [row + [0] * (longest - len(row)) for row in ids],
        tensors["attention_mask"]: [[1] * len(row) + [0] * (longest - len(row)) for row in ids],
        tensors["token_type_ids"]: [[0] * longest for _ in ids],
    }
    words = session.run(tensors["last_hidden_state"], feeds)
    sentences = session.run(tensors["pooler_output"], feeds)
json.dump({"words": words.tolist(), "sentences": sentences.tolist()}, sys.stdout)
