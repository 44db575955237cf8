"""Any content of a file is read, or rejected with a message that names the file."""

import json

import pytest
from fuzz_cases import COUNTS, cases, spoilt, spoilt_json
from fuzz_targets import TARGETS
from hypothesis import given
from hypothesis import strategies as st


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    return {kind: each.prepare(tmp_path_factory.mktemp("fuzzed")) for kind, each in TARGETS.items()}


@pytest.mark.parametrize("kind", TARGETS)
@given(data=st.data())
@cases(100)
def test_bytes_in_disorder(paths, kind, data):
    COUNTS[f"{kind}: bytes"] += 1
    seed = data.draw(st.sampled_from(TARGETS[kind].seeds))
    TARGETS[kind].accepts(paths[kind], data.draw(spoilt(seed)))


@pytest.mark.parametrize("kind", [kind for kind, each in TARGETS.items() if each.is_json])
@given(data=st.data())
@cases(100)
def test_json_with_other_parts(paths, kind, data):
    COUNTS[f"{kind}: JSON"] += 1
    seed = data.draw(st.sampled_from(TARGETS[kind].seeds))
    TARGETS[kind].accepts(paths[kind], data.draw(spoilt_json(json.loads(seed))))
