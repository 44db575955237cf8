"""Pre-training steps of the original (TensorFlow 1 graph) and of tf-models-official, for training.py.

    pip install --no-deps --target=PEERS bert-tensorflow==1.0.4 \
        tf-models-official==2.20.0 tf-keras gin-config

Both process a batch as their own scripts do: forward, both losses, gradients clipped to a global norm of
1, their optimizer. For bfloat16, the original uses TensorFlow's oneDNN rewrite, because it has no
precision setting, and tf-models uses tf_keras' policy `mixed_bfloat16`.
"""

from __future__ import annotations

import os
import re
import sys
import types
from collections.abc import Callable
from pathlib import Path

import numpy as np


def original_step(
    sizes: dict, bfloat16: bool, batch: dict[str, np.ndarray], peers: str
) -> Callable:
    """Return a function that takes a step and returns the loss; see `tf_models_step`."""
    import tensorflow.compat.v1 as tf

    tf.disable_eager_execution()
    modeling, optimization = (
        _load_original(Path(peers), n, tf) for n in ("modeling", "optimization")
    )
    config = modeling.BertConfig(**sizes)
    feed = {tf.placeholder(value.dtype, value.shape): value for value in batch.values()}
    features = dict(zip(batch, feed, strict=True))
    model = modeling.BertModel(
        config, True, features["input_ids"], features["input_mask"], features["segment_ids"]
    )
    positions = features["masked_lm_positions"]
    masked = tf.gather(model.get_sequence_output(), positions, batch_dims=1)
    with tf.variable_scope("cls/predictions"):
        masked = tf.reshape(masked, [-1, config.hidden_size])
        masked = modeling.tf.layers.dense(
            masked, config.hidden_size, activation=modeling.gelu, name="transform"
        )
        masked = modeling.layer_norm(masked)
        offset = tf.get_variable("output_bias", [config.vocab_size])
        words = tf.matmul(masked, model.get_embedding_table(), transpose_b=True) + offset
    with tf.variable_scope("cls/seq_relationship"):
        pairs = modeling.tf.layers.dense(model.get_pooled_output(), 2, name="output")
    loss = tf.add_n(
        [
            # The original selects the label's score with a one-hot product.
            -tf.reduce_mean(
                tf.reduce_sum(
                    tf.nn.log_softmax(logits) * tf.one_hot(tf.reshape(labels, [-1]), depth), -1
                )
            )
            for logits, labels, depth in (
                (words, features["masked_lm_ids"], config.vocab_size),
                (pairs, features["next_sentence_labels"], 2),
            )
        ]
    )
    train = optimization.create_optimizer(loss, 1e-4, 100_000, 0, use_tpu=False)
    options = tf.ConfigProto()
    if bfloat16:
        rewrites = options.graph_options.rewrite_options
        rewrites.auto_mixed_precision_onednn_bfloat16 = rewrites.ON
    session = tf.Session(config=options)
    session.run(tf.global_variables_initializer())
    return lambda: float(session.run([loss, train], feed)[0])


def _load_original(folder: Path, name: str, tf) -> types.SimpleNamespace:
    """Load a file of the original, with replacements for functions that TensorFlow 2 lacks."""

    def dense(inputs, units, activation=None, name=None, kernel_initializer=None):
        with tf.variable_scope(name or "dense"):
            kernel = tf.get_variable(
                "kernel", [inputs.shape[-1], units], initializer=kernel_initializer
            )
            bias = tf.get_variable("bias", [units], initializer=tf.zeros_initializer())
        outputs = tf.nn.bias_add(tf.matmul(inputs, kernel), bias)
        return outputs if activation is None else activation(outputs)

    def layer_norm(inputs, begin_norm_axis, begin_params_axis, scope=None):
        size = [inputs.shape[-1]]
        with tf.variable_scope(scope or "LayerNorm"):
            beta = tf.get_variable("beta", size, initializer=tf.zeros_initializer())
            gamma = tf.get_variable("gamma", size, initializer=tf.ones_initializer())
        mean, variance = tf.nn.moments(inputs, [begin_norm_axis], keep_dims=True)
        return tf.nn.batch_normalization(inputs, mean, variance, beta, gamma, 1e-12)

    class Names:
        layers = types.SimpleNamespace(dense=dense)

        def __getattr__(self, attribute):
            return getattr(tf, attribute)

    source = (folder / "bert" / f"{name}.py").read_text()
    source = re.sub(r"^(import tensorflow|from tensorflow).*$", "", source, flags=re.MULTILINE)
    contrib_layers = types.SimpleNamespace(layer_norm=layer_norm)
    names = {"tf": Names(), "contrib_layers": contrib_layers, "__name__": name}
    exec(source, names)
    return types.SimpleNamespace(**names)


def tf_models_step(
    sizes: dict, bfloat16: bool, batch: dict[str, np.ndarray], peers: str
) -> Callable:
    """Return a function that takes a step and returns the loss.

    Args:
        sizes: of the model, by the names of bert_config.json.
        bfloat16: else float32.
        batch: examples for pre-training.
        peers: folder with the packages.
    """
    os.environ["TF_USE_LEGACY_KERAS"] = "1"
    sys.path.append(peers)
    import tensorflow as tf
    import tf_keras
    from official.nlp.modeling.layers import ClassificationHead
    from official.nlp.modeling.models import BertPretrainerV2
    from official.nlp.modeling.networks import BertEncoderV2

    if bfloat16:
        tf_keras.mixed_precision.set_global_policy("mixed_bfloat16")
    encoder = BertEncoderV2(
        vocab_size=sizes["vocab_size"],
        hidden_size=sizes["hidden_size"],
        num_layers=sizes["num_hidden_layers"],
        num_attention_heads=sizes["num_attention_heads"],
        inner_dim=sizes["intermediate_size"],
    )
    head = ClassificationHead(sizes["hidden_size"], 2, cls_token_idx=0, name="next_sentence")
    model = BertPretrainerV2(encoder, classification_heads=[head])
    optimizer = tf_keras.optimizers.AdamW(1e-4, weight_decay=0.01, global_clipnorm=1.0)
    names = {"input_word_ids": "input_ids", "input_type_ids": "segment_ids"}
    names |= {name: name for name in ("input_mask", "masked_lm_positions")}
    inputs = {theirs: tf.constant(batch[ours]) for theirs, ours in names.items()}
    cross_entropy = tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            outputs = model(inputs, training=True)
            loss = tf.add_n(
                [
                    cross_entropy(batch[labels], tf.cast(outputs[logits], tf.float32))
                    for logits, labels in (
                        ("mlm_logits", "masked_lm_ids"),
                        ("next_sentence", "next_sentence_labels"),
                    )
                ]
            )
        variables = model.trainable_variables
        optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))
        return loss

    return lambda: float(step())
