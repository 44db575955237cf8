"""Run a script of run_scripts/ and add its processor time to each line of metrics.jsonl.

    python benchmarks/timed_script.py run_pretraining --input_file=...

Each line gets `processor_seconds` of its process until then, the time at which the process started, and
the number of the training loop within the process. pretraining_runs.py reads them.
"""

from __future__ import annotations

import runpy
import sys
import time
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))


def add_processor_time() -> None:
    """Replace MetricsLog.write by one that adds the processor time."""
    from bert_tf.training.progress import MetricsLog

    write, start = MetricsLog.write, time.time()
    logs: list[MetricsLog] = []  # a training loop makes one

    def timed_write(self, kind: str, step: int, values: Mapping[str, float], *further) -> None:
        if self not in logs:
            logs.append(self)
        about = {"process": start, "loop": len(logs), "processor_seconds": time.process_time()}
        write(self, kind, step, {**values, **about}, *further)

    MetricsLog.write = timed_write  # type: ignore[method-assign, assignment]


if __name__ == "__main__":
    del sys.argv[0]
    add_processor_time()
    runpy.run_path(str(ROOT / "run_scripts" / f"{sys.argv[0]}.py"), run_name="__main__")
