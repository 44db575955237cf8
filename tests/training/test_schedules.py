"""The learning rate at every step: the reference's, and other shapes, stated in plain Python."""

import keras
import pytest
import tensorflow as tf

from bert_tf.training.schedules import (
    SCHEDULES,
    WarmupConstant,
    WarmupCosineDecay,
    WarmupLinearDecay,
    WarmupPolynomialDecay,
    WarmupStableDecay,
)
from reference import optimizer as reference


def rates(schedule, *steps):
    return [round(float(schedule(step)), 5) for step in steps]


@pytest.mark.parametrize(
    "peak, num_train_steps, num_warmup_steps",
    [(1e-3, 10, 4), (5e-5, 7, 0), (2.0, 6, 6), (1e-4, 100_000, 10_000), (1.0, 1, 0), (1.0, 1, 1)],
)
def test_the_rate_is_the_references_at_every_step(peak, num_train_steps, num_warmup_steps):
    schedule = WarmupLinearDecay(peak, num_train_steps, num_warmup_steps)
    steps = {0, 1, num_warmup_steps, num_train_steps, num_train_steps + 1, 10 * num_train_steps}
    steps |= {max(0, num_warmup_steps - 1), num_warmup_steps + 1, max(0, num_train_steps - 1)}
    steps |= set(range(min(12, num_train_steps)))
    for step in sorted(steps):
        expected = reference.learning_rate(step, peak, num_train_steps, num_warmup_steps)
        assert float(schedule(step)) == pytest.approx(expected, rel=1e-6, abs=1e-7 * peak), step


def test_the_first_rate_of_a_warm_up_is_zero_and_the_rate_falls_where_it_ends():
    schedule = WarmupLinearDecay(1.0, num_train_steps=10, num_warmup_steps=4)
    rates = [round(float(schedule(step)), 6) for step in (0, 3, 4, 9, 10, 11)]
    assert rates == [0.0, 0.75, 0.6, 0.1, 0.0, 0.0]


def test_the_schedule_takes_the_optimizers_step_counter():
    schedule = WarmupLinearDecay(1.0, num_train_steps=8, num_warmup_steps=2)
    assert float(tf.function(schedule)(tf.constant(4, tf.int64))) == 0.5
    assert schedule(keras.Variable(1, dtype="int32")).dtype == tf.float32


@pytest.mark.parametrize(
    "steps, message",
    [
        ((0, 0), "`num_train_steps` is 0, but must be 1 or more. With few examples"),
        ((-1, 0), "`num_train_steps` is -1"),
        ((5, 6), "`num_warmup_steps` is 6, but must be at least 0 and at most .* = 5"),
        ((5, -1), "`num_warmup_steps` is -1"),
    ],
)
def test_numbers_of_steps_out_of_range_are_refused(steps, message):
    with pytest.raises(ValueError, match=message):
        WarmupLinearDecay(1e-3, *steps)


@pytest.mark.parametrize("decay_from_warmup", [False, True])
@pytest.mark.parametrize("end", [0.0, 0.2])
@pytest.mark.parametrize("shape", SCHEDULES)
def test_every_shape_is_what_its_formula_says(shape, end, decay_from_warmup):
    extra = {"power": 1.7} if shape == "polynomial" else {}
    if shape == "warmup_stable_decay":
        if decay_from_warmup:
            pytest.skip("its decay has its own start")
        extra = {"num_decay_steps": 5, "decay": "linear" if end else "one_minus_sqrt"}
    settings = dict(end=end, decay_from_warmup=decay_from_warmup, **extra)
    schedule = SCHEDULES[shape](3e-3, 13, 4, **settings)
    for step in (*range(15), 100):
        expected = reference.scheduled_rate(step, 3e-3, 13, 4, shape, **settings)
        assert float(schedule(step)) == pytest.approx(expected, rel=1e-5, abs=3e-10), step


def test_the_shapes_with_numbers():
    assert rates(WarmupPolynomialDecay(1.0, 10, 2, power=3.0), 0, 1, 2, 5, 10, 11) == [
        *(0.0, 0.5, 0.512, 0.125, 0.0, 0.0)
    ]
    assert rates(WarmupCosineDecay(2.0, 6, 1), 0, 1, 2, 3, 4, 6, 9) == [
        *(0.0, 1.86603, 1.5, 1.0, 0.5, 0.0, 0.0)
    ]
    assert rates(WarmupConstant(3.0, 10, 4), 0, 1, 4, 10, 99) == [0.0, 0.75, 3.0, 3.0, 3.0]
    assert rates(WarmupLinearDecay(4.0, 10, end=0.25), 0, 5, 10, 11) == [4.0, 2.5, 1.0, 1.0]


