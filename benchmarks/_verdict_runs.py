"""Runs for judging verdicts: task × optimizer × rate, recorded once with all that the monitor has seen.

A run is trained from start to end, for its window, with the monitor attached in the first tenth. The record has the
numbers of those steps, so that weights can be fitted, and verdicts judged, again and again without training.
"""

from __future__ import annotations

import copy
import functools
import itertools
import json
import math
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from torch import nn

import surefoot.optim as sfo
from _tasks import TASKS as PAIRS
from _tasks import Trial, trial
from _training import factors, halves
from _verdict_drawn import KINDS, drawn
from _verdict_tasks import DEVELOPMENT, SPENT, TASKS
from surefoot.monitor import StabilityMonitor, Verdict
from surefoot.monitor._evidence import NEEDED
from surefoot.monitor._judge import EDGE, SHARE, WEIGHTS, Seen, judge, look
from surefoot.rules import Floats
from surefoot.theory import schedules

RATES = 10
"""Of a group, a factor √10 apart."""
LEAST = 0.01
"""Share of the first loss that the best rate of a group has to gain for the group to have a window."""
LONG = ("attention", "images", "recurrent", "long-memory", "residual-images", "language")
"""Kinds of drawn tasks whose runs take long."""
SLOW = {"gpt": 120, "cnn-norm": 160, "cnn-plain": 160, "rnn": 140, "fine-tuning": 200}
"""Steps of the kinds of ``_tasks`` whose runs would else take long."""
ALONG_GRADIENT = ("SGD", "momentum", "NGN")
SHIFT = {"units-1/30": 30.0, "units-30": 1 / 30, "reward": math.sqrt(10.0)}
"""Factor of the rates on tasks in other units; its square where steps are along the gradient."""
SHIFT_ALONG = {"digits-large-inputs": 1e-2}
SHIFT_ACROSS = {"targets-100": 10.0, "linear-exact": 10.0, "linear-noisy": 10.0, "phase": 10.0}
"""Factors of the rates along the gradient, and of those of all other steps."""

TORCH_MUON = (
    *("batch-2-heavy", "change-targets", "labels-wrong", "likelihood", "mse-noise-2"),
    *("separable-blobs", "separable-dna", "shifted-down", "units-1/30", "width-8"),
)
"""Tasks whose matrices torch's Muon trains, and AdamW the rest; elsewhere ours does, which is faster on processors."""

Factory = Callable[[nn.Module, float], torch.optim.Optimizer]
OPTIMIZERS: dict[str, tuple[float, Factory]] = {
    "SGD": (1e-3, lambda m, lr: torch.optim.SGD(m.parameters(), lr)),
    "momentum": (1e-4, lambda m, lr: torch.optim.SGD(m.parameters(), lr, momentum=0.9)),
    "AdamW": (1e-5, lambda m, lr: torch.optim.AdamW(m.parameters(), lr)),
    "Muon": (1e-4, lambda m, lr: sfo.Muon(m.parameters(), lr)),
    "NGN": (1e-2, lambda m, lr: sfo.NGN(m.parameters(), lr)),
    "NGNAdam": (1e-4, lambda m, lr: sfo.NGNAdam(m.parameters(), lr)),
}
"""The smallest of the rates, and how the optimizer is built."""


@dataclass(frozen=True)
class Spec:
    """One run."""

    task: str
    optimizer: str
    schedule: str
    steps: int
    clip: float | None
    lr: float

    @property
    def group(self) -> Spec:
        """What a window belongs to: all but the rate."""
        return replace(self, lr=0.0)


