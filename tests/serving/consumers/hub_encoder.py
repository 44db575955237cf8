"""Uses an encoder and its preprocessing as those of TF Hub, version 3 and 4.

    python hub_encoder.py ENCODER PREPROCESS < texts.json > answers.json

From https://www.tensorflow.org/hub/common_saved_model_apis/text and the model pages of
bert_en_uncased_L-12_H-768_A-12/4 and bert_en_uncased_preprocess/3. Without tensorflow_hub,
`tf.saved_model.load` stands for `hub.load`, which is a thin layer on it.
"""

import json
import sys

import tensorflow as tf
import tensorflow_text as text  # noqa: F401  (registers the ops)

try:
    import tensorflow_hub

    load = tensorflow_hub.load
except ImportError:
    load = tf.saved_model.load

texts = json.load(sys.stdin)
preprocessor = load(sys.argv[2])
encoder = load(sys.argv[1])

encoder_inputs = preprocessor(tf.constant(texts))
single = encoder(encoder_inputs)
assert single.keys() == {"pooled_output", "default", "sequence_output", "encoder_outputs"}
assert isinstance(single["encoder_outputs"], (list, tuple))
listed = encoder(preprocessor(texts))["default"]  # a list of Python strings

tokenized = preprocessor.tokenize(tf.constant(texts))
assert tokenized.shape.rank == 3
pairs = preprocessor.bert_pack_inputs([tokenized, tokenized[::-1]], seq_length=12)
shortened = preprocessor.bert_pack_inputs([tokenized[:, :3]], seq_length=tf.constant(9))
paired = encoder(pairs, training=False)
special = preprocessor.tokenize.get_special_tokens_dict()

# Old code makes its own tokenizer of these two.
vocab_file = encoder.vocab_file.asset_path.numpy().decode()
lower = bool(encoder.do_lower_case.numpy())

# Fine-tuning, as hub.KerasLayer(trainable=True) does it.
with tf.GradientTape() as tape:
    trained = encoder(encoder_inputs, training=True)
    loss = tf.reduce_sum(trained["pooled_output"] ** 2)
    loss += tf.reduce_sum(trained["sequence_output"])
gradients = tape.gradient(loss, encoder.trainable_variables)


with open(vocab_file, encoding="utf-8") as file:
    vocabulary = file.read().splitlines()


def plain(values):
    return tf.nest.map_structure(lambda value: value.numpy().tolist(), values)


answers = {
    "inputs": plain(dict(encoder_inputs)),
    "single": plain({name: single[name] for name in ("pooled_output", "sequence_output")}),
    "layers": plain(list(single["encoder_outputs"])),
    "same": plain(tf.reduce_all(tf.equal(listed, single["default"]))),
    "words": tokenized.to_list(),
    "pairs": plain(dict(pairs)),
    "shortened": plain(dict(shortened)),
    "paired": plain(paired["pooled_output"]),
    "special": plain(dict(special)),
    "vocab": vocabulary,
    "lower": lower,
    "without_gradient": [
        variable.name
        for variable, gradient in zip(encoder.trainable_variables, gradients, strict=True)
        if gradient is None
    ],
    "variables": len(encoder.trainable_variables),
    "dropout": float(tf.reduce_max(tf.abs(trained["pooled_output"] - single["pooled_output"]))),
    "hub": load is not tf.saved_model.load,
}
json.dump(answers, sys.stdout)
