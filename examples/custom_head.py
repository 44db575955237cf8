# %% [markdown]
# # A head and a task of your own, in one file
#
# The question: how many animals does a sentence mention? The head gives each token a number, and the
# answer is their sum. The model therefore also shows which words it counted.
#
# A task defines the content of an example, its model, the losses and the metrics. bert_tf's training
# loop does the rest: batches by length, mixed precision, several devices, checkpoints, exact resume,
# and keeping the best weights. After `register_task`, `bert_tf.load` answers with the trained folder.
#
#     python examples/custom_head.py
#     python examples/custom_head.py --init_checkpoint=uncased_L-12_H-768_A-12 --learning_rate=3e-5

# %%
import argparse
import os
import random
import tempfile
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from keras import ops

import bert_tf
from bert_tf.prediction.text_model import TextModel

# %% [markdown]
# ## The head
#
# `ConfiguredModel` is a `keras.Model` that is made from one `BertConfig` and built at once. The
# encoder's variables have the names of the published checkpoints; you name those of the head.
#
# Shapes: B batch, S sequence, H hidden.


# %%
@keras.saving.register_keras_serializable(package="examples")
class BertForCounting(bert_tf.ConfiguredModel):
    """A number of things in a text.

    Outputs: `counts` [B]; `of_tokens` [B, S], the contribution of each token (0 for padding).
    """

    def __init__(self, config, **kwargs):
        super().__init__(config, **kwargs)
        self.bert = bert_tf.BertModel(config, dtype=self.dtype_policy)
        self.adds = keras.layers.Dense(1, name="adds", dtype=self.dtype_policy)
        self.adds.build((None, None, config.hidden_size))
        self.built = True

    def call(self, inputs, training=None):
        hidden = self.bert(inputs, training=training)["sequence_output"]  # [B, S, H]
        adds = ops.cast(self.adds(hidden)[..., 0], "float32")  # [B, S]
        adds = adds * ops.cast(inputs["input_mask"], "float32")
        return {"counts": ops.sum(adds, axis=-1), "of_tokens": adds}


# %% [markdown]
# ## The task
#
# A loss consists of two sums, of weight * loss and of the weights, so that its mean stays exact when a
# batch is split across devices. `is_real_example` is 0 for the padding of a last batch.


# %%
class CountingTask(bert_tf.Task):
    """Regression of a count from a sentence."""

    name = "counting"
    best_metric = "eval_loss"

    def __init__(self, max_seq_length):
        self.max_seq_length = max_seq_length
        self.features = (
            *(
                bert_tf.FeatureSpec(n, (max_seq_length,))
                for n in ("input_ids", "input_mask", "segment_ids")
            ),
            bert_tf.FeatureSpec("how_many", dtype="float32", role="label", output="counts"),
            bert_tf.FeatureSpec("is_real_example", role="weight", output="counts"),
        )
        self.losses = (bert_tf.Loss("loss", self._squared_errors, self._num_real),)

    @staticmethod
    def _num_real(features):
        return tf.reduce_sum(tf.cast(features["is_real_example"], tf.float32))

    @staticmethod
    def _squared_errors(outputs, features):
        errors = (outputs["counts"] - features["how_many"]) ** 2
        return tf.reduce_sum(tf.cast(features["is_real_example"], tf.float32) * errors)

    def build_model(self, config, dtype=None):
        return BertForCounting(config, dtype=dtype)

    def eval_outputs(self, outputs, features):
        return {"counts": outputs["counts"], "how_many": features["how_many"]}

    def metrics(self, kept):
        errors = kept["counts"] - kept["how_many"]
        return {
            "eval_loss": float(np.mean(errors**2)),
            "eval_exact": float(np.mean(np.abs(errors) < 0.5)),  # right when rounded
        }


# %% [markdown]
# ## The data
#
# The training loop reads TFRecords, which are written once.

# %%
ANIMALS = ("dog", "cat", "horse", "bird", "fox", "sheep")
OTHERS = ("house", "tree", "car", "river", "stone", "boat")


def sentence(rng):
    """Return a sentence and the number of animals in it, 0 to 4."""
    words = rng.sample(ANIMALS, rng.randint(0, 4)) + rng.sample(OTHERS, rng.randint(1, 3))
    rng.shuffle(words)
    return "i saw " + ", ".join(f"a {word}" for word in words), sum(w in ANIMALS for w in words)


