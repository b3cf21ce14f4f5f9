"""Checks of a model of the loss."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from surefoot.theory.models import Model

_GAPS = (1e-6, 0.3, 1.0, 40.0)
_GRAD_SQS = (1e-8, 0.1, 1.0, 30.0, 1e6)
_LRS = (1e-6, 0.1, 1.0, 10.0, 1e4)


def check_model(model: Model) -> None:
    """Check that a model behaves as :mod:`surefoot.theory.models` promises; raise ``AssertionError`` if it does not.

    At a grid of losses, gradients and rates: the step lies in [0, α], and is the minimiser of the model plus
    ‖y − x‖²/(2α) along the gradient; δ is the drop of that problem, at most ½α‖g‖² and not negative; t and δ/F depend
    on α‖g‖²/F alone; Python floats, NumPy and torch agree; and the edges (zero gradient, zero rate, loss at the lower
    bound, NaN) are as documented.

    >>> from surefoot.theory.models import Power
    >>> check_model(Power(0.7))
    """
    name = repr(model)
    bounded = math.isfinite(float(model.lower_bound))
    bound = float(model.lower_bound) if bounded else 0.0
    points = [(bound + f, g, a) for f in _GAPS for g in _GRAD_SQS for a in _LRS]
    for loss, grad_sq, lr in points:
        _check_point(model, name, loss, grad_sq, lr, bound, bounded)
    _check_backends(model, name, points)
    _check_edges(model, name, bound, bounded)


def require(condition: Any, message: str) -> None:
    """Raise ``AssertionError`` with the message if the condition does not hold."""
    if not condition:
        raise AssertionError(message)


def _check_point(model: Model, name: str, loss: float, grad_sq: float, lr: float, bound: float, bounded: bool) -> None:
    where = f"{name} at loss={loss!r}, grad_sq={grad_sq!r}, lr={lr!r}"
    size, delta = model.step(loss, grad_sq, lr)
    half = 0.5 * lr * grad_sq
    require(0.0 <= size <= lr, f"{where}: size {size!r} is not in [0, lr]")
    require(0.0 <= delta <= half * (1 + 1e-9), f"{where}: delta {delta!r} is not in [0, ½α‖g‖² = {half!r}]")

    def objective(candidate: float) -> float:
        return float(model.value(loss, grad_sq, candidate)) + 0.5 * candidate**2 * grad_sq / lr

    best = objective(size)
    slack = 1e-9 * (abs(loss) + abs(best) + half)
    for candidate in (0.0, 0.5 * size, 0.9 * size, 0.99 * size, 1.01 * size, 1.1 * size, 0.5 * (size + lr), lr):
        require(
            best <= objective(candidate) + slack,
            f"{where}: size {size!r} does not minimise model + ‖y − x‖²/(2α): {candidate!r} is better",
        )
    require(
        abs(loss - best - delta) <= slack + 1e-6 * delta,
        f"{where}: delta {delta!r} is not f(x) − model(x⁺) − ‖x⁺ − x‖²/(2α) = {loss - best!r}",
    )
    if bounded:
        scaled = model.step(bound + 2.0 * (loss - bound), 4.0 * grad_sq, 0.5 * lr)  # the same α‖g‖²/F
        same_size = math.isclose(scaled.size, 0.5 * size, rel_tol=1e-6)
        same_delta = math.isclose(scaled.delta, 2.0 * delta, rel_tol=1e-6)
        require(same_size and same_delta, f"{where}: t and δ/F should depend on α‖g‖²/F alone")


def _check_backends(model: Model, name: str, points: list[tuple[float, float, float]]) -> None:
    floats = np.array([model.step(*point) for point in points])
    columns = [np.array(column) for column in zip(*points, strict=True)]
    for kind, step in (
        ("NumPy arrays", model.step(*columns)),
        ("torch tensors", model.step(*(torch.from_numpy(column) for column in columns))),
    ):
        for part, got, expected in (("size", step.size, floats[:, 0]), ("delta", step.delta, floats[:, 1])):
            worst = np.max(np.abs(np.asarray(got) - expected) / (np.abs(expected) + 1e-300))
            require(worst <= 1e-6, f"{name}: {part} of {kind} differs from that of floats by {worst:.1e}")


def _check_edges(model: Model, name: str, bound: float, bounded: bool) -> None:
    require(tuple(model.step(bound + 1.0, 1.0, 0.0)) == (0.0, 0.0), f"{name}: a zero rate should give size 0, delta 0")
    still = model.step(bound + 1.0, 0.0, 0.5)
    require(tuple(still) == (0.5, 0.0), f"{name}: a zero gradient should give size α = 0.5, delta 0, not {still}")
    bad = model.step(math.nan, 1.0, 1.0)
    require(bad.size == 0.0 and bad.delta == math.inf, f"{name}: a NaN loss should give size 0, delta ∞, not {bad}")
    if bounded:
        low = model.step(bound, 1.0, 1.0)
        require(tuple(low) == (0.0, 0.0), f"{name}: a loss at the lower bound should give size 0, delta 0, not {low}")
