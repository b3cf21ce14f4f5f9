"""Minimisers of a proximal problem P(w) = f(x + √α·w) + ½‖w‖², which see it by values and gradients alone.

In these coordinates P is 1-strongly convex if f is convex, whatever the rates: so P(w) − P⋆ ≤ ½‖∇P(w)‖².
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

_ARMIJO = 1e-4
_TRIALS = 25
"""Trial steps of a line search."""
_CURVATURE = 1e-10
"""Pairs of L-BFGS with less curvature than this are dropped: they are rounding, or a function that bends down."""


@dataclass(frozen=True)
class Evaluation:
    """The proximal problem P at one point."""

    w: Tensor
    value: float
    gradient: Tensor

    @property
    def residual(self) -> float:
        """½‖∇P‖², ∞ if P is not finite here."""
        half = 0.5 * float(torch.dot(self.gradient, self.gradient))
        return half if math.isfinite(half) and math.isfinite(self.value) else math.inf


Evaluate = Callable[[Tensor], Evaluation]
Done = Callable[[Evaluation], bool]


def lbfgs(evaluate: Evaluate, start: Evaluation, done: Done, history: int) -> Evaluation:
    """L-BFGS that remembers ``history`` pairs; most of the time its line search needs one trial."""
    point = start
    pairs: deque[tuple[Tensor, Tensor, float]] = deque(maxlen=history)
    while not done(point):
        new = line_search(evaluate, point, -_inverse_hessian(pairs, point.gradient), done)
        if new is not None:
            step, change = new.w - point.w, new.gradient - point.gradient
            curvature = float(torch.dot(step, change))
            if curvature > _CURVATURE * float(step.norm() * change.norm()):
                pairs.append((step, change, curvature))
            point = new
        elif pairs:
            pairs.clear()
        else:
            break
    return point


def _inverse_hessian(pairs: deque[tuple[Tensor, Tensor, float]], gradient: Tensor) -> Tensor:
    """The two-loop recursion; without pairs the metric of the proximal term, whose Hessian is I."""
    vector = gradient.clone()
    weights = []
    for step, change, curvature in reversed(pairs):
        weight = torch.dot(step, vector) / curvature
        vector.sub_(weight * change)
        weights.append(weight)
    if pairs:
        _, change, curvature = pairs[-1]
        vector.mul_(curvature / torch.dot(change, change))
    for (step, change, curvature), weight in zip(pairs, reversed(weights), strict=True):
        vector.add_((weight - torch.dot(change, vector) / curvature) * step)
    return vector


def newton_cg(evaluate: Evaluate, start: Evaluation, done: Done, spacing: float) -> Evaluation:
    """Newton's method, its systems solved by conjugate gradients.

    Hessian products are differences of gradients at points that are ``spacing`` apart.
    """
    point = start
    while not done(point):
        new = line_search(evaluate, point, _newton_direction(evaluate, point, done, spacing), done)
        if new is None:
            break
        point = new
    return point


def _newton_direction(evaluate: Evaluate, point: Evaluation, done: Done, spacing: float) -> Tensor:
    """An approximate solution of ∇²P·d = −∇P; steepest descent at the least, should P bend down."""
    residual = -point.gradient
    norm = float(residual.norm())
    accuracy = min(0.1, math.sqrt(norm)) * norm
    direction, search = torch.zeros_like(residual), residual
    square = float(torch.dot(residual, residual))
    for _ in range(residual.numel()):
        length = spacing / float(search.norm())
        ahead = evaluate(point.w + length * search)
        product = (ahead.gradient - point.gradient) / length
        curvature = float(torch.dot(search, product))
        if not curvature > 0.0:  # P bends down, or is not finite there
            break
        direction = direction + (square / curvature) * search
        residual = residual - (square / curvature) * product
        previous, square = square, float(torch.dot(residual, residual))
        if math.sqrt(square) <= accuracy or done(point):
            break
        search = residual + (square / previous) * search
    return direction if float(torch.dot(direction, point.gradient)) < 0.0 else -point.gradient


def line_search(evaluate: Evaluate, point: Evaluation, direction: Tensor, done: Done) -> Evaluation | None:
    """A point of sufficient decrease along a direction of descent, at its length or less; None if none is found.

    Where differences of values are rounding, the approximate condition of Hager and Zhang (2005) decides by slopes.
    """
    slope = float(torch.dot(direction, point.gradient))
    noise = 4.0 * torch.finfo(direction.dtype).eps * abs(point.value)
    length = 1.0
    for _ in range(_TRIALS):
        trial = evaluate(point.w + length * direction)
        finite = math.isfinite(trial.residual)
        new_slope = float(torch.dot(direction, trial.gradient)) if finite else math.inf
        if finite and trial.value <= point.value + _ARMIJO * length * slope:
            return trial
        if finite and trial.value <= point.value + noise and new_slope <= (2.0 * _ARMIJO - 1.0) * slope:
            return trial if trial.residual < point.residual else None
        if done(point):
            return None
        # The secant of the slopes is exact for a quadratic.
        bent = new_slope > slope and math.isfinite(new_slope)
        length *= min(max(slope / (slope - new_slope), 1e-4), 0.5) if bent else 0.1
    return None
