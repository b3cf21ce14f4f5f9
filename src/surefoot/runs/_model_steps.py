"""Step sizes and indices of many runs with different models, such that no run's bits depend on its neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.runs._types import Floats
from surefoot.theory.arrays import NUMPY
from surefoot.theory.models import Linear, Model, Point

_TINY = float(np.finfo(np.float64).tiny)
_MAX = float(np.finfo(np.float64).max)


class Steps:
    """The steps of runs with different models, with room for all numbers on the way.

    Runs are sorted by model; ``order`` says which run stands where. Fill ``rate``, whose entries are the runs in that
    order, and call :meth:`write` at every step.

    This is :meth:`Model.step` for several models at once, with its guards written for arrays that are used again and
    again: nothing is allocated but what a model itself needs. Only elements that are special (a loss at its bound, an
    overflow) take the way through ``Model.step`` itself.
    """

    def __init__(self, models: Sequence[Model], places: Sequence[int]) -> None:
        groups: dict[int, list[int]] = {}
        for place in places:
            groups.setdefault(id(models[place]), []).append(place)
        self.order = np.array([place for group in groups.values() for place in group], np.intp)
        self._places = together(self.order)
        self.rate, self._loss, self._grad_sq, self._size, self._delta = (np.empty(len(self.order)) for _ in range(5))
        self._height, self._decrease, self._half, self._z, self._smaller = (np.empty_like(self.rate) for _ in range(5))
        self._bounds, self._zeros = np.empty_like(self.rate), np.zeros_like(self.rate)
        self._parts = []
        end = 0
        for group in groups.values():
            model, part = models[group[0]], slice(end, end := end + len(group))
            self._bounds[part] = model.lower_bound
            point = Point(
                self._height[part], self._grad_sq[part], self.rate[part], self._half[part], self._z[part], True
            )
            self._parts.append((model, part, point, self._size[part], self._delta[part]))
        self._own_heights = [part for part in self._parts if type(part[0]).height is not Model.height]

    def write(self, loss: Floats, grad_sq: Floats, size: Floats, delta: Floats) -> None:
        """Write sizes and indices, from losses and squared gradients in any shape; floating-point warnings are off."""
        places = self._places
        if isinstance(places, slice):
            self._loss[...], self._grad_sq[...] = loss.reshape(-1)[places], grad_sq.reshape(-1)[places]
        else:
            loss.reshape(-1).take(places, out=self._loss, mode="clip")  # without a mode NumPy copies to a buffer first
            grad_sq.reshape(-1).take(places, out=self._grad_sq, mode="clip")
        self._solve()
        size.reshape(-1)[places], delta.reshape(-1)[places] = self._size, self._delta

    def _solve(self) -> None:
        np.subtract(self._loss, self._bounds, out=self._height)
        for model, part, point, _, _ in self._own_heights:
            point.height[...] = model.height(self._loss[part], model.lower_bound)
        np.multiply(self.rate, self._grad_sq, out=self._decrease)
        np.multiply(self._decrease, 0.5, out=self._half)
        np.divide(self._decrease, self._height, out=self._z)
        for model, _, point, size, delta in self._parts:
            size[...], delta[...] = model.solve(NUMPY, point)
        np.minimum(self._z, self._decrease, out=self._smaller)
        if not (np.minimum.reduce(self._smaller) > _TINY and np.dot(self._z, self._zeros) == 0.0):  # 0·∞ is NaN
            self._solve_special()

    def _solve_special(self) -> None:
        special = ~((self._smaller > _TINY) & (self._z <= _MAX))
        for model, part, _, size, delta in self._parts:
            here = special[part]
            if here.any():
                found = model.step(self._loss[part][here], self._grad_sq[part][here], self.rate[part][here])
                size[here], delta[here] = found


class StepSizes:
    """The steps of a fixed set of slots, each with its model."""

    def __init__(self, models: Sequence[Model]) -> None:
        # The step of the linear model is its rate, whatever the loss: it changes with the schedule only.
        self.fixed = together(np.array([i for i, model in enumerate(models) if isinstance(model, Linear)], np.intp))
        self._moving = Steps(models, [i for i, model in enumerate(models) if not isinstance(model, Linear)])

    def set_rates(self, rates: Floats) -> None:
        """Take the rates of the steps to come."""
        self._fixed_sizes = Linear().step(np.ones(1), np.ones(1), rates[self.fixed]).size
        self._moving.rate[...] = rates[self._moving.order]

    def write(self, loss: Floats, grad_sq: Floats, size: Floats, delta: Floats) -> None:
        """Write the sizes of all slots, and the indices but those of the linear model, which can wait."""
        size.reshape(-1)[self.fixed] = self._fixed_sizes
        if len(self._moving.order):
            self._moving.write(loss, grad_sq, size, delta)


def together(places: NDArray[np.intp]) -> Any:
    """Places in an array, as a slice if they are neighbours: that is faster."""
    if len(places) and places[-1] - places[0] == len(places) - 1 and (places[1:] > places[:-1]).all():
        return slice(int(places[0]), int(places[-1]) + 1)
    return places
