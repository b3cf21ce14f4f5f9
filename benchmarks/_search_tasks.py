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
from typing import Any

import numpy as np
import torch
from rich.progress import track
from torch.func import functional_call, grad_and_value, vmap

import surefoot.optim as sfo
from _search_grids import RANGE_STEPS, Case
from _tasks import TASKS, Trial, trial
from _training import factors

_coin = random.Random(22)
NEW_KINDS = tuple(
    sorted(_coin.sample(["gpt", "width", "depth", "fine-tuning", "separable", "shifted", "units", "change"], 4))
)
"""Kinds that development leaves out."""

Factory = Callable[[list[torch.nn.Parameter], float], torch.optim.Optimizer]

OPTIMIZERS: dict[str, tuple[Factory, float, int]] = {
    "sgd": (torch.optim.SGD, 0.3, 2),
    "momentum": (lambda run, lr: torch.optim.SGD(run, lr, momentum=0.9), 0.03, 2),
    "adamw": (torch.optim.AdamW, 3e-3, 1),
    "muon": (sfo.Muon, 2e-2, 1),
    "ngn": (sfo.NGN, 3.0, 2),
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
LOOKED_AT = frozenset(
    (
        "mse-noise-1, momentum cosine clip",
        "width-8, sgd cosine",
        "width-512, momentum",
        "depth-8, muon cosine",
        "depth-6-tanh, adamw cosine",
        "embedding, ngn",
        "batch-2-digits, adamw cosine clip",
        "labels-smooth, sgd cosine",
        "separable-dna, adamw clip",
        "reward, momentum cosine clip",
        "shifted-up, sgd cosine",
        "change-labels, adamw",
    )
)
"""Unseen recipes that were looked at once before the search was last changed: no evidence any more."""


def grids(recipes: Iterable[Recipe], cache: Path) -> Iterator[Case]:
    """The grids of some recipes; those that the cache lacks are trained."""
    recipes = list(recipes)
    cache.mkdir(parents=True, exist_ok=True)
    missing = [recipe for recipe in recipes if not (cache / recipe.file).exists()]
    for recipe in track(missing, description=f"{len(missing)} grids to record") if missing else ():
        _write(cache / recipe.file, recipe)
    for recipe in recipes:
        yield Case.read(cache / recipe.file, recipe.task, recipe.name.partition(", ")[2], recipe.kind)


def _write(path: Path, recipe: Recipe) -> None:
    eta = np.array(factors(recipe.schedule, recipe.steps))
    rates = recipe.lrs[:, None] * eta
    if recipe.kind in _SLOW:  # convolutions and loops gain nothing from being batched
        parts = [train(recipe, row[None]) for row in rates]
        losses, final = (np.concatenate([part[place] for part in parts]) for place in (0, 1))
    else:
        losses, final = train(recipe, rates)
    growing = np.geomspace(recipe.lrs[0], recipe.lrs[-1], RANGE_STEPS)
    start = trial(TASKS[recipe.task], recipe.order, recipe.steps)
    arrays = {
        "name": np.array(recipe.name),
        "order": np.array(recipe.order),
        "lrs": recipe.lrs,
        "steps": np.array(recipe.steps),
        "schedule": eta if recipe.schedule == "cosine" else np.array([]),
        "initial": np.array([train_loss(start, recipe), start.held_out()]),
        "losses": losses.astype(np.float32),
        "final": final,
        "range_rates": growing,
        "range_losses": train(recipe, growing[None])[0][0],
    }
    part = path.with_suffix(".part")
    with part.open("wb") as file:
        np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
    part.replace(path)


class BatchLoss(torch.nn.Module):
    """The loss of a step as a module, so that it can be called with other parameters."""

    def __init__(self, made: Trial) -> None:
        super().__init__()
        self.model, self.batch_loss = made.model, made.batch_loss

    def forward(self, step: int) -> torch.Tensor:
        """On the batch of a step."""
        return self.batch_loss(step)


def train(recipe: Recipe, rates: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Train runs side by side, one a row of ``rates`` (runs, steps); batch losses, and (train, held-out) at the end.

    Gradients of all runs are one computation; every run has an optimizer of its own. ∞ from the step on that is not
    finite.
    """
    count, steps = rates.shape
    made = trial(TASKS[recipe.task], recipe.order, recipe.steps)
    whole = BatchLoss(made)
    names = [name for name, _ in whole.named_parameters()]
    stacks = {name: p.detach().expand(count, *p.shape).clone() for name, p in whole.named_parameters()}
    runs = [[torch.nn.Parameter(stacks[name][i]) for name in names] for i in range(count)]
    optimizers = [_optimizer(recipe, run, float(row[0])) for run, row in zip(runs, rates, strict=True)]

    def loss_of(parameters: dict[str, torch.Tensor], step: int) -> torch.Tensor:
        return functional_call(whole, parameters, (step,))

    gradients_of = vmap(grad_and_value(loss_of), in_dims=(0, None), randomness="same")
    if count == 1:
        gradients_of = lambda stacks, step: _alone(whole, names, runs[0], step)  # noqa: E731
    losses, final = np.full((count, steps), np.inf), np.full((count, 2), np.inf)
    alive = np.ones(count, bool)
    for step in range(steps):
        gradients, values = gradients_of(stacks, step)
        values = values.detach()
        alive &= np.isfinite(values.numpy())
        losses[alive, step] = values.numpy()[alive]
        for i in np.flatnonzero(alive):
            for name, p in zip(names, runs[i], strict=True):
                p.grad = gradients[name][i]
            for group in optimizers[i].param_groups:
                group["lr"] = float(rates[i, step])
            if recipe.clip is not None:
                torch.nn.utils.clip_grad_norm_(runs[i], recipe.clip)
            if isinstance(optimizers[i], sfo.LossOptimizer):
                optimizers[i].step(loss=values[i])
            else:
                optimizers[i].step()
        if not alive.any():
            break
    if steps == recipe.steps:
        for i in np.flatnonzero(alive):
            for p, found in zip(whole.parameters(), runs[i], strict=True):
                p.data.copy_(found.data)
            final[i] = train_loss(made, recipe), made.held_out()
    return losses, final


def _alone(whole: BatchLoss, names: list[str], run: list[torch.nn.Parameter], step: int) -> tuple[dict[str, Any], Any]:
    """The same for one run, whose model is its own (batch norm keeps its averages)."""
    parameters = list(whole.parameters())
    for p, found in zip(parameters, run, strict=True):
        p.data = found.data
    loss = whole(step)
    gradients = torch.autograd.grad(loss, parameters)
    return {name: g[None] for name, g in zip(names, gradients, strict=True)}, loss[None]


def _optimizer(recipe: Recipe, run: list[torch.nn.Parameter], lr: float) -> torch.optim.Optimizer:
    if recipe.optimizer == "ngn" and recipe.task in _FLOORS:
        return sfo.NGN(run, lr, lower_bound=_FLOORS[recipe.task])
    return OPTIMIZERS[recipe.optimizer][0](run, lr)


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
