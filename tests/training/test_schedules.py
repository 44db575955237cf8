"""The learning rate at every step: the reference's, and other shapes, stated in plain Python."""

import pytest

from bert_tf.training.schedules import SHAPES, WarmupDecay
from reference import optimizer as reference


def rates(schedule, *steps):
    return [round(float(schedule(step)), 5) for step in steps]


def test_the_rate_is_the_references_at_every_step():
    for peak, num_train_steps, num_warmup_steps in (
        *[(1e-3, 10, 4), (5e-5, 7, 0), (2.0, 6, 6), (1e-4, 100_000, 10_000), (1.0, 1, 0)],
        (1.0, 1, 1),
    ):
        schedule = WarmupDecay(peak, num_train_steps, num_warmup_steps)
        steps = {num_warmup_steps - 1, num_warmup_steps, num_warmup_steps + 1, *range(12)}
        steps |= {num_train_steps - 1, num_train_steps, num_train_steps + 1, 10 * num_train_steps}
        for step in sorted(steps - {-1}):
            expected = reference.learning_rate(step, peak, num_train_steps, num_warmup_steps)
            assert float(schedule(step)) == pytest.approx(expected, rel=1e-6, abs=1e-7 * peak), step


def test_numbers_of_steps_out_of_range_are_refused():
    for steps in ((0, 0), (-1, 0), (5, 6), (5, -1)):
        with pytest.raises(ValueError, match="num_warmup_steps"):
            WarmupDecay(1e-3, *steps)


def test_every_shape_is_what_its_formula_says():
    for shape in SHAPES:
        schedule = WarmupDecay(3e-3, 13, 4, shape)
        for step in (*range(15), 100):
            expected = reference.scheduled_rate(step, 3e-3, 13, 4, shape)
            assert float(schedule(step)) == pytest.approx(expected, rel=1e-5, abs=3e-10), step
        assert rates(WarmupDecay(1.0, 4, 4, shape), 0, 3) == [0.0, 0.75]  # all steps may warm up
