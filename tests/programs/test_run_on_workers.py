"""run_pretraining in two processes on 127.0.0.1, started as a user starts it."""

import json
import os
import signal
import subprocess
import time

import pytest
from tiny_runs import free_addresses, read_results, script_command

from bert_tf.training.checkpoints import latest_checkpoint


def start(index, addresses, arguments):
    command = script_command("run_pretraining", **arguments)
    task = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
    command["env"] = {**command.get("env", os.environ), "TF_CONFIG": json.dumps(task)}
    return subprocess.Popen(**command, stderr=subprocess.PIPE, text=True)


@pytest.fixture(scope="module")
def runs(records, toy_text, tmp_path_factory):
    """Folders of one process and of two, and what the two said."""
    folder = tmp_path_factory.mktemp("runs")
    config = json.loads((toy_text / "bert_config.json").read_text())
    config |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    (folder / "bert_config.json").write_text(json.dumps(config))
    arguments = {
        "input_file": records.train,
        "eval_file": records.held_out,
        "vocab_file": toy_text / "vocab.txt",
        "bert_config_file": folder / "bert_config.json",
        "do_train": True,
        "do_eval": True,
        "max_seq_length": 23,
        "max_predictions_per_seq": 4,
        "train_batch_size": 8,
        "num_train_steps": 12,
        "num_warmup_steps": 2,
        "save_checkpoints_steps": 5,
        "learning_rate": 1e-3,
    }
    subprocess.run(
        **script_command("run_pretraining", **arguments, output_dir=folder / "one"),
        check=True,
        capture_output=True,
    )
    addresses = free_addresses(2)
    processes = [
        start(index, addresses, {**arguments, "output_dir": folder / "two"}) for index in range(2)
    ]
    try:
        errors = [process.communicate(timeout=240)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
    for process, error in zip(processes, errors, strict=True):
        assert process.returncode == 0, error[-3000:]
    return folder / "one", folder / "two", errors


def test_two_processes_write_the_files_of_one_with_the_same_results(runs):
    one, two, _ = runs
    assert sorted(path.name for path in two.iterdir()) == sorted(p.name for p in one.iterdir())
    found, expected = read_results(two), read_results(one)
    assert found == pytest.approx(expected, rel=1e-3)


def test_each_process_says_on_what_it_trains_and_one_shows_the_progress(runs):
    errors = runs[2]
    line = "MultiWorkerMirroredStrategy on CPU:0 of each of 2 processes; batch 8 = 2 x 4"
    assert [line in error for error in errors] == [True, True]
    assert ["train 12/12" in error for error in errors] == [True, False]


def test_where_one_of_two_processes_is_told_to_end_both_end_with_the_step_saved(
    records, toy_text, tmp_path
):
    output_dir = tmp_path / "output"
    arguments = {
        "input_file": records.train,
        "bert_config_file": toy_text / "bert_config.json",
        "output_dir": output_dir,
        "do_train": True,
        "max_seq_length": 23,
        "max_predictions_per_seq": 4,
        "train_batch_size": 8,
        "num_train_steps": 1_000_000,
        "save_checkpoints_steps": 1_000_000,
    }
    addresses = free_addresses(2)
    processes = [start(index, addresses, arguments) for index in range(2)]
    try:
        deadline = time.monotonic() + 240
        while not (output_dir / "metrics.jsonl").exists():  # training has begun
            ended = [process for process in processes if process.poll() is not None]
            assert not ended, [process.communicate()[1][-3000:] for process in ended]
            assert time.monotonic() < deadline, "no step after four minutes"
            time.sleep(0.2)
        processes[1].send_signal(signal.SIGTERM)  # not the one that writes
        errors = [process.communicate(timeout=120)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
    assert [process.returncode for process in processes] == [143, 143], errors
    steps = [json.loads(line)["step"] for line in (output_dir / "metrics.jsonl").open()]
    latest = latest_checkpoint(str(output_dir))
    assert latest.endswith(f"model.ckpt-{steps[-1]}")
    assert f"to resume from {latest}" in errors[0]
    assert f"to resume from the checkpoint of worker 0 at step {steps[-1]}" in errors[1]
