"""What the processes of the distributed tests run; a module of its own, so that they can import it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.distributed as distributed
from tests.optim.optim_problem import RATES, make
from tests.processes import run_ranks
from torch import Tensor

import surefoot.optim as sfo

RANKS = 2
BATCH = 8


def network() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))


def batch(index: int, rank: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(10 * index + rank)
    inputs = torch.randn((BATCH, 4), generator=generator)
    return inputs, torch.sin(inputs.sum(1, keepdim=True)) + 2.0


def loss_of(net: torch.nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    return (net(inputs) - targets).square().mean()


def rate(name: str) -> float:
    return 0.2 * RATES[name]


def worker(rank: int, folder: str, names: list[str], steps: int, process_group: Any) -> None:
    """Train every named optimizer under DDP on this rank's data, and what else needs ranks; save what came out."""
    torch.set_num_threads(1)
    path = Path(folder)
    distributed.init_process_group("gloo", init_method=f"file://{path / 'rendezvous'}", rank=rank, world_size=RANKS)
    results: dict[str, Any] = {"partitioned": partitioned(), "SPP": spp_on(rank)}
    results |= {f"{name} with a NaN": [bad_gradient(name, rank, process_group)] for name in ("NGN", "Surefoot")}
    for name in names:
        net = torch.nn.parallel.DistributedDataParallel(network())
        optimizer = make(name, net.parameters(), lr=rate(name), process_group=process_group)
        for index in range(steps):
            optimizer.zero_grad()
            loss = loss_of(net, *batch(index, rank))
            loss.backward()
            optimizer.step(loss=loss)
        results[name] = [p.detach().clone() for p in net.parameters()]
        results[name].append(torch.stack(list(optimizer.last_step)))
    torch.save(results, path / f"rank{rank}.pt")
    distributed.destroy_process_group()


def run(folder: Path, names: list[str], steps: int, process_group: Any = "auto") -> list[dict[str, Any]]:
    run_ranks(worker, (str(folder), names, steps, process_group), RANKS)
    return [torch.load(folder / f"rank{rank}.pt", weights_only=True) for rank in range(RANKS)]


def partitioned() -> str:
    """What an optimizer says to being partitioned."""
    from torch.distributed.optim import ZeroRedundancyOptimizer

    try:
        ZeroRedundancyOptimizer(network().parameters(), sfo.NGN, lr=0.1)
    except TypeError as error:
        return str(error)
    return ""


def bad_gradient(name: str, rank: int, process_group: Any) -> Tensor:
    """Five steps; at the third, a rank writes a NaN into the gradient that DDP has averaged."""
    net = torch.nn.parallel.DistributedDataParallel(network())
    optimizer = make(name, net.parameters(), lr=rate(name), process_group=process_group)
    points = []
    for index in range(5):
        optimizer.zero_grad()
        loss_of(net, *batch(index, rank)).backward()
        if (index, rank) == (2, 1):
            next(net.parameters()).grad[0, 0] = torch.nan  # type: ignore[index]
        optimizer.step()
        points.append(torch.cat([p.detach().reshape(-1) for p in net.parameters()]))
    return torch.stack([torch.cat([point, optimizer.skipped.reshape(1)]) for point in points])


def spp_on(rank: int) -> list[Tensor]:
    """Two steps of SPP under DDP on a rank's data."""
    net = torch.nn.parallel.DistributedDataParallel(network())
    return spp_steps(net, [batch(index, rank) for index in range(2)])


def joint_batch(index: int) -> tuple[Tensor, Tensor]:
    """The data of all ranks."""
    inputs, targets = zip(*(batch(index, rank) for rank in range(RANKS)), strict=True)
    return torch.cat(inputs), torch.cat(targets)


def spp_steps(net: torch.nn.Module, batches: list[tuple[Tensor, Tensor]]) -> list[Tensor]:
    optimizer = sfo.SPP(net.parameters(), 0.5)
    for inputs, targets in batches:

        def closure(inputs: Tensor = inputs, targets: Tensor = targets) -> Tensor:
            optimizer.zero_grad()
            loss = loss_of(net, inputs, targets)
            loss.backward()
            return loss

        optimizer.step(closure)
    return [p.detach().clone() for p in net.parameters()]
