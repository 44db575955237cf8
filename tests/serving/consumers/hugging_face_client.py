"""Asks a SavedModel as one that `TFBert...save_pretrained(saved_model=True)` wrote.

    python hugging_face_client.py FOLDER < rows.json > answers.json

From https://huggingface.co/blog/tf-serving: the signature is "serving_default"; input_ids,
attention_mask and token_type_ids are int32 and padded; the outputs are those of the model's class.
"""

import json
import sys

import tensorflow as tf

rows = json.load(sys.stdin)  # ids of each text
longest = max(map(len, rows))
batch = {
    "input_ids": [ids + [0] * (longest - len(ids)) for ids in rows],
    "attention_mask": [[1] * len(ids) + [0] * (longest - len(ids)) for ids in rows],
    "token_type_ids": [[0] * longest for _ in rows],
}
loaded = tf.saved_model.load(sys.argv[1])
model = loaded.signatures["serving_default"]
output = model(**{name: tf.constant(values, tf.int32) for name, values in batch.items()})
json.dump({name: value.numpy().tolist() for name, value in output.items()}, sys.stdout)
