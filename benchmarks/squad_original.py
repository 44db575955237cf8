"""run_squad's windows, records and answer files, compared with the original script's: equality, speed.

    python benchmarks/squad_original.py --original=FOLDER \
        --vocab=../shared/data/vocab/bert-base-uncased.vocab.txt \
        --predict_file=../shared/data/squad/dev-v1.1.json
    ... --predict_file=../shared/data/squad/dev-v2.0-half.json --version_2_with_negative
    ... --train_file=../shared/data/squad/train-subset-44articles.json

`pip install --no-deps --target=FOLDER bert-tensorflow==1.0.4` makes FOLDER. Its functions that need no
TensorFlow 1 run unchanged. The logits are random, with high values at a few places. Prints a JSON line:
the number of records that differ, whether the files are equal, and the seconds of each side.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
import time
import types
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

from bert_tf.options import make_options  # noqa: E402
from bert_tf.tasks.question_answering import QuestionAnsweringTask  # noqa: E402
from bert_tf.tasks.run_squad import (  # noqa: E402
    SquadOptions,
    read_questions,
    read_training_set,
    write_answers,
)
from bert_tf.tokenization import FullTokenizer  # noqa: E402


def load_original(folder: Path, version_2_with_negative: bool) -> types.SimpleNamespace:
    """Load the functions of the original run_squad.py that need no graph."""
    names: dict = {"__name__": "tokenization"}
    source = (folder / "bert/tokenization.py").read_text()
    exec(source.replace("tf.gfile", "tf.io.gfile"), names)
    names["FLAGS"].mark_as_parsed()
    tokenization = types.SimpleNamespace(**names)
    source = (folder / "bert/run_squad.py").read_text()
    before, _, rest = source.partition("class SquadExample")
    data, _, rest = rest.partition("def create_model")
    _, _, answers = rest.partition("RawResult =")
    answers, _, _ = answers.partition("class FeatureWriter")
    imports = [line for line in before.splitlines() if line.startswith("import ")]
    code = "\n".join([line for line in imports if "tensorflow" not in line])
    code += f"\nclass SquadExample{data}\nRawResult ={answers}"
    silent = types.SimpleNamespace(info=lambda *_: None, warning=lambda *_: None)
    files = types.SimpleNamespace(Open=open, GFile=open)
    flags = types.SimpleNamespace(
        version_2_with_negative=version_2_with_negative,
        verbose_logging=False,
        null_score_diff_threshold=0.0,
    )
    names = {
        "tf": types.SimpleNamespace(logging=silent, gfile=files),
        "tokenization": tokenization,
        "FLAGS": flags,
    }
    exec(code, names)
    return types.SimpleNamespace(**names)


def random_logits(count: int, length: int, num_tokens: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Return float32 [count, length] for starts and ends, high at a few places, never at padding."""
    rng = np.random.default_rng(1)
    pair = []
    for _ in range(2):
        logits = rng.normal(-6.0, 1.5, (count, length))
        for _ in range(4):
            logits[np.arange(count), rng.integers(0, num_tokens)] += rng.uniform(4, 12, count)
        logits[:, 0] += rng.uniform(0, 14, count)
        logits[np.arange(length)[None, :] >= np.array(num_tokens)[:, None]] = -1e30
        pair.append(logits.astype(np.float32))
    return pair[0], pair[1]


