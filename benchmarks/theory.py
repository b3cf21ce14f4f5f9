"""Speed of surefoot.theory against peers and limits: ratios measured in one run, best of several repeats.

python benchmarks/theory.py
"""

from __future__ import annotations

import timeit
import tracemalloc
from collections.abc import Callable

import numpy as np
import scipy.special
from rich.console import Console
from rich.table import Table

from surefoot.theory import bounds, models


def best(function: Callable[[], object], repeat: int = 9, number: int = 1) -> float:
    return min(timeit.repeat(function, number=number, repeat=repeat)) / number


def double_sum(lrs: np.ndarray, deltas: np.ndarray, distance: float) -> float:
    """Theorem 3.4 as printed, as T×T NumPy arrays."""
    products = lrs * deltas
    upper = np.triu(np.ones((lrs.size, lrs.size), bool))
    tails = np.where(upper, lrs, 0.0).sum(axis=1)
    inner = np.where(upper, products, 0.0).sum(axis=1) / tails
    outer = (lrs[:-1] / tails[1:] * inner[:-1]).sum()
    return float(distance**2 / (2 * tails[0]) + inner[0] + outer)


def rows() -> list[tuple[str, float, float, str]]:
    """(what, our seconds, the other's seconds, goal); the ratio is ours over the other's."""
    rng = np.random.default_rng(0)
    found = []

    lrs, deltas = rng.random(10_000) + 0.1, rng.random(10_000)
    assert np.isclose(bounds.last_iterate(lrs, deltas, 1.0).total, double_sum(lrs, deltas, 1.0), rtol=1e-10)
    ours = best(lambda: bounds.last_iterate(lrs, deltas, 1.0))
    found.append(
        ("last_iterate, T = 1e4, against the double sum", ours, best(lambda: double_sum(lrs, deltas, 1.0), 2), "≤ 0.01")
    )

    for shape in ((1_000_000,), (100, 10_000)):
        a, d = rng.random(shape) + 0.1, rng.random(shape)
        ours = best(lambda a=a, d=d: bounds.last_iterate(a, d, 1.0))
        limit = best(lambda a=a, d=d: (np.cumsum(a, axis=-1), np.cumsum(d, axis=-1)))
        found.append((f"last_iterate, {shape}, against two cumsum", ours, limit, "≤ 4"))

    f, g, a = rng.random(1_000_000) + 0.1, rng.random(1_000_000), 10.0 ** rng.uniform(-2, 2, 1_000_000)

    def sgd() -> object:
        return a.copy(), 0.5 * (a * g)

    def sps() -> object:
        height = f - 0.0
        size = np.minimum(a, height / g)
        return size, size * (1.0 - 0.5 * (size / a)) * g

    def ngn() -> object:
        size = a / (1.0 + 0.5 * (a * g / (f - 0.0)))
        return size, 0.5 * size * g

    def lambert() -> object:
        height = f - 0.0
        w = scipy.special.lambertw(a * g / height).real
        shrink = np.exp(-w)
        return a * shrink, height * (1.0 - shrink * (1.0 + 0.5 * w))

    for model, passes in (
        (models.Linear(), sgd),
        (models.Truncated(), sps),
        (models.SquareRoot(), ngn),
        (models.Exponential(), lambert),
    ):
        name = type(model).__name__
        ours = best(lambda model=model: model.step(f, g, a))
        found.append((f"{name}.step, 1e6 elements, against the fewest NumPy passes", ours, best(passes), "≤ 3"))
    for p in (0.25, -1.0):
        ours = best(lambda p=p: models.Power(p).step(f, g, a), 3)
        peer = best(lambda: scipy.special.lambertw(a * g / f), 3)
        found.append((f"Power({p}).step, 1e6 elements, against scipy's lambertw alone", ours, peer, "–"))
    model = models.SquareRoot()
    ours = best(lambda: model.step(1.0, 2.0, 3.0), 20, 5_000)
    found.append(("NGN on Python floats, against 2 µs", ours, 2e-6, "≤ 1"))
    return found


def peak_memory() -> float:
    """Peak extra memory of last_iterate over the size of its input."""
    a, d = np.random.default_rng(0).random((2, 1_000_000)) + 0.1
    tracemalloc.start()
    bounds.last_iterate(a, d, 1.0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / (a.nbytes + d.nbytes)


def main() -> None:
    table = Table("what", "ours", "the other", "ratio", "goal", "met", title="surefoot.theory")
    for what, ours, other, goal in rows():
        met = "–" if goal == "–" else "yes" if ours / other <= float(goal.removeprefix("≤ ")) else "NO"
        table.add_row(what, f"{ours * 1e3:.4g} ms", f"{other * 1e3:.4g} ms", f"{ours / other:.3g}", goal, met)
    console = Console(width=140)
    console.print(table)
    console.print(f"peak memory of last_iterate at T = 1e6: {peak_memory():.2f} × its input")


if __name__ == "__main__":
    main()
