"""BertModel: token ids in, contextual vectors out.

Shapes: B batch, S sequence, H hidden.
"""

from __future__ import annotations

import contextlib
import os
import threading
import warnings
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

import keras
from keras import ops

from bert_tf.config import BertConfig
from bert_tf.modeling.attention import attention_bias
from bert_tf.modeling.bilstm import bidirectional_lstm
from bert_tf.modeling.embeddings import Embeddings, truncated_normal
from bert_tf.modeling.heads import gather_positions
from bert_tf.modeling.inputs import as_tensors, check_values, checked_inputs
from bert_tf.modeling.keras_losses import check_loss, check_metrics, check_order
from bert_tf.modeling.transformer import TransformerBlock
from bert_tf.names import check_names
from bert_tf.tokenization import FullTokenizer

_SCOPE = threading.local()  # the replicas of a step run in separate threads


@contextlib.contextmanager
def encoder_outputs() -> Iterator[list[dict[str, Any]]]:
    """Yield a list that receives the outputs of each `BertModel` called inside."""
    _SCOPE.outputs = []
    try:
        yield _SCOPE.outputs
    finally:
        _SCOPE.outputs = None


_CALL_HINT = (
    "Pass all inputs as one dict: `model(inputs)`, not `model(**inputs)`. The result is a dict."
)


