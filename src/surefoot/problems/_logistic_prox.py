"""Proximal points of the cross entropy for many runs at once: Newton's method with conjugate gradients inside.

With c = λ + 1/α and x̄ = x/(1 + αλ), what is minimised is P(y) = ℓ(A y) + c/2 ‖y − x̄‖². The minimiser differs from x̄ by
a combination of rows of A, so that it can be written in two kinds of coordinates w:

* primal, y = x̄ + w, if there are at least as many rows as features;
* dual, y = x̄ + Aᵀw, otherwise, with AAᵀ in place of A, and the inner product ⟨v, AAᵀw⟩, in which the Hessian
  ℓ″AAᵀ + cI is symmetric.

Runs do not see each other: one that has converged stands still while others go on.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from surefoot.problems._cross_entropy import curvature, mean_loss, probabilities, targets_of
from surefoot.problems._problem import Floats, Proximal
from surefoot.theory.models import SquareRoot

_TOLERANCE = 1e-11
"""Of ‖∇P‖, relative to the gradient at the start."""
_NEWTON_STEPS = 60
_HALVINGS = 30


class _Coordinates:
    """The space in which w lives."""

    def __init__(self, A: Floats) -> None:
        self.A = A
        self.dual = A.shape[1] < A.shape[2]
        transposed = A.transpose(0, 2, 1)
        self._forward = A @ transposed if self.dual else transposed

    def forward(self, w: Floats) -> Floats:
        """The change of the predictions that belongs to a change of the coordinates."""
        return _product(w, self._forward)

    def backward(self, slopes: Floats) -> Floats:
        """The gradient in these coordinates, from the derivatives with respect to the predictions."""
        return slopes if self.dual else _product(slopes, self.A)

    def norm_sq(self, w: Floats, image: Floats) -> Floats:
        """‖y − x̄‖² of each run, given the image of w."""
        squares: Floats = np.vecdot(w, image if self.dual else w).sum(axis=1)
        return squares

    def points(self, w: Floats) -> Floats:
        """y − x̄."""
        return _product(w, self.A) if self.dual else w


def proximal_points(A: Floats, labels: NDArray[np.int64], points: Floats, lr: Floats, ridge: float) -> Proximal:
    """argmin_y of mean cross entropy + ridge/2 ‖y‖² + ‖y − x‖²/(2α).

    Args:
        A: Features of each tile's batch, (tiles, rows, features).
        labels: Classes, (tiles, rows).
        points: x, (tiles, blocks, width, features).
        lr: α, (tiles, width).
        ridge: λ.
    """
    space = _Coordinates(A)
    targets = targets_of(labels, *points.shape[:3])
    weight = ridge + 1.0 / lr
    center = points / _wide(1.0 + lr * ridge)
    start = _product(center, A.transpose(0, 2, 1))
    w, image = np.zeros(start.shape if space.dual else points.shape), np.zeros_like(start)
    active = np.isfinite(start).all(axis=(1, 3))
    goal = first = np.zeros(lr.shape)
    for turn in range(_NEWTON_STEPS):
        slopes = start + image
        loss = mean_loss(slopes, targets, slopes=True)
        gradient = space.backward(slopes) + _wide(weight) * w
        shadow = space.forward(gradient)
        norm_sq = space.norm_sq(gradient, shadow)
        if turn == 0:
            goal, first = _TOLERANCE**2 * norm_sq, norm_sq
        active = active & (norm_sq > goal) & np.isfinite(norm_sq)
        if not active.any():
            break
        if turn == 0:  # NGN's step is a good first guess: for one row of least squares it is the proximal point
            w = -_wide(_first_sizes(loss, norm_sq, 1.0 / weight, active)) * gradient
        else:
            forcing = np.where(active, np.minimum(0.25, (norm_sq / first) ** 0.25), 2.0)
            step = _newton_step(space, probabilities(slopes, targets), weight, gradient, shadow, forcing)
            predictions, reach = start + image, space.forward(step)
            scale = _line_search(space, predictions, targets, weight, w, image, step, reach, loss, active)
            active = active & (scale > 0)
            w += _wide(scale) * step
        image = space.forward(w)
    new = center + space.points(w)
    losses = mean_loss(start + image, targets, slopes=False) + 0.5 * ridge * np.vecdot(new, new).sum(axis=1)
    return Proximal(new, losses, 0.5 * norm_sq / weight)


def _first_sizes(loss: Floats, grad_sq: Floats, lr: Floats, active: NDArray[np.bool_]) -> Floats:
    """NGN's step sizes, 0 for runs that are not active.

    Number by number: for an array the last bit may depend on whether one of the others is special.
    """
    sizes = np.zeros(loss.shape)
    for place in zip(*np.nonzero(active), strict=True):
        sizes[place] = SquareRoot().step(float(loss[place]), float(grad_sq[place]), float(lr[place])).size
    return sizes


def _newton_step(
    space: _Coordinates, chances: Floats, weight: Floats, gradient: Floats, shadow: Floats, forcing: Floats
) -> Floats:
    """Conjugate gradients for H s = −∇P, until the residual has fallen by the factor ``forcing`` (over 1: no step)."""
    residual, direction, reach = -gradient, -gradient, -shadow
    step, buffer = np.zeros_like(gradient), np.empty_like(gradient)
    norm_sq = space.norm_sq(gradient, shadow)
    goal = forcing**2 * norm_sq
    active = norm_sq > goal
    for _ in range(2 * gradient.shape[1] * gradient.shape[3]):
        bent = curvature(chances, reach)
        along = np.vecdot(reach, bent).sum(axis=1) + weight * space.norm_sq(direction, reach)
        far = _wide(np.where(active, norm_sq, 0.0) / np.where(active & (along > 0), along, 1.0))
        step += np.multiply(far, direction, out=buffer)
        change = space.backward(bent)
        change += np.multiply(_wide(weight), direction, out=buffer)
        change *= far
        residual -= change
        image = space.forward(residual)
        previous, norm_sq = norm_sq, space.norm_sq(residual, image)
        active = active & (norm_sq > goal)
        if not active.any():
            break
        turn = _wide(np.where(active, norm_sq, 0.0) / np.where(active, previous, 1.0))
        direction *= turn
        direction += residual
        reach *= turn
        reach += image
    return step


def _line_search(
    space: _Coordinates,
    predictions: Floats,
    targets: Floats,
    weight: Floats,
    w: Floats,
    image: Floats,
    step: Floats,
    reach: Floats,
    loss: Floats,
    active: NDArray[np.bool_],
) -> Floats:
    """The largest of 1, ½, ¼, … that lowers P enough (Armijo), of each run; 0 where rounding leaves nothing to gain."""
    cross = np.vecdot(w, reach if space.dual else step).sum(axis=1)
    square = space.norm_sq(step, reach)
    value = loss + 0.5 * weight * space.norm_sq(w, image)
    slack = 8.0 * np.finfo(float).eps * np.abs(value)
    scale = np.where(active, 1.0, 0.0)
    open_runs = active
    for _ in range(_HALVINGS):
        change = mean_loss(predictions + _wide(scale) * reach, targets, slopes=False) - loss
        change += weight * scale * (cross + 0.5 * scale * square)
        # A Newton step promises at least half of what the quadratic model does, which is ⟨s, Hs⟩/2 ≥ c‖s‖²/2.
        open_runs = open_runs & ~(change <= slack - 1e-4 * scale * weight * square)
        if not open_runs.any():
            return scale
        scale = np.where(open_runs, 0.5 * scale, scale)
    return np.where(open_runs, 0.0, scale)


def _product(vectors: Floats, matrix: Floats) -> Floats:
    """Vectors (tiles, blocks, width, m) times a matrix (tiles, m, k), as one product a tile."""
    tiles, blocks, width, _ = vectors.shape
    products: Floats = np.matmul(vectors.reshape(tiles, blocks * width, -1), matrix)
    return products.reshape(tiles, blocks, width, -1)


def _wide(values: Floats) -> Floats:
    return values[:, None, :, None]
