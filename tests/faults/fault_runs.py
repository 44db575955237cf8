"""Programs as a user starts them, under faults; and what must be true afterwards."""

import random
import signal
import subprocess
import time
from pathlib import Path

from tiny_groups import command_with_small_groups
from tiny_runs import documents, script_command

FAULTY = str(Path(__file__).parent / "faulty.py")


def under_fault(command: dict, fault: str, argument: int) -> dict:
    """The same command under a fault of faulty.py."""
    python, *rest = command["args"]
    return {**command, "args": [python, FAULTY, fault, str(argument), *rest]}


def run(command: dict) -> subprocess.CompletedProcess:
    """Runs it to its end, whatever that is."""
    return subprocess.run(**command, capture_output=True, text=True, timeout=300, check=False)


def run_whole(command: dict) -> str:
    """Runs it, which must go well; what it said."""
    ended = run(command)
    assert ended.returncode == 0, ended.stderr[-3000:]
    return ended.stderr


def kill_after(command: dict, has_begun, seconds: float, number: int = signal.SIGKILL) -> bool:
    """Sends a signal so many seconds after `has_begun()`; whether the program had not ended before."""
    process = subprocess.Popen(**command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 240
        while process.poll() is None and not has_begun():
            assert time.monotonic() < deadline, "it did not begin within four minutes"
            time.sleep(0.002)
        time.sleep(seconds)
        running = process.poll() is None
        process.send_signal(number)
        process.wait(timeout=120)
    finally:
        process.kill()
    return running


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def assert_clear_error(ended: subprocess.CompletedProcess, *parts: str) -> None:
    """One message for a user, no traceback, with these parts."""
    assert ended.returncode == 1, (ended.returncode, ended.stderr[-3000:])
    assert "Traceback" not in ended.stderr, ended.stderr[-3000:]
    message = ended.stderr[ended.stderr.rindex("error:") :]
    assert "{{" not in message and "[Op:" not in message  # TensorFlow's words
    for part in parts:
        assert part in message, message


def generation_command(toy_text: Path, corpus: Path, output_dir: Path | str, **changes) -> dict:
    """create_pretraining_data for seconds of work, in groups that are done one by one."""
    flags = {
        "input_file": corpus,
        "output_file": f"{output_dir}/train.tf_record",
        "vocab_file": toy_text / "vocab.txt",
        "max_seq_length": 23,
        "max_predictions_per_seq": 4,
        "dupe_factor": 5,
    }
    return command_with_small_groups(50_000, **{**flags, **changes})


def write_corpus(path: Path, num_documents: int) -> Path:
    path.write_text(documents(num_documents, seed=9), encoding="utf-8")
    return path


def training_command(records, toy_text: Path, output_dir: Path, **changes) -> dict:
    """run_pretraining with many checkpoints."""
    flags = {
        "input_file": records.train,
        "bert_config_file": toy_text / "bert_config.json",
        "vocab_file": toy_text / "vocab.txt",
        "output_dir": output_dir,
        "do_train": True,
        "max_seq_length": 23,
        "max_predictions_per_seq": 4,
        "train_batch_size": 8,
        "num_train_steps": 60,
        "num_warmup_steps": 5,
        "learning_rate": 1e-3,
        "save_checkpoints_steps": 4,
    }
    return script_command("run_pretraining", **{**flags, **changes})


def steps_saved(output_dir: Path) -> set[str]:
    return {path.name for path in output_dir.glob("model.ckpt-*.index")}


def damaged_copy(source: Path, target: Path, rng: random.Random) -> None:
    """A copy with one bit the other way."""
    data = bytearray(source.read_bytes())
    place = rng.randrange(len(data))
    data[place] ^= 1 << rng.randrange(8)
    target.write_bytes(data)
