"""Grids of the small tasks for ``search.py``: every run of every case, trained once and kept in a file.

A case is a task with an optimizer, a schedule, clipping or none, 13 or 17 rates and a data order, all drawn by one coin
that was thrown before any run. ``DEVELOPMENT`` cases may be looked at while a search is built. ``UNSEEN`` ones are for
the final table only: the held-out task of every kind, and both tasks of the kinds in ``NEW_KINDS``, of which
development has none.
"""

from __future__ import annotations

import hashlib
import json
import math
import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from rich.progress import track

import surefoot.optim as sfo
from _search_grids import RANGE_STEPS, Case
from _tasks import TASKS, Trial, trial
from _training import Factory, factors

_coin = random.Random(22)
NEW_KINDS = tuple(
    sorted(_coin.sample(["gpt", "width", "depth", "fine-tuning", "separable", "shifted", "units", "change"], 4))
)
"""Kinds that development leaves out."""

OPTIMIZERS: dict[str, tuple[Factory, float, int]] = {
    "sgd": (lambda model, lr: torch.optim.SGD(model.parameters(), lr), 0.3, 2),
    "momentum": (lambda model, lr: torch.optim.SGD(model.parameters(), lr, momentum=0.9), 0.03, 2),
    "adamw": (lambda model, lr: torch.optim.AdamW(model.parameters(), lr), 3e-3, 1),
    "muon": (lambda model, lr: sfo.Muon(model.parameters(), lr), 2e-2, 1),
    "ngn": (lambda model, lr: sfo.NGN(model.parameters(), lr), 3.0, 2),
}
"""How it is made, the middle of its rates, and the power of a weight's unit that its rates go with."""

_SLOW = ("gpt", "rnn", "cnn-norm", "cnn-plain", "fine-tuning")
_FLOORS = {"likelihood": -5.0, "reward": -1.0, "shifted-down": -3.0}
"""Lower bounds of losses that go below zero, for NGN."""
_UNITS = {"units-30": 30.0, "units-1/30": 1 / 30}


@dataclass(frozen=True)
class Recipe:
    """What a grid is trained with."""

    task: str
    optimizer: str
    schedule: str
    """``constant``, or ``cosine`` after a warmup."""
    clip: float | None
    count: int
    """Rates: 13 over four decades or 17 over five."""
    steps: int
    order: int
    shift: float
    """Decades by which the rates are moved."""

    @property
    def kind(self) -> str:
        """Of the task."""
        return TASKS[self.task].kind

    @property
    def unseen(self) -> bool:
        """Whether it is for the final table only."""
        return TASKS[self.task].held_out or self.kind in NEW_KINDS

    @property
    def name(self) -> str:
        """For tables."""
        parts = [self.optimizer, *(["cosine"] if self.schedule == "cosine" else []), *(["clip"] if self.clip else [])]
        return f"{self.task}, {' '.join(parts)}"

    @property
    def lrs(self) -> np.ndarray:
        """The rates."""
        _, middle, power = OPTIMIZERS[self.optimizer]
        middle *= 10.0**self.shift * _UNITS.get(self.task, 1.0) ** -power
        reach = 100.0 if self.count == 13 else 10.0**2.5
        return np.geomspace(middle / reach, middle * reach, self.count)

    @property
    def file(self) -> str:
        """A name that changes with everything above."""
        text = json.dumps(asdict(self), sort_keys=True)
        return f"{self.task.replace('/', '-')}-{hashlib.sha256(text.encode()).hexdigest()[:12]}.npz"


def _recipes() -> Iterator[Recipe]:
    """Two of each task."""
    deck: list[tuple[str, str]] = []
    for name, task in TASKS.items():
        for _ in range(2):
            if not deck:
                deck = [(optimizer, schedule) for optimizer in OPTIMIZERS for schedule in ("constant", "cosine")]
                _coin.shuffle(deck)
            optimizer, schedule = deck.pop()
            clip = 1.0 if optimizer != "ngn" and _coin.random() < 0.35 else None
            count, order = _coin.choice((13, 17)), _coin.randrange(4)
            steps = 300 if task.kind in _SLOW else _coin.choice((400, 600, 900))
            yield Recipe(name, optimizer, schedule, clip, count, steps, order, round(_coin.uniform(-0.5, 0.5), 2))


