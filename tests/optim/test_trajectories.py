"""Every optimizer takes the steps that were recorded for it: ``trajectories.csv``, float64, two groups, a schedule."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
import torch

import surefoot.optim as sfo

RATES = {"SGD": 0.05, "MoMo": 0.5, "MoMoAdam": 0.01, "NGNAdam": 0.01, "NGNMomentumAdam": 0.01, "Muon": 0.02}
RATES |= {"SPSMuon": 0.03}
OPTIONS: dict[str, dict[str, Any]] = {
    "default": {},
    "max_grad_norm": {"max_grad_norm": 0.3},
    "weight_decay": {"weight_decay": 0.1},
    "estimate": {"lower_bound": "estimate"},
    "level": {"lower_bound": "level"},
    "bound": {"lower_bound": -0.5},
    "schedule-free": {"momentum": sfo.ScheduleFree()},
}


def recorded() -> dict[tuple[str, str], list[tuple[int, float, float]]]:
    with (Path(__file__).parent / "trajectories.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    found: dict[tuple[str, str], list[tuple[int, float, float]]] = {}
    for row in rows:
        step = int(row["step"]), float(row["loss"]), float(row["delta"])
        found.setdefault((row["optimizer"], row["options"]), []).append(step)
    return found


RECORDED = recorded()


@pytest.mark.parametrize(("name", "options"), RECORDED, ids=lambda word: word)
def test_the_steps_are_those_that_were_recorded(name: str, options: str) -> None:
    torch.manual_seed(0)
    layers = [torch.nn.Linear(6, 12), torch.nn.Tanh(), torch.nn.Linear(12, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)]
    net = torch.nn.Sequential(*layers).double()
    inputs = torch.randn(96, 6, dtype=torch.float64)
    targets = inputs.prod(1, keepdim=True).tanh() + inputs.sum(1, keepdim=True)
    rate = RATES.get(name, 1.0)
    groups: list[dict[str, Any]] = [
        {"params": [*net[0].parameters(), *net[2].parameters()], "lr": rate},
        {"params": list(net[4].parameters()), "lr": rate if name == "Surefoot" else rate / 2},
    ]
    optimizer = getattr(sfo, name)(groups, **OPTIONS[options])
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0 if step < 8 else 0.5)
    found = {}
    for step in range(16):
        batch = torch.randint(0, 96, (12,), generator=torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        loss = (net(inputs[batch]) - targets[batch]).square().mean()
        loss.backward()
        optimizer.step()
        schedule.step()
        found[step] = loss.item(), optimizer.last_step.delta.item()
    for step, loss_then, delta_then in RECORDED[name, options]:
        assert found[step][0] == pytest.approx(loss_then, rel=1e-7)
        assert found[step][1] == pytest.approx(delta_then, rel=1e-6, abs=1e-9)
