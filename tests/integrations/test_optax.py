"""The optax transformations take the steps of the torch optimizers, and live with jit, vmap, scan and chains."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch

import surefoot.optim as sfo
from surefoot.theory.models import Power, Truncated

jax = pytest.importorskip("jax")
optax = pytest.importorskip("optax")
import jax.numpy as jnp  # noqa: E402

import surefoot.integrations.optax as sfx  # noqa: E402

PAIRS = {
    "sgd": (sfx.sgd, sfo.SGD, 0.05),
    "sps": (sfx.sps, sfo.SPS, 0.5),
    "ngn": (sfx.ngn, sfo.NGN, 0.5),
    "log_ngn": (sfx.log_ngn, sfo.LogNGN, 0.3),
    "power_step": (sfx.power_step, lambda params, lr, **options: power(params, lr, 0.75, **options), 0.5),
}


def power(params, lr, p, lower_bound=0.0):
    return sfo.ModelBased(params, lr, model=Power(p, lower_bound=lower_bound))


STEPS = 8
SHAPES = {"first": (8, 4), "bias": (8,), "second": (1, 8)}


@pytest.fixture
def wide(request):
    """Whether JAX computes in float64; set for the test alone."""
    with jax.enable_x64(request.param):
        yield request.param


@pytest.fixture
def float32():
    with jax.enable_x64(False):
        yield


def start():
    generator = np.random.default_rng(0)
    return {name: 0.5 * generator.standard_normal(shape) for name, shape in SHAPES.items()}


def batch(index):
    inputs = np.random.default_rng(100 + index).standard_normal((16, 4))
    return inputs, np.sin(inputs.sum(1, keepdims=True)) + 2.0


def loss_of(params, inputs, targets, tanh=jnp.tanh):
    return ((tanh(inputs @ params["first"].T + params["bias"]) @ params["second"].T - targets) ** 2).mean()


loss_and_gradients = jax.jit(jax.value_and_grad(loss_of))


def in_torch(make, lr, dtype, **options):
    """Parameters, size and δ after every step."""
    params = {name: torch.nn.Parameter(torch.tensor(value, dtype=dtype)) for name, value in start().items()}
    optimizer = make(params.values(), lr, **options)
    for index in range(STEPS):
        optimizer.zero_grad()
        loss = loss_of(params, *(torch.tensor(a, dtype=dtype) for a in batch(index)), tanh=torch.tanh)
        loss.backward()
        optimizer.step(loss=loss)
        yield {name: p.detach().numpy().copy() for name, p in params.items()}, *map(float, optimizer.last_step)


def in_jax(optimizer):
    """The same."""
    params = jax.tree.map(lambda a: jnp.asarray(a, float), start())
    state = optimizer.init(params)
    for index in range(STEPS):
        value, gradients = loss_and_gradients(params, *(jnp.asarray(a, float) for a in batch(index)))
        updates, state = optimizer.update(gradients, state, params, value=value)
        params = optax.apply_updates(params, updates)
        yield params, state


@pytest.mark.parametrize("wide", [True], indirect=True)
@pytest.mark.parametrize("name", PAIRS)
def test_every_step_is_that_of_torch(name, wide):
    make, twin, lr = PAIRS[name]
    options = {} if name == "sgd" else {"lower_bound": -0.5}
    steps = zip(in_torch(twin, lr, torch.float64, **options), in_jax(make(lr, **options)), strict=True)
    for (expected, size, delta), (params, state) in steps:
        for key, value in expected.items():
            np.testing.assert_allclose(params[key], value, rtol=0, atol=1e-11)
        np.testing.assert_allclose([state.size, state.delta], [size, delta], rtol=1e-11)


@pytest.mark.parametrize(
    ("name", "options", "wide"),
    [("sps", {}, False), ("ngn", {"share": 0.5, "first": 0.3, "smoothing": 0.5}, True)],
    indirect=["wide"],
)
def test_a_level_is_that_of_torch(name, options, wide):
    make, twin, _ = PAIRS[name]
    tolerance, dtype = (1e-10, torch.float64) if wide else (1e-3, torch.float32)
    theirs = {"lower_bound": sfo.Level(**options)} if options else {"lower_bound": "level"}
    ours = {"lower_bound": sfx.Level(**options)} if options else {"lower_bound": "level"}
    for (_, size, delta), (_, state) in zip(
        in_torch(twin, 5.0, dtype, **theirs), in_jax(make(5.0, **ours)), strict=True
    ):
        np.testing.assert_allclose([state.size, state.delta], [size, delta], rtol=tolerance)
    assert state.level.count == STEPS


def test_a_level_forgets_nothing_over_a_loss_that_is_not_finite(float32):
    optimizer, x = sfx.sps(1.0, lower_bound="level"), jnp.ones(2)
    _, state = optimizer.update(x, optimizer.init(x), value=-2.0)
    updates, after = optimizer.update(x, state, value=jnp.nan)
    assert jnp.all(updates == 0)
    assert (after.level, after.skipped, after.violations) == (state.level, 1, 0)
    assert (after.size, after.delta) == (0.0, jnp.inf)


def test_jit_vmap_and_plain_python_agree(float32):
    rates = jnp.array([0.01, 0.1])
    x = jnp.array([3.0, 4.0])

    def step(rate):
        optimizer = sfx.log_ngn(rate)
        return optimizer.update(x, optimizer.init(x), value=12.5)

    updates, states = jax.jit(jax.vmap(step))(rates)
    for i, rate in enumerate(rates):
        one, state = step(rate)
        np.testing.assert_allclose(updates[i], one, rtol=1e-5)
        np.testing.assert_allclose(states.delta[i], state.delta, rtol=1e-5)


def test_scan_carries_the_state_and_the_schedule(float32):
    optimizer = sfx.sgd(optax.linear_schedule(0.1, 0.0, 10))
    x = jnp.ones((3,), jnp.bfloat16)

    def step(carry, _):
        x, state = carry
        updates, state = optimizer.update(x, state, x, value=jnp.sum(x * x))
        return (optax.apply_updates(x, updates), state), state.size

    (x, state), sizes = jax.lax.scan(step, (x, optimizer.init(x)), length=5)
    assert state.count == 5
    assert x.dtype == jnp.bfloat16
    assert sizes.dtype == state.delta.dtype == jnp.float32
    np.testing.assert_allclose(sizes, [0.1, 0.09, 0.08, 0.07, 0.06], rtol=1e-6)


def test_a_chain_hands_the_loss_over_and_shows_delta(float32):
    optimizer = optax.chain(optax.identity(), sfx.sps(100.0), optax.trace(0.5))
    x = jnp.array([3.0, 4.0])
    updates, state = optimizer.update(x, optimizer.init(x), x, value=12.5)
    np.testing.assert_allclose(updates, -0.5 * x, rtol=1e-6)
    assert optax.tree_utils.tree_get(state, "delta") == pytest.approx(
        Truncated().step(12.5, 25.0, 100.0).delta, rel=1e-5
    )


def test_rate_and_bound_can_be_injected(float32):
    optimizer = optax.inject_hyperparams(sfx.sps)(learning_rate=100.0, lower_bound=0.0)
    x = jnp.array([3.0, 4.0])
    state = optimizer.init(x)
    state.hyperparams["lower_bound"] = jnp.asarray(7.5)
    updates, state = jax.jit(optimizer.update)(x, state, x, value=12.5)
    np.testing.assert_allclose(updates, -0.2 * x, rtol=1e-6)


@pytest.mark.parametrize("wide", [True], indirect=True)
def test_mixed_dtypes_keep_theirs_and_are_summed_in_the_widest(wide):
    dtypes = [jnp.bfloat16, jnp.float16, jnp.float32, jnp.float64]
    gradients = [jnp.full((300,), 0.1, dtype) for dtype in dtypes]
    optimizer = sfx.ngn(1.0)
    updates, state = jax.jit(optimizer.update)(gradients, optimizer.init(gradients), value=1.0)
    assert [u.dtype for u in updates] == dtypes
    assert state.delta.dtype == jnp.float64
    grad_sq = sum(np.square(np.asarray(g, np.float64)).sum() for g in gradients)
    assert float(state.size) == pytest.approx(1.0 / (1.0 + grad_sq / 2.0), rel=1e-5)


def test_what_is_not_finite_is_skipped_and_counted(float32):
    optimizer = sfx.ngn(0.1)
    state = optimizer.init({"a": jnp.ones(2), "b": jnp.ones(2)})
    for skipped, (entry, value) in enumerate([(jnp.nan, 1.0), (1.0, jnp.inf)], 1):
        gradients = {"a": jnp.array([1.0, entry]), "b": jnp.ones(2)}
        updates, state = optimizer.update(gradients, state, value=value)
        assert all(jnp.all(u == 0) for u in jax.tree.leaves(updates))
        assert (state.skipped, state.size, state.delta) == (skipped, 0.0, jnp.inf)


def test_a_loss_below_the_bound_is_skipped_and_counted(float32):
    optimizer = sfx.sps(0.1, lower_bound=1.0)
    x = jnp.ones(2)
    updates, state = optimizer.update(x, optimizer.init(x), value=0.5)
    assert jnp.all(updates == 0)
    assert (state.violations, state.skipped) == (1, 0)
    assert (state.size, state.delta) == (0.0, 0.0)


def test_rates_and_bounds_may_be_arrays_of_numpy(float32):
    x = jnp.ones(2)
    for optimizer in (sfx.ngn(np.array(0.5), lower_bound=np.array(0.25)), sfx.ngn(0.5, lower_bound=0.25)):
        _, state = optimizer.update(x, optimizer.init(x), value=1.0)
        assert float(state.size) == pytest.approx(0.3)


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda: sfx.sps(-1.0), ValueError, "learning_rate must be finite and at least 0, got -1.0"),
        (lambda: sfx.ngn("fast"), TypeError, "learning_rate must be a number or a schedule, got 'fast'"),
        (lambda: sfx.ngn(jnp.ones(2)), ValueError, r"learning_rate must be .* shape \(\), got one of shape \(2,\)"),
        (lambda: sfx.sps(lower_bound=float("inf")), ValueError, "lower_bound must be finite, got inf"),
        (lambda: sfx.log_ngn(lower_bound=None), TypeError, "lower_bound must be a number, .* got None"),
        (lambda: sfx.Level(share=1.0), ValueError, r"share must be a number in \(0, 1\), got 1.0"),
        (lambda: sfx.power_step(p=2.0), ValueError, "p must be a finite number of at most 1, got 2.0"),
        (
            lambda: sfx.ngn().init({"a": jnp.ones(2, int)}),
            TypeError,
            r"real floating-point arrays, got int32 at \['a'\]",
        ),
        (lambda: sfx.ngn().init(jnp.ones(2, complex)), TypeError, "got complex64 at the parameter"),
    ],
)
def test_bad_arguments_are_named(build, error, message, float32):
    with pytest.raises(error, match=message):
        build()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({}, TypeError, r"ngn needs the loss: update\(gradients, state, params, value=loss\)"),
        ({"value": np.ones(3)}, ValueError, r"value must be .* got one of shape \(3,\)"),
        ({"value": 1j}, TypeError, "value must be real, got an array of dtype complex64"),
    ],
)
def test_a_bad_loss_is_named(arguments, error, message, float32):
    optimizer = sfx.ngn()
    x = jnp.ones(2)
    with pytest.raises(error, match=message):
        optimizer.update(x, optimizer.init(x), **arguments)


def test_torch_is_not_imported():
    code = "import sys, surefoot.integrations.optax; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=120).returncode == 0


def test_multi_steps_averages_losses_as_gradients():
    x = jnp.array([1.0, -2.0])
    parts = [(jnp.array([0.5, 1.0]), 1.0), (jnp.array([1.5, -1.0]), 4.0), (jnp.array([-0.5, 2.0]), 0.5)]
    whole = sfx.sps(10.0)
    gradient = sum(g for g, _ in parts) / 3
    expected, _ = whole.update(gradient, whole.init(x), x, value=sum(v for _, v in parts) / 3)
    optimizer = sfx.multi_steps(sfx.sps(10.0), 3)
    update = jax.jit(optimizer.update)
    state = optimizer.init(x)
    for index, (g, value) in enumerate(parts):
        moves, state = update(g, state, x, value=value)
        assert index == 2 or not moves.any()
    assert np.asarray(moves) == pytest.approx(np.asarray(expected), rel=1e-5)
