"""Asks a SavedModel as TFX's BulkInferrer and tfx_bsl's RunInference do: with serialized Examples.

    python tfx_bulk_inference.py FOLDER [SIGNATURE] < rows.json > answers.json

From https://www.tensorflow.org/tfx/tfx_bsl/api_docs/python/tfx_bsl/public/beam/RunInference and
https://www.tensorflow.org/tfx/guide/bulkinferrer: a session loads the tag "serve"; the signature, by
default "serving_default", has one input, a string; its batches are serialized tf.train.Examples.
"""

import json
import sys

import tensorflow as tf
import tensorflow_text  # noqa: F401  (RunInference imports it, too)


def example(row):
    """A row of texts by name; a list has several."""
    features = {}
    for name, texts in row.items():
        texts = [texts] if isinstance(texts, str) else texts
        values = tf.train.BytesList(value=[text.encode() for text in texts])
        features[name] = tf.train.Feature(bytes_list=values)
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()


folder, *names = sys.argv[1:]
v1 = tf.compat.v1
with v1.Session(graph=v1.Graph()) as session:
    meta_graph = v1.saved_model.loader.load(session, ["serve"], folder)
    signature = meta_graph.signature_def[names[0] if names else "serving_default"]
    if len(signature.inputs) != 1:
        raise ValueError("Signature should have 1 and only 1 inputs")
    (taken,) = signature.inputs.values()
    if taken.dtype != tf.string.as_datatype_enum:
        raise ValueError("Input dtype is expected to be a string")
    fetches = {name: spec.name for name, spec in signature.outputs.items()}
    batch = [example(row) for row in json.load(sys.stdin)]
    found = session.run(fetches, {taken.name: batch})
answers = {
    name: [value.decode() for value in values] if values.dtype == object else values.tolist()
    for name, values in found.items()
}
json.dump(answers, sys.stdout)
