"""Work in order, in this process or in several."""

import multiprocessing
import os
import sys
import time

import pytest

from bert_tf.data.parallel import map_in_order
from bert_tf.limits import DataError


def square(number):
    if number < 0:
        raise DataError(f"a.tsv:{number}", "negative.")
    return number * number


def end(_):
    os._exit(9)


def has_tensorflow(_):
    return "tensorflow" in sys.modules


@pytest.mark.parametrize("num_workers", [1, 2])
def test_map_in_order_keeps_the_order_of_results_and_errors(num_workers):
    assert list(map_in_order(square, range(25), num_workers)) == [n * n for n in range(25)]
    results = map_in_order(square, [3, -1, 2], num_workers)
    assert next(results) == 9
    with pytest.raises(DataError) as error:
        next(results)
    assert error.value.location == "a.tsv:-1"
    assert str(error.value) == "a.tsv:-1: negative."


def test_map_in_order_takes_parts_as_they_are_needed():
    taken = []

    def parts():
        for number in range(1000):
            taken.append(number)
            yield number

    results = map_in_order(square, parts(), 2)
    assert next(results) == 0
    assert len(taken) < 20
    results.close()


def test_map_in_order_tells_of_a_killed_worker():
    with pytest.raises(RuntimeError, match="num_workers"):
        list(map_in_order(end, [1], 2))


def test_map_in_order_ends_its_workers_when_closed():
    results = map_in_order(time.sleep, [0, 1000, 1000], 2)
    next(results)
    results.close()
    assert not multiprocessing.active_children()


def test_map_in_order_imports_no_tensorflow_in_its_workers():
    assert not any(map_in_order(has_tensorflow, range(2), 2))
