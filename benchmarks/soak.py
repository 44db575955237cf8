"""Memory of an exported model over hours of requests of all types.

    python benchmarks/soak.py --saved_model=served/my_model/1 --text=../shared/data/text/enwiki_30mb.txt

loads the SavedModel as a server does, without bert_tf and Keras, and sends requests for --seconds, or
until their number is --requests. A request is a batch of 1 to --most_texts texts, pairs, or texts with
two choices, of 0 to --longest bytes from --text; one of eight is random bytes. With --busy=0.1 it sleeps
nine tenths of the time. Prints 20 JSON lines: requests, texts, resident memory. At the end it prints a
verdict. It exits with 1 if the memory grew by more than 2 % after the first tenth, or if an answer was
wrong: not finite, or changed for the first batch, which is sent again with each line.

    for model in served/*/1; do
      python benchmarks/soak.py --saved_model=$model --text=... --requests=20000 --seconds=86400
    done

sends 20,000 requests to each export. --model_file=lite/model.tflite instead of --saved_model loads a
file of TFLite, ONNX or OpenVINO (model.xml) with bert_tf. It must take one sequence per example, and
gets random ids, at most --longest_sequence in each.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401  (operations of the model)


def resident_megabytes(process: int | str = "self") -> float:
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def memory_verdict(megabytes: Mapping[float, float], most: float = 0.02) -> tuple[bool, str]:
    """Return True if the memory is flat after the first tenth, and a sentence about it.

    Args:
        megabytes: fraction of the time or requests -> resident memory.
        most: allowed growth, as a fraction.
    """
    settled = [value for at, value in sorted(megabytes.items()) if at >= 0.1]
    if not settled:
        return False, "memory was not measured after the first tenth: the run was too short"
    is_flat = max(settled) <= (1 + most) * settled[0]
    return is_flat, (
        f"resident memory {settled[0]:.0f} MB after a tenth, at most {max(settled):.0f} MB afterwards: "
        f"{max(settled) / settled[0] - 1:+.1%}, {'flat' if is_flat else 'not flat'} within {most:.0%}"
    )


def batch_of(text: bytes, rng: random.Random, most_texts: int, longest: int) -> list[bytes]:
    def one(strange: bool) -> bytes:
        length = min(rng.choice((0, 20, 100, 500, 3000)), longest) * rng.random()
        start = rng.randrange(len(text))
        return rng.randbytes(int(length)) if strange else text[start : start + int(length)]

    strange = rng.randrange(8) == 0
    return [one(strange) for _ in range(rng.randint(1, most_texts))]


def check_answer(answer: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]) -> None:
    """Raise unless the numbers of an answer are finite, and near those of `expected` if it has them."""
    for name, values in answer.items():
        if not np.isfinite(values).all():
            raise SystemExit(f"wrong answer: {name} is not finite: {values}")
        if name in expected and not np.allclose(values, expected[name], rtol=0, atol=1e-4):
            raise SystemExit(f"wrong answer: {name} was {expected[name]}, is {values}")


Inputs = Mapping[str, Any]
# Texts -> the inputs of a request, and these -> the answer.
Functions = tuple[Callable[[list[bytes]], Inputs], Callable[[Inputs], dict[str, np.ndarray]]]


def open_saved_model(path: str, rng: random.Random) -> Functions:
    """Return a function that makes the inputs of a request from texts, and one that sends them."""
    serve = tf.saved_model.load(path).signatures["serving_default"]
    specs = serve.structured_input_signature[1]  # of its texts: one, or two for pairs

    def column(spec: tf.TensorSpec, batch: list[bytes]) -> tf.Tensor:
        texts = rng.sample(batch, len(batch))
        is_table = spec.shape.rank == 2
        return tf.constant([[text, texts[0]] for text in texts] if is_table else texts)

    return (
        lambda batch: {name: column(spec, batch) for name, spec in specs.items()},
        lambda inputs: {name: values.numpy() for name, values in serve(**inputs).items()},
    )


def open_model_file(path: str, rng: random.Random, longest: int) -> Functions:
    """Return the two functions of `open_saved_model` for a file with the signature `tokens`.

    A sequence has about as many ids as its text has word pieces. The ids are random, because a
    tokenizer caches words, and the memory of its cache would be added to that of the model.

    Args:
        path: of the file, next to its vocab.txt.
        longest: most tokens of a sequence.
    """
    from bert_tf.prediction import loading
    from bert_tf.tokenization import load_vocab

    formats = {".tflite": "tflite", ".onnx": "onnx", ".xml": "openvino"}
    runtime = loading.RUNTIMES[formats[Path(path).suffix]](path)
    num_tokens = len(load_vocab(Path(path).parent / "vocab.txt"))
    draw = np.random.default_rng(rng.randrange(1 << 32))

    def inputs_of(batch: list[bytes]) -> dict[str, np.ndarray]:
        lengths = np.array([min(2 + len(text) // 5, longest) for text in batch])
        mask = np.arange(lengths.max()) < lengths[:, None]
        ids = draw.integers(num_tokens, size=mask.shape) * mask
        columns = {"input_ids": ids, "input_mask": mask, "segment_ids": 0 * ids}
        return {name: values.astype(np.int32) for name, values in columns.items()}

    return inputs_of, lambda inputs: runtime.ask(loading.TOKENS, dict(inputs))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    model = parser.add_mutually_exclusive_group(required=True)
    model.add_argument("--saved_model")
    model.add_argument("--model_file")
    parser.add_argument("--text", required=True)
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--busy", type=float, default=1.0, help="fraction of the time")
    parser.add_argument("--requests", type=int, help="end after this number")
    parser.add_argument("--most_texts", type=int, default=16, help="of a batch")
    parser.add_argument("--longest", type=int, default=3000, help="text, in bytes")
    parser.add_argument(
        "--longest_sequence", type=int, default=128, help="in tokens, for --model_file"
    )
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    text, rng = Path(arguments.text).read_bytes(), random.Random(arguments.seed)
    if arguments.saved_model:
        inputs_of, send = open_saved_model(arguments.saved_model, rng)
    else:
        inputs_of, send = open_model_file(arguments.model_file, rng, arguments.longest_sequence)

    def ask(inputs: Inputs) -> dict[str, np.ndarray]:
        answer = send(inputs)
        numbers = {n: v for n, v in answer.items() if np.issubdtype(v.dtype, np.number)}
        check_answer(numbers, {})
        rows = len(next(iter(inputs.values())))
        if all(values.shape[:1] != (rows,) for values in answer.values()):
            raise SystemExit(
                f"wrong answer: {rows} texts, but outputs {list(answer)} of other sizes"
            )
        return numbers

    start = time.monotonic()
    requests = texts = 0
    shown, memory, first = 0.0, {}, None
    while (now := time.monotonic() - start) < arguments.seconds:
        batch = batch_of(text, rng, arguments.most_texts, arguments.longest)
        began = time.monotonic()
        inputs = inputs_of(batch)
        answer = ask(inputs)
        first = first or (inputs, answer)
        requests, texts = requests + 1, texts + len(batch)
        done = requests / arguments.requests if arguments.requests else now / arguments.seconds
        if done >= shown:
            check_answer(ask(first[0]), first[1])
            shown += 0.05
            memory[done] = resident_megabytes()
            about = {"seconds": round(now), "requests": requests, "texts": texts}
            print(json.dumps(about | {"megabytes": round(memory[done], 1)}), flush=True)
        if requests == arguments.requests:
            break
        time.sleep((time.monotonic() - began) * (1 / arguments.busy - 1))
    is_flat, sentence = memory_verdict(memory)
    print(f"{requests:,} requests, {texts:,} texts in {time.monotonic() - start:.0f} s; {sentence}")
    raise SystemExit(0 if is_flat else 1)


if __name__ == "__main__":
    main()
