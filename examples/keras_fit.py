# %% [markdown]
# # A classifier with Keras' own `fit`
#
# The models of bert_tf are ordinary Keras models: dict of int32 tensors in, dict of logits out. Whoever
# has a training script in Keras keeps it. (`run_scripts/run_classifier.py` does more: exact resume,
# several machines, metrics, a report.)
#
#     python examples/keras_fit.py
#     python examples/keras_fit.py --init_checkpoint=uncased_L-12_H-768_A-12 --learning_rate=3e-5
#
# Without a checkpoint the model is a tiny one with random weights, which learns this in seconds.

# %%
import argparse
import random
import tempfile
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.data.packing import pack_texts
from bert_tf.interop.beside import find_config, load_tokenizer
from bert_tf.interop.initial import initialize, read_checkpoint
from bert_tf.modeling.models import BertForSequenceClassification
from bert_tf.tokenization import FullTokenizer
from bert_tf.training.optimization import AdamWeightDecay, WarmupLinearDecay

parser = argparse.ArgumentParser(description="Fine-tunes a classifier with keras.Model.fit.")
parser.add_argument("--init_checkpoint", help="folder, TF1 checkpoint or hf://org/name")
parser.add_argument("--learning_rate", type=float, default=1e-3)
parser.add_argument("--epochs", type=int, default=4)
arguments = parser.parse_args()
keras.utils.set_random_seed(1)

# %% [markdown]
# ## The data
#
# Any Python list will do. Here it is made up: what a guest thinks of a hotel.

# %%
LABELS = ("bad", "good")
WORDS = {"bad": ("awful", "dirty", "noisy", "cold"), "good": ("lovely", "clean", "quiet", "warm")}
THINGS = ("room", "bed", "view", "breakfast", "pool", "street", "bathroom")


def guest(rng):
    """What one guest says, and which label that is."""
    label = rng.choice(LABELS)
    first, second = rng.sample(THINGS, 2)
    a, b = rng.sample(WORDS[label], 2)
    return f"The {first} was {a}, and the {second} was {b}.", LABELS.index(label)


rng = random.Random(1)
train_set = [guest(rng) for _ in range(256)]
test_set = [guest(rng) for _ in range(64)]
print(train_set[0])

# %% [markdown]
# ## The model
#
# A checkpoint of any origin brings its configuration and vocabulary along. Without one: the vocabulary
# of this repository, and the smallest of the published sizes.

# %%
MAX_SEQ_LENGTH = 32
if arguments.init_checkpoint:
    checkpoint = read_checkpoint(arguments.init_checkpoint)
    config = find_config(None, checkpoint)
    tokenizer = load_tokenizer(None, None, checkpoint, config)
else:
    checkpoint = None
    tokenizer = FullTokenizer(Path(__file__).parents[1] / "vocab/uncased_30522/vocab.txt")
    config = BertConfig.from_name("tiny", vocab_size=len(tokenizer.vocab))

model = BertForSequenceClassification(config, num_labels=len(LABELS))
if checkpoint is not None:
    print(initialize(model, checkpoint).summary())

# %% [markdown]
# ## Texts to tensors
#
# `pack_texts` puts [CLS] and [SEP] in, cuts and pads: `input_ids`, `input_mask` (1 = real, 0 = padding)
# and `segment_ids`, each [examples, MAX_SEQ_LENGTH].


# %%
def tensors(texts):
    """The inputs of the model, int32 [N, S] each."""
    rows = [pack_texts(tokenizer, text, None, MAX_SEQ_LENGTH)._asdict() for text in texts]
    return {name: np.array([row[name] for row in rows], np.int32) for name in rows[0]}


def batches(examples):
    """What `fit` takes: (inputs, {name of the output: labels})."""
    texts, labels = zip(*examples, strict=True)
    return tf.data.Dataset.from_tensor_slices((tensors(texts), {"logits": np.array(labels)}))


BATCH_SIZE = 32
steps = arguments.epochs * len(train_set) // BATCH_SIZE

# %% [markdown]
# ## `compile` and `fit`
#
# The reference's optimizer with its warm-up; any Keras optimizer works. Logits are raw numbers, hence
# `from_logits`.

# %%
schedule = WarmupLinearDecay(arguments.learning_rate, steps, num_warmup_steps=steps // 10)
model.compile(
    optimizer=AdamWeightDecay(schedule, global_clipnorm=1.0),
    loss={"logits": keras.losses.SparseCategoricalCrossentropy(from_logits=True)},
    metrics={"logits": [keras.metrics.SparseCategoricalAccuracy(name="accuracy")]},
)
model.fit(
    batches(train_set).shuffle(len(train_set), seed=1).batch(BATCH_SIZE),
    validation_data=batches(test_set).batch(BATCH_SIZE),
    epochs=arguments.epochs,
    shuffle=False,  # the data set does it
    verbose=2,
)

# %% [markdown]
# ## Ask it, keep it
#
# `model.save` is Keras' own; what was registered in bert_tf is found again by `load_model`.

# %%
TEXTS = ("The pool was dirty and the street was noisy.", "A quiet room with a lovely view.")
with tempfile.TemporaryDirectory() as folder:
    model.save(f"{folder}/hotel.keras")
    loaded = keras.saving.load_model(f"{folder}/hotel.keras")
logits = loaded.predict(tensors(TEXTS), verbose=0)["logits"]
for text, probabilities in zip(TEXTS, keras.ops.softmax(logits).numpy(), strict=True):
    print(f"{LABELS[probabilities.argmax()]:<5}{probabilities.max():5.0%}  {text}")
