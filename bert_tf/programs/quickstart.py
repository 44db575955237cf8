"""quickstart: a complete run of all programs, without data files or downloads.

    documentation of the installed Python packages
      -> vocabulary -> TFRecords -> pre-training
      -> fine-tuning (from the pre-trained encoder, and from scratch) -> evaluation
      -> SavedModel -> prediction on raw text in a new process

Every step has its own script. This file calls them in order.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from bert_tf.config import BertConfig
from bert_tf.finetuning.classification import run_classifier
from bert_tf.finetuning.classification_options import ClassifierOptions
from bert_tf.options import Options, option
from bert_tf.predictor import MaskFiller
from bert_tf.pretraining.wordpieces import NUM_UNUSED_TOKENS
from bert_tf.programs.create_pretraining_data import create_pretraining_data
from bert_tf.programs.create_vocab import VocabularyOptions, create_vocab
from bert_tf.programs.demo_corpus import (
    collect_documents,
    split_documents,
    write_classification_data,
    write_corpus,
)
from bert_tf.programs.export_options import ExportOptions
from bert_tf.programs.export_saved_model import export_saved_model
from bert_tf.programs.pretraining_data_options import PretrainingDataOptions
from bert_tf.programs.run_pretraining import PretrainingOptions, run_pretraining
from bert_tf.training.progress import duration
from bert_tf.training.strategy import PRECISIONS

# For a run of a few minutes: short sequences, and twice the paper's fraction of masks, because a step
# learns more from more predictions.
MAX_SEQ_LENGTH = 32
MASKED_LM_PROB = 0.3
MAX_PREDICTIONS_PER_SEQ = 10
DEV_SENTENCES_PER_LIBRARY = 250

SENTENCES = (
    "Return the sum of the array elements over a given axis.",
    "Open a socket and wait until a client connects.",
    "Fully connected layer with an activation and an optional bias.",
    "Creates a variable on every replica and keeps the copies in sync.",
)
MASKED = (
    "returns the [MASK] of the array .",
    "if the file does not [MASK] , an error is raised .",
)

# Client of the SavedModel, in a process without bert_tf.
_SERVING = """\
import sys, tensorflow as tf, tensorflow_text
serve = tf.saved_model.load(sys.argv[1]).signatures["serving_default"]
outputs = serve(text_a=tf.constant(sys.argv[2:]))
assert "bert_tf" not in sys.modules
for text, label, row in zip(sys.argv[2:], outputs["label"].numpy(), outputs["probabilities"].numpy()):
    print(f"  {label.decode():<11}{max(row):4.0%}  {text}")
"""


@dataclass(frozen=True, kw_only=True)
class QuickstartOptions(Options):
    """The flags of quickstart."""

    output_dir: str = option("Folder for all results.", group="Model", default="quickstart_output")
    num_train_steps: int = option("Pre-training steps.", group="Training", default=1200, min=1)
    train_batch_size: int = option(
        "Sequences per pre-training step.", group="Training", default=128, min=1
    )
    num_fine_tuning_examples: int = option(
        "Sentences per library to fine-tune on.", default=100, min=1
    )
    vocab_size: int = option(
        "Tokens in the vocabulary, special ones included.",
        group="Model",
        default=4000,
        min=NUM_UNUSED_TOKENS + 1,
    )
    precision: str = option(
        "Keras precision policy of pre-training. auto: mixed_bfloat16 if the machine supports it.",
        group="Machine",
        default="auto",
        choices=PRECISIONS,
    )


def quickstart(options: QuickstartOptions) -> None:
    """Run every step, then print the next commands."""
    start = time.monotonic()
    folder = options.output_dir
    path = partial(os.path.join, folder)
    os.makedirs(folder, exist_ok=True)

    step("1/6  Collecting English from the documentation of the installed packages")
    collect(options, path)

    step("2/6  Learning a WordPiece vocabulary")
    create_vocab(
        VocabularyOptions(
            input_file=path("corpus.txt"),
            output_dir=path("model"),
            vocab_size=options.vocab_size,
            overwrite=True,
        )
    )
    small_config(options.vocab_size).to_json_file(path("model", "bert_config.json"))

    step("3/6  Writing masked sentence pairs as TFRecords")
    for name, dupe_factor in (("corpus", 3), ("held_out", 1)):
        create_pretraining_data(
            PretrainingDataOptions(
                input_file=path(f"{name}.txt"),
                output_file=path(f"{name}.tf_record"),
                vocab_file=path("model", "vocab.txt"),
                max_seq_length=MAX_SEQ_LENGTH,
                max_predictions_per_seq=MAX_PREDICTIONS_PER_SEQ,
                masked_lm_prob=MASKED_LM_PROB,
                dupe_factor=dupe_factor,
                num_logged_instances=int(name == "corpus"),
                overwrite=True,
            )
        )

    step("4/6  Pre-training a small BERT: watch the held-out masked_lm_loss fall")
    run_pretraining(pretraining_options(options, path))

    step("5/6  Fine-tuning: which library does a sentence document?")
    accuracies = {
        "from the pre-trained encoder": fine_tune(path, "fine_tuned", path("pretrained")),
        "from scratch": fine_tune(path, "from_scratch", None),
    }
    print("\n  accuracy on sentences of held-out files (chance: 25%)")
    for name, accuracy in accuracies.items():
        print(f"    {accuracy:6.1%}  {name}")

    step("6/6  Exporting, and serving raw text from a new process")
    exported = path("exported", "1")
    shutil.rmtree(exported, ignore_errors=True)
    export_saved_model(ExportOptions(model_dir=path("fine_tuned"), export_dir=exported))
    print()
    serve(exported, SENTENCES)
    print("\n  and the pre-trained model fills masks:")
    filler = MaskFiller(path("pretrained"))
    for text in MASKED:
        candidates = ", ".join(f"{c.token} {c.probability:.0%}" for c in filler.predict(text, 4)[0])
        print(f"    {text}\n      {candidates}")
    print(summary(folder, time.monotonic() - start))


def step(title: str) -> None:
    print(f"\n=== {title}", flush=True)


def collect(options: QuickstartOptions, path: Callable[..., str]) -> None:
    """Write corpus.txt and held_out.txt, and train.tsv and dev.tsv of the classification task."""
    documents = list(collect_documents())
    train, held_out = split_documents(documents)
    write_corpus(train, path("corpus.txt"))
    write_corpus(held_out, path("held_out.txt"))
    num_bytes = os.path.getsize(path("corpus.txt")) + os.path.getsize(path("held_out.txt"))
    print(
        f"{sum(len(document.sentences) for document in documents):,} sentences "
        f"({num_bytes / 1e6:.1f} MB) in {len(documents):,} documents, "
        f"{len(held_out)} of them held out"
    )
    write_classification_data(train, path("train.tsv"), options.num_fine_tuning_examples)
    write_classification_data(held_out, path("dev.tsv"), DEV_SENTENCES_PER_LIBRARY)


def small_config(vocab_size: int) -> BertConfig:
    """Return half of the reference's "mini", without dropout because the run is short."""
    return BertConfig.from_name(
        "mini",
        vocab_size=vocab_size,
        num_hidden_layers=2,
        max_position_embeddings=MAX_SEQ_LENGTH,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )


