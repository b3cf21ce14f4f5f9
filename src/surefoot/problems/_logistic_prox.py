"""Proximal points of the cross entropy for many runs at once: Newton's method, one factorisation a run and step.

With c = λ + 1/α and x̄ = x/(1 + αλ), what is minimised is P(y) = ℓ(A y) + c/2 ‖y − x̄‖². The minimiser differs from x̄ by
a combination of rows of A. With A = L Qᵀ, where the columns of Q are orthonormal (and Q = I if there are at least as
many rows as features), y = x̄ + Q v for each class, and P is ℓ(A x̄ + L v) + c/2 ‖v‖². Its Hessian is

    blockdiag_k(B_k) − V Vᵀ,    B_k = Lᵀ diag(p_k) L / b + c I,    V_k = Lᵀ diag(p_k) / √b,

for the classes' probabilities p_k: small systems, one a class, and one of the batch's size (Woodbury's formula).

Runs do not see each other: all products and systems are a run's own, and one that has converged is left out.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from surefoot.problems._cross_entropy import mean_loss, probabilities, targets_of
from surefoot.problems._problem import Floats, Proximal
from surefoot.theory.models import SquareRoot

_TOLERANCE = 1e-11
"""Tolerance of ‖∇P‖, relative to the gradient at the start."""
_NEWTON_STEPS = 60
_HALVINGS = 30
_DAMPING = 1e-13
"""Least curvature of a Newton system, relative to that of the rows: for rates so large that c is lost in rounding."""
_LOST = 1e-6
"""Certified gap from which on a run is begun again elsewhere, relative to the objective."""


class _Runs:
    """Some runs on their way to their proximal points: arrays whose first axis are these runs.

    ``number`` says which runs they are, ``L`` and ``labels`` are those of their batches.
    """

    def __init__(self, number: NDArray[np.intp], L: Floats, labels: NDArray[Any], weight: Floats, start: Floats):
        self.number, self.L, self.labels, self.weight = number, L, labels, weight
        self.damped = np.maximum(weight, _DAMPING * np.add.reduce(L * L, axis=(1, 2)) / L.shape[1])
        self.predictions = start
        self.v = np.zeros((*start.shape[:2], L.shape[2]))
        self.loss, self.slopes = self.evaluate(start)

    def evaluate(self, predictions: Floats, chosen: Any = slice(None)) -> tuple[Floats, Floats]:
        """Losses, and their slopes, at some predictions (runs, blocks, rows)."""
        slopes = predictions[:, :, None].copy()
        targets = targets_of(self.labels[chosen], len(slopes), slopes.shape[1], 1)
        return mean_loss(slopes, targets, slopes=True)[:, 0], slopes[:, :, 0]

    def gradient(self) -> tuple[Floats, Floats]:
        """∇P, and its squared norm."""
        gradient: Floats = self.slopes @ self.L
        gradient += _wide(self.weight) * self.v
        return gradient, _dot(gradient, gradient)

    def keep(self, chosen: NDArray[np.bool_]) -> None:
        """Keep the chosen runs, and leave out the others."""
        if not chosen.all():
            vars(self).update({name: values[chosen] for name, values in vars(self).items()})

    def newton_step(self, gradient: Floats) -> Floats:
        """−H⁻¹∇P."""
        targets = targets_of(self.labels, len(self.v), self.v.shape[1], 1)
        chances = probabilities(self.slopes[:, :, None], targets)[:, :, 0]
        runs, blocks, rows = chances.shape
        narrow = self.L / np.sqrt(rows)
        if blocks == 1:
            chances = chances * (1.0 - chances)
        V = narrow.transpose(0, 2, 1)[:, None] * chances[:, :, None]
        B = V @ narrow[:, None]
        places = np.arange(B.shape[-1])
        B[:, :, places, places] += _wide(self.damped)
        inverse = np.linalg.inv(B)
        step = -(inverse @ gradient[..., None])
        if blocks > 1:
            X = (inverse @ V).reshape(runs, -1, rows)
            V = V.reshape(X.shape).transpose(0, 2, 1)
            small = np.eye(rows) - V @ X
            step += (X @ np.linalg.solve(small, V @ step.reshape(runs, -1, 1))).reshape(step.shape)
            step -= step.mean(axis=1, keepdims=True)  # the loss does not change if all classes move alike
        return step[..., 0]

    def search(self, step: Floats) -> Floats:
        """Move by the largest of 1, ½, ¼, … steps that lowers P enough (Armijo); 0 where rounding leaves no gain."""
        reach = step @ self.L.transpose(0, 2, 1)
        cross, square = _dot(self.v, step), _dot(step, step)
        value = self.loss + 0.5 * self.weight * _dot(self.v, self.v)
        slack = 8.0 * np.finfo(float).eps * np.abs(value)
        scale, predictions = np.ones(len(step)), self.predictions + reach
        loss, slopes = self.evaluate(predictions)
        for _ in range(_HALVINGS):
            change = loss - self.loss + self.weight * scale * (cross + 0.5 * scale * square)
            # A Newton step promises at least half of what the quadratic model does, which is ⟨s, Hs⟩/2 ≥ c‖s‖²/2.
            bad = np.flatnonzero(~(change <= slack - 1e-4 * scale * self.weight * square))
            if not len(bad):
                break
            scale[bad] *= 0.5
            predictions[bad] = self.predictions[bad] + _wide(scale[bad]) * reach[bad]
            loss[bad], slopes[bad] = self.evaluate(predictions[bad], bad)
        else:
            scale[bad], predictions[bad] = 0.0, self.predictions[bad]
            loss[bad], slopes[bad] = self.loss[bad], self.slopes[bad]
        self.v += _wide(scale) * step
        self.predictions, self.loss, self.slopes = predictions, loss, slopes
        return scale


def proximal_points(A: Floats, labels: NDArray[np.int64], points: Floats, lr: Floats, ridge: float) -> Proximal:
    """argmin_y of mean cross entropy + ridge/2 ‖y‖² + ‖y − x‖²/(2α).

    Args:
        A: Features of each tile's batch, (tiles, rows, features).
        labels: Classes, (tiles, rows).
        points: x, (tiles, blocks, width, features).
        lr: α, (tiles, width).
        ridge: λ.
    """
    tiles, blocks, width, _ = points.shape
    Q, L = None, A
    if A.shape[1] < A.shape[2]:
        Q, R = np.linalg.qr(A.transpose(0, 2, 1))
        L = np.ascontiguousarray(R.transpose(0, 2, 1))
    center = points / (1.0 + lr * ridge)[:, None, :, None]
    start = _product(center, A.transpose(0, 2, 1)).transpose(0, 2, 1, 3).reshape(tiles * width, blocks, -1)
    weight = (ridge + 1.0 / lr).reshape(-1)
    tile = np.repeat(np.arange(tiles), width)
    first = tile * width
    # A tile is filled up with copies of its first run, whose result they share.
    copies = (weight == weight[first]) & (start == start[first]).all(axis=(1, 2)) & (first != np.arange(len(first)))
    chosen = np.flatnonzero(~copies)

    runs = _Runs(chosen, L[tile[chosen]], labels[tile[chosen]], weight[chosen], start[chosen])
    v, losses, norms = np.zeros((len(start), blocks, L.shape[2])), np.zeros(len(start)), np.zeros(len(start))
    losses[chosen] = runs.loss
    gradient, before = runs.gradient()
    norms[chosen] = before
    moving = np.isfinite(before) & (before > 0)
    runs.keep(moving)
    gradient, before = gradient[moving], before[moving]
    # NGN's step is a good first guess: for one row of least squares it is the proximal point.
    runs.v = -_wide(_first_sizes(runs.loss, before, 1.0 / runs.weight)) * gradient
    runs.predictions = runs.predictions + runs.v @ runs.L.transpose(0, 2, 1)
    moved, before_of = runs.number, np.zeros(len(start))
    before_of[moved] = before
    _descend(runs, before, v, losses, norms)

    value = losses + 0.5 * weight * _dot(v, v)
    lost = moved[~(0.5 * norms[moved] <= _LOST * weight[moved] * value[moved])]
    if len(lost):
        # With large features each probability is 0 or 1 at x̄, and no curvature is left. It is largest where all
        # classes are equally likely.
        middle = (center.mean(axis=1, keepdims=True) if blocks > 1 else 0.0) - center
        middle = middle if Q is None else _product(middle, Q)
        restart = middle.transpose(0, 2, 1, 3).reshape(v.shape)[lost]
        again = _Runs(lost, L[tile[lost]], labels[tile[lost]], weight[lost], start[lost])
        again.v, again.predictions = restart, again.predictions + restart @ again.L.transpose(0, 2, 1)
        again.loss, again.slopes = again.evaluate(again.predictions)
        again.keep(again.loss + 0.5 * again.weight * _dot(restart, restart) < value[lost])
        better, results = again.number, (v.copy(), losses.copy(), norms.copy())
        _descend(again, before_of[better], *results)
        for old, new in zip((v, losses, norms), results, strict=True):
            old[better] = new[better]
    for values in (v, losses, norms):
        values[copies] = values[first[copies]]

    back = np.ascontiguousarray(v.reshape(tiles, width, blocks, -1).transpose(0, 2, 1, 3))
    new = center + (back if Q is None else _product(back, Q.transpose(0, 2, 1)))
    total = losses.reshape(lr.shape) + 0.5 * ridge * np.vecdot(new, new).sum(axis=1)
    return Proximal(new, total, (0.5 * norms / weight).reshape(lr.shape))


def _descend(runs: _Runs, before: Floats, v: Floats, losses: Floats, norms: Floats) -> None:
    """Newton's method; writes what it finds. ``before`` are the first squared gradients."""
    runs.loss, runs.slopes = runs.evaluate(runs.predictions)
    for _ in range(_NEWTON_STEPS):
        if not len(runs.v):
            break
        gradient, norm_sq = runs.gradient()
        v[runs.number], losses[runs.number], norms[runs.number] = runs.v, runs.loss, norm_sq
        far = (norm_sq > _TOLERANCE**2 * before) & np.isfinite(norm_sq)
        runs.keep(far)
        if not len(runs.v):
            break
        gradient, before = gradient[far], before[far]
        moved = runs.search(runs.newton_step(gradient)) > 0
        runs.keep(moved)
        before = before[moved]


def _first_sizes(loss: Floats, grad_sq: Floats, lr: Floats) -> Floats:
    """NGN's step sizes, number by number: for an array the last bit may depend on whether another is special."""
    runs = zip(loss.tolist(), grad_sq.tolist(), lr.tolist(), strict=True)
    return np.array([SquareRoot().step(*run).size for run in runs])


def _product(vectors: Floats, matrix: Floats) -> Floats:
    """Vectors (tiles, blocks, width, m) times a matrix (tiles, m, k), as one product a tile."""
    tiles, blocks, width, _ = vectors.shape
    products: Floats = np.matmul(vectors.reshape(tiles, blocks * width, -1), matrix)
    return products.reshape(tiles, blocks, width, -1)


def _dot(left: Floats, right: Floats) -> Floats:
    """The inner products of some runs."""
    products: Floats = np.vecdot(left.reshape(len(left), -1), right.reshape(len(right), -1))
    return products


def _wide(values: Floats) -> Floats:
    return values[:, None, None]
