"""Runs for judging verdicts: a task and an optimizer at rates 0.6 decades apart, with a monitor from start to end.

A group of runs is one file with all numbers that the monitor has kept, so that other evidence can be tried without
training. ``verdict.csv`` holds what the monitor makes of them after a tenth of the steps, three tenths, and all.
"""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import surefoot.optim as sfo
from _tasks import Trial
from _verdict_drawn import KINDS, drawn
from _verdict_networks import NETWORKS
from surefoot.monitor import StabilityMonitor
from surefoot.monitor._judge import Evidence, Setting, look
from surefoot.monitor._measure import momentum
from surefoot.theory import schedules

Factory = Callable[[nn.Module, float], torch.optim.Optimizer]
OPTIMIZERS: dict[str, tuple[str, float, Factory]] = {
    "SGD": ("sgd", 1.0, lambda m, lr: torch.optim.SGD(m.parameters(), lr)),
    "momentum": ("sgd", 0.1, lambda m, lr: torch.optim.SGD(m.parameters(), lr, momentum=0.9)),
    "Adam": ("adam", 1.0, lambda m, lr: torch.optim.Adam(m.parameters(), lr)),
    "AdamW": ("adam", 1.0, lambda m, lr: torch.optim.AdamW(m.parameters(), lr)),
    "RMSprop": ("adam", 0.5, lambda m, lr: torch.optim.RMSprop(m.parameters(), lr)),
    "Adagrad": ("adam", 5.0, lambda m, lr: torch.optim.Adagrad(m.parameters(), lr)),
    "Muon": ("adam", 5.0, lambda m, lr: sfo.Muon(m.parameters(), lr)),
    "NGN": ("sgd", 3.0, lambda m, lr: sfo.NGN(m.parameters(), lr)),
    "NGNAdam": ("adam", 1.0, lambda m, lr: sfo.NGNAdam(m.parameters(), lr)),
}
"""Whose rate of a task it takes, times which factor, and how it is built."""
LEGS = (-2.0, -1.4, -0.8, -0.2, 0.4, 1.0)
"""Decades from there; more are added while the best rate is the smallest or the largest one."""
MOST = 8
"""Rates of a group, at most."""
ALWAYS = (("Adam", "constant"), ("AdamW", "warmup"), ("momentum", "constant"))
SOMETIMES = (
    *(("SGD", "constant"), ("momentum", "cosine"), ("AdamW", "cosine")),
    *(("RMSprop", "constant"), ("Adagrad", "constant")),
)
"""Optimizers and schedules of the networks: all of the first, and one of these that is drawn."""
SMALL = tuple(kind for kind in KINDS if kind not in ("regression", "residual-images", "attention"))
"""Kinds of small tasks that are fitted on: none that is like one of the untouched networks."""
LEAST = 0.01
"""Share of the first loss that the best rate of a group has to gain for the group to have a window."""
SHARES = (0.1, 0.3, 1.0)
"""Shares of a run's steps after which it is judged."""


@dataclass(frozen=True)
class Group:
    """A task and an optimizer; what a window belongs to."""

    task: str
    optimizer: str
    schedule: str
    steps: int
    clip: float | None
    lr: float
    """A rate that is about right."""

    @property
    def name(self) -> str:
        clip = "" if self.clip is None else "_clip"
        return f"{self.task}_{self.optimizer}_{self.schedule}{clip}"

    def trial(self) -> Trial:
        """The network and its data."""
        if self.task in NETWORKS:
            return NETWORKS[self.task][0]()
        kind, _, number = self.task.rpartition("-")
        return drawn(kind, int(number)).make(0, self.steps)


def networks(kinds: Iterable[str]) -> Iterator[Group]:
    """Four optimizers on each kind of network."""
    for kind in kinds:
        _, steps, *rates = NETWORKS[kind]
        for optimizer, schedule in (*ALWAYS, *random.Random(kind).sample(SOMETIMES, 1)):
            draw = random.Random(f"{kind} {optimizer} {schedule}")
            clip = 1.0 if schedule == "warmup" and kind in ("gpt", "lstm", "vit") else None
            yield Group(kind, optimizer, schedule, steps, clip, _about(optimizer, rates, draw))


def small(kinds: Iterable[str], numbers: Iterable[int]) -> Iterator[Group]:
    """Small tasks that are drawn, with three drawn optimizers each."""
    kinds = tuple(kinds)
    for number in numbers:
        for kind in kinds:
            draw = random.Random(f"{kind} {number} optimizers")
            for optimizer in draw.sample(list(OPTIMIZERS), 3):
                schedule = draw.choice(("constant", "constant", "cosine", "warmup", "linear"))
                steps = 160 + draw.randrange(240)
                clip = 1.0 if optimizer in ("SGD", "momentum", "AdamW") and draw.random() < 0.15 else None
                yield Group(f"{kind}-{number}", optimizer, schedule, steps, clip, _about(optimizer, [0.1, 1e-2], draw))


def _about(optimizer: str, rates: list[float], draw: random.Random) -> float:
    which, factor, _ = OPTIMIZERS[optimizer]
    return float(f"{rates[which == 'adam'] * factor * 10 ** draw.uniform(-0.25, 0.25):.3g}")


