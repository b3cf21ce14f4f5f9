"""A curve of bounded size that grows with the run: it costs the same to draw after ten steps and after a million.

Neighbouring values share a bucket, which keeps their smallest, their largest and their mean. Once there are too many
buckets, neighbours are joined.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Floats = np.ndarray[Any, np.dtype[np.float64]]

LIMIT = 256
"""Buckets, an even number."""


class Curve:
    """Values over the steps; NaN is what was not measured, ∞ what is not finite.

    >>> curve = Curve()
    >>> curve.add(np.array([3.0, 1.0, np.inf]))
    >>> curve.bad, curve.drawn()[:, 2].tolist()
    (1, [3.0, 1.0, nan])
    """

    def __init__(self) -> None:
        self.last = np.nan
        """The last value."""
        self.bad = 0
        """Values that were not finite."""
        self.first_bad: int | None = None
        """The step of the first of them."""
        self.count = 0
        """Values that were added."""
        self._width = 1
        self._buckets = np.empty((0, 3))
        self._rest = np.empty(0)

    def add(self, values: Floats) -> None:
        """Add the values of the next steps."""
        if not len(values):
            return
        self.last = float(values[-1])
        infinite = np.isinf(values)
        if infinite.any():
            if self.first_bad is None:
                self.first_bad = self.count + int(np.argmax(infinite))
            self.bad += int(infinite.sum())
        self.count += len(values)
        self._rest = np.concatenate([self._rest, np.where(infinite, np.nan, values)])
        while len(self._rest) >= self._width:
            taken = min(len(self._rest) // self._width, LIMIT - len(self._buckets))
            whole = self._rest[: taken * self._width].reshape(taken, self._width)
            self._rest = self._rest[taken * self._width :]
            self._buckets = np.concatenate([self._buckets, _bucket(whole)])
            if len(self._buckets) == LIMIT:
                pairs = self._buckets.reshape(-1, 2, 3)
                low, high, mean = pairs[:, :, 0], pairs[:, :, 1], pairs[:, :, 2]
                self._buckets = np.stack([_bucket(low)[:, 0], _bucket(high)[:, 1], _bucket(mean)[:, 2]], axis=1)
                self._width *= 2

    def drawn(self) -> Floats:
        """Rows of step, smallest, mean and largest value, one a bucket; NaN where nothing finite was measured."""
        buckets = self._buckets
        if len(self._rest):
            buckets = np.concatenate([buckets, _bucket(self._rest[None, :])])
        steps = np.minimum((np.arange(len(buckets)) + 0.5) * self._width, max(self.count, 1)) - 0.5
        return np.column_stack([steps, buckets[:, 0], buckets[:, 2], buckets[:, 1]])


def _bucket(rows: Floats) -> Floats:
    """Smallest, largest and mean of every row, over what there is."""
    there = ~np.isnan(rows)
    low, high = np.where(there, rows, np.inf).min(axis=1), np.where(there, rows, -np.inf).max(axis=1)
    count = np.maximum(there.sum(axis=1), 1)
    mean = (np.where(there, rows, 0.0) / count[:, None]).sum(axis=1)
    return np.where(there.any(axis=1, keepdims=True), np.stack([low, high, mean], axis=1), np.nan)
