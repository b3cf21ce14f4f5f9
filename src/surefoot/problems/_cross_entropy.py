"""The cross entropy of many runs at once, and its curvature.

Predictions have the shape (tiles, blocks, width, rows). One block stands for two classes, the sign of the prediction
being the class; otherwise there is a block for each class.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.problems._problem import Floats


def targets_of(labels: NDArray[Any], tiles: int, blocks: int, width: int) -> Any:
    """What the functions below take as targets, for labels of shape (…, tiles or 1, rows).

    For two classes the signs ±1, of shape (…, tiles, 1, 1, rows). For more, where the right classes stand in the
    flattened predictions, of shape (…, tiles, width, rows).
    """
    if blocks == 1:
        return (2.0 * labels - 1.0)[..., None, None, :]
    rows = labels.shape[-1]
    within = np.arange(width * rows).reshape(width, rows)
    first_class = within + np.arange(tiles)[:, None, None] * (blocks * width * rows)
    return labels[..., None, :] * (width * rows) + first_class


def mean_loss(predictions: Floats, targets: Any, slopes: bool) -> Floats:
    """Mean losses (tiles, width) over the rows; with ``slopes`` the predictions become the derivatives of the mean.

    Nothing overflows. The probabilities of the wrong classes are never the difference of others, so that small losses
    and slopes keep all their digits: Polyak's step is a ratio of the two.
    """
    rows = predictions.shape[-1]
    if predictions.shape[1] == 1:
        margins = predictions * targets
        small = np.exp(-np.abs(margins))
        losses = np.maximum(-margins, 0.0) + np.log1p(small)
        if slopes:
            np.divide(-targets * np.where(margins > 0, small, 1.0), (1.0 + small) * rows, out=predictions)
        return _mean(losses[:, 0])
    flat = predictions.reshape(-1)
    right = flat.take(targets)
    top = np.maximum.reduce(predictions, axis=1)
    predictions -= top[:, None]
    np.exp(predictions, out=predictions)
    right_weight = flat.take(targets)
    flat[targets] = 0.0
    wrong_weight = np.add.reduce(predictions, axis=1)
    # −log p = (top − right) + log(right_weight + wrong_weight); right_weight = 1 exactly if the right class is on top.
    top -= right
    losses = top + np.log1p((right_weight - 1.0) + wrong_weight)
    if slopes:
        divisor = np.add(right_weight, wrong_weight, out=right_weight)
        divisor *= rows
        predictions /= divisor[:, None]
        flat[targets] = -wrong_weight / divisor
    return _mean(losses)


def probabilities(slopes: Floats, targets: Any) -> Floats:
    """The classes' probabilities from the slopes of :func:`mean_loss`; for two classes that of the wrong one."""
    rows = slopes.shape[-1]
    chances: Floats = slopes * rows
    if slopes.shape[1] == 1:
        return np.abs(chances)
    chances.reshape(-1)[targets] += 1.0
    return chances


def curvature(chances: Floats, change: Floats) -> Floats:
    """The second derivative of the mean loss, applied to a change of the predictions."""
    weighted: Floats = chances * change
    weighted -= chances * (weighted if chances.shape[1] == 1 else np.add.reduce(weighted, axis=1)[:, None])
    weighted /= chances.shape[-1]
    return weighted


def _mean(values: Floats) -> Floats:
    means: Floats = np.add.reduce(values, axis=-1) / values.shape[-1]
    return means
