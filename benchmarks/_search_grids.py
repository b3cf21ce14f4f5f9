"""Recorded grids for ``search.py``: every run of every problem, method and rate, trained once."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits, load_wine
from torch import nn

import surefoot.optim as sfo
from surefoot.problems import LinearRegression, LogisticRegression, TiledProblem, pack
from surefoot.runs._row_orders import row_orders
from surefoot.search import ProblemRun, Progress, Run, TorchRun
from surefoot.study import Study

COUNT = 17
MODELS = ("sgd", "sps", "ngn")
RANGE_STEPS = 100


@dataclass
class Case:
    """A recorded grid: a problem, a method, its rates."""

    problem: str
    method: str
    lrs: np.ndarray
    losses: np.ndarray
    """(rates, steps); ∞ after divergence, as the next two."""
    deltas: np.ndarray
    distances: np.ndarray
    final: np.ndarray
    initial: float
    envelope: Callable[[Any], Any] | None
    range_test: Callable[[], tuple[np.ndarray, np.ndarray]] | None
    """Trains with rates that grow from the smallest to the largest; rates and losses."""
    schedule: np.ndarray | None = None
    """Factors of the rates; constant without."""
    kind: str = ""

    @classmethod
    def read(cls, path: Path, problem: str = "", method: str = "", kind: str = "") -> Case:
        """From a file: lrs, losses and final (train, held-out) of every rate, initial (train, held-out), schedule."""
        with np.load(path, allow_pickle=False) as found:
            losses, final = (np.where(np.isfinite(found[name]), found[name], np.inf) for name in ("losses", "final"))
            test = (found["range_rates"], found["range_losses"]) if "range_rates" in found else None
            schedule = found["schedule"]
            return cls(
                problem or str(found["name"]),
                method,
                found["lrs"],
                losses.astype(float),
                np.zeros(losses.shape),
                np.zeros(losses.shape),
                np.where(np.isfinite(losses[:, -1]), final[:, 0], np.inf),
                float(found["initial"][0]),
                None,
                None if test is None else lambda: test,
                schedule if len(schedule) else None,
                kind,
            )

    @property
    def steps(self) -> int:
        """T."""
        return self.losses.shape[1]

    def regret(self, choice: int) -> float:
        """Normalised regret of a choice."""
        return float((self.final[choice] - self.final.min()) / (self.initial - self.final.min()))


@dataclass
class Replay(Run):
    """A recorded run."""

    case: Case
    place: int
    step: int = 0

    @property
    def certifies(self) -> bool:
        """AdamW's index is a heuristic."""
        return self.case.method in MODELS

    def advance(self, k: int) -> Progress:
        """Play k steps."""
        part = slice(self.step, self.step + k)
        self.step += k
        return Progress(self.case.losses[self.place, part], self.case.deltas[self.place, part])

    def distance(self) -> float:
        """From the start."""
        return float(self.case.distances[self.place, self.step - 1])

    def evaluate(self) -> float:
        """The loss that counts."""
        return float(self.case.final[self.place])

    def state_dict(self) -> dict[str, int]:
        """The place."""
        return {"step": self.step}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go to a place."""
        self.step = state["step"]


class Recorded:
    """The factory of a case's runs."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.envelope = case.envelope
        self.schedule = case.schedule

    def __call__(self, lr: float, seed: int) -> Replay:
        """The run of a rate."""
        return Replay(self.case, int(np.argmin(abs(self.case.lrs - lr))))


def convex_cases(
    name: str, problem: TiledProblem, lrs: np.ndarray, epochs: int, batch: int, order: int
) -> Iterator[Case]:
    """SGD, SPS and NGN in one batched study; AdamW, which convex studies do not have, in one batched loop."""
    study = Study(problem, methods=list(MODELS), lrs=lrs, epochs=epochs, batch_size=batch, seeds=[order])
    result = study.run()
    data = result.dataset.isel(seed=0)
    known: dict[float, float] = {}

    def envelope(parameters: Any) -> Any:
        """Shared by the methods: the same rates have the same envelopes."""
        new = [p for p in parameters if p not in known]
        if new:
            known.update(zip(new, problem.envelope(np.array(new)), strict=True))
        return np.array([known[p] for p in parameters])

    for place, method in enumerate(MODELS):

        def range_test(method: str = method) -> tuple[np.ndarray, np.ndarray]:
            factors = np.geomspace(1.0, lrs[-1] / lrs[0], RANGE_STEPS)
            run = ProblemRun(problem, method, batch_size=batch, schedule=factors, lr=lrs[0], seed=order)
            return lrs[0] * factors, np.asarray(run.advance(RANGE_STEPS).losses)

        here = data.isel(algorithm=place)
        arrays = (here[field].values for field in ("loss", "delta", "distance", "last_loss"))
        yield Case(name, method, lrs, *arrays, result.initial_loss, envelope, range_test)

    rates = lrs / 100.0
    steps = study.steps
    losses, deltas, distances, final = adamw(problem, np.tile(rates[:, None], steps), batch, order)

    def adamw_range_test() -> tuple[np.ndarray, np.ndarray]:
        growing = np.geomspace(rates[0], rates[-1], RANGE_STEPS)
        return growing, adamw(problem, growing[None], batch, order)[0][0]

    yield Case(name, "adamw", rates, losses, deltas, distances, final, result.initial_loss, None, adamw_range_test)


