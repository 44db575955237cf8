r"""Search documents by embeddings, and rank the best with a reranker.

    python run_scripts/search.py \
        --model_dir=embeddings_output --reranker=reranker_output \
        --documents=passages.txt --query="When was the bridge opened?"

docs/embeddings.md has the details.
"""

from bert_tf import cli
from bert_tf.programs.search import SearchOptions, search

if __name__ == "__main__":
    cli.run(SearchOptions, search)
