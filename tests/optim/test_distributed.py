"""Two processes under DDP: the same step on every rank, and that of one process on the joint batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.optim.optim_problem import NAMES, distance, equal, make
from tests.optim.optim_ranks import joint_batch, loss_of, network, rate, run, spp_steps
from torch import Tensor

FAST = ["SPS", "NGN", "MoMoAdam", "Surefoot"]
Ranks = list[dict[str, Any]]


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> Ranks:
    """What each of the two ranks found; they are started once for all tests."""
    return run(tmp_path_factory.mktemp("ranks"), FAST, 20)


def joint(name: str, steps: int) -> list[Tensor]:
    """One process on both ranks' data."""
    net = network()
    optimizer = make(name, net.parameters(), lr=rate(name))
    for index in range(steps):
        optimizer.zero_grad()
        loss = loss_of(net, *joint_batch(index))
        loss.backward()
        optimizer.step(loss=loss)
    return [p.detach().clone() for p in net.parameters()]


def check(ranks: Ranks, names: list[str], steps: int) -> None:
    for name in names:
        first, second = (rank[name] for rank in ranks)
        assert equal(first, second), f"{name}: the ranks drifted apart"
        apart = distance(first[:-1], joint(name, steps))
        assert apart <= 1e-5, f"{name}: {apart:.1e} away from one process on the joint batch"


def test_two_ranks_stay_together(ranks: Ranks) -> None:
    check(ranks, FAST, 20)


@pytest.mark.slow
def test_two_ranks_stay_together_for_a_thousand_steps(tmp_path: Path) -> None:
    check(run(tmp_path, list(NAMES), 1000), list(NAMES), 1000)


@pytest.mark.parametrize("name", ["NGN", "Surefoot"])
def test_a_nan_in_the_gradient_of_one_rank_makes_all_ranks_skip(ranks: Ranks, name: str) -> None:
    (first,), (second,) = (rank[f"{name} with a NaN"] for rank in ranks)
    assert torch.equal(first, second), "the ranks drifted apart"
    moved = (first[1:, :-1] != first[:-1, :-1]).any(dim=1)
    assert moved.tolist() == [True, False, True, True]
    assert first[:, -1].tolist() == [1.0] * 5


def test_a_partition_of_the_parameters_is_refused(ranks: Ranks) -> None:
    for rank in ranks:
        assert "needs the norm of all parameters" in rank["partitioned"]


def test_the_exact_step_is_that_of_one_process_on_the_joint_batch(ranks: Ranks) -> None:
    first, second = (rank["SPP"] for rank in ranks)
    assert equal(first, second)
    assert distance(first, spp_steps(network(), [joint_batch(index) for index in range(2)])) <= 1e-4
    assert distance(first, [p.detach() for p in network().parameters()]) > 1e-2
