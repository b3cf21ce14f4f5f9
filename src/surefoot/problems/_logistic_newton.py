"""The minimum of the cross entropy over a set of rows: Newton's method, with a certificate of what it found."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from surefoot.problems._cross_entropy import curvature, mean_loss, probabilities, targets_of
from surefoot.problems._problem import Floats

_STEPS = 200
_HALVINGS = 40
_DIRECT = 3000
"""Up to this dimension the Hessian is formed and factorised."""
_CERTAIN = 1e-6
"""Largest gap of an infimum that counts as known, relative to the value."""


class Solution(NamedTuple):
    """The minimum as far as Newton's method found it, with a certificate."""

    point: Floats
    """Where the method ended, of shape (blocks, features)."""
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


class _Objective:
    """ℓ(B w + offset) + ridge/2 ‖w‖² + weight/2 ‖w − center‖² over w of shape (blocks, coordinates)."""

    def __init__(
        self, B: Floats, labels: NDArray[np.int64], offset: Floats, ridge: float, weight: float, center: Floats
    ) -> None:
        self.B, self.offset = B, offset
        self.blocks = len(offset)
        self.ridge, self.weight, self.center = ridge, weight, center
        self.strong = ridge + weight  # the objective is strongly convex with this modulus
        self.targets = targets_of(labels[None], 1, self.blocks, 1)

    def predictions(self, w: Floats) -> Floats:
        """The predictions at w, of shape (blocks, rows)."""
        return w @ self.B.T + self.offset

    def value(self, w: Floats, predictions: Floats) -> float:
        loss = float(mean_loss(predictions[None, :, None].copy(), self.targets, slopes=False)[0, 0])
        return (
            loss + 0.5 * self.ridge * float(np.sum(w * w)) + 0.5 * self.weight * float(np.sum((w - self.center) ** 2))
        )

    def derivatives(self, w: Floats, predictions: Floats) -> tuple[Floats, Floats]:
        """The gradient, and the classes' probabilities (1, blocks, 1, rows)."""
        slopes = predictions[None, :, None].copy()
        mean_loss(slopes, self.targets, slopes=True)
        gradient = slopes[0, :, 0] @ self.B + self.ridge * w + self.weight * (w - self.center)
        return gradient, probabilities(slopes, self.targets)

    def direction(self, chances: Floats, gradient: Floats) -> Floats:
        """The Newton direction −H⁻¹∇, where a singular H is made regular without changing the result."""
        size = gradient.size
        if size > _DIRECT:
            return self._iterative_direction(chances, gradient)
        columns, rows = gradient.shape[1], self.B.shape[0]
        p = chances[0, :, 0]
        hessian = np.empty((self.blocks, columns, self.blocks, columns))
        for k in range(self.blocks):
            for j in range(k + 1):
                factor = p[k] * (1.0 - p[j]) if j == k else -p[k] * p[j]
                hessian[k, :, j, :] = self.B.T @ (self.B * (factor / rows)[:, None])
                hessian[j, :, k, :] = hessian[k, :, j, :].T
        matrix = hessian.reshape(size, size)
        scale = float(np.trace(matrix)) / size
        if self.blocks > 1 and not self.strong:
            # The loss does not change if all classes move alike. The gradient has no such part, so this is free.
            index = np.arange(columns)
            hessian[:, index, :, index] += scale / self.blocks
        matrix[np.diag_indices(size)] += self.strong + 1e-14 * scale + np.finfo(float).tiny
        return np.asarray(np.linalg.solve(matrix, -gradient.reshape(size)), np.float64).reshape(gradient.shape)

    def _iterative_direction(self, chances: Floats, gradient: Floats) -> Floats:
        from scipy.sparse.linalg import LinearOperator, cg

        def apply(flat: Floats) -> Floats:
            s = flat.reshape(gradient.shape)
            bent = curvature(chances, (s @ self.B.T)[None, :, None])[0, :, 0] @ self.B
            return (bent + self.strong * s).reshape(-1)

        operator = LinearOperator((gradient.size, gradient.size), matvec=apply, dtype=np.float64)
        direction, _ = cg(operator, -gradient.reshape(-1), rtol=1e-8, maxiter=2000)
        return np.asarray(direction).reshape(gradient.shape)

    def are_separated(self, predictions: Floats) -> bool:
        """Whether every row's right class is clearly ahead of all others."""
        flat = predictions.reshape(-1)
        if self.blocks == 1:
            margins = flat * self.targets.reshape(-1)
        else:
            right = flat.take(self.targets[0, 0])
            others = predictions.copy()
            others.reshape(-1)[self.targets[0, 0]] = -np.inf
            margins = right - others.max(axis=0)
        return bool(margins.min() > 1e-9 * max(float(np.abs(flat).max()), 1e-300))


