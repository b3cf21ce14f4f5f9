"""Newton's method for the cross entropy: proximal points of many runs at once, and the minimum over a set of rows.

All of it minimises, over one vector v per class, P(v) = ℓ(s + L v) + c/2 ‖v‖². ℓ is the mean cross entropy, s are the
predictions where v = 0, and L are the features in coordinates of their span. With the classes' probabilities p_k and b
rows, the Hessian of P is blockdiag_k(B_k) − V Vᵀ, where B_k = Lᵀ diag(p_k) L / b + c I and V_k = Lᵀ diag(p_k) / √b.
With few rows its inverse costs one small system per class and one of the size of the batch (Woodbury's formula).

Runs do not see each other: all products and systems are a run's own, and one that has converged is left out.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from surefoot.problems._cross_entropy import curvature, margins, mean_loss, probabilities
from surefoot.problems._problem import Floats, Proximal
from surefoot.theory.models import SquareRoot

_TOLERANCE = 1e-11
"""Tolerance of ‖∇P‖, relative to the gradient at the start."""
_STEPS = 100
_HALVINGS = 40
_DAMPING = 1e-13
"""Least curvature of a Newton system, relative to that of the rows: for rates so large that c is lost in rounding."""
_DIRECT = 3000
"""Up to this dimension the Hessian is formed and factorised."""
_CERTAIN = 1e-6
"""Largest gap at which a minimum counts as found, relative to the objective."""
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


class _Found(NamedTuple):
    """What was found for some runs."""

    v: Floats
    """Of shape (runs, classes, coordinates)."""
    loss: Floats
    """ℓ at v."""
    norm_sq: Floats
    """‖∇P‖² at v."""


class _Runs:
    """Runs on their way to their minima: arrays whose first axis are these runs, ``number`` among all."""

    def __init__(
        self, number: NDArray[np.intp], L: Floats, labels: NDArray[Any], weight: Floats, start: Floats, v: Floats
    ) -> None:
        self.number, self.L, self.labels, self.weight, self.v = number, L, labels, weight, v
        self.predictions = start + v @ L.transpose(0, 2, 1) if v.any() else start
        self.loss, self.slopes = self.evaluate(self.predictions)

    def evaluate(self, predictions: Floats, chosen: Any = slice(None)) -> tuple[Floats, Floats]:
        """Losses, and their slopes, at some predictions (runs, classes, rows)."""
        slopes = predictions[:, :, None].copy()
        return mean_loss(slopes, self.labels[chosen], slopes=True)[:, 0], slopes[:, :, 0]

    def gradient(self) -> tuple[Floats, Floats]:
        """∇P, and its squared norm."""
        gradient: Floats = self.slopes @ self.L
        gradient += _wide(self.weight) * self.v
        return gradient, _dot(gradient, gradient)

    def keep(self, chosen: NDArray[np.bool_]) -> None:
        """Keep the chosen runs, and leave out the others."""
        if not chosen.all():
            vars(self).update({name: values[chosen] for name, values in vars(self).items()})

    def chances(self) -> Floats:
        """Probabilities of the classes, (runs, classes, 1, rows)."""
        return probabilities(self.slopes[:, :, None], self.labels)

    def are_separated(self) -> NDArray[np.bool_]:
        """Whether every row's right class is clearly ahead of all others."""
        ahead = margins(self.predictions[:, :, None], self.labels)[:, 0].min(axis=-1)
        largest = np.abs(self.predictions).max(axis=(1, 2))
        separated: NDArray[np.bool_] = ahead > 1e-9 * np.maximum(largest, 1e-300)
        return separated

    def newton_step(self, gradient: Floats) -> Floats:
        """−H⁻¹∇P, where a singular H is made regular without changing the result."""
        _, classes, width = gradient.shape
        rows = self.L.shape[1]
        if classes * width > _DIRECT:
            step = self._iterative_step(gradient)
        elif rows < classes * width and classes > 1 and self.weight.all():
            step = self._woodbury_step(gradient)
        else:
            step = self._direct_step(gradient)
        if classes > 1:
            step -= step.mean(axis=1, keepdims=True)  # the loss does not change if all classes move alike
        return step

    def _woodbury_step(self, gradient: Floats) -> Floats:
        chances = self.chances()[:, :, 0]
        runs, _, rows = chances.shape
        narrow = self.L / np.sqrt(rows)
        V = narrow.transpose(0, 2, 1)[:, None] * chances[:, :, None]
        B = V @ narrow[:, None]
        damped = np.maximum(self.weight, _DAMPING * np.add.reduce(self.L * self.L, axis=(1, 2)) / rows)
        places = np.arange(B.shape[-1])
        B[:, :, places, places] += _wide(damped)
        inverse = np.linalg.inv(B)
        step = -(inverse @ gradient[..., None])
        X = (inverse @ V).reshape(runs, -1, rows)
        V = V.reshape(X.shape).transpose(0, 2, 1)
        small = np.eye(rows) - V @ X
        step += (X @ np.linalg.solve(small, V @ step.reshape(runs, -1, 1))).reshape(step.shape)
        return step[..., 0]

    def _direct_step(self, gradient: Floats) -> Floats:
        runs, classes, width = gradient.shape
        p, rows, size = self.chances()[:, :, 0], self.L.shape[1], classes * width
        hessian = np.empty((runs, classes, width, classes, width))
        for k in range(classes):
            for j in range(k + 1):
                factor = p[:, k] * (1.0 - p[:, j]) if j == k else -p[:, k] * p[:, j]
                block = self.L.transpose(0, 2, 1) @ (self.L * (factor / rows)[..., None])
                hessian[:, k, :, j], hessian[:, j, :, k] = block, block.transpose(0, 2, 1)
        matrix = hessian.reshape(runs, size, size)
        scale: Floats = np.trace(matrix, axis1=1, axis2=2) / size
        if classes > 1:  # moving all classes alike has no curvature but c, and the gradient has no such part
            places = np.arange(width)
            hessian[:, :, places, :, places] += (scale / classes)[:, None, None]
        places = np.arange(size)
        matrix[:, places, places] += np.maximum(self.weight, _DAMPING * scale + np.finfo(float).tiny)[:, None]
        solved = np.asarray(np.linalg.solve(matrix, -gradient.reshape(runs, size, 1)), np.float64)
        return solved.reshape(gradient.shape)

    def _iterative_step(self, gradient: Floats) -> Floats:
        from scipy.sparse.linalg import LinearOperator, cg

        chances, steps = self.chances(), np.empty_like(gradient)
        for run, (L, weight) in enumerate(zip(self.L, self.weight, strict=True)):

            def apply(flat: Floats, run: int = run, L: Floats = L, weight: float = weight) -> Floats:
                s = flat.reshape(gradient.shape[1:])
                return (curvature(chances[run], (s @ L.T)[:, None])[:, 0] @ L + weight * s).reshape(-1)

            operator = LinearOperator((gradient[run].size,) * 2, matvec=apply, dtype=np.float64)
            steps[run] = cg(operator, -gradient[run].reshape(-1), rtol=1e-8, maxiter=2000)[0].reshape(steps[run].shape)
        return steps

    def search(self, step: Floats, promised: Floats) -> Floats:
        """Move by the largest of 1, ½, ¼, … steps that lowers P enough (Armijo); 0 where rounding leaves no gain."""
        reach = step @ self.L.transpose(0, 2, 1)
        cross, square = _dot(self.v, step), _dot(step, step)
        value = self.loss + 0.5 * self.weight * _dot(self.v, self.v)
        slack = 8.0 * np.finfo(float).eps * np.abs(value)
        scale, predictions = np.ones(len(step)), self.predictions + reach
        loss, slopes = self.evaluate(predictions)
        for _ in range(_HALVINGS):
            change = loss - self.loss + self.weight * scale * (cross + 0.5 * scale * square)
            bad = np.flatnonzero(~(change <= slack - 1e-4 * scale * promised))
            if not len(bad):
                break
            scale[bad] *= 0.5
            predictions[bad] = self.predictions[bad] + _wide(scale[bad]) * reach[bad]
            loss[bad], slopes[bad] = self.evaluate(predictions[bad], bad)
        else:
            scale[bad], predictions[bad] = 0.0, self.predictions[bad]
            loss[bad], slopes[bad] = self.loss[bad], self.slopes[bad]
        self.v = self.v + _wide(scale) * step
        self.predictions, self.loss, self.slopes = predictions, loss, slopes
        return scale


