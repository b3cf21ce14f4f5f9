from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from surefoot.theory import bounds, models


def double_sum(lrs, deltas, distance):
    """Theorem 3.4 as it is printed, in exact rational arithmetic."""
    a, d = [Fraction(x) for x in lrs], [Fraction(x) for x in deltas]
    T = len(a)
    total = Fraction(distance) ** 2 / (2 * sum(a)) + sum(x * y for x, y in zip(a, d, strict=True)) / sum(a)
    for k in range(T - 1):
        inner = sum(x * y for x, y in zip(a[k:], d[k:], strict=True)) / sum(a[k:])
        total += a[k] / sum(a[k + 1 :]) * inner
    return total


def traces(max_steps=20, low=1e-3):
    """Rates that may span twenty orders of magnitude, and indices."""
    rates = st.floats(min_value=low, max_value=1e10)
    return st.integers(1, max_steps).flatmap(
        lambda T: st.tuples(
            hnp.arrays(float, T, elements=rates), hnp.arrays(float, T, elements=st.floats(0.0, 1e6, width=64))
        )
    )


@given(traces(low=1e-10), st.floats(0.0, 1e3))
def test_last_iterate_is_the_double_sum(trace, distance):
    lrs, deltas = trace
    expected = double_sum(lrs.tolist(), deltas.tolist(), distance)
    assert bounds.last_iterate(lrs, deltas, distance).total == pytest.approx(float(expected), rel=1e-12, abs=1e-300)


@given(traces(), st.floats(0.0, 1e3))
def test_average_is_below_last(trace, distance):
    lrs, deltas = trace
    average, last = bounds.average_iterate(lrs, deltas, distance), bounds.last_iterate(lrs, deltas, distance)
    assert average.bias == last.bias
    assert average.noise <= last.noise * (1 + 1e-12) + 1e-300


@given(st.integers(1, 50), st.floats(1e-6, 1e6), st.floats(0.0, 2.0), st.floats(0.0, 10.0))
def test_constant_schedule_is_the_closed_form(T, lr, nu, distance):
    closed = bounds.power_law(lr, T, distance, nu)
    bound = bounds.last_iterate(np.full(T, lr), np.full(T, lr**nu), distance)
    assert bound.bias == pytest.approx(closed.bias, rel=1e-12)
    assert bound.noise == pytest.approx(closed.noise, rel=1e-12)


@given(traces())
def test_terms_add_up_and_partial_sums_only_grow(trace):
    terms = bounds.last_iterate_terms(*trace)
    assert (terms >= 0).all()
    assert terms.sum() == pytest.approx(bounds.last_iterate(*trace, 0.0).noise, rel=1e-12, abs=1e-300)


def test_broadcasting_over_leading_axes():
    rng = np.random.default_rng(0)
    lrs, deltas = rng.random((3, 1, 7)) + 0.1, rng.random((3, 4, 7))
    bound = bounds.last_iterate(lrs, deltas, distance=np.array([1.0, 2.0, 3.0])[:, None])
    assert bound.noise.shape == (3, 4)
    for i in range(3):
        for j in range(4):
            single = bounds.last_iterate(lrs[i, 0], deltas[i, j], distance=i + 1.0)
            assert bound.noise[i, j] == pytest.approx(single.noise, rel=1e-14)
            assert bound.total[i, j] == pytest.approx(single.total, rel=1e-14)


def test_rates_that_end_in_zero_bound_nothing():
    """x²/2 from 1 with SGD: the last step overshoots to 6.48 = f(x_3), which no finite number of its indices bounds."""
    x, rates, deltas = 1.0, np.array([0.1, 5.0, 0.0]), []
    for rate in rates:
        last, before = 0.5 * x * x, x
        deltas.append(models.Linear().step(last, x * x, float(rate)).delta)
        x -= rate * x
    assert last == pytest.approx(6.48)
    assert bounds.last_iterate(rates, deltas, 1.0).total == math.inf
    moving = bounds.last_iterate(rates[:2], deltas[:2], 1.0)  # of the point before the last step that moves
    assert 0.5 * 0.9**2 <= moving.total < math.inf
    assert before == x  # the step of rate 0
    both = bounds.last_iterate(np.stack([rates, np.ones(3)]), np.stack([deltas, np.ones(3)]), 1.0).total
    assert np.isinf(both).tolist() == [True, False]


