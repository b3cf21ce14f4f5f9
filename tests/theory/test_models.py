"""Every inequality and identity that the models promise, over the whole float range."""

from __future__ import annotations

import math

import mpmath as mp
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from tests.theory.reference import base_inequality_slack
from tests.theory.reference import step as exact_step

from surefoot.theory import models


def name(model):
    """A test id without addresses."""
    return {id(SQUARE): "square", id(LOG_EXP): "log-exp"}.get(id(model), repr(model))


MAX, TINY = 1.7976931348623157e308, 5e-324
positive = st.floats(min_value=TINY, max_value=MAX)
moderate = st.floats(min_value=1e-30, max_value=1e30)
exponents = st.floats(min_value=-8.0, max_value=1.0)

CLOSED = {
    "linear": models.Linear(),
    "truncated": models.Truncated(),
    "root": models.SquareRoot(),
    "exponential": models.Exponential(),
}
SQUARE = models.Composite(np.sqrt, lambda x: 0.5 / np.sqrt(x), lambda y: y * y, lambda y: 2.0 * y)
LOG_EXP = models.Composite(math.log, lambda x: 1.0 / x, math.exp, math.exp)
MODELS = [*CLOSED.values(), models.Power(0.25), models.Power(0.9), models.Power(-1.5), SQUARE, LOG_EXP]


def close(value: float, exact: mp.mpf, rel: float) -> bool:
    """Equal to a relative error, or to a few units of the denormal range."""
    if abs(exact) > MAX:
        return math.isinf(value) or value >= MAX * (1 - rel)
    return abs(mp.mpf(value) - exact) <= rel * abs(exact) + mp.mpf(TINY) * 4


@pytest.mark.parametrize("kind", CLOSED)
@given(loss=positive, grad_sq=st.floats(min_value=0.0, max_value=MAX), lr=positive)
def test_closed_models_are_exact_over_the_whole_float_range(kind, loss, grad_sq, lr):
    step = CLOSED[kind].step(loss, grad_sq, lr)
    size, delta = exact_step(kind, loss, grad_sq, lr)
    # The Lambert-W step multiplies F/‖g‖², which is a rounded denormal where it is very small, by up to W ≈ 2000.
    slack = mp.mpf(TINY) * 4000 if kind == "exponential" else 0
    assert close(step.size, size, 2e-14) or abs(mp.mpf(step.size) - size) <= slack
    assert close(step.delta, delta, 2e-14)


@given(z=st.floats(min_value=1e-15, max_value=1e15), below_one=st.floats(min_value=1e-15, max_value=1e-3))
@pytest.mark.parametrize(("kind", "rel"), [(np.float64, 1e-13), (np.float32, 1e-4)])
def test_power_just_below_one_is_nearly_sps(kind, rel, z, below_one):
    """The step lies between Polyak's and one that is a little longer; a series for small z must not reach here."""
    rate = kind(z)
    near = models.Power(1 - below_one).step(kind(1), kind(1), rate)
    polyak = models.Truncated().step(kind(1), kind(1), rate)
    slack = 60 * below_one + rel  # log t = (1 − p)/p · log(1 − p z t): the step is this close to its limit
    assert near.size == pytest.approx(polyak.size, rel=slack)
    assert near.delta == pytest.approx(polyak.delta, rel=slack)


@given(z=st.floats(min_value=1e-15, max_value=1e15), p=exponents)
def test_power_is_accurate_to_1e_13(z, p):
    assume(abs(p) > 1e-9)  # the reference needs 1/p
    step = models.Power(p).step(1.0, z, 1.0)
    size, delta = exact_step("power", 1.0, z, 1.0, p=p)
    assert close(step.size, size, 1e-13)
    assert close(step.delta, delta, 1e-13)


@given(loss=positive, grad_sq=positive, lr=positive, p=exponents)
def test_power_never_leaves_its_range(loss, grad_sq, lr, p):
    step = models.Power(p).step(loss, grad_sq, lr)
    assert 0 <= step.size <= lr
    assert 0 <= step.delta <= loss * (1 + 1e-14)


@pytest.mark.parametrize("model", MODELS, ids=name)
@given(loss=moderate, grad_sq=moderate, lr=moderate)
def test_delta_is_between_zero_and_that_of_sgd(model, loss, grad_sq, lr):
    step = model.step(loss, grad_sq, lr)
    assert 0 <= step.delta <= models.Linear().step(loss, grad_sq, lr).delta * (1 + 1e-13)
    assert 0 <= step.size <= lr