class ConfiguredModel(keras.Model):
    """A model made from one `BertConfig`. Its variables exist on construction.

    A checkpoint can be loaded before the first call. The variables' paths are the reference's
    variable names.

    Attributes:
        exported_inputs: name -> shape of the int32 inputs of an exported model.
        task: the `Task` of the checkpoint that the model was loaded from, which `save_pretrained` keeps.
    """

    exported_inputs: Mapping[str, tuple[None, ...]] = dict.fromkeys(
        ("input_ids", "input_mask", "segment_ids"), (None, None)
    )

    def __init__(self, config: BertConfig, **kwargs):
        given: Any = config
        if not isinstance(given, BertConfig):
            name = type(self).__name__
            raise TypeError(
                f"The configuration of {name} is {given!r:.60}, but must be a BertConfig. For a folder "
                f"or checkpoint call {name}.from_pretrained."
            )
        if isinstance(dtype := kwargs.get("dtype"), str):
            _check_precision(dtype)
        super().__init__(**kwargs)
        self.config = config
        self.load_report = self.task = None

    def __call__(self, inputs=None, *args, **kwargs):
        if others := sorted(kwargs.keys() - {"training"}):
            check_names(f"{type(self).__name__}.__call__", others, self.call, _CALL_HINT)
        if isinstance(inputs, Mapping):
            tensors = as_tensors(inputs)
            check_values(inputs, tensors, self.config)
            inputs = tensors
        return super().__call__(inputs, *args, **kwargs)

    @classmethod
    def from_pretrained(cls, path: str | os.PathLike, **kwargs) -> ConfiguredModel:
        """Return a model with the weights of any checkpoint that `--init_checkpoint` accepts.

        Parts that the checkpoint lacks, such as a new head, have random values. A warning gives the
        reason for a new head. The model's `load_report` lists loaded, new and unused variables.

        Args:
            path: a folder or checkpoint of google-research/bert, of bert_tf, of Hugging Face (also
                hf://org/name) or of tf-models-official.
            **kwargs: arguments of the class (`num_labels`, `labels`, `problem_type`, `dtype`). Default
                of the first three: those of the checkpoint's head.

        Raises:
            FileNotFoundError: the checkpoint does not exist.
            TypeError: `labels` is not a list of strings.
            ValueError: its encoder does not fit, it has no configuration, its task.json is damaged or
                contradicts its config.json, or the number of labels is unknown.
        """
        return import_module("bert_tf.pretrained").from_pretrained(cls, path, **kwargs)

    def save_pretrained(
        self,
        folder: str | os.PathLike,
        tokenizer: FullTokenizer | None = None,
        format: str = "huggingface",
    ) -> None:
        """Write the model to a new folder, completely or not at all.

        If the model has the task, labels and problem type of the checkpoint that it was loaded from, the
        settings of that are kept: the longest input, prefixes, whether a classifier takes pairs.
        Otherwise the longest input is the number of positions.

        Args:
            folder: must not exist, or be empty.
            tokenizer: written next to the weights.
            format: "huggingface" (config.json, model.safetensors; needs the extra [hf]) or "tf1"
                (bert_model.ckpt, bert_config.json).

        Raises:
            TypeError: a subclass has variables of its own.
            ValueError: the folder is not empty, the format is unknown or cannot store this model, or the
                tokenizer has more ids than the model.
        """
        import_module("bert_tf.pretrained").save_pretrained(self, folder, tokenizer, format)

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        """Return the loss of `compile`, as Keras does.

        Raises:
            ValueError: the loss takes logits for probabilities, or a list of labels or `loss_weights`
                would be taken for those of other outputs.
        """
        check_order("labels", y, y_pred)
        weights = getattr(self._compile_loss, "_user_loss_weights", None)
        check_order("loss weights", weights, y_pred)
        check_loss(self.loss, y_pred)
        return super().compute_loss(x, y, y_pred, sample_weight, training)

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        """Return the metrics of `compile`, as Keras does.

        Raises:
            ValueError: the loss takes logits, but a metric takes them for probabilities.
        """
        found = super().compute_metrics(x, y, y_pred, sample_weight)  # makes metrics of names
        check_metrics(
            self.loss, (own for each in self.metrics for own in getattr(each, "metrics", ()))
        )
        return found

    def quantize(self, *args, **kwargs):
        """Raise TypeError: Keras would quantize the pooler only.

        Keras skips the layers of the encoder, and cannot load a file of the rest.
        """
        raise TypeError(
            f"Keras cannot quantize {type(self).__name__}: it would skip the encoder. Write the model "
            "with save_pretrained(folder, tokenizer), and use "
            'bert_tf.export(folder, ..., precision="int8").'
        )

    def export(
        self, filepath, format="tf_saved_model", verbose=None, input_signature=None, **kwargs
    ):
        """Export the model as Keras does, by default with all of `exported_inputs`.

        Lists of outputs are numbered: `all_encoder_layers_0`, `all_encoder_layers_1`, ...
        """
        model: keras.Model = self
        if input_signature is None:
            inputs = {
                name: keras.Input(batch_shape=shape, dtype="int32", name=name)
                for name, shape in self.exported_inputs.items()
            }
            model = keras.Model(inputs, _numbered(self(inputs)), name=self.name)
        keras.Model.export(model, filepath, format, verbose, input_signature, **kwargs)

    def get_config(self) -> dict[str, Any]:
        policy = keras.saving.serialize_keras_object(self.dtype_policy)
        frozen = [v.path for v in self.weights if not v.trainable] if self.trainable else []
        return {
            "config": self.config.to_dict(),
            "name": self.name,
            "trainable": self.trainable,
            "dtype": policy,
            **({"frozen": frozen} if frozen else {}),
        }

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects=None):
        values = dict(config)
        trainable, frozen = values.pop("trainable", True), values.pop("frozen", ())
        if isinstance(values.get("dtype"), dict):
            values["dtype"] = keras.saving.deserialize_keras_object(values["dtype"])
        model = cls(BertConfig.from_dict(values.pop("config")), **values)
        if not trainable:
            model.trainable = False
        _freeze(model, set(frozen))
        return model


def _freeze(model: keras.Model, frozen: set[str]) -> None:
    """Freeze the variables of these paths, and the layers that have no others."""
    if unknown := frozen - {variable.path for variable in model.weights}:
        warnings.warn(
            f"The saved {type(model).__name__} has the frozen variable {min(unknown)}, but the loaded "
            "one has no variable of this path, so that part is trained. Set `trainable` before "
            "`compile`.",
            stacklevel=2,
        )
    for layer in model._flatten_layers(include_self=False) if frozen else ():
        if layer.weights and frozen.issuperset(variable.path for variable in layer.weights):
            layer.trainable = False
    for variable in model.weights:
        if variable.path in frozen:
            variable.trainable = False