def write_records(task, tokenizer, path, examples):
    with bert_tf.RecordWriter(path, task.features) as writer:
        for text, count in examples:
            batch = tokenizer(text, max_length=task.max_seq_length, pad_to_max_length=True)
            inputs = {name: rows[0].tolist() for name, rows in batch.items()}
            writer.write({**inputs, "how_many": count, "is_real_example": 1})


# %% [markdown]
# ## The training
#
# `bert_tf.Trainer` takes the flags shared by all programs as arguments, with their defaults.


# %%
def train(output_dir, init_checkpoint, learning_rate, num_train_steps):
    """Train and evaluate; afterwards `output_dir` has the same files as with run_classifier."""
    task, rng = CountingTask(max_seq_length=32), random.Random(1)
    model = {"init_checkpoint": init_checkpoint}
    if not init_checkpoint:
        vocab_file = Path(bert_tf.__file__).parents[1] / "vocab/uncased_30522/vocab.txt"
        tokenizer = bert_tf.FullTokenizer(vocab_file)
        config = bert_tf.BertConfig.from_name("tiny", vocab_size=len(tokenizer.vocab))
        model = {"config": config, "tokenizer": tokenizer}
    trainer = bert_tf.Trainer(
        task,
        output_dir=output_dir,
        num_train_steps=num_train_steps,
        learning_rate=learning_rate,
        **model,
    )
    files = {name: os.path.join(output_dir, f"{name}.tf_record") for name in ("train", "eval")}
    for name, count in (("train", 512), ("eval", 100)):
        write_records(task, trainer.tokenizer, files[name], [sentence(rng) for _ in range(count)])
    results = trainer.fit(files["train"], evaluate=files["eval"])
    for name, value in results.items():
        print(f"{name:<12} {value:.3f}" if isinstance(value, float) else f"{name:<12} {value}")


# %% [markdown]
# ## The answers
#
# `prepare` turns a text into ids, `answer` the outputs into plain values. The registered type makes
# `bert_tf.load` and the predict program answer with a trained folder, in a process that imports this
# module.


# %%
class CountingModel(TextModel):
    """Text -> {"count": number, "of_tokens": [[WordPiece, its contribution], ...]}."""

    columns = ("count",)

    def prepare(self, item):
        return self.pack(self.tokenizer.encode(item))

    def answer(self, prepared):
        answers = []
        for sequence, outputs in zip(prepared, self.run(prepared), strict=True):
            tokens = self.tokenizer.convert_ids_to_tokens(sequence.input_ids)
            adds = outputs["of_tokens"][: len(tokens)].tolist()
            contributions = [list(pair) for pair in zip(tokens, adds, strict=True)]
            answers.append({"count": float(outputs["counts"]), "of_tokens": contributions})
        return answers

    def short(self, answer):
        return f"{answer['count']:.1f}"


bert_tf.register_task(
    bert_tf.TaskType(
        name="counting",
        task=CountingTask,
        predictor=CountingModel,
        usage='predict(["i saw a dog, a house, a bird"])',
    )
)


# %%
def show(output_dir, text):
    """Print the contribution of each WordPiece."""
    (answer,) = bert_tf.load(output_dir).predict([text])
    print(f"\n{text!r}: {answer['count']:.2f}")
    for piece, value in answer["of_tokens"]:
        print(f"  {piece:<8} {value:+.2f} {'#' * max(0, round(20 * value))}")


# %%
if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Trains a head of its own.")
    parser.add_argument("--init_checkpoint", help="folder, TF1 checkpoint or hf://org/name")
    parser.add_argument("--learning_rate", type=float, default=1e-3)
    parser.add_argument("--num_train_steps", type=int, default=120)
    parser.add_argument("--output_dir", help="default: a temporary folder")
    arguments = parser.parse_known_args()[0]  # a notebook has arguments of its own
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.output_dir or temporary
        train(folder, arguments.init_checkpoint, arguments.learning_rate, arguments.num_train_steps)
        show(folder, "i saw a dog, a house, a bird, a river")
