"""The size of the package. A row only falls; raising one needs a commit that says what leaves for it."""

import house_measures
import pytest

# Code lines, files and raises of each room.
ROOMS = {
    "(root)": (1_530, 14, 47),
    "checkpoints": (1_911, 13, 52),
    "data": (1_786, 11, 40),
    "embeddings": (1_419, 9, 25),
    "modeling": (2_190, 20, 17),
    "prediction": (1_679, 13, 23),
    "pretraining": (1_947, 12, 22),
    "report": (810, 5, 0),
    "serving": (2_399, 19, 16),
    "tasks": (3_928, 21, 57),
    "training": (1_875, 11, 23),
}
WHOLE = {
    "lines": 32_490,
    "code lines": 21_161,
    "files": 147,
    "raises": 322,
    "distinct flags": 130,
    "flags of run_classifier": 60,
    "functions above 60 lines": 2,
    "lines of tests": 23_940,
    "lines of documents": 6_875,
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