def minimum(A: Floats, labels: NDArray[np.int64], start: Floats) -> Solution:
    """The minimum of the mean cross entropy over some rows, from ``start`` of shape (classes, features).

    The minimiser is the one closest to the start. Whether there is one shows in the Newton steps: where the infimum is
    attained they shrink to nothing, where classes drift apart for ever they go on to move some row's prediction by
    about 1.
    """
    U, values, V = np.linalg.svd(A, full_matrices=False)
    seen = values > values[0] * max(A.shape) * np.finfo(float).eps  # other directions are seen by no row
    predictions = start @ A.T
    if not seen.any():
        value = float(mean_loss(predictions[None, :, None].copy(), labels[None], slopes=False)[0, 0])
        return Solution(start, value, 0.0, attained=True, separable=False)
    L, back = U[:, seen] * np.sqrt(len(A)), V[seen] * (np.sqrt(len(A)) / values[seen, None])
    solution = _from(L, labels, predictions, np.zeros((len(start), L.shape[1])))
    if not solution.certain and not solution.separable:
        middle = (predictions.mean(axis=0) if len(start) > 1 else 0.0) - predictions
        other = _from(L, labels, predictions, middle @ L / len(A))
        solution = min(solution, other, key=lambda candidate: candidate.value)
    return solution._replace(point=start + solution.point @ back)


