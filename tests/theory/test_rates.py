"""Rates: no convex problem may beat them, and no semidefinite program may find one that does."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot.theory import models, rates

METHODS = {"sgd": models.Linear, "sps": models.Truncated, "ngn": models.SquareRoot}
numbers = st.floats(-3.0, 3.0)
rows = st.lists(st.tuples(numbers, numbers, numbers), min_size=1, max_size=2)
learning_rates = st.floats(-2.0, 3.0).map(lambda power: 10.0**power)


class Squares:
    """½(⟨a, x⟩ − b)²: interpolated by some point if there are no more rows than dimensions."""

    infimum = 0.0

    def __init__(self, a, b):
        self.a, self.b = a, b
        self.smoothness = float(a @ a)

    def __call__(self, x):
        off = float(self.a @ x) - self.b
        return 0.5 * off * off, off * self.a


class Logistic(Squares):
    """ln(1 + e^(b − ⟨a, x⟩)): its infimum 0 is not attained."""

    def __init__(self, a, b):
        super().__init__(a, b)
        self.smoothness /= 4.0

    def __call__(self, x):
        margin = self.b - float(self.a @ x)
        return float(np.logaddexp(0.0, margin)), -self.a / (1.0 + math.exp(-margin))


def expected_loss(batches, model, start, lr, steps):
    """E f(x̄_T): the mean over every order in which the batches can be drawn."""
    values = []
    for drawn in itertools.product(batches, repeat=steps):
        x, mean = start, 0.0 * start
        for batch in drawn:
            mean = mean + x / steps
            loss, gradient = batch(x)
            x = x - model.step(loss, float(gradient @ gradient), lr).size * gradient
        values.append(np.mean([batch(mean)[0] for batch in batches]))
    return float(np.mean(values))


@pytest.mark.parametrize("kind", [Squares, Logistic])
@pytest.mark.parametrize("method", ["sps", "ngn"])
@given(rows=rows, comparator=st.tuples(numbers, numbers), lr=learning_rates, error=st.sampled_from([0.0, 0.5]))
def test_rates_hold_on_random_convex_problems(kind, method, rows, comparator, lr, error):
    """The proof holds for any point u in the place of x⋆; ``error`` is how far the lower bound lies too low."""
    batches = [kind(np.array(row[:2]), row[2]) for row in rows]
    start, u, steps = np.zeros(2), np.array(comparator), 4
    at_u = float(np.mean([batch(u)[0] for batch in batches]))
    smoothness = max(batch.smoothness for batch in batches) or 1.0
    bound = getattr(rates, method)(smoothness, np.linalg.norm(u), steps, lr, noise=at_u + error)
    reached = expected_loss(batches, METHODS[method](lower_bound=-error), start, lr, steps) - at_u
    assert reached <= bound.total * (1 + 1e-9) + 1e-9


def test_the_rate_of_sps_does_not_grow_under_interpolation_and_that_of_ngn_does():
    lrs = np.geomspace(0.5, 1e6, 50)
    sps, ngn = rates.sps(1.0, 2.0, 100, lrs).total, rates.ngn(1.0, 2.0, 100, lrs).total
    np.testing.assert_allclose(sps, 0.08)
    assert (ngn >= sps * (1 - 1e-12)).all()
    assert ngn[-1] > 1e5 * sps[-1]


@given(st.floats(1e-3, 1e3), st.floats(1e-3, 1e3), st.floats(0.0, 10.0))
def test_the_rate_of_sps_is_continuous_and_smallest_where_its_steps_get_shorter(smoothness, distance, noise):
    edge = 0.5 / smoothness
    below, at = (rates.sps(smoothness, distance, 7, lr, noise).total for lr in (edge * (1 - 1e-9), edge))
    assert below == pytest.approx(at, rel=1e-6)
    assert rates.sps(smoothness, distance, 7, 0.5 * edge).bias >= at - noise * (1 + 1e-9)


@given(z=st.floats(1e-6, 1e6))
def test_indices_of_smooth_losses_are_at_most_their_share_of_the_gap(z):
    """1 − κ ≥ δ/F for z ≤ 2αL: what the rates sum up, at α = 1, F = 1 and the smallest L that allows z."""
    sps = models.Truncated().step(1.0, z, 1.0)
    ngn = models.SquareRoot().step(1.0, z, 1.0)
    of_sps, of_ngn = rates.sps(0.5 * z, 1.0, 1, 1.0, noise=1.0), rates.ngn(0.5 * z, 1.0, 1, 1.0, noise=1.0)
    for delta, bound in ((sps.delta, of_sps), (models.safe_delta(1.0, z, 1.0, ngn.size), of_ngn)):
        assert delta == pytest.approx(bound.noise / (1.0 + bound.noise), rel=1e-9)  # (1 − κ), of 1/κ − 1


@pytest.mark.parametrize("method", METHODS)
@given(pieces=rows, u=st.tuples(numbers, numbers), lr=learning_rates)
def test_lipschitz_rates_hold_on_random_kinks(method, pieces, u, lr):
    """f = |⟨a, x⟩ − b|, which is convex with gradients of norm ‖a‖ and not smooth."""

    def kink(a, b):
        return lambda x: (abs(float(a @ x) - b), np.sign(float(a @ x) - b) * a)

    batches = [kink(np.array(piece[:2]), piece[2]) for piece in pieces]
    slope = max(math.hypot(*piece[:2]) for piece in pieces)
    at_u = float(np.mean([batch(np.array(u))[0] for batch in batches]))
    bound = rates.lipschitz(slope, math.hypot(*u), 4, lr, method=method)
    reached = expected_loss(batches, METHODS[method](), np.zeros(2), lr, 4) - at_u
    assert reached <= bound.total * (1 + 1e-9) + 1e-9


def test_the_papers_lipschitz_rate_fails_for_ngn():
    reached = expected_loss([lambda x: (abs(float(x[0])), np.sign(x))], models.SquareRoot(), np.ones(1), 0.5, 2)
    assert reached == pytest.approx(0.8)
    assert rates.lipschitz(1.0, 1.0, 2, 0.5).total == 0.75
    assert rates.lipschitz(1.0, 1.0, 2, 0.5, method="ngn").total == 1.0


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: rates.sps(0.0, 1.0, 1, 1.0), "smoothness must be positive, got 0"),
        (lambda: rates.ngn(1.0, 1.0, 0, 1.0), "steps must be a whole number of at least 1, got 0"),
        (lambda: rates.sps(1.0, 1.0, 1, 0.0), "lr must be positive, got 0"),
        (lambda: rates.sps(1.0, 1.0, 1, 1.0, noise=-1.0), "noise must be at least 0, got -1"),
        (lambda: rates.lipschitz(1.0, 1.0, 1, 1.0, method="adam"), "method must be one of sgd, sps, spp, ngn"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
