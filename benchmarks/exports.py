r"""All exports of one classifier on a dev set of GLUE: metrics next to the float model, size, latency.

    python run_scripts/run_classifier.py --task_name=mrpc --do_train \
        --data_dir=../shared/data/glue/MRPC --init_checkpoint=MINILM --output_dir=mrpc_output \
        --max_seq_length=128 --num_train_epochs=2 --learning_rate=5e-5 --seed=1
    python benchmarks/exports.py --model_dir=mrpc_output --data_dir=../shared/data/glue/MRPC

One row for each format and precision has these columns:

* the official metrics on the dev set, one example at a time, ids by `FullTokenizer` without padding;
* the largest difference from the float32 SavedModel, of a probability or of the score;
* the number and the percentage of labels that differ from it;
* megabytes of the model's files, and median milliseconds per example.

ONNX rows need `pip install -e .[onnx]`, and OpenVINO rows `pip install -e .[openvino]`; they are omitted
without it. OpenVINO also reads the ONNX files. Int8 of a SavedModel and of OpenVINO is calibrated
with the training file.
Latencies use --threads threads, one format after the other in one process. They show orders of
magnitude, not small differences.
"""

from __future__ import annotations

import argparse
import logging
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf
from fine_tuning_runs import missing_packages

from bert_tf.options import make_options
from bert_tf.prediction.loading import FILES, RUNTIMES, TOKENS, Runtime, TrainedModel, load_model
from bert_tf.serving.export_saved_model import FORMATS, ExportOptions, export_saved_model
from bert_tf.tasks.glue import GLUE_TASKS
from bert_tf.tasks.metrics import softmax
from bert_tf.tasks.run_classifier import ClassifierOptions, read_data
from bert_tf.tokenization import pack_texts


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model_dir", required=True, help="--output_dir of run_classifier")
    parser.add_argument("--data_dir", required=True, help="folder of its data set")
    parser.add_argument("--task_name", default="mrpc", help="its data set; default: mrpc")
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(args.threads)
    logging.disable(logging.WARNING)

    trained = load_model(args.model_dir)
    kind, names = trained.task.kind, GLUE_TASKS[args.task_name].metrics
    rows, labels = dev_set(trained, args)
    length = np.mean([row["input_ids"].size for row in rows])
    print(f"{len(rows)} examples, {length:.0f} tokens on average")
    columns = "".join(f"{name:>10}" for name in names)
    print(f"{'format':<16} precision{columns}  differs by  labels      %     MB     ms")
    expected = None
    for name, precisions in FORMATS.items():
        if missing := missing_packages(name):
            print(f"{name}: {missing}")
            continue
        for precision in precisions:
            with tempfile.TemporaryDirectory() as folder:
                export_saved_model(
                    make_options(
                        ExportOptions,
                        model_dir=args.model_dir,
                        export_dir=f"{folder}/1",
                        format=name,
                        precision=precision,
                        signature="tokens",
                        calibration_file=f"{args.data_dir}/train.tsv",
                    )
                )
                size = model_size(f"{folder}/1")
                path = f"{folder}/1" + ("" if name == "saved_model" else f"/{FILES[name]}")
                runtime = RUNTIMES[name](path, threads=args.threads)
                logits, seconds = answers(runtime, rows)
                expected = logits if expected is None else expected
                metrics = (
                    kind.metrics[metric](kind.predictions(logits), labels) for metric in names
                )
                print(
                    f"{name:<16} {precision:<9}"
                    + "".join(f"{metric:10.4f}" for metric in metrics)
                    + compared(logits, expected, kind.has_labels)
                    + f"{size / 1e6:7.1f} {seconds * 1e3:6.1f}",
                    flush=True,
                )


def compared(logits: np.ndarray, expected: np.ndarray, has_labels: bool) -> str:
    """Return the columns of differences: of a probability and the labels, or of a score."""
    if not has_labels:
        return f"{np.abs(logits - expected).max():12.2g} {'':14}"
    apart = np.abs(softmax(logits) - softmax(expected)).max()
    flips = logits.argmax(axis=1) != expected.argmax(axis=1)
    return f"{apart:12.2g} {flips.sum():7d} {flips.mean():6.2%}"


def dev_set(
    trained: TrainedModel, args: argparse.Namespace
) -> tuple[list[dict[str, np.ndarray]], np.ndarray]:
    """Return the ids of each example, [1, S], and the labels."""
    options = make_options(
        ClassifierOptions,
        task_name=args.task_name,
        data_dir=args.data_dir,
        output_dir=args.model_dir,
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
    return rows, np.array([ids.get(example.label, example.label) for example in examples])


def answers(runtime: Runtime, rows: Sequence[dict[str, np.ndarray]]) -> tuple[np.ndarray, float]:
    """Return logits [N, L] and the median seconds per example, after a few warm-up calls."""
    found, seconds = [], []
    for row in [*rows[:20], *rows]:
        start = time.perf_counter()
        found.append(runtime.ask(TOKENS, row)["logits"])
        seconds.append(time.perf_counter() - start)
    return np.concatenate(found[20:]), statistics.median(seconds[20:])


def model_size(folder: str) -> int:
    """Return the bytes of all files except those for people."""
    files = filter(Path.is_file, Path(folder).rglob("*"))
    return sum(file.stat().st_size for file in files if file.suffix not in (".json", ".txt"))


if __name__ == "__main__":
    main()