def _from(L: Floats, labels: NDArray[np.int64], predictions: Floats, v: Floats) -> Solution:
    """Newton's method without a penalty, with a certificate by the dual."""
    none = np.zeros(1)
    runs = _Runs(np.zeros(1, int), L[None], labels[None], none, predictions[None], v[None])
    with np.errstate(over="ignore", invalid="ignore"):
        found = _descend(runs, runs.gradient()[1], _Found(v[None].copy(), none.copy(), none.copy()))
        end = _Runs(np.zeros(1, int), L[None], labels[None], none, predictions[None], found.v)
        if end.are_separated()[0]:
            return Solution(found.v[0], 0.0, 0.0, attained=False, separable=True)
        change = end.newton_step(end.gradient()[0]) @ L.T
        value = float(found.loss[0])
        # After a Newton step the probabilities satisfy Σ a_i(p_i − y_i)ᵀ = 0: the infimum is the largest mean entropy
        # of those that do.
        chances = end.chances()
        p = (chances + len(labels) * curvature(chances, change[:, :, None]))[0, :, 0]
        p = np.clip(np.concatenate([p, 1.0 - p]) if len(p) == 1 else p, np.finfo(float).tiny, 1.0)
        gap = max(value + float(np.sum(p * np.log(p))) / len(labels), 0.0) + 1e-14 * value
    if not gap <= value:
        gap = value  # no loss is below 0
    return Solution(found.v[0], value, gap, attained=bool(np.abs(change).max() < _MOVES), separable=False)


