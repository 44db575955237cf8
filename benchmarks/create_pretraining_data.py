"""Speed and memory of create_pretraining_data, compared with the reference's algorithm in plain Python.

    python benchmarks/create_pretraining_data.py --text=../shared/data/text/enwiki_30mb.txt \
        --vocab=../shared/data/vocab/bert-base-uncased.vocab.txt

prints megabytes of text per second and the peak resident memory of the largest process, for

* the yardstick: tests/reference/, the reference's algorithm in plain Python (also the oracle of the
  tests), on the first --yardstick_mb of the text;
* with --original=FOLDER, the original script, on the same part. FOLDER is made by
  `pip install --no-deps --target=FOLDER bert-tensorflow==1.0.4` (that release is older than whole-word
  masking, which is not used here);
* ours with one worker: static masks at --dupe_factor 1 and 10, and --masking=none;
* ours with one and two workers on groups of --group_mb, because several workers need groups.

`--memory` compares a corpus with one of ten times its size with groups of the same size, for each of
--dupe_factors. The larger corpus is ten copies in a temporary folder, each with permuted letters, so
that its words are new.

Each measurement has its own process. Times exclude imports and include the start of workers.
tests/programs tests that the records are equal.
"""

import argparse
import json
import os
import random
import shutil
import string
import subprocess
import sys
import tempfile
import threading
import time
import types
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

SIZES = {"max_seq_length": 128, "max_predictions_per_seq": 20}
SHARES = {"short_seq_prob": 0.1, "masked_lm_prob": 0.15}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--text", required=True)
    parser.add_argument("--vocab", required=True)
    parser.add_argument("--yardstick_mb", type=float, default=3.0)
    parser.add_argument("--group_mb", type=float, default=4.0)
    parser.add_argument("--original", help="folder with bert-tensorflow 1.0.4")
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--dupe_factors", default="1,5", help="of --memory")
    parser.add_argument("--run", help="internal: one measurement, as JSON")
    arguments = parser.parse_args()
    if arguments.run:
        print(json.dumps(measure(json.loads(arguments.run))))
        return
    with tempfile.TemporaryDirectory() as folder:
        (compare_memory if arguments.memory else compare_speed)(arguments, Path(folder))


# ------------------------------------------------------------------------------------- comparisons


def compare_speed(arguments: argparse.Namespace, folder: Path) -> None:
    part = beginning(arguments.text, arguments.yardstick_mb, folder / "part.txt")
    base = {"vocab": arguments.vocab, "output": str(folder / "records")}
    slow = {}
    for dupe_factor in (1, 10):
        case = {**base, "text": str(part), "dupe_factor": dupe_factor}
        slow[dupe_factor] = run({**case, "side": "yardstick"})
        report(f"yardstick, dupe_factor {dupe_factor}", slow[dupe_factor])
        if arguments.original:
            case |= {"side": "original", "folder": arguments.original}
            report(f"original script, dupe_factor {dupe_factor}", run(case), slow[dupe_factor])
    case = {**base, "side": "ours", "text": arguments.text, "num_workers": 1}
    for dupe_factor in (1, 10):
        found = run({**case, "dupe_factor": dupe_factor})
        report(f"ours, static, dupe_factor {dupe_factor}", found, slow[dupe_factor])
    found = run({**case, "dupe_factor": 1, "masking": "none"})
    report("ours, --masking=none", found, slow[1], slow[10])
    case |= {"max_group_bytes": int(arguments.group_mb * 1e6), "dupe_factor": 10}
    one = run(case)
    report(f"ours, groups of {arguments.group_mb:g} MB, 1 worker", one, slow[10])
    two = run({**case, "num_workers": 2})
    report(f"ours, groups of {arguments.group_mb:g} MB, 2 workers", two, slow[10])
    print(f"two workers are {two['mb_per_s'] / one['mb_per_s']:.2f} times as fast as one")


def compare_memory(arguments: argparse.Namespace, folder: Path) -> None:
    large = folder / "ten.txt"
    with large.open("wb") as output:
        letters = string.ascii_lowercase.encode()
        for i in range(10):
            other_letters = bytes.maketrans(letters, letters[i:] + letters[:i])
            output.write(Path(arguments.text).read_bytes().translate(other_letters) + b"\n")
    base = {"vocab": arguments.vocab, "output": str(folder / "records"), "side": "ours"}
    for dupe_factor in map(int, arguments.dupe_factors.split(",")):
        for text in (arguments.text, str(large)):
            case = {**base, "text": text, "dupe_factor": dupe_factor, "num_workers": 1}
            case["max_group_bytes"] = os.path.getsize(arguments.text)
            size = os.path.getsize(text) / 1e6
            report(f"{size:.0f} MB of text, dupe_factor {dupe_factor}, 1 worker", run(case))


