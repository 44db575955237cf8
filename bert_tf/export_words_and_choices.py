"""SavedModels for words and for choices that take text, and tokenize it exactly as training did.

Of run_ner:

    serving_default   words: string [B, W], "" behind the last word of a row
                      -> label string [B, W] ("" where there is no word), probability float32 [B, W]
    tokens            input_ids, input_mask, segment_ids: int32 [B, S] -> logits float32 [B, S, L]

Of run_swag:

    serving_default   text_a: string [B]; choices: string [B, K], "" for one that a row does not have
                      -> prediction int32 [B], probabilities and logits float32 [B, K]
    tokens            input_ids, input_mask, segment_ids: int32 [B, K, S] -> the same

A row of words with more pieces than the model reads at once is an error of the request, since no word is
left out in silence. Entities with character offsets, in texts of any length, are in
word_and_choice_predictors.py.
"""

from __future__ import annotations

from collections.abc import Mapping

import tensorflow as tf

from bert_tf.data.graph_packing import pack_ragged
from bert_tf.data.graph_tokenizer import GraphTokenizer
from bert_tf.export import check_export_length, write_saved_model
from bert_tf.model_folder import TrainedModel
from bert_tf.tasks.multiple_choice import MultipleChoiceTask
from bert_tf.tasks.token_classification import TokenClassificationTask
from bert_tf.training.losses import masked_choices, word_logits

_NAMES = ("input_ids", "input_mask", "segment_ids")


class _Served(tf.Module):
    """The model, the tokenizer, and packing."""

    def __init__(self, trained: TrainedModel, max_seq_length: int):
        super().__init__()
        self.model = trained.model
        self.max_seq_length = max_seq_length
        tokenizer = trained.tokenizer
        self.tokenizer = GraphTokenizer(tokenizer.vocab, tokenizer.do_lower_case)
        special = tokenizer.convert_tokens_to_ids(["[CLS]", "[SEP]", "[UNK]"])
        self.cls_id, self.sep_id, self.unk_id = special

    def pack(self, ids_a, ids_b) -> dict[str, tf.Tensor]:
        return pack_ragged(
            ids_a,
            ids_b,
            max_seq_length=self.max_seq_length,
            cls_id=self.cls_id,
            sep_id=self.sep_id,
        )


class ServedTokenClassifier(_Served):
    """A trained token classifier as TensorFlow functions on words and on ids."""

    def __init__(self, trained: TrainedModel, max_seq_length: int):
        super().__init__(trained, max_seq_length)
        self.labels = tf.constant(trained.task.labels)

    @tf.function
    def tokens(self, input_ids, input_mask, segment_ids) -> dict[str, tf.Tensor]:
        inputs = dict(zip(_NAMES, (input_ids, input_mask, segment_ids), strict=True))
        return {"logits": self.model(inputs, training=False)["logits"]}

    @tf.function
    def words(self, words) -> dict[str, tf.Tensor]:
        shape = tf.shape(words)  # B, W
        flat = tf.reshape(words, [-1])
        is_word = tf.strings.length(flat) > 0
        pieces = self.tokenizer(flat)  # ragged [B*W, None]
        # A word of which nothing is left is [UNK], as in word_windows.encode_words.
        is_lost = tf.cast(is_word & (pieces.row_lengths() == 0), tf.int64)
        unknown = tf.fill([tf.reduce_sum(is_lost)], tf.cast(self.unk_id, tf.int32))
        pieces = tf.concat([pieces, tf.RaggedTensor.from_row_lengths(unknown, is_lost)], axis=1)

        lengths = tf.reshape(pieces.row_lengths(), shape)
        totals = tf.reduce_sum(lengths, axis=1)
        room = self.max_seq_length - 2
        fits = tf.debugging.assert_less_equal(
            totals,
            tf.cast(room, tf.int64),
            message=f"A row has more than {room} WordPieces. Send fewer words in a row.",
        )
        with tf.control_dependencies([fits]):
            rows = tf.RaggedTensor.from_row_lengths(pieces.values, totals)
        packed = self.pack(rows, None)
        positions = 1 + tf.cumsum(tf.cast(lengths, tf.int32), axis=1, exclusive=True)
        positions = tf.minimum(positions, tf.shape(packed["input_ids"])[1] - 1)  # of no word
        logits = word_logits(self.tokens(**packed)["logits"], positions)  # [B, W, L]
        is_word = tf.reshape(is_word, shape)
        labels = tf.gather(self.labels, tf.argmax(logits, axis=-1))
        best = tf.reduce_max(tf.nn.softmax(logits), axis=-1)
        return {
            "label": tf.where(is_word, labels, ""),
            "probability": tf.where(is_word, best, 0.0),
        }

    def signatures(self) -> Mapping[str, tf.types.experimental.ConcreteFunction]:
        ids = {name: tf.TensorSpec([None, None], tf.int32, name) for name in _NAMES}
        words = tf.TensorSpec([None, None], tf.string, "words")
        return {
            "serving_default": self.words.get_concrete_function(words),
            "tokens": self.tokens.get_concrete_function(**ids),
        }


