"""What the fuzzing tests share: how many cases, and how a file is spoilt.

`make test` tries some hundred cases of each kind; `make fuzz` sets FUZZ_SCALE, by which the number is
multiplied, and prints how many of each kind were tried.
"""

import copy
import gzip
import json
import os
from collections import Counter

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

SCALE = int(os.environ.get("FUZZ_SCALE", "1"))
COUNTS = Counter()  # kind -> cases tried in this process


def cases(count):
    """So many cases, times FUZZ_SCALE."""
    return settings(
        max_examples=count * SCALE,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


# Bytes and texts that programs stumble over.
SNAGS = [
    b"\x00",
    b"\xff",
    b"\xed\xa0\x80",  # a surrogate
    b"\xef\xbb\xbf",  # a byte order mark
    b"\xe2\x80\xa8",  # a line separator
    b"\r",
    b"\n",
    b"\n\n",
    b"\t",
    b'"',
    b"'",
    b"\\",
    b",",
    b"{",
    b"]",
    b"null",
    b"NaN",
    b"-1",
    b"1e999",
    b"9" * 30,
    b"[" * 3000,
    b"O",
    b"I-",
    b"[CLS]",
    "é漢\u0301\u200d".encode(),
]


@st.composite
def spoilt(draw, content: bytes):
    """`content` with bytes replaced, put in, doubled, cut out or cut off; perhaps gzipped before."""
    zipped = draw(st.integers(0, 9)) == 0
    data = bytearray(gzip.compress(content, mtime=0) if zipped else content)
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
    """JSON whose parts have been replaced, removed, or got company."""
    values = copy.deepcopy(values)
    for _ in range(draw(st.integers(1, 3))):
        place, key = _random_place(draw, values)
        if place is None:
            values = draw(ODD_VALUES)
            break
        how = draw(st.sampled_from(["replace", "remove", "company"]))
        if how == "replace":
            place[key] = draw(ODD_VALUES)
        elif how == "remove":
            del place[key]
        elif isinstance(place, dict):
            place[draw(st.text(max_size=6))] = draw(ODD_VALUES)
        else:
            place.append(draw(ODD_VALUES))
    return json.dumps(values).encode()


def _random_place(draw, values):
    """(a dict or list of `values`, a key of it)."""
    place, key = None, None
    while isinstance(values, (dict, list)) and values:
        place = values
        key = draw(
            st.sampled_from(list(values) if isinstance(values, dict) else range(len(values)))
        )
        if draw(st.integers(0, 3)) == 0:
            break
        values = values[key]
    return place, key
