"""Sums over elements: accurate, the same on any number of threads, and kernels that do what the plain way does."""

from __future__ import annotations

import math
import multiprocessing
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

import surefoot.optim as sfo
from surefoot.optim import _sums
from surefoot.optim._arithmetic import Host
from surefoot.optim._spectral import slope

SHAPES = [(3,), (4096,), (4097,), (65536,), (65537,), (257, 1031), (1500, 2048), (0,), ()]


@pytest.fixture
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def tensors(dtype: torch.dtype = torch.float32) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator).to(dtype) for shape in SHAPES]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_squares_are_those_of_float64_on_any_number_of_threads(dtype: torch.dtype, threads: None) -> None:
    values = tensors(dtype)
    exact = sum(float(a.double().square().sum()) for a in values)
    found = set()
    for number in (1, 2, 3, 5):
        torch.set_num_threads(number)
        found.add(_sums.sum_sq(values))
    assert len(found) == 1
    assert found.pop() == pytest.approx(exact, rel=1e-6)


def test_squares_of_any_layout() -> None:
    a = torch.randn(8, 64, 16, 16)
    exact = float(a.double().square().sum())
    for b in (a, a.to(memory_format=torch.channels_last), a.mT, a.expand(1, *a.shape)):
        assert _sums.sum_sq([b]) == pytest.approx(exact, rel=1e-6)


@pytest.mark.parametrize(("value", "expected"), [(1e30, 1e60), (math.inf, math.inf)])
def test_squares_that_leave_float32(value: float, expected: float) -> None:
    for size in (3, 10_000, 5_000_000):
        a = torch.zeros(size)
        a[-1] = a[0] = value
        assert _sums.sum_sq([a]) == pytest.approx(2 * expected, rel=1e-6)


def test_squares_that_are_no_numbers() -> None:
    a = torch.ones(5_000_000)
    a[1234567] = math.nan
    assert math.isnan(_sums.sum_sq([a]))


def _child(queue: multiprocessing.Queue[float]) -> None:
    queue.put(_sums.sum_sq([torch.ones(5_000_000)]))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # JAX's word, if it has been imported
def test_squares_after_a_fork(threads: None) -> None:
    torch.set_num_threads(2)
    assert _sums.sum_sq([torch.ones(5_000_000)]) == 5_000_000  # the threads have been started
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    torch.set_num_threads(1)  # torch's own threads do not survive a fork
    child = context.Process(target=_child, args=(queue,))
    child.start()
    assert queue.get(timeout=60) == 5_000_000
    child.join(60)
    assert child.exitcode == 0


def test_inner_products() -> None:
    left, right = tensors(), [a.roll(1) for a in tensors()]
    exact = sum(float((a.double() * b.double()).sum()) for a, b in zip(left, right, strict=True))
    assert _sums.inner(left, right) == pytest.approx(exact, abs=1e-6 * sum(a.numel() for a in left))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_the_kernel_adds_bit_for_bit(dtype: torch.dtype) -> None:
    params, directions = tensors(dtype), [a.roll(1) for a in tensors(dtype)]
    fast, plain = [a.clone() for a in params], [a.clone() for a in params]
    Host(True).add_(fast, directions, -0.0123)
    Host(False).add_(plain, directions, -0.0123)
    assert all(torch.equal(a, b) for a, b in zip(fast, plain, strict=True))


@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("transposed", [False, True])
def test_the_kernel_of_momentum(weight: float, transposed: bool) -> None:
    results = []
    for foreach in (True, False):
        torch.manual_seed(0)
        average, new, params = ([torch.randn(37, 91, dtype=torch.float64)] for _ in range(3))
        if transposed:  # not what the kernel wants
            new = [torch.randn(91, 37, dtype=torch.float64).mT]
        Host(foreach).lerp_and_add_(average, new, weight, params, -0.7)
        results.append((average[0], params[0]))
    for fast, plain in zip(*results, strict=True):
        torch.testing.assert_close(fast, plain, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("shape", [(1, 1), (5, 5), (7, 40), (40, 7), (64, 576), (130, 200), (300, 257)])
@pytest.mark.parametrize("polish", [0, 2])
@pytest.mark.parametrize("unit", [1.0, 1e-9, 1e-14, 1e-20, 1e12, 1e20])
def test_the_slope_needs_no_direction(shape: tuple[int, int], polish: int, unit: float) -> None:
    torch.manual_seed(0)
    G = unit * torch.randn(shape)
    G[:, -1] *= 1e-4  # singular values of all sizes
    exact = float((G.double() * sfo.orthogonalise(G.double(), polish=polish)).sum())
    assert slope(G, polish=polish) == pytest.approx(exact, rel=1e-4)


def test_the_slope_of_nothing_is_zero() -> None:
    assert slope(torch.zeros(3, 4)) == 0.0


@pytest.mark.parametrize("geometry", [sfo.Spectral(), sfo.SpectralBall(scale="match_rms_adamw", polish=0)])
def test_spectral_norms_without_directions(geometry: sfo.Spectral) -> None:
    gradients = [torch.randn(6, 9), torch.randn(8, 3, 3, 3)]
    _, exact = geometry.measure(Host(True), gradients, [], 1.0, None)
    assert geometry.measure_norm(Host(True), gradients, [], 1.0, None) == pytest.approx(exact, rel=1e-5)


def test_the_slope_of_matrices_with_units_that_are_off() -> None:
    """MKL's eigenvalues in float32 are NaN, or an error, for one such matrix in a hundred."""
    generator = torch.Generator().manual_seed(0)
    for _ in range(400):
        rows = int(torch.randint(4, 65, (), generator=generator))
        on = torch.randperm(rows, generator=generator)[: int(torch.randint(1, rows + 1, (), generator=generator))]
        G = torch.zeros(rows, rows + 8)
        decades = 8 * float(torch.rand((), generator=generator))
        G[on] = torch.randn(len(on), rows + 8, generator=generator) * torch.logspace(0, -decades, len(on))[:, None]
        exact = float((G * sfo.orthogonalise(G, polish=0)).sum())
        assert slope(G, polish=0) == pytest.approx(exact, rel=1e-3)


@pytest.mark.parametrize("fails", ["raises", "NaN"])
def test_a_slope_whose_eigenvalues_are_not_found(fails: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def eigvalsh(matrix: Tensor) -> Tensor:
        if fails == "raises":
            raise torch.linalg.LinAlgError("the algorithm failed to converge")
        return torch.full(matrix.shape[:1], torch.nan)

    G = torch.randn(8, 5, generator=torch.Generator().manual_seed(0))
    expected = slope(G)
    monkeypatch.setattr(torch.linalg, "eigvalsh", eigvalsh)
    assert slope(G) == pytest.approx(expected, rel=1e-4)
