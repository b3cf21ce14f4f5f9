"""Optimizers in several threads, and many of them: a backward pass concerns those whose gradients it changes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.optim.optim_problem import Problem, make
from tests.processes import Program

SCRIPT = """
import contextlib, sys, threading
import torch
import surefoot.optim as sfo
from surefoot.monitor import StabilityMonitor

torch.set_num_threads(1)
KINDS = {"SGD": torch.optim.SGD, "Surefoot": sfo.Surefoot, "NGN": sfo.NGN}
names, is_monitored, steps = sys.argv[1].split(), sys.argv[2] == "monitored", int(sys.argv[3])

def train(seed, name, results, ready):
    generator = torch.Generator().manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(0.3 * torch.randn(p.shape, generator=generator))
    optimizer = KINDS[name](model.parameters(), lr=0.05)
    losses = []
    ready.wait()
    with StabilityMonitor(optimizer, horizon=steps) if is_monitored else contextlib.nullcontext():
        for _ in range(steps):
            x = torch.randn(16, 8, generator=generator)
            optimizer.zero_grad()
            loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    results[seed] = losses, [p.tolist() for p in model.parameters()]

alone, together = {}, {}
for seed, name in enumerate(names):
    train(seed, name, alone, threading.Barrier(1))
ready = threading.Barrier(len(names))
threads = [threading.Thread(target=train, args=(seed, name, together, ready)) for seed, name in enumerate(names)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
for seed, name in enumerate(names):
    assert alone[seed][0][-1] < alone[seed][0][0]
    assert together[seed] == alone[seed], f"{name} trains otherwise beside the other thread"
print("equal")
"""


def check(names: str, monitors: str, steps: int) -> None:
    """In a process of its own: threads that read each other's gradients crash it."""
    with Program(SCRIPT, names, monitors, steps) as process:
        printed, errors = process.communicate(timeout=300)
    assert (process.returncode, printed) == (0, "equal\n"), errors


@pytest.mark.parametrize(
    ("names", "monitors"), [("Surefoot Surefoot", "plain"), ("NGN Surefoot", "monitored"), ("Surefoot SGD", "plain")]
)
def test_a_thread_trains_as_it_does_alone(names: str, monitors: str) -> None:
    check(names, monitors, 100)


@pytest.mark.slow
@pytest.mark.parametrize("monitors", ["plain", "monitored"])
@pytest.mark.parametrize("names", ["Surefoot Surefoot", "NGN Surefoot", "Surefoot SGD"])
def test_a_thread_trains_as_it_does_alone_for_a_thousand_steps(names: str, monitors: str) -> None:
    check(names, monitors, 1000)


class Groups(list[dict[str, Any]]):
    """Parameter groups that count how often somebody looks through them."""

    looks = 0

    def __iter__(self) -> Iterator[dict[str, Any]]:
        self.looks += 1
        return super().__iter__()


def test_a_backward_pass_looks_at_no_optimizer_that_it_does_not_concern() -> None:
    problem, others = Problem(), [Problem(seed=seed) for seed in (1, 2)]
    optimizer, *idle = (make("NGN", each.params) for each in (problem, *others))
    idle[1].zero_grad()
    others[1].loss(0).backward()  # this one has received a loss, and has used it
    idle[1].step()
    for each in idle:
        each.zero_grad()
        each.param_groups = Groups(each.param_groups)
    optimizer.zero_grad()
    for index in range(3):
        problem.loss(index).backward()
    assert optimizer.pending_loss is not None
    assert [each.param_groups.looks for each in idle] == [0, 0]
    for each, other in zip(idle, others, strict=True):
        other.loss(0).backward()
        assert each.param_groups.looks > 0
