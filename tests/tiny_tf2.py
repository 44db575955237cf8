"""Small imitations of the encoders of tf-models-official, with the names that its code gives.

Attributes and variable names are those of official/nlp/modeling (`BertEncoder`,
`TransformerEncoderBlock`, `BertPretrainerV2`) and the shapes those of Keras 2's
`MultiHeadAttention`.
"""

import numpy as np
import tensorflow as tf


class Part(tf.Module):
    """A bag of attributes, which checkpoints follow."""

    def __init__(self, **attributes):
        super().__init__()
        for name, value in attributes.items():
            setattr(self, name, value)


def variable(array, name):
    return tf.Variable(np.asarray(array, np.float32), name=name)


def dense(arrays, ours, name, shape=None, bias_shape=None):
    kernel, bias = arrays[f"{ours}/kernel"], arrays[f"{ours}/bias"]
    return Part(
        kernel=variable(kernel.reshape(shape or kernel.shape), f"{name}/kernel"),
        bias=variable(bias.reshape(bias_shape or bias.shape), f"{name}/bias"),
    )


def norm(arrays, ours, name):
    return Part(
        gamma=variable(arrays[f"{ours}/gamma"], f"{name}/gamma"),
        beta=variable(arrays[f"{ours}/beta"], f"{name}/beta"),
    )


class Encoder(tf.Module):
    """As `BertEncoder`, from arrays under the reference's names."""

    def __init__(self, config, arrays):
        super().__init__()
        hidden, heads = config.hidden_size, config.num_attention_heads
        size = hidden // heads

        def table(ours, name):
            array = arrays[f"bert/embeddings/{ours}"]
            return Part(embeddings=variable(array, f"{name}/embeddings"))

        def layer(index):
            ours, name = f"bert/encoder/layer_{index}", f"transformer/layer_{index}"

            def projected(part, theirs, *shapes):
                names = f"{ours}/attention/{part}", f"{name}/self_attention/{theirs}"
                return dense(arrays, *names, *shapes)

            kernel, bias = (hidden, heads, size), (heads, size)
            parts = {
                f"_{kind}_dense": projected(f"self/{kind}", kind, kernel, bias)
                for kind in ("query", "key", "value")
            }
            shape = (heads, size, hidden)
            parts["_output_dense"] = projected("output/dense", "attention_output", shape)
            norms = f"{ours}/attention/output/LayerNorm", f"{name}/self_attention_layer_norm"
            return Part(
                _attention_layer=Part(**parts),
                _attention_layer_norm=norm(arrays, *norms),
                _intermediate_dense=dense(
                    arrays, f"{ours}/intermediate/dense", f"{name}/intermediate"
                ),
                _output_dense=dense(arrays, f"{ours}/output/dense", f"{name}/output"),
                _output_layer_norm=norm(
                    arrays, f"{ours}/output/LayerNorm", f"{name}/output_layer_norm"
                ),
            )

        self._embedding_layer = table("word_embeddings", "word_embeddings")
        self._position_embedding_layer = table("position_embeddings", "position_embedding")
        self._type_embedding_layer = table("token_type_embeddings", "type_embeddings")
        self._embedding_norm_layer = norm(
            arrays, "bert/embeddings/LayerNorm", "embeddings/layer_norm"
        )
        self._transformer_layers = [layer(index) for index in range(config.num_hidden_layers)]
        self._pooler_layer = dense(arrays, "bert/pooler/dense", "pooler_transform")


def masked_lm(arrays):
    """As `layers.MaskedLM` of a `BertPretrainerV2`."""
    transform = "cls/predictions/transform"
    return Part(
        dense=dense(arrays, f"{transform}/dense", f"{transform}/dense"),
        layer_norm=norm(arrays, f"{transform}/LayerNorm", f"{transform}/LayerNorm"),
        bias=variable(arrays["cls/predictions/output_bias"], "cls/predictions/output_bias/bias"),
    )


def projection(arrays, ours, name):
    """A `Dense` that gives logits; its kernel is [in, out]."""
    return Part(
        kernel=variable(arrays[f"{ours}output_weights"].T, f"{name}/kernel"),
        bias=variable(arrays[f"{ours}output_bias"], f"{name}/bias"),
    )


def classification_head(arrays, ours, name, inner=True):
    """As a `ClassificationHead`; with an inner layer it has the pooler that was trained."""
    parts = {"out_proj": projection(arrays, ours, f"{name}/logits")}
    if inner:
        parts["dense"] = dense(arrays, "bert/pooler/dense", f"{name}/pooler_dense")
    return Part(**parts)


def next_sentence(arrays):
    """The head of a `BertPretrainerV2`."""
    return classification_head(arrays, "cls/seq_relationship/", "bert/next_sentence")


class HubEncoder(tf.Module):
    """As a BERT of TF Hub, version 3 or 4: the encoder hangs in a model, vocabulary and case beside."""

    def __init__(self, config, arrays, vocab_file, do_lower_case):
        super().__init__()
        setattr(self, "layer_with_weights-0", Encoder(config, arrays))
        self.vocab_file = tf.saved_model.Asset(str(vocab_file))
        self.do_lower_case = tf.Variable(do_lower_case, trainable=False)


def save_hub_encoder(folder, config, arrays, tokens, do_lower_case=True):
    """Writes the SavedModel and returns its folder."""
    vocab_file = folder.with_name(f"{folder.name}_source") / "vocab.txt"
    vocab_file.parent.mkdir(parents=True)
    vocab_file.write_text("".join(f"{token}\n" for token in tokens))
    module = HubEncoder(config, arrays, vocab_file, do_lower_case)
    tf.saved_model.save(module, str(folder))
    return str(folder)