@dataclass(frozen=True)
class Run:
    """A run with its record, and where its rate stands."""

    spec: Spec
    columns: dict[str, Floats]
    """What the monitor has seen of the first tenth."""
    elements: int
    place: str
    """``below``, ``inside`` or ``above`` its window."""
    ended_high: bool
    """Whether it ended not finite, or above its first loss on data that was not trained on."""
    blown_up: bool
    """Whether it ended not finite, or above its first loss on the batches that it was trained on."""
    best: float
    window: tuple[float, float]

    @property
    def peak(self) -> float:
        return float(np.max(self.columns["rate"]))

    def seen(self) -> Seen:
        """The evidence."""
        return look(self.columns, **self._known)

    def verdict(self, weights: Mapping[str, Sequence[float]] = WEIGHTS, edge: float = EDGE) -> Verdict:
        """The monitor's verdict, or the one that it would have made with other weights."""
        return judge(self.columns, **self._known, weights=weights, edge=edge)

    @property
    def _known(self) -> dict[str, Any]:
        return {"horizon": self.spec.steps, "peak": self.peak, "elements": self.elements}


def development() -> Iterator[Spec]:
    """The runs that the weights are fitted on: all of ``_tasks`` and ``_verdict_tasks``."""
    kinds = sorted({task.kind for task in PAIRS.values()})
    for name, task in PAIRS.items():
        place, spent = kinds.index(task.kind), task.held_out
        steps = SLOW.get(task.kind) or (240 if spent else (240, 320, 450)[place % 3])
        for turn, optimizer in enumerate(OPTIMIZERS):
            parity = place // 2 + turn // 2 if spent else place + turn + turn // 2
            clip = 1.0 if optimizer in ("momentum", "AdamW") and place % 4 == 1 else None
            shift = SHIFT.get(name, 1.0) ** (2 if optimizer in ALONG_GRADIENT else 1)
            smallest = shift * OPTIMIZERS[optimizer][0]
            yield from _rates(Spec(name, optimizer, ("constant", "cosine")[parity % 2], steps, clip, smallest))
    for name in DEVELOPMENT | SPENT:
        steps = random.Random(name).choice((160, 240, 320, 480))
        for optimizer in OPTIMIZERS:
            shift = (SHIFT_ALONG if optimizer in ALONG_GRADIENT else SHIFT_ACROSS).get(name, 1.0)
            start = Spec(name, optimizer, "", steps, None, shift * OPTIMIZERS[optimizer][0])
            yield from _rates(_scheduled(start, random.Random(f"{name} {optimizer}")))


def fresh(numbers: Iterable[int]) -> list[Spec]:
    """The runs that judge: drawn tasks of every kind, with three drawn optimizers each; those that take long last."""
    found: list[Spec] = []
    for number, kind in sorted(itertools.product(numbers, KINDS), key=lambda drawn: drawn[1] in LONG):
        draw = random.Random(f"{kind} {number} runs")
        steps = draw.choice((160, 240))
        for optimizer in draw.sample(list(OPTIMIZERS), 3):
            smallest = OPTIMIZERS[optimizer][0] * 10 ** draw.uniform(0, 0.5)
            found.extend(_rates(_scheduled(Spec(f"{kind}-{number}", optimizer, "", steps, None, smallest), draw)))
    return found


def _scheduled(spec: Spec, draw: random.Random) -> Spec:
    schedule = draw.choice(("constant", "cosine", "linear"))
    clip = 1.0 if spec.optimizer in ("SGD", "momentum", "AdamW") and draw.random() < 0.2 else None
    return replace(spec, schedule=schedule, clip=clip)


def _rates(smallest: Spec) -> Iterator[Spec]:
    return (replace(smallest, lr=float(f"{smallest.lr * 10 ** (k / 2):.3g}")) for k in range(RATES))


def rates_of(spec: Spec) -> list[float]:
    """The factors of the rate: ``constant``, ``cosine`` after a warmup of a tenth, ``linear`` decay without one."""
    if spec.schedule == "linear":
        return [float(factor) for factor in schedules.linear(spec.steps)]
    return factors(spec.schedule, spec.steps)


@functools.lru_cache(maxsize=1)
def _built(task: str, steps: int) -> tuple[Trial, dict[str, Any], float]:
    """A task, the weights that it starts from, and its held-out loss there."""
    kind, _, number = task.rpartition("-")
    made = trial(drawn(kind, int(number)) if kind in KINDS else TASKS[task], 0, steps)
    return made, copy.deepcopy(made.model.state_dict()), made.held_out()


