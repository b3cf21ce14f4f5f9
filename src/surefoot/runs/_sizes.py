"""Step sizes and indices of many runs with different models, such that no run's bits depend on its neighbours."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from surefoot.runs._nouns import Floats
from surefoot.theory.arrays import NUMPY
from surefoot.theory.models import Linear, Model, Point

_TINY = float(np.finfo(np.float64).tiny)
_MAX = float(np.finfo(np.float64).max)


class Steps:
    """The steps of runs with different models, with room for all numbers on the way.

    Runs are sorted by model; ``order`` says which run stands where. Fill ``loss``, ``grad_sq`` and ``rate``, whose
    first axis are the runs in that order, and call :meth:`solve`.

    This is :meth:`Model.step` for several models at once, with its guards written for arrays that are used again and
    again: nothing is allocated but what a model itself needs, because it is called at every step. Only elements that
    are special (a loss at its bound, an overflow) take the way through ``Model.step`` itself.
    """

    def __init__(self, models: Sequence[Model], places: Sequence[int], length: tuple[int, ...] = ()) -> None:
        groups: dict[int, list[int]] = {}
        for place in places:
            groups.setdefault(id(models[place]), []).append(place)
        self.order = np.array([place for group in groups.values() for place in group], np.intp)
        shape = (len(self.order), *length)
        self.loss, self.grad_sq, self.rate, self.size, self.delta = (np.empty(shape) for _ in range(5))
        self._height, self._decrease, self._half, self._z, self._smaller = (np.empty(shape) for _ in range(5))
        self._bounds = np.empty((len(self.order), *(1 for _ in length)))
        self._parts = []
        end = 0
        for group in groups.values():
            model, part = models[group[0]], slice(end, end := end + len(group))
            self._bounds[part] = model.lower_bound
            point = Point(
                self._height[part], self.grad_sq[part], self.rate[part], self._half[part], self._z[part], True
            )
            self._parts.append((model, part, point))
        self._own_heights = [part for part in self._parts if type(part[0]).height is not Model.height]

    def solve(self, deltas: bool) -> None:
        """Compute ``size``, and ``delta`` if wanted; NumPy's floating-point warnings are to be off."""
        np.subtract(self.loss, self._bounds, out=self._height)
        for model, part, point in self._own_heights:
            point.height[...] = model.height(self.loss[part], model.lower_bound)
        np.multiply(self.rate, self.grad_sq, out=self._decrease)
        np.multiply(self._decrease, 0.5, out=self._half)
        np.divide(self._decrease, self._height, out=self._z)
        for model, part, point in self._parts:
            size, delta = model.solve(NUMPY, point)
            self.size[part] = size
            if deltas:
                self.delta[part] = delta
        np.minimum(self._z, self._decrease, out=self._smaller)
        if not (self._smaller.min(initial=_MAX) > _TINY and self._z.max(initial=_TINY) <= _MAX):  # so is NaN
            self._solve_special()

    def write(self, loss: Floats, grad_sq: Floats, size: Floats, delta: Floats) -> None:
        """Write sizes and indices of runs that all have one model, for losses and squared gradients in any shape."""
        self.loss[...], self.grad_sq[...] = loss.reshape(-1), grad_sq.reshape(-1)
        self.solve(deltas=True)
        size.reshape(-1)[...], delta.reshape(-1)[...] = self.size, self.delta

    def _solve_special(self) -> None:
        special = ~((self._smaller > _TINY) & (self._z <= _MAX))
        for model, part, _ in self._parts:
            here = special[part]
            if here.any():
                found = model.step(self.loss[part][here], self.grad_sq[part][here], self.rate[part][here])
                self.size[part][here], self.delta[part][here] = found


class StepSizes:
    """The step sizes of a fixed set of slots, each with its model."""

    def __init__(self, models: Sequence[Model]) -> None:
        # The step of the linear model is its rate, whatever the loss: it changes with the schedule only.
        self._fixed = [place for place, model in enumerate(models) if isinstance(model, Linear)]
        self._moving = Steps(models, [place for place, model in enumerate(models) if not isinstance(model, Linear)])
        self._sizes: Floats = np.empty(len(models))

    def set_rates(self, rates: Floats) -> None:
        """Take the rates of the steps to come."""
        if self._fixed:
            self._sizes[self._fixed] = Linear().step(np.ones(1), np.ones(1), rates[self._fixed]).size
        self._moving.rate[...] = rates[self._moving.order]

    def __call__(self, loss: Floats, grad_sq: Floats) -> Floats:
        """The sizes of all slots; the array is used again by the next call."""
        steps = self._moving
        if len(steps.order):
            loss.take(steps.order, out=steps.loss, mode="clip")  # without a mode NumPy copies to a buffer first
            grad_sq.take(steps.order, out=steps.grad_sq, mode="clip")
            steps.solve(deltas=False)
            self._sizes[steps.order] = steps.size
        return self._sizes