@pytest.mark.parametrize("model", MODELS, ids=name)
@given(loss=st.floats(0.1, 10.0), z=st.floats(0.01, 100.0), lr=st.floats(0.1, 10.0))
def test_closed_form_is_the_definition_of_delta(model, loss, z, lr):
    grad_sq = z * loss / lr
    step = model.step(loss, grad_sq, lr)
    defined = loss - model.value(loss, grad_sq, step.size) - step.size**2 * grad_sq / (2 * lr)
    assert step.delta == pytest.approx(defined, rel=1e-9, abs=1e-13 * (loss + lr * grad_sq))


@pytest.mark.parametrize("model", MODELS, ids=name)
@given(loss=st.floats(0.1, 10.0), z=st.floats(0.01, 100.0), lr=st.floats(0.1, 10.0), bound=st.floats(-5.0, 0.05))
def test_step_minimises_the_regularised_model(model, loss, z, lr, bound):
    if not isinstance(model, models.Linear):
        model = type(model)(**{**vars(model), "lower_bound": bound})
    grad_sq = z * loss / lr
    step = model.step(loss, grad_sq, lr)

    def regularised(size):
        return model.value(loss, grad_sq, size) + size**2 * grad_sq / (2 * lr)

    best = minimize_scalar(regularised, bounds=(0.0, 1.2 * lr), method="bounded", options={"xatol": 1e-10 * lr})
    scale = abs(loss) + lr * grad_sq
    assert regularised(step.size) <= best.fun + 1e-9 * scale


@pytest.mark.parametrize("model", MODELS, ids=name)
@given(loss=st.floats(0.1, 10.0), grad_sq=st.floats(0.1, 10.0), lr=st.floats(1e-3, 1e3), power=st.integers(-500, 500))
def test_the_unit_of_the_loss_does_not_matter(model, loss, grad_sq, lr, power):
    """c·f has the gradient c·g; at the rate α/c the step is the same, and δ is c times as large. c is a power of 2."""
    step = model.step(loss, grad_sq, lr)
    other = model.step(math.ldexp(loss, power), math.ldexp(grad_sq, 2 * power), math.ldexp(lr, -power))
    # Maps of the user's may lose digits: log F has few where F is far from 1.
    slack = 1e-11 if isinstance(model, models.Composite) else 0.0
    assert math.ldexp(other.delta, -power) == pytest.approx(step.delta, rel=slack, abs=0.0)
    size = math.ldexp(other.size, power)
    assert size * grad_sq == pytest.approx(step.size * grad_sq, rel=slack, abs=0.0)
    safe = models.safe_delta(*(math.ldexp(x, k * power) for x, k in ((loss, 1), (grad_sq, 2), (lr, -1))), other.size)
    assert math.ldexp(safe, -power) == pytest.approx(models.safe_delta(loss, grad_sq, lr, size), rel=1e-15)


@given(z=st.floats(1e-12, 1e12), p=exponents, r=exponents)
def test_ladder_delta_rises_with_p(z, p, r):
    low, high = sorted((p, r))
    assert models.Power(low).step(1.0, z, 1.0).delta <= models.Power(high).step(1.0, z, 1.0).delta * (1 + 1e-13)


@given(loss=positive, grad_sq=positive, lr=positive)
def test_power_family_contains_the_named_models(loss, grad_sq, lr):
    assert models.Power(1.0).step(loss, grad_sq, lr) == models.Truncated().step(loss, grad_sq, lr)
    assert models.Power(0.5).step(loss, grad_sq, lr) == models.SquareRoot().step(loss, grad_sq, lr)
    assert models.Power(0.0).step(loss, grad_sq, lr) == models.Exponential().step(loss, grad_sq, lr)


@pytest.mark.parametrize("sign", [1, -1])
@given(z=st.floats(1e-12, 1e12))
def test_power_tends_to_exponential_and_to_its_neighbours(sign, z):
    near, limit = models.Power(sign * 1e-9).step(1.0, z, 1.0), models.Exponential().step(1.0, z, 1.0)
    assert near.size == pytest.approx(limit.size, rel=1e-6)
    assert near.delta == pytest.approx(limit.delta, rel=1e-6)
    beside, named = models.Power(0.5 + sign * 1e-9).step(1.0, z, 1.0), models.SquareRoot().step(1.0, z, 1.0)
    assert beside.delta == pytest.approx(named.delta, rel=1e-6)


