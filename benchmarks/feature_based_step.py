"""Cost of a feature-based training step, and the encoder's part of it.

    python benchmarks/feature_based_step.py

Prints processor seconds of all threads, so that other programs hardly matter. A batch has 16 inputs of
48 pieces. The encoder has MiniLM's size and random weights. Measured are a step of the two-layer
BiLSTM of 768 units, a step of fine-tuning, and the encoder's forward pass. A cache of the encoder's
outputs could save at most the last one.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.modeling.feature_based import BertBiLstmForTokenClassification
from bert_tf.modeling.models import BertForTokenClassification

BATCH, PIECES, LABELS, REPEATS = 16, 48, 13, 3


def processor_seconds(function: Callable[[], object]) -> float:
    function()  # traces and compiles
    start = time.process_time()
    for _ in range(REPEATS):
        function()
    return round((time.process_time() - start) / REPEATS, 3)


def step_of(model: keras.Model, inputs: dict[str, tf.Tensor]) -> Callable[[], object]:
    """Return forward and backward, without the optimizer."""

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model(inputs, training=True)["logits"] ** 2)
        variables = [variable.value for variable in model.trainable_variables]
        gradients = [g for g in tape.gradient(loss, variables) if g is not None]
        return [tf.reduce_sum(tf.convert_to_tensor(gradient)) for gradient in gradients]

    return step


def main() -> None:
    config = BertConfig(
        vocab_size=30522,
        hidden_size=384,
        num_hidden_layers=6,
        num_attention_heads=12,
        intermediate_size=1536,
    )
    ids = np.random.default_rng(0).integers(1000, 30000, (BATCH, PIECES))
    inputs = {"input_ids": tf.constant(ids, tf.int32)}
    inputs |= {"input_mask": tf.ones_like(inputs["input_ids"])}
    bilstm = BertBiLstmForTokenClassification(config, range(LABELS), "concat_last_four_hidden")
    fine_tuned = BertForTokenClassification(config, LABELS)
    encoder = tf.function(lambda: bilstm.bert(inputs, training=False)["sequence_output"])
    figures = {
        "bilstm_step": processor_seconds(step_of(bilstm, inputs)),
        "fine_tuning_step": processor_seconds(step_of(fine_tuned, inputs)),
        "encoder_forward": processor_seconds(encoder),
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
