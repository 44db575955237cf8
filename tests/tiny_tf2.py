"""Small imitations of the encoders of tf-models-official, with the names that its code gives.

Attributes and variable names are those of official/nlp/modeling (`BertEncoder`,
`TransformerEncoderBlock`, `BertPretrainerV2`) and the shapes those of Keras 2's
`MultiHeadAttention`; the forward pass is written for [H, N, D] kernels, as theirs is.
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
            return Part(
                embeddings=variable(arrays[f"bert/embeddings/{ours}"], f"{name}/embeddings")
            )

        def layer(index):
            ours, name = f"bert/encoder/layer_{index}", f"transformer/layer_{index}"
            parts = {
                f"_{kind}_dense": dense(
                    arrays,
                    f"{ours}/attention/self/{kind}",
                    f"{name}/self_attention/{kind}",
                    (hidden, heads, size),
                    (heads, size),
                )
                for kind in ("query", "key", "value")
            }
            parts["_output_dense"] = dense(
                arrays,
                f"{ours}/attention/output/dense",
                f"{name}/self_attention/attention_output",
                (heads, size, hidden),
            )
            return Part(
                _attention_layer=Part(**parts),
                _attention_layer_norm=norm(
                    arrays,
                    f"{ours}/attention/output/LayerNorm",
                    f"{name}/self_attention_layer_norm",
                ),
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

    def encode(self, input_word_ids, input_mask, input_type_ids):
        """int32 [B, S] -> pooled_output [B, H], sequence_output [B, S, H]."""
        length = tf.shape(input_word_ids)[1]
        data = tf.gather(self._embedding_layer.embeddings, input_word_ids)
        data += self._position_embedding_layer.embeddings[:length]
        data += tf.gather(self._type_embedding_layer.embeddings, input_type_ids)
        data = normalize(data, self._embedding_norm_layer)
        adder = (1.0 - tf.cast(input_mask, tf.float32))[:, None, None, :] * -1e9
        for layer in self._transformer_layers:
            attention = layer._attention_layer
            query, key, value = (
                tf.einsum("bsh,hnd->bsnd", data, part.kernel) + part.bias
                for part in (attention._query_dense, attention._key_dense, attention._value_dense)
            )
            scores = tf.einsum("bfnd,btnd->bnft", query, key) / query.shape[-1] ** 0.5
            context = tf.einsum("bnft,btnd->bfnd", tf.nn.softmax(scores + adder), value)
            output = attention._output_dense
            attended = tf.einsum("bsnd,ndh->bsh", context, output.kernel) + output.bias
            data = normalize(data + attended, layer._attention_layer_norm)
            inner = layer._intermediate_dense
            inner = tf.nn.gelu(data @ inner.kernel + inner.bias, approximate=True)
            outer = inner @ layer._output_dense.kernel + layer._output_dense.bias
            data = normalize(data + outer, layer._output_layer_norm)
        pooler = self._pooler_layer
        pooled = tf.tanh(data[:, 0] @ pooler.kernel + pooler.bias)
        return {"pooled_output": pooled, "default": pooled, "sequence_output": data}


def normalize(data, layer):
    mean, variance = tf.nn.moments(data, [-1], keepdims=True)
    return (data - mean) * tf.math.rsqrt(variance + 1e-12) * layer.gamma + layer.beta


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

    @tf.function(
        input_signature=[
            tf.TensorSpec([None, None], tf.int32, name)
            for name in ("input_word_ids", "input_mask", "input_type_ids")
        ]
    )
    def __call__(self, input_word_ids, input_mask, input_type_ids):
        encoder = getattr(self, "layer_with_weights-0")
        return encoder.encode(input_word_ids, input_mask, input_type_ids)


def save_hub_encoder(folder, config, arrays, tokens, do_lower_case=True):
    """Writes the SavedModel and returns its folder."""
    vocab_file = folder.with_name(f"{folder.name}_source") / "vocab.txt"
    vocab_file.parent.mkdir(parents=True)
    vocab_file.write_text("".join(f"{token}\n" for token in tokens))
    module = HubEncoder(config, arrays, vocab_file, do_lower_case)
    tf.saved_model.save(module, str(folder), signatures={"serving_default": module.__call__})
    return str(folder)
