"""The numbers that a verdict rests on: they have no units, and tell a rise of the loss from noise."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot.monitor._judge import WEIGHTS, Evidence, Losses, Setting, gather, judge


def steps(rate=0.1, curvature=1.0, start=10.0, count=20):
    """Gradient descent on curvature·x²/2."""
    points = start * (1.0 - rate * curvature) ** np.arange(count + 1)
    gradients = curvature * points[:-1]
    moved = points[:-1] - points[1:]
    away = points[:-1] - start
    return {
        "loss": 0.5 * curvature * points[:-1] ** 2,
        "rate": np.full(count, rate),
        "size": np.full(count, rate),
        "slope": gradients * moved,
        "moved_sq": moved**2,
        "point_sq": points[:-1] ** 2,
        "away_sq": away**2,
        "back": gradients * away,
        "carried": np.concatenate([[np.nan], gradients[1:] * moved[:-1]]),
    }


def evidence(columns, elements=1, momentum=0.0):
    return gather(columns, Setting(200, float(columns["rate"].max()), elements, momentum))[0]


@given(st.floats(-12, 12), st.floats(-12, 12), st.floats(0.01, 2.5))
def test_units_of_loss_and_weights_do_not_matter(loss, weight, rate):
    columns = steps(rate)
    loss, weight = 10.0**loss, 10.0**weight
    scales = {"loss": loss, "slope": loss, "back": loss, "carried": loss}
    scales |= dict.fromkeys(("rate", "size"), weight**2 / loss)
    scales |= dict.fromkeys(("moved_sq", "point_sq", "away_sq"), weight**2)
    other = {name: scales[name] * column for name, column in columns.items()}
    assert evidence(other, elements=0) == pytest.approx(evidence(columns, elements=0), rel=1e-6, abs=1e-6)


def test_short_steps_promise_little_and_long_ones_more_than_there_is():
    small, good, large = (evidence(steps(rate)).promised for rate in (0.001, 0.1, 1.95))
    assert small < -1 < good < 0.5 < large


def test_of_short_steps_the_slope_is_left_and_of_long_ones_it_turns():
    assert evidence(steps(0.001)).left > 0.99
    assert evidence(steps(0.5)).left == pytest.approx(0.5)
    assert evidence(steps(1.9)).left == pytest.approx(-0.9)


def test_noise_is_no_rise_unless_the_steps_were_long_enough_for_it():
    losses = np.tile([0.1, 2.0, 0.3, 4.0], 5)
    assert Losses.of(losses).risen > 1.0
    columns = steps(1e-6) | {"loss": losses}
    assert judge(columns, Setting(200, 1e-6, 1, 0.0)).state != "too large"
    columns["slope"] = np.full(20, 10.0)
    assert judge(columns, Setting(200, 1e-6, 1, 0.0)).state == "too large"


def test_weights_belong_to_numbers_of_the_evidence():
    assert set(WEIGHTS) == {"constant", *Evidence._fields}
