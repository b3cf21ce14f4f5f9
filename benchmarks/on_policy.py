"""REINFORCE on a pole that is balanced by hand-written dynamics: Surefoot where the loss is not comparable.

    python benchmarks/on_policy.py [--updates 120] [--seeds 3]

The policy draws its own data, so the loss means something else in every step. *Normalised*: returns of a batch have
mean 0 and deviation 1, and the loss stays around 0. *Plain*: returns as they are, and the loss grows with the
policy's success. Printed is the mean length of the last 20 batches of episodes, of at most 200 steps, for every seed.
"""

from __future__ import annotations

import argparse
import statistics
import warnings
from collections.abc import Callable
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

import surefoot.optim as sfo

LONGEST, EPISODES, DISCOUNT = 200, 4, 0.99
OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "Adam, 0.001": lambda params: torch.optim.Adam(params, 1e-3),
    "Adam, 0.01": lambda params: torch.optim.Adam(params, 1e-2),
    "Adam, 0.03": lambda params: torch.optim.Adam(params, 3e-2),
    "Surefoot": sfo.Surefoot,
}


def moved(state: Tensor, right: Tensor) -> Tensor:
    """The cart with its pole a fiftieth of a second later, pushed to the right or to the left with 10 N."""
    place, speed, angle, turning = state.unbind(-1)
    push = (20.0 * right - 10.0 + 0.05 * turning.square() * angle.sin()) / 1.1
    turn = (9.8 * angle.sin() - angle.cos() * push) / (0.5 * (4 / 3 - 0.1 * angle.cos().square() / 1.1))
    gain = push - 0.05 * turn * angle.cos() / 1.1
    return torch.stack([place + 0.02 * speed, speed + 0.02 * gain, angle + 0.02 * turning, turning + 0.02 * turn], -1)


def episodes(policy: nn.Module, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """States and actions, and whether the pole still stood, by step and episode."""
    state = 0.1 * (torch.rand(EPISODES, 4, generator=generator) - 0.5)
    stands = torch.ones(EPISODES)
    states, actions, alive = [], [], []
    while len(states) < LONGEST and bool(stands.any()):
        with torch.no_grad():
            right = (torch.rand(EPISODES, generator=generator) < policy(state).softmax(-1)[:, 1]).float()
        states.append(state)
        actions.append(right)
        alive.append(stands)
        state = moved(state, right)
        stands = stands * (state[:, 0].abs() < 2.4) * (state[:, 2].abs() < 0.2095)
    return torch.stack(states), torch.stack(actions).long(), torch.stack(alive)


def returns(alive: Tensor) -> Tensor:
    """What every step brings: a point for every step in which the pole stands, discounted."""
    total, found = torch.zeros(EPISODES), []
    for stands in alive.flip(0):
        total = stands * (1.0 + DISCOUNT * total)
        found.append(total)
    return torch.stack(found[::-1])


def train(build: Callable[[Any], torch.optim.Optimizer], *, normalised: bool, updates: int, seed: int) -> float:
    """Mean length of the episodes of the last 20 updates."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    policy = nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 2))
    optimizer = build(policy.parameters())
    lengths = []
    for _ in range(updates):
        states, actions, alive = episodes(policy, generator)
        lengths.append(float(alive.sum(0).mean()))
        worth = returns(alive)
        if normalised:
            known = worth[alive > 0]
            worth = (worth - known.mean()) / (known.std() + 1e-6)
        likelihood = policy(states).log_softmax(-1).gather(-1, actions[..., None])[..., 0]
        optimizer.zero_grad()
        (-(likelihood * worth * alive).sum() / alive.sum()).backward()
        optimizer.step()
    return statistics.fmean(lengths[-20:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=120)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    table = Table(title=f"Length of episodes after {options.updates} updates")
    for column in ("optimizer", "normalised returns", "plain returns"):
        table.add_column(column, justify="left" if column == "optimizer" else "right")
    for name, build in OPTIMIZERS.items():
        cells = []
        for normalised in (True, False):
            with warnings.catch_warnings(record=True) as caught:
                found = [
                    train(build, normalised=normalised, updates=options.updates, seed=seed)
                    for seed in range(options.seeds)
                ]
            cells.append(" ".join(f"{length:.0f}" for length in found) + (", with a warning" if caught else ""))
        table.add_row(name, *cells)
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