def adamw(problem: TiledProblem, rates: np.ndarray, batch: int, order: int) -> tuple[np.ndarray, ...]:
    """AdamW with torch's defaults for all rates (runs, steps) at once; the index is max(0, ½⟨g, x_t − x_{t+1}⟩)."""
    runs, steps = rates.shape
    points = pack(problem, np.tile(problem.initial_point(), (runs, 1)))
    start, tiles = points.copy(), len(points)
    full = np.concatenate([rates, np.tile(rates[-1:], (tiles * 16 - runs, 1))]).reshape(tiles, 1, 16, 1, steps)
    first, second = np.zeros_like(points), np.zeros_like(points)
    gradients = np.empty_like(points)
    traces = np.full((3, steps, tiles * 16), np.inf)
    orders = row_orders(order, problem.n_rows, batch, "shuffle")
    epochs = -(-steps // (problem.n_rows // batch))
    rows = np.concatenate([next(orders) for _ in range(epochs)])[:steps]
    with np.errstate(all="ignore"):
        for step, one in enumerate(problem.batches(np.repeat(rows[:, None], tiles, axis=1))):
            loss = problem.loss_and_gradient(points, one, gradients)
            distance = np.sqrt(((points - start) ** 2).sum(axis=(1, 3)))
            if step == steps - 1:
                final = problem.full_loss(points).reshape(-1)[:runs]
            lr = full[..., step]
            first = 0.9 * first + 0.1 * gradients
            second = 0.999 * second + 0.001 * gradients**2
            root = np.sqrt(second / (1 - 0.999 ** (step + 1))) + 1e-8
            move = 0.01 * lr * points + lr * (first / (1 - 0.9 ** (step + 1))) / root
            traces[:, step] = (
                loss.reshape(-1),
                0.5 * (gradients * move).sum(axis=(1, 3)).reshape(-1),
                distance.reshape(-1),
            )
            points = points - move
    traces = np.where(np.isfinite(traces), traces, np.inf)
    losses, deltas, distances = (values.T[:runs] for values in traces)
    return losses, np.maximum(deltas, 0.0), distances, np.where(np.isfinite(final), final, np.inf)


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64, 10),
    )  # fmt: skip


def network_cases(order: int) -> Iterator[Case]:
    """A perceptron and a small convolutional network on scikit-learn's digits."""
    digits = load_digits()
    rows = np.random.default_rng(0).permutation(len(digits.data))[:1437]
    X = torch.tensor(digits.data[rows] / 16, dtype=torch.float32)
    y = torch.tensor(digits.target[rows])
    batch, epochs = 64, 10
    steps = len(X) // batch * epochs

    def batches(seed: int) -> Iterator[Any]:
        for epoch in row_orders(seed, len(X), batch, "shuffle"):
            for one in epoch:
                yield X[one], y[one]

    def loss(model: nn.Module, one: Any) -> torch.Tensor:
        return nn.functional.cross_entropy(model(one[0]), one[1])

    optimizers: dict[str, Any] = {"sgd": sfo.SGD, "sps": sfo.SPS, "ngn": sfo.NGN, "adamw": torch.optim.AdamW}
    for name, model in (("MLP", perceptron), ("CNN", convolutions)):
        for method, optimizer in optimizers.items():
            lrs = np.geomspace(1e-3, 1e2, COUNT) / (100.0 if method == "adamw" else 1.0)
            recipe = TorchRun(
                model,
                batches,
                loss,
                lambda parameters, lr, optimizer=optimizer: optimizer(parameters, lr=lr),
                evaluate=lambda net: loss(net, (X, y)),
            )
            records = [record(recipe(float(lr), order), steps) for lr in lrs]
            losses, deltas, distances = (np.array([one[field] for one in records]) for field in range(3))
            final = np.array([one[3] for one in records])
            initial = float(recipe(float(lrs[0]), order).evaluate())

            def range_test(recipe: TorchRun = recipe, lrs: np.ndarray = lrs) -> tuple[np.ndarray, np.ndarray]:
                factors = np.geomspace(1.0, lrs[-1] / lrs[0], RANGE_STEPS)
                recipe.schedule = factors
                found = np.full(RANGE_STEPS, np.inf)
                seen = recipe(float(lrs[0]), order).advance(RANGE_STEPS).losses
                recipe.schedule = None
                found[: len(seen)] = seen
                return lrs[0] * factors, found

            yield Case(name, method, lrs, losses, deltas, distances, final, initial, None, range_test)


def record(run: Any, steps: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, float]:
    """Train a run and write down loss, index and distance at every step, and the loss at the end."""
    losses, deltas, distances = (np.full(steps, np.inf) for _ in range(3))
    for step in range(steps):
        progress = run.advance(1)
        if not (np.isfinite(progress.losses[0]) and np.isfinite(progress.deltas[0])):
            return losses, deltas, distances, np.inf
        losses[step], deltas[step], distances[step] = progress.losses[0], progress.deltas[0], run.distance()
    final = float(run.evaluate())
    return losses, deltas, distances, final if math.isfinite(final) else np.inf


def all_cases(order: int, quick: bool) -> Iterator[Case]:
    digits, wine = load_digits(), load_wine()
    standard = (wine.data - wine.data.mean(axis=0)) / wine.data.std(axis=0)
    wide, narrow = np.geomspace(1e-3, 1e2, COUNT), np.geomspace(1e-2, 1e2, COUNT)
    for noise in (0.0, 1.0):
        for draw in range(3):
            name = f"linear regression {draw}{' noise' if noise else ''}"
            yield from convex_cases(name, LinearRegression(noise=noise, seed=draw), wide, 10, 5, order)
    yield from convex_cases("vowel", LogisticRegression("vowel"), narrow, 20, 16, order)
    yield from convex_cases("dna", LogisticRegression("dna"), narrow, 10, 16, order)
    yield from convex_cases("digits", LogisticRegression((digits.data / 16, digits.target)), narrow, 10, 32, order)
    yield from convex_cases("wine", LogisticRegression((standard, wine.target)), narrow, 20, 8, order)
    if not quick:
        yield from network_cases(order)
