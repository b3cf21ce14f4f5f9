"""torch.compile of the step: one graph, the same numbers, and a last_step that is alive."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from tests.optim.optim_problem import NAMES, RATES, Problem, distance, make, train

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")


@pytest.fixture(autouse=True)
def _fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def check_compiled(name: str, backend: str, dtype: torch.dtype, *, grouped: bool) -> None:
    eager, compiled = Problem(dtype), Problem(dtype)
    finals = []
    for problem, compile_it in ((eager, False), (compiled, True)):
        lr = torch.tensor(RATES[name], dtype=torch.float64)
        groups = [{"params": problem.params[:2]}, {"params": problem.params[2:], "weight_decay": 0.1}]
        optimizer = make(name, groups if grouped else problem.params, lr=lr)
        step = torch.compile(optimizer.step, backend=backend, fullgraph=True) if compile_it else optimizer.step
        for index in range(5):
            lr.fill_(RATES[name] / (1 + index))  # a schedule must not be compiled in
            step(loss=problem.backward(index))
        finals.append(optimizer.last_step)
    assert distance(eager.values(), compiled.values()) <= (1e-12 if dtype is torch.float64 else 1e-5)
    assert finals[0].delta.item() == pytest.approx(finals[1].delta.item(), rel=1e-4 if dtype is torch.float32 else 1e-9)


@pytest.mark.parametrize("name", ["MoMoAdam", "Surefoot"])
def test_compiled_equals_eager(name: str) -> None:
    check_compiled(name, "eager", torch.float64, grouped=True)


@pytest.mark.slow
@pytest.mark.parametrize("grouped", [False, True], ids=["one group", "two groups"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_every_optimizer_compiles_to_one_graph(name: str, dtype: torch.dtype, grouped: bool) -> None:
    check_compiled(name, "eager", dtype, grouped=grouped)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["NGN", "MoMo", "MoMoAdam"])
def test_inductor_equals_eager(name: str) -> None:
    check_compiled(name, "inductor", torch.float32, grouped=False)


def test_a_schedule_does_not_recompile() -> None:
    problem = Problem()
    lr = torch.tensor(0.1, dtype=torch.float64)
    optimizer = make("NGN", problem.params, lr=lr)
    counter = torch._dynamo.testing.CompileCounter()
    step = torch.compile(optimizer.step, backend=counter, fullgraph=True)
    for index in range(6):
        lr.mul_(0.9)
        train(problem, optimizer, [index], step)
    assert counter.frame_count <= 2  # the first call creates the state
