"""Two processes under DDP: the same step on every rank, and that of one process on the joint batch."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.multiprocessing as processes
from optim_problem import NAMES, make
from optim_ranks import RANKS, batch, join_worker, loss_of, network, rate, run, zero_worker
from torch import Tensor


def joint(name: str, steps: int) -> list[Tensor]:
    """One process on both ranks' data."""
    net = network()
    optimizer = make(name, net.parameters(), lr=rate(name))
    for index in range(steps):
        inputs, targets = (
            torch.cat(parts) for parts in zip(*(batch(index, rank) for rank in range(RANKS)), strict=True)
        )
        optimizer.zero_grad()
        loss = loss_of(net, inputs, targets)
        loss.backward()
        optimizer.step(loss=loss)
    return [p.detach().clone() for p in net.parameters()]


def check(folder: Path, names: list[str], steps: int) -> None:
    ranks = run(folder, names, steps)
    for name in names:
        first, second = (rank[name] for rank in ranks)
        assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True)), f"{name}: the ranks drifted apart"
        alone = joint(name, steps)
        apart = max(float((a - b).abs().max()) for a, b in zip(first[:-1], alone, strict=True))
        assert apart <= 1e-5, f"{name}: {apart:.1e} away from one process on the joint batch"


def test_two_ranks_stay_together(tmp_path: Path) -> None:
    check(tmp_path, ["SPS", "NGN", "MoMoAdam", "Surefoot"], steps=20)


@pytest.mark.slow
def test_two_ranks_stay_together_for_a_thousand_steps(tmp_path: Path) -> None:
    check(tmp_path, list(NAMES), steps=1000)


@pytest.mark.slow
def test_without_communication_the_ranks_drift_apart(tmp_path: Path) -> None:
    first, second = (rank["NGN"] for rank in run(tmp_path, ["NGN"], 20, process_group=None))
    assert not all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_a_rank_that_runs_out_of_batches_joins(tmp_path: Path) -> None:
    processes.spawn(join_worker, (str(tmp_path / "rendezvous"), str(tmp_path)), nprocs=RANKS)  # type: ignore[attr-defined]
    first, second = (torch.load(tmp_path / f"join{rank}.pt", weights_only=False) for rank in range(RANKS))
    assert len(first[-1]) == 5
    assert len(second[-1]) == 3
    assert all(torch.equal(a, b) for a, b in zip(first[:-1], second[:-1], strict=True))


def test_a_partition_of_the_parameters_is_refused(tmp_path: Path) -> None:
    processes.spawn(zero_worker, (str(tmp_path / "rendezvous"), str(tmp_path)), nprocs=RANKS)  # type: ignore[attr-defined]
    for rank in range(RANKS):
        assert "needs the norm of all of them" in (tmp_path / f"zero{rank}").read_text()