def minimize(
    A: Floats,
    labels: NDArray[np.int64],
    start: Floats,
    *,
    ridge: float = 0.0,
    center: Floats | None = None,
    weight: float = 0.0,
) -> Solution:
    """Minimise mean cross entropy + ridge/2 ‖x‖² + weight/2 ‖x − center‖², from ``start`` of shape (blocks, features).

    Without a penalty the result is the minimiser closest to the start. Whether there is one shows in the Newton steps:
    where the infimum is attained they shrink to nothing, where classes drift apart for ever they go on to move some
    row's prediction by about 1.
    """
    if ridge + weight:
        offset = np.zeros((len(start), len(A)))
        return _newton(_Objective(A, labels, offset, ridge, weight, start if center is None else center), start)
    # Directions that no row sees are left out: w are coordinates in the span of the rows.
    _, values, basis = np.linalg.svd(A, full_matrices=False)
    basis = basis[values > values[0] * max(A.shape) * np.finfo(float).eps]
    zero = np.zeros((len(start), len(basis)))
    objective = _Objective(A @ basis.T, labels, start @ A.T, 0.0, 0.0, zero)
    if not len(basis):
        return Solution(start, objective.value(zero, objective.predictions(zero)), 0.0, attained=True, separable=False)
    with np.errstate(over="ignore", invalid="ignore"):
        solution = _newton(objective, zero)
        if not solution.certain:
            # With large features each probability is 0 or 1 at the start, and no curvature is left. It is largest where
            # all classes are equally likely.
            middle = (start.mean(axis=0) if len(start) > 1 else 0.0) - start
            solution = min(solution, _newton(objective, middle @ basis.T), key=lambda candidate: candidate.value)
    return solution._replace(point=start + solution.point @ basis)


def _newton(objective: _Objective, w: Floats) -> Solution:
    predictions = objective.predictions(w)
    value = objective.value(w, predictions)
    for _ in range(_STEPS):
        if not objective.strong and objective.are_separated(predictions):
            return Solution(w, 0.0, 0.0, attained=False, separable=True)
        gradient, chances = objective.derivatives(w, predictions)
        step = objective.direction(chances, gradient)
        promised = -float(np.sum(gradient * step))
        largest = float(np.abs(step @ objective.B.T).max())
        scale, is_lower = 1.0, False
        for _ in range(_HALVINGS):
            new = w + scale * step
            new_predictions = objective.predictions(new)
            new_value = objective.value(new, new_predictions)
            is_lower = new_value <= value - 1e-4 * scale * promised
            if is_lower:
                break
            scale *= 0.5
        if not is_lower or promised <= 1e-14 * value:
            break  # what is left to gain is rounding, and one more full step makes the most of it
        w, predictions, value = new, new_predictions, new_value
    if largest < 0.1:
        w = w + step
        predictions = objective.predictions(w)
        value = objective.value(w, predictions)
    gradient, chances = objective.derivatives(w, predictions)
    if objective.strong:
        gap = 0.5 * float(np.sum(gradient**2)) / objective.strong
        return Solution(w, value, gap, attained=True, separable=False)
    step = objective.direction(chances, gradient)
    gap = max(value - _dual_value(chances, (step @ objective.B.T)[None, :, None]), 0.0) + 1e-14 * value
    if not gap <= value:
        gap = value  # no loss is below 0
    return Solution(w, value, gap, attained=largest < 0.1, separable=False)


def _dual_value(chances: Floats, change: Floats) -> float:
    """The mean entropy of the probabilities after a Newton step of the predictions.

    After the step they satisfy Σ a_i(p_i − y_i)ᵀ = 0, so that their mean entropy is below the loss at every point.
    """
    p = chances + chances.shape[-1] * curvature(chances, change)
    if p.shape[1] == 1:
        p = np.concatenate([p, 1.0 - p], axis=1)
    p = np.clip(p, np.finfo(float).tiny, 1.0)
    return float(-np.sum(p * np.log(p)) / p.shape[-1])
