"""The targets of fuzzing read their seeds, and survive some spoilt ones. The slow tier tries more."""

import json

import pytest
from fuzz_cases import spoilt, spoilt_json
from fuzz_targets import TARGETS, corpus_folder
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st


@pytest.mark.parametrize("kind", TARGETS)
def test_every_seed_is_read(tmp_path, kind):
    path = TARGETS[kind].prepare(tmp_path)
    for seed in TARGETS[kind].seeds:
        path.write_bytes(seed)
        TARGETS[kind].read(str(path))


@pytest.mark.parametrize("kind", [kind for kind in TARGETS if corpus_folder(kind).is_dir()])
def test_what_fuzzing_found_is_read_or_rejected_by_name(tmp_path, kind):
    path = TARGETS[kind].prepare(tmp_path)
    for file in corpus_folder(kind).iterdir():
        TARGETS[kind].accepts(path, file.read_bytes())


def test_every_folder_of_the_corpus_has_its_target():
    """PyTorch's target needs PyTorch."""
    folders = {folder.name for folder in corpus_folder("").iterdir()}
    assert folders - {"pytorch"} <= {corpus_folder(kind).name for kind in TARGETS}


@pytest.mark.parametrize("kind", TARGETS)
def test_a_spoilt_seed_is_read_or_rejected_by_name(tmp_path, kind):
    target = TARGETS[kind]
    path = target.prepare(tmp_path)

    @given(data=st.data())
    @settings(
        max_examples=10,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    def try_some(data):
        seed = data.draw(st.sampled_from(target.seeds))
        target.accepts(path, data.draw(spoilt(seed)))
        if target.is_json:
            target.accepts(path, data.draw(spoilt_json(json.loads(seed))))

    try_some()
