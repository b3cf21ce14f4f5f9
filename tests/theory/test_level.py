"""The level: the base inequality on both sides of the infimum, and what is remembered of the losses."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from surefoot.theory import level, models

jax.config.update("jax_enable_x64", True)

coordinate = st.floats(-10, 10)
vector = st.tuples(coordinate, coordinate).map(np.array)
share = st.floats(0.01, 0.99)
losses = st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=8)

Loss = Callable[[Any], tuple[float, Any]]
"""Value and a subgradient of a convex loss."""


def absolute(a: Any, b: Any, floor: float) -> Loss:
    return lambda x: (abs(a @ x - b[0]) + floor, math.copysign(1.0, a @ x - b[0]) * a)


def square(a: Any, b: Any, floor: float) -> Loss:
    return lambda x: (0.5 * float(a @ x - b[0]) ** 2 + floor, (a @ x - b[0]) * a)


def hinge(a: Any, b: Any, floor: float) -> Loss:
    return lambda x: (max(1 - a @ x, 0.0) + floor, -a if a @ x < 1 else 0 * a)


def logistic(a: Any, b: Any, floor: float) -> Loss:
    return lambda x: (float(np.logaddexp(0, -a @ x)) + floor, -a / (1 + np.exp(a @ x)))


def largest(a: Any, b: Any, floor: float) -> Loss:
    """The largest of two affine functions and the floor."""

    def value(x: Any) -> tuple[float, Any]:
        return max((a @ x - b[0] + floor, a), (b @ x - a[0] + floor, b), (floor, 0 * a), key=lambda piece: piece[0])

    return lambda x: (float(value(x)[0]), value(x)[1])


FAMILIES = [absolute, square, hinge, logistic, largest]


def slack(loss: Loss, x: Any, u: Any, bound: float, lr: float, scale: float, comparator: float) -> tuple[float, float]:
    """Right minus left side of the base inequality, and the size of the numbers that it is made of."""
    value, gradient = loss(x)
    grad_sq = float(gradient @ gradient)
    delta = float(models.safe_delta(value, grad_sq, lr, size=scale * lr, lower_bound=bound))
    after = x - scale * lr * gradient
    sides = 0.5 * float((x - u) @ (x - u)) - 0.5 * float((after - u) @ (after - u))
    numbers = float((x - u) @ (x - u) + after @ after + u @ u) + lr * (abs(value) + abs(comparator) + abs(bound))
    numbers += lr * math.sqrt(grad_sq) * float(1 + np.linalg.norm(x) + np.linalg.norm(u))
    return sides - lr * (value - comparator - delta), numbers


@pytest.mark.parametrize("side", ["below", "above"])
@pytest.mark.parametrize("family", FAMILIES)
@given(
    a=vector,
    b=vector,
    floor=coordinate,
    x=vector,
    u=vector,
    gap=share,
    lr=st.floats(1e-3, 1e3),
    scale=st.floats(0, 1),
)
def test_the_base_inequality_holds_with_a_level(
    family: Any, side: str, a: Any, b: Any, floor: float, x: Any, u: Any, gap: float, lr: float, scale: float
) -> None:
    """``floor`` is the infimum of all but the largest of affine functions, where it is below that."""
    loss = family(a, b, floor)
    value = loss(x)[0]
    bound = floor - 10 * gap if side == "below" else floor + gap * (value - floor)
    if not bound < value:
        return
    spare, numbers = slack(loss, x, u, bound, lr, scale, max(loss(u)[0], bound))
    assert spare >= -1e-11 * numbers


def test_a_level_above_the_comparator_has_its_price() -> None:
    """With f(u) in place of max{f(u), C} the inequality fails: |x| at 1, C = ½, u = 0, and the step of SPS."""
    loss, x, u = absolute(np.array([1.0, 0.0]), np.zeros(2), 0.0), np.array([1.0, 0.0]), np.zeros(2)
    lr = 10.0
    scale = models.Truncated(lower_bound=0.5).step(1.0, 1.0, lr).size / lr
    assert slack(loss, x, u, 0.5, lr, scale, comparator=0.0)[0] < -1.0
    assert slack(loss, x, u, 0.5, lr, scale, comparator=0.5)[0] > 0.0


RULE = level.Rule()


def run(values: Any, rule: level.Rule = RULE, decreases: Any = None) -> level.Seen:
    """What is remembered of losses in turn."""
    seen = level.Seen()
    for value, decrease in zip(values, [1.0] * len(values) if decreases is None else decreases, strict=True):
        seen = level.observe(rule, seen, value, decrease).seen
    return seen


@given(values=losses, smoothing=st.floats(0, 0.99))
def test_what_is_remembered_is_what_was_seen(values: list[float], smoothing: float) -> None:
    averages = [np.average(values[:k], weights=smoothing ** np.arange(k)[::-1]) for k in range(1, len(values) + 1)]
    seen = run(values, level.Rule(smoothing=smoothing))
    assert (seen.count, seen.first, seen.lowest) == (len(values), values[0], min(values))
    assert seen.smooth == pytest.approx(averages[-1], rel=1e-9, abs=1e-9)
    assert seen.best == pytest.approx(min(averages), rel=1e-9, abs=1e-9)
    assert seen.promise == pytest.approx(1.0)


@given(values=losses, share=share, start=share, value=st.floats(-1e3, 1e3))
def test_the_gap_is_what_the_docstring_says(values: list[float], share: float, start: float, value: float) -> None:
    rule = level.Rule(share, start)
    seen, found, _ = level.observe(rule, run(values[:-1], rule), values[-1], 1.0, value)
    gain = max(share * (seen.first - seen.best), start * (abs(seen.first) or 1.0))
    if min(values) >= 0 and values[0] > 0:
        gain = min(gain, seen.best)
    assert found == pytest.approx(max(value - seen.best, 0.0) + gain, rel=1e-12)
    assert found >= gain >= 0


@given(values=losses.filter(lambda values: values[0] != 0), unit=st.sampled_from([2.0**-20, 2.0**20]))
def test_the_gap_has_the_unit_of_the_loss(values: list[float], unit: float) -> None:
    plain, scaled = (level.observe(level.Rule(), run([u * v for v in values]), u, 1.0).gap for u in (1.0, unit))
    assert scaled == pytest.approx(unit * plain, rel=1e-9)


@given(decreases=st.lists(st.floats(0, 1e6), min_size=1, max_size=8))
def test_a_steady_decrease_is_no_less_than_the_batchs(decreases: list[float]) -> None:
    seen = run([1.0] * (len(decreases) - 1), decreases=decreases[:-1])
    found = level.observe(level.Rule(), seen, 1.0, decreases[-1])
    assert found.decrease == max(decreases[-1], found.seen.promise)
    assert found.decrease <= max(decreases) * (1 + 1e-12)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_batch_that_is_not_finite_gives_no_step_and_is_not_remembered(bad: float) -> None:
    seen = run([2.0, 1.0])
    for loss, decrease in ((bad, 1.0), (1.0, bad)):
        with np.errstate(all="ignore"):
            kept, step = level.step(models.Truncated(), level.Rule(), seen, np.float64(loss), np.float64(decrease))
        assert kept == seen
        assert step == (0.0, math.inf)


SEQUENCES = np.array(
    [[3.0, 2.0, 50.0, 1.0], [0.0, 0.0, 1.0, 0.5], [-1.0, -2.0, 5.0, -3.0], [0.0, -1.0, 2.0, 1.0], [1e6, 1.0, 1e-6, 0.0]]
)
DECREASES = np.array([[1.0, 0.0, 3.0, 1e-9]] * len(SEQUENCES))


def everything(values: Any, decreases: Any) -> list[Any]:
    """All numbers of this module, of losses and decreases in turn."""
    seen, found, rule = level.Seen(), [], level.Rule(0.3, 0.05, 0.7)
    for value, decrease in zip(values, decreases, strict=True):
        step = level.step(models.SquareRoot(), rule, seen, value, decrease)[1]
        seen, gap, steady = level.observe(rule, seen, value, decrease)
        found += [*seen, gap, steady, *step]
    return found


@pytest.mark.parametrize("convert", [np.asarray, torch.from_numpy, jnp.asarray], ids=["numpy", "torch", "jax"])
def test_arrays_have_the_numbers_of_floats(convert: Any) -> None:
    expected = np.array([everything(*rows) for rows in zip(SEQUENCES.tolist(), DECREASES.tolist(), strict=True)]).T
    found = everything(list(map(convert, SEQUENCES.T.copy())), list(map(convert, DECREASES.T.copy())))
    np.testing.assert_allclose(np.array(np.broadcast_arrays(*map(np.asarray, found))), expected, rtol=1e-13)


@pytest.mark.parametrize("library", [np, torch, jnp])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_dtype_is_kept(library: Any, dtype: str) -> None:
    one = library.ones(2, dtype=getattr(library, dtype))
    ask = functools.partial(jax.eval_shape, everything) if library is jnp else everything
    numbers = ask([one, one], [one, one])  # JAX says what it would compute
    assert {str(each.dtype).removeprefix("torch.") for each in numbers} == {dtype}