def compare_answers(args: argparse.Namespace, original: types.SimpleNamespace, folder: str) -> dict:
    sizes = (args.max_seq_length, args.doc_stride, args.max_query_length)
    start = time.time()
    tokenizer = original.tokenization.FullTokenizer(args.vocab, True)
    examples = original.read_squad_examples(args.predict_file, is_training=False)
    features: list = []
    original.convert_examples_to_features(examples, tokenizer, *sizes, False, features.append)
    seconds = {"original_windows": time.time() - start}

    options = make_options(
        SquadOptions,
        output_dir=f"{folder}/ours",
        predict_file=args.predict_file,
        do_predict=True,
        max_seq_length=args.max_seq_length,
        doc_stride=args.doc_stride,
        max_query_length=args.max_query_length,
        version_2_with_negative=args.version_2_with_negative,
    )
    start = time.time()
    task = QuestionAnsweringTask(*sizes, args.version_2_with_negative)
    tokenizer = FullTokenizer(args.vocab, True)
    questions = read_questions(options, task.unlabeled(), tokenizer)
    record_file = f"{folder}/eval.tf_record"
    questions.task.write_records(questions.questions, tokenizer, record_file)
    seconds["windows_and_records"] = time.time() - start
    differing = compare_records(record_file, features, is_training=False)

    logits = random_logits(len(features), args.max_seq_length, [len(f.tokens) for f in features])
    start = time.time()
    results = [
        original.RawResult(feature.unique_id, begins.tolist(), ends.tolist())
        for feature, begins, ends in zip(features, *logits, strict=True)
    ]
    files = ("predictions.json", "nbest_predictions.json", "null_odds.json")
    paths = [f"{folder}/{name}" for name in files]
    original.write_predictions(examples, features, results, 20, 30, True, *paths)
    seconds["original_answers"] = time.time() - start
    start = time.time()
    unique_ids = np.array([feature.unique_id for feature in features])
    outputs = {"unique_ids": unique_ids, "start_logits": logits[0], "end_logits": logits[1]}
    predictions = questions.predict(outputs)
    write_answers(options.training.output_dir, predictions, args.version_2_with_negative)
    metrics = questions.metrics(predictions)
    seconds["answers_and_metrics"] = time.time() - start
    same = {
        name: Path(path).read_bytes() == Path(f"{folder}/ours/{name}").read_bytes()
        for name, path in zip(files, paths, strict=True)
        if Path(path).exists()
    }
    return {
        "questions": len(examples),
        "windows": len(features),
        "differing_records": differing,
        "equal_files": same,
        "seconds": seconds,
        "metrics_of_random_logits": metrics,
    }


def compare_training(
    args: argparse.Namespace, original: types.SimpleNamespace, folder: str
) -> dict:
    sizes = (args.max_seq_length, args.doc_stride, args.max_query_length)
    start = time.time()
    tokenizer = original.tokenization.FullTokenizer(args.vocab, True)
    examples = original.read_squad_examples(args.train_file, is_training=True)
    random.Random(12345).shuffle(examples)
    features: list = []
    original.convert_examples_to_features(examples, tokenizer, *sizes, True, features.append)
    seconds = {"original": time.time() - start}
    options = make_options(
        SquadOptions,
        output_dir=folder,
        train_file=args.train_file,
        do_train=True,
        version_2_with_negative=args.version_2_with_negative,
    )
    start = time.time()
    task = QuestionAnsweringTask(*sizes, args.version_2_with_negative)
    tokenizer = FullTokenizer(args.vocab, True)
    questions = read_training_set(options, task, tokenizer)
    record_file = f"{folder}/train.tf_record"
    task.write_records(questions, tokenizer, record_file)
    seconds["ours_with_records"] = time.time() - start
    return {
        "questions": len(examples),
        "windows": len(features),
        "differing_records": compare_records(record_file, features, is_training=True),
        "seconds": seconds,
    }


def compare_records(file: str, features: list, is_training: bool) -> int:
    """Count the windows that differ from the original's in any feature."""
    found = {}
    for record in tf.data.TFRecordDataset(file).as_numpy_iterator():
        values = tf.train.Example.FromString(record).features.feature
        lists = {name: list(value.int64_list.value) for name, value in values.items()}
        found[lists["unique_ids"][0]] = lists
    differing = abs(len(found) - len(features))
    for feature in features:
        expected = {
            "unique_ids": [feature.unique_id],
            "input_ids": feature.input_ids,
            "input_mask": feature.input_mask,
            "segment_ids": feature.segment_ids,
        }
        if is_training:
            expected["start_positions"] = [feature.start_position]
            expected["end_positions"] = [feature.end_position]
            expected["is_impossible"] = [int(feature.is_impossible)]
        differing += found.get(feature.unique_id) != expected
    return differing


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--original", type=Path, required=True)
    parser.add_argument("--vocab", required=True)
    parser.add_argument("--train_file")
    parser.add_argument("--predict_file")
    parser.add_argument("--version_2_with_negative", action="store_true")
    parser.add_argument("--max_seq_length", type=int, default=384)
    parser.add_argument("--doc_stride", type=int, default=128)
    parser.add_argument("--max_query_length", type=int, default=64)
    args = parser.parse_args()
    if not (args.train_file or args.predict_file):
        parser.error("--train_file or --predict_file is needed")
    original = load_original(args.original, args.version_2_with_negative)
    with tempfile.TemporaryDirectory() as folder:
        if args.train_file:
            print(json.dumps(compare_training(args, original, folder)))
        if args.predict_file:
            print(json.dumps(compare_answers(args, original, folder)))


if __name__ == "__main__":
    main()
