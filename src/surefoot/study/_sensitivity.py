"""How much a method depends on its learning rate, measured and predicted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from surefoot._base import checks
from surefoot._base.text import aligned, html_table
from surefoot.runs import Floats
from surefoot.study._show import cells

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Sensitivity:
    """One method's dependence on its rate. All rates are rates of the study's grid.

    A *window* is the unbroken range of grid rates around the best one with f ≤ f_best + tolerance·(f(x_1) − f⋆) (not a
    factor of f_best, which may be 1e-25); its width log10(high/low) is what the grid proves, and the true one is larger
    by less than two grid steps. A rate at which every number is ∞ or missing is in no window, and a method without any
    finite loss (or bound) has NaN rates, −∞ as width, and no expected excess (NaN).
    """

    algorithm: str
    best_rate: float
    """The rate with the smallest loss."""
    best_loss: float
    low: float
    high: float
    """The window of the measured loss."""
    decades: float
    """The width of that window."""
    bound_rate: float
    """The rate with the smallest bound."""
    bound_value: float
    bound_low: float
    bound_high: float
    """The window that the bound predicts: Ω ≤ Ω_best + tolerance·(f(x_1) − f⋆)."""
    bound_decades: float
    overlap: float
    """Rates in both windows over rates in either: 1 if they agree."""
    rank_correlation: float
    """Spearman's, of bound and loss over the rates (∞ ranks last); NaN if one of them is constant."""
    expected_excess: float
    """Mean over the rates of min(loss, f(x_1)) − f_best: the learning-rate sensitivity of Wortsman et al. (2024)."""


class SensitivityTable(tuple[Sensitivity, ...]):
    """Rows of :class:`Sensitivity`, one per method, in the study's order; also by the method's name."""

    __slots__ = ()

    def __getitem__(self, algorithm: Any) -> Any:
        if not isinstance(algorithm, str):
            return super().__getitem__(algorithm)
        for row in self:
            if row.algorithm == algorithm:
                return row
        raise KeyError(f"no method {algorithm!r}; there are {', '.join(row.algorithm for row in self)}")

    def __str__(self) -> str:
        return aligned(cells(self))

    def _repr_html_(self) -> str:
        return html_table(cells(self))

    def to_frame(self) -> pd.DataFrame:
        """A pandas table with the methods as row labels."""
        import pandas as pd

        return pd.DataFrame([asdict(row) for row in self]).set_index("algorithm")


def measure_windows(
    algorithms: Sequence[str],
    lrs: Floats,
    losses: Floats,
    totals: Floats,
    initial_loss: float,
    optimal_loss: float,
    *,
    tolerance: float = 0.1,
) -> SensitivityTable:
    """The table for losses and bounds of shape (algorithms, rates); NaN counts as ∞."""
    # On networks the loss at the start is that of another mode, and may lie below all others.
    slack = checks.number("tolerance", tolerance, positive=True) * max(initial_loss - optimal_loss, 0.0)
    rows = []
    for algorithm, loss, total in zip(algorithms, _without_nan(losses), _without_nan(totals), strict=True):
        measured, predicted = _window(loss, slack), _window(total, slack)
        best = _best(lrs, loss)
        least = min(loss.min(), initial_loss)
        excess = np.minimum(loss, initial_loss) - (least if least < np.inf else 0.0)
        either = (measured | predicted).sum()
        rows.append(
            Sensitivity(
                algorithm,
                best,
                float(loss.min()),
                *_ends(lrs, measured),
                _best(lrs, total),
                float(total.min()),
                *_ends(lrs, predicted),
                float((measured & predicted).sum() / either) if either else 0.0,
                _rank_correlation(loss, total),
                float(excess.mean()) if best > 0 else math.nan,
            )
        )
    return SensitivityTable(rows)


def _without_nan(values: Floats) -> Floats:
    return np.where(np.isnan(values), np.inf, values)


def _best(lrs: Floats, values: Floats) -> float:
    position = int(values.argmin())
    return float(lrs[position]) if values[position] < np.inf else math.nan


def _window(values: Floats, slack: float) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """The unbroken range of good rates around the best one."""
    best = int(values.argmin())
    good = (values <= values[best] + slack) & (values < np.inf)
    window = np.zeros(len(good), bool)
    if good[best]:
        bad = np.flatnonzero(~good)
        low = int(bad[bad < best].max(initial=-1)) + 1
        high = int(bad[bad > best].min(initial=len(good)))
        window[low:high] = True
    return window


def _ends(lrs: Floats, window: np.ndarray[Any, np.dtype[np.bool_]]) -> tuple[float, float, float]:
    inside = lrs[window]
    if not len(inside):
        return math.nan, math.nan, -math.inf
    return float(inside[0]), float(inside[-1]), math.log10(inside[-1]) - math.log10(inside[0])


def _rank_correlation(x: Floats, y: Floats) -> float:
    """Spearman's; NaN if one side is constant."""
    from scipy.stats import spearmanr

    return math.nan if (x == x[0]).all() or (y == y[0]).all() else float(spearmanr(x, y).statistic)
