"""The same numbers from Python floats, NumPy, torch and JAX; dtypes kept, gradients right, traces unbroken."""

from __future__ import annotations

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from surefoot.theory import models

jax.config.update("jax_enable_x64", True)


def composite(library):
    return models.Composite(library.sqrt, lambda x: 0.5 / library.sqrt(x), lambda y: y * y, lambda y: 2.0 * y)


MODELS = {
    "linear": lambda library: models.Linear(),
    "truncated": lambda library: models.Truncated(lower_bound=-0.5),
    "root": lambda library: models.SquareRoot(),
    "exponential": lambda library: models.Exponential(),
    "power": lambda library: models.Power(0.3),
    "negative power": lambda library: models.Power(-2.0),
    "composite": composite,
}
LOSS = np.array([1.0, 1e-3, 50.0, 2.0, 0.0, 1e-200, 1e200, 1.0, math.nan])
GRAD_SQ = np.array([2.0, 10.0, 1e-12, 0.0, 1.0, 1e200, 1e-200, 1e300, 1.0])
LR = np.array([0.5, 3.0, 1.0, 1.0, 1.0, 1e200, 1e-200, 1e300, 1.0])

every_model = pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
KINDS = ("truncated", "exponential", "power", "composite")
every_kind = pytest.mark.parametrize("make", [MODELS[name] for name in KINDS], ids=KINDS)
"""For what depends on how a step is computed, not on the formula: a case, iterations of a kind, a scalar root."""


@pytest.fixture
def two_iterations(monkeypatch):
    """For what has nothing to do with how far a scalar root is followed: all iterations are alike."""
    monkeypatch.setattr(models, "_HALVINGS", 2)


@every_model
def test_numpy_torch_and_jax_agree_with_floats(make):
    scalars = make(math)
    expected = np.array([scalars.step(*map(float, point)) for point in zip(LOSS, GRAD_SQ, LR, strict=True)]).T
    for library, convert in ((np, np.asarray), (torch, torch.from_numpy), (jnp, jnp.asarray)):
        step = make(library).step(convert(LOSS), convert(GRAD_SQ), convert(LR))
        np.testing.assert_allclose(np.asarray(step.size), expected[0], rtol=1e-13, atol=1e-300)
        np.testing.assert_allclose(np.asarray(step.delta), expected[1], rtol=1e-13, atol=1e-300)


@every_kind
@pytest.mark.usefixtures("two_iterations")
def test_jax_maps_and_compiles_the_step(make):
    model, rows = make(jnp), [jnp.asarray(values) for values in (LOSS, GRAD_SQ, LR)]
    compiled, plain = jax.jit(jax.vmap(model.step))(*rows), model.step(*rows)
    np.testing.assert_allclose(np.asarray(compiled.delta), np.asarray(plain.delta), rtol=1e-12, atol=1e-300)


@every_model
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.usefixtures("two_iterations")
def test_dtype_is_kept(make, dtype):
    for library in (np, torch, jnp):
        model, ones = make(library), library.ones(3, dtype=getattr(library, dtype))
        take = functools.partial(model.step, grad_sq=2.0, lr=1)
        step = jax.eval_shape(take, ones) if library is jnp else take(ones)  # JAX says what it would compute
        assert str(step.size.dtype).endswith(dtype)
        assert str(step.delta.dtype).endswith(dtype)
        assert step.size.shape == step.delta.shape == (3,)


