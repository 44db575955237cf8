"""Served model of run_embeddings: texts -> vectors.

    serving_default   text_a: string [B]                                   -> the outputs
    query             the same, with the prefix of queries; absent if queries and documents have the
                      same prefix
    tokens            input_ids, input_mask, segment_ids: int32 [B, S]     -> the same

Outputs:

    embedding         float32 [B, E]; its length is 1 if the model was trained so

Shapes: B batch, S the batch's longest sequence, E embedding.
"""

from __future__ import annotations

from dataclasses import dataclass

import tensorflow as tf

from bert_tf.prediction.loading import QUERY, TEXT
from bert_tf.serving.served import Outputs, Served, texts_spec


@dataclass(frozen=True, eq=False)
class ServedEmbeddings(Served):
    kind = "embedder"

    def tokens(self, **ids) -> Outputs:
        vectors = self.call_model(**ids)["embedding"]
        return {"embedding": tf.math.l2_normalize(vectors, -1) if self.task.normalize else vectors}

    def single(self, text_a) -> Outputs:
        return self._embed(text_a, self.task.document_prefix)

    def query(self, text_a) -> Outputs:
        return self._embed(text_a, self.task.query_prefix)

    def _embed(self, texts, prefix: str) -> Outputs:
        texts = tf.strings.join([prefix, texts]) if prefix else texts
        return self.tokens(**self.pack(self.tokenizer(texts), None))

    def text_functions(self):
        functions = {TEXT: (self.single, [texts_spec("text_a")])}
        if self.task.query_prefix != self.task.document_prefix:
            functions[QUERY] = (self.query, [texts_spec("text_a")])
        return functions
