"""The cross entropy of many runs at once.

Predictions have the shape (…, groups, classes, runs, rows), and labels (groups, rows). With two classes there is one
prediction per row, whose sign is the class: the axis of the classes has length 1.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.problems._problem import Floats


def mean_loss(predictions: Floats, labels: NDArray[Any], slopes: bool) -> Floats:
    """Mean losses (…, groups, runs) over the rows; with ``slopes`` the predictions become the derivatives of the mean.

    Nothing overflows. The probabilities of the wrong classes are never the difference of others, so that small losses
    and slopes keep all their digits: Polyak's step is a ratio of the two.
    """
    rows = predictions.shape[-1]
    if predictions.shape[-3] == 1:
        signs = _signs(labels)
        margins = predictions * signs
        small = np.exp(-np.abs(margins))
        losses = np.maximum(-margins, 0.0) + np.log1p(small)
        if slopes:
            np.divide(-signs * np.where(margins > 0, small, 1.0), (1.0 + small) * rows, out=predictions)
        return _mean(losses[..., 0, :, :])
    flat, right_class = predictions.reshape(-1), _right_class(predictions, labels)
    right = flat.take(right_class)
    top = np.maximum.reduce(predictions, axis=-3)
    predictions -= top[..., None, :, :]
    np.exp(predictions, out=predictions)
    right_weight = flat.take(right_class)
    flat[right_class] = 0.0
    wrong_weight = np.add.reduce(predictions, axis=-3)
    # −log p = (top − right) + log(right_weight + wrong_weight); right_weight = 1 exactly if the right class is on top.
    top -= right
    losses = top + np.log1p((right_weight - 1.0) + wrong_weight)
    if slopes:
        divisor = (right_weight + wrong_weight) * rows
        predictions /= divisor[..., None, :, :]
        flat[right_class] = -wrong_weight / divisor
    return _mean(losses)


def probabilities(slopes: Floats, labels: NDArray[Any]) -> Floats:
    """The classes' probabilities from the slopes of :func:`mean_loss`; for two classes that of the wrong one."""
    chances: Floats = slopes * slopes.shape[-1]
    if slopes.shape[-3] == 1:
        return np.abs(chances)
    chances.reshape(-1)[_right_class(chances, labels)] += 1.0
    return chances


def margins(predictions: Floats, labels: NDArray[Any]) -> Floats:
    """How far the right class is ahead of the others, (…, groups, runs, rows)."""
    ahead: Floats
    if predictions.shape[-3] == 1:
        ahead = (predictions * _signs(labels))[..., 0, :, :]
    else:
        others = predictions.copy()
        right_class = _right_class(others, labels)
        others.reshape(-1)[right_class] = -np.inf
        ahead = predictions.reshape(-1)[right_class] - others.max(axis=-3)
    return ahead


def _signs(labels: NDArray[Any]) -> Floats:
    signs: Floats = (2.0 * labels - 1.0)[:, None, None, :]
    return signs


def _right_class(predictions: Floats, labels: NDArray[Any]) -> NDArray[np.intp]:
    """Where the right classes stand in the flattened predictions, (…, groups, runs, rows)."""
    *outer, classes, runs, rows = predictions.shape
    size = runs * rows
    within = labels[:, None] * size + np.arange(size).reshape(runs, rows)
    begin = np.arange(math.prod(outer)).reshape(*outer, 1, 1) * (classes * size)
    places: NDArray[np.intp] = begin + within
    return places


def _mean(values: Floats) -> Floats:
    means: Floats = np.add.reduce(values, axis=-1) / values.shape[-1]
    return means
