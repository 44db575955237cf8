# %% [markdown]
# # A classifier with Keras' own `fit`
#
# The models of bert_tf are ordinary Keras models: dict of int32 tensors in, dict of logits out. They fit
# into existing Keras training scripts. (`run_scripts/run_classifier.py` does more: exact resume, several
# machines, metrics, a report.)
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
import tensorflow as tf

import bert_tf

parser = argparse.ArgumentParser(description="Fine-tunes a classifier with keras.Model.fit.")
parser.add_argument("--init_checkpoint", help="folder, TF1 checkpoint or hf://org/name")
parser.add_argument("--learning_rate", type=float, default=1e-3)
parser.add_argument("--epochs", type=int, default=4)
arguments = parser.parse_known_args()[0]  # a notebook has arguments of its own
keras.utils.set_random_seed(1)

# %% [markdown]
# ## The data
#
# Any Python list works. Here it is made up: a guest's opinion of a hotel.

# %%
LABELS = ("bad", "good")
WORDS = {"bad": ("awful", "dirty", "noisy", "cold"), "good": ("lovely", "clean", "quiet", "warm")}
THINGS = ("room", "bed", "view", "breakfast", "pool", "street", "bathroom")


def guest(rng):
    """Return the review of one guest and the index of its label."""
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
# A checkpoint of any origin contains its configuration and vocabulary. Without one, the example uses the
# vocabulary of this repository and the smallest of the published sizes.

# %%
MAX_LENGTH = 32
if arguments.init_checkpoint:
    model = bert_tf.BertForSequenceClassification.from_pretrained(
        arguments.init_checkpoint, labels=LABELS
    )
    print(model.load_report.summary())
    preprocessor = bert_tf.TextPreprocessor.from_pretrained(
        arguments.init_checkpoint, max_length=MAX_LENGTH
    )
else:
    vocab_file = Path(bert_tf.__file__).parents[1] / "vocab/uncased_30522/vocab.txt"
    vocabulary = vocab_file.read_text(encoding="utf-8").splitlines()
    config = bert_tf.BertConfig.from_name("tiny", vocab_size=len(vocabulary))
    model = bert_tf.BertForSequenceClassification(config, labels=LABELS)
    preprocessor = bert_tf.TextPreprocessor(vocabulary, max_length=MAX_LENGTH)

# %% [markdown]
# ## Texts to tensors
#
# The preprocessor converts strings, or pairs of strings, to the inputs of the model: `input_ids`,
# `input_mask` (1 = real, 0 = padding) and `segment_ids`, int32 [batch, MAX_LENGTH] each. Labels pass
# through.

# %%
BATCH_SIZE = 32


def batches(examples):
    """Return batches for `fit`: (inputs, labels)."""
    texts, labels = (list(column) for column in zip(*examples, strict=True))
    dataset = tf.data.Dataset.from_tensor_slices((texts, labels))
    return dataset.shuffle(len(texts), seed=1).batch(BATCH_SIZE).map(preprocessor)


steps = arguments.epochs * len(train_set) // BATCH_SIZE

# %% [markdown]
# ## `compile` and `fit`
#
# The reference's optimizer with its warm-up; any Keras optimizer works. The model returns logits, hence
# `from_logits`.

# %%
schedule = bert_tf.WarmupDecay(arguments.learning_rate, steps, num_warmup_steps=steps // 10)
model.compile(
    optimizer=bert_tf.AdamWeightDecay(schedule, global_clipnorm=1.0),
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
    metrics=[keras.metrics.SparseCategoricalAccuracy(name="accuracy")],
)
model.fit(
    batches(train_set),
    validation_data=batches(test_set),
    epochs=arguments.epochs,
    shuffle=False,  # the data set is already shuffled
    verbose=2,
)

# %% [markdown]
# ## Predict and save
#
# `model.save` is Keras' own. `model.save_pretrained(folder, tokenizer)` writes a folder that
# `bert_tf.load`, `run_scripts/` and `transformers` read.

# %%
TEXTS = ["The pool was dirty and the street was noisy.", "A quiet room with a lovely view."]
with tempfile.TemporaryDirectory() as folder:
    model.save(f"{folder}/hotel.keras")
    loaded = keras.saving.load_model(f"{folder}/hotel.keras")
logits = loaded.predict(preprocessor(TEXTS), verbose=0)["logits"]
for text, probabilities in zip(TEXTS, keras.ops.softmax(logits).numpy(), strict=True):
    print(f"{loaded.labels[probabilities.argmax()]:<5}{probabilities.max():5.0%}  {text}")
