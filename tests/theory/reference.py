"""Exact steps and indices, straight from the definitions, in 40-digit arithmetic."""

from __future__ import annotations

import mpmath as mp

mp.mp.dps = 40


def step(
    kind: str, loss: float, grad_sq: float, lr: float, bound: float = 0.0, p: float = 0.0
) -> tuple[mp.mpf, mp.mpf]:
    """(size, delta) of a model for positive F, with no regard for floating-point limits."""
    height = mp.mpf(loss)
    q = mp.mpf(lr) * mp.mpf(grad_sq)
    if kind == "linear":
        return mp.mpf(lr), q / 2
    if q == 0:
        return mp.mpf(lr), mp.mpf(0)
    z = q / height
    t = {"truncated": truncated, "root": root, "exponential": exponential}.get(kind, lambda z: power(mp.mpf(p), z))(z)
    fallen = {  # 1 − (model − C)/F at the new point, written so that small z keep their digits
        "truncated": lambda d: min(d, mp.mpf(1)),
        "root": lambda d: d - d * d / 4,
        "exponential": lambda d: -mp.expm1(-d),
    }.get(kind, lambda d: -mp.expm1(mp.log1p(-mp.mpf(p) * d) / mp.mpf(p)))
    return t * mp.mpf(lr), height * (fallen(z * t) - z * t * t / 2)


def truncated(z: mp.mpf) -> mp.mpf:
    return min(mp.mpf(1), 1 / z)


def root(z: mp.mpf) -> mp.mpf:
    return 1 / (1 + z / 2)


def exponential(z: mp.mpf) -> mp.mpf:
    return mp.lambertw(z).real / z


def power(p: mp.mpf, z: mp.mpf) -> mp.mpf:
    """Root of t = (1 − p z t)^(1/p − 1), by bisection in log t on the logarithm of both sides."""
    if p == 1:
        return truncated(z)
    low, high = -mp.log1p(z) - 10, mp.mpf(0)
    if p > 0:
        high = min(high, -mp.log(p * z))
    for _ in range(150):
        middle = (low + high) / 2
        base = 1 - p * z * mp.exp(middle)
        if base > 0 and middle < (1 / p - 1) * mp.log(base):
            low = middle
        else:
            high = middle
    return mp.exp((low + high) / 2)


def base_inequality_slack(lr, delta, loss, loss_at_u, distance_sq, next_distance_sq):
    """α[δ − (f(x, s) − f(u, s))] − ½(‖x⁺ − u‖² − ‖x − u‖²): ≥ 0 where eq. ``single-step-base-ineq`` holds."""
    return lr * (delta - (loss - loss_at_u)) - 0.5 * (next_distance_sq - distance_sq)