RECIPES = list(_recipes())
DEVELOPMENT = [recipe for recipe in RECIPES if not recipe.unseen]
UNSEEN = [
    recipe
    for place, recipe in enumerate(RECIPES)
    if recipe.unseen and (place % 2 == 0 or recipe.kind not in _SLOW)  # of a slow task the first only
]


def grids(recipes: Iterable[Recipe], cache: Path) -> Iterator[Case]:
    """The grids of some recipes; those that the cache lacks are trained."""
    cache.mkdir(parents=True, exist_ok=True)
    missing = [recipe for recipe in recipes if not (cache / recipe.file).exists()]
    if missing:
        jobs = [(recipe, float(lr)) for recipe in missing for lr in [*recipe.lrs, np.nan]]
        kept: dict[str, dict[float, dict[str, np.ndarray]]] = {}
        for recipe, lr in track(jobs, description=f"{len(missing)} grids to record"):
            rows = kept.setdefault(recipe.file, {})
            if math.isnan(lr):  # all its rates are there
                _write(cache / recipe.file, recipe, [rows[float(lr)] for lr in recipe.lrs])
                del kept[recipe.file]
            else:
                rows[lr] = run(recipe, lambda step, lr=lr: lr, recipe.steps)  # type: ignore[misc]
    for recipe in recipes:
        yield Case.read(cache / recipe.file, recipe.task, recipe.name.partition(", ")[2], recipe.kind)


def _write(path: Path, recipe: Recipe, rows: list[dict[str, np.ndarray]]) -> None:
    growing = np.geomspace(recipe.lrs[0], recipe.lrs[-1], RANGE_STEPS)
    test = run(recipe, lambda step: growing[step], RANGE_STEPS)
    start = trial(TASKS[recipe.task], recipe.order, recipe.steps)
    constant = recipe.schedule == "constant"
    arrays = {
        "name": np.array(recipe.name),
        "order": np.array(recipe.order),
        "lrs": recipe.lrs,
        "steps": np.array(recipe.steps),
        "schedule": np.array([] if constant else factors(recipe.schedule, recipe.steps)),
        "initial": np.array([train_loss(start, recipe), start.held_out()]),
        "losses": np.array([row["losses"] for row in rows], np.float32),
        "final": np.array([row["final"] for row in rows]),
        "range_rates": growing,
        "range_losses": test["losses"],
    }
    part = path.with_suffix(".part")
    with part.open("wb") as file:
        np.savez_compressed(file, **arrays)
    part.replace(path)


def run(recipe: Recipe, rate: Callable[[int], float], steps: int) -> dict[str, np.ndarray]:
    """Train once: the batch losses, and (train, held-out) at the end; ∞ from the step on that is not finite."""
    made = trial(TASKS[recipe.task], recipe.order, recipe.steps)
    optimizer = OPTIMIZERS[recipe.optimizer][0](made.model, rate(0))
    if recipe.optimizer == "ngn" and recipe.task in _FLOORS:
        optimizer = sfo.NGN(made.model.parameters(), rate(0), lower_bound=_FLOORS[recipe.task])
    eta = factors(recipe.schedule, recipe.steps) if steps == recipe.steps else [1.0] * steps
    losses, final = np.full(steps, np.inf), np.full(2, np.inf)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = rate(step) * eta[step]
        optimizer.zero_grad()
        loss = made.batch_loss(step)
        loss.backward()
        if not math.isfinite(loss.item()):
            break
        losses[step] = loss.item()
        if recipe.clip is not None:
            torch.nn.utils.clip_grad_norm_(made.model.parameters(), recipe.clip)
        if isinstance(optimizer, sfo.ModelBased):
            optimizer.step(loss=loss)
        else:
            optimizer.step()
    else:
        final = np.array([train_loss(made, recipe), made.held_out()])
    return {"losses": losses, "final": final}


def train_loss(made: Trial, recipe: Recipe) -> float:
    """The mean loss over fresh batches of the training data, the same for all rates."""
    batch = {"batch-2": 2, "gpt": 8, "rnn": 16}.get(recipe.kind, 32)
    rows = 600 if recipe.kind in ("gpt", "rnn") else 2000
    made.model.eval()
    with torch.no_grad():
        values = [made.batch_loss(10**6 + i).item() for i in range(-(-rows // batch))]
    made.model.train()
    mean = float(np.mean(values))
    return mean if math.isfinite(mean) else math.inf