def test_a_last_step_that_is_certain_costs_nothing():
    """Zeros behind a step with δ = 0, as at a minimum, leave the bound of the steps before it finite."""
    assert bounds.last_iterate([1.0, 1.0, 0.0], [0.5, 0.0, 0.0], 2.0).total == 1.5


def test_divergence_gives_infinity_never_nan():
    lrs = np.array([0.0, 1.0, 1.0])
    assert bounds.last_iterate(lrs, [math.inf, 1.0, 1.0], 1.0).total < math.inf  # a zero rate does not move
    for bound in (bounds.last_iterate, bounds.average_iterate):
        assert bound([1.0, 1.0], [1.0, math.inf], 1.0).total == math.inf


@pytest.mark.parametrize(
    ("lrs", "deltas", "distance", "message"),
    [
        ([1.0, -1.0], [1.0, 1.0], 1.0, "lrs must be finite and at least 0, and so must their sum, got -1"),
        ([1.0, math.nan], [1.0, 1.0], 1.0, "lrs must be finite and at least 0, and so must their sum, got nan"),
        ([1e308, 1e308], [1.0, 1.0], 1.0, "lrs must be finite and at least 0, and so must their sum, got 1e\\+308"),
        ([0.0, 0.0], [1.0, 1.0], 1.0, "at least one positive rate"),
        ([1.0, 1.0], [1.0], 1.0, "same number of steps"),
        ([1.0, 1.0], [1.0, math.nan], 1.0, "deltas must not contain NaN"),
        ([1.0, 1.0], [1.0, 1.0], -1.0, "distance must be at least 0, got -1"),
        ([1.0, 1.0], [1.0, 1.0], "a", "distance must be numbers, got 'a'"),
        ([], [], 1.0, "at least one step"),
    ],
)
def test_bad_input_is_named(lrs, deltas, distance, message):
    with pytest.raises(ValueError, match=message):
        bounds.last_iterate(lrs, deltas, distance)


def test_expected_indices_of_an_infinite_rate_are_capped():
    assert bounds.expected_delta_spp(math.inf, 1.0, 0.5, 0.25) == 0.75
    assert bounds.expected_delta_spp(math.inf, 0.0, 0.5, 0.25) == 0.0
    assert bounds.expected_delta_sps(math.inf, [0.0, 1.0], 0.5, 0.25, 0.0).tolist() == [0.0, 0.75]
    assert bounds.expected_delta_spp(0.5, 1.0, 9.0, 0.0, weak_convexity=1.0) == 0.5


def test_envelope_bias_is_never_above_any_distance_bias():
    rng = np.random.default_rng(2)
    lrs, losses, distances = rng.random((4, 5)) + 0.1, rng.random(6), rng.random(6)
    best = bounds.envelope_bias(lrs, losses, distances)
    for loss, distance in zip(losses, distances, strict=True):
        assert (best <= loss + bounds.distance_bias(lrs, distance) + 1e-15).all()


