"""What an error says of its cause, so that a table of refusals needs no sentence."""

import pytest

from bert_tf.limits import DataError
from bert_tf.options import OptionError


def cause_of(call, *args, **kwargs) -> str:
    """The option or the location ("file:line" or "file") in the error that a call raises."""
    with pytest.raises((OptionError, DataError)) as error:
        call(*args, **kwargs)
    return getattr(error.value, "option", None) or error.value.location
