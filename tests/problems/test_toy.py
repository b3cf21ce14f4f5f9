from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar

from surefoot.problems import toy

points, rates = st.floats(-8.0, 8.0), st.floats(1e-3, 1e3)


@given(x=points, lr=rates)
def test_proximal_point_minimises_its_objective(x, lr):
    def objective(y):
        return toy.loss(y) + (y - x) ** 2 / (2 * lr)

    found = toy.proximal_point(x, lr)
    best = minimize_scalar(objective, bounds=(x - lr - 1, x + lr + 1), method="bounded", options={"xatol": 1e-10})
    assert objective(found) <= best.fun * (1 + 1e-12) + 1e-12


@given(x=points, y=points)
def test_slope_is_a_subgradient(x, y):
    assert toy.loss(y) >= toy.loss(x) + toy.slope(x) * (y - x) - 1e-12


def test_bad_rate_is_named():
    with pytest.raises(ValueError, match="lr must be positive, got 0"):
        toy.proximal_point(1.0, 0.0)
