"""All programs from raw text to a served model, without data files or downloads.

    make quickstart        # or: python examples/quickstart.py --output_dir=quickstart_output

The corpus is real English that every machine with this package has: docstrings of Python, NumPy, Keras
and TensorFlow. A small BERT is pre-trained on it, and then answers a question about the same text: which
library does this sentence document?

    docstrings -> vocabulary -> TFRecords -> pre-training
      -> fine-tuning (from the pre-trained encoder, and from scratch) -> evaluation
      -> SavedModel -> prediction on raw text in a new process
"""

import argparse
import ast
import importlib.util
import logging
import os
import random
import re
import subprocess
import sys
import sysconfig
import time
import warnings
from collections import defaultdict
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # TensorFlow's own log

import bert_tf
from bert_tf.options import make_options
from bert_tf.pretraining.create_pretraining_data import (
    PretrainingDataOptions,
    create_pretraining_data,
)
from bert_tf.pretraining.create_vocab import VocabularyOptions, create_vocab
from bert_tf.pretraining.run_pretraining import PretrainingOptions, run_pretraining
from bert_tf.tasks.run_classifier import ClassifierOptions, run_classifier

# For a run of a few minutes: short sequences, and twice the paper's fraction of masks, because a step
# learns more from more predictions.
VOCAB_SIZE = 4000
MAX_SEQ_LENGTH = 32
TRAIN_STEPS = 900
TRAIN_BATCH_SIZE = 128
TRAIN_SENTENCES, DEV_SENTENCES = 100, 250  # for each library

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
SERVING = """\
import sys, tensorflow as tf, tensorflow_text
serve = tf.saved_model.load(sys.argv[1]).signatures["serving_default"]
outputs = serve(text_a=tf.constant(sys.argv[2:]))
assert "bert_tf" not in sys.modules
for text, label, row in zip(sys.argv[2:], outputs["label"].numpy(), outputs["probabilities"].numpy()):
    print(f"  {label.decode():<11}{max(row):4.0%}  {text}")
"""

# Folders of tests, of other packages and of generated import lists.
SKIPPED_FOLDERS = {"__pycache__", "_api", "dist-packages", "site-packages", "test", "tests"}
# Words that name a library: the classification task would be too easy.
GIVEAWAYS = re.compile(r"python|numpy|keras|tensorflow|\b(?:np|tf|tensors?)\b", re.I)
# A sentence begins a line or follows a colon or another sentence. It consists of 4 to 60 words, names
# or numbers, with the punctuation of prose, so no line of code matches.
WORD = r"[\"'(]*(?:[A-Za-z]\w*(?:['.-]\w+)*|\d+)[\"')]*[,;]?"
SENTENCE = re.compile(
    r"(?:^[ ]*(?:- )?|(?<=[.!?:])\s+)((?:[A-Z]|(?<=: )[a-z])[a-z'-]*,?"
    rf"(?:\s+{WORD}){{3,59}}(?<!e\.g)(?<!i\.e)[.!?])(?=\s|$)",
    re.M,
)
CODE_BLOCK = re.compile(r"```.*?```", re.S)


def folders_of_libraries():
    """Return name of a library -> its folder. No library is imported."""
    folders = {"python": sysconfig.get_paths()["stdlib"]}
    for name in ("numpy", "keras", "tensorflow"):
        folders[name] = importlib.util.find_spec(name).submodule_search_locations[0]
    return folders


