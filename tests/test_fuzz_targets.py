"""Any content of a file is read, or rejected with an error that names the file.

FUZZ_SCALE multiplies the number of cases; `make fuzz` sets it.
"""

import copy
import gzip
import json
import os

import pytest
from fuzz_targets import TARGETS
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

SCALE = int(os.environ.get("FUZZ_SCALE", "1"))

# Bytes and texts that programs stumble over.
SNAGS = [
    *(b"\x00", b"\xff", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\xe2\x80\xa8", b"\r", b"\n", b"\n\n"),
    *(b"\t", b'"', b"'", b"\\", b",", b"{", b"]", b"null", b"NaN", b"-1", b"1e999", b"9" * 30),
    *(b"[" * 3000, b"O", b"I-", b"[CLS]", "é漢\u0301\u200d".encode()),
]


@st.composite
def spoilt(draw, content: bytes):
    """`content` with bytes replaced, put in, doubled, cut out or cut off; perhaps gzipped before."""
    data = bytearray(gzip.compress(content, mtime=0) if draw(st.integers(0, 9)) == 0 else content)
    for _ in range(draw(st.integers(1, 6))):
        first = draw(st.integers(0, len(data)))
        last = min(len(data), first + draw(st.integers(0, 12)))
        how = draw(st.sampled_from(["put in", "replace", "double", "cut out", "cut off"]))
        if how == "cut off":
            del data[first:]
        elif how == "double":
            data[first:first] = data[first:last]
        else:
            new = draw(st.one_of(st.sampled_from(SNAGS), st.binary(max_size=8)))
            data[first : first if how == "put in" else last] = b"" if how == "cut out" else new
    return bytes(data)


ODD_VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([0, -1, 10**30, float("nan"), float("inf"), "", "../../x", "a\x00b", [], {}]),
    st.text(max_size=8),
    st.lists(st.integers(), max_size=3),
    st.dictionaries(st.text(max_size=4), st.integers(), max_size=2),
)


@st.composite
def spoilt_json(draw, values):
    """JSON with a part that has been replaced or removed."""
    values = copy.deepcopy(values)
    for _ in range(draw(st.integers(1, 3))):
        place, key, part = None, None, values
        while isinstance(part, (dict, list)) and part and (place is None or draw(st.booleans())):
            place = part
            keys = list(part) if isinstance(part, dict) else range(len(part))
            key = draw(st.sampled_from(keys))
            part = part[key]
        if place is None:
            return json.dumps(draw(ODD_VALUES)).encode()
        if draw(st.booleans()):
            place[key] = draw(ODD_VALUES)
        else:
            del place[key]
    return json.dumps(values).encode()


@pytest.mark.parametrize("kind", TARGETS)
def test_a_spoilt_file_is_read_or_rejected_by_name(tmp_path, kind):
    target = TARGETS[kind]
    path = target.prepare(tmp_path)
    for seed in target.seeds:
        assert target.accepts(path, seed)

    @given(data=st.data())
    @settings(
        max_examples=3 * SCALE,
        derandomize=SCALE == 1,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    def try_some(data):
        seed = data.draw(st.sampled_from(target.seeds))
        target.accepts(path, data.draw(spoilt(seed)))
        if target.name.endswith(".json"):
            target.accepts(path, data.draw(spoilt_json(json.loads(seed))))

    try_some()
