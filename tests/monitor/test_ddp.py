"""Two gloo ranks with data of their own: all ranks stop at the same step, for the same reason."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as distributed
from tests.processes import run_ranks
from torch.nn.parallel import DistributedDataParallel

import surefoot.optim as sfo
from surefoot.monitor import DeltaExplosion, NonFinite, PartialBound, StabilityMonitor

RANKS = 2


CASES = {
    "bound": [PartialBound(100.0, slack=1.0)],
    "ours": [DeltaExplosion(10.0, 3)],
    "one rank breaks": [NonFinite()],
}


def _run(rank: int, folder: str) -> None:
    distributed.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=RANKS)
    torch.set_num_threads(1)
    try:
        found = {case: _train(rank, case) for case in CASES}
        Path(folder, f"{rank}.json").write_text(json.dumps(found))
    finally:
        distributed.destroy_process_group()


def _train(rank: int, case: str) -> dict[str, Any]:
    torch.manual_seed(0)
    parallel = DistributedDataParallel(torch.nn.Linear(4, 1))
    inputs = torch.randn(8, 4, generator=torch.Generator().manual_seed(100 + rank))
    # The ranks see quite different losses: only their mean is the same for all.
    targets = torch.full((8, 1), 1.0 + 20.0 * rank)
    ours = case == "ours"
    optimizer = (sfo.SGD if ours else torch.optim.SGD)(parallel.parameters(), lr=1.6)
    with StabilityMonitor(optimizer, horizon=60, stop=CASES[case], flush_every=5) as monitor:
        while not monitor.should_stop and monitor.steps < 60:
            optimizer.zero_grad()
            loss = (parallel(inputs) - targets).square().mean()
            loss.backward()
            if case == "one rank breaks" and monitor.steps == 11 and rank == 1:
                loss = loss * math.nan
            if ours:
                optimizer.step(loss=loss)
            else:
                monitor.record(loss)
                optimizer.step()
        if rank == 0:  # asking on one rank only must not wait for the others
            monitor.trace()
            monitor.verdict()
    assert monitor.stopped is not None
    first = float(monitor.trace().loss.values[0])
    return {"ended": monitor.steps, "first loss": first, "stopped": asdict(monitor.stopped)}


@pytest.fixture(scope="module")
def results(tmp_path_factory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("ranks")
    run_ranks(_run, (str(folder),), RANKS)
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(RANKS)]


@pytest.mark.parametrize("case", CASES)
def test_all_ranks_stop_at_the_same_step(results, case):
    first, second = (result[case] for result in results)
    assert first == second
    assert first["stopped"]["step"] < first["ended"] < 60


def test_what_breaks_on_one_rank_stops_all(results):
    assert [result["one rank breaks"]["stopped"]["step"] for result in results] == [11, 11]