def factors(name: str, steps: int) -> list[float]:
    """``constant``, ``cosine``, ``linear`` decay, or ``warmup``: over a twentieth of the steps, and cosine then."""
    if name in ("constant", "linear"):
        return [float(factor) for factor in schedules.from_name(name, steps)]
    warm = max(1, steps // 20) if name == "warmup" else 1
    return [min(1.0, (k + 1) / warm) * float(f) for k, f in enumerate(schedules.cosine(steps))]


def record(group: Group, folder: Path) -> None:
    """Train a group, unless there is a file of it."""
    file = folder / f"{group.name}.npz"
    if file.exists():
        return
    torch.manual_seed(0)
    made = group.trial()
    start, first = copy.deepcopy(made.model.state_dict()), made.held_out()
    runs: dict[float, dict[str, Any]] = {}
    wanted = [*LEGS]
    while wanted:
        for leg in wanted:
            made.model.load_state_dict(start)
            runs[leg] = _run(group, made, group.lr * 10**leg)
        order = sorted(runs)
        best = min(order, key=lambda leg: runs[leg]["last"])
        beyond = {order[0]: order[0] - 0.6, order[-1]: order[-1] + 0.6}
        wanted = [beyond[best]] if best in beyond and len(runs) < MOST else []
    names = list(runs[order[0]]["columns"])
    columns = np.full((len(order), len(names), group.steps), np.nan)
    for place, leg in enumerate(order):
        for line, name in enumerate(names):
            values = runs[leg]["columns"][name]
            columns[place, line, : len(values)] = values
    numbers = {key: np.array([runs[leg][key] for leg in order]) for key in ("last", "trained", "done", "elements")}
    folder.mkdir(parents=True, exist_ok=True)
    rates = group.lr * 10.0 ** np.array(order)
    np.savez_compressed(file, rates=rates, names=np.array(names), columns=columns, first=first, **numbers)


def _run(group: Group, made: Trial, lr: float) -> dict[str, Any]:
    """Train from start to end."""
    eta = factors(group.schedule, group.steps)
    torch.manual_seed(0)
    optimizer = OPTIMIZERS[group.optimizer][2](made.model, lr)
    rates = [(g, g["lr"]) for g in optimizer.param_groups]
    last, losses = math.inf, []
    with StabilityMonitor(optimizer, horizon=group.steps, models=()) as monitor:
        for step in range(group.steps):
            for g, rate in rates:
                g["lr"] = rate * eta[step]
            made.model.zero_grad()
            loss = made.batch_loss(step)
            loss.backward()
            if group.clip is not None:
                nn.utils.clip_grad_norm_(made.model.parameters(), group.clip)
            if isinstance(optimizer, sfo.LossOptimizer):
                optimizer.step(loss=loss)
            else:
                monitor.record(loss)
                optimizer.step()
            losses.append(loss.item())
            if not math.isfinite(losses[-1]):
                break
        else:
            last = made.held_out()
    tail = max(group.steps // 10, 3)
    trained = float(np.median(losses[-tail:])) - float(np.median(losses[:3])) if math.isfinite(last) else math.inf
    elements = monitor._sample.elements
    return {"last": last, "trained": trained, "done": len(losses), "elements": elements, "columns": monitor.numbers()}


Row = dict[str, Any]
"""A run after a share of its steps: where its rate stands, and the evidence."""


def rows_of(file: Path) -> Iterator[Row]:
    """The rows of a group, unless no rate has lowered the loss; rates that fail between good ones are left out."""
    found = np.load(file)
    first, last, rates = float(found["first"]), found["last"], found["rates"]
    best = last.min()
    if not best <= first - LEAST * abs(first):
        return
    task, optimizer, schedule = file.stem.split("_")[:3]
    beta = momentum(OPTIMIZERS[optimizer][2](nn.Linear(2, 2), 1.0))
    good = rates[last <= best + 0.1 * (first - best)]
    for place, lr in enumerate(rates):
        side = "below" if lr < good.min() else "above" if lr > good.max() else "inside"
        if side == "inside" and lr not in good:
            continue
        columns = dict(zip(found["names"], found["columns"][place, :, : found["done"][place]], strict=True))
        columns["size"] = np.where(np.isnan(columns["size"]), columns["rate"], columns["size"])
        steps, peak = found["columns"].shape[2], float(np.nanmax(columns["rate"]))
        for share in SHARES:
            part = {name: values[: max(int(share * steps), 5)] for name, values in columns.items()}
            evidence, _, is_lost = look(part, Setting(steps, peak, int(found["elements"][place]), beta))
            if evidence is None:
                continue
            yield {
                "task": task,
                "optimizer": optimizer,
                "schedule": schedule + "-clip" * file.stem.endswith("_clip"),
                "steps": steps,
                "lr": lr,
                "place": side,
                "best": float(rates[last.argmin()]),
                "low": float(good.min()),
                "high": float(good.max()),
                "behind": (last[place] - best) / (first - best),
                "blown_up": int(not found["trained"][place] < 0),
                "after": share,
                "lost": int(is_lost),
                **evidence._asdict(),
            }


COLUMNS = (
    "task",
    "optimizer",
    "schedule",
    "steps",
    "lr",
    "place",
    "best",
    "low",
    "high",
    "behind",
    "blown_up",
    "after",
)
COLUMNS += ("lost", *Evidence._fields)
