"""The size of the package. A row only falls; raising one needs a commit that says what leaves for it."""

import house_measures
from test_package import ORDER

# Code lines, files and raises of each room.
ROOMS = {
    "(root)": (2_707, 23, 101),
    "data": (2_375, 17, 55),
    "finetuning": (3_698, 28, 84),
    "interop": (2_669, 18, 132),
    "metrics": (436, 4, 1),
    "modeling": (1_995, 19, 42),
    "prediction": (1_932, 15, 55),
    "pretraining": (1_450, 12, 20),
    "programs": (5_585, 30, 135),
    "report": (1_393, 17, 3),
    "serving": (2_095, 22, 18),
    "tasks": (2_141, 13, 29),
    "text_ops": (574, 4, 5),
    "training": (2_004, 18, 30),
}
WHOLE = {
    "lines": 51_225,
    "code lines": 34_907,
    "files": 263,
    "raises": 934,
    "distinct flags": 213,
    "flags of run_classifier": 98,
    "functions above 60 lines": 23,
    "lines of tests": 50_483,
    "lines of documents": 9_005,
}
UPWARD_IMPORTS = 4


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
    assert not above


def test_the_house_does_not_grow():
    whole, _ = house_measures.measure()
    assert not {name: (value, WHOLE[name]) for name, value in whole.items() if value > WHOLE[name]}


def test_imports_that_run_up_do_not_grow():
    paths = house_measures.PACKAGE.rglob("*.py")
    assert len(house_measures.upward_imports(paths, ORDER)) <= UPWARD_IMPORTS
