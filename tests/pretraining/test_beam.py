"""The same records from Apache Beam as from this machine's own workers."""

import sys

import pytest
from tiny_groups import contents, run_groups

from bert_tf.options import OptionError
from bert_tf.programs import create_pretraining_data


def test_two_workers_of_the_direct_runner_write_the_bytes_of_the_local_run(tmp_path):
    pytest.importorskip("apache_beam", reason="pip install -e .[beam]")
    run_groups(tmp_path, "local")
    flags = ("--direct_num_workers=2", "--direct_running_mode=multi_threading")
    run_groups(tmp_path, "beam", runner="DirectRunner", runner_flags=flags)
    assert contents(tmp_path / "beam") == contents(tmp_path / "local")


def test_a_run_that_was_stopped_goes_on_in_a_pipeline(tmp_path, monkeypatch):
    pytest.importorskip("apache_beam", reason="pip install -e .[beam]")
    run_groups(tmp_path, "local")
    make_group, made = create_pretraining_data.make_group, []

    def fail_at_third(job, settings, on_progress=None):
        made.append(job.number)
        if len(made) == 3:
            raise OSError("the machine went away")
        return make_group(job, settings, on_progress)

    monkeypatch.setattr(create_pretraining_data, "make_group", fail_at_third)
    with pytest.raises(OSError, match="went away"):
        run_groups(tmp_path, "beam")
    run_groups(tmp_path, "beam", runner="DirectRunner")
    assert made.count(0) == made.count(1) == 1
    assert contents(tmp_path / "beam") == contents(tmp_path / "local")


def test_without_beam_the_error_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "apache_beam", None)
    with pytest.raises(OptionError, match=r"runner.*\[beam\]"):
        run_groups(tmp_path, "beam", runner="DirectRunner")