@every_model
def test_float32_is_accurate(make):
    rng = np.random.default_rng(0)
    values = 10.0 ** rng.uniform(-4, 4, (3, 500))
    low, high = make(np).step(*values.astype(np.float32)), make(np).step(*values.astype(np.float32).astype(float))
    np.testing.assert_allclose(low.delta, high.delta, rtol=2e-5)
    np.testing.assert_allclose(low.size, high.size, rtol=2e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_tensors(dtype):
    step = models.SquareRoot().step(torch.tensor(1.0, dtype=dtype), 2.0, 1.0)
    assert step.size.dtype == dtype
    assert float(step.delta) == 0.5


def test_zero_dimensional_tensors_and_scalars_mix():
    step = models.Truncated().step(torch.tensor(1.0), torch.tensor(4.0), 10.0)
    assert step.size.shape == ()
    assert float(step.size) == 0.25
    assert isinstance(models.Truncated().step(np.float64(1.0), 4, 10).size, float)
    assert type(models.Truncated().step(1, 4, 10).size) is float


def test_numpy_bounds_go_along_with_tensors():
    step = models.Truncated(lower_bound=np.array([0.0, 0.5])).step(torch.ones(2), 1.0, 10.0)
    assert step.size.tolist() == [1.0, 0.5]
    assert step.size.dtype is torch.float32


@pytest.mark.parametrize("library", [np, torch, jnp])
def test_complex_numbers_are_refused(library):
    with pytest.raises(TypeError, match=r"expected real numbers, got .* of dtype"):
        models.SquareRoot().step(library.asarray(1.0 + 1.0j), 1.0, 1.0)


def both(model, rows):
    """Size and index in one number, so that one gradient serves for both."""
    step = model.step(*rows)
    return (step.size + 0.7 * step.delta).sum()


@every_model
def test_gradients_flow_in_torch_and_jax(make):
    points, model = np.array([(1.0, 2.0, 3.0), (2.0, 0.1, 0.5), (0.3, 40.0, 7.0)]).T, make(np)
    expected = np.empty((3, 3))
    for place in np.ndindex(3, 3):
        h = np.zeros((3, 3))
        h[place] = 1e-6 * points[place]
        expected[place] = (both(model, points + h) - both(model, points - h)) / (2 * h[place])
    tensors = [torch.tensor(row, requires_grad=True) for row in points]
    in_torch = torch.autograd.grad(both(make(torch), tensors), tensors, allow_unused=True)
    in_torch = [torch.zeros(3) if gradient is None else gradient for gradient in in_torch]
    model = make(jnp)
    in_jax = jax.grad(lambda *rows: both(model, rows), argnums=(0, 1, 2))(*points)
    np.testing.assert_allclose(np.stack(in_torch), expected, rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(np.stack(in_jax), expected, rtol=1e-5, atol=1e-8)


@every_model
@pytest.mark.usefixtures("two_iterations")
def test_gradients_are_finite_at_the_edges(make):
    points = [(1.0, 0.0, 1.0), (0.0, 1.0, 1.0), (-1.0, 1.0, 1.0), (1.0, 1.0, 0.0), (1.0, 1e-30, 1e-30)]
    for point in points:
        tensors = [torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in point]
        step = make(torch).step(*tensors)
        for gradient in torch.autograd.grad(step.size + step.delta, tensors, allow_unused=True):
            assert gradient is None or torch.isfinite(gradient), (point, gradient)


@every_kind
@pytest.mark.usefixtures("two_iterations")
def test_torch_compile_without_a_graph_break(make):
    model = make(torch)
    arguments = [torch.from_numpy(values) for values in (LOSS, GRAD_SQ, LR)]
    compiled = torch.compile(model.step, backend="eager", fullgraph=True)
    step = compiled(*arguments)
    torch.testing.assert_close(step.delta, model.step(*arguments).delta, rtol=1e-13, atol=0.0)


@every_kind
@pytest.mark.usefixtures("two_iterations")
def test_no_value_is_read_from_the_device(make):
    """On fake CUDA tensors reading a value raises: nothing in a step may wait for the device."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    model = make(torch)
    with FakeTensorMode():
        loss = torch.empty((), device="cuda")
        step = model.step(loss, torch.empty((), device="cuda"), 0.1)
        assert step.size.device.type == "cuda"


def test_composite_says_which_library_its_maps_are_for():
    with pytest.raises(TypeError, match="made for torch"):
        models.Composite(math.log, lambda x: 1 / x, math.exp, math.exp).step(torch.tensor(1.0), 1.0, 1.0)


@every_model
def test_no_bit_depends_on_the_neighbours(make):
    """Special elements take another way through the formulas; the others must not notice."""
    rng = np.random.default_rng(3)
    loss, grad_sq, lr = 10.0 ** rng.uniform(-8, 8, (3, 300))
    alone = make(np).step(loss, grad_sq, lr)
    among = make(np).step(*(np.concatenate([a, b]) for a, b in ((loss, LOSS), (grad_sq, GRAD_SQ), (lr, LR))))
    np.testing.assert_array_equal(among.size[:300], alone.size)
    np.testing.assert_array_equal(among.delta[:300], alone.delta)
