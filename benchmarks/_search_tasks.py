"""Grids of drawn tasks for ``search.py``: every run is trained once, and its losses are kept in this folder.

    python benchmarks/_search_tasks.py [--part development|unseen]

A case is a drawn task (``_drawn_tasks.py``) with an optimizer, a schedule, clipping or none, 13 or 17 rates and a seed,
all drawn before any run; half of the cases that allow it have batches of one or two. Every second case is for
development. The others are for one final table: nothing may be changed after a look at them.
"""

from __future__ import annotations

import argparse
import math
import random
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from rich.progress import track

import surefoot.optim as sfo
from _drawn_tasks import InUnits, specification
from _search_grids import packed
from _tasks import Task, Trial, supervised
from _training import Factory, factors
from _training import train as train_once
from _verdict_drawn import KINDS

CASES, FIRST = 80, 9000
"""How many cases, and the number of the first one's task: no other benchmark has tasks with such numbers."""
PARTS = {
    "development": Path(__file__).with_name("search_grids_development.npz"),
    "unseen": Path(__file__).with_name("search_grids_unseen.npz"),
}
SLOW = ("images", "recurrent", "attention", "long-memory", "residual-images", "language")
SMALL_BATCHES = ("classes", "regression", "convex", "signals", "recurrent", "below-zero", "units")
"""Kinds without batch norm or losses that compare the rows of a batch."""
OPTIMIZERS: dict[str, tuple[Factory, float, int]] = {
    "sgd": (lambda model, lr: torch.optim.SGD(model.parameters(), lr), 0.3, 2),
    "momentum": (lambda model, lr: torch.optim.SGD(model.parameters(), lr, momentum=0.9), 0.03, 2),
    "adam": (lambda model, lr: torch.optim.Adam(model.parameters(), lr), 3e-3, 1),
    "adamw": (lambda model, lr: torch.optim.AdamW(model.parameters(), lr), 3e-3, 1),
    "muon": (lambda model, lr: sfo.Muon(model.parameters(), lr), 2e-2, 1),
    "ngn": (lambda model, lr: sfo.NGN(model.parameters(), lr, lower_bound=-10.0), 3.0, 2),
}
"""How it is made, the middle of its rates, and the power of a weight's unit that its rates go with."""


@dataclass(frozen=True)
class Recipe:
    """What a grid is trained with."""

    kind: str
    number: int
    optimizer: str
    schedule: str
    """``constant``, or ``cosine`` after a warmup."""
    clip: float | None
    count: int
    """Rates: 13 over four decades or 17 over five."""
    steps: int
    batch: int
    shift: float
    """Decades by which the rates are moved."""

    @property
    def name(self) -> str:
        """For tables."""
        parts = [self.optimizer, *(["cosine"] if self.schedule == "cosine" else []), *(["clip"] if self.clip else [])]
        return f"{self.kind} {self.number}, batches of {self.batch}, {' '.join(parts)}"

    @property
    def lrs(self) -> np.ndarray:
        """The rates."""
        _, middle, power = OPTIMIZERS[self.optimizer]
        middle *= 10.0**self.shift * specification(self.kind, self.number).factor ** -power
        reach = 100.0 if self.count == 13 else 10.0**2.5
        return np.geomspace(middle / reach, middle * reach, self.count)

    def task(self) -> Task:
        """The task, judged by its loss over training data."""
        return Task(self.name, self.kind, self._trial)

    def _trial(self, seed: int, steps: int) -> Trial:
        drawn = specification(self.kind, self.number)
        model = drawn.build()
        model = model if drawn.factor == 1.0 else InUnits(model, drawn.factor)
        made = supervised(model, *drawn.sets, drawn.loss, batch=self.batch, seed=seed)
        judge = supervised(model, *drawn.sets, drawn.loss, batch=64, seed=seed)
        return replace(made, held_out=lambda: _mean_loss(judge))


def _mean_loss(judge: Trial) -> float:
    """The mean loss over 2,048 rows of the training data, the same for all rates."""
    judge.model.eval()
    with torch.no_grad():
        mean = float(np.mean([judge.batch_loss(10**6 + i).item() for i in range(32)]))
    judge.model.train()
    return mean if math.isfinite(mean) else math.inf


def _recipes() -> list[Recipe]:
    coin, kinds, pairs, recipes = random.Random(2026), [], [], []
    for number in range(FIRST, FIRST + CASES):
        kinds = kinds or coin.sample(list(KINDS), len(KINDS))
        pairs = pairs or coin.sample([(o, s) for o in OPTIMIZERS for s in ("constant", "cosine")], 2 * len(OPTIMIZERS))
        kind, (optimizer, schedule) = kinds.pop(), pairs.pop()
        is_small = kind in SMALL_BATCHES and coin.random() < 0.5
        batch = coin.choice((1, 2, 2)) if is_small else specification(kind, number).batch
        clip = 1.0 if optimizer != "ngn" and coin.random() < 0.25 else None
        steps = 300 if kind in SLOW else coin.choice((300, 500, 800))
        shift = round(coin.uniform(-0.7, 0.7), 2)
        recipes.append(Recipe(kind, number, optimizer, schedule, clip, coin.choice((13, 17)), steps, batch, shift))
    return recipes


RECIPES = _recipes()


def record(recipe: Recipe) -> dict[str, np.ndarray]:
    """Train all rates: their losses, and the loss over training data before and after."""
    make = OPTIMIZERS[recipe.optimizer][0]
    options = {"seed": recipe.number, "steps": recipe.steps, "schedule": recipe.schedule, "clip": recipe.clip}
    runs = [train_once(recipe.task(), make, float(lr), **options) for lr in recipe.lrs]
    eta = factors(recipe.schedule, recipe.steps) if recipe.schedule == "cosine" else []
    return {
        "lrs": recipe.lrs,
        "schedule": np.array(eta, np.float32),
        "initial": np.array([runs[0].initial]),
        "losses": packed(np.array([run.losses for run in runs])),
        "final": np.array([[run.final] for run in runs]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=PARTS, action="append", help="by default both")
    torch.set_num_threads(1)
    for part in parser.parse_args().part or PARTS:
        arrays = {}
        for recipe in track(RECIPES[list(PARTS).index(part) :: 2], description=part):
            arrays |= {f"{recipe.name}/{key}": value for key, value in record(recipe).items()}
        np.savez_compressed(PARTS[part], **arrays)  # type: ignore[arg-type]


if __name__ == "__main__":
    main()
