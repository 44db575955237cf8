"""SavedModels that take raw text, and tokenize it exactly as training did.

Two signatures:

    serving_default   text_a [, text_b]: string [B]               -> the outputs of the task
    tokens            input_ids, input_mask, segment_ids: int32 [B, S]   -> the same

Outputs of a classifier, besides `logits` float32 [B, L]:

    single_label   `probabilities` float32 [B, L], `label` string [B]
    multi_label    `probabilities` float32 [B, L], `has_label` bool [B, L]
    regression     `score` float32 [B]

A model that answers questions takes `question` and `context` instead, and gives `answer` string [B],
`start` and `end` int64 [B] (characters of the context; -1 for no answer), `score` float32 [B] (sum of
the logits) and, with SQuAD 2.0, `null_odds` float32 [B]; for ids `start_logits` and `end_logits`
float32 [B, S].

`assets.extra/` holds task.json, bert_config.json, vocab.txt, and labels.txt (in the order of the
outputs) of a classifier.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import tensorflow as tf

from bert_tf.data.files import write_text
from bert_tf.data.graph_packing import pack_ragged
from bert_tf.data.graph_tokenizer import GraphTokenizer
from bert_tf.data.graph_windows import best_spans, graph_windows
from bert_tf.model_folder import TASK_FILE, TrainedModel, task_text
from bert_tf.tasks.answers import CERTAINLY_NULL, AnswerSettings
from bert_tf.tasks.classification import ClassificationTask
from bert_tf.tasks.question_answering import QuestionAnsweringTask


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
            f"The model was made for {type(trained.task).__name__}, but only classifiers and models "
            "that answer questions can be exported. Name the --output_dir of run_classifier or "
            "run_squad."
        )
    least = 3 if trained.task.is_pair else 2  # [CLS] and [SEP] alone
    max_seq_length = check_export_length(trained, max_seq_length, least)
    served = ServedClassifier(trained, max_seq_length)
    write_saved_model(served, served.signatures(trained.task.is_pair), trained, export_dir)


def check_export_length(trained: TrainedModel, max_seq_length: int | None, least: int) -> int:
    """`max_seq_length`, or that of the training.

    Raises:
        ValueError: it is below `least` or beyond the model's position table.
    """
    max_seq_length = max_seq_length or trained.max_seq_length
    limit = trained.model.config.max_position_embeddings
    if not least <= max_seq_length <= limit:
        raise ValueError(
            f"--max_seq_length is {max_seq_length}, but must be from {least} to "
            f"`max_position_embeddings` = {limit} in the model's configuration."
        )
    return max_seq_length


class ServedAnswerer(tf.Module):
    """A trained model of question answering as TensorFlow functions on text and on ids.

    Long contexts are cut into windows as in training; the answer is the best of all windows.
    """

    def __init__(self, trained: TrainedModel, settings: AnswerSettings):
        super().__init__()
        self.model, self.task, self.settings = trained.model, trained.task, settings
        tokenizer = trained.tokenizer
        self.tokenizer = GraphTokenizer(tokenizer.vocab, tokenizer.do_lower_case)
        self.cls_id, self.sep_id = tokenizer.convert_tokens_to_ids(["[CLS]", "[SEP]"])

    @tf.function
    def tokens(self, input_ids, input_mask, segment_ids) -> dict[str, tf.Tensor]:
        inputs = {"input_ids": input_ids, "input_mask": input_mask, "segment_ids": segment_ids}
        return self.model(inputs, training=False)

    @tf.function
    def answer(self, question, context) -> dict[str, tf.Tensor]:
        passage_ids, starts, ends = self.tokenizer.with_offsets(context)
        windows = graph_windows(
            self.tokenizer(question),
            passage_ids,
            max_seq_length=self.task.max_seq_length,
            doc_stride=self.task.doc_stride,
            max_query_length=self.task.max_query_length,
            cls_id=self.cls_id,
            sep_id=self.sep_id,
        )
        spans = best_spans(
            windows,
            **self.tokens(**windows.inputs),
            n_best_size=self.settings.n_best_size,
            max_answer_length=self.settings.max_answer_length,
        )
        null_odds = tf.where(spans.score < -1e29, CERTAINLY_NULL, spans.null_score - spans.score)
        is_answer = spans.score > -1e29
        if self.settings.version_2_with_negative:
            is_answer &= null_odds <= self.settings.null_score_diff_threshold
        start = _at(starts.flat_values, spans.start, is_answer)
        end = _at(ends.flat_values, spans.end, is_answer)
        length = tf.cast(end - start, tf.int32)
        first = tf.maximum(tf.cast(start, tf.int32), 0)
        outputs = {
            "answer": tf.strings.substr(context, first, length, unit="UTF8_CHAR"),
            "start": start,
            "end": end,
            "score": spans.score,
        }
        if self.settings.version_2_with_negative:
            outputs["null_odds"] = null_odds
        return outputs

    def signatures(self) -> Mapping[str, tf.types.experimental.ConcreteFunction]:
        texts = [tf.TensorSpec([None], tf.string, name) for name in ("question", "context")]
        names = ("input_ids", "input_mask", "segment_ids")
        ids = {name: tf.TensorSpec([None, None], tf.int32, name) for name in names}
        return {
            "serving_default": self.answer.get_concrete_function(*texts),
            "tokens": self.tokens.get_concrete_function(**ids),
        }


def _at(values: tf.Tensor, index: tf.Tensor, is_answer: tf.Tensor) -> tf.Tensor:
    """`values[index]`, and -1 where there is no answer."""
    values = tf.concat([values, [-1]], axis=0)
    return tf.gather(values, tf.where(is_answer, index, tf.size(values, tf.int64) - 1))


def export_answerer(trained: TrainedModel, export_dir: str, settings: AnswerSettings) -> None:
    """Writes a SavedModel of a model that answers questions.

    Args:
        trained: from `load_model_folder`.
        export_dir: must not exist yet, or be empty. It appears when it is complete.
        settings: how answers are chosen.
    """
    if not isinstance(trained.task, QuestionAnsweringTask):
        raise ValueError(
            f"The model was made for {type(trained.task).__name__}, not for question answering."
        )
    served = ServedAnswerer(trained, settings)
    write_saved_model(served, served.signatures(), trained, export_dir)


def write_saved_model(
    served: tf.Module,
    signatures: Mapping[str, tf.types.experimental.ConcreteFunction],
    trained: TrainedModel,
    export_dir: str,
) -> None:
    """Writes a SavedModel with its extra assets; it appears when it is complete.

    Raises:
        ValueError: the folder is not empty.
    """
    check_export_dir(export_dir)
    temporary = f"{export_dir.rstrip('/')}.tmp"
    if tf.io.gfile.exists(temporary):  # of an export that was killed
        tf.io.gfile.rmtree(temporary)
    tf.saved_model.save(served, temporary, signatures=signatures)
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
    labels = getattr(trained.task, "labels", None)
    if labels is not None:
        write_text(os.path.join(folder, "labels.txt"), "".join(f"{label}\n" for label in labels))
    write_text(os.path.join(folder, "vocab.txt"), "".join(f"{token}\n" for token in tokens))
    write_text(os.path.join(folder, "bert_config.json"), trained.model.config.to_json_string())
