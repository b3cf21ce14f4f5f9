"""Newton's method for the cross entropy: proximal points of many runs at once, and the minimum over a set of rows.

Both minimise, over one vector v per class, P(v) = ℓ(s + L v) + c/2 ‖v‖². ℓ is the mean cross entropy, s are the
predictions where v = 0, and L are the features in coordinates of their span. Runs are the first axis of all arrays.
They do not see each other: all products and systems are a run's own, and one that has converged is left out.
"""

from __future__ import annotations

import warnings
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from surefoot.problems._cross_entropy import margins, mean_loss, probabilities
from surefoot.problems._problem import Floats, Proximal
from surefoot.theory.models import SquareRoot

_TOLERANCE = 1e-11
"""Tolerance of ‖∇P‖, relative to the gradient at the start."""
_STEPS = 100
_HALVINGS = 40
_DAMPING = 1e-13
"""Least curvature of a Newton system, relative to that of the rows: for rates so large that c is lost in rounding."""
_CERTAIN = 1e-6
"""Largest gap at which a minimum counts as found, relative to the objective."""
_UNSURE, _LOST = 1e-3, 1e-9
"""There is a warning if a proximal point lacks more than these parts of its objective and of what was gained."""
_MOVES = 0.1
"""Change of a prediction by a Newton step at the end from which on classes drift apart for ever."""


class Solution(NamedTuple):
    """The minimum over a set of rows as far as Newton's method found it, with a certificate."""

    point: Floats
    """Where the method ended, of shape (classes, features)."""
    value: float
    """The objective there, or 0 for separable rows: an upper bound of the infimum."""
    gap: float
    """Certified: the infimum is at least ``value − gap``."""
    attained: bool
    """The infimum is a minimum."""
    separable: bool
    """Some point gives every row its right class: without a penalty the infimum is 0, and not attained."""

    @property
    def certain(self) -> bool:
        """Whether Newton's method got there, so that ``value`` is the infimum but for rounding."""
        return self.gap <= _CERTAIN * self.value


class _Objective(NamedTuple):
    """P of some runs."""

    L: Floats
    """(runs, rows, coordinates)"""
    labels: NDArray[Any]
    """(runs, rows)"""
    start: Floats
    """s, (runs, classes, rows)"""
    weight: Floats
    """c, (runs,)"""

    def of(self, chosen: Any) -> _Objective:
        return _Objective(*(values[chosen] for values in self))

    def evaluate(self, v: Floats) -> tuple[Floats, Floats, Floats]:
        """P, ∇P and the slopes of ℓ with respect to the predictions, at v of shape (runs, classes, coordinates)."""
        slopes = (self.start + v @ self.L.mT)[:, :, None]
        loss = mean_loss(slopes, self.labels, slopes=True)[:, 0]
        gradient = slopes[:, :, 0] @ self.L + _wide(self.weight) * v
        return loss + 0.5 * self.weight * _dot(v, v), gradient, slopes[:, :, 0]

    def are_separated(self, v: Floats) -> NDArray[np.bool_]:
        """Whether every row's right class is clearly ahead of all others."""
        predictions = self.start + v @ self.L.mT
        ahead = margins(predictions[:, :, None], self.labels)[:, 0].min(axis=-1)
        separated: NDArray[np.bool_] = ahead > 1e-9 * np.maximum(np.abs(predictions).max(axis=(1, 2)), 1e-300)
        return separated

    def newton_step(self, gradient: Floats, slopes: Floats) -> Floats:
        """−H⁻¹∇P, where a singular H is made regular without changing the result.

        With the classes' probabilities p_k and b rows, H = blockdiag_k(B_k) − V Vᵀ, where B_k = Lᵀ diag(p_k) L / b + cI
        and V_k = Lᵀ diag(p_k) / √b. With few rows Woodbury's formula needs one small system per class and one of the
        size of the batch.
        """
        p = probabilities(slopes[:, :, None], self.labels)[:, :, 0]
        runs, classes, width = gradient.shape
        rows, size = self.L.shape[1], classes * width
        few = classes > 1 and rows < size and bool(self.weight.all())
        narrow = self.L / np.sqrt(rows)
        W = p[..., None] * narrow[:, None]  # the V_k, transposed
        B = narrow.mT[:, None] @ (W if few else (1.0 - p)[..., None] * W)
        damped = np.maximum(self.weight, _DAMPING * _dot(narrow, narrow) + np.finfo(float).tiny)
        B += damped[:, None, None, None] * np.eye(width)
        if classes == 1:
            return -np.linalg.solve(B, gradient[..., None])[..., 0]
        if few:
            # Not by the inverse of B: with large features it has too few digits for a step.
            solved: Any = np.linalg.solve(B, np.concatenate([gradient[..., None], W.mT], axis=-1))
            solved = solved.reshape(runs, size, 1 + rows)
            step, X = solved[..., :1], solved[..., 1:]
            V_transposed = W.swapaxes(1, 2).reshape(runs, rows, size)
            step = -step - X @ np.linalg.solve(np.eye(rows) - V_transposed @ X, V_transposed @ step)
        else:
            # Moving all classes alike has no curvature but c, and the gradient has no such part.
            regular = np.trace(B, axis1=2, axis2=3).sum(axis=1) / (size * classes)
            H = np.empty((runs, classes, width, classes, width))
            for k in range(classes):
                H[:, k] = -(W[:, None, k].mT @ W).swapaxes(1, 2)
                H[:, k, :, k] = B[:, k]
                H[:, k] += _wide(regular)[..., None] * np.eye(width)[:, None]
            step = -np.linalg.solve(H.reshape(runs, size, size), gradient.reshape(runs, size, 1))
        moved: Floats = step.reshape(gradient.shape)
        moved -= moved.mean(axis=1, keepdims=True)  # the loss does not change if all classes move alike
        return moved


