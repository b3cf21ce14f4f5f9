import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from surefoot.theory import models
from surefoot.theory.bounds import expected_delta_spp, worst_delta_spp

numbers = st.floats(1e-100, 1e100)
ordinary = st.floats(1e-3, 1e3)
products = st.floats(0.0, 0.999)  # αη


def test_worst_delta_follows_the_line_then_flattens():
    z = np.array([0.5, 1.0, 2.0, 100.0])
    np.testing.assert_allclose(worst_delta_spp(1.0, 1.0, z), [0.25, 0.5, 0.75, 0.995], rtol=1e-15)


@given(numbers, numbers, numbers)
def test_convex_worst_delta_is_the_index_of_sps(gap, grad_sq, lr):
    expected = models.Truncated().step(gap, grad_sq, lr).delta
    assert worst_delta_spp(gap, grad_sq, lr) == pytest.approx(expected, rel=1e-14, abs=0)


@given(ordinary, ordinary, ordinary, products)
def test_worst_delta_agrees_with_the_dimensional_formula(gap, grad_sq, lr, product):
    eta, slope = product / lr, math.sqrt(grad_sq)
    a = lr / (1 - product)
    if a * grad_sq * (1 + eta * a / 2) <= gap:
        expected = a * grad_sq / 2
    else:
        expected = gap - (2 * gap / (slope + math.sqrt(grad_sq + 2 * eta * gap))) ** 2 / (2 * lr)
    assert worst_delta_spp(gap, grad_sq, lr, weak_convexity=eta) == pytest.approx(expected, rel=1e-9, abs=1e-12 * gap)


@given(numbers, numbers, numbers, products)
def test_worst_delta_is_at_most_the_lemmas_bound(gap, grad_sq, lr, product):
    eta = product / lr
    worst = worst_delta_spp(gap, grad_sq, lr, weak_convexity=eta)
    assert 0 <= worst <= expected_delta_spp(lr, grad_sq, gap, 0.0, eta)


@given(st.floats(0.1, 10.0), st.floats(0.1, 10.0), st.floats(0.1, 10.0), st.floats(0.0, 0.9))
def test_worst_delta_is_attained_by_a_parabola_cut_off_at_the_infimum(gap, slope, lr, product):
    eta = product / lr
    end = 2 * gap / (slope + math.sqrt(slope**2 + 2 * eta * gap))  # where the parabola reaches the infimum, 0

    def objective(s):
        return max(gap - slope * s - eta / 2 * s**2, 0.0) + s**2 / (2 * lr)

    found = minimize_scalar(objective, bounds=(0.0, end), method="bounded", options={"xatol": 1e-12})
    attained = gap - min(found.fun, objective(end))
    assert attained == pytest.approx(worst_delta_spp(gap, slope**2, lr, weak_convexity=eta), rel=1e-6)


@pytest.mark.parametrize(
    ("gap", "grad_sq", "lr", "expected"),
    [
        (0.0, 1.0, 1.0, 0.0),
        (1.0, 0.0, 1.0, 0.0),
        (1.0, 1.0, 0.0, 0.0),
        (1.0, 1e300, 1e300, 1.0),  # the whole gap
        (math.inf, 3.0, 4.0, 6.0),  # the index of SGD
        (np.ones((3, 1)), 1.0, np.ones(4), np.full((3, 4), 0.5)),
    ],
)
def test_worst_delta_at_the_edges(gap, grad_sq, lr, expected):
    np.testing.assert_array_equal(worst_delta_spp(gap, grad_sq, lr), expected)


@pytest.mark.parametrize(
    ("arguments", "options", "named"),
    [
        ((-1.0, 1.0, 1.0), {}, "gap"),
        ((1.0, -1.0, 1.0), {}, "grad_sq"),
        ((1.0, 1.0, math.inf), {}, "lr"),
        ((1.0, 1.0, math.nan), {}, "lr"),
        ((1.0, 1.0, 1.0), {"weak_convexity": math.nan}, "weak_convexity"),
        ((1.0, 1.0, 1.0), {"weak_convexity": -1.0}, "weak_convexity"),
        ((1.0, 1.0, 1.0), {"weak_convexity": 1.0}, "1/weak_convexity"),
    ],
)
def test_bad_arguments_are_named(arguments, options, named):
    with pytest.raises(ValueError, match=named):
        worst_delta_spp(*arguments, **options)