@pytest.mark.parametrize(
    ("composite", "named"), [(SQUARE, models.SquareRoot()), (LOG_EXP, models.Exponential())], ids=name
)
@given(loss=st.floats(1e-20, 1e20), z=st.floats(1e-12, 1e12), lr=st.floats(1e-5, 1e5))
def test_composite_reproduces_the_named_models(composite, named, loss, z, lr):
    grad_sq = z * loss / lr
    step, expected = composite.step(loss, grad_sq, lr), named.step(loss, grad_sq, lr)
    assert step.size == pytest.approx(expected.size, rel=2e-13)
    assert step.delta == pytest.approx(expected.delta, rel=1e-12)


@pytest.mark.parametrize(
    ("maps", "named"),
    [
        ((np.sqrt, lambda x: 0.5 / np.sqrt(x), lambda y: y * y * y, lambda y: 3 * y * y), "B1"),
        ((np.sqrt, lambda x: 1.0 / np.sqrt(x), lambda y: y * y, lambda y: 2 * y), "B3"),
        ((np.sqrt, lambda x: 0.5 / np.sqrt(x), lambda y: y * y, lambda y: 3 * y), "B2"),
        ((lambda x: x**2, lambda x: 2 * x, np.sqrt, lambda y: 0.5 / np.sqrt(y)), "B2"),
    ],
)
def test_composite_names_the_assumption_that_fails(maps, named):
    with pytest.raises(ValueError, match=named):
        models.Composite(*maps)


def test_composite_accepts_maps_that_compare_numbers():
    plain = models.Composite(
        math.sqrt, lambda x: 0.5 / math.sqrt(x), lambda y: max(y, 0.0) ** 2, lambda y: 2 * max(y, 0.0)
    )
    losses = np.array([1.0, 2.0])
    step, expected = plain.step(losses, 3.0, 1.5), models.SquareRoot().step(losses, 3.0, 1.5)
    assert step.delta == pytest.approx(expected.delta, rel=1e-12)


def test_composite_accepts_a_decreasing_map():
    model = models.Composite(lambda x: 1 / x, lambda x: -1 / x**2, lambda y: 1 / y, lambda y: -1 / y**2)
    expected = models.Power(-1.0).step(2.0, 3.0, 1.5)
    step = model.step(2.0, 3.0, 1.5)
    assert step.size == pytest.approx(expected.size, rel=1e-12)
    assert step.delta == pytest.approx(expected.delta, rel=1e-12)


@given(loss=moderate, grad_sq=moderate, lr=moderate, t=st.floats(0.0, 1.0))
def test_safe_index_is_smallest_for_sps(loss, grad_sq, lr, t):
    sps = models.Truncated().step(loss, grad_sq, lr)
    assert models.safe_delta(loss, grad_sq, lr, sps.size) == pytest.approx(sps.delta, rel=1e-12)
    assert models.safe_delta(loss, grad_sq, lr, t * lr) >= sps.delta * (1 - 1e-12)


@given(loss=moderate, z=st.floats(1e-10, 1e10))
def test_safe_index_of_ngn_is_at_most_twice_that_of_sps(loss, z):
    step = models.SquareRoot().step(loss, z * loss, 1.0)
    safe = models.safe_delta(loss, z * loss, 1.0, step.size)
    rounding = 1e-15 * loss  # of the step size, which decides F(1 − t)
    assert safe == pytest.approx(loss * z * (z + 4) / (z + 2) ** 2, rel=1e-12, abs=rounding)
    assert safe <= 2 * models.Truncated().step(loss, z * loss, 1.0).delta * (1 + 1e-12) + rounding


def test_ngn_index_is_not_valid_on_logistic_loss():
    """The model lies above the loss there (x = −10, α = 10): the base inequality fails with δ, not with δ_safe."""
    x, lr = -10.0, 10.0
    loss, gradient = math.log1p(math.exp(-x)), -1.0 / (1.0 + math.exp(x))
    step = models.SquareRoot().step(loss, gradient**2, lr)
    after = x - step.size * gradient
    points = np.linspace(-50.0, 200.0, 5001)
    losses = np.logaddexp(0.0, -points)
    slack = base_inequality_slack(lr, step.delta, loss, losses, (x - points) ** 2, (after - points) ** 2)
    safe = models.safe_delta(loss, gradient**2, lr, step.size)
    safe_slack = base_inequality_slack(lr, safe, loss, losses, (x - points) ** 2, (after - points) ** 2)
    assert slack.min() < -1.0
    assert safe_slack.min() >= -1e-9