def _descend(objective: _Objective, v: Floats, first: Floats) -> Floats:
    """Where Newton's method ends from v, with halved steps (Armijo). ``first`` are the first squared gradients."""
    v, live, is_free = v.copy(), np.arange(len(v)), not objective.weight.any()
    for _ in range(_STEPS):
        value, gradient, slopes = objective.evaluate(v[live])
        norm_sq = _dot(gradient, gradient)
        far = (norm_sq > _TOLERANCE**2 * first[live]) & np.isfinite(norm_sq)
        if is_free:
            far &= ~objective.are_separated(v[live])
        live, objective, value, gradient = live[far], objective.of(far), value[far], gradient[far]
        if not len(live):
            break
        step = objective.newton_step(gradient, slopes[far])
        promised, scale = -_dot(gradient, step), np.ones(len(live))
        slack = 8.0 * np.finfo(float).eps * np.abs(value)
        for _ in range(_HALVINGS):
            change = objective.evaluate(v[live] + _wide(scale) * step)[0] - value
            bad = ~(change <= slack - 1e-4 * scale * promised)
            if not bad.any():
                break
            scale[bad] *= 0.5
        v[live[~bad]] += _wide(scale[~bad]) * step[~bad]
        live, objective = live[~bad], objective.of(~bad)  # rounding leaves no gain for the others
        if not len(live):
            break
    return v


def minimum(A: Floats, labels: NDArray[np.int64], start: Floats) -> Solution:
    """The minimum of the mean cross entropy over some rows: the minimiser closest to ``start`` (classes, features).

    The method begins where all classes are equally likely, with coordinates of unit covariance. Whether there is a
    minimum shows in the Newton step at the end: it is nothing where the infimum is attained; where classes drift apart
    for ever it moves some row's prediction by about 1.
    """
    rows = len(labels)
    U, values, directions = np.linalg.svd(A, full_matrices=False)
    seen = values > values[0] * max(A.shape) * np.finfo(float).eps  # other directions are seen by no row
    L, directions, values = U[:, seen] * np.sqrt(rows), directions[seen], values[seen]
    # v = 0 is the origin, up to what the rows do not see and what all classes share.
    common = start.mean(axis=0) if len(start) > 1 else np.zeros(A.shape[1])
    origin = start - (start - common) @ directions.T @ directions
    objective = _Objective(L[None], labels[None], (origin @ A.T)[None], np.zeros(1))
    v = np.zeros((1, len(start), L.shape[1]))
    with np.errstate(over="ignore", invalid="ignore"):
        _, gradient, _ = objective.evaluate(v)
        v = _descend(objective, v, _dot(gradient, gradient))
        value, gradient, slopes = objective.evaluate(v)
        point = origin + v[0] @ (directions * (np.sqrt(rows) / values[:, None]))
        if seen.any() and objective.are_separated(v)[0]:
            return Solution(point, 0.0, 0.0, attained=False, separable=True)
        # The infimum is the largest mean entropy of the probabilities with Σ a_i(p_i − y_i)ᵀ = 0.
        p = (probabilities(slopes[:, :, None], objective.labels)[:, :, 0] - gradient @ objective.L.mT)[0]
        p = np.clip(np.concatenate([p, 1.0 - p]) if len(p) == 1 else p, np.finfo(float).tiny, 1.0)
        gap = max(float(value[0] + np.sum(p * np.log(p)) / rows), 0.0) + 1e-14 * float(value[0])
        change = objective.newton_step(gradient, slopes) @ objective.L.mT
    gap = min(gap, float(value[0]))  # no loss is below 0
    return Solution(point, float(value[0]), gap, attained=bool(np.abs(change).max() < _MOVES), separable=False)


