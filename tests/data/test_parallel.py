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


def process_id(_):
    return os.getpid()


def end(_):
    os._exit(9)


def has_tensorflow(_):
    return "tensorflow" in sys.modules


@pytest.mark.parametrize("num_workers", [1, 2])
def test_results_come_in_the_order_of_the_parts(num_workers):
    assert list(map_in_order(square, range(25), num_workers)) == [n * n for n in range(25)]
    assert list(map_in_order(square, [], num_workers)) == []


def test_parts_are_taken_as_they_are_needed():
    taken = []

    def parts():
        for number in range(1000):
            taken.append(number)
            yield number

    results = map_in_order(square, parts(), 2)
    assert next(results) == 0
    assert len(taken) < 20
    results.close()


@pytest.mark.parametrize("num_workers", [1, 2])
def test_the_error_of_a_part_is_raised_when_it_is_its_turn(num_workers):
    results = map_in_order(square, [3, -1, 2], num_workers)
    assert next(results) == 9
    with pytest.raises(DataError) as error:
        next(results)
    assert error.value.location == "a.tsv:-1"
    assert str(error.value) == "a.tsv:-1: negative."


def test_a_worker_that_was_killed_is_told():
    with pytest.raises(RuntimeError, match="A worker process ended"):
        list(map_in_order(end, [1], 2))


def test_workers_end_when_no_more_results_are_taken():
    results = map_in_order(time.sleep, [0, 1000, 1000], 2)
    next(results)
    results.close()
    assert not multiprocessing.active_children()


def test_workers_do_not_import_tensorflow():
    assert not any(map_in_order(has_tensorflow, range(2), 2))
