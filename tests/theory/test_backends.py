"""The same numbers from Python floats, NumPy, torch and JAX; dtypes kept, gradients right, traces unbroken."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from surefoot.theory import models
from surefoot.theory._arrays import BLOCK

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


@every_model
def test_numpy_torch_and_jax_agree_with_floats(make):
    scalars = make(math)
    expected = np.array([scalars.step(*map(float, point)) for point in zip(LOSS, GRAD_SQ, LR, strict=True)]).T
    for library, convert in ((np, np.asarray), (torch, torch.from_numpy), (jnp, jnp.asarray)):
        step = make(library).step(convert(LOSS), convert(GRAD_SQ), convert(LR))
        np.testing.assert_allclose(np.asarray(step.size), expected[0], rtol=1e-13, atol=1e-300)
        np.testing.assert_allclose(np.asarray(step.delta), expected[1], rtol=1e-13, atol=1e-300)


@every_model
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_dtype_is_kept(make, dtype):
    for library, ones in ((np, np.ones), (torch, torch.ones), (jnp, jnp.ones)):
        step = make(library).step(ones(3, dtype=getattr(library, dtype)), 2.0, 1)
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


@every_model
def test_large_arrays_are_the_same_in_pieces(make):
    rng = np.random.default_rng(1)
    loss, grad_sq, lr = rng.random((3, 1)) + 0.1, rng.random(BLOCK + 7), rng.random((1, BLOCK + 7)) * 10
    model = make(np)
    whole = model.step(loss, grad_sq, lr)
    assert whole.size.shape == (3, BLOCK + 7)
    for row in range(3):
        part = model.step(loss[row], grad_sq[-50:], lr[0, -50:])
        np.testing.assert_allclose(whole.size[row, -50:], part.size, rtol=1e-15)
        np.testing.assert_allclose(whole.delta[row, -50:], part.delta, rtol=1e-14)


def finite_difference(model, point, which, field):
    h = 1e-6 * point[which]
    ends = [model.step(*[v + s * h * (i == which) for i, v in enumerate(point)]) for s in (1, -1)]
    return (getattr(ends[0], field) - getattr(ends[1], field)) / (2 * h)


@every_model
@pytest.mark.parametrize("point", [(1.0, 2.0, 3.0), (2.0, 0.1, 0.5), (0.3, 40.0, 7.0)])
@pytest.mark.parametrize("field", ["size", "delta"])
def test_gradients_flow_in_torch_and_jax(make, point, field):
    expected = [finite_difference(make(math), point, which, field) for which in range(3)]
    tensors = [torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in point]
    output = getattr(make(torch).step(*tensors), field)
    in_torch = torch.autograd.grad(output, tensors, allow_unused=True)
    in_torch = [0.0 if g is None else float(g) for g in in_torch]
    in_jax = jax.grad(lambda *args: getattr(make(jnp).step(*args), field), argnums=(0, 1, 2))(*map(float, point))
    np.testing.assert_allclose(in_torch, expected, rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(in_jax, expected, rtol=1e-5, atol=1e-8)


@every_model
def test_gradients_are_finite_at_the_edges(make):
    points = [(1.0, 0.0, 1.0), (0.0, 1.0, 1.0), (-1.0, 1.0, 1.0), (1.0, 1.0, 0.0), (1.0, 1e-30, 1e-30)]
    for point in points:
        tensors = [torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in point]
        step = make(torch).step(*tensors)
        for gradient in torch.autograd.grad(step.size + step.delta, tensors, allow_unused=True):
            assert gradient is None or torch.isfinite(gradient), (point, gradient)


@every_model
def test_jax_jit_and_vmap(make):
    model = make(jnp)
    plain = model.step(jnp.asarray(LOSS), jnp.asarray(GRAD_SQ), jnp.asarray(LR))
    jitted = jax.jit(model.step)(jnp.asarray(LOSS), jnp.asarray(GRAD_SQ), jnp.asarray(LR))
    mapped = jax.vmap(model.step)(jnp.asarray(LOSS), jnp.asarray(GRAD_SQ), jnp.asarray(LR))
    for other in (jitted, mapped):
        np.testing.assert_allclose(np.asarray(other.delta), np.asarray(plain.delta), rtol=1e-12, atol=1e-300)


@every_model
def test_torch_compile_without_a_graph_break(make):
    model = make(torch)
    arguments = [torch.from_numpy(values) for values in (LOSS, GRAD_SQ, LR)]
    compiled = torch.compile(model.step, backend="eager", fullgraph=True)
    step = compiled(*arguments)
    torch.testing.assert_close(step.delta, model.step(*arguments).delta, rtol=1e-13, atol=0.0)


@every_model
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