def proximal_points(A: Floats, labels: NDArray[np.int64], points: Floats, lr: Floats, ridge: float) -> Proximal:
    """argmin_y of mean cross entropy + ridge/2 ‖y‖² + ‖y − x‖²/(2α).

    With c = ridge + 1/α and x̄ = x/(1 + α·ridge) that is ℓ(A y) + c/2 ‖y − x̄‖². The minimiser differs from x̄ by a
    combination of rows of A: with A = L Qᵀ, where the columns of Q are orthonormal (and Q = I if there are at least as
    many rows as features), y = x̄ + Q v for each class.

    Args:
        A: Features of each group's batch, (groups, rows, features).
        labels: Classes, (groups, rows).
        points: x, (…, groups, runs, classes, features).
        lr: α, (…, groups, runs).
        ridge: λ.
    """
    *_, groups, width, classes, _ = points.shape
    center = points / (1.0 + lr * ridge)[..., None, None]
    Q, L = None, A
    if A.shape[1] < A.shape[2]:
        Q, R = np.linalg.qr(A.mT)
        L = np.ascontiguousarray(R.mT)
    start = _product(center, A.mT).reshape(-1, classes, A.shape[1])
    weight = (ridge + 1.0 / lr).reshape(-1)
    group = np.broadcast_to(np.arange(groups)[:, None], lr.shape).reshape(-1)
    # A group is filled up with copies of its first run, whose result they share.
    number = np.arange(lr.size)
    first = number // width * width
    copies = (weight == weight[first]) & (start == start[first]).all(axis=(1, 2))
    number = np.where(copies, first, number)
    chosen = np.flatnonzero(number == np.arange(lr.size))

    objective = _Objective(L[group[chosen]], labels[group[chosen]], start[chosen], weight[chosen])
    first_value, gradient, _ = objective.evaluate(np.zeros((len(chosen), classes, L.shape[2])))
    grad_sq = _dot(gradient, gradient)
    # NGN's step is a good first guess: for one row of least squares it is the proximal point. (Number by number: for an
    # array the last bit may depend on the others.) With large features, whose probabilities are all 0 or 1, no
    # curvature is left there; it is largest where all classes are equally likely.
    sizes = [SquareRoot().step(*run).size for run in zip(first_value, grad_sq, 1.0 / objective.weight, strict=True)]
    guess = -_wide(np.array(sizes)) * gradient
    middle = (center.mean(axis=-2, keepdims=True) if classes > 1 else 0.0) - center
    middle = (middle if Q is None else _product(middle, Q)).reshape(lr.size, classes, -1)[chosen]
    is_better = objective.evaluate(middle)[0] < objective.evaluate(guess)[0]
    v = _descend(objective, np.where(_wide(is_better), middle, guess), grad_sq)

    value, gradient, slopes = objective.evaluate(v)
    gaps = 0.5 * _dot(gradient, gradient) / objective.weight
    unsure = gaps > _UNSURE * value
    if unsure.any():
        # The certified gap says little at rates so large that c is almost 0: look at what a further step promises.
        promised = -_dot(gradient[unsure], objective.of(unsure).newton_step(gradient[unsure], slopes[unsure]))
        unsure[unsure] = 0.5 * promised > np.maximum(_UNSURE * value, _LOST * (first_value - value))[unsure]
    if unsure.any():  # the same text at every step, so that Python shows it once
        order = 10.0 ** np.floor(np.log10(np.abs(A).max()))
        warnings.warn(
            f"some proximal points of the cross entropy may be off by more than {_UNSURE:g} of their objective: with "
            f"features of about {order:.0e} Newton's method runs out of digits. Scale the features to about 1",
            RuntimeWarning,
            stacklevel=3,
        )
    losses = value - 0.5 * objective.weight * _dot(v, v)
    place = np.searchsorted(chosen, number)
    back = v[place].reshape(*points.shape[:-1], -1)
    new = center + (back if Q is None else _product(back, Q.mT))
    total = losses[place].reshape(lr.shape) + 0.5 * ridge * np.vecdot(new, new).sum(axis=-1)
    return Proximal(new, total, gaps[place].reshape(lr.shape))


def _product(vectors: Floats, matrix: Floats) -> Floats:
    """Vectors (…, groups, runs, classes, m) times a matrix (groups, m, k), as one product per group."""
    *outer, runs, classes, last = vectors.shape
    products: Floats = np.matmul(vectors.reshape(*outer, runs * classes, last), matrix)
    return products.reshape(*outer, runs, classes, -1)


def _dot(left: Floats, right: Floats) -> Floats:
    """The inner products of some runs."""
    products: Floats = np.vecdot(left.reshape(len(left), -1), right.reshape(len(right), -1))
    return products


def _wide(values: NDArray[Any]) -> Any:
    return values[:, None, None]
