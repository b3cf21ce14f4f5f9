"""What optax demands of contributed optimizers, for ours: its usual targets, dtypes, wrappers, and constant shapes.

Complex parameters, an ``update`` without ``value=`` and ``optax.MultiSteps`` are refused (tests/integrations).
"""

from __future__ import annotations

import numpy as np
import pytest

jax = pytest.importorskip("jax")
optax = pytest.importorskip("optax")
import jax.numpy as jnp  # noqa: E402

import surefoot.integrations.optax as sfx  # noqa: E402

pytestmark = pytest.mark.slow

MAKES = {
    "sgd": lambda lr: sfx.sgd(lr),
    "sps": lambda lr: sfx.sps(lr),
    "ngn": lambda lr: sfx.ngn(lr),
    "log_ngn": lambda lr: sfx.log_ngn(lr),
    "power_step": lambda lr: sfx.power_step(lr),
}


def parabola(dtype):
    return (
        jnp.array([-1.0, 10.0, 1.0], dtype),
        jnp.array([1.0, -1.0, 1.0], dtype),
        lambda x, end: jnp.sum((x - end) ** 2),
    )


def rosenbrock(dtype):
    def value(x, _):
        return (1.0 - x[0]) ** 2 + 10.0 * (x[1] - x[0] ** 2) ** 2

    return jnp.array([0.0, 0.0], dtype), jnp.array([1.0, 1.0], dtype), value


def run(optimizer, start, end, value, steps):
    def step(x, state):
        loss, gradient = jax.value_and_grad(value)(x, end)
        updates, state = optimizer.update(gradient, state, x, value=loss)
        return optax.apply_updates(x, updates), state

    return jax.lax.fori_loop(0, steps, lambda _, carry: step(*carry), (start, optimizer.init(start)))


@pytest.mark.parametrize("make", MAKES.values(), ids=MAKES)
def test_reaches_the_parabolas_end(make):
    dtype = jnp.bfloat16  # in float32: the wrappers below
    start, end, value = parabola(dtype)
    x, state = run(make(0.3), start, end, value, 100)
    assert x.dtype == dtype
    assert np.asarray(x, np.float32) == pytest.approx(np.asarray(end, np.float32), abs=0.1)
    before, after = jax.tree.leaves(make(0.3).init(start)), jax.tree.leaves(state)
    assert [(a.shape, a.dtype) for a in before] == [(a.shape, a.dtype) for a in after]


@pytest.mark.parametrize("make", MAKES.values(), ids=MAKES)
def test_reaches_rosenbrocks_valley(make):
    start, end, value = rosenbrock(jnp.float32)
    x, _ = run(make(1e-2), start, end, value, 3000)
    assert np.asarray(x) == pytest.approx(np.asarray(end), abs=0.05)


@pytest.mark.parametrize("wrap", ["inject_hyperparams", "chain", "masked", "apply_if_finite"])
@pytest.mark.parametrize("name", ["ngn", "power_step"])  # the latter has an argument that may not be traced
def test_works_in_optaxs_wrappers(name, wrap):
    start, end, value = parabola(jnp.float32)
    static = ("p",) if name == "power_step" else ()
    wrapped = {
        "inject_hyperparams": lambda: optax.inject_hyperparams(getattr(sfx, name), static)(learning_rate=0.3),
        "chain": lambda: optax.chain(optax.identity(), MAKES[name](0.3)),
        "masked": lambda: optax.masked(MAKES[name](0.3), True),
        "apply_if_finite": lambda: optax.apply_if_finite(MAKES[name](0.3), 3),
    }[wrap]()
    x, _ = run(wrapped, start, end, value, 100)
    assert np.asarray(x) == pytest.approx(np.asarray(end), abs=1e-3)