def test_the_decay_can_begin_where_warm_up_ends():
    schedule = WarmupLinearDecay(1.0, 10, 4, decay_from_warmup=True)
    assert rates(schedule, 3, 4, 7, 10, 11) == [0.75, 1.0, 0.5, 0.0, 0.0]
    cosine = WarmupCosineDecay(1.0, 10, 4, decay_from_warmup=True)
    assert rates(cosine, 3, 4, 7, 10) == [0.75, 1.0, 0.5, 0.0]


def test_all_steps_may_warm_up():
    for decay_from_warmup in (False, True):
        schedule = WarmupLinearDecay(1.0, 4, 4, decay_from_warmup=decay_from_warmup)
        assert rates(schedule, 0, 3, 5) == [0.0, 0.75, 0.0]


@pytest.mark.parametrize("end", [-0.1, 1.5, float("nan")])
def test_an_end_that_is_no_share_is_refused(end):
    with pytest.raises(ValueError, match=f"`end` is {end}, but must be from 0 to 1"):
        WarmupLinearDecay(1e-3, 5, end=end)


def test_a_stable_rate_does_not_depend_on_the_length_of_the_training():
    long, short = (WarmupStableDecay(1.0, steps, 2, num_decay_steps=4) for steps in (99, 12))
    assert rates(long, *range(9)) == rates(short, *range(9))
    assert rates(WarmupStableDecay(1.0, 10), 8, 9) == [1.0, 0.29289]  # a fifth is 2 steps


@pytest.mark.parametrize("num_decay_steps", [-1, 9])
def test_warm_up_and_decay_are_no_longer_than_the_training(num_decay_steps):
    message = f"`num_decay_steps` is {num_decay_steps}, but must be at least 0 and at most 8"
    with pytest.raises(ValueError, match=message):
        WarmupStableDecay(1.0, 10, 2, num_decay_steps=num_decay_steps)
    with pytest.raises(ValueError, match="`decay` is 'cubic', but must be one of one_minus_sqrt"):
        WarmupStableDecay(1.0, 10, decay="cubic")
    with pytest.raises(ValueError, match="`decay_from_warmup` has no meaning"):
        WarmupStableDecay(1.0, 10, decay_from_warmup=True)


def test_a_power_that_does_not_fall_is_refused():
    with pytest.raises(ValueError, match="`power` is 0, but must be above 0"):
        WarmupPolynomialDecay(1e-3, 5, power=0)


@pytest.mark.parametrize("name", SCHEDULES)
def test_serialization_keeps_every_setting(name):
    extra = {"power": 2.5} if name == "polynomial" else {}
    if name != "warmup_stable_decay":
        extra["decay_from_warmup"] = True
    schedule = SCHEDULES[name](0.3, 9, 2, end=0.1, **extra)
    saved = keras.optimizers.schedules.serialize(schedule)
    copy = keras.optimizers.schedules.deserialize(saved)
    assert type(copy) is type(schedule)
    assert copy.get_config() == schedule.get_config()
    assert rates(copy, *range(10)) == rates(schedule, *range(10))


def test_the_points_of_a_curve_are_a_hundredth_apart_and_have_the_peak_and_the_last_step():
    schedule = WarmupLinearDecay(2.0, num_train_steps=1000, num_warmup_steps=7)
    found = {}
    for first, last in ((1, 1), (2, 2), (3, 640), (641, 1000)):  # calls of the loop
        found |= schedule.points(first, last)
    steps = {1, 2, 640, 1000, *range(10, 1000, 10)}
    assert set(found) - steps == {8}  # step 8 is the first after seven of warm-up
    assert found[8] == max(found.values()) == pytest.approx(2.0 * 0.993)
    for step, rate in found.items():
        assert rate == pytest.approx(float(schedule(step - 1)), rel=1e-6, abs=1e-9), step


@pytest.mark.parametrize("peak", [1, 2, 5])
def test_a_peak_between_two_calls_is_not_missed(peak):
    schedule = WarmupLinearDecay(1.0, num_train_steps=5000, num_warmup_steps=peak)
    found = {}
    for first, last in ((1, 1), (2, 2), (3, 5), (6, 5000)):
        found |= schedule.points(first, last)
    assert max(found.values()) == max(float(schedule(step)) for step in range(10))
