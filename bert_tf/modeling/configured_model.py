"""ConfiguredModel, the base of all models: configuration, checks for Keras, folders and export."""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping
from typing import Any

import keras

from bert_tf.config import BertConfig
from bert_tf.modeling.inputs import as_tensors, check_values
from bert_tf.tokenization import FullTokenizer

# They take no logits; other losses of Keras have `from_logits`.
_OF_PROBABILITIES = (
    keras.losses.categorical_generalized_cross_entropy,
    keras.losses.kl_divergence,
    keras.losses.dice,
    keras.losses.tversky,
)


class ConfiguredModel(keras.Model):
    """A model made from one `BertConfig`. Its variables exist on construction.

    A checkpoint can be loaded before the first call. The variables' paths are the reference's
    variable names.

    Attributes:
        task: content of `task.json` of the checkpoint that the model was loaded from, which
            `save_pretrained` and `.keras` files keep; or None.
    """

    task: dict[str, Any] | None

    def __init__(self, config: BertConfig, **kwargs):
        super().__init__(**kwargs)
        self.config = config
        self.load_report, self.task = None, None
        self.has_input_shapes = False

    def build(self, input_shape=None):
        """Let Keras record the shapes of the inputs, for exporters. The variables exist already."""
        self.has_input_shapes = True

    def __call__(self, inputs, *args, **kwargs):
        if isinstance(inputs, Mapping):
            check_values(inputs, self.config)
            inputs = as_tensors(inputs)
            if not self.has_input_shapes:
                self.build({name: tuple(value.shape) for name, value in inputs.items()})
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
                of the first three: those of the checkpoint's head, which a subclass has to accept.

        Raises:
            FileNotFoundError: the checkpoint does not exist.
            ValueError: its encoder does not fit, it has no configuration, its task.json is corrupt or
                contradicts its config.json, or the number of labels is unknown.
        """
        from bert_tf.modeling.pretrained import from_pretrained  # imports TensorFlow

        return from_pretrained(cls, path, **kwargs)

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
            format: "huggingface" (config.json, model.safetensors) or "tf1"
                (bert_model.ckpt, bert_config.json).

        Raises:
            TypeError: a subclass has variables of its own.
            ValueError: the folder is not empty, the format is unknown or cannot store this model, or the
                tokenizer has more ids than the model.
        """
        from bert_tf.modeling.pretrained import save_pretrained  # imports TensorFlow

        save_pretrained(self, folder, tokenizer, format)

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        """Return the loss of `compile`, as Keras does.

        Raises:
            ValueError: the loss takes logits for probabilities.
        """
        _check_loss(self.loss, y_pred)
        return super().compute_loss(x, y, y_pred, sample_weight, training)

    def export(
        self, filepath, format="tf_saved_model", verbose=None, input_signature=None, **kwargs
    ):
        """Export the model as Keras does, by default with int32 inputs of any length."""
        if input_signature is None:
            names = ("input_ids", "input_mask", "segment_ids")
            input_signature = [{n: keras.InputSpec("int32", (None, None), name=n) for n in names}]
        super().export(filepath, format, verbose, input_signature, **kwargs)

    def get_config(self) -> dict[str, Any]:
        frozen = [variable.path for variable in self.weights if not variable.trainable]
        return {
            "config": self.config.to_dict(),
            "name": self.name,
            "dtype": keras.saving.serialize_keras_object(self.dtype_policy),
            "trainable": self.trainable,
            "frozen": frozen if self.trainable else [],
            "task": self.task,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects=None):
        values = dict(config)
        frozen, task = values.pop("frozen", ()), values.pop("task", None)
        trainable = values.pop("trainable", True)
        model = cls(BertConfig.from_dict(values.pop("config")), **values)
        for variable in model.weights:
            variable.trainable = variable.path not in frozen
        if not trainable:
            model.trainable = False
        model.task = task
        return model


def _check_loss(loss: Any, outputs: Any) -> None:
    """Raise ValueError if a loss of Keras takes the logits in a model's outputs for probabilities."""
    names = sorted(outputs) if isinstance(outputs, Mapping) else []
    if isinstance(loss, list | tuple):
        loss = dict(zip(names, loss, strict=False))  # in the order of Keras
    for name in (name for name in names if name.endswith("logits")):
        output_loss = keras.losses.get(loss.get(name) if isinstance(loss, Mapping) else loss)
        if isinstance(output_loss, keras.losses.Loss):
            from_logits = output_loss.get_config().get("from_logits")
        else:
            parameters = inspect.signature(output_loss).parameters if output_loss else {}
            from_logits = "from_logits" not in parameters or parameters["from_logits"].default
        if from_logits is False or getattr(output_loss, "fn", output_loss) in _OF_PROBABILITIES:
            raise ValueError(
                f"`loss` takes the logits in `{name}` for probabilities. Compile with a loss of "
                "keras.losses that has from_logits=True."
            )
