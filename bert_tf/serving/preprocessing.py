"""SavedModel from texts to the inputs of a `tf_hub` encoder, with the interface of TF Hub's version 3.

    preprocessor = hub.load(folder)                     or tf.saved_model.load(folder)
    preprocessor(texts)                                 string [B] -> the encoder's inputs, int32 [B, S]
    preprocessor.tokenize(texts)                        string [B] -> int32 ragged [B, words, pieces]
    preprocessor.tokenize.get_special_tokens_dict()     ids of [CLS], [SEP], [PAD] and [MASK]
    preprocessor.bert_pack_inputs([a] or [a, b], seq_length=S)
                                                        ragged [B, words, pieces] or [B, pieces] ->
                                                        the encoder's inputs, int32 [B, S]

The default of S is 128, or the encoder's longest input if that is shorter. The tokenizer is
`FullTokenizer`, so that the ids are those of the training. TF Hub's own differs from it on about 4,000
characters of uncased text.

Source: https://www.tensorflow.org/hub/common_saved_model_apis/text, "Preprocessor".
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from bert_tf.serving.other_names import INPUTS, TF_HUB
from bert_tf.serving.served import INPUT_NAMES, Served
from bert_tf.text_ops.packing import pack_ragged
from bert_tf.text_ops.tokenizer import GraphTokenizer

SEQ_LENGTH = 128  # the default of TF Hub's
PREPROCESS = "_preprocess"
PREPROCESSING = "folder of the preprocessing"  # its name in messages


def preprocessing_dir(export_dir: str) -> str:
    """Return the folder for the preprocessing of an encoder in `export_dir`."""
    return f"{export_dir.rstrip('/')}{PREPROCESS}"


def preprocessor(served: Served) -> Any:
    """Return the object to save; its signature `serving_default` is `__call__`."""
    tokenizer = GraphTokenizer(served.vocabulary, served.do_lower_case)
    packing = _packing(served)
    root, tokenize, pack = (tf.__internal__.tracking.AutoTrackable() for _ in range(3))
    texts_spec = tf.TensorSpec([None], tf.string, "sentences")
    length = min(SEQ_LENGTH, served.max_seq_length)

    @tf.function(input_signature=[texts_spec], autograph=False)
    def call(sentences):
        packed = packing([tokenizer(sentences)], length)
        return {name: tf.ensure_shape(ids, [None, length]) for name, ids in packed.items()}

    @tf.function(input_signature=[texts_spec], autograph=False)
    def words(sentences):
        return tokenizer.by_words(sentences)

    @tf.function(input_signature=[], autograph=False)
    def special_tokens():
        names = {"start_of_sequence_id": "[CLS]", "end_of_segment_id": "[SEP]"}
        names |= {"padding_id": "[PAD]", "mask_id": "[MASK]"}
        found = {n: served.vocabulary[t] for n, t in names.items() if t in served.vocabulary}
        return {n: tf.constant(i) for n, i in (found | {"vocab_size": _size(served)}).items()}

    @tf.function(autograph=False)
    def pack_inputs(inputs, seq_length=length):
        return packing(inputs, seq_length)

    for rank in (2, 3):
        for count in (1, 2):
            segments = [tf.RaggedTensorSpec([None] * rank, tf.int32) for _ in range(count)]
            pack_inputs.get_concrete_function(segments, seq_length=tf.TensorSpec([], tf.int32))

    root.tokenizer, root.tokenize, root.bert_pack_inputs = tokenizer, tokenize, pack
    root.__call__, tokenize.__call__, pack.__call__ = call, words, pack_inputs
    tokenize.get_special_tokens_dict = special_tokens
    return root


def _size(served: Served) -> int:
    return max(served.vocabulary.values()) + 1


def _packing(served: Served):
    """Return the function from one or two ragged tensors and S to the encoder's inputs."""
    limit = served.config.max_position_embeddings
    pad_id = served.vocabulary.get("[PAD]", 0)

    def pack(inputs: list[tf.RaggedTensor], seq_length) -> dict[str, tf.Tensor]:
        segments = [ids.merge_dims(1, -1) if ids.shape.rank > 2 else ids for ids in inputs]
        least = 1 + len(segments)  # [CLS], and [SEP] after each
        length = tf.cast(seq_length, tf.int64)
        data = ["`seq_length` is", length, f"but must be from {least} to {limit} for this encoder."]
        in_range = (length >= least) & (length <= limit)
        with tf.control_dependencies([tf.debugging.Assert(in_range, data)]):
            length = tf.identity(length)
        packed = pack_ragged(
            segments[0],
            segments[1] if len(segments) == 2 else None,
            max_seq_length=length,
            cls_id=served.cls_id,
            sep_id=served.sep_id,
            pad_id=pad_id,
            length_step=length,
            closes_empty=True,
        )
        return {name: packed[ours] for name, ours in zip(INPUTS[TF_HUB], INPUT_NAMES, strict=True)}

    return pack
