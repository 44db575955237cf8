"""The same records from Apache Beam as from this machine's own workers."""

import sys

import pytest
from tiny_groups import contents, run_groups

from bert_tf.pretraining import runners


def test_two_workers_of_the_direct_runner_write_the_bytes_of_the_local_run(tmp_path):
    pytest.importorskip("apache_beam", reason="pip install -e .[beam]")
    run_groups(tmp_path, "local")
    flags = ("--direct_num_workers=2", "--direct_running_mode=multi_threading")
    run_groups(tmp_path, "beam", runner="DirectRunner", runner_flags=flags)
    assert contents(tmp_path / "beam") == contents(tmp_path / "local")


@pytest.mark.parametrize("next_runner", ["DirectRunner", None])
def test_a_stopped_pipeline_resumes_with_the_groups_without_a_note(
    tmp_path, monkeypatch, next_runner
):
    pytest.importorskip("apache_beam", reason="pip install -e .[beam]")
    run_groups(tmp_path, "local")
    make_group = runners.make_group

    def fail_at_third(job, settings):
        if job.number == 2:
            raise OSError("the machine went away")
        return make_group(job, settings)

    with monkeypatch.context() as patch:
        patch.setattr(runners, "make_group", fail_at_third)
        with pytest.raises(Exception, match="the machine went away"):
            run_groups(tmp_path, "beam", runner="DirectRunner")
    notes = sorted((tmp_path / "beam").glob("*.group-*"))
    assert [note.name for note in notes] == [
        "x.manifest.json.group-00000",
        "x.manifest.json.group-00001",
    ]
    notes[1].write_text("{")  # damaged: the group is made again
    made = []
    monkeypatch.setattr(
        runners, "make_group", lambda *job: made.append(job[0].number) or make_group(*job)
    )
    run_groups(tmp_path, "beam", runner=next_runner)
    assert 0 not in made and 1 in made and 2 in made
    assert contents(tmp_path / "beam") == contents(tmp_path / "local")


def test_without_beam_the_error_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "apache_beam", None)
    with pytest.raises(ImportError, match=r"optional extra: pip install -e '\.\[beam\]'"):
        run_groups(tmp_path, "beam", runner="DirectRunner")


def test_a_pipeline_whose_notes_are_not_seen_is_an_error(tmp_path, monkeypatch):
    pytest.importorskip("apache_beam", reason="pip install -e .[beam]")
    monkeypatch.setattr(runners, "write_text", lambda path, text: None)
    with pytest.raises(RuntimeError, match="Do all workers write to the folder that this process"):
        run_groups(tmp_path, "beam", runner="DirectRunner")
