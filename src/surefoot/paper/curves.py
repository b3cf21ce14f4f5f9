"""What figures and claims ask of a sweep on a network: losses, bounds and windows of each method over its rates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from surefoot.study import Pool, Result

if TYPE_CHECKING:
    import xarray as xr

Floats = np.ndarray[Any, np.dtype[np.float64]]
Value = TypeVar("Value")

WARMUP = "warmup"
"""The part of a sweep whose methods are told apart from those without warmup."""
EARLY = 100
"""The first steps: as many as the paper's warmup takes."""


class MissingRuns(KeyError):
    """A sweep that is not finished was asked for a part, a method or a rate that it lacks; the argument names it."""


class Found(dict[str, Value]):
    """What a sweep has, by name; asking for what it lacks raises :class:`MissingRuns`."""

    def __missing__(self, name: str) -> Value:
        raise MissingRuns(name)


@dataclass(frozen=True)
class Curve:
    """One method with one schedule over its learning rates."""

    label: str
    """``sgd``, or ``sgd+warmup`` with a warmup."""
    result: Result
    algorithm: str

    @property
    def lrs(self) -> Floats:
        """The rates, rising."""
        return self.result.lrs

    def of(self, variable: str) -> xr.DataArray:
        """A variable of the data set, with dimensions lr, seed and its own."""
        return self.result.dataset[variable].sel(algorithm=self.algorithm)

    @property
    def epochs(self) -> int:
        """How many epochs its runs took."""
        return int(self.result.settings["epochs"])

    def bound(self, distance: float | None = None, *, epochs: int | None = None) -> xr.Dataset:
        """Bias, noise and total of Ω for every rate, at the end and with the study's D unless told."""
        horizon = None if epochs is None else epochs * self.result.settings["steps_per_epoch"]
        return self.result.bound(distance, horizon=horizon).sel(algorithm=self.algorithm)

    def omega(self, epochs: int | None = None) -> Floats:
        """Ω for every rate with the study's D, at the end or after some epochs; NaN if the study was given no D."""
        known = self.result.settings["distance"] is not None
        return np.asarray(self.bound(epochs=epochs).total) if known else np.full(len(self.lrs), np.nan)

    def measure(self, name: str) -> Floats:
        """One of :data:`MEASURES`: a number a rate, of shape (rates,), or a number a run, of shape (rates, seeds)."""
        with np.errstate(over="ignore"):
            return np.asarray(MEASURES[name](self))


def curve_label(part: str, algorithm: str) -> str:
    """What a method of a part is called: ``sgd``, or ``sgd+warmup`` with a warmup."""
    return f"{algorithm}+{WARMUP}" if part == WARMUP else algorithm


def curves(results: Mapping[str, Result]) -> dict[str, Curve]:
    """The curves of a sweep by label, in the order of its parts and methods."""
    by_label: Found[Curve] = Found()
    for part, result in results.items():
        for algorithm in result.algorithms:
            label = curve_label(part, algorithm)
            by_label[label] = Curve(label, result, algorithm)
    return by_label


def pool(results: Iterable[Result]) -> Pool:
    """The points that the runs of several studies have visited: they share their start, and so their points."""
    pools = [result.pool() for result in results]
    return Pool(*(np.concatenate(parts) for parts in zip(*pools, strict=True)))


def polyak_ratio(curve: Curve, steps: int) -> Floats:
    """Polyak's step for C = 0, f(x_t, s_t)/‖g_t‖², at the first steps of every run; NaN where unknown (App. B.2)."""
    loss, grad_sq = (curve.of(name).values[..., :steps] for name in ("loss", "grad_sq"))
    known = np.isfinite(loss) & np.isfinite(grad_sq) & (grad_sq > 0)
    return np.asarray(np.divide(loss, grad_sq, out=np.full_like(loss, np.nan), where=known))


def medians(values: Floats) -> Floats:
    """The median of what is finite at every rate, over runs and steps; NaN where nothing is."""
    known = [at_rate[np.isfinite(at_rate)] for at_rate in values]
    return np.array([np.median(numbers) if numbers.size else np.nan for numbers in known])


def _polyak_units(curve: Curve) -> Floats:
    """γ_t‖g_t‖²/f_t: for SPS it never exceeds 1 and for NGN never 2; SGD and LogNGN know no limit."""
    size, grad_sq, loss = (curve.of(name).values for name in ("size", "grad_sq", "loss"))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(size * grad_sq / loss)


MEASURES: dict[str, Callable[[Curve], Any]] = {
    "loss": lambda curve: curve.of("last_loss"),
    "half_loss": lambda curve: curve.of("train_loss").sel(epoch=curve.epochs // 2),
    "valid_loss": lambda curve: curve.of("valid_loss").sel(epoch=curve.epochs),
    "bound": Curve.omega,
    "half_bound": lambda curve: curve.omega(curve.epochs // 2),
    "noise": lambda curve: curve.bound(1.0).noise,  # for any D
    "travel": lambda curve: curve.of("distance")[..., -1],
    "early_delta": lambda curve: curve.of("delta").values[..., :EARLY].mean(axis=1).max(axis=-1),
    "polyak": lambda curve: medians(polyak_ratio(curve, EARLY)),
    "first_polyak": lambda curve: medians(polyak_ratio(curve, 1)),
    "polyak_units": lambda curve: medians(_polyak_units(curve)),
}
"""What figures and summaries tell of a method at each of its rates. ``polyak_units`` are steps in units of Polyak's,
γ_t‖g_t‖²/f_t, the median over runs and steps; ``half_`` is after half the epochs; what the others are, the summary's
:data:`~surefoot.paper.summary.COLUMNS` say."""
