# %% [markdown]
# # A type of task of your own, in one file
#
# The question: how many animals does a sentence mention? The head gives each token a number, and the
# answer is their sum. The model therefore also shows which words it counted.
#
# The file has what each type of task in bert_tf has: data, a head, a task (features, loss, metrics), a
# program, answers to raw text, and an export. Batches by length, mixed precision, several devices,
# checkpoints, exact resume, the best weights, the model card and TF Serving come with them.
#
#     python examples/custom_head.py          # makes data, trains, answers, exports: about a minute
#     python examples/custom_head.py --do_train --train_file=train.tsv --do_eval --eval_file=dev.tsv \
#         --init_checkpoint=uncased_L-12_H-768_A-12 --output_dir=output

# %%
import random
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from keras import ops

import bert_tf
from bert_tf import cli
from bert_tf.data.features import sequence_specs
from bert_tf.data.parallel import SentenceRecords, SentenceRow
from bert_tf.data.records import content_key
from bert_tf.data.tables import read_table
from bert_tf.options import ModelOptions, make_options
from bert_tf.prediction.loading import TEXT
from bert_tf.prediction.text_model import TextModel
from bert_tf.serving.served import Served, texts_spec
from bert_tf.tasks.base import ExampleTask
from bert_tf.tasks.run import start_fine_tuning
from bert_tf.tasks.setup import FineTuningOptions, check_files, resolve, select_files
from bert_tf.training.options import DeviceOptions, TrainingOptions

# %% [markdown]
# ## The data
#
# A table with the columns `text` and `count`. `SentenceRow` is an example of one or two texts with a
# label; any other class will do, with a `record_maker` of its own.

# %%
ANIMALS = ("dog", "cat", "horse", "bird", "fox", "sheep")
OTHERS = ("house", "tree", "car", "river", "stone", "boat")


def write_table(path, size, rng):
    """Write sentences with 0 to 4 animals."""
    rows = ["text\tcount"]
    for _ in range(size):
        words = rng.sample(ANIMALS, rng.randint(0, 4)) + rng.sample(OTHERS, rng.randint(1, 3))
        rng.shuffle(words)
        text = "i saw " + ", ".join(f"a {word}" for word in words)
        rows.append(f"{text}\t{sum(word in ANIMALS for word in words)}")
    Path(path).write_text("\n".join(rows), encoding="utf-8")


def read_examples(path):
    rows = enumerate(read_table(path))
    return [SentenceRow(number, row["text"], None, float(row["count"])) for number, row in rows]


# %% [markdown]
# ## The head
#
# `ConfiguredModel` is a `keras.Model` that is made from one `BertConfig` and built at once. The
# encoder's variables have the names of the published checkpoints; you name those of the head.
#
# Shapes: B batch, S sequence, H hidden.


# %%
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
def squared_errors(outputs, features):
    errors = (outputs["counts"] - features["label_ids"]) ** 2
    return tf.reduce_sum(tf.cast(features["is_real_example"], tf.float32) * errors)


def num_real(features):
    return tf.reduce_sum(tf.cast(features["is_real_example"], tf.float32))


class CountingTask(ExampleTask):
    """Regression of a count from a sentence."""

    name = "counting"

    def __init__(self, max_seq_length):
        self.max_seq_length = max_seq_length
        self.features = (
            *sequence_specs((max_seq_length,)),
            bert_tf.FeatureSpec("label_ids", dtype="float32", role="label", output="counts"),
            bert_tf.FeatureSpec("is_real_example", role="weight", output="counts"),
        )
        self.losses = (bert_tf.Loss("loss", squared_errors, num_real),)

    def build_model(self, config, dtype=None):
        return BertForCounting(config, dtype=dtype)

    def record_maker(self, tokenizer):
        return SentenceRecords(tokenizer, self.max_seq_length, self.record_names, None, "float32")

    def records_key(self, examples, tokenizer):
        return content_key(tokenizer, self.values(), examples)

    def eval_outputs(self, outputs, features):
        return {"counts": outputs["counts"], "label_ids": features["label_ids"]}

    def metrics(self, outputs):
        errors = outputs["counts"] - outputs["label_ids"]
        exact = np.abs(errors) < 0.5  # right when rounded
        return {"eval_loss": float(np.mean(errors**2)), "eval_exact": float(np.mean(exact))}


# %% [markdown]
# ## The program
#
# Its flags are the groups that all fine-tuning programs have; a field made with `bert_tf.options.option`
# adds one. It reads from top to bottom: start, read the data, train, evaluate, predict. The same command
# resumes an interrupted run. (`bert_tf.Trainer` is the shorter way, without flags.)


