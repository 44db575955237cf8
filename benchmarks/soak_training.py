"""Memory of a training over hours.

    python benchmarks/soak_training.py --seconds=3600 run_scripts/run_pretraining.py --do_train \\
        --do_eval --num_train_steps=1000000000 --save_checkpoints_steps=100 --evaluate_steps=100 \\
        --gradient_accumulation_steps=4 --input_file=... --eval_file=... --output_dir=...

runs the script in another process, and ends it after --seconds. Prints the highest resident memory
of each twentieth of the time, and a verdict. It exits with 1 if the memory grew by more than 2 % after
the first tenth, or if the script ended earlier.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time

from soak import memory_verdict, resident_megabytes


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("script")
    parser.add_argument("flags", nargs=argparse.REMAINDER, help="of the script")
    arguments = parser.parse_args()
    with subprocess.Popen([sys.executable, arguments.script, *arguments.flags]) as process:
        try:
            memory = peaks(process, arguments.seconds)
        finally:
            process.kill()
    is_flat, sentence = memory_verdict(memory)
    print(f"{arguments.seconds:.0f} s of training; {sentence}")
    raise SystemExit(0 if is_flat else 1)


def peaks(process: subprocess.Popen, seconds: float) -> dict[float, float]:
    """Return fraction of the time -> highest resident memory of a twentieth, in megabytes."""
    start, found = time.monotonic(), {}

    def show() -> None:
        last = max(found)
        print(f"{last:.0%}: {found[last]:.0f} MB", flush=True)

    while (now := time.monotonic() - start) < seconds:
        if process.poll() is not None:
            raise SystemExit(f"the script ended with {process.returncode} after {now:.0f} s")
        part = int(20 * now / seconds) / 20
        if part not in found and found:
            show()
        found[part] = max(found.get(part, 0.0), resident_megabytes(process.pid))
        time.sleep(0.2)
    show()
    return found


if __name__ == "__main__":
    main()
