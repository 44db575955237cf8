r"""All exports of one classifier on MRPC's dev set: accuracy next to the float model, size, latency.

    python run_scripts/run_classifier.py --task_name=mrpc --do_train \
        --data_dir=../shared/data/glue/MRPC --init_checkpoint=MINILM --output_dir=mrpc_output \
        --max_seq_length=128 --num_train_epochs=2 --learning_rate=5e-5 --seed=1
    python benchmarks/exports.py --model_dir=mrpc_output --data_dir=../shared/data/glue/MRPC

One row for each format and precision has these columns:

* accuracy and F1 on the dev set, one pair at a time, ids by `FullTokenizer` without padding;
* the largest difference of a probability from the float32 SavedModel;
* the number of labels that differ from it;
* megabytes of the model's files, and median milliseconds per pair.

ONNX rows need `pip install -e .[onnx]`, and are omitted without it. Latencies use --threads threads, one
format after the other in one process. They show orders of magnitude, not small differences.
"""

from __future__ import annotations

import argparse
import logging
import statistics
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec

import numpy as np
import tensorflow as tf

from bert_tf.data.packing import pack_texts
from bert_tf.finetuning.classification_data import read_data
from bert_tf.finetuning.classification_options import ClassifierOptions
from bert_tf.metrics.basic import accuracy, f1
from bert_tf.model_folder import load_model_folder
from bert_tf.prediction.exports import Export, ask_ids, find_exports
from bert_tf.prediction.runtimes import TOKENS, Runtime, load
from bert_tf.programs.export_saved_model import FORMATS, ExportOptions, export_saved_model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model_dir", required=True, help="--output_dir of run_classifier on MRPC")
    parser.add_argument("--data_dir", required=True, help="folder of MRPC")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(args.threads)
    logging.disable(logging.WARNING)

    rows, labels = dev_set(args.model_dir, args.data_dir)
    print(
        f"{len(rows)} pairs, {np.mean([row['input_ids'].size for row in rows]):.0f} tokens on average"
    )
    print("format       precision  accuracy     F1  differs by  labels    MB     ms")
    expected = None
    for name, precisions in FORMATS.items():
        if name == "onnx" and not (find_spec("tf2onnx") and find_spec("onnxruntime")):
            print("onnx: not installed")
            continue
        for precision in precisions:
            with tempfile.TemporaryDirectory() as folder:
                export_saved_model(
                    ExportOptions(
                        model_dir=args.model_dir,
                        export_dir=f"{folder}/1",
                        format=name,
                        precision=precision,
                        signature="tokens",
                    )
                )
                (export,) = find_exports(f"{folder}/1")
                size = model_size(export)
                runtime = load(name, export.path, threads=args.threads)
                probabilities, seconds = answers(runtime, export, rows)
            expected = probabilities if expected is None else expected
            found = probabilities.argmax(axis=1)
            print(
                f"{name:<12} {precision:<9} {accuracy(found, labels):9.4f} {f1(found, labels):6.4f} "
                f"{np.abs(probabilities - expected).max():11.2g} "
                f"{(found != expected.argmax(axis=1)).sum():7d} {size / 1e6:5.1f} {seconds * 1e3:6.1f}"
            )


def dev_set(model_dir: str, data_dir: str) -> tuple[list[dict[str, np.ndarray]], np.ndarray]:
    """Return the ids of each pair, [1, S], and the labels."""
    trained = load_model_folder(model_dir)
    options = ClassifierOptions(
        task_name="mrpc",
        data_dir=data_dir,
        output_dir=model_dir,
        do_eval=True,
        max_seq_length=trained.max_seq_length,
    )
    examples = read_data(options)[1]["dev"]
    rows = []
    for example in examples:
        packed = pack_texts(
            trained.tokenizer, example.text_a, example.text_b, trained.max_seq_length
        )
        length = sum(packed.input_mask)
        rows.append(
            {name: np.array([v[:length]], np.int32) for name, v in packed._asdict().items()}
        )
    ids = {label: index for index, label in enumerate(trained.task.labels)}
    return rows, np.array([ids[example.label] for example in examples])


def answers(
    runtime: Runtime, export: Export, rows: Sequence[dict[str, np.ndarray]]
) -> tuple[np.ndarray, float]:
    """Return probabilities [N, 2] and the median seconds per pair, after a few warm-up calls."""
    found, seconds = [], []
    for row in [*rows[:20], *rows]:
        found.append(ask_ids(runtime, TOKENS, export.head, row)["probabilities"])
        seconds.append(runtime.seconds)
    return np.concatenate(found[20:]), statistics.median(seconds[20:])


def model_size(export: Export) -> int:
    """Return the bytes of all files except those for people."""
    files = export.files().items()
    return sum(file["bytes"] for name, file in files if not name.endswith((".json", ".txt")))


if __name__ == "__main__":
    main()
