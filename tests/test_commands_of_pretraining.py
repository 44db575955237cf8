"""Guides to pre-training: what they tell their reader to type works. (test_commands.py: README.md)"""

import pytest
from document_commands import PRETRAINING, Walks

pytestmark = pytest.mark.weekly


@pytest.mark.parametrize("name", PRETRAINING)
def test_the_commands_of_a_guide_do_what_it_says(tmp_path, name):
    assert Walks(tmp_path).walk(name)
