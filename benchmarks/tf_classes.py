"""Folders that Hugging Face's TF classes save, read here: largest difference of every output.

    python3.11 -m venv env && env/bin/pip install 'transformers<5' tf-keras safetensors
    python benchmarks/tf_classes.py --python=env/bin/python

The other Python makes small models with random weights of the eight classes, saves each as tf_model.h5
and as safetensors, and writes its outputs. Here each folder is read by the class of the same name.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

CLASSES = (
    "BertModel",
    "BertForPreTraining",
    "BertForMaskedLM",
    "BertForNextSentencePrediction",
    "BertForSequenceClassification",
    "BertForTokenClassification",
    "BertForQuestionAnswering",
    "BertForMultipleChoice",
)
SIZES = {
    "vocab_size": 120,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 40,
}
# Output of transformers -> output here, if their names differ.
OURS = {
    "last_hidden_state": "sequence_output",
    "pooler_output": "pooled_output",
    "prediction_logits": "masked_lm_logits",
    "seq_relationship_logits": "next_sentence_logits",
    "BertForMaskedLM.logits": "masked_lm_logits",
    "BertForNextSentencePrediction.logits": "next_sentence_logits",
}
IDS = np.array([[2, 5, 9, 3, 0], [2, 7, 3, 8, 3]], "int32")
MASK = np.array([[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]], "int32")
SEGMENTS = np.array([[0, 0, 0, 0, 0], [0, 0, 0, 1, 1]], "int32")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--python", help="interpreter with transformers 4 and tf-keras")
    parser.add_argument("--write", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.write:
        write(Path(args.write))
        return
    if not args.python:
        parser.error("--python is needed: an interpreter with transformers 4 and tf-keras")
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([args.python, __file__, f"--write={folder}"], check=True)
        compare(Path(folder))


def write(folder: Path) -> None:
    """Save a model of each class in both formats, and its outputs; in the other Python."""
    os.environ["TF_USE_LEGACY_KERAS"] = "1"
    import tensorflow as tf
    import transformers

    print(f"transformers {transformers.__version__}, TensorFlow {tf.__version__}", flush=True)
    for name in CLASSES:
        tf.keras.utils.set_random_seed(1)
        labels = {"num_labels": 3} if name.endswith("Classification") else {}
        model = getattr(transformers, f"TF{name}")(transformers.BertConfig(**SIZES, **labels))
        inputs = {"input_ids": IDS, "attention_mask": MASK, "token_type_ids": SEGMENTS}
        if name == "BertForMultipleChoice":
            inputs = {key: value[None] for key, value in inputs.items()}
        model(inputs)
        for weight in model.weights:
            weight.assign(weight + tf.random.normal(weight.shape, stddev=0.1))
        np.savez(folder / f"{name}.npz", **{key: np.array(v) for key, v in model(inputs).items()})
        for format in ("h5", "safetensors"):
            model.save_pretrained(folder / format / name, safe_serialization=format != "h5")


def compare(folder: Path) -> None:
    sys.path.insert(0, str(Path(__file__).parents[1]))
    import bert_tf

    print("\n| class | file | output | largest difference | largest value |\n|---|---|---|---|---|")
    positions = np.tile(np.arange(IDS.shape[1], dtype="int32"), (len(IDS), 1))
    for name in CLASSES:
        ours = "BertForPreTraining" if name == "BertForNextSentencePrediction" else name
        inputs = {"input_ids": IDS, "input_mask": MASK, "segment_ids": SEGMENTS}
        if ours == "BertForPreTraining":
            inputs["masked_lm_positions"] = positions
        if name == "BertForMultipleChoice":
            inputs = {key: value[None] for key, value in inputs.items()}
        for format in ("h5", "safetensors"):
            found = getattr(bert_tf, ours).from_pretrained(folder / format / name)(inputs)
            for key, expected in np.load(folder / f"{name}.npz").items():
                values = found[OURS.get(f"{name}.{key}", OURS.get(key, key))]
                difference = np.abs(np.asarray(values) - expected).max()
                largest = np.abs(expected).max()
                print(
                    f"| {name} | {format} | {key} | {difference:.1e} | {largest:.1f} |", flush=True
                )


if __name__ == "__main__":
    main()
