from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot.theory import schedules


@pytest.mark.parametrize("name", schedules.SCHEDULES)
@given(T=st.integers(1, 300))
def test_factors_are_positive_and_at_most_one(name, T):
    factors = schedules.from_name(name, T)
    assert factors.shape == (T,)
    assert factors.dtype == np.float64
    assert (factors > 0).all()
    assert (factors <= 1).all()


@given(
    T=st.integers(2, 300),
    ramp=st.integers(0, 299),
    name=st.sampled_from([name for name in schedules.SCHEDULES if name != "warmup"]),
)
def test_a_warmup_rises_to_a_schedule_of_the_steps_that_are_left(T, ramp, name):
    ramp = min(ramp, T - 1)
    factors = schedules.from_name(name, T, warmup=ramp)
    np.testing.assert_allclose(factors[:ramp], np.arange(1, ramp + 1) / (ramp + 1))
    assert factors[ramp] == factors[ramp:].max()
    assert (np.diff(factors[ramp:]) <= 0).all()


@pytest.mark.parametrize("decay", [schedules.linear, schedules.cosine])
def test_decays_start_at_one_and_would_end_at_zero(decay):
    T = 100
    factors = decay(T)
    assert factors[0] == 1.0
    # The same curve one step further on is zero: linear extrapolation in its own coordinate.
    assert factors[-1] == pytest.approx({"linear": 1 / T, "cosine": np.sin(np.pi / (2 * T)) ** 2}[decay.__name__])


def test_warmup_is_the_papers():
    factors = schedules.warmup(7800)
    assert factors[0] == 1e-10
    assert factors[99] == 1.0
    np.testing.assert_allclose(np.diff(factors[:100]), (1 - 1e-10) / 99)
    assert (factors[99:] == 1).all()


def test_warmup_longer_than_the_run_is_cut():
    np.testing.assert_array_equal(schedules.warmup(5, steps=10), schedules.warmup(10, steps=10)[:5])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: schedules.constant(0), "T must be a whole number of at least 1, got 0"),
        (lambda: schedules.warmup(5, steps=0), "steps must be"),
        (lambda: schedules.warmup(5, start=0.0), "start must be above 0"),
        (lambda: schedules.wsd(5, cooldown=2.0), "cooldown must be"),
        (lambda: schedules.wsd(5, shape="cubic"), "shape must be one of linear, sqrt, cosine, got 'cubic'"),
        (lambda: schedules.linear(5, warmup=5), "warmup must be less than the T=5 steps of the schedule, got 5"),
        (lambda: schedules.cosine(5, end=2), "end must be at most 1, got 2"),
        (lambda: schedules.inverse_sqrt(5, offset=-1.0), "offset must be"),
        (lambda: schedules.from_name("cosin", 5), "did you mean 'cosine'"),
        (lambda: schedules.from_name("warmup(step=5)", 5), "did you mean 'steps'"),
        (lambda: schedules.from_name("warmup(5)", 5), "not of the form"),
        (lambda: schedules.from_name("warmup(steps=5)(start=1)", 5), "not of the form"),
        (lambda: schedules.from_name("constant(none=1)", 5), "option of schedule 'constant' must be one of warmup"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
