"""The spectral geometry: Newton–Schulz, the two forms, and what is not a matrix."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.optim.optim_problem import Problem, distance, equal, make, train
from torch import Tensor

import surefoot.optim as sfo
from surefoot.optim import _spectral
from surefoot.theory import models

SHAPES = ((8, 8), (30, 10), (10, 30), (1, 7), (7, 1), (6, 4, 3, 3))


def gradient(shape: tuple[int, ...], dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(dtype)


def matrix(values: list[float]) -> Tensor:
    """A matrix with these singular values."""
    generator = torch.Generator().manual_seed(1)
    size = len(values)
    left, right = (
        torch.linalg.qr(torch.randn(size, size, generator=generator, dtype=torch.float64))[0] for _ in range(2)
    )
    return (left * torch.tensor(values, dtype=torch.float64)) @ right


def taken(model: models.Model, geometry: sfo.Geometry, grads: list[Tensor], loss: float, lr: float) -> Any:
    """One step from zero: the optimizer and the steps of the parameters."""
    params = [torch.nn.Parameter(torch.zeros_like(g)) for g in grads]
    for p, g in zip(params, grads, strict=True):
        p.grad = g.clone()
    optimizer = sfo.ModelBased(params, lr, model=model, geometry=geometry)
    optimizer.step(loss=loss)
    return optimizer, [p.detach() for p in params]


@pytest.mark.parametrize("shape", SHAPES[:-1], ids=str)
def test_newton_schulz_finds_the_orthogonal_factor(shape: tuple[int, int]) -> None:
    G = gradient(shape) + 3.0 * torch.eye(*shape, dtype=torch.float64)  # no singular value is tiny
    left, _, right = torch.linalg.svd(G, full_matrices=False)
    assert float((sfo.orthogonalise(G, polish=3) - left @ right).abs().max()) <= 1e-6


@given(st.lists(st.floats(0.0, 1.0), min_size=2, max_size=6), st.integers(0, 3))
def test_no_matrix_leaves_the_bound_of_its_norm(values: list[float], polish: int) -> None:
    factor = sfo.orthogonalise(matrix(values), polish)
    bound = sfo.Spectral(polish=polish).norm_bound
    assert float(torch.linalg.matrix_norm(factor, 2)) <= bound + 1e-9


@given(st.lists(st.floats(0.02, 1.0), min_size=2, max_size=6))
def test_the_dual_norm_is_the_nuclear_norm(values: list[float]) -> None:
    G = matrix(values)
    geometry = sfo.Spectral()
    dual_sq = float((G * geometry.direction(G, [], torch.ones(()))).sum())
    assert 0.995 * sum(values) ** 2 <= dual_sq <= 1.0001 * sum(values) ** 2


def singular_values(factor: Tensor) -> Tensor:
    return torch.linalg.svdvals(factor.double())


def test_zolotarevs_function_is_the_best_one_with_three_poles() -> None:
    # On [ℓ, 1] it touches 1 − e and 1 + e in turns, eight times in all.
    x = torch.logspace(math.log10(0.002), 0, 100_001, dtype=torch.float64)
    error = singular_values_of_zolotarev(x) - 1
    largest = float(error.abs().max())
    assert largest <= 0.043
    touched = torch.sign(error[error.abs() >= 0.999 * largest])
    assert int((touched[1:] != touched[:-1]).sum()) == 7


def singular_values_of_zolotarev(x: Tensor) -> Tensor:
    root: Tensor = _spectral._inverse_root(torch.diag_embed((x * x)[:, None]))[:, 0, 0]
    return root * x


@given(st.lists(st.floats(0.03, 1.0), min_size=2, max_size=6))
def test_both_inverse_roots_lift_singular_values_into_their_bounds(values: list[float]) -> None:
    G = matrix(values) / torch.tensor(values, dtype=torch.float64).norm()
    for name, (low, high) in {"zolotarev": (0.957, 1.043), "newton-schulz": (0.68, 1.2024)}.items():
        lifted = singular_values(inverse_roots(G @ G.mT)[name] @ G)
        assert low <= float(lifted.min())
        assert float(lifted.max()) <= high


def inverse_roots(gram: Tensor) -> dict[str, Tensor]:
    """What the CPU and what devices use, of a stack as there."""
    polynomial = _spectral._product_of_polynomials(gram[None], _spectral._quintics(0))[0]
    return {"zolotarev": _spectral._inverse_root(gram[None])[0], "newton-schulz": polynomial}


POLAR = ((1, 7), (40, 40), (300, 70), (200, 600))


@pytest.mark.parametrize("size", [1e-30, 1.0, 1e30])
@pytest.mark.parametrize("shape", POLAR, ids=str)
def test_the_polar_factor_of_any_size_has_the_singular_vectors_of_the_matrix(
    shape: tuple[int, int], size: float
) -> None:
    G = size * gradient(shape, torch.float32)
    left, values, right = torch.linalg.svd(G.double(), full_matrices=False)
    factor = _spectral.polar_factor(G)
    turned = left.mT @ factor.double() @ right.mT
    assert factor.dtype is torch.float32
    assert float((turned - torch.diag(turned.diagonal())).abs().max()) <= 2e-3
    assert float((turned.diagonal() - 1).abs()[values > 0.0021 * values.norm()].max()) <= 0.045
    assert float(_spectral.nuclear_norm(G)) == pytest.approx(float(values.sum()), rel=0.045)


def test_the_polar_factor_of_a_matrix_of_low_rank_has_its_rank() -> None:
    G = gradient((60, 3), torch.float32) @ gradient((3, 80), torch.float32)
    values = singular_values(_spectral.polar_factor(G))
    assert float((values[:3] - 1).abs().max()) <= 0.045
    assert float(values[3:].max()) <= 1e-3
    assert torch.equal(_spectral.polar_factor(torch.zeros(4, 6)), torch.zeros(4, 6))
    assert abs(float(_spectral.nuclear_norm(torch.zeros(4, 6)))) == 0.0


@pytest.mark.parametrize("shape", [(3, 40, 8), (3, 8, 40), (5, 200)], ids=str)
def test_devices_take_the_polynomial(shape: tuple[int, ...]) -> None:
    elsewhere = torch.empty(shape, device="meta")
    assert _spectral.polar_factor(elsewhere).shape == shape
    assert _spectral.nuclear_norm(elsewhere).shape == shape[:-2]


def test_the_matrices_of_a_stack_do_not_meet() -> None:
    G = torch.stack([gradient((30, 8), torch.float32), 1e20 * gradient((8, 30), torch.float32).mT, torch.zeros(30, 8)])
    factors, norms = _spectral.polar_factor(G), _spectral.nuclear_norm(G)
    for each, factor, norm in zip(G, factors, norms, strict=True):
        assert torch.allclose(factor, _spectral.polar_factor(each), atol=1e-5)
        assert float(norm) == pytest.approx(float(_spectral.nuclear_norm(each)), rel=1e-5)


@pytest.mark.parametrize("model", [models.Linear(), models.Truncated(), models.SquareRoot()], ids=str)
@pytest.mark.parametrize("lr", [1e-3, 1.0])
def test_delta_is_the_drop_of_the_regularised_problem(model: models.Model, lr: float) -> None:
    G, loss = gradient((6, 4)), 2.0
    optimizer, (step,) = taken(model, sfo.Spectral(), [G], loss, lr)
    slope = float((G * step).sum())
    length_sq = float(torch.linalg.matrix_norm(step, 2)) ** 2
    drop = loss - model.value(loss, 1.0, -slope) - length_sq / (2 * lr)
    assert optimizer.last_step.delta.item() == pytest.approx(drop, rel=1e-3)


def test_the_ball_constrained_step_has_the_length_of_the_rate() -> None:
    G = matrix([3.0, 2.0, 1.0])
    optimizer, (step,) = taken(models.Linear(), sfo.SpectralBall(polish=4), [1e6 * G], 1.0, 0.1)
    assert float(torch.linalg.matrix_norm(step, 2)) == pytest.approx(0.1, rel=1e-3)
    assert optimizer.last_step.delta.item() == pytest.approx(0.5 * 0.1 * 6e6, rel=1e-3)


def test_a_polyak_step_in_the_ball_ends_where_the_model_reaches_its_bound() -> None:
    G = matrix([3.0, 2.0, 1.0])
    optimizer, (step,) = taken(models.Truncated(), sfo.SpectralBall(), [G], 0.3, 0.1)
    assert float((G * step).sum()) == pytest.approx(-0.3)
    assert optimizer.last_step.size.item() == pytest.approx(0.3 / 6.0, rel=1e-3)


@pytest.mark.parametrize("geometry", [sfo.Spectral(), sfo.SpectralBall(scale="original")], ids=str)
def test_a_convolution_kernel_is_a_flattened_matrix(geometry: sfo.Spectral) -> None:
    kernel = gradient((6, 4, 3, 3))
    _, (step,) = taken(models.Linear(), geometry, [kernel], 1.0, 0.1)
    _, (flat,) = taken(models.Linear(), geometry, [kernel.flatten(1)], 1.0, 0.1)
    assert torch.equal(step.flatten(1), flat)
    _, (last,) = taken(models.Linear(), geometry, [kernel.to(memory_format=torch.channels_last)], 1.0, 0.1)
    assert torch.allclose(last, step, atol=1e-12)


@pytest.mark.parametrize(("scale", "factor"), [("original", math.sqrt(3.0)), ("match_rms_adamw", 0.2 * math.sqrt(30))])
def test_a_scale_is_a_factor_of_the_norm(scale: str, factor: float) -> None:
    G = gradient((30, 10))
    for kind, power in ((sfo.Spectral, 2), (sfo.SpectralBall, 1)):
        plain, (short,) = taken(models.Linear(), kind(), [G], 1.0, 0.1)
        scaled, (step,) = taken(models.Linear(), kind(scale=scale), [G], 1.0, 0.1)
        assert torch.allclose(step, factor**power * short, rtol=1e-9)
        assert scaled.last_step.delta.item() == pytest.approx(factor**power * plain.last_step.delta.item())


@pytest.mark.parametrize(("adjust", "scale"), [("original", "original"), ("match_rms_adamw", "match_rms_adamw")])
def test_muon_is_torchs_on_matrices(adjust: str, scale: str) -> None:
    # torch iterates in bfloat16, so that the factors agree to some percent only.
    ours, theirs = ([torch.nn.Parameter(gradient(shape)) for shape in ((20, 6), (6, 20))] for _ in range(2))
    optimizer = sfo.Muon(ours, 0.02, beta=0.9, geometry=sfo.SpectralBall(scale=scale, polish=0))
    peer = torch.optim.Muon(theirs, 0.02, momentum=0.9, nesterov=False, weight_decay=0.0, adjust_lr_fn=adjust)
    start = [p.detach().clone() for p in ours]
    for index in range(5):
        for params in (ours, theirs):
            for p in params:
                p.grad = torch.randn(p.shape, generator=torch.Generator().manual_seed(index), dtype=torch.float64)
        optimizer.step(loss=1.0)
        peer.step()
    moved = distance(start, [p.detach() for p in theirs])
    assert distance([p.detach() for p in ours], [p.detach() for p in theirs]) <= 0.03 * moved


def test_a_group_can_be_left_out() -> None:
    problem, other = Problem(), Problem()
    optimizer = make("SPSMuon", [{"params": problem.params, "spectral": False}])
    assert equal(train(problem, optimizer, range(4)), train(other, make("MoMoAdam", other.params), range(4)))


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda: sfo.Spectral(scale="big"), ValueError, "scale must be one of .*, got 'big'"),
        (lambda: sfo.Spectral(polish=-1), ValueError, "polish must be an integer from 0 to 100, got -1"),
        (lambda: sfo.Spectral("adam"), TypeError, "rest must be another .*, got 'adam'"),  # type: ignore[arg-type]
        (lambda: sfo.Spectral(sfo.SpectralBall()), TypeError, "rest must be another"),
        (lambda: sfo.SPSMuon(Problem().params, geometry=sfo.Euclidean()), TypeError, "geometry must be .*Spectral"),  # type: ignore[arg-type]
    ],
)
def test_bad_arguments_are_named(build: Callable[[], Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        build()


def test_a_gradient_of_zeros_has_a_direction() -> None:
    assert torch.equal(sfo.orthogonalise(torch.zeros(3, 2, dtype=torch.float16)), torch.zeros(3, 2).half())
    moved, still = torch.nn.Parameter(torch.eye(3)), torch.nn.Parameter(torch.zeros(3, 3))
    optimizer = sfo.SPSMuon([moved, still], lr=0.1)
    (moved.sum(1).square().sum() + 0.0 * still.sum()).backward()
    optimizer.step()
    assert optimizer.skipped == 0
    assert torch.equal(still.detach(), torch.zeros(3, 3))