def sentences_of_file(path):
    """Return the English sentences in the docstrings of a Python file, each on one line."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in the files of others
            tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):  # a template, or the syntax of another version
        return []
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = [node for node in ast.walk(tree) if isinstance(node, documented)]
    nodes.sort(key=lambda node: getattr(node, "lineno", 0))  # a module has no line
    sentences = []
    for docstring in filter(None, map(ast.get_docstring, nodes)):
        for paragraph in re.split(r"\n\s*\n", CODE_BLOCK.sub("\n\n", docstring)):
            if ">>>" not in paragraph:
                sentences += SENTENCE.findall(re.sub("[`*]", "", paragraph))
    lines = (" ".join(sentence.split()) for sentence in sentences)
    return [line[0].upper() + line[1:] for line in lines]


def collect(folders):
    """Return (training, held-out) documents as (library, sentences). Each eighth file is held out.

    A document is the sentences of a file that no earlier file has.
    """
    seen, train, held_out = set(), [], []
    for library, folder in folders.items():
        paths = sorted(path.relative_to(folder) for path in Path(folder).rglob("*.py"))
        paths = [path for path in paths if not SKIPPED_FOLDERS & set(path.parts)]
        for number, path in enumerate(paths):
            found = dict.fromkeys(sentences_of_file(folder / path))
            new = [text for text in found if text not in seen]
            seen.update(new)
            if len(new) >= 2:
                (held_out if number % 8 == 7 else train).append((library, new))
    return train, held_out


def write_table(documents, path, num_per_library):
    """Write rows of the columns `sentence` and `label`, equally many for each library."""
    usable = defaultdict(list)
    for library, sentences in documents:
        usable[library] += [
            text for text in sentences if len(text.split()) >= 8 and not GIVEAWAYS.search(text)
        ]
    generator = random.Random(12345)
    number = min(num_per_library, *map(len, usable.values()))
    rows = [
        f"{text}\t{name}\n" for name in usable for text in generator.sample(usable[name], number)
    ]
    generator.shuffle(rows)
    path.write_text("sentence\tlabel\n" + "".join(rows), encoding="utf-8")


def fine_tune(folder, name, init_checkpoint):
    """Return the accuracy on dev.tsv. Both runs differ only in their initial weights."""
    print(f"\n--- {name.replace('_', ' ')}", flush=True)
    results = run_classifier(
        make_options(
            ClassifierOptions,
            train_file=f"{folder}/train.tsv",
            eval_file=f"{folder}/dev.tsv",
            text_a_column="sentence",
            label_column="label",
            init_checkpoint=init_checkpoint,
            bert_config_file=f"{folder}/model/bert_config.json",
            vocab_file=f"{folder}/model/vocab.txt",
            output_dir=f"{folder}/{name}",
            do_train=True,
            do_eval=True,
            max_seq_length=MAX_SEQ_LENGTH,
            train_batch_size=16,
            eval_batch_size=64,
            learning_rate=1e-4,
            num_train_epochs=10.0,
        )
    )
    return results["eval_accuracy"]


def quickstart(folder, folders):
    """Run all programs with their results in `folder`."""
    print(
        "=== 1/6  Collecting English from the documentation of the installed packages", flush=True
    )
    parts = dict(zip(("corpus", "held_out"), collect(folders), strict=True))
    folder.mkdir(parents=True)
    for name, documents in parts.items():
        text = "\n".join("\n".join(sentences) + "\n" for _, sentences in documents)
        (folder / f"{name}.txt").write_text(text, encoding="utf-8")
        print(f"{len(documents):,} documents, {len(text) / 1e6:.1f} MB in {name}.txt")
    write_table(parts["corpus"], folder / "train.tsv", TRAIN_SENTENCES)
    write_table(parts["held_out"], folder / "dev.tsv", DEV_SENTENCES)

    print("\n=== 2/6  Learning a WordPiece vocabulary", flush=True)
    create_vocab(
        make_options(
            VocabularyOptions,
            input_file=f"{folder}/corpus.txt",
            output_dir=f"{folder}/model",
            vocab_size=VOCAB_SIZE,
        )
    )
    # Half of the reference's "mini", without dropout because the run is short.
    bert_tf.BertConfig.from_name(
        "mini",
        vocab_size=VOCAB_SIZE,
        num_hidden_layers=2,
        max_position_embeddings=MAX_SEQ_LENGTH,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    ).to_json_file(f"{folder}/model/bert_config.json")

    print("\n=== 3/6  Writing masked sentence pairs as TFRecords", flush=True)
    logging.getLogger("bert_tf.pretraining.create_pretraining_data").setLevel(logging.WARNING)
    for name in parts:
        summary = create_pretraining_data(
            make_options(
                PretrainingDataOptions,
                input_file=f"{folder}/{name}.txt",
                output_file=f"{folder}/{name}.tf_record",
                vocab_file=f"{folder}/model/vocab.txt",
                max_seq_length=MAX_SEQ_LENGTH,
                masked_lm_prob=0.3,
                dupe_factor=2,
            )
        )
        print(f"Wrote {summary}.")

    print(
        "\n=== 4/6  Pre-training a small BERT: watch the held-out masked_lm_loss fall", flush=True
    )
    run_pretraining(
        make_options(
            PretrainingOptions,
            input_file=f"{folder}/corpus.tf_record",
            eval_file=f"{folder}/held_out.tf_record",
            bert_config_file=f"{folder}/model/bert_config.json",
            output_dir=f"{folder}/pretrained",
            do_train=True,
            do_eval=True,
            max_seq_length=MAX_SEQ_LENGTH,
            train_batch_size=TRAIN_BATCH_SIZE,
            eval_batch_size=128,
            max_eval_steps=8,
            evaluate_steps=TRAIN_STEPS // 4,
            num_train_steps=TRAIN_STEPS,
            num_warmup_steps=TRAIN_STEPS // 10,
            learning_rate=5e-4,  # at 1e-3 so small a BERT learns only word frequencies
            precision="auto",
        )
    )

    print("\n=== 5/6  Fine-tuning: which library does a sentence document?", flush=True)
    pretrained = fine_tune(folder, "fine_tuned", f"{folder}/pretrained")
    scratch = fine_tune(folder, "from_scratch", None)
    print("\n  accuracy on sentences of held-out files (chance: 25%)")
    print(f"    {pretrained:6.1%}  from the pre-trained encoder\n    {scratch:6.1%}  from scratch")

    print("\n=== 6/6  Exporting, and serving raw text from a new process", flush=True)
    exported = f"{folder}/exported/1"
    bert_tf.export(f"{folder}/fine_tuned", exported)
    print(flush=True)
    subprocess.run([sys.executable, "-c", SERVING, exported, *SENTENCES], check=True)  # noqa: S603
    print("\n  and the pre-trained model fills masks:")
    model = bert_tf.load(f"{folder}/pretrained")
    for text in MASKED:
        (tokens,) = model.fill_mask(text, 4)
        found = ", ".join(f"{token['token']} {token['probability']:.0%}" for token in tokens)
        print(f"    {text}\n      {found}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output_dir", default="quickstart_output")
    output = Path(parser.parse_args().output_dir)
    if output.exists():
        sys.exit(f"{output} exists: remove it, or give another --output_dir.")
    print("Six steps, about 5 minutes on two cores (more if other programs run).", flush=True)
    logging.basicConfig(format="%(message)s", level=logging.INFO)
    start = time.monotonic()
    quickstart(output, folders_of_libraries())
    print(f"\n=== Done in {(time.monotonic() - start) / 60:.0f} minutes. Results are in {output}/")
    print(f"Type sentences: {sys.executable} -m bert_tf predict --model_dir={output}/exported/1")
