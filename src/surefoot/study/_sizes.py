"""Step sizes and indices of many runs with different models, such that no run's bits depend on its neighbours."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from surefoot.study._runs import Floats
from surefoot.theory._arrays import NUMPY
from surefoot.theory.models import Linear, Model, Step
from surefoot.theory.models._base import Point

_TINY = float(np.finfo(np.float64).tiny)
_MAX = float(np.finfo(np.float64).max)


class Grouped:
    """Runs sorted by model: ``order`` lists them, ``parts`` says where each model's runs stand in that order."""

    def __init__(self, models: Sequence[Model], places: Sequence[int]) -> None:
        groups: dict[int, list[int]] = {}
        for place in places:
            groups.setdefault(id(models[place]), []).append(place)
        self.order = np.array([place for group in groups.values() for place in group], np.intp)
        ends = np.cumsum([len(group) for group in groups.values()]).tolist()
        self.parts = [
            (models[group[0]], slice(end - len(group), end)) for group, end in zip(groups.values(), ends, strict=True)
        ]


def solve(parts: Sequence[tuple[Model, slice]], loss: Floats, grad_sq: Floats, rate: Floats) -> Step:
    """``model.step`` of several models, each for a part of the first axis, without its checks of a whole array.

    ``step`` takes another, equal form for a whole array as soon as one element is special (a loss at its bound, an
    overflow), and the last bit differs. Here the special elements alone go that way: what an element gets depends on
    that element alone. To be called where NumPy's floating-point warnings are off.
    """
    height = np.empty_like(loss)
    for model, part in parts:
        height[part] = model._height(loss[part], model.lower_bound)
    decrease = rate * grad_sq
    z = decrease / height
    half = 0.5 * decrease
    size, delta = np.empty_like(loss), np.empty_like(loss)
    for model, part in parts:
        point = Point(height[part], grad_sq[part], rate[part], half[part], z[part], True)
        size[part], delta[part] = model._solve(NUMPY, point)
    regular = np.minimum.reduce(np.minimum(z, decrease), axis=None) > _TINY and np.maximum.reduce(z, axis=None) <= _MAX
    if not regular:  # NaN is not
        special = ~((z > _TINY) & (z <= _MAX) & (decrease > _TINY))
        for model, part in parts:
            here = special[part]
            if here.any():
                found = model.step(loss[part][here], grad_sq[part][here], rate[part][here])
                size[part][here], delta[part][here] = found
    return Step(size, delta)


class StepSizes:
    """The step sizes of a fixed set of slots, each with its model."""

    def __init__(self, models: Sequence[Model]) -> None:
        # The step of the linear model is its rate, whatever the loss: it changes with the schedule only.
        self._fixed = [(place, model) for place, model in enumerate(models) if isinstance(model, Linear)]
        moving = Grouped(models, [place for place, model in enumerate(models) if not isinstance(model, Linear)])
        self._order, self._parts = moving.order, moving.parts
        self._rates: Floats = np.empty(0)
        self._sizes: Floats = np.empty(len(models))

    def set_rates(self, rates: Floats) -> None:
        """Take the rates of the steps to come."""
        if self._fixed:
            places = [place for place, _ in self._fixed]
            self._sizes[places] = self._fixed[0][1].step(np.ones(1), np.ones(1), rates[places]).size
        self._rates = rates[self._order]

    def __call__(self, loss: Floats, grad_sq: Floats) -> Floats:
        """The sizes of all slots; the array is used again by the next call."""
        if self._parts:
            order = self._order
            self._sizes[order] = solve(self._parts, loss.take(order), grad_sq.take(order), self._rates).size
        return self._sizes
