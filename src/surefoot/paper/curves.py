"""What figures and claims ask of a sweep on a network: losses, bounds and windows of each method over its rates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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


class MissingRuns(KeyError):
    """A sweep that is not finished was asked for a part, a method or a rate that it lacks; the argument names it."""


class Found(dict[str, Value]):
    """What there is of a sweep, by name."""

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

    def losses(self, variable: str = "last_loss", epoch: int | None = None) -> Floats:
        """A full loss of every run, of shape (rates, seeds): by default f(x_T), or one after an epoch."""
        values = self.of(variable)
        return np.asarray((values if epoch is None else values.sel(epoch=epoch)).values)

    def bound(self, distance: float | None = None, *, horizon: int | None = None) -> xr.Dataset:
        """Bias, noise and total of Ω_T for every rate, by default with the study's D."""
        return self.result.bound(distance, horizon=horizon).sel(algorithm=self.algorithm)


def curve_label(part: str, algorithm: str) -> str:
    """What a method of a part is called: ``sgd``, or ``sgd+warmup`` with a warmup."""
    return f"{algorithm}+{WARMUP}" if part == WARMUP else algorithm


def curves(results: Mapping[str, Result]) -> dict[str, Curve]:
    """The curves of a sweep by label, in the order of its parts and methods."""
    found: Found[Curve] = Found()
    for part, result in results.items():
        for algorithm in result.algorithms:
            name = curve_label(part, algorithm)
            found[name] = Curve(name, result, algorithm)
    return found


def pool(results: Iterable[Result]) -> Pool:
    """The points that the runs of several studies have visited: they share their start, and so their points."""
    found = [result.pool() for result in results]
    return Pool(*(np.concatenate(parts) for parts in zip(*found, strict=True)))


def polyak_ratio(curve: Curve, steps: int) -> Floats:
    """Polyak's step for C = 0, f(x_t, s_t)/‖g_t‖², at the first steps of every run; NaN where unknown (App. B.2)."""
    loss, grad_sq = (curve.of(name).values[..., :steps] for name in ("loss", "grad_sq"))
    known = np.isfinite(loss) & np.isfinite(grad_sq) & (grad_sq > 0)
    return np.divide(loss, grad_sq, out=np.full_like(loss, np.nan), where=known)


def polyak_units(curve: Curve) -> Floats:
    """The step of every run in units of Polyak's, γ_t‖g_t‖²/f_t.

    SPS never exceeds 1 and NGN never exceeds 2; SGD and LogNGN know no limit.
    """
    size, grad_sq, loss = (curve.of(name).values for name in ("size", "grad_sq", "loss"))
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        return np.asarray(size * grad_sq / loss)


def medians(values: Floats) -> Floats:
    """The median of what is finite at every rate, over runs and steps; NaN where nothing is."""
    known = [at_rate[np.isfinite(at_rate)] for at_rate in values]
    return np.array([np.median(numbers) if numbers.size else np.nan for numbers in known])
