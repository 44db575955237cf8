"""Coverage-guided fuzzing of the readers of files of others, with atheris (`pip install -e .[fuzz]`).

    python tests/fuzzing/fuzz.py TARGET [-max_total_time=60] [any flag of libFuzzer]
    python tests/fuzzing/fuzz.py all -max_total_time=60      each target so long

`TARGETS` in tests/fuzz_targets.py lists the targets. A finding is written to crash-*, and ends the run.
A run starts from the seeds and tests/fuzzing/corpus. New inputs are written to fuzz_corpus/, which git
ignores; a finding belongs into tests/fuzzing/corpus. An input may take 10 seconds and 2 GB.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import atheris

TESTS = Path(__file__).resolve().parents[1]


def main(kind: str, flags: list[str]) -> None:
    sys.path.insert(0, str(TESTS))
    with atheris.instrument_imports(include=["bert_tf"]):
        from fuzz_targets import TARGETS, corpus_folder

    if kind == "all":
        runs = [subprocess.run([sys.executable, __file__, each, *flags]) for each in TARGETS]
        sys.exit(max(abs(run.returncode) for run in runs))
    target = TARGETS[kind]
    path = target.prepare(Path(tempfile.mkdtemp(prefix="fuzz-")))
    corpus = Path("fuzz_corpus", kind)
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(target.seeds):
        (corpus / f"seed-{number}").write_bytes(seed)
    longest = max(8192, *(2 * len(seed) for seed in target.seeds))
    findings = [str(folder)] if (folder := corpus_folder(kind)).is_dir() else []
    limits = ["-timeout=10", "-rss_limit_mb=2048", f"-max_len={longest}"]
    atheris.Setup(
        [sys.argv[0], str(corpus), *findings, *limits, *flags],
        lambda content: target.accepts(path, content) and None,
    )
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
