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


def draw(trace: xr.Dataset, columns: Mapping[str, Floats], verdict: Verdict) -> Figure:
    """Four panels over the steps, under the verdict; what is not finite leaves a gap."""
    figure, panels = new_figure(2, 2, width=4.5, height=3.1)
    loss, left, rate, delta = panels
    colour = COLOURS[verdict.state]
    lost = np.flatnonzero(np.isinf(trace.loss.values))
    if len(lost):  # what comes after says nothing
        trace = trace.isel(step=slice(0, lost[0]))
        columns = {name: values[: lost[0]] for name, values in columns.items()}
    window = max(3, len(trace.step) // 12)

    _line(loss, trace.loss.values, "of a batch", GREY)
    _line(loss, _mean(trace.loss.values, window), f"mean over {window} steps", "black")
    _slopes_left(left, columns, window)
    _line(rate, trace.rate.values, "rate", "black")
    if verdict.lr_range is not None:
        low, high = verdict.lr_range
        rate.axhspan(low, high, color=colour, alpha=0.15, label=f"suggested: {short(low, 2)} to {short(high, 2)}")
    if verdict.best_lr is not None:
        rate.axhline(verdict.best_lr, color=colour, linewidth=0.8, label=f"best near {short(verdict.best_lr, 2)}")
    _line(delta, trace.delta.values, f"{trace.attrs['optimizer']} ({trace.attrs['delta_source']})", "black")
    for name, look in looks(map(str, trace.algorithm.values)).items():
        method = trace.sel(algorithm=name)
        if not np.allclose(method.counterfactual_delta, trace.delta, rtol=1e-6, atol=0.0, equal_nan=True):
            _line(rate, method.counterfactual_size.values, f"{look.label} would take", look.colour, "--")
            _line(delta, method.counterfactual_delta.values, f"{look.label} would have", look.colour, "--")
    _line(delta, trace.noise.values, "noise of the bound so far", GREY, "-.")
    if trace.attrs["bias"] > 0:
        delta.axhline(trace.attrs["bias"], color=GREY, linestyle=":", label="bias of the bound")
    titles = ("loss", "slope left at a step's end", "step size", "stability index δ")
    for ax, title in zip(panels, titles, strict=True):
        ax.set(title=title, xlabel="step")
        if len(lost):
            ax.axvline(float(lost[0]), color=COLOURS[State.TOO_LARGE])
        if ax.get_legend_handles_labels()[0]:
            ax.legend(fontsize="x-small", frameon=False)
    figure.suptitle("\n".join(textwrap.wrap(str(verdict), 100)), fontsize="medium", color=colour)
    return figure


@np.errstate(all="ignore")
def _slopes_left(ax: Any, columns: Mapping[str, Floats], window: int) -> None:
    """The share of ⟨g, Δ⟩ that ⟨g⁺, Δ⟩ on the next batch is: at 1 a step could be longer, below 0 it went too far."""
    left = np.append(columns["carried"][1:], np.nan)
    known = np.isfinite(left) & np.isfinite(columns["slope"])
    kept, promised = (_mean(np.where(known, slopes, 0.0), window) for slopes in (left, columns["slope"]))
    ax.axhspan(-1.5, 0.0, color=VERMILION, alpha=0.08, label="too far")
    ax.plot(np.clip(np.where(promised > 0, kept / promised, np.nan), -1.45, 1.45), color="black", linewidth=1.2)
    ax.set(ylabel="of the slope at its start", ylim=(-1.5, 1.5))


def _mean(values: Floats, window: int) -> Floats:
    """Means over the last steps, of which there are fewer at the beginning; numbers that are missing do not count."""
    known = np.isfinite(values)
    sums, counts = np.cumsum(np.where(known, values, 0.0)), np.cumsum(known.astype(float))
    sums[window:], counts[window:] = sums[window:] - sums[:-window], counts[window:] - counts[:-window]
    return np.asarray(np.divide(sums, counts, out=np.full(len(values), np.nan), where=counts > 0))


def _line(ax: Any, values: Floats, label: str, colour: str, style: str = "-") -> None:
    """A line; the first one of a panel decides whether its axis is logarithmic: where no number is below 0."""
    known = values[np.isfinite(values)]
    if not ax.get_lines() and (known > 0).any() and (known >= 0).all():
        ax.set_yscale("log", nonpositive="mask")
    ax.plot(np.where(np.isfinite(values), values, np.nan), label=label, color=colour, linewidth=1.0, linestyle=style)