def proximal_points(
    A: Floats, labels: NDArray[np.int64], points: Floats, lr: Floats, ridge: float, guess: Floats | None = None
) -> Proximal:
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
        guess: Where to begin, of the shape of the points.
    """
    *_, groups, width, classes, _ = points.shape
    center = points / (1.0 + lr * ridge)[..., None, None]
    Q, L = None, A
    if A.shape[1] < A.shape[2]:
        Q, R = np.linalg.qr(A.transpose(0, 2, 1))
        L = np.ascontiguousarray(R.transpose(0, 2, 1))
    start = _product(center, A.transpose(0, 2, 1)).reshape(-1, classes, A.shape[1])
    weight, count = (ridge + 1.0 / lr).reshape(-1), lr.size
    group = np.broadcast_to(np.arange(groups)[:, None], lr.shape).reshape(-1)
    first = np.arange(count) // width * width
    # A group is filled up with copies of its first run, whose result they share.
    copies = (weight == weight[first]) & (start == start[first]).all(axis=(1, 2)) & (first != np.arange(count))
    chosen = np.flatnonzero(~copies)

    def runs_of(number: NDArray[np.intp], v: Floats) -> _Runs:
        return _Runs(number, L[group[number]], labels[group[number]], weight[number], start[number], v)

    found = _Found(np.zeros((count, classes, L.shape[2])), np.zeros(count), np.zeros(count))
    runs = runs_of(chosen, found.v[chosen])
    gradient, before = runs.gradient()
    found.loss[chosen], found.norm_sq[chosen] = runs.loss, before
    moving = np.isfinite(before) & (before > 0)
    moved = chosen[moving]
    if guess is None:  # NGN's step is a good first guess: for one row of least squares it is the proximal point
        sizes = _first_sizes(runs.loss[moving], before[moving], 1.0 / weight[moved])
        begin = -_wide(sizes) * gradient[moving]
    else:
        begin = guess - center if Q is None else _product(guess - center, Q)
        begin = begin.reshape(found.v.shape)[moved]
    _descend(runs_of(moved, begin), before[moving], found)

    value = found.loss + 0.5 * weight * _dot(found.v, found.v)
    lost = moved[~(0.5 * found.norm_sq[moved] <= _CERTAIN * weight[moved] * value[moved])]
    if len(lost):
        # With large features each probability is 0 or 1 at x̄, and no curvature is left. It is largest where all
        # classes are equally likely.
        middle = (center.mean(axis=-2, keepdims=True) if classes > 1 else 0.0) - center
        middle = middle if Q is None else _product(middle, Q)
        again = runs_of(lost, middle.reshape(found.v.shape)[lost])
        again.keep(again.loss + 0.5 * again.weight * _dot(again.v, again.v) < value[lost])
        of_run = np.zeros(count)
        of_run[moved] = before[moving]
        _descend(again, of_run[again.number], found)
    for values in found:
        values[copies] = values[first[copies]]
    back = found.v.reshape(*points.shape[:-1], -1)
    new = center + (back if Q is None else _product(back, Q.transpose(0, 2, 1)))
    total = found.loss.reshape(lr.shape) + 0.5 * ridge * np.vecdot(new, new).sum(axis=-1)
    return Proximal(new, total, (0.5 * found.norm_sq / weight).reshape(lr.shape))


def _descend(runs: _Runs, before: Floats, found: _Found) -> _Found:
    """Newton's method; writes what it finds to ``found``. ``before`` are the first squared gradients."""
    is_free = not runs.weight.any()
    for _ in range(_STEPS):
        if not len(runs.v):
            break
        gradient, norm_sq = runs.gradient()
        found.v[runs.number], found.loss[runs.number], found.norm_sq[runs.number] = runs.v, runs.loss, norm_sq
        far = (norm_sq > _TOLERANCE**2 * before) & np.isfinite(norm_sq)
        if is_free:
            far &= ~runs.are_separated()
        runs.keep(far)
        if not len(runs.v):
            break
        gradient, before = gradient[far], before[far]
        step = runs.newton_step(gradient)
        moved = runs.search(step, -_dot(gradient, step)) > 0
        runs.keep(moved)
        before = before[moved]
    return found


def _first_sizes(loss: Floats, grad_sq: Floats, lr: Floats) -> Floats:
    """NGN's step sizes, number by number: for an array the last bit may depend on whether another is special."""
    runs = zip(loss.tolist(), grad_sq.tolist(), lr.tolist(), strict=True)
    return np.array([SquareRoot().step(*run).size for run in runs])


def _product(vectors: Floats, matrix: Floats) -> Floats:
    """Vectors (…, groups, runs, classes, m) times a matrix (groups, m, k), as one product per group."""
    *outer, runs, classes, last = vectors.shape
    products: Floats = np.matmul(vectors.reshape(*outer, runs * classes, last), matrix)
    return products.reshape(*outer, runs, classes, -1)


def _dot(left: Floats, right: Floats) -> Floats:
    """The inner products of some runs."""
    products: Floats = np.vecdot(left.reshape(len(left), -1), right.reshape(len(right), -1))
    return products


def _wide(values: Floats) -> Floats:
    return values[:, None, None]