def pretraining_options(options: QuickstartOptions, path: Callable[..., str]) -> PretrainingOptions:
    return PretrainingOptions(
        input_file=path("corpus.tf_record"),
        eval_file=path("held_out.tf_record"),
        bert_config_file=path("model", "bert_config.json"),
        do_lower_case=True,
        output_dir=path("pretrained"),
        do_train=True,
        do_eval=True,
        max_seq_length=MAX_SEQ_LENGTH,
        max_predictions_per_seq=MAX_PREDICTIONS_PER_SEQ,
        train_batch_size=options.train_batch_size,
        eval_batch_size=128,
        max_eval_steps=8,
        evaluate_steps=max(1, options.num_train_steps // 5),
        num_train_steps=options.num_train_steps,
        num_warmup_steps=options.num_train_steps // 10,
        learning_rate=5e-4,  # at 1e-3 so small a BERT learns only word frequencies
        precision=options.precision,
    )


def fine_tune(path: Callable[..., str], name: str, init_checkpoint: str | None) -> float:
    """Return the accuracy on dev.tsv. Both runs differ only in their initial weights."""
    print(f"\n--- {name.replace('_', ' ')}", flush=True)
    results = run_classifier(
        ClassifierOptions(
            train_file=path("train.tsv"),
            eval_file=path("dev.tsv"),
            text_a_column="sentence",
            label_column="label",
            init_checkpoint=init_checkpoint,
            bert_config_file=path("model", "bert_config.json"),
            vocab_file=path("model", "vocab.txt"),
            output_dir=path(name),
            do_train=True,
            do_eval=True,
            max_seq_length=MAX_SEQ_LENGTH,
            train_batch_size=16,
            eval_batch_size=64,
            learning_rate=3e-4,
            num_train_epochs=6.0,
        )
    )
    return results["eval_accuracy"]


def serve(exported: str, sentences: tuple[str, ...]) -> None:
    """Classify sentences in a new process with only TensorFlow and tensorflow-text."""
    served = subprocess.run(  # noqa: S603, a fixed program
        [sys.executable, "-c", _SERVING, exported, *sentences], capture_output=True, text=True
    )
    if served.returncode:
        raise RuntimeError(
            f"A new process could not serve the model in {exported}:\n{served.stderr}"
        )
    print(served.stdout, end="")


def summary(folder: str, seconds: float) -> str:
    exported = os.path.join(folder, "exported", "1")
    return f"""
=== Done in {duration(seconds)}. All results are in {folder}/
  corpus.txt, model/vocab.txt, corpus.tf_record    text, vocabulary, training data
  pretrained/, fine_tuned/                         checkpoints with all their files
  exported/1/                                      the SavedModel: strings in, labels out

Try it (type sentences, end with Ctrl-D):
  {sys.executable} -m bert_tf predict --model_dir={exported}

With your own labelled table (.tsv, .csv or .jsonl) and a published checkpoint:
  {sys.executable} -m bert_tf run_classifier --do_train --do_eval \\
      --train_file=train.csv --eval_file=dev.csv --text_a_column=text --label_column=label \\
      --init_checkpoint=uncased_L-12_H-768_A-12 --output_dir=my_model
With your own corpus (one sentence per line, a blank line between documents): create_vocab,
create_pretraining_data and run_pretraining, as above; docs/pretraining.md shows them."""
