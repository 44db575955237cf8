"""SavedModels that take raw text, and tokenize it exactly as training did.

Two signatures:

    serving_default   text_a [, text_b]: string [B]               -> the outputs of the task
    tokens            input_ids, input_mask, segment_ids: int32 [B, S]   -> the same

Outputs of a classifier, besides `logits` float32 [B, L]:

    single_label   `probabilities` float32 [B, L], `label` string [B]
    multi_label    `probabilities` float32 [B, L], `has_label` bool [B, L]
    regression     `score` float32 [B]

`assets.extra/` holds task.json, labels.txt (in the order of the outputs), bert_config.json and
vocab.txt.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import tensorflow as tf

from bert_tf.data.files import write_text
from bert_tf.data.graph_packing import pack_ragged
from bert_tf.data.graph_tokenizer import GraphTokenizer
from bert_tf.model_folder import TASK_FILE, TrainedModel, task_text
from bert_tf.tasks.classification import ClassificationTask


class ServedClassifier(tf.Module):
    """A trained classifier as TensorFlow functions on text and on ids."""

    def __init__(self, trained: TrainedModel, max_seq_length: int):
        super().__init__()
        self.model = trained.model
        self.problem_type = trained.task.kind.name
        self.labels = tf.constant(trained.task.labels, tf.string)
        self.max_seq_length = max_seq_length
        tokenizer = trained.tokenizer
        self.tokenizer = GraphTokenizer(tokenizer.vocab, tokenizer.do_lower_case)
        self.cls_id, self.sep_id = tokenizer.convert_tokens_to_ids(["[CLS]", "[SEP]"])

    @tf.function
    def tokens(self, input_ids, input_mask, segment_ids) -> dict[str, tf.Tensor]:
        inputs = {"input_ids": input_ids, "input_mask": input_mask, "segment_ids": segment_ids}
        logits = self.model(inputs, training=False)["logits"]
        if self.problem_type == "regression":
            return {"score": logits[:, 0], "logits": logits}
        if self.problem_type == "multi_label":
            outputs = {"probabilities": tf.sigmoid(logits), "has_label": logits > 0}
            return {**outputs, "logits": logits}
        best = tf.argmax(logits, axis=-1)
        return {
            "probabilities": tf.nn.softmax(logits),
            "logits": logits,
            "label": tf.gather(self.labels, best),
        }

    @tf.function
    def single(self, text_a) -> dict[str, tf.Tensor]:
        return self.tokens(**self._pack(self.tokenizer(text_a), None))

    @tf.function
    def pair(self, text_a, text_b) -> dict[str, tf.Tensor]:
        return self.tokens(**self._pack(self.tokenizer(text_a), self.tokenizer(text_b)))

    def _pack(self, ids_a, ids_b):
        return pack_ragged(
            ids_a,
            ids_b,
            max_seq_length=self.max_seq_length,
            cls_id=self.cls_id,
            sep_id=self.sep_id,
        )

    def signatures(self, is_pair: bool) -> Mapping[str, tf.types.experimental.ConcreteFunction]:
        text_a, text_b = (tf.TensorSpec([None], tf.string, name) for name in ("text_a", "text_b"))
        names = ("input_ids", "input_mask", "segment_ids")
        ids = {name: tf.TensorSpec([None, None], tf.int32, name) for name in names}
        return {
            "serving_default": self.pair.get_concrete_function(text_a, text_b)
            if is_pair
            else self.single.get_concrete_function(text_a),
            "tokens": self.tokens.get_concrete_function(**ids),
        }


def export_classifier(
    trained: TrainedModel, export_dir: str, max_seq_length: int | None = None
) -> None:
    """Writes a SavedModel of a trained classifier.

    Args:
        trained: a classifier, from `load_model_folder`.
        export_dir: must not exist yet, or be empty. It appears when it is complete.
        max_seq_length: longer texts are cut; default: as in training.

    Raises:
        ValueError: the model is no classifier, the folder is not empty, or the length is beyond the
            model's position table.
    """
    if not isinstance(trained.task, ClassificationTask):
        raise ValueError(
            f"The model was made for {type(trained.task).__name__}, but only classifiers can be "
            "exported so far. Name the --output_dir of run_classifier."
        )
    max_seq_length = max_seq_length or trained.max_seq_length
    limit = trained.model.config.max_position_embeddings
    least = 3 if trained.task.is_pair else 2  # [CLS] and [SEP] alone
    if not least <= max_seq_length <= limit:
        raise ValueError(
            f"--max_seq_length is {max_seq_length}, but must be from {least} to "
            f"`max_position_embeddings` = {limit} in the model's configuration."
        )
    check_export_dir(export_dir)
    served = ServedClassifier(trained, max_seq_length)
    temporary = f"{export_dir.rstrip('/')}.tmp"
    if tf.io.gfile.exists(temporary):  # of an export that was killed
        tf.io.gfile.rmtree(temporary)
    tf.saved_model.save(served, temporary, signatures=served.signatures(trained.task.is_pair))
    _write_extra_assets(trained, os.path.join(temporary, "assets.extra"))
    if tf.io.gfile.isdir(export_dir):
        tf.io.gfile.rmtree(export_dir)
    tf.io.gfile.rename(temporary, export_dir)


def check_export_dir(export_dir: str) -> None:
    """Refuses a place where something lies.

    Raises:
        ValueError: `export_dir` is a file, or a folder that is not empty.
    """
    if not tf.io.gfile.exists(export_dir):
        return
    if not tf.io.gfile.isdir(export_dir):
        raise ValueError(f"--export_dir={export_dir} is a file. Name a new folder.")
    if tf.io.gfile.listdir(export_dir):
        raise ValueError(
            f"--export_dir={export_dir} is not empty. Name a new folder; for TensorFlow Serving, the "
            "next version number."
        )


def _write_extra_assets(trained: TrainedModel, folder: str) -> None:
    """What a person or a client may want to look up; the served functions do not read it."""
    tokens = sorted(trained.tokenizer.vocab, key=trained.tokenizer.vocab.get)
    write_text(os.path.join(folder, TASK_FILE), task_text(trained.task))
    write_text(os.path.join(folder, "labels.txt"), "".join(f"{x}\n" for x in trained.task.labels))
    write_text(os.path.join(folder, "vocab.txt"), "".join(f"{token}\n" for token in tokens))
    write_text(os.path.join(folder, "bert_config.json"), trained.model.config.to_json_string())
