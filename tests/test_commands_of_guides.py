"""docs/*.md: what they tell their reader to type works (README.md: test_commands.py)."""

import pytest
from document_commands import GUIDES, Walks, commands_of
from document_files import write_files

WITH_COMMANDS = [
    name
    for name, path in GUIDES.items()
    if not all(one.reason_not_to_run for one in commands_of(path.read_text(encoding="utf-8")))
]


@pytest.fixture(scope="module")
def walks(tmp_path_factory):
    folder = tmp_path_factory.mktemp("walks")
    (folder / "files").mkdir()
    return Walks(write_files(folder / "files"), folder)


@pytest.mark.parametrize("name", WITH_COMMANDS)
def test_the_commands_of_a_guide_do_what_it_says(walks, name):
    assert walks.walk(name)
