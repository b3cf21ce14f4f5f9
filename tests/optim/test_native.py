"""The compiled passes: what NumPy and torch compute, and the same bits everywhere."""

from __future__ import annotations

import copy
import math
import shutil
import subprocess
from collections.abc import Callable, Iterator
from ctypes import CDLL
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import surefoot.optim as sfo
from surefoot._base import kernels
from surefoot.optim import _sums, native
from surefoot.optim._arithmetic import LARGE, Host
from surefoot.optim.native import Pass

ROWS = ("SGD", "SPS", "NGN", "LogNGN", "PowerStep", "MoMo", "NGNMomentum", "SPSAdam", "NGNAdam", "MoMoAdam")
SIZES = (1, 3, 15, 16, 17, 1023, 1024, 1025, 4096, 4099, 262_144, 262_145, 600_001)


@pytest.fixture
def compiled(compiled_library: CDLL, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The library's function, in use."""
    function = native._load(compiled_library)
    monkeypatch.setattr(native, "library", lambda: function)
    return function


@pytest.fixture
def threads() -> Iterator[Callable[[int], None]]:
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def randoms(number: int, sizes: tuple[int, ...] = SIZES) -> list[list[Tensor]]:
    generator = torch.Generator().manual_seed(0)
    return [[torch.randn(size, generator=generator) for size in sizes] for _ in range(number)]


def copies(tensors: list[Tensor]) -> list[Tensor]:
    return [a.clone() for a in tensors]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("kind", ["normal", "tenths", "thirds", "growing"])
def test_squares_are_those_of_float64(compiled: Any, size: int, kind: str) -> None:
    if kind == "normal":
        values = torch.randn(size, generator=torch.Generator().manual_seed(size))
    else:  # equal rounding errors add up
        values = {
            "tenths": torch.full((size,), 0.1),
            "thirds": torch.full((size,), 1 / 3),
            "growing": torch.arange(size),
        }[kind].float()
    exact = float(values.double().square().sum())
    assert native.run(Pass.SQUARES, [values]) == pytest.approx(exact, rel=1e-6)
    assert _sums._sum_sq([values]) == pytest.approx(exact, rel=1e-6)


def test_bits_depend_on_no_number_of_threads(compiled: Any, threads: Callable[[int], None]) -> None:
    results = []
    for number in (1, 2, 3, 5):
        threads(number)
        m, g, p, v = randoms(4, (700_001, 2_000_003))
        v = [a.abs() for a in v]
        sums = [native.run(Pass.SQUARES, g), native.run(Pass.LERP_SQUARES, m, g, numbers=(0.1,))]
        sums.append(native.run(Pass.AVERAGED_ADAM, v, g, p, m, numbers=(0.9, 0.1, 2.0, 1e-8, 0.3)))
        sums.append(native.run(Pass.ADAM_OF_BATCH, v, g, p, m, numbers=(0.9, 0.1, 2.0, 1e-8, 0.3)))
        results.append((sums, m + p + v))
    for sums, tensors in results[1:]:
        assert sums == results[0][0]
        assert all(torch.equal(a, b) for a, b in zip(tensors, results[0][1], strict=True))


def test_bits_depend_on_no_processor(compiled: Any, tmp_path: Path) -> None:
    """Compiled without wide instructions, as on another machine."""
    compiler = next(name for name in ("cc", "gcc", "clang") if shutil.which(name))
    flags = [flag for flag in kernels._FLAGS if flag != "-O3"]
    plain = tmp_path / "plain.so"
    command = [compiler, *flags, "-O1", "-Wno-psabi", *map(str, kernels._SOURCES), "-o", str(plain), "-lm"]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    results = []
    for function in (compiled, native._load(CDLL(str(plain)))):
        m, g, p, v = randoms(4)
        v = [a.abs() for a in v]
        sums = [native._run(function, Pass.SQUARES, (g,), ())]
        sums += [
            native._run(function, Pass.LERP_SQUARES, (m, g), (0.1,)),
            native._run(function, Pass.ADD, (p, g), (0.3,)),
        ]
        sums.append(native._run(function, Pass.LERP_ADD, (m, g, p), (0.7, -0.1)))
        sums.append(native._run(function, Pass.AVERAGED_ADAM, (v, g, p, m), (0.9, 0.1, 2.0, 1e-8, 0.3)))
        sums.append(native._run(function, Pass.ADAM_OF_BATCH, (v, g, p, m), (0.9, 0.1, 2.0, 1e-8, 0.3)))
        results.append((sums, m + p + v))
    assert results[0][0] == results[1][0]
    assert None not in results[0][0]
    assert all(torch.equal(a, b) for a, b in zip(results[0][1], results[1][1], strict=True))


def test_a_sum_is_added_bit_for_bit_as_by_torch(compiled: Any) -> None:
    params, directions = randoms(2)
    expected = copies(params)
    torch._foreach_add_(expected, directions, alpha=-0.0123)
    assert native.run(Pass.ADD, params, directions, numbers=(-0.0123,)) is not None
    assert all(torch.equal(a, b) for a, b in zip(params, expected, strict=True))


@pytest.mark.parametrize("weight", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_averages(compiled: Any, weight: float) -> None:
    average, new, params = randoms(3)
    expected = copies(average)
    torch._foreach_lerp_(expected, new, weight)
    moved = [p + 0.7 * a for p, a in zip(params, expected, strict=True)]
    squares = sum(float(a.double().square().sum()) for a in expected)
    other = copies(average)
    assert native.run(Pass.LERP_SQUARES, other, new, numbers=(weight,)) == pytest.approx(squares, rel=1e-6)
    native.run(Pass.LERP_ADD, average, new, params, numbers=(weight, 0.7))
    for found, wanted in ((other, expected), (average, expected), (params, moved)):
        for a, b in zip(found, wanted, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6)
    if weight == 1.0:
        assert all(torch.equal(a, b) for a, b in zip(average, new, strict=True))


@pytest.mark.parametrize("what", [Pass.ADAM, Pass.AVERAGED_ADAM, Pass.ADAM_OF_BATCH], ids=lambda what: what.name)
def test_adam(compiled: Any, what: Pass) -> None:
    averaged = what is not Pass.ADAM
    m, g, v, directions = randoms(4)
    v = [a.abs() for a in v]
    before = copies(m), copies(v)
    kept = copies(g)
    numbers = (0.99, 0.01, 1.5, 1e-3, 0.2)
    operands = (v, g, directions, m) if averaged else (v, g, directions)
    total = native.run(what, *operands, numbers=numbers)
    exact = 0.0
    for i, gradient in enumerate(kept):
        grad = gradient.double()
        average = before[0][i].double()
        average = average + 0.2 * (grad - average) if averaged else grad
        second = 0.99 * before[1][i].double() + 0.01 * grad**2
        metric = second.sqrt() * 1.5 + 1e-3
        direction = average / metric
        measured = grad if what is Pass.ADAM_OF_BATCH else average
        exact += float((measured * measured / metric).sum())
        for found, wanted in (
            (v[i], second),
            (directions[i], direction),
            (m[i], average if averaged else before[0][i]),
        ):
            torch.testing.assert_close(found.double(), wanted.double(), rtol=3e-6, atol=1e-6)
        assert torch.equal(g[i], gradient)
    assert total == pytest.approx(exact, rel=1e-6)


def test_elements_in_another_order(compiled: Any) -> None:
    def last() -> Tensor:
        return torch.randn(8, 64, 16, 16).to(memory_format=torch.channels_last)

    p, g, plain = last(), last(), torch.randn(8, 64, 16, 16)
    expected = p + 0.5 * g
    assert native.run(Pass.SQUARES, [p]) == pytest.approx(float(p.double().square().sum()), rel=1e-6)
    assert native.run(Pass.ADD, [p], [g], numbers=(0.5,)) is not None
    torch.testing.assert_close(p, expected)
    assert native.run(Pass.ADD, [p], [plain], numbers=(0.5,)) is None
    assert native.run(Pass.ADD, [plain], [p], numbers=(0.5,)) is None
    torch.testing.assert_close(p, expected)


class Odd(Tensor):
    pass


@pytest.mark.parametrize(
    "tensor",
    [
        torch.ones(3, dtype=torch.float64),
        torch.ones(3, dtype=torch.bfloat16),
        torch.ones(3, dtype=torch.float16),
        torch.ones(6)[::2],
        torch.ones(3, 1).expand(3, 4),
        torch.ones(3, device="meta"),
        torch.ones(3).as_subclass(Odd),
        torch._neg_view(torch.ones(1)),
        torch.ones(0),
    ],
    ids=["float64", "bfloat16", "float16", "gaps", "overlap", "meta", "subclass", "negated", "empty"],
)
def test_what_it_does_not_serve_is_left_alone(compiled: Any, tensor: Tensor) -> None:
    others = [torch.ones(5), torch.ones_like(tensor)]
    assert native.run(Pass.SQUARES, [torch.ones(5), tensor]) is None
    assert native.run(Pass.ADD, [torch.ones(5), tensor], others, numbers=(1.0,)) is None
    assert native.run(Pass.ADD, others, [torch.ones(5), tensor], numbers=(1.0,)) is None
    assert torch.equal(others[0], torch.ones(5))
    if not tensor.is_meta:
        assert _sums.sum_sq([torch.ones(5), tensor]) == 5 + tensor.numel()


def test_other_shapes_are_refused(compiled: Any) -> None:
    assert native.run(Pass.ADD, [torch.ones(5)], [torch.ones(6)], numbers=(1.0,)) is None
    with pytest.raises(RuntimeError):
        Host(True).add_([torch.ones(5)], [torch.ones(6)], 1.0)


@pytest.mark.parametrize("size", [3, 10_000, 5_000_000])
def test_squares_that_leave_float32(compiled: Any, size: int) -> None:
    for value, expected in ((1e30, 2e60), (math.inf, math.inf), (-math.inf, math.inf)):
        a = torch.zeros(size)
        a[-1] = a[0] = value
        assert _sums.sum_sq([a]) == pytest.approx(expected, rel=1e-6)
    a = torch.ones(size)
    a[size // 3] = math.nan
    assert math.isnan(_sums.sum_sq([a]))
    average, new = torch.zeros(size), torch.full((size,), 1e30)
    assert Host(True).lerp_and_sum_sq([average], [new], 1.0) == pytest.approx(size * 1e60, rel=1e-6)


def test_autograd_is_told_of_changes(compiled: Any) -> None:
    p, g = torch.ones(3, requires_grad=True), torch.ones(3)
    loss = (p * p).sum()
    before = p._version, g._version
    native.run(Pass.ADD, [p], [g], numbers=(1.0,))
    assert (p._version > before[0], g._version) == (True, before[1])
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


class Quadratic:
    """Parameters that are large, small, and of an odd size, and a loss of theirs."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(3)
        sizes = ((LARGE + 1000,), (64, 33), (7,), (1,))
        self.params = [torch.nn.Parameter(0.01 * torch.randn(size, generator=generator)) for size in sizes]

    def train(self, optimizer: Any, steps: range) -> None:
        for i in steps:
            optimizer.zero_grad()
            loss = 0.1 + sum((p - 0.001 * i).square().sum() for p in self.params)
            loss.backward()
            optimizer.step()


def make(name: str, problem: Quadratic, **options: Any) -> Any:
    fused = {"fused": True} if "Adam" in name else {}
    return getattr(sfo, name)(problem.params, 1e-3 if fused else 0.2, **fused, **options)


def test_adam_along_an_average_natively_in_pieces_and_unfused(compiled: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    geometry, found = sfo.Diagonal(0.99, 1e-6), []
    for way in ("native", "pieces", "unfused"):
        monkeypatch.setattr(native, "library", lambda way=way: compiled if way == "native" else None)
        m, g, v, directions = randoms(4)
        v = [a.abs() for a in v]
        if way == "unfused":
            Host(True).lerp_(m, g, 0.2)
            geometry.learn(Host(True), g, [v], 3.0)
            directions, norm = geometry.measure_averaged(Host(True), m, g, [v], 3.0, None)
        else:
            factor, norm = geometry.measure_fused(Host(True), g, m, v, directions, 3.0, 0.2, of_batch=True)
            directions = [factor * a for a in directions]
        exact = [
            (a.double().square() / ((b.double() / (1 - 0.99**3)).sqrt() + 1e-6)).sum()
            for a, b in zip(g, v, strict=True)
        ]
        assert norm == pytest.approx(float(sum(exact)), rel=1e-6)
        found.append([*m, *v, *directions])
    for others in found[1:]:
        for a, b in zip(found[0], others, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "options",
    [{}, {"max_grad_norm": 1.0, "weight_decay": 0.1}, {"averaging": sfo.AveragedDirection(0.9)}],
    ids=["plain", "clipped", "one scale"],
)
@pytest.mark.parametrize("name", ROWS)
def test_optimizers_step_as_without_it(
    compiled: Any, name: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for function in (compiled, None):
        monkeypatch.setattr(native, "library", lambda function=function: function)
        problem = Quadratic()
        optimizer = make(name, problem, **options)
        problem.train(optimizer, range(6))
        found.append([*problem.params, optimizer.last_step.size, optimizer.last_step.delta, optimizer.last_grad_sq])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=3e-6, check_dtype=False)


@pytest.mark.parametrize("name", ROWS)
def test_runs_continue_bitwise(compiled: Any, name: str) -> None:
    whole, first, second = Quadratic(), Quadratic(), Quadratic()
    whole.train(make(name, whole), range(6))
    optimizer = make(name, first)
    first.train(optimizer, range(3))
    resumed = make(name, second)
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    with torch.no_grad():
        torch._foreach_copy_(second.params, first.params)
    second.train(resumed, range(3, 6))
    assert all(torch.equal(a, b) for a, b in zip(whole.params, second.params, strict=True))
