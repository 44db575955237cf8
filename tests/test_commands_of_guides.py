"""docs/*.md: what they tell their reader to type works. (test_commands.py: README.md)"""

import pytest
from document_commands import GUIDES, PRETRAINING, Walks, commands_of

pytestmark = pytest.mark.night


@pytest.fixture(scope="module")
def walks(tmp_path_factory):
    return Walks(tmp_path_factory.mktemp("walks"))


def has_some_to_run(name):
    text = GUIDES[name].read_text(encoding="utf-8")
    return any(not command.reason_not_to_run for command in commands_of(text))


# Only `make test-all` runs these.
LONG = (
    "classification.md",
    "distillation.md",
    "embeddings.md",
    "formats.md",
    "int8.md",
    "multi_host.md",
    "multiple_choice.md",
    "ner.md",
    "own_data.md",
    "prediction.md",
    "serving.md",
)


@pytest.mark.weekly_cases("squad.md")
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.weekly] if name in LONG else [])
        for name in GUIDES
        if name not in PRETRAINING and has_some_to_run(name)
    ],
)
def test_the_commands_of_a_guide_do_what_it_says(walks, name):
    assert walks.walk(name)
