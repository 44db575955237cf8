"""Feature-based models: vectors of a frozen encoder, and a BiLSTM that is trained on them.

Shapes: B batch, S sequence, H hidden, L labels.

Source: Devlin et al. 2019, section 5.3 and table 7.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import keras
from keras import ops

from bert_tf.config import BertConfig
from bert_tf.modeling.bert import BertModel, bidirectional_lstm
from bert_tf.modeling.configured_model import ConfiguredModel
from bert_tf.modeling.crf import Crf
from bert_tf.modeling.dropout import Dropout
from bert_tf.modeling.inputs import normalize_inputs

# Rows of the paper's table 7 -> their part of [embeddings, first layer, ..., last layer].
FEATURE_LAYERS = {
    "embeddings": slice(0, 1),
    "second_to_last_hidden": slice(-2, -1),
    "last_hidden": slice(-1, None),
    "weighted_sum_last_four_hidden": slice(-4, None),
    "concat_last_four_hidden": slice(-4, None),
    "weighted_sum_all_layers": slice(1, None),
}
BILSTM_UNITS = 768  # of each direction in each of two layers, as in the paper


class LayerFeatures(keras.layers.Layer):
    """Features of tokens from an encoder's outputs: [B, S, H], or [B, S, 4H] if concatenated.

    A weighted sum is gamma * sum(softmax(weights) * layers), all learned, as in ELMo (Peters et
    al. 2018). The paper does not define its weights.
    """

    def __init__(self, feature_layers: str, num_hidden_layers: int, **kwargs):
        super().__init__(**kwargs)
        self.feature_layers = feature_layers
        part = FEATURE_LAYERS[feature_layers]
        self.num_layers = len(range(1 + num_hidden_layers)[part])
        if part.start < -num_hidden_layers:
            raise ValueError(f"feature_layers={feature_layers} needs {-part.start} layers.")

    def build(self, input_shape=None):
        if self.feature_layers.startswith("weighted_sum"):
            self.layer_weights = self.add_weight(
                name="layer_weights", shape=(self.num_layers,), initializer="zeros"
            )
            self.gamma = self.add_weight(name="gamma", shape=(), initializer="ones")
        self.built = True

    def call(self, encoder_outputs: Mapping[str, Any]):
        layers = [encoder_outputs["embedding_output"], *encoder_outputs["all_encoder_layers"]]
        layers = layers[FEATURE_LAYERS[self.feature_layers]]
        if not self.feature_layers.startswith("weighted_sum"):
            return ops.concatenate(layers, axis=-1)
        weights = ops.softmax(ops.convert_to_tensor(self.layer_weights))
        return self.gamma * sum(weights[index] * layer for index, layer in enumerate(layers))


@keras.saving.register_keras_serializable(package="bert_tf")
class BertBiLstmForTokenClassification(ConfiguredModel):
    """A label for each token, from a two-layer BiLSTM on features of a frozen encoder without dropout.

    Args:
        labels: of the words, L.
        feature_layers: one of `FEATURE_LAYERS`.
        units: of each direction of the BiLSTM, which reads every piece, with [CLS] and [SEP].
        crf: scheme of the labels, for a CRF (`modeling.crf.Crf`); None for a model without one.

    Outputs: `logits` [B, S, L]; with a CRF `transitions` [B, L + 1, L + 1], the same for each row.
    """

    def __init__(
        self,
        config: BertConfig,
        labels: Sequence[str],
        feature_layers: str,
        units: int = BILSTM_UNITS,
        crf: str | None = None,
        **kwargs,
    ):
        super().__init__(config, **kwargs)
        policy = self.dtype_policy
        self.labels, self.units = tuple(labels), units
        self.bert = BertModel(config, dtype=policy)
        self.bert.trainable = False
        self.features = LayerFeatures(
            feature_layers, config.num_hidden_layers, name="features", dtype=policy
        )
        # Not "layer_0", the name of the encoder's first layer.
        self.bilstm = [bidirectional_lstm(units, f"bilstm_{index}", policy) for index in range(2)]
        self.dropout = Dropout(0.1, name="bilstm_dropout", dtype=policy)
        self.classifier = keras.layers.Dense(len(labels), name="classifier", dtype=policy)
        # Built here because in `build` the variables' paths would begin with the model's name.
        num_concatenated = 4 if feature_layers == "concat_last_four_hidden" else 1
        self.features.build()
        self.bilstm[0].build((None, None, num_concatenated * config.hidden_size))
        for layer in (self.bilstm[1], self.dropout, self.classifier):
            layer.build((None, None, 2 * units))
        self.crf = None if crf is None else Crf(labels, crf)
        self.built = True

    def call(self, inputs: Mapping[str, Any], training=None) -> dict[str, Any]:
        inputs = normalize_inputs(inputs)
        outputs = self.bert(inputs, training=False)
        hidden = self.features(keras.tree.map_structure(ops.stop_gradient, outputs))
        mask = inputs.get("input_mask")
        mask = None if mask is None else ops.cast(mask, "bool")
        for layer in self.bilstm:
            hidden = layer(hidden, mask=mask, training=training)
        logits = self.classifier(self.dropout(hidden, training=training))
        logits = ops.cast(logits, "float32")
        return {"logits": logits} | ({} if self.crf is None else {"transitions": self.crf(logits)})

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "labels": list(self.labels),
            "feature_layers": self.features.feature_layers,
            "units": self.units,
            "crf": self.crf and self.crf.scheme,
        }
