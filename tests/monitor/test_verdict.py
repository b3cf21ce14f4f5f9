"""The verdict, on quadratics whose answer is known and on the studies of the paper."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot.monitor._verdict import judge


def quadratic(lr, curvature=1.0, steps=40, **options):
    """Gradient descent on ½·curvature·x²: it is stable iff lr·curvature < 2, and z = 2·lr·curvature."""
    x = (1.0 - lr * curvature) ** np.arange(steps)
    loss, promised = 0.5 * curvature * x**2, lr * (curvature * x) ** 2
    options = {"lower_bound": 0.0, "window": min(20, steps // 2), **options}
    return judge(loss, promised, promised, np.full(steps, lr), **options)


@pytest.mark.parametrize(
    ("lr", "state"), [(0.1, "stable"), (0.4, "stable"), (0.6, "at the edge"), (1.9, "at the edge"), (2.1, "unstable")]
)
def test_quadratics_are_judged_by_their_stable_rate(lr, state):
    assert quadratic(lr).state == state


@pytest.mark.parametrize("lr", [0.02, 0.7, 30.0])
@pytest.mark.parametrize("curvature", [0.01, 1.0, 100.0])
def test_the_range_does_not_depend_on_the_rate_that_was_tried(lr, curvature):
    steps = 2 if lr * curvature > 100 else 10
    low, high = quadratic(lr, curvature, steps=steps).lr_range
    assert (low, high) == pytest.approx((0.05 / curvature, 0.5 / curvature))


def test_a_run_that_broke_is_unstable_and_still_has_a_range():
    loss = np.array([1.0, 2.0, math.inf, math.inf])
    verdict = judge(loss, loss, loss, np.ones(4), lower_bound=0.0, window=2)
    assert verdict.state == "unstable"
    assert "step 2" in verdict.reason
    assert verdict.lr_range == pytest.approx((0.1, 1.0))


def test_nothing_measured_is_unknown():
    nothing = np.full(3, math.nan)
    verdict = judge(nothing, nothing, nothing, np.ones(3), lower_bound=0.0, window=1)
    assert verdict.state == "unknown"
    assert "monitor.record" in verdict.reason


def test_growth_of_the_loss_counts_whatever_z_is():
    loss = 1.1 ** np.arange(40.0)
    small = np.full(40, 1e-3)
    assert judge(loss, small, small, np.ones(40), lower_bound=0.0, window=20).state == "unstable"


def test_a_run_that_lies_still_where_it_was_thrown_is_unstable():
    loss = np.array([1.0, 30.0, 20.0, 5.0, 2.0, *[1.1] * 40])
    promised = np.array([0.9, 300.0, 200.0, 10.0, 1.0, *[1e-6] * 40])
    verdict = judge(loss, promised, promised, np.ones(45), lower_bound=0.0, window=20)
    assert verdict.state == "unstable"
    assert verdict.lr_range[1] == pytest.approx(58.0 / 511.9)


@given(st.lists(st.tuples(st.floats(), st.floats(), st.floats(0.0, 1.0)), min_size=1, max_size=50))
def test_any_numbers_get_a_verdict(rows):
    loss, promised, share = np.array(rows).T
    loss, promised = (np.where(np.isneginf(values), math.inf, values) for values in (loss, promised))
    with np.errstate(all="raise", under="ignore", over="ignore", invalid="ignore"):
        verdict = judge(
            loss, promised, promised * share, np.ones(len(loss)), lower_bound=0.0, window=len(loss) // 2 + 1
        )
    assert verdict.state in ("stable", "at the edge", "unstable", "unknown")
    assert verdict.lr_range is None or 0 <= verdict.lr_range[0] <= verdict.lr_range[1] < math.inf


def test_the_reason_is_said_in_numbers():
    text = str(quadratic(2.1))
    assert "SPS would have shortened 100% of the last 20 steps" in text
    assert "Suggested lr: 0.05 to 0.5." in text


def test_places_to_which_a_bad_rate_has_thrown_the_run_do_not_narrow_the_range():
    """The sharpness of a network grows with the loss: only the steps before the explosion say which rates would do."""
    loss = np.array([1.0, 1.2, 5e5, 1e12, math.inf])
    promised = np.array([4.0, 4.0, 1e9, 1e30, math.inf])
    low, high = judge(loss, promised, promised, np.ones(5), lower_bound=0.0, window=2).lr_range
    assert 0.02 < low < high < 0.4


def test_a_rate_that_is_stable_belongs_to_the_range():
    """One steep step at the start, as batch norm makes it, does not speak against the steps that follow."""
    loss = np.array([4.0, *np.linspace(3.0, 2.0, 19)])
    promised = np.array([40.0, *np.full(19, 0.5)])
    verdict = judge(loss, promised, promised, np.full(20, 0.3), lower_bound=0.0, window=9)
    assert verdict.state == "stable"
    assert verdict.lr_range == pytest.approx((0.003, 0.3))
