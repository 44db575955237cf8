"""Fine-tunes a classifier of texts with `hub.KerasLayer`, as TensorFlow's tutorial does.

    TF_USE_LEGACY_KERAS=1 python hub_keras_layer.py ENCODER PREPROCESS < rows.json > losses.json

From https://www.tensorflow.org/text/tutorials/classify_text_with_bert.
Needs tensorflow_hub and tf_keras.
"""

import json
import sys

import tensorflow as tf
import tensorflow_hub as hub
import tensorflow_text as text  # noqa: F401
import tf_keras

texts, labels = json.load(sys.stdin)
text_input = tf_keras.layers.Input(shape=(), dtype=tf.string, name="text")
preprocessing_layer = hub.KerasLayer(sys.argv[2], name="preprocessing")
encoder_inputs = preprocessing_layer(text_input)
encoder = hub.KerasLayer(sys.argv[1], trainable=True, name="BERT_encoder")
outputs = encoder(encoder_inputs)
net = outputs["pooled_output"]
net = tf_keras.layers.Dropout(0.1)(net)
net = tf_keras.layers.Dense(1, activation=None, name="classifier")(net)
model = tf_keras.Model(text_input, net)

# The parts of the preprocessing as layers, for pairs.
preprocessor = hub.load(sys.argv[2])
tokenize = hub.KerasLayer(preprocessor.tokenize)
packer = hub.KerasLayer(preprocessor.bert_pack_inputs, arguments=dict(seq_length=16))
segment = tf_keras.layers.Input(shape=(), dtype=tf.string)
pairs = tf_keras.Model(segment, packer([tokenize(segment), tokenize(segment)]))

before = [variable.numpy() for variable in encoder.trainable_weights]
model.compile(
    optimizer=tf_keras.optimizers.legacy.Adam(3e-3),
    loss=tf_keras.losses.BinaryCrossentropy(from_logits=True),
)
rows = tf.constant(texts), tf.constant(labels)
losses = [model.evaluate(*rows, verbose=0)]
model.fit(*rows, epochs=30, batch_size=8, verbose=0)
losses.append(model.evaluate(*rows, verbose=0))
changed = sum(
    bool((variable.numpy() != old).any())
    for variable, old in zip(encoder.trainable_weights, before, strict=True)
)
answers = {
    "losses": losses,
    "changed": changed,
    "weights": len(before),
    "pair_shape": list(pairs(tf.constant(texts))["input_word_ids"].shape),
}
json.dump(answers, sys.stdout)