class ServedChooser(_Served):
    """A trained multiple-choice model as TensorFlow functions on texts and on ids."""

    def _answer(self, logits) -> dict[str, tf.Tensor]:
        return {
            "prediction": tf.argmax(logits, axis=-1, output_type=tf.int32),
            "probabilities": tf.nn.softmax(logits),
            "logits": logits,
        }

    @tf.function
    def tokens(self, input_ids, input_mask, segment_ids) -> dict[str, tf.Tensor]:
        inputs = dict(zip(_NAMES, (input_ids, input_mask, segment_ids), strict=True))
        return self._answer(self.model(inputs, training=False)["logits"])

    @tf.function
    def choose(self, text_a, choices) -> dict[str, tf.Tensor]:
        shape = tf.shape(choices)  # B, K
        repeated = tf.repeat(tf.range(shape[0]), shape[1])
        ids_a = tf.gather(self.tokenizer(text_a), repeated)  # ragged [B*K, None]
        packed = self.pack(ids_a, self.tokenizer(tf.reshape(choices, [-1])))
        length = tf.shape(packed["input_ids"])[1]
        folded = {
            name: tf.reshape(value, [shape[0], shape[1], length]) for name, value in packed.items()
        }
        logits = self.model(folded, training=False)["logits"]
        is_choice = tf.cast(tf.strings.length(choices) > 0, tf.int32)
        return self._answer(masked_choices(logits, is_choice))

    def signatures(self) -> Mapping[str, tf.types.experimental.ConcreteFunction]:
        ids = {name: tf.TensorSpec([None, None, None], tf.int32, name) for name in _NAMES}
        text_a = tf.TensorSpec([None], tf.string, "text_a")
        choices = tf.TensorSpec([None, None], tf.string, "choices")
        return {
            "serving_default": self.choose.get_concrete_function(text_a, choices),
            "tokens": self.tokens.get_concrete_function(**ids),
        }


SERVED = {TokenClassificationTask: ServedTokenClassifier, MultipleChoiceTask: ServedChooser}


def export_words_or_choices(
    trained: TrainedModel, export_dir: str, max_seq_length: int | None = None
) -> Mapping[str, tf.types.experimental.ConcreteFunction]:
    """Writes a SavedModel of what run_ner or run_swag trained; its signatures.

    Args:
        trained: from `load_model_folder`.
        export_dir: must not exist yet, or be empty. It appears when it is complete.
        max_seq_length: default: for words all that the model has positions for, so that no sentence is
            refused without need; for choices as in training.

    Raises:
        ValueError: the folder is not empty, or the length is beyond the model's position table.
    """
    if max_seq_length is None and isinstance(trained.task, TokenClassificationTask):
        max_seq_length = trained.model.config.max_position_embeddings
    max_seq_length = check_export_length(trained, max_seq_length, least=3)
    served = SERVED[type(trained.task)](trained, max_seq_length)
    signatures = served.signatures()
    write_saved_model(served, signatures, trained, export_dir)
    return signatures