class TestWeaklyConvex:
    def test_is_the_theorem_and_its_sharp_form_is_half(self):
        lrs, deltas = np.array([0.1, 0.2]), np.array([1.0, 3.0])
        rho, lam, rho_bar = 0.5, 1.0, 4.0
        bound = bounds.weakly_convex(lrs, deltas, 2.0, rho=rho, lam=lam, rho_bar=rho_bar)
        gap = rho_bar - rho - lam
        assert bound.bias == pytest.approx(2 * rho_bar / gap * 2.0)
        assert bound.noise == pytest.approx(2 * rho_bar**2 / gap * (0.1 / 0.9 * 1.0 + 0.2 / 0.8 * 3.0))
        sharp = bounds.weakly_convex(lrs, deltas, 2.0, rho=rho, lam=lam, rho_bar=rho_bar, sharp=True)
        assert sharp.total == pytest.approx(bound.total / 2)

    @given(start=st.floats(-2.0, 2.0), lr=st.floats(0.001, 0.2))
    def test_holds_for_gradient_descent_on_a_weakly_convex_function(self, start, lr):
        """f = cos, 1-weakly convex; deterministic, so the expectation is the value itself."""
        T, rho_bar = 12, 3.0
        grid = np.linspace(-8.0, 8.0, 40_001)

        def envelope(x):
            values = np.cos(grid) + 0.5 * rho_bar * (grid - x) ** 2
            best = values.argmin()
            return values[best], rho_bar * (x - grid[best])

        x, left, deltas, first = start, 0.0, [], envelope(start)[0]
        for _ in range(T):
            left += lr * envelope(x)[1] ** 2
            deltas.append(models.Linear().step(math.cos(x), math.sin(x) ** 2, lr).delta)
            x += lr * math.sin(x)
        sharp = bounds.weakly_convex(
            np.full(T, lr), deltas, first - envelope(x)[0], rho=1.0, lam=0.0, rho_bar=rho_bar, sharp=True
        )
        assert left <= sharp.total + 1e-3 * (1 + sharp.total)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"rho": -1.0, "lam": 0.0, "rho_bar": 2.0}, "rho must be"),
            ({"rho": 1.0, "lam": 1.0, "rho_bar": 2.0}, "rho_bar must be larger than rho"),
            ({"rho": 1.0, "lam": 0.0, "rho_bar": 20.0}, "lrs must be below 1/rho_bar"),
        ],
    )
    def test_bad_constants_are_named(self, options, message):
        with pytest.raises(ValueError, match=message):
            bounds.weakly_convex([0.1], [1.0], 1.0, **options)

    def test_an_unknown_envelope_is_refused(self):
        with pytest.raises(ValueError, match="envelope_gap must not be NaN, got nan"):
            bounds.weakly_convex([0.1], [1.0], math.nan, rho=1.0, lam=0.0, rho_bar=2.0)


def test_reshuffling_can_violate_the_bound():
    """n = 2, f₁ = x²/2, f₂ = 0, α = 10, T = 2, from x = 1: E f(x_2) = 10.25 over the two orders, Ω = 5.03."""
    lr, orders = 10.0, [(1.0, 0.0), (0.0, 1.0)]
    losses, deltas = [], []
    for order in orders:
        x, indices = 1.0, []
        for step, curvature in enumerate(order):
            if step == 1:
                losses.append(0.25 * x * x)
            indices.append(models.Linear().step(0.5 * curvature * x * x, (curvature * x) ** 2, lr).delta)
            x -= lr * curvature * x
        deltas.append(indices)
    bound = bounds.last_iterate(np.full(2, lr), np.mean(deltas, axis=0), 1.0)
    assert np.mean(losses) == pytest.approx(10.25)
    assert bound.total == pytest.approx(5.025)


class TestClosedForms:
    def test_loizou_grows_linearly_beyond_its_threshold(self):
        small, large = (bounds.loizou_sps(lr, 10, 1.0, 2.0, 0.5) for lr in (1.0, 2.0))
        assert large.noise == pytest.approx(2 * small.noise)
        assert large.bias == small.bias == pytest.approx(1.0 / (0.25 * 10))


class TestConstants:
    def test_sigma_and_lower_bound_error_decompose_the_gap(self):
        at_optimum, infima, guesses = np.array([0.5, 0.7]), np.array([0.4, 0.2]), np.array([0.0, -1.0])
        sigma = bounds.interpolation_constant(at_optimum, infima)
        error = bounds.lower_bound_error(infima, guesses)
        assert sigma + error == pytest.approx((at_optimum - guesses).mean())

    def test_impossible_constants_are_refused(self):
        with pytest.raises(ValueError, match="infima"):
            bounds.interpolation_constant([0.1, 0.1], [0.2, 0.0])
        with pytest.raises(ValueError, match="lower_bounds"):
            bounds.lower_bound_error([0.1], [0.2])

    @given(st.lists(st.floats(0.01, 10.0), min_size=1, max_size=8), st.floats(1e-3, 1e3))
    def test_expected_index_of_sps_is_bounded(self, losses, lr):
        losses = np.array(losses)
        deltas = models.Truncated().step(losses, losses**2, lr).delta
        limit = bounds.expected_delta_sps(lr, (losses**2).mean(), losses.mean(), 0.0, 0.0)
        assert deltas.mean() <= limit * (1 + 1e-12)
