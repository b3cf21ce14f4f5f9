"""The numbers that a verdict rests on: they have no units, and tell a rise of the loss from noise."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot.monitor._evidence import Evidence, gather, summarise
from surefoot.monitor._judge import WEIGHTS, judge


def steps(rate=0.1, curvature=1.0, start=10.0, count=20, noise=0.0):
    """Gradient descent on curvature·x²/2, with noise on the losses."""
    draw = np.random.default_rng(0)
    points = start * (1.0 - rate * curvature) ** np.arange(count + 1)
    gradients = curvature * points[:-1]
    moved = points[:-1] - points[1:]
    away = points[:-1] - start
    ones = np.ones(count)
    return {
        "loss": 0.5 * curvature * points[:-1] ** 2 + noise * draw.standard_normal(count),
        "rate": rate * ones,
        "size": rate * ones,
        "slope": gradients * moved,
        "moved_sq": moved**2,
        "point_sq": points[:-1] ** 2,
        "away_sq": away**2,
        "back": gradients * away,
        "carried": np.concatenate([[np.nan], gradients[1:] * moved[:-1]]),
    }


@given(st.floats(-12, 12), st.floats(-12, 12), st.floats(0.01, 2.5))
def test_units_of_loss_and_weights_do_not_matter(loss, weight, rate):
    columns = steps(rate)
    loss, weight = 10.0**loss, 10.0**weight
    scales = {"loss": loss, "slope": loss, "back": loss, "carried": loss}
    scales |= dict.fromkeys(("rate", "size"), weight**2 / loss)
    scales |= dict.fromkeys(("moved_sq", "point_sq", "away_sq"), weight**2)
    other = {name: scales[name] * column for name, column in columns.items()}
    here = gather(columns, 200, rate, 0)
    there = gather(other, 200, rate * weight**2 / loss, 0)
    assert there == pytest.approx(here, rel=1e-6, abs=1e-6)


def test_short_steps_promise_little_and_long_ones_more_than_there_is():
    small, good, large = (gather(steps(rate), 200, rate, 1).promised for rate in (0.001, 0.1, 1.95))
    assert small < -1 < good < 0.5 < large


def test_noise_is_no_rise_unless_the_steps_were_long_enough_for_it():
    losses = np.tile([0.1, 2.0, 0.3, 4.0], 5)
    found = summarise(losses, losses)
    assert found.doubled
    assert not found.clearly
    columns = steps(1e-6) | {"loss": losses}
    assert judge(columns, horizon=200, peak=1e-6, elements=1).state != "too large"
    columns["slope"] = np.full(20, 10.0)
    assert judge(columns, horizon=200, peak=1e-6, elements=1).state == "too large"


def test_a_spike_is_remembered_but_not_that_of_a_single_batch():
    once, thrice = np.ones(20), np.ones(20)
    once[8] = thrice[8:11] = 100.0
    columns = steps(0.1)
    assert gather(columns | {"loss": once}, 200, 0.1, 1).spike == 0.0
    assert gather(columns | {"loss": thrice}, 200, 0.1, 1).spike == pytest.approx(2.0, abs=0.01)


def test_looking_at_every_second_step_promises_the_same():
    columns = steps(0.01, count=40)
    half = {name: column[::2] for name, column in columns.items()}
    assert gather(half, 400, 0.01, 1, every=2).promised == pytest.approx(
        gather(columns, 400, 0.01, 1).promised, abs=0.02
    )


def test_scatter_and_losses_above_the_first_are_told():
    calm, rough = (gather(steps(0.01, noise=noise), 200, 0.01, 1) for noise in (0.0, 10.0))
    assert calm.noise < -1.5 < -1.0 < rough.noise
    losses = np.ones(20)
    losses[5:10] = 3.0
    assert gather(steps(0.1) | {"loss": losses}, 200, 0.1, 1).above == 0.25
    assert gather(steps(0.01), 200, 0.01, 1).above == 0.0


def test_weights_belong_to_numbers_of_the_evidence():
    assert set(WEIGHTS) == {"constant", *Evidence._fields}


def test_steps_that_were_shortened_make_the_range_wider():
    columns = steps(0.1, noise=0.5)
    plain = judge(columns, horizon=200, peak=0.1, elements=1)
    short = judge(columns | {"size": columns["size"] / 2}, horizon=200, peak=0.1, elements=1)
    assert plain.state == short.state == "holds"
    widths = [np.log10(verdict.lr_range[1] / verdict.lr_range[0]) for verdict in (plain, short)]
    assert widths == pytest.approx([1.0, 1.5])
