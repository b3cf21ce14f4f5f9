"""Models ψ(φ(F) + φ′(F)⟨g, y − x⟩) + C for any pair of maps (App. D of the paper)."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from surefoot.theory.arrays import FLOATS, NUMPY, Array, Namespace
from surefoot.theory.models._base import Model, Point

Map = Callable[[Any], Any]

_GRID = np.geomspace(1e-3, 1e3, 121)
_ITERATIONS = 48
# Five Gauss–Legendre nodes on [-1, 1]: exact for polynomials of degree nine.
_NODES, _WEIGHTS = (values.tolist() for values in np.polynomial.legendre.leggauss(5))


@dataclass(frozen=True)
class Composite(Model):
    """Any pair of maps with (B1) ψ(φ(x)) = x, (B2) ψ convex and differentiable, (B3) φ differentiable with φ′ ≠ 0.

    With u = φ′(F) and q = α‖g‖², the scale t of the step is the root of t = u ψ′(φ(F) − q u t) in (0, 1], and

        size = t·α,    δ = F − ½ q t² − ψ(φ(F) − q u t) ≤ ½ q                    (eq. ``psi-phi-delta``)

    The maps take Python floats or arrays, of those libraries that you want to use the model with; functions of
    ``math`` serve NumPy arrays as well. The assumptions are checked once, on a grid from 1e-3 to 1e3. Where a map
    itself overflows, the step is not defined: size 0, delta ∞.

    >>> import math
    >>> model = Composite(math.log, lambda x: 1 / x, math.exp, math.exp)      # the Lambert-W step
    >>> round(model.step(1.0, 1.0, 1.0).size, 9)
    0.56714329
    """

    phi: Map
    dphi: Map
    psi: Map
    dpsi: Map
    lower_bound: Array = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("phi", "dphi", "psi", "dpsi"):
            if not callable(getattr(self, name)):
                raise TypeError(f"{name} must be a function of one argument, got {getattr(self, name)!r}")
        _check_assumptions(self.phi, self.dphi, self.psi, self.dpsi)

    def solve(self, xp: Namespace, point: Point) -> tuple[Array, Array]:
        height, grad_sq, lr, half, z, _ = point
        z = xp.where(z > xp.limits(z).max, xp.limits(z).max, z)
        level, slope = _apply(xp, self.phi, height), _apply(xp, self.dphi, height)
        defined = xp.isfinite(level) & xp.isfinite(height * slope)
        level, slope = xp.where(defined, level, 0.0), xp.where(defined, slope, 1.0)
        reach = xp.where(defined, height, 1.0) * slope  # φ moves by reach·(relative drop of the linear model)

        def pull(drop: Array) -> Array:
            """u·ψ′ where the linear model has fallen by drop·F: what the scale t has to equal there."""
            return slope * _apply(xp, self.dpsi, level - reach * drop)

        drop = _solve_drop(xp, pull, z)
        t = xp.where(z > 0, drop, 1.0) / xp.where(z > 0, z, 1.0)
        # F − ψ(…) cancels for small z; there it is the integral of ψ′, taken by quadrature.
        twice_mean = sum(w * pull(0.5 * (1.0 + x) * drop) for x, w in zip(_NODES, _WEIGHTS, strict=True))
        small = z < 0.1
        after = _apply(xp, self.psi, xp.where(small, level, level - reach * drop))
        delta = xp.where(small, half * t * (twice_mean - t), height * (1.0 - 0.5 * drop * t) - after)
        big = z > 1.0
        size = xp.where(big, (height / xp.where(big, grad_sq, 1.0)) * drop, lr * t)
        defined = defined & xp.isfinite(size) & xp.isfinite(delta)
        delta = xp.where(defined, xp.where(delta > 0, delta, 0.0), math.inf)
        return xp.where(defined, xp.minimum(size, lr), 0.0), delta

    def _value(self, xp: Namespace, height: Array, decrease: Array, loss: Array, bound: Array) -> Array:
        argument = _apply(xp, self.phi, height) - _apply(xp, self.dphi, height) * decrease
        return bound + _apply(xp, self.psi, argument)

    def relative_value(self, xp: Namespace, drop: Array) -> Array:
        return self._value(xp, 0.0 * drop + 1.0, drop, drop, 0.0)


def _solve_drop(xp: Namespace, pull: Map, z: Array) -> Array:
    """The root d in (0, z] of pull(d) = d/z, where pull(0) = 1 and pull falls: the drop z·t of the linear model.

    Newton inside a bracket, in turn on pull(d) − d/z (straight where ψ is a parabola) and on its logarithmic form
    (straight where ψ has an exponential tail); a step that leaves the bracket is replaced by a bisection.
    """
    limits = xp.limits(z)
    fixed = xp.where(z > 0, xp.detach(z), 1.0)
    low, high = 0.0 * fixed, fixed
    d = fixed / (1.0 + fixed)
    done = d < 0  # nowhere yet; an element that is done stays, so that its bits do not depend on its neighbours
    for turn in range(_ITERATIONS):
        value, slope = _pull_and_slope(xp, pull, d)
        residual = value - d / fixed
        low, high = xp.where(residual > 0, d, low), xp.where(residual > 0, high, d)
        if turn % 2:
            usable = value > 0
            safe = xp.where(usable, value, 1.0)
            change = xp.log(safe / (d / fixed)) / (slope / safe - 1.0 / d)
        else:
            usable = slope <= 0
            change = residual / (xp.where(usable, slope, 0.0) - 1.0 / fixed)
        wide = (low > 0) & (high > 4.0 * low)
        root = xp.exp(0.5 * (xp.log(xp.where(wide, low, 1.0)) + xp.log(xp.where(wide, high, 1.0))))
        middle = xp.where(low > 0, xp.where(wide, root, 0.5 * low + 0.5 * high), 0.01 * high)
        guess = d - xp.where(usable & xp.isfinite(change), change, 2.0 * fixed)
        guess = xp.where((guess > low) & (guess < high), guess, middle)
        close = (abs(guess - d) <= 4.0 * limits.eps * d) | (high - low <= 2.0 * limits.eps * high)
        d = xp.where(done, d, guess)
        done = done | close
        if xp.concrete and xp.all(done):
            break
    d = xp.detach(d)
    slope = _pull_and_slope(xp, pull, d)[1]
    # By the implicit function theorem this last correction carries the gradient.
    last = (pull(d) - d / xp.where(z > 0, z, 1.0)) / (xp.detach(slope) - 1.0 / fixed)
    return xp.where(z > 0, d - xp.where(xp.isfinite(last), last, 0.0), z)


def _pull_and_slope(xp: Namespace, pull: Map, d: Array) -> tuple[Array, Array]:
    """A falling function and its derivative, by differentiation or by a central difference."""
    value = pull(d)
    if xp.derivative is not None:
        return xp.detach(value), xp.detach(xp.derivative(pull, d))
    width = d * xp.limits(d).eps ** (1 / 3)
    return value, (pull(d + width) - pull(d - width)) / (2.0 * width)


def _apply(xp: Namespace, function: Map, x: Array) -> Array:
    """A map of the user's on one number or array; functions of ``math`` are applied element by element."""
    if xp is FLOATS:
        try:
            return float(function(x))
        except OverflowError:
            return math.inf
    if xp is not NUMPY:
        value = function(x)
        if isinstance(value, float):
            raise TypeError(f"the map {function!r} turns a {xp.name} array into a float; give one made for {xp.name}")
        return value
    try:
        return np.asarray(function(x), x.dtype)
    except (TypeError, ValueError):  # also of an array where Python wants one truth value, as max and if do
        return np.vectorize(function, otypes=[x.dtype])(x)