def _check_precision(name: str) -> None:
    """Raise ValueError unless Keras has a precision policy of this name."""
    try:
        keras.dtype_policies.get(name)
    except ValueError as error:
        raise ValueError(
            f"The precision (dtype) is {name!r}, but must be one of float32, mixed_bfloat16, "
            "mixed_float16, bfloat16, float16."
        ) from error


@keras.saving.register_keras_serializable(package="bert_tf")
class BertModel(ConfiguredModel):
    """The encoder of Devlin et al. 2019.

    >>> import numpy as np
    >>> model = BertModel(BertConfig.from_name("tiny", vocab_size=100))
    >>> outputs = model({"input_ids": np.array([[1, 2, 3]])})
    >>> outputs["sequence_output"].shape
    TensorShape([1, 3, 128])

    Args:
        config: architecture.
        output_attentions: also return the attention probabilities of every layer.
        name: first part of every variable's path. Checkpoints are loaded and written only with "bert".
        **kwargs: `dtype`, a Keras precision policy such as "mixed_bfloat16".

    Call arguments:
        inputs: dict of tensors, int32 [B, S] unless stated otherwise.
            `input_ids`: the tokens.
            `input_mask`: 1 = real, 0 = padding. Default: all 1. May also be [B, F, T], 1 = position
            F may attend to T. Other name: `attention_mask`.
            `segment_ids`: 0 = first sentence, 1 = second. Default: all 0. Other name:
            `token_type_ids`.
            `embedding_output`: floats [B, S, H] instead of the embeddings of `input_ids` and
            `segment_ids`, for gradients with respect to it.
            A packed batch (data/sequence_packing.py) has rows [R, L] of several examples in
            `input_ids`, `segment_ids`, `position_ids` and `sequence_ids`. Its `packed_positions`
            and `input_mask` are [B, S], by example.
        training: True if dropout is active.

    Returns:
        dict of tensors.
        `sequence_output` [B, S, H]: the last layer, or the BiLSTM on it if there is one.
        `pooled_output` [B, H]: the tanh layer on [CLS]. A left-to-right model without a BiLSTM pools
        its last real token, the only one that attends to all others.
        `all_encoder_layers`: list of [B, S, H], from the first layer to the last.
        `embedding_output` [B, S, H].
        `attention_probs`: list of [B, N, F, T], with `output_attentions`.

    Raises:
        TypeError: ids are not integers.
        ValueError: an input is unknown or given twice, or its shape does not fit. S is above
            `max_position_embeddings` (not checked in a graph where S is unknown). Ids or masks in NumPy
            arrays or lists are out of range (checked if the model is called, not in `fit` and
            `predict`).

    Source: google-research/bert, modeling.py, `BertModel`.
    """

    def __init__(
        self,
        config: BertConfig,
        output_attentions: bool = False,
        name: str = "bert",
        **kwargs,
    ):
        super().__init__(config, name=name, **kwargs)
        self.output_attentions = output_attentions
        policy = self.dtype_policy
        self.embeddings = Embeddings(config, dtype=policy)
        self.encoder_layers = [
            TransformerBlock(config, name=f"layer_{index}", dtype=policy)
            for index in range(config.num_hidden_layers)
        ]
        self.bilstm = [
            bidirectional_lstm(config.hidden_size // 2, f"bilstm_{index}", policy)
            for index in range(config.num_bilstm_layers)
        ]
        self.pooler = keras.layers.Dense(
            config.hidden_size,
            activation="tanh",
            kernel_initializer=truncated_normal(config),
            name="dense",
            dtype=policy,
        )
        self.build()
        self._tracker.unlock()  # a subclass may have layers of its own

    def build(self, input_shape=None):
        self.embeddings.build()
        with keras.name_scope("encoder"):
            for layer in self.encoder_layers:
                layer.build()
        for layer in self.bilstm:
            layer.build((None, None, self.config.hidden_size))
        with keras.name_scope("pooler"):
            self.pooler.build((None, self.config.hidden_size))

    def call(self, inputs: Mapping[str, Any], training=None) -> dict[str, Any]:
        inputs = checked_inputs(inputs)
        input_ids = ops.cast(inputs["input_ids"], "int32")
        input_mask = inputs.get("input_mask")
        segment_ids = inputs.get("segment_ids")
        if input_mask is None:
            input_mask = ops.ones_like(input_ids)
        if segment_ids is None:
            segment_ids = ops.zeros_like(input_ids)

        packed_positions = inputs.get("packed_positions")
        attention_mask = input_mask
        if packed_positions is not None:
            attention_mask = _same_sequence(inputs["sequence_ids"])
        embedding_output = inputs.get("embedding_output")
        if embedding_output is None:
            embedding_output = self.embeddings(
                input_ids, segment_ids, inputs.get("position_ids"), training=training
            )
        hidden = embedding_output
        left_to_right = self.config.attention_direction == "left_to_right"
        bias = attention_bias(attention_mask, left_to_right)
        all_encoder_layers, attention_probs = [], []
        for layer in self.encoder_layers:
            hidden, probabilities = layer(hidden, bias, training=training)
            all_encoder_layers.append(hidden)
            attention_probs.append(probabilities)
        if packed_positions is not None:
            all_encoder_layers = [
                _unpacked(layer, packed_positions) for layer in all_encoder_layers
            ]
            embedding_output = _unpacked(embedding_output, packed_positions)
            hidden = all_encoder_layers[-1]
        for layer in self.bilstm:
            hidden = layer(hidden, mask=ops.greater(_real(input_mask), 0), training=training)
        is_last = left_to_right and not self.bilstm  # a BiLSTM reads everything at any position
        summary = _last_real(hidden, input_mask) if is_last else hidden[:, 0]
        outputs = {
            "sequence_output": hidden,
            "pooled_output": self.pooler(summary),
            "all_encoder_layers": all_encoder_layers,
            "embedding_output": embedding_output,
        }
        if self.output_attentions:
            outputs["attention_probs"] = attention_probs
        if getattr(_SCOPE, "outputs", None) is not None:
            _SCOPE.outputs.append(outputs)
        return outputs

    def get_config(self) -> dict[str, Any]:
        return {**super().get_config(), "output_attentions": self.output_attentions}


def _numbered(outputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the outputs with one name for each value of a list."""
    found: dict[str, Any] = {}
    for name, value in outputs.items():
        if isinstance(value, list):
            found |= {f"{name}_{index}": part for index, part in enumerate(value)}
        else:
            found[name] = value
    return found


def _same_sequence(sequence_ids):
    """Return 1 where both tokens are in one sequence: int32 [R, L] (0 = padding) -> [R, L, L]."""
    first, second = sequence_ids[:, :, None], sequence_ids[:, None, :]
    same = ops.logical_and(ops.equal(first, second), ops.greater(first, 0))
    return ops.cast(same, "int32")


def _unpacked(rows, packed_positions):
    """Return vectors [R, L, H] of packed rows as examples, [B, S, H]. Padding gets those of [CLS]."""
    flat = ops.reshape(rows, (-1, rows.shape[-1]))
    return ops.take(flat, packed_positions, axis=0)


def _real(input_mask):
    """Return 1 for real tokens, which any token may attend to: int32 [B, S]."""
    mask = ops.cast(input_mask, "int32")
    return ops.max(mask, axis=1) if len(mask.shape) == 3 else mask


def _last_real(hidden, input_mask):
    """Return the vector of the last real token, [B, H]."""
    mask = _real(input_mask)
    last = ops.max(mask * ops.arange(ops.shape(mask)[1], dtype="int32"), axis=1)
    return gather_positions(hidden, last[:, None])
