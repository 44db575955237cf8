"""Search texts by meaning, and sort what is found with a reranker.

    python examples/search.py --model=all-MiniLM-L6-v2 --documents=texts.txt --query="my cat is ill"
    python examples/search.py --model=embeddings_output --reranker=reranker_output \
        --documents=texts.txt --query="Who won?" --top_k=3

Documents are the lines of a file, encoded once as vectors [N, E]. A query costs one more vector and one
product, which is fast enough for a million texts. For more, put the vectors into FAISS or ScaNN.
A model is any folder or checkpoint that `bert_tf.load` reads, an export too.

Source: Nogueira and Cho 2019, arXiv 1901.04085 (retrieve, then rerank).
"""

import argparse
from pathlib import Path

import numpy as np

import bert_tf

RERANKED = 50  # documents of a query that the reranker reads


class Search:
    """Documents, ordered by their similarity to a query.

    Args:
        model: from `bert_tf.load`, with vectors.
        documents: texts.
        reranker: from `bert_tf.load`, with a score for (query, document), or None.
    """

    def __init__(self, model, documents, reranker=None):
        self.model, self.documents, self.reranker = model, list(documents), reranker
        self.vectors = model.embed(self.documents)  # [N, E], of length 1

    def find(self, query, top_k=3):
        """Return the best documents as (score, text), the best first."""
        scores = (self.vectors @ self.model.embed([query], as_query=True).T)[:, 0]  # [N]
        best = np.argsort(-scores)[: top_k if self.reranker is None else max(top_k, RERANKED)]
        found = [(float(scores[index]), self.documents[index]) for index in best]
        if self.reranker is not None:
            answers = self.reranker.predict([(query, text) for _, text in found])
            found = [(a["score"], text) for a, (_, text) in zip(answers, found, strict=True)]
            found.sort(key=lambda pair: -pair[0])
        return found[:top_k]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", required=True)
    parser.add_argument("--documents", required=True, help="file with a text per line")
    parser.add_argument("--query", required=True, action="append", help="may be repeated")
    parser.add_argument("--reranker", help="model of run_reranker")
    parser.add_argument("--top_k", type=int, default=3)
    arguments = parser.parse_args()
    lines = Path(arguments.documents).read_text(encoding="utf-8").splitlines()
    search = Search(
        bert_tf.load(arguments.model),
        dict.fromkeys(line for line in lines if line.strip()),
        bert_tf.load(arguments.reranker) if arguments.reranker else None,
    )
    for text in arguments.query:
        print(text)
        for score, document in search.find(text, arguments.top_k):
            print(f"{score:8.3f}  {document}")
