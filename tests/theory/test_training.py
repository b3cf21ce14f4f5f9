"""What training adds to a model's step, held against its definition."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surefoot.theory import models, training

positive = st.floats(1e-3, 1e3)
coordinate = st.floats(-10, 10)


def proximal_objective(
    model: models.Model, y: list[float], x: list[float], g: list[float], f: float, lr: Any, lam: Any
) -> float:
    """f_x(y) + Σ λ/2 y² + (y − x)²/(2α), with the positive part of the square for the square root model."""
    inner = sum(gi * (yi - xi) for gi, yi, xi in zip(g, y, x, strict=True))
    if isinstance(model, models.Linear):
        value = f + inner
    elif isinstance(model, models.Truncated):
        value = max(f + inner, 0.0)
    else:
        value = max(math.sqrt(f) + inner / (2 * math.sqrt(f)), 0.0) ** 2
    pairs = zip(y, x, lr, lam, strict=True)
    return value + sum(0.5 * li * yi**2 + (yi - xi) ** 2 / (2 * ai) for yi, xi, ai, li in pairs)


@pytest.mark.parametrize("model", [models.Linear(), models.Truncated(), models.SquareRoot()], ids=repr)
@given(
    x=st.tuples(coordinate, coordinate),
    g=st.tuples(coordinate.filter(lambda v: abs(v) > 1e-2), coordinate),
    f=positive,
    lr=st.tuples(positive, positive),
    lam=st.tuples(st.floats(0, 10), st.floats(0, 10)),
)
def test_proximal_step_minimises_and_its_index_is_the_drop(
    model: models.Model, x: Any, g: Any, f: Any, lr: Any, lam: Any
) -> None:
    h = [a / (1 + a * w) for a, w in zip(lr, lam, strict=True)]
    decrease = sum(hi * gi**2 for hi, gi in zip(h, g, strict=True))
    drift = sum(hi * wi * gi * xi for hi, wi, gi, xi in zip(h, lam, g, x, strict=True))
    regulariser = sum(hi * wi**2 * xi**2 for hi, wi, xi in zip(h, lam, x, strict=True))
    t, delta = training.proximal_step(model, f, decrease, drift, regulariser)

    def at(scale: float) -> float:
        y = [(xi - scale * a * gi) / (1 + a * wi) for xi, a, gi, wi in zip(x, lr, g, lam, strict=True)]
        return proximal_objective(model, y, x, g, f, lr, lam)

    before = f + sum(0.5 * wi * xi**2 for wi, xi in zip(lam, x, strict=True))
    scale = 1e-9 * (1 + before + abs(drift) + decrease + drift**2 / f)
    assert t >= 0
    assert before - at(t) == pytest.approx(delta, abs=scale, rel=1e-7)
    for other in (0.0, 0.5 * t, 0.99 * t, 1.01 * t, 2 * t, t + 0.1):
        assert at(t) <= at(other) + scale
    assert delta >= -scale


@pytest.mark.parametrize("model", [models.Linear(), models.Truncated(), models.SquareRoot()], ids=repr)
def test_proximal_step_of_a_loss_that_is_no_number_has_an_infinite_index(model: models.Model) -> None:
    assert training.proximal_step(model, math.nan, 1.0, 0.5, 0.1) == (0.0, math.inf)


@pytest.mark.parametrize("model", [models.Truncated(), models.SquareRoot()], ids=repr)
def test_proximal_step_of_a_loss_below_its_bound_is_weight_decay_alone(model: models.Model) -> None:
    assert training.proximal_step(model, -1.0, 1.0, 0.5, 0.25) == (0.0, 0.125)


def test_proximal_step_refuses_models_without_a_formula() -> None:
    with pytest.raises(ValueError, match="proximal weight decay is known for"):
        training.proximal_step(models.Exponential(), 1.0, 1.0, 0.0, 0.0)


@given(beta=st.floats(0, 0.99), terms=st.lists(coordinate, min_size=1, max_size=8))
def test_bias_corrected_weights_give_the_corrected_average(beta: float, terms: list[float]) -> None:
    average, raw = 0.0, 0.0
    for k, term in enumerate(terms, 1):
        average += training.average_weight(beta, float(k), bias_correction=True) * (term - average)
        raw = beta * raw + (1 - beta) * term
    assert average == pytest.approx(raw / (1 - beta ** len(terms)), rel=1e-9, abs=1e-9)


@given(beta=st.floats(0, 0.99), sizes=st.lists(st.floats(0, 10), min_size=1, max_size=8))
def test_heavy_ball_as_a_mean_is_the_heavy_ball(beta: float, sizes: list[float]) -> None:
    scale = mean = momentum = 0.0
    for k, size in enumerate(sizes):
        direction = math.cos(k)
        scale, weight = training.heavy_ball_weight(scale, size, beta)
        mean += weight * (direction - mean)
        momentum = beta * momentum + (1 - beta) * size * direction
    assert scale * mean == pytest.approx(momentum, rel=1e-9, abs=1e-9)


@given(grad_sq=st.floats(0, 1e12), limit=positive)
def test_a_clipped_rate_keeps_the_step_within_the_limit(grad_sq: float, limit: float) -> None:
    factor = training.clip_factor(grad_sq, limit)
    assert 0 < factor <= 1
    assert factor * math.sqrt(grad_sq) <= limit * (1 + 1e-12)


def test_a_limit_whose_square_overflows_clips_nothing() -> None:
    assert training.clip_factor(4.0, 1e200) == 1.0
