"""The same trajectories as other people's implementations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.optim.optim_problem import Problem, distance, make, train

import surefoot.optim as sfo


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_sgd_is_torchs_to_rounding(dtype: torch.dtype) -> None:
    ours, theirs = Problem(dtype), Problem(dtype)
    left = train(ours, sfo.SGD(ours.params, 0.05), range(30))
    peer = torch.optim.SGD(theirs.params, 0.05)
    for index in range(30):
        theirs.backward(index)
        peer.step()
    assert distance(left, theirs.values()) <= {torch.float64: 1e-14, torch.float32: 1e-6, torch.bfloat16: 0.02}[dtype]


def test_decoupled_decay_is_that_of_adamw() -> None:
    # One step from the same state: AdamW's direction is MoMoAdam's while the cap holds.
    ours, theirs = Problem(), Problem()
    left = train(ours, sfo.MoMoAdam(ours.params, 1e-3, weight_decay=0.1), range(5))
    peer = torch.optim.AdamW(theirs.params, 1e-3, weight_decay=0.1)
    for index in range(5):
        theirs.backward(index)
        peer.step()
    assert distance(left, theirs.values()) <= 1e-12


@pytest.mark.parametrize("lr", [0.05, 5.0])
def test_sps_is_optax_polyak_sgd(lr: float) -> None:
    jax = pytest.importorskip("jax", reason="optax needs jax")
    optax = pytest.importorskip("optax", reason="the comparison needs optax")
    problem = Problem(torch.float32)
    optimizer = sfo.SPS(problem.params, lr)
    peer = optax.polyak_sgd(max_learning_rate=lr)
    params = [jax.numpy.asarray(p.detach().numpy().copy()) for p in problem.params]
    state = peer.init(params)

    def loss_of(params: list[Any], inputs: Any, targets: Any) -> Any:
        first, bias, second, offset = params
        outputs = jax.numpy.tanh(inputs @ first.T + bias) @ second.T + offset
        return jax.numpy.mean((outputs - targets) ** 2)

    for index in range(10):
        optimizer.step(loss=problem.backward(index))
        batch = [tensor.numpy() for tensor in problem.batch(index)]
        value, grads = jax.value_and_grad(loss_of)(params, *batch)
        updates, state = peer.update(grads, state, params, value=value)
        params = optax.apply_updates(params, updates)
    for ours, theirs in zip(problem.params, params, strict=True):
        np.testing.assert_allclose(ours.detach().numpy(), np.asarray(theirs), rtol=0, atol=2e-5)


THEIR_ROUNDING = 1e-5
"""With bias correction, momo-opt keeps its inner products in float32, whatever the parameters' dtype."""

ESTIMATE = sfo.Estimate(cap=None)
"""MoMo's own rule."""

MOMO = [
    {},
    {"bias_correction": True},
    {"lower_bound": 0.2},
    {"lower_bound": ESTIMATE},
    {"beta": 0.5},
]


@pytest.mark.parametrize("options", MOMO, ids=str)
@pytest.mark.parametrize("lr", [0.05, 0.5, 20.0])
def test_momo_is_the_authors(lr: float, options: dict[str, Any]) -> None:
    momo = pytest.importorskip("momo", reason="the comparison needs momo-opt")
    ours, theirs = Problem(), Problem()
    theirs_options = {
        "lb": options.get("lower_bound", 0.0),
        "beta": options.get("beta", 0.9),
        "bias_correction": options.get("bias_correction", False),
    }
    if theirs_options["lb"] == ESTIMATE:
        theirs_options |= {"lb": 0.0, "use_fstar": True}
    optimizer = sfo.MoMo(ours.params, lr, **options)
    peer = momo.Momo(theirs.params, lr, **theirs_options)
    for index in range(25):
        optimizer.step(loss=ours.backward(index))
        peer.step(loss=theirs.backward(index))
    assert distance(ours.values(), theirs.values()) <= (THEIR_ROUNDING if options.get("bias_correction") else 1e-9)


@pytest.mark.parametrize("options", [{}, {"lower_bound": ESTIMATE}], ids=str)
@pytest.mark.parametrize("lr", [1e-3, 0.03, 1.0])
def test_momo_adam_is_the_authors(lr: float, options: dict[str, Any]) -> None:
    momo = pytest.importorskip("momo", reason="the comparison needs momo-opt")
    ours, theirs = Problem(), Problem()
    optimizer = sfo.MoMoAdam(ours.params, lr, **options)
    estimated = options.get("lower_bound") == ESTIMATE
    peer = momo.MomoAdam(theirs.params, lr, use_fstar=estimated)
    for index in range(25):
        optimizer.step(loss=ours.backward(index))
        peer.step(loss=theirs.backward(index))
    assert distance(ours.values(), theirs.values()) <= THEIR_ROUNDING


def test_ngn_momentum_is_the_heavy_ball_of_its_authors() -> None:
    problem, other = Problem(), Problem()
    left = train(problem, make("NGNMomentum", problem.params, lr=0.3), range(10))
    old = other.values()
    for index in range(10):
        loss = float(other.backward(index))
        grad_sq = sum(float(p.grad.square().sum()) for p in other.params if p.grad is not None)
        size = 0.3 / (1 + 0.3 * grad_sq / (2 * loss))
        new = [
            p.detach() - 0.1 * size * p.grad + 0.9 * (p.detach() - before)
            for p, before in zip(other.params, old, strict=True)
            if p.grad is not None
        ]
        old = other.values()
        with torch.no_grad():
            for p, value in zip(other.params, new, strict=True):
                p.copy_(value)
    assert distance(left, other.values()) <= 1e-12