# %%
@dataclass(frozen=True, kw_only=True)
class CountingOptions:
    devices: DeviceOptions
    training: TrainingOptions
    model: ModelOptions
    fine_tuning: FineTuningOptions

    def __post_init__(self):
        check_files(self)


def run_counting(options):
    """Train, evaluate and predict, as the options set."""
    setup = resolve(options, "counting")
    splits = {split: read_examples(file) for split, file in select_files(options).items()}
    run = start_fine_tuning(setup, CountingTask(setup.max_seq_length), splits)

    def dev_metrics():
        outputs = run.outputs(splits["dev"], "eval", options.training.eval_batch_size)
        return run.task.metrics(outputs)

    if "train" in splits:
        run.train(splits["train"], dev_metrics if "dev" in splits else None)
    if "dev" in splits:
        run.write_results("eval", dev_metrics())
    if "test" in splits:
        outputs = run.outputs(splits["test"], "test", options.fine_tuning.predict_batch_size)
        run.write_lines("test_results.tsv", (f"{count:.2f}\n" for count in outputs["counts"]))


# %% [markdown]
# ## Answers and export
#
# `prepare` turns a text into ids, `answer` the outputs into plain values. `Served` has the TensorFlow
# functions of a SavedModel: on text, with the tokenizer inside, and on ids.


# %%
class CountingPredictor(TextModel):
    """Text -> {"count": number, "of_tokens": [[WordPiece, its contribution], ...]}."""

    columns = ("count",)

    def prepare(self, item):
        return self.pack(self.tokenizer.encode(item))

    def answer(self, prepared):
        answers = []
        for sequence, outputs in zip(prepared, self.run(prepared), strict=True):
            tokens = self.tokenizer.convert_ids_to_tokens(sequence.input_ids)
            pairs = zip(tokens, outputs["of_tokens"].tolist(), strict=False)  # ends with padding
            answers.append({"count": float(outputs["counts"]), "of_tokens": list(map(list, pairs))})
        return answers

    def short(self, answer):
        return f"{answer['count']:.1f}"


class ServedCounter(Served):
    """Texts or ids -> the outputs of `BertForCounting`."""

    def text_functions(self):
        return {TEXT: (self.count, [texts_spec("text")])}

    def count(self, text):
        return self.tokens(**self.pack(self.tokenizer(text), None))

    def tokens(self, **ids):
        return self.call_model(**ids)


bert_tf.register_task(
    bert_tf.TaskType(
        name="counting",
        task=CountingTask,
        predictor=CountingPredictor,
        served=ServedCounter,
        usage='predict(["i saw a dog, a house, a bird"])',
    )
)


# %% [markdown]
# From here on `bert_tf.load`, `bert_tf.export` and the programs predict and export_saved_model know the
# type, in each process that imports this module.


# %%
def demo(folder, num_train_epochs=8.0):
    """Train on made-up tables, answer with the run and with its export."""
    train, dev, config = f"{folder}/train.tsv", f"{folder}/dev.tsv", f"{folder}/bert_config.json"
    write_table(train, 512, random.Random(1))
    write_table(dev, 100, random.Random(2))
    bert_tf.BertConfig.from_name("tiny", vocab_size=30522).to_json_file(config)
    vocab = str(Path(bert_tf.__file__).parents[1] / "vocab/uncased_30522/vocab.txt")
    files = {"train_file": train, "eval_file": dev, "bert_config_file": config, "vocab_file": vocab}
    steps = {"learning_rate": 1e-3, "num_train_epochs": num_train_epochs, "max_seq_length": 32}
    actions = {"do_train": True, "do_eval": True, "output_dir": f"{folder}/output"}
    run_counting(make_options(CountingOptions, **files, **steps, **actions))
    bert_tf.export(f"{folder}/output", f"{folder}/exported/1")
    text = "i saw a dog, a house, a bird, a river"
    for model_dir in ("output", "exported/1"):
        (answer,) = bert_tf.load(f"{folder}/{model_dir}").predict([text])
        print(f"\n{model_dir}, {text!r}: {answer['count']:.2f}")
        for piece, value in answer["of_tokens"]:
            print(f"  {piece:<8} {value:+.2f} {'#' * max(0, round(20 * value))}")


# %%
if __name__ == "__main__":
    if len(sys.argv) > 1 and "ipykernel" not in sys.modules:
        cli.run(CountingOptions, run_counting)
    else:
        with tempfile.TemporaryDirectory() as temporary:
            demo(temporary)
