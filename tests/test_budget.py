"""The size of the package. A row only falls; raising one needs a commit that says what leaves for it."""

import house_measures
import pytest

# Code lines, files and raises of each room.
ROOMS = {
    "(root)": (1_413, 13, 34),
    "checkpoints": (1_723, 12, 49),
    "data": (1_532, 10, 31),
    "embeddings": (1_103, 7, 17),
    "modeling": (1_965, 18, 11),
    "prediction": (1_424, 12, 17),
    "pretraining": (1_727, 11, 17),
    "report": (687, 5, 0),
    "serving": (2_015, 14, 11),
    "tasks": (3_280, 21, 40),
    "training": (1_629, 11, 14),
}
WHOLE = {
    "lines": 26_962,
    "code lines": 18_498,
    "files": 134,
    "raises": 241,
    "distinct flags": 127,
    "flags of run_classifier": 59,
    "functions above 60 lines": 1,
    "lines of tests": 21_671,
    "lines of documents": 5_681,
}
# Of the processor, for a case without the mark `night`, its fixtures apart; on a slower machine the
# share of the whole tier.
CASE_SECONDS, CASE_SHARE = 5.0, 0.03


def test_no_room_grows():
    _, rooms = house_measures.measure()
    sizes = {
        room: tuple(count[name] for name in ("code", "files", "raises"))
        for room, count in rooms.items()
    }
    assert set(sizes) <= set(ROOMS)
    above = {
        room: (size, ROOMS[room])
        for room, size in sizes.items()
        if any(value > limit for value, limit in zip(size, ROOMS[room], strict=True))
    }
    assert not above, "name in your commit what leaves for it, and raise the row"


def test_the_house_does_not_grow():
    whole, _ = house_measures.measure()
    above = {name: (value, WHOLE[name]) for name, value in whole.items() if value > WHOLE[name]}
    assert not above, "name in your commit what leaves for it, and raise the row"


@pytest.mark.night
def test_no_case_of_the_last_commit_tier_is_slow(request):
    cache = getattr(request.config, "cache", None)
    seconds = cache and cache.get("bert_tf/commit_tier", None)
    if not seconds:
        pytest.skip("`make test` has left no seconds in .pytest_cache: run it first")
    limit = max(CASE_SECONDS, CASE_SHARE * sum(seconds.values()))
    slow = {name: value for name, value in seconds.items() if value > limit}
    assert not slow, "mark them `night`, make them faster, or delete them"