class TestEdges:
    @pytest.mark.parametrize("model", MODELS[1:], ids=name)
    @pytest.mark.parametrize("loss", [0.0, -1.0, -1e308])
    def test_at_or_below_the_lower_bound_nothing_moves(self, model, loss):
        assert model.step(loss, 2.0, 3.0) == (0.0, 0.0)

    @pytest.mark.parametrize("model", MODELS, ids=name)
    def test_zero_gradient_keeps_the_rate(self, model):
        step = model.step(1.0, 0.0, 3.0)
        assert step.size == pytest.approx(3.0)
        assert step.delta == 0.0

    @pytest.mark.parametrize("model", MODELS, ids=name)
    def test_zero_rate(self, model):
        assert model.step(1.0, 2.0, 0.0) == (0.0, 0.0)

    @pytest.mark.parametrize("model", MODELS, ids=name)
    @pytest.mark.parametrize("bad", [math.nan, math.inf])
    def test_divergence_is_infinite_never_nan(self, model, bad):
        assert model.step(bad, 2.0, 3.0) == (0.0, math.inf)
        assert model.step(1.0, bad, 3.0) == (0.0, math.inf)
        assert model.step(1.0, 2.0, math.nan) == (0.0, math.inf)

    @pytest.mark.parametrize("model", MODELS, ids=name)
    @pytest.mark.parametrize(("grad_sq", "lr", "name"), [(-1.0, 1.0, "grad_sq"), (1.0, -1.0, "lr")])
    def test_negative_input_is_named(self, model, grad_sq, lr, name):
        for wrap in (float, lambda x: np.full(3, x)):
            with pytest.raises(ValueError, match=f"{name} must be at least 0, got -1"):
                model.step(wrap(1.0), wrap(grad_sq), wrap(lr))

    def test_infinite_rate_gives_the_polyak_step(self):
        assert models.Truncated().step(1.0, 4.0, math.inf) == (0.25, 1.0)
        assert models.SquareRoot().step(1.0, 4.0, math.inf) == (0.5, 1.0)

    def test_sps_with_no_lower_bound_is_sgd(self):
        assert models.Truncated(lower_bound=-math.inf).step(1.0, 2.0, 3.0) == models.Linear().step(1.0, 2.0, 3.0)

    def test_lower_bound_per_batch(self):
        step = models.Truncated(lower_bound=np.array([0.0, 0.5])).step(np.ones(2), 1.0, 10.0)
        np.testing.assert_allclose(step.size, [1.0, 0.5])

    @pytest.mark.parametrize("bound", [math.nan, math.inf])
    def test_a_batch_whose_lower_bound_is_no_number_is_no_batch_at_its_bound(self, bound):
        step = models.Truncated(lower_bound=np.array([bound, 0.0])).step(np.ones(2), 1.0, 10.0)
        np.testing.assert_array_equal(step, ([0.0, 1.0], [math.inf, 0.95]))

    @pytest.mark.parametrize(("grad_sq", "lr", "name"), [(-1.0, 1.0, "grad_sq"), (1.0, -1.0, "lr")])
    def test_the_safe_index_refuses_what_the_models_refuse(self, grad_sq, lr, name):
        with pytest.raises(ValueError, match=f"{name} must be at least 0, got -1"):
            models.safe_delta(1.0, grad_sq, lr, size=0.5)

    def test_an_exponent_may_be_a_number_of_numpy(self):
        assert models.Power(np.float32(0.25)) == models.Power(0.25)
        assert type(models.Power(np.float64(0.25)).step(1.0, 1.0, 1.0).size) is float

    @pytest.mark.parametrize("p", [1.5, math.nan, -math.inf, "1", True])
    def test_bad_exponent_is_named(self, p):
        with pytest.raises(ValueError, match="p must be a finite number of at most 1"):
            models.Power(p)

    def test_bad_lower_bound_is_named(self):
        with pytest.raises(ValueError, match="lower_bound must be a number below infinity, got nan"):
            models.Truncated(lower_bound=math.nan)


class TestStabilityIsNotTheIndex:
    """Counter-examples of the theory notes: a smaller index at a point is not a more stable method."""

    @staticmethod
    def run(model, lr, steps=200):
        x = 1.0
        for _ in range(steps):
            x -= model.step(0.5 * x * x, x * x, lr).size * x
        return abs(x)

    def test_exponential_diverges_on_a_parabola_beyond_2e4(self):
        edge = 2 * math.exp(4)
        assert self.run(models.Exponential(), 0.98 * edge) < 1.0
        assert self.run(models.Exponential(), 1.02 * edge) > 1.0

    def test_low_powers_diverge_and_high_ones_do_not(self):
        assert self.run(models.Power(0.2), 1e6) > 1.0
        assert self.run(models.Power(0.5), 1e6) < 1.0
