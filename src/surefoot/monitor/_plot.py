"""Loss, indices, step sizes and the partial bound of one run."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure


def draw(trace: xr.Dataset, title: str) -> Figure:
    """Four panels over the steps; what is not finite or not positive leaves a gap."""
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(2, 2, figsize=(9.0, 6.0), sharex=True, layout="constrained")
    (loss, size), (delta, noise) = axes
    _line(loss, trace.loss, "batch loss", "black")
    _line(size, trace.rate, "rate", "black")
    _line(delta, trace.delta, f"{trace.attrs['optimizer']} ({trace.attrs['delta_source']})", "black")
    for position, name in enumerate(trace.algorithm.values):
        chosen = trace.sel(algorithm=name)
        _line(size, chosen.counterfactual_size, f"{name} would take", f"C{position}")
        _line(delta, chosen.counterfactual_delta, f"{name} would have", f"C{position}")
    _line(noise, trace.noise, "noise so far", "black")
    if trace.attrs["bias"] > 0:
        noise.axhline(trace.attrs["bias"], color="C1", linestyle="--", label="bias")
    for ax, title in ((loss, "loss"), (size, "step size"), (delta, "stability index δ"), (noise, "partial bound Ω")):
        ax.set_title(title)
        ax.legend(fontsize="small")
        ax.grid(alpha=0.25)
    for ax in (delta, noise):
        ax.set_xlabel("step")
    figure.suptitle("\n".join(textwrap.wrap(title, 100)), fontsize="medium")
    return figure


def _line(ax: Any, values: xr.DataArray, label: str, colour: str) -> None:
    numbers = np.where(np.isfinite(values.values) & (values.values > 0), values.values, np.nan)
    ax.plot(
        values.step.values,
        numbers,
        label=label,
        color=colour,
        linewidth=1.0,
        linestyle="-" if colour == "black" else "--",
    )
    if np.isfinite(numbers).any():
        ax.set_yscale("log")