def _check_assumptions(phi: Map, dphi: Map, psi: Map, dpsi: Map) -> None:
    """Raise ``ValueError`` naming the assumption of App. D that fails on the grid."""
    with np.errstate(all="ignore"):
        level, slope = _on_grid(phi, _GRID), _on_grid(dphi, _GRID)
        back, pull = _on_grid(psi, level), _on_grid(dpsi, level)

        def refuse(assumption: str, bad: Any) -> None:
            if bad.any():
                raise ValueError(f"{assumption} fails near x = {_GRID[bad.argmax()]:.3g}")

        refuse("(B1) psi(phi(x)) = x", ~(abs(back - _GRID) <= 1e-6 * _GRID))
        refuse("(B3) dphi(x) finite and not 0", ~(np.isfinite(slope) & (slope != 0)))
        refuse("(B3) dphi = derivative of phi", ~_is_derivative(level, slope, _GRID))
        refuse("(B2) dpsi = derivative of psi", ~_is_derivative(back, pull, level))
        order = np.argsort(level)
        refuse("(B2) psi convex", ~(np.diff(pull[order]) >= -1e-6 * abs(pull[order][1:])))


def _is_derivative(values: Any, slopes: Any, points: Any) -> Any:
    """Whether the chord between the neighbours of each inner point agrees with the slope there."""
    chords = np.diff(values) / np.diff(points)
    low, high = np.minimum(slopes[:-1], slopes[1:]), np.maximum(slopes[:-1], slopes[1:])
    slack = 1e-3 * np.maximum(abs(low), abs(high))
    return (chords >= low - slack) & (chords <= high + slack)


def _on_grid(function: Map, points: Any) -> Any:
    """A map's values on a NumPy grid, whatever kind of numbers it takes."""
    attempts: list[Callable[[], Any]] = [
        lambda: np.asarray(function(points), float),
        lambda: np.array([float(function(float(point))) for point in points]),
    ]
    if "torch" in sys.modules:
        attempts.append(lambda: function(sys.modules["torch"].from_numpy(points)).numpy())
    failure: Exception | None = None
    for attempt in attempts:
        try:
            values = attempt()
        except (TypeError, ValueError, AttributeError, OverflowError, ZeroDivisionError) as error:
            failure = error
        else:
            if values.shape == points.shape:
                return values
    raise TypeError(f"the map {function!r} cannot be evaluated on numbers from 1e-3 to 1e3: {failure}")
