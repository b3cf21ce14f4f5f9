"""Estimates of σ² and ε_lb, which decide how large E[δ] can become (Sec. 4.2 of the paper)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from surefoot._base.arguments import number, whole
from surefoot.problems._problem import Problem
from surefoot.theory.bounds import interpolation_constant, lower_bound_error


@dataclass(frozen=True)
class Constants:
    """Monte Carlo estimates over batches of one size, with their standard errors."""

    interpolation_constant: float
    """σ² = f⋆ − E_s[inf_z f(z, s)]."""
    lower_bound_error: float
    """ε_lb = E_s[inf_z f(z, s) − C]."""
    standard_error: float
    """Standard error of both: they differ from the mean of the batches' infima by constants."""
    batches: int


def constants(
    problem: Problem, batch_size: int, *, lower_bound: float = 0.0, batches: int = 200, seed: int = 0
) -> Constants:
    """σ² and ε_lb of a problem for one batch size, over random batches.

    With all rows in one batch the batch is the problem, and one batch is enough.

    >>> from surefoot.problems import LinearRegression
    >>> estimate = constants(LinearRegression(noise=1.0), batch_size=5)
    >>> estimate.lower_bound_error                    # five rows are fitted exactly in ten dimensions
    0.0
    >>> 0.2 < estimate.interpolation_constant < 0.5   # … but not all fifty
    True
    """
    if whole("batch_size", batch_size, 1) > problem.n_rows:
        raise ValueError(f"batch_size must lie in 1 … {problem.n_rows}, got {batch_size!r}")
    whole("batches", batches, 1)
    number("lower_bound", lower_bound)
    whole("seed", seed, 0)
    optimal = problem.optimum().value
    if optimal is None:
        raise ValueError(f"σ² needs the infimum of the full loss, which is not known for {problem.name!r}")
    random = np.random.default_rng(seed)
    count = 1 if batch_size == problem.n_rows else batches
    rows = [random.choice(problem.n_rows, batch_size, replace=False) for _ in range(count)]
    low, high = np.array([problem.infimum(batch) for batch in rows]).T
    infima = 0.5 * (low + high)
    # Rounding of an optimum that is zero must not look like a lower bound above the infimum.
    infima = np.maximum(np.where(high - low > 1e-9 * (1 + abs(high)), infima, low), min(lower_bound, infima.min()))
    error = float(infima.std(ddof=1) / math.sqrt(count)) if count > 1 else 0.0
    sigma_sq, error_lb = interpolation_constant(optimal, infima), lower_bound_error(infima, lower_bound)
    return Constants(sigma_sq, error_lb, error, count)
