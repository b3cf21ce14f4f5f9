"""Runs for judging verdicts: task × optimizer × rate, with the loss at which each one ends.

The windows need whole runs, which take minutes; they do not depend on the monitor, and are kept in a cache that a
broken-off recording resumes. The first tenth, which is all that a verdict sees, is run again with the monitor attached.
"""

from __future__ import annotations

import copy
import functools
import json
import math
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

import surefoot.optim as sfo
from _tasks import TASKS as PAIRS
from _tasks import Trial, trial
from _training import factors, halves
from _verdict_tasks import DEVELOPMENT, FRESH, TASKS
from surefoot.monitor import StabilityMonitor
from surefoot.theory import schedules

SHARE = 0.1
"""Of the steps after which a verdict is asked for."""
RATES = 10

Stepper = tuple[torch.optim.Optimizer, list[torch.optim.Optimizer]]
"""The optimizer that is watched, and those that train the rest of the network."""


TORCH_MUON = (
    *("batch-2-heavy", "change-targets", "labels-wrong", "likelihood", "mse-noise-2"),
    *("separable-blobs", "separable-dna", "shifted-down", "units-1/30", "width-8"),
)
"""Tasks whose matrices torch's Muon trains, and AdamW the rest; elsewhere ours does, which is faster on processors."""


def muon(model: nn.Module, lr: float, task: str) -> Stepper:
    matrices, rest = halves(model.named_parameters())
    if task not in TORCH_MUON:
        return sfo.Muon(model.parameters(), lr), []
    others = [torch.optim.AdamW(rest, lr / 10)] if rest else []
    return torch.optim.Muon(matrices, lr, weight_decay=0.0), others


OPTIMIZERS: dict[str, tuple[float, Callable[[nn.Module, float, str], Stepper]]] = {
    "SGD": (1e-3, lambda m, lr, _: (torch.optim.SGD(m.parameters(), lr), [])),
    "momentum": (1e-4, lambda m, lr, _: (torch.optim.SGD(m.parameters(), lr, momentum=0.9), [])),
    "AdamW": (1e-5, lambda m, lr, _: (torch.optim.AdamW(m.parameters(), lr), [])),
    "Muon": (1e-4, muon),
    "NGN": (1e-2, lambda m, lr, _: (sfo.NGN(m.parameters(), lr), [])),
    "NGNAdam": (1e-4, lambda m, lr, _: (sfo.NGNAdam(m.parameters(), lr), [])),
}
"""The smallest of the rates, which are a factor √10 apart, and how the optimizer is built."""

SLOW = {"gpt": 120, "cnn-norm": 160, "cnn-plain": 160, "rnn": 140, "fine-tuning": 200}
SLOW_FRESH = ("lstm-rows", "residual-images", "gpt-small")
ALONG_GRADIENT = ("SGD", "momentum", "NGN")
SHIFT = {"units-1/30": 30.0, "units-30": 1 / 30, "reward": math.sqrt(10.0)}
"""Factor of the rates on tasks in other units; its square where steps are along the gradient."""
SHIFT_ALONG = {"digits-large-inputs": 1e-2}
SHIFT_ACROSS = {"targets-100": 10.0, "linear-exact": 10.0, "linear-noisy": 10.0, "phase": 10.0}
"""Factors of the rates along the gradient, and of those of all other steps."""


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
    def key(self) -> str:
        return f"{self.task} {self.optimizer} {self.schedule} {self.steps} {self.clip} {self.lr:.3g}"

    @property
    def group(self) -> str:
        """What a window belongs to: all but the rate."""
        return self.key.rsplit(" ", 1)[0]


def specs(half: str, slow: bool = True) -> Iterator[Spec]:
    """All runs of ``development``, ``held-out`` (old) or ``fresh``, with or without those that take long.

    Held-out and fresh tasks are mostly trained with every second optimizer.
    """
    if half == "development":
        yield from _of_pairs(False, slow)
        yield from _of_own(DEVELOPMENT)
    elif half == "held-out":
        yield from _of_pairs(True, slow)
    else:
        yield from sorted(_of_own(FRESH, every_second=True), key=lambda spec: spec.task in SLOW_FRESH)


def _of_own(tasks: Iterable[str], every_second: bool = False) -> Iterator[Spec]:
    """Runs of this benchmark's own tasks; their length, and every optimizer's schedule and clipping, are drawn."""
    for place, name in enumerate(tasks):
        steps = random.Random(name).choice((160, 240, 320, 480))
        for turn, (optimizer, (smallest, _)) in enumerate(OPTIMIZERS.items()):
            drawn = random.Random(f"{name} {optimizer}")
            schedule = drawn.choice(("constant", "cosine", "linear"))
            clip = 1.0 if optimizer in ("SGD", "momentum", "AdamW") and drawn.random() < 0.2 else None
            if every_second and (turn + place) % 2:
                continue
            shift = (SHIFT_ALONG if optimizer in ALONG_GRADIENT else SHIFT_ACROSS).get(name, 1.0)
            for k in range(RATES):
                yield Spec(name, optimizer, schedule, steps, clip, shift * smallest * 10 ** (k / 2))


