"""Step sizes and indices of many runs with different models, such that no run's bits depend on its neighbours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.runs._types import Floats
from surefoot.theory.arrays import NUMPY
from surefoot.theory.models import Linear, Model, Point

_TINY = float(np.finfo(np.float64).tiny)
_MAX = float(np.finfo(np.float64).max)
_TOGETHER = 1 << 14
"""Indices that are computed in one go; they stay in the cache."""


class Steps:
    """The steps of runs with different models, with room for all numbers on the way.

    Runs are sorted by model; ``order`` says which run stands where. Fill ``rate``, whose entries are the runs in that
    order, and call :meth:`write` at every step.

    This is :meth:`Model.step` for several models at once, with its guards written for arrays that are used again and
    again: nothing is allocated but what a model itself needs. Only elements that are special (a loss at its bound, an
    overflow) take the way through ``Model.step`` itself.

    Args:
        models: The models of the slots whose steps are written, by slot.
        told: Losses, squared gradients, sizes and indices of all slots, of shape (at least 4, slots): the first two
            are read at every step, the others written.
        later: Leave out the indices of models that know their size without them; ``left_out`` has these models, each
            with its places.
    """

    def __init__(self, models: Mapping[int, Model], told: Floats, *, later: bool = False) -> None:
        groups: dict[int, list[int]] = {}
        for place, model in models.items():
            groups.setdefault(id(model), []).append(place)
        self.order = np.array([place for group in groups.values() for place in group], np.intp)
        self._places = _as_slice(self.order)
        self._told = told[:4]
        self._gathers = not isinstance(self._places, slice)
        # Neighbours are read and written where they are; others are gathered, and put back.
        self._numbers = np.zeros((4, len(self.order))) if self._gathers else self._told[:, self._places]
        self._loss, self._grad_sq, self._size, self._delta = self._numbers
        self.rate, self._half, self._zeros, self._bounds = (np.zeros(len(self.order)) for _ in range(4))
        self._checked = np.zeros((2, len(self.order)))
        self._decrease, self._z = self._checked
        distinct = [models[group[0]] for group in groups.values()]
        ends = np.cumsum([len(group) for group in groups.values()]).tolist()
        parts = [slice(end - len(group), end) for group, end in zip(groups.values(), ends, strict=True)]
        for model, part in zip(distinct, parts, strict=True):
            self._bounds[part] = model.lower_bound
        has_own = [type(model).height is not Model.height for model in distinct]
        self._is_bounded = any(has_own) or bool(self._bounds.any())
        self._height = np.zeros(len(self.order)) if self._is_bounded else self._loss  # f − 0 is f
        self._parts: list[tuple[Any, slice, Point, Floats, Floats | None]] = []
        for model, part in zip(distinct, parts, strict=True):
            point = Point(
                self._height[part], self._grad_sq[part], self.rate[part], self._half[part], self._z[part], True
            )
            delta = None if later and _knows_size(model) else self._delta[part]
            self._parts.append((model, part, point, self._size[part], delta))
        self._own_heights = [part for part, is_own in zip(self._parts, has_own, strict=True) if is_own]
        self.left_out = [
            (model, _as_slice(self.order[part])) for model, part, _, _, delta in self._parts if delta is None
        ]
        self._has_deltas = len(self.left_out) < len(self._parts)

    def write(self) -> None:
        """Write sizes and indices, from losses and squared gradients; floating-point warnings are off."""
        if self._gathers:
            self._told[:2].take(self._places, axis=1, out=self._numbers[:2], mode="clip")
        if self._is_bounded:
            np.subtract(self._loss, self._bounds, out=self._height)
            for model, part, point, _, _ in self._own_heights:
                point.height[...] = model.height(self._loss[part], model.lower_bound)
        np.multiply(self.rate, self._grad_sq, self._decrease)
        np.divide(self._decrease, self._height, self._z)
        if self._has_deltas:
            np.multiply(self._decrease, 0.5, out=self._half)
        for model, _, point, sizes, deltas in self._parts:
            if deltas is None:
                sizes[...] = model.size(NUMPY, point)
            else:
                sizes[...], deltas[...] = model.solve(NUMPY, point)
        if not (np.minimum.reduce(self._checked, axis=None) > _TINY and np.dot(self._z, self._zeros) == 0.0):
            self._write_special()  # 0·∞ is NaN
        if self._gathers:
            self._told[2, self._places] = self._size
            if self._has_deltas:
                self._told[3, self._places] = self._delta

    def _write_special(self) -> None:
        special = ~_are_regular(self._decrease, self._z)
        for model, part, _, sizes, deltas in self._parts:
            here = special[part]
            if here.any():
                sizes[here], special_deltas = model.step(
                    self._loss[part][here], self._grad_sq[part][here], self.rate[part][here]
                )
                if deltas is not None:
                    deltas[here] = special_deltas


class StepSizes:
    """The steps of a fixed set of slots, each with its model, or None: these are left alone.

    At every step only sizes that depend on it are written; those of the linear model are its rates. Most indices can
    wait, and are found for many steps in one go. ``told`` is that of :class:`Steps`.
    """

    def __init__(self, models: Sequence[Model | None], told: Floats) -> None:
        self._fixed = _as_slice(np.array([i for i, model in enumerate(models) if type(model) is Linear], np.intp))
        moving = {i: model for i, model in enumerate(models) if model is not None and type(model) is not Linear}
        self._size = told[2]
        self._moving = Steps(moving, told, later=True)
        self._left_out = [(Linear(), self._fixed), *self._moving.left_out]

    def set_rates(self, rates: Floats) -> None:
        """Take the rates of the steps to come; those of the linear model are its sizes."""
        self._size[self._fixed] = rates[self._fixed]
        self._moving.rate[...] = rates[self._moving.order]

    def write(self) -> None:
        """Write the other sizes of a step, and those of its indices that do not wait."""
        if len(self._moving.order):
            self._moving.write()

    def write_deltas(self, loss: Floats, grad_sq: Floats, rates: Floats, delta: Floats) -> None:
        """Write the indices that have waited, from losses, squared gradients and rates of several steps."""
        arrays = (loss, grad_sq, rates, delta)
        loss, grad_sq, rates, delta = (values.reshape(len(values), -1) for values in arrays)
        size = max(_TOGETHER // max(loss.shape[1], 1), 1)
        for begin in range(0, len(loss), size):
            for model, places in self._left_out:
                here = (slice(begin, begin + size), places)
                delta[here] = _deltas(model, loss[here], grad_sq[here], rates[here])


def _as_slice(places: NDArray[np.intp]) -> Any:
    """Places in an array, as a slice if they are neighbours: that is faster."""
    if len(places) and places[-1] - places[0] == len(places) - 1 and (places[1:] > places[:-1]).all():
        return slice(int(places[0]), int(places[-1]) + 1)
    return places


def _knows_size(model: Model) -> bool:
    """Whether the class that finds the steps of a model can find their sizes alone."""
    return "size" in vars(next(cls for cls in type(model).__mro__ if "solve" in vars(cls)))


def _deltas(model: Model, loss: Floats, grad_sq: Floats, rate: Floats) -> Floats:
    if type(model) is Linear:  # what is not finite shows in the loss or the gradient
        half: Floats = model.solve(NUMPY, Point(1.0, 0.0, 0.0, (0.5 * rate) * grad_sq, 1.0, True))[1]
        return half  # the sizes are known: they are not found again
    height, decrease = model.height(loss, model.lower_bound), rate * grad_sq
    z = decrease / height
    deltas: Floats = model.solve(NUMPY, Point(height, grad_sq, rate, 0.5 * decrease, z, True))[1]
    if not (decrease.size and decrease.min() > _TINY and z.min() > _TINY and z.max() <= _MAX):
        special = ~_are_regular(decrease, z)
        deltas[special] = model.step(loss[special], grad_sq[special], rate[special]).delta
    return deltas


def _are_regular(decrease: Floats, z: Floats) -> NDArray[np.bool_]:
    regular: NDArray[np.bool_] = (np.minimum(z, decrease) > _TINY) & (z <= _MAX)
    return regular
