"""Memory of an exported model over hours of requests of all types.

    python benchmarks/soak.py --saved_model=served/my_model/1 --text=../shared/data/text/enwiki_30mb.txt

loads the SavedModel as a server does, without bert_tf and Keras, and sends requests for --seconds, or
until their number is --requests: batches of 1 to 16 texts (or pairs) of 0 to 3,000 characters from
--text, or fewer. One of eight batches is random bytes. With --busy=0.1 it sleeps nine tenths of the
time. Prints 20 JSON lines: requests, texts, resident memory. At the end it prints the memory after the
first tenth and at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401  (operations of the model)


def resident_megabytes() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def batch_of(text: bytes, rng: random.Random, most_texts: int, longest: int) -> list[bytes]:
    def one(strange: bool) -> bytes:
        length = min(rng.choice((0, 20, 100, 500, 3000)), longest) * rng.random()
        start = rng.randrange(len(text))
        return rng.randbytes(int(length)) if strange else text[start : start + int(length)]

    strange = rng.randrange(8) == 0
    return [one(strange) for _ in range(rng.randint(1, most_texts))]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--saved_model", required=True)
    parser.add_argument("--text", required=True)
    parser.add_argument("--output", default="probabilities", help="must be finite")
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--busy", type=float, default=1.0, help="fraction of the time")
    parser.add_argument("--requests", type=int, help="end after this number")
    parser.add_argument("--most_texts", type=int, default=16, help="of a batch")
    parser.add_argument("--longest", type=int, default=3000, help="text, in characters")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    text, rng = Path(arguments.text).read_bytes(), random.Random(arguments.seed)
    model = tf.saved_model.load(arguments.saved_model)
    serve = model.signatures["serving_default"]
    names = serve.structured_input_signature[1]  # of its texts: one, or two for pairs
    start = time.monotonic()
    requests = texts = 0
    shown, memory = 0.0, {}
    while (now := time.monotonic() - start) < arguments.seconds:
        batch = batch_of(text, rng, arguments.most_texts, arguments.longest)
        began = time.monotonic()
        inputs = {name: tf.constant(rng.sample(batch, len(batch))) for name in names}
        answer = serve(**inputs)[arguments.output].numpy()
        if len(answer) != len(batch) or not np.isfinite(answer).all():
            raise SystemExit(f"request {requests}: {answer}")
        requests, texts = requests + 1, texts + len(batch)
        done = requests / arguments.requests if arguments.requests else now / arguments.seconds
        if done >= shown:
            shown += 0.05
            memory[done] = resident_megabytes()
            about = {"seconds": round(now), "requests": requests, "texts": texts}
            print(json.dumps(about | {"megabytes": round(memory[done], 1)}), flush=True)
        if requests == arguments.requests:
            break
        time.sleep((time.monotonic() - began) * (1 / arguments.busy - 1))
    settled = next(value for at, value in memory.items() if at >= 0.1)
    print(
        f"{requests:,} requests, {texts:,} texts in {time.monotonic() - start:.0f} s; resident memory "
        f"{settled:.0f} MB after a tenth, {resident_megabytes():.0f} MB at the end"
    )


if __name__ == "__main__":
    main()
