"""Set-ups of the programs' tests."""

import pytest
import tensorflow as tf


@pytest.fixture
def eager():
    """Functions run as they are written: below about thirteen steps, faster than tracing them."""
    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)
