"""Files of the tests of readers."""

import pytest


@pytest.fixture
def written(tmp_path):
    """Writes text or bytes to a file and gives its path."""

    def write(content, name="a.txt"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    return write
