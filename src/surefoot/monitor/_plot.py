"""One figure of a run: its loss, what its steps promise and get, its rate and its indices."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from surefoot.monitor._verdict import COLOURS, State, Verdict
from surefoot.plots import short
from surefoot.plots.methods import GREY, VERMILION, looks
from surefoot.plots.style import new_figure
from surefoot.rules import Floats

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure

_SMOOTH = 12
"""A smoothed line is a mean over the length of the run divided by this."""


def draw(trace: xr.Dataset, columns: Mapping[str, Floats], verdict: Verdict) -> Figure:
    """Four panels over the steps, under the verdict; what is not finite leaves a gap."""
    figure, (loss, left, rate, delta) = new_figure(2, 2, width=4.5, height=3.1)
    lost = np.flatnonzero(np.isinf(trace.loss.values))
    if len(lost):  # what comes after says nothing
        trace = trace.isel(step=slice(0, lost[0]))
        columns = {name: values[: lost[0]] for name, values in columns.items()}
    steps = trace.step.values
    window = max(3, len(steps) // _SMOOTH)
    colour = COLOURS[verdict.state]

    _line(loss, steps, trace.loss.values, "of a batch", GREY)
    _line(loss, steps, _mean(trace.loss.values, window), f"mean over {window} steps", "black")
    _slopes_left(left, steps, columns, window)
    _line(rate, steps, trace.rate.values, "rate", "black")
    if verdict.lr_range is not None:
        low, high = verdict.lr_range
        rate.axhspan(low, high, color=colour, alpha=0.15, label=f"suggested: {short(low, 2)} to {short(high, 2)}")
    if verdict.best_lr is not None:
        rate.axhline(verdict.best_lr, color=colour, linewidth=0.8, label=f"best near {short(verdict.best_lr, 2)}")
    _line(delta, steps, trace.delta.values, f"{trace.attrs['optimizer']} ({trace.attrs['delta_source']})", "black")
    for name, look in looks(map(str, trace.algorithm.values)).items():
        method = trace.sel(algorithm=name)
        for ax, values, own, verb in (
            (rate, method.counterfactual_size.values, trace.rate.values, "take"),
            (delta, method.counterfactual_delta.values, trace.delta.values, "have"),
        ):
            if not np.allclose(values, own, rtol=1e-6, atol=0.0, equal_nan=True):  # else they lie on each other
                _line(ax, steps, values, f"{look.label} would {verb}", look.colour, "--")
    _line(delta, steps, trace.noise.values, "noise of the bound so far", GREY, "-.")
    if trace.attrs["bias"] > 0:
        delta.axhline(trace.attrs["bias"], color=GREY, linestyle=":", label="bias of the bound")
    titles = ("loss", "slope left at a step's end", "step size", "stability index δ")
    for ax, title in zip((loss, left, rate, delta), titles, strict=True):
        ax.set_title(title)
        ax.set_xlabel("step")
        if len(lost):
            ax.axvline(float(lost[0]), color=COLOURS[State.TOO_LARGE])
        if ax.get_legend_handles_labels()[0]:
            ax.legend(fontsize="x-small", frameon=False)
    figure.suptitle("\n".join(textwrap.wrap(str(verdict), 100)), fontsize="medium", color=colour)
    return figure


@np.errstate(all="ignore")
def _slopes_left(ax: Any, steps: Any, columns: Mapping[str, Floats], window: int) -> None:
    """The share of ⟨g, Δ⟩ that ⟨g⁺, Δ⟩ on the next batch is: at 1 a step could be longer, below 0 it went too far."""
    ax.set_ylabel("of the slope at its start")
    left = np.append(columns["carried"][1:], np.nan)
    known = np.isfinite(left) & np.isfinite(columns["slope"])
    kept, promised = (_mean(np.where(known, slopes, 0.0), window) for slopes in (left, columns["slope"]))
    share = np.where(promised > 0, kept / promised, np.nan)
    ax.axhspan(-1.5, 0.0, color=VERMILION, alpha=0.08)
    ax.axhline(0.0, color=VERMILION, linewidth=0.8)
    ax.plot(steps, np.clip(share, -1.45, 1.45), color="black", linewidth=1.2)
    ax.text(0.01, 0.03, "too far", transform=ax.transAxes, fontsize="small", color=VERMILION)
    ax.text(0.01, 0.93, "could be longer", transform=ax.transAxes, fontsize="small", color=GREY)
    ax.set_ylim(-1.5, 1.5)


def _mean(values: Floats, window: int) -> Floats:
    """Means over the last steps, of which there are fewer at the beginning; numbers that are missing do not count."""
    known = np.isfinite(values)
    sums, counts = np.cumsum(np.where(known, values, 0.0)), np.cumsum(known.astype(float))
    sums[window:], counts[window:] = sums[window:] - sums[:-window], counts[window:] - counts[:-window]
    return np.asarray(np.divide(sums, counts, out=np.full(len(values), np.nan), where=counts > 0))


def _line(ax: Any, steps: Any, values: Floats, label: str, colour: str, style: str = "-") -> None:
    """A line, on a logarithmic axis if all that is known is above 0."""
    known = values[np.isfinite(values)]
    positive = len(known) > 0 and bool((known >= 0).all())
    shown = np.where(np.isfinite(values) & ((values > 0) | (not positive)), values, np.nan)
    ax.plot(steps, shown, label=label, color=colour, linewidth=1.0, linestyle=style)
    if positive and (known > 0).any() and ax.get_yscale() == "linear" and not ax.get_lines()[:-1]:
        ax.set_yscale("log")
