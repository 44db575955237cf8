"""The same records from Apache Beam as from this machine's own workers."""

import sys

import pytest
from helpers import cause_of, refused
from tiny_groups import contents, ends_in_group, run_groups


@pytest.mark.night
def test_two_workers_of_the_direct_runner_write_the_bytes_of_the_local_run(tmp_path):
    pytest.importorskip("apache_beam", reason="pip install -e .[beam]")
    whole = run_groups(tmp_path, "local")
    flags = ("--direct_num_workers=2", "--direct_running_mode=multi_threading")
    run_groups(tmp_path, "beam", runner="DirectRunner", runner_flags=flags)
    assert contents(tmp_path / "beam") == contents(tmp_path / "local")
    # A run that was stopped goes on in a pipeline.
    with ends_in_group(whole, 2):
        cause_of(run_groups, tmp_path, "stopped")
    times = {p: p.stat().st_mtime_ns for p in (tmp_path / "stopped").glob("[xy]-*")}
    assert len(times) == 4
    run_groups(tmp_path, "stopped", runner="DirectRunner")
    assert all(path.stat().st_mtime_ns == time for path, time in times.items())
    assert contents(tmp_path / "stopped") == contents(tmp_path / "local")


def test_flags_of_beam_need_a_runner(tmp_path):
    with refused("runner"):
        run_groups(tmp_path, "out", runner_flags=("--project=x",))


def test_without_beam_the_error_names_the_option(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "apache_beam", None)
    assert cause_of(run_groups, tmp_path, "beam", runner="DirectRunner") == "runner"
