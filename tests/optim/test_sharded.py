"""Two processes with sharded parameters: every step is that of one process on the joint batch."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as checkpoint
from tests.optim.optim_shards import (
    CASES,
    CHECKPOINTS,
    STEPS,
    WIDE_CASES,
    Case,
    joint_batch,
    network,
    outcome,
    run,
    scattered_problem,
    train,
    wide_worker,
)
from torch import Tensor
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

import surefoot.optim as sfo

Ranks = list[dict[str, Any]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the ranks leave results and checkpoints."""
    return tmp_path_factory.mktemp("ranks")


@pytest.fixture(scope="module")
def ranks(folder: Path) -> Ranks:
    """What each of the two ranks found; they are started once for all tests."""
    return run(folder)


def apart(left: list[Tensor], right: list[Tensor]) -> float:
    return max(float((a - b).abs().max()) for a, b in zip(left, right, strict=True))


def alone(case: Case, width: int = 7, ranks: int = 2) -> list[Tensor]:
    """The same in one process, on the data of all ranks."""
    net = network(width)
    optimizer = case.build(net)
    train(net, optimizer, range(STEPS), lambda index: joint_batch(index, ranks))
    return outcome(net, optimizer)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_sharded_equals_replicated(case: Case, ranks: Ranks) -> None:
    first, second = (rank[case.id] for rank in ranks)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True)), "the ranks drifted apart"
    assert apart(first, alone(case)) <= 1e-11


@pytest.mark.parametrize("kind", ["checkpoint", "whole"])
@pytest.mark.parametrize("case", CHECKPOINTS, ids=lambda case: case.id)
def test_a_checkpoint_continues_bitwise_on_two_ranks(case: Case, kind: str, ranks: Ranks) -> None:
    for rank in ranks:
        unbroken, resumed = rank[f"{kind} {case.id}"]
        assert all(torch.equal(a, b) for a, b in zip(unbroken, resumed, strict=True))


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
@pytest.mark.parametrize("case", CHECKPOINTS, ids=lambda case: case.id)
def test_a_checkpoint_of_two_ranks_continues_in_one_process(case: Case, ranks: Ranks, folder: Path) -> None:
    net = network()
    with torch.no_grad():
        for p in net.parameters():
            p.zero_()
    optimizer = case.build(net)
    model_state, optimizer_state = get_state_dict(net, optimizer)
    target = {"model": model_state, "optimizer": optimizer_state}
    checkpoint.load(target, checkpoint_id=folder / case.id, no_dist=True)
    set_state_dict(net, optimizer, model_state_dict=target["model"], optim_state_dict=target["optimizer"])
    train(net, optimizer, range(3, STEPS), joint_batch)
    assert apart(outcome(net, optimizer), ranks[0][f"checkpoint {case.id}"][0]) <= 1e-11


def test_a_nan_on_one_rank_is_skipped_by_all(ranks: Ranks) -> None:
    for rank in ranks:
        before, after, skipped = rank["spoiled"]
        assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
        assert skipped == 1


def test_losses_of_passes_that_were_not_synchronised_are_not_left_out_in_silence(ranks: Ranks) -> None:
    for rank in ranks:
        assert "has left no gradient in the sharded parameters" in rank["unsynchronised"]


def test_a_loss_may_be_a_dtensor(ranks: Ranks) -> None:
    assert apart(ranks[0]["loss"], alone(Case("NGN"))) <= 1e-11


def test_other_placements_and_gradients_that_are_still_partial(ranks: Ranks) -> None:
    params = []
    for value, grad in scattered_problem():
        params.append(torch.nn.Parameter(value))
        params[-1].grad = grad
    optimizer = sfo.NGNAdam(params, lr=0.1)
    optimizer.step(loss=2.0)
    expected = [p.detach() for p in params] + [optimizer.last_step.delta.reshape(1)]
    assert apart(ranks[0]["placed"], expected) <= 1e-12
    assert apart(ranks[1]["placed"], expected) <= 1e-12


def test_parameters_of_unknown_value_are_refused(ranks: Ranks) -> None:
    assert "must be sharded or replicated, got a DTensor with placements (Partial" in ranks[0]["refused"]["partial"]


def test_flat_parameters_of_the_first_fsdp_are_refused(ranks: Ranks) -> None:
    assert "use torch.distributed.fsdp.fully_shard" in ranks[0]["refused"]["flat"]


@pytest.mark.slow
def test_hybrid_and_tensor_parallel_meshes(tmp_path: Path) -> None:
    results = run(tmp_path, wide_worker, ranks=4)
    for case in WIDE_CASES:
        expected = alone(case, ranks=4) if case.layout == "hybrid" else alone(case, width=8)
        for rank in results:
            assert apart(rank[case.id], expected) <= 1e-11, case.id


@pytest.mark.slow
def test_the_script_of_the_guide_runs_on_two_ranks(tmp_path: Path) -> None:
    page = Path(__file__).parents[2] / "docs" / "sharded-and-jax.md"
    block = re.search(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    assert block is not None
    (tmp_path / "train.py").write_text(block.group(1), encoding="utf-8")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "train.py"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    loss = re.match(r"loss ([\d.]+), step [\d.]+, delta -?[\d.]+\n", done.stdout)
    assert loss is not None, done.stdout
    assert float(loss.group(1)) < 0.5