def _of_pairs(held_out: bool, slow: bool) -> Iterator[Spec]:
    names = [name for name, task in PAIRS.items() if task.held_out == held_out]
    names.sort(key=_slow_last)
    kinds = sorted({task.kind for task in PAIRS.values()})
    for name in names:
        place = kinds.index(TASKS[name].kind)
        for turn, (optimizer, (smallest, _)) in enumerate(OPTIMIZERS.items()):
            long = TASKS[name].kind in SLOW or name == "width-512" or (name == "embedding" and optimizer == "Muon")
            left_out = held_out and (turn + place) % 2 and name != "separable-dna"
            if left_out or (long and not slow):
                continue
            steps = SLOW.get(TASKS[name].kind) or (240 if held_out else (240, 320, 450)[place % 3])
            parity = place // 2 + turn // 2 if held_out else place + turn + turn // 2
            schedule = "cosine" if parity % 2 else "constant"
            clip = 1.0 if optimizer in ("momentum", "AdamW") and place % 4 == 1 else None
            shift = SHIFT.get(name, 1.0) ** (2 if optimizer in ALONG_GRADIENT else 1)
            for k in range(RATES):
                yield Spec(name, optimizer, schedule, steps, clip, shift * smallest * 10 ** (k / 2))


def _slow_last(name: str) -> tuple[int, str]:
    order = [None, "fine-tuning", "cnn-plain", "cnn-norm", "rnn", "gpt"]
    kind = TASKS[name].kind
    return (order.index(kind) if kind in order else 0, name)


def rates_of(spec: Spec) -> list[float]:
    """The factors of the rate: ``constant``, ``cosine`` after a warmup of a tenth, ``linear`` decay without one."""
    if spec.schedule == "linear":
        return [float(factor) for factor in schedules.linear(spec.steps)]
    return factors(spec.schedule, spec.steps)


@functools.lru_cache(maxsize=1)
def _built(task: str, steps: int) -> tuple[Trial, dict[str, Any], float]:
    made = trial(TASKS[task], 0, steps)
    return made, copy.deepcopy(made.model.state_dict()), made.held_out()


def run(spec: Spec, steps: int, watch: Callable[[torch.optim.Optimizer], Any] | None = None) -> tuple[float, Any]:
    """Train for some steps: the held-out loss at the end (∞ if the run was lost), and what watched."""
    made, start, _ = _built(spec.task, spec.steps)
    made.model.load_state_dict(start)
    made.model.train()
    torch.manual_seed(0)
    optimizer, others = OPTIMIZERS[spec.optimizer][1](made.model, spec.lr, spec.task)
    watcher = watch(optimizer) if watch else None
    rates = [(group, group["lr"]) for opt in (optimizer, *others) for group in opt.param_groups]
    eta = rates_of(spec)
    for step in range(steps):
        for group, rate in rates:
            group["lr"] = rate * eta[step]
        made.model.zero_grad()
        loss = made.batch_loss(step)
        loss.backward()
        if watcher is None and not math.isfinite(loss.item()):
            return math.inf, watcher
        if spec.clip is not None:
            nn.utils.clip_grad_norm_(made.model.parameters(), spec.clip)
        if isinstance(optimizer, sfo.ModelBased):
            optimizer.step(loss=loss)
        else:
            if watcher is not None:
                watcher.record(loss)
            optimizer.step()
        for other in others:
            other.step()
    return made.held_out(), watcher


def known_ends(cache: Path) -> dict[str, tuple[float, float]]:
    """First and last held-out loss of the runs in a cache, by their keys."""
    entries = map(json.loads, cache.read_text().splitlines()) if cache.exists() else ()
    return {entry["key"]: (entry["first"], entry["last"]) for entry in entries}


def ended(wanted: list[Spec], cache: Path, progress: Callable[[str], Any] = print) -> dict[str, tuple[float, float]]:
    """First and last held-out loss of the wanted runs, by their keys; what the cache lacks is trained."""
    known = known_ends(cache)
    cache.parent.mkdir(parents=True, exist_ok=True)
    with cache.open("a") as file:
        for count, spec in enumerate(wanted):
            if spec.key in known:
                continue
            if count % 10 == 0:
                progress(f"{count} of {len(wanted)}: {spec.group}")
            last, _ = run(spec, spec.steps)
            first = _built(spec.task, spec.steps)[2]
            known[spec.key] = (first, last)
            file.write(json.dumps({"key": spec.key, "first": first, "last": last}) + "\n")
            file.flush()
    return known


def watched(spec: Spec) -> StabilityMonitor:
    """A monitor that has seen the first tenth of a run."""

    def watch(optimizer: torch.optim.Optimizer) -> StabilityMonitor:
        return StabilityMonitor(optimizer, horizon=spec.steps).attach()

    monitor = run(spec, int(SHARE * spec.steps), watch)[1]
    monitor.detach()
    assert isinstance(monitor, StabilityMonitor)
    return monitor