def run(case: dict) -> dict:
    """Measure in a new process; add the peak memory of it or its largest child."""
    shutil.rmtree(case["output"], ignore_errors=True)
    command = [sys.executable, __file__, "--text=-", "--vocab=-", f"--run={json.dumps(case)}"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    peak = PeakMemory(process.pid)
    output, errors = process.communicate()
    if process.returncode:
        raise SystemExit(f"{case} failed (exit status {process.returncode}):\n{errors[-2000:]}")
    return {**json.loads(output.splitlines()[-1]), "peak_mb": peak.stop()}


def report(name: str, found: dict, *others: dict) -> None:
    ratios = "".join(f"  {found['mb_per_s'] / other['mb_per_s']:6.1f}x" for other in others)
    print(
        f"{name:<42}{found['mb_per_s']:8.3f} MB/s {found['instances_per_s']:9,.0f} instances/s "
        f"{found['peak_mb']:6,.0f} MB{ratios}",
        flush=True,
    )


class PeakMemory:
    """Largest resident memory of a process or any of its children, in MB."""

    def __init__(self, pid: int):
        self._pid, self._peak, self._running = pid, 0, True
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while self._running:
            for status in Path("/proc").glob("[0-9]*/status"):
                try:
                    values = dict(line.split(":", 1) for line in status.read_text().splitlines())
                except OSError:  # the process has ended
                    continue
                if str(self._pid) in (values["Pid"].strip(), values["PPid"].strip()):
                    peak = int(values.get("VmHWM", "0 kB").split()[0])
                    self._peak = max(self._peak, peak)
            time.sleep(0.1)

    def stop(self) -> float:
        self._running = False
        self._thread.join()
        return self._peak * 1024 / 1e6  # from KiB


def beginning(text: str, megabytes: float, path: Path) -> Path:
    """Copy the first documents of a text."""
    with open(text, "rb") as source, path.open("wb") as output:
        size = 0
        for line in source:
            output.write(line)
            size += len(line)
            if size >= megabytes * 1e6 and not line.strip():
                break
    return path


# ------------------------------------------------------------------------------------ measurements


def measure(case: dict) -> dict:
    seconds, instances = {"ours": ours, "yardstick": yardstick, "original": original}[case["side"]](
        case
    )
    size = os.path.getsize(case["text"]) / 1e6
    return {"mb_per_s": size / seconds, "instances_per_s": instances / seconds}


def ours(case: dict) -> tuple[float, int]:
    from bert_tf.options import make_options
    from bert_tf.pretraining import create_pretraining_data as program

    program.MAX_GROUP_BYTES = case.get("max_group_bytes", program.MAX_GROUP_BYTES)
    names = ("dupe_factor", "num_workers", "masking")
    options = make_options(
        program.PretrainingDataOptions,
        input_file=case["text"],
        output_file=os.path.join(case["output"], "data.tf_record"),
        vocab_file=case["vocab"],
        **{name: case[name] for name in names if name in case},
    )
    start = time.perf_counter()
    summary = program.create_pretraining_data(options)
    return time.perf_counter() - start, summary.counts.instances


def yardstick(case: dict) -> tuple[float, int]:
    import tensorflow as tf

    from reference import pretraining_data as reference
    from reference.wordpiece_rules import word_pieces

    start = time.perf_counter()
    lines = Path(case["vocab"]).read_text(encoding="utf-8").split("\n")
    vocab = {line.strip(): index for index, line in enumerate(lines)}
    text = Path(case["text"]).read_text(encoding="utf-8")
    instances = reference.create_instances(
        [text],
        lambda line: word_pieces(line, vocab, do_lower_case=True),
        vocab,
        random_seed=12345,
        dupe_factor=case["dupe_factor"],
        do_whole_word_mask=False,
        **SIZES,
        **SHARES,
    )
    os.makedirs(case["output"])
    with tf.io.TFRecordWriter(os.path.join(case["output"], "data.tf_record")) as writer:
        for instance in instances:
            example = tf.train.Example()
            features = example.features.feature
            for name, values in reference.to_record(instance, vocab, *SIZES.values()).items():
                kind = "float_list" if name == "masked_lm_weights" else "int64_list"
                getattr(features[name], kind).value.extend(values)
            writer.write(example.SerializeToString())
    return time.perf_counter() - start, len(instances)


def original(case: dict) -> tuple[float, int]:
    """Run the original script under the names of TensorFlow 1."""
    import tensorflow as tf
    from absl import flags

    shim = types.ModuleType("tensorflow")
    for name in dir(tf.compat.v1):
        setattr(shim, name, getattr(tf.compat.v1, name))
    shim.flags = flags
    shim.python_io = types.SimpleNamespace(TFRecordWriter=tf.io.TFRecordWriter)
    sys.modules["tensorflow"] = shim
    sys.path.insert(0, case["folder"])
    from bert import create_pretraining_data, tokenization

    flags.FLAGS(["", "--input_file=-", "--output_file=-", "--vocab_file=-"])
    os.makedirs(case["output"])
    start = time.perf_counter()
    tokenizer = tokenization.FullTokenizer(case["vocab"], do_lower_case=True)
    instances = create_pretraining_data.create_training_instances(
        [case["text"]],
        tokenizer,
        rng=random.Random(12345),
        dupe_factor=case["dupe_factor"],
        **SIZES,
        **SHARES,
    )
    create_pretraining_data.write_instance_to_example_files(
        instances, tokenizer, *SIZES.values(), [os.path.join(case["output"], "data.tf_record")]
    )
    return time.perf_counter() - start, len(instances)


if __name__ == "__main__":
    main()
