"""Trained models, loaded from their folders (checkpoints/write.py) or from any checkpoint.

`load_model` accepts:

    folder of a run (task.json)              the model of its task
    checkpoint with a fine-tuned head        the model of the task in Hugging Face's config.json
    checkpoint with a masked-LM head         BertForPreTraining
    any other checkpoint                     BertModel, for embeddings and attention
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import keras

from bert_tf.checkpoints.checkpoint import find_config
from bert_tf.checkpoints.hub import local_path
from bert_tf.checkpoints.initial import explain_untied_decoder, initialize
from bert_tf.checkpoints.read import read_checkpoint
from bert_tf.limits import DataError, join_names
from bert_tf.modeling.bert import BertModel
from bert_tf.modeling.models import BertForPreTraining
from bert_tf.tasks.base import MIN_SEQ_LENGTH, Task
from bert_tf.tasks.load import load_task
from bert_tf.tasks.token_classification import NUM_SPECIAL_TOKENS, TokenClassificationTask
from bert_tf.tokenization import FullTokenizer, load_tokenizer


@dataclass(frozen=True)
class TrainedModel:
    """A model, its tokenizer and its task.

    Args:
        network: function from inputs to outputs by name, with a `config`: a Keras model, or an export.
        task: None for a checkpoint without a known task.
        source: the model's name in messages.
        checkpoint: path of the weights; empty if unknown.
        unused_head: reason why the checkpoint's head is not part of the model; empty if all heads are.
    """

    network: Any
    tokenizer: FullTokenizer
    task: Task | None
    max_seq_length: int
    source: str = "this model"
    checkpoint: str = ""
    unused_head: str = ""

    @property
    def model(self) -> keras.Model:
        """The network with its weights; ValueError for an export, which has none."""
        if not isinstance(self.network, keras.Model):
            raise ValueError(f"{self.source} is an export: name the folder of its model.")
        return self.network


_MASKED_LM = "cls/predictions/transform/dense/kernel"


def load_model(
    path: str,
    *,
    head: str | None = None,
    dtype: str | None = None,
    bert_config_file: str | None = None,
    vocab_file: str | None = None,
    do_lower_case: bool | None = None,
) -> TrainedModel:
    """Return the model in a folder or checkpoint, with its tokenizer; `task` is None if unknown.

    Args:
        path: the --output_dir of a run, or any checkpoint for --init_checkpoint, also hf://org/name.
        head: "encoder" or "masked_lm", for a model without the task; default: that of the folder.
        dtype: precision policy, default float32.
        bert_config_file, vocab_file, do_lower_case: replace the files next to a checkpoint.

    Raises:
        ValueError: the path contains no usable model.
        FileNotFoundError: the checkpoint does not exist.
    """
    path = local_path(path)
    checkpoint = read_checkpoint(path)
    config = find_config(bert_config_file, checkpoint)
    tokenizer = load_tokenizer(vocab_file, do_lower_case, checkpoint, config)
    task, problem = None, ""
    if head is None:
        task, problem = load_task(replace(checkpoint, config=config))
        if task is not None and checkpoint.task is None and task.is_pretrained:
            task = None
    dtype = dtype or "float32"  # not Keras' global policy
    unused: tuple[str, ...] = ()
    if task is not None:
        config.check_sequence_length(task.max_seq_length)
        length, model = task.max_seq_length, task.build_model(config, dtype=dtype)
        needed = ("",)
        unused = () if task.uses_pooler else ("bert/pooler/",)
    else:
        if head is None:
            untied = explain_untied_decoder(checkpoint)
            problem = problem or untied
            head = "encoder" if untied or _MASKED_LM not in checkpoint.arrays else "masked_lm"
        model_class = BertModel if head == "encoder" else BertForPreTraining
        length, model = checkpoint.longest_input(config), model_class(config, dtype=dtype)
        needed = ("cls/predictions/",)
    model.load_report = report = initialize(model, checkpoint)
    missing = [name for name in report.missing if name.startswith(needed)]
    if missing := [name for name in missing if not name.startswith(unused)]:
        remedy = "copy it again" if task is not None else "use head=encoder"
        raise DataError(report.source, f"lacks {join_names(missing, 3)}: {remedy}.")
    model.task = None if task is None else task.values()  # for save_pretrained
    return TrainedModel(
        *(model, tokenizer, task, length, path), checkpoint=checkpoint.source, unused_head=problem
    )


def with_settings(
    trained: TrainedModel, max_seq_length: int | None = None, doc_stride: int | None = None
) -> TrainedModel:
    """Return the same model with other lengths than in training; None keeps a length.

    Words are read in windows, whose stride is reduced if they become shorter.
    """
    if max_seq_length is not None:
        trained.network.config.check_sequence_length(max_seq_length, MIN_SEQ_LENGTH)
    given = {"max_seq_length": max_seq_length, "doc_stride": doc_stride}
    given = {name: value for name, value in given.items() if value is not None}
    task = trained.task
    if isinstance(task, TokenClassificationTask) and task.doc_stride and max_seq_length is not None:
        # As in the served graph; a given stride has precedence.
        given.setdefault("doc_stride", min(task.doc_stride, max_seq_length - NUM_SPECIAL_TOKENS))
    if doc_stride is not None and (task is None or "doc_stride" not in vars(task)):
        raise ValueError(f"doc_stride is for windows of long texts, unlike {trained.source}.")
    if task is not None and given:
        task = type(task)(**{**task.arguments(), **given})
    length = trained.max_seq_length if max_seq_length is None else max_seq_length
    return replace(trained, task=task, max_seq_length=length)