def record(spec: Spec) -> dict[str, Any]:
    """Train from start to end: the held-out losses of both, and what the monitor has seen of the first tenth."""
    made, start, first = _built(spec.task, spec.steps)
    made.model.load_state_dict(start)
    eta = rates_of(spec)
    torch.manual_seed(0)
    optimizer, others = OPTIMIZERS[spec.optimizer][1](made.model, spec.lr), []
    if spec.optimizer == "Muon" and spec.task in TORCH_MUON:
        matrices, rest = halves(made.model.named_parameters())
        optimizer = torch.optim.Muon(matrices, spec.lr, weight_decay=0.0)
        others = [torch.optim.AdamW(rest, spec.lr / 10)] if rest else []
    rates = [(group, group["lr"]) for each in (optimizer, *others) for group in each.param_groups]
    monitor = StabilityMonitor(optimizer, horizon=spec.steps).attach()
    last, losses = math.inf, []
    for step in range(spec.steps):
        if step == spec.steps // SHARE:
            monitor.detach()
        for group, rate in rates:
            group["lr"] = rate * eta[step]
        made.model.zero_grad()
        loss = made.batch_loss(step)
        loss.backward()
        if spec.clip is not None:
            nn.utils.clip_grad_norm_(made.model.parameters(), spec.clip)
        if isinstance(optimizer, sfo.LossOptimizer):
            optimizer.step(loss=loss)
        else:
            monitor.record(loss)
            optimizer.step()
        for other in others:
            other.step()
        losses.append(loss.item())
        if not math.isfinite(losses[-1]):
            break
    else:
        last = made.held_out()
    numbers = monitor.numbers()
    numbers["size"] = np.where(np.isnan(numbers["size"]), numbers["rate"], numbers["size"])
    columns = {name: [float(f"{x:.9g}") for x in numbers[name]] for name in (*NEEDED, "carried")}
    tenth = spec.steps // SHARE
    trained = float(np.median(losses[-tenth:])) - float(np.median(losses[:3])) if math.isfinite(last) else math.inf
    return {
        "first": first,
        "last": last,
        "trained": trained,
        "elements": monitor._sample.elements,
        "columns": columns,
    }


def recorded(wanted: list[Spec], file: Path, *, train: bool = True) -> list[Run]:
    """All runs that have a window; what the file lacks is trained, or its group is left out."""
    lines = map(json.loads, file.read_text().splitlines()) if file.exists() else ()
    known = {line.pop("key"): line for line in lines}
    missing = [spec for spec in wanted if repr(spec) not in known] if train else []
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a") as out:
        for spec in track(missing, "training", console=Console(stderr=True), disable=not missing):
            known[repr(spec)] = found = record(spec)
            out.write(json.dumps({"key": repr(spec), **found}) + "\n")
            out.flush()
    groups: dict[Spec, list[Spec]] = {}
    for spec in wanted:
        groups.setdefault(spec.group, []).append(spec)
    return [run for group in groups.values() if all(repr(s) in known for s in group) for run in _placed(group, known)]


def _placed(group: list[Spec], known: dict[str, dict[str, Any]]) -> Iterator[Run]:
    """The runs of a group, unless no rate has lowered the loss; rates that fail between good ones are left out."""
    found = [known[repr(spec)] for spec in group]
    first, lasts = found[0]["first"], [line["last"] for line in found]
    best = min(lasts)
    if not best <= first - LEAST * abs(first):
        return
    good = [spec.lr for spec, last in zip(group, lasts, strict=True) if last <= best + 0.1 * (first - best)]
    low, high = min(good), max(good)
    for spec, line in zip(group, found, strict=True):
        place = "below" if spec.lr < low else "above" if spec.lr > high else "inside"
        if place == "inside" and spec.lr not in good:
            continue
        columns = {name: np.array(values) for name, values in line["columns"].items()}
        ends = not line["last"] < first, not line["trained"] < 0
        yield Run(spec, columns, line["elements"], place, *ends, group[lasts.index(best)].lr, (low, high))
