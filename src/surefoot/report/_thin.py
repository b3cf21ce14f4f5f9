"""Long traces made short, so that no peak is lost."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def thin(values: Floats, points: int) -> tuple[NDArray[np.intp], Floats]:
    """Positions and values of about ``points`` entries of the last axis, with every peak and dip among them.

    The axis is cut into points/2 stretches, and each keeps its smallest and its largest entry, in their order: a drawn
    line looks the same, and the smallest and the largest value of all stay. Positions have one axis if nothing was
    left out, and the shape of the values otherwise.

    >>> thin(np.array([5.0, 1.0, 2.0, 9.0, 3.0, 4.0, 4.0, 0.0]), points=4)
    (array([1, 3, 5, 7]), array([1., 9., 4., 0.]))
    """
    length = values.shape[-1]
    if length <= points:
        return np.arange(length), values
    edges = np.linspace(0, length, max(points // 2, 1) + 1).astype(int)
    kept: list[Any] = []
    for begin, end in pairwise(edges.tolist()):
        stretch = values[..., begin:end]
        pair = np.stack([stretch.argmin(axis=-1), stretch.argmax(axis=-1)], axis=-1)
        kept.append(begin + np.sort(pair, axis=-1))
    positions = np.concatenate(kept, axis=-1)
    return positions, np.take_along_axis(values, positions, axis=-1)
